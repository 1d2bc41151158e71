//! Pools: volumes over NBD that share their blocks, with QEMU's own clients.

use crate::common::guest_agent::{agent, Manner};
use crate::common::nbd::libnbd;
use crate::common::{qemu_img, random, Bench, Child, DAMAGED, FAILED, REFUSED, USAGE};
use format::pool::{BlockGroupNo, Superblock};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// A server of a pool.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start(bench: &Bench, pool: &str) -> Self {
        Self::start_with(bench, pool, &[])
    }

    fn start_with(bench: &Bench, pool: &str, options: &[&str]) -> Self {
        let socket = bench.path("pool.socket");
        let _ = std::fs::remove_file(&socket);
        let address = socket.to_str().unwrap().to_owned();
        let serve = [&["pool", "serve", pool, "--nbd", &address], options].concat();
        let child = Child::start(bench.command(&serve), "pool serve");
        let start = Instant::now();
        while !socket.exists() {
            assert!(start.elapsed() < Duration::from_secs(20), "the server does not come up");
            std::thread::sleep(Duration::from_millis(10));
        }
        Server { child, socket }
    }

    fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.socket.display())
    }

    /// Lets it end by itself.
    fn stop(self) {
        self.child.signal(Signal::TERM);
        self.child.wait().expect_done();
    }
}

/// Runs a command of qemu-io on a volume.
fn qemu_io(uri: &str, command: &str) {
    let done = std::process::Command::new("qemu-io")
        .args(["-d", "unmap", "-f", "raw", "-c", command, uri])
        .output()
        .unwrap();
    assert!(done.status.success(), "{command}: {done:?}");
}

fn content(uri: &str, to: &Path) -> Vec<u8> {
    qemu_img(&["convert", "-f", "raw", "-O", "raw", uri, to.to_str().unwrap()]);
    std::fs::read(to).unwrap()
}

#[test]
fn volumes_share_their_blocks_and_survive_a_kill() {
    let bench = Bench::bare();
    let pool = bench.arg("pool");
    bench.done(&["pool", "create", &pool, "--size", "512MiB"]);
    bench.done(&["volume", "--pool", &pool, "create", "a", "--size", "40MiB"]);
    bench.done(&["volume", "--pool", &pool, "create", "b", "--size", "40MiB", "--share", "inline"]);
    let mut disk = random(24 * MIB, 1);
    disk.resize(40 * MIB, 0);
    let image = bench.file("disk.raw", &disk);

    let server = Server::start(&bench, &pool);
    for volume in ["a", "b"] {
        qemu_img(&["convert", "-n", "-f", "raw", "-O", "raw", &image, &server.uri(volume)]);
        assert!(content(&server.uri(volume), &bench.path("out")) == disk);
    }
    // Both have the same 24 MiB; zeros take nothing.
    let stats = bench.json(&["pool", "stats", &pool]);
    assert_eq!(stats["stored_bytes"], 24 * MIB);
    assert_eq!(stats["mapped_bytes"], 48 * MIB);
    // A snapshot while it is served, then changes.
    bench.done(&["volume", "--pool", &pool, "snapshot", "a@before"]);
    qemu_io(&server.uri("a"), "write -q -P 7 1M 3M");
    qemu_io(&server.uri("a"), "write -q -P 9 512 1k");
    qemu_io(&server.uri("a"), "discard -q 20M 1M");
    let mut changed = disk.clone();
    changed[MIB..4 * MIB].fill(7);
    changed[512..1536].fill(9);
    changed[20 * MIB..21 * MIB].fill(0);
    assert!(content(&server.uri("a"), &bench.path("out")) == changed);
    // A snapshot is only read.
    bench.done(&["pool", "check", &pool, "--data"]);
    let refused = bench.command(&["pool", "check", &pool, "--repair"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(REFUSED), "{refused:?}");

    // qemu-io flushes before it goes; the kill comes after.
    server.child.signal(Signal::KILL);
    drop(server.child.wait());
    let check = bench.done(&["pool", "check", &pool, "--data"]);
    assert!(String::from_utf8_lossy(&check.stdout).contains("no damage"), "{check}");
    bench.done(&["volume", "--pool", &pool, "clone", "a@before", "c"]);

    let server = Server::start(&bench, &pool);
    for (volume, wanted) in [("a", &changed), ("b", &disk), ("a@before", &disk), ("c", &disk)] {
        assert!(content(&server.uri(volume), &bench.path("out")) == *wanted, "{volume}");
    }
    bench.fails(&["volume", "--pool", &pool, "delete", "a"], REFUSED, &["a has snapshots", "before"]);
    bench.done(&["volume", "--pool", &pool, "delete", "a@before"]);
    bench.done(&["volume", "--pool", &pool, "delete", "a"]);
    bench.done(&["volume", "--pool", &pool, "resize", "b", "10MiB"]);
    let listed = bench.json(&["volume", "--pool", &pool, "list"]);
    let names: Vec<_> = listed["volumes"].as_array().unwrap().iter().map(|v| v["name"].clone()).collect();
    assert_eq!(names, ["b", "c"]);
    assert!(content(&server.uri("b"), &bench.path("out")) == disk[..10 * MIB]);
    server.stop();
    bench.done(&["pool", "check", &pool, "--data"]);
}

/// Counts and fingerprints follow from the maps and the blocks: pages of theirs that are damaged are made anew.
#[test]
fn what_follows_from_the_maps_is_repaired() {
    let bench = Bench::bare();
    let pool = bench.arg("pool");
    bench.done(&["pool", "create", &pool, "--size", "256MiB"]);
    bench.done(&["volume", "--pool", &pool, "create", "a", "--size", "8MiB"]);
    let disk = random(8 * MIB, 1);
    let image = bench.file("disk.raw", &disk);
    let server = Server::start(&bench, &pool);
    qemu_img(&["convert", "-n", "-f", "raw", "-O", "raw", &image, &server.uri("a")]);
    server.stop();

    let file = File::options().read(true).write(true).open(&pool).unwrap();
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 0).unwrap();
    let geometry = Superblock::decode(&block).unwrap().geometry;
    let fingerprints = geometry.fingerprints_start(BlockGroupNo(0));
    file.write_all_at(&[1; 100], fingerprints.offset() + 500).unwrap();
    let advice = format!("`sapwood pool check {pool} --repair`");
    let found = bench.run(&["pool", "check", &pool]);
    assert_eq!(found.code(), Some(DAMAGED), "{found}");
    for part in ["Fingerprints page", "is damaged", &advice] {
        assert!(found.stderr.contains(part), "{found}");
    }
    let mended = bench.json(&["pool", "check", &pool, "--repair"]);
    assert_eq!(mended["findings"], serde_json::json!([]), "{mended}");
    assert!(mended["mended"][0].as_str().unwrap().contains("Fingerprints page"), "{mended}");
    bench.done(&["pool", "check", &pool, "--data"]);

    // Without its summary a pool does not open.
    file.write_all_at(&[1; 100], geometry.summary_start().offset() + 40).unwrap();
    bench.fails(&["pool", "stats", &pool], DAMAGED, &["Summary page", "--repair"]);
    let done = bench.done(&["pool", "check", &pool, "--data", "--repair"]);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains(": mended") && said.contains("no damage is left"), "{said}");

    let server = Server::start(&bench, &pool);
    assert!(content(&server.uri("a"), &bench.path("out")) == disk);
    let before = bench.json(&["pool", "stats", &pool])["stored_bytes"].clone();
    bench.done(&["volume", "--pool", &pool, "create", "b", "--size", "8MiB"]);
    qemu_img(&["convert", "-n", "-f", "raw", "-O", "raw", &image, &server.uri("b")]);
    assert_eq!(bench.json(&["pool", "stats", &pool])["stored_bytes"], before, "equal blocks are found");
    server.stop();
    bench.done(&["pool", "check", &pool, "--data"]);
}

/// A snapshot is backed up, served or not; the next backup reads only what changed since.
#[test]
fn snapshots_of_volumes_are_backed_up() {
    let bench = Bench::new("balanced");
    let pool = bench.arg("pool");
    bench.done(&["pool", "create", &pool, "--size", "512MiB"]);
    bench.done(&["volume", "--pool", &pool, "create", "web", "--size", "64MiB"]);
    let volume = |args: &[&str]| drop(bench.done(&[&["volume", "--pool", &pool], args].concat()));
    let backup =
        |snapshot: &str| bench.json(&["backup", "web01/vda", &format!("volume:{snapshot}"), "--pool", &pool]);
    let mut disk = random(30 * MIB, 3);
    disk.resize(64 * MIB, 0);
    let image = bench.file("disk.raw", &disk);

    let server = Server::start(&bench, &pool);
    qemu_img(&["convert", "-n", "-f", "raw", "-O", "raw", &image, &server.uri("web")]);
    volume(&["snapshot", "web@a"]);
    qemu_io(&server.uri("web"), "write -q -P 7 33M 4k");
    let first = backup("web@a");
    assert_eq!((&first["scan"]["kind"], &first["source_format"]), (&"whole".into(), &"volume".into()));
    let source = |read: usize, hashed: usize, known: usize| serde_json::json!({ "read": read, "hashed": hashed, "known": known });
    assert_eq!(first["source_bytes"], source(30 * MIB, 0, 30 * MIB));
    assert!(bench.restored("web01/vda") == disk, "what was written after the snapshot is not in it");
    let first_disk = disk.clone();
    qemu_io(&server.uri("web"), "write -q -P 5 10M 4k");
    disk[33 * MIB..33 * MIB + 4096].fill(7);
    disk[10 * MIB..10 * MIB + 4096].fill(5);
    volume(&["snapshot", "web@b"]);
    let second = backup("web@b");
    assert_eq!(second["scan"], serde_json::json!({ "kind": "changed", "bytes": 8 * MIB, "why": null }));
    // Of the two segments that were touched, only the two blocks that changed were read, and nothing was hashed.
    assert_eq!(second["source_bytes"], source(8192, 0, 4 * MIB + 4096));
    assert!(bench.restored("web01/vda") == disk);
    // What was written without fingerprints is read and hashed.
    volume(&["share", "web", "off"]);
    qemu_io(&server.uri("web"), "write -q -P 5 10M 4k");
    qemu_io(&server.uri("web"), "write -q -P 6 11M 8k");
    disk[11 * MIB..11 * MIB + 8192].fill(6);
    volume(&["snapshot", "web@off"]);
    let unshared = backup("web@off");
    assert_eq!(unshared["source_bytes"], source(3 * 4096, 3 * 4096, 4 * MIB - 3 * 4096));
    assert!(bench.restored("web01/vda") == disk);
    volume(&["delete", "web@off"]);
    drop(backup("web@b"));
    server.stop();

    // Nobody serves it.
    let again = backup("web@b");
    assert_eq!(again["scan"], serde_json::json!({ "kind": "changed", "bytes": 0, "why": null }));
    let earlier = backup("web@a");
    assert_eq!(earlier["scan"], serde_json::json!({ "kind": "changed", "bytes": 8 * MIB, "why": null }));
    // The parent does not have what stood there before.
    assert_eq!(earlier["source_bytes"], source(4096, 0, 4 * MIB));
    let older = bench.restored(&format!("web01/vda@{}", earlier["snapshot"].as_str().unwrap()));
    assert!(older == first_disk);

    // A pool that nobody serves is for one command at a time.
    let slow = ["-q", "backup", "web01/vdb", "volume:web@a", "--pool", &pool, "--limit", "1M"];
    let slow = Child::start(bench.command(&slow), "a slow backup");
    let start = Instant::now();
    // Asking the pool itself would keep the backup out.
    let inode = format!(":{} ", std::fs::metadata(&pool).unwrap().ino());
    while !std::fs::read_to_string("/proc/locks").unwrap().contains(&inode) {
        assert!(start.elapsed() < Duration::from_secs(20) && !slow.has_ended(), "nobody uses the pool");
        std::thread::sleep(Duration::from_millis(10));
    }
    bench.fails(
        &["pool", "stats", &pool],
        REFUSED,
        &["is in use by process ", "(sapwood, since 2", "pool serve"],
    );
    slow.signal(Signal::KILL);
    drop(slow.wait());

    let fails = |name: &str, code, said: &[&str]| {
        let source = format!("volume:{name}");
        drop(bench.fails(&["backup", "web01/vda", &source, "--pool", &pool], code, said));
    };
    fails("web@none", FAILED, &["no web@none"]);
    bench.fails(&["backup", "web01/vda", "volume:web@a"], USAGE, &["--pool"]);

    // What the vault has was made of a snapshot that is gone, or of no volume at all.
    volume(&["delete", "web@a"]);
    volume(&["delete", "web@b"]);
    volume(&["snapshot", "web@a"]);
    let whole = backup("web@a");
    assert!(whole["scan"]["why"].as_str().unwrap().contains("does not have"), "{whole}");
    assert!(bench.restored("web01/vda") == disk);
    bench.done(&["-q", "backup", "web01/vda", &image, "--force"]);
    let whole = backup("web@a");
    assert!(whole["scan"]["why"].as_str().unwrap().contains("not made of a volume"), "{whole}");
    bench.verify();
    bench.done(&["pool", "check", &pool, "--data"]);
}

/// A backup of a volume makes its own snapshot, and the pool keeps the last one: the next reads only what changed since.
#[test]
fn volumes_are_backed_up_at_snapshots_of_their_own() {
    let bench = Bench::new("balanced");
    let pool = bench.arg("pool");
    bench.done(&["pool", "create", &pool, "--size", "512MiB"]);
    bench.done(&["volume", "--pool", &pool, "create", "web", "--size", "64MiB"]);
    bench.done(&["volume", "--pool", &pool, "create", "web2", "--size", "8MiB"]);
    bench.done(&["volume", "--pool", &pool, "snapshot", "web@mine"]);
    let backup = [&["backup", "web01/vda", "volume:web", "--pool"][..], &[&pool]].concat();
    let snapshots = || -> Vec<String> {
        let list = bench.json(&["volume", "--pool", &pool, "list"]);
        let names =
            list["volumes"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.contains('@') && name != "web@mine").collect()
    };
    let mut disk = random(30 * MIB, 4);
    disk.resize(64 * MIB, 0);
    let image = bench.file("disk.raw", &disk);

    let server = Server::start(&bench, &pool);
    qemu_img(&["convert", "-n", "-f", "raw", "-O", "raw", &image, &server.uri("web")]);
    let first = bench.json(&backup);
    assert_eq!((&first["scan"]["kind"], &first["consistency"]), (&"whole".into(), &"crash".into()));
    let kept = snapshots();
    assert!(kept.len() == 1 && kept[0].starts_with("web@backup-"), "{kept:?}");
    qemu_io(&server.uri("web"), "write -q -P 5 10M 4k");
    disk[10 * MIB..10 * MIB + 4096].fill(5);
    let orders = agent(&bench.path("agent"), Manner::Well);
    let second = bench.json(&[&backup[..], &["--agent", &bench.arg("agent")]].concat());
    assert_eq!(second["scan"], serde_json::json!({ "kind": "changed", "bytes": 4 * MIB, "why": null }));
    assert_eq!(second["consistency"], "application");
    let orders = orders.lock().unwrap().clone();
    assert!(orders.ends_with(&["fsfreeze-freeze".into(), "fsfreeze-thaw".into()]), "{orders:?}");
    assert!(bench.restored("web01/vda") == disk);
    let now = snapshots();
    assert!(now.len() == 1 && now != kept, "{now:?} after {kept:?}");
    // A snapshot of the user's stays, whatever it is called; another disk of the volume has its own.
    let mine = format!("{}-before-upgrade", now[0].rsplit_once('-').unwrap().0);
    bench.done(&["volume", "--pool", &pool, "snapshot", &mine]);
    for (disk, kind) in [("web02/vda", "whole"), ("web01/vda", "changed"), ("web02/vda", "changed")] {
        let again = bench.json(&["backup", disk, "volume:web", "--pool", &pool]);
        assert_eq!(again["scan"]["kind"], kind, "{disk}: {}", again["scan"]);
    }
    assert!(snapshots().contains(&mine) && snapshots().len() == 3, "{:?}", snapshots());
    // A disk that is renamed goes on with its own.
    bench.done(&["rename", "web02/vda", "web03/vda"]);
    let renamed = bench.json(&["backup", "web03/vda", "volume:web", "--pool", &pool]);
    assert_eq!(renamed["scan"]["kind"], "changed", "{renamed}");
    assert_eq!(snapshots().len(), 3, "{:?}", snapshots());
    bench.done(&["volume", "--pool", &pool, "delete", &mine]);
    let now = snapshots();
    // Volumes of two disks that were swapped are noticed, also where both are clones of one template.
    bench.done(&["volume", "--pool", &pool, "clone", "web@mine", "clone"]);
    bench.done(&["-q", "backup", "clone/vda", "volume:clone", "--pool", &pool]);
    let swapped = ["backup", "clone/vda", "volume:web", "--pool", &pool];
    bench.fails(&swapped, REFUSED, &["volume:clone of", "is that of web0", "--force"]);
    bench.done(&[
        "volume",
        "--pool",
        &pool,
        "delete",
        snapshots().iter().find(|s| s.starts_with("clone@")).unwrap(),
    ]);
    assert_eq!(snapshots(), now);
    // One that fails leaves none, and takes none away.
    bench.fails(&[&backup[..], &["--policy", "none"]].concat(), USAGE, &["none"]);
    bench.fails(&["backup", "web01/vda", "volume:web2", "--pool", &pool], REFUSED, &["--force"]);
    assert_eq!(snapshots(), now);
    // Another volume has its own.
    bench.done(&["-q", "backup", "web01/vdb", "volume:web2", "--pool", &pool]);
    assert_eq!(snapshots().len(), 3);

    // What one that was killed leaves goes with the next.
    let slow = [&["-q"], &backup[..], &["--limit", "1M", "--full"]].concat();
    let slow = Child::start(bench.command(&slow), "a slow backup");
    let start = Instant::now();
    while snapshots().len() < 4 {
        assert!(start.elapsed() < Duration::from_secs(20) && !slow.has_ended(), "it makes no snapshot");
        std::thread::sleep(Duration::from_millis(10));
    }
    slow.signal(Signal::KILL);
    drop(slow.wait());
    server.stop();

    // A job does it, also where nobody serves the pool.
    let config = format!(
        "store = '{}'\nstate_dir = '{}'\n[jobs.nightly]\npool = '{pool}'\n[jobs.nightly.disks]\n\
         'web01/vda' = 'volume:web'\n'web01/vdb' = {{ source = 'volume:web2@mine' }}\n",
        bench.arg("vault"),
        bench.arg("state"),
    );
    let config = bench.file("config.toml", config.as_bytes());
    bench.done(&["volume", "--pool", &pool, "snapshot", "web2@mine"]);
    bench.done(&["--config", &config, "run", "nightly"]);
    assert!(bench.restored("web01/vda") == disk);
    assert_eq!(snapshots().iter().filter(|name| name.starts_with("web@")).count(), 2);
    let third = bench.json(&[&backup[..], &["--agent", &bench.arg("agent")]].concat());
    assert!(third["not_frozen"].as_str().unwrap().contains("nobody serves"), "{third}");
    assert_eq!(third["scan"], serde_json::json!({ "kind": "changed", "bytes": 0, "why": null }));
    bench.verify();
    bench.done(&["pool", "check", &pool, "--data"]);
}

/// What `volume list` says of a volume's fill, once `is_so` of it.
fn fill_when(bench: &Bench, pool: &str, volume: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let list = bench.json(&["volume", "--pool", pool, "list"]);
        let all = list["volumes"].as_array().unwrap();
        let fill = &all.iter().find(|v| v["name"] == volume).unwrap()["fill"];
        if is_so(fill) {
            return fill.clone();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{list}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A volume of a snapshot in a vault is used from the first moment, fills behind that, and survives a kill.
#[test]
fn a_snapshot_of_a_vault_becomes_a_volume() {
    let bench = Bench::new("balanced");
    let pool = bench.arg("pool");
    bench.done(&["pool", "create", &pool, "--size", "512MiB"]);
    let mut disk = random(40 * MIB, 5);
    disk.resize(64 * MIB + 512, 0);
    disk[50 * MIB..52 * MIB].fill(8);
    let snapshot = bench.backup("web01/vda", &bench.file("disk.raw", &disk));
    let volume = |args: &[&str]| drop(bench.done(&[&["volume", "--pool", &pool], args].concat()));

    // Slowly, so that much of it has not arrived when it is used.
    let server = Server::start_with(&bench, &pool, &["--fill-rate", "4M"]);
    volume(&["create", "web", "--from", "web01/vda"]);
    let mut found = content(&server.uri("web"), &bench.path("out"));
    assert!(found == disk);
    qemu_io(&server.uri("web"), "write -q -P 7 35M 1M");
    qemu_io(&server.uri("web"), "write -q -P 9 38797312 1k");
    qemu_io(&server.uri("web"), "discard -q 39M 1M");
    disk[35 * MIB..36 * MIB].fill(7);
    disk[37 * MIB..37 * MIB + 1024].fill(9);
    disk[39 * MIB..40 * MIB].fill(0);
    let fill = fill_when(&bench, &pool, "web", |fill| fill["bytes"].as_u64().unwrap() > 0);
    assert!(fill["bytes"].as_u64().unwrap() < 35 << 20, "{fill}");
    assert_eq!(fill["from"], format!("web01/vda@{snapshot}"));
    let from = format!("web01/vda@{snapshot}");
    bench.fails(&["delete", &from, "--yes"], REFUSED, &["is held"]);
    bench.fails(&["volume", "--pool", &pool, "snapshot", "web@x"], REFUSED, &["still being filled"]);
    server.child.signal(Signal::KILL);
    drop(server.child.wait());

    // The vault is not there at first.
    let (vault, away) = (bench.store.clone(), bench.path("away"));
    std::fs::rename(&vault, &away).unwrap();
    let server = Server::start(&bench, &pool);
    fill_when(&bench, &pool, "web", |fill| fill["error"].is_string());
    qemu_io(&server.uri("web"), "read -q -P 7 35M 1M");
    let read = ["-f", "raw", "-c", "read -q 48M 4M", &server.uri("web")].map(str::to_owned);
    let failed = std::process::Command::new("qemu-io").args(read).output().unwrap();
    assert!(String::from_utf8_lossy(&failed.stdout).contains("Input/output error"), "{failed:?}");
    std::fs::rename(&away, &vault).unwrap();
    fill_when(&bench, &pool, "web", Value::is_null);
    found = content(&server.uri("web"), &bench.path("out"));
    assert!(found == disk);
    // It needs the vault no more.
    assert_eq!(bench.json(&["snapshots", "web01/vda"])["snapshots"][0]["held"], false);
    volume(&["snapshot", "web@x"]);
    server.child.signal(Signal::TERM);
    let ended = server.child.wait();
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(ended.stderr.contains("web is not filled"), "{ended}");
    assert!(ended.stderr.contains("has not arrived"), "{ended}");

    // Nobody serves it, and all of it is waited for; and one that is deleted before.
    bench.done(&["volume", "--pool", &pool, "create", "whole", "--from", &from, "--size", "80MiB", "--wait"]);
    volume(&["create", "gone", "--from", &from]);
    assert_eq!(bench.json(&["snapshots", "web01/vda"])["snapshots"][0]["held"], true);
    volume(&["delete", "gone"]);
    assert_eq!(bench.json(&["snapshots", "web01/vda"])["snapshots"][0]["held"], false);
    let small = ["volume", "--pool", &pool, "create", "small", "--from", &from, "--size", "1MiB"];
    bench.fails(&small, REFUSED, &["too small"]);
    assert_eq!(bench.json(&["snapshots", "web01/vda"])["snapshots"][0]["held"], false);
    let server = Server::start(&bench, &pool);
    let whole = content(&server.uri("whole"), &bench.path("out"));
    assert!(
        whole.len() == 80 * MIB
            && whole[..36 * MIB] != disk[..36 * MIB]
            && whole[60 * MIB..] == vec![0; 20 * MIB]
    );
    server.stop();
    bench.done(&["pool", "check", &pool, "--data"]);
    let stats = bench.json(&["pool", "stats", &pool]);
    assert_eq!(stats["unshared_bytes"], 0);
}

#[test]
fn other_programs_see_what_changed_between_snapshots() {
    let bench = Bench::bare();
    let pool = bench.arg("pool");
    let volume = |args: &[&str]| bench.done(&[&["volume", "--pool", &pool], args].concat());
    bench.done(&["pool", "create", &pool, "--size", "512MiB"]);
    volume(&["create", "web", "--size", "64MiB"]);
    let server = Server::start(&bench, &pool);
    qemu_io(&server.uri("web"), "write -q -P 1 0 20M");
    volume(&["snapshot", "web@monday"]);
    qemu_io(&server.uri("web"), "write -q -P 2 5M 1M");
    qemu_io(&server.uri("web"), "write -q -P 3 40M 4k");
    volume(&["snapshot", "web@tuesday"]);
    let map = |of: &str, since: &str| {
        let context = format!("--map=qemu:dirty-bitmap:{since}");
        let map: Value =
            serde_json::from_str(&libnbd("nbdinfo", &["--json", &context, &server.uri(of)])).unwrap();
        let number = |e: &Value, field: &str| e[field].as_u64().unwrap() >> 20;
        let all = map.as_array().unwrap().iter();
        let dirty = all.filter(|e| e["type"] == 1).map(|e| (number(e, "offset"), number(e, "length")));
        dirty.collect::<Vec<_>>()
    };
    assert_eq!(map("web@tuesday", "monday"), [(4, 2), (40, 2)]);
    assert_eq!(map("web@monday", "tuesday"), [(4, 2), (40, 2)]);
    let info: Value =
        serde_json::from_str(&libnbd("nbdinfo", &["--json", &server.uri("web@tuesday")])).unwrap();
    let export = &info["exports"][0];
    assert_eq!(export["contexts"], serde_json::json!(["base:allocation", "qemu:dirty-bitmap:monday"]));
    assert_eq!(export["can_cache"], true);
    // A volume changes while it is asked.
    let info: Value = serde_json::from_str(&libnbd("nbdinfo", &["--json", &server.uri("web")])).unwrap();
    assert_eq!(info["exports"][0]["contexts"], serde_json::json!(["base:allocation"]));
    // A vault backs up by it what any server of NBD has; here this one, as if it were another's.
    bench.done(&["init"]);
    bench.done(&["backup", "web/vda", &server.uri("web@monday")]);
    let newest =
        bench.json(&["snapshots", "web/vda"])["snapshots"][0]["snapshot"].as_str().unwrap().to_owned();
    let by = ["backup", "web/vda", &server.uri("web@tuesday"), "--bitmap", "monday", "--since", &newest];
    let report = bench.json(&by);
    // Whole segments of 4 MiB.
    let scan = serde_json::json!({ "kind": "changed", "bytes": 8 << 20, "why": null });
    assert_eq!(report["scan"], scan, "{report}");
    let out = bench.arg("out.raw");
    bench.done(&["restore", "web/vda", &out]);
    assert!(std::fs::read(&out).unwrap() == content(&server.uri("web@tuesday"), &bench.path("direct")));
    server.stop();
}

#[test]
fn a_volume_grows_while_it_is_used() {
    let bench = Bench::bare();
    let pool = bench.arg("pool");
    bench.done(&["pool", "create", &pool, "--size", "512MiB"]);
    bench.done(&["volume", "--pool", &pool, "create", "web", "--size", "1MiB"]);
    let server = Server::start(&bench, &pool);
    let uri = server.uri("web");
    let size = || libnbd("nbdinfo", &["--size", &uri]).trim().parse::<u64>().unwrap();
    // A client that writes all the time, from before the first change to behind the last one.
    let mut writer = std::process::Command::new("qemu-io")
        .args(["-f", "raw", &uri])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut says = writer.stdin.take().unwrap();
    let mut write = |n: usize| {
        for _ in 0..50 {
            writeln!(says, "write -q -P {} {} 64k", n + 1, (n % 16) * 64 * 1024).unwrap();
        }
    };
    // 2 MiB are mapped by one node, 512 MiB by two levels of them.
    for (n, size_now) in [3u64 << 20, 600 << 20, 1 << 40].into_iter().enumerate() {
        write(n);
        let resized = bench.json(&["volume", "--pool", &pool, "resize", "web", &size_now.to_string()]);
        assert_eq!(resized["size"], size_now);
        assert_eq!(size(), size_now);
        qemu_io(&uri, &format!("write -q -P 9 {} 512", size_now - 512));
        write(n + 8);
    }
    bench.fails(&["volume", "--pool", &pool, "resize", "web", "1MiB"], REFUSED, &["in use", "disconnect"]);
    writeln!(says, "quit").unwrap();
    drop(says);
    assert!(writer.wait().unwrap().success());
    for (n, at) in [(1, 0), (9, 8 * 64), (2, 64), (10, 9 * 64), (3, 128), (11, 10 * 64)] {
        qemu_io(&uri, &format!("read -q -P {n} {at}k 64k"));
    }
    for end in [3u64 << 20, 600 << 20, 1 << 40] {
        qemu_io(&uri, &format!("read -q -P 9 {} 512", end - 512));
    }
    server.stop();
    bench.done(&["volume", "--pool", &pool, "resize", "web", "1MiB"]);
    bench.done(&["pool", "check", &pool, "--data"]);
}

#[test]
fn a_full_pool_says_so_and_goes_on() {
    let bench = Bench::bare();
    let pool = bench.arg("pool");
    bench.done(&["pool", "create", &pool, "--size", "256MiB"]);
    bench.done(&["volume", "--pool", &pool, "create", "large", "--size", "1GiB"]);
    let server = Server::start(&bench, &pool);
    let image = bench.file("disk.raw", &random(200 * MIB, 2));
    let full = std::process::Command::new("qemu-img")
        .args(["convert", "-n", "-f", "raw", "-O", "raw", &image, &server.uri("large")])
        .output()
        .unwrap();
    assert!(!full.status.success());
    assert!(String::from_utf8_lossy(&full.stderr).contains("No space left"), "{full:?}");
    // What is there can be read, and trimmed; then there is room again.
    qemu_io(&server.uri("large"), "read -q 0 1M");
    qemu_io(&server.uri("large"), "discard -q 0 100M");
    qemu_io(&server.uri("large"), "write -q -P 3 0 20M");
    server.child.signal(Signal::TERM);
    let ended = server.child.wait();
    assert_eq!(ended.code(), Some(0), "{ended}");
    ended.expect_one_line(&["large", "the pool is full", "delete"]);
    bench.done(&["pool", "check", &pool, "--data"]);
}

#[test]
fn what_cannot_be_done_is_said() {
    let bench = Bench::bare();
    let pool = bench.arg("pool");
    bench.fails(&["pool", "create", &pool], USAGE, &["how large", "--size"]);
    bench.fails(&["pool", "create", &pool, "--size", "1MiB"], REFUSED, &["too few"]);
    assert!(!bench.path("pool").exists(), "a file that is not a pool is left");
    bench.done(&["pool", "create", &pool, "--size", "256MiB"]);
    bench.fails(&["pool", "create", &pool, "--size", "256MiB"], REFUSED, &["exists"]);
    fn of<'a>(pool: &'a str, args: &[&'a str]) -> Vec<&'a str> {
        [&["volume", "--pool", pool], args].concat()
    }
    bench.done(&of(&pool, &["create", "a", "--size", "10MiB"]));
    bench.fails(&of(&pool, &["create", "a", "--size", "10MiB"]), REFUSED, &["a volume a already"]);
    bench.fails(&of(&pool, &["create", "b", "--size", "1000"]), USAGE, &["multiple of 512"]);
    bench.fails(&of(&pool, &["create", "b@x", "--size", "10MiB"]), USAGE, &["b@x", "letters, digits"]);
    bench.fails(&of(&pool, &["snapshot", "a"]), USAGE, &["NAME@SNAPSHOT"]);
    bench.fails(&of(&pool, &["delete", "none"]), FAILED, &["no none", "volume list"]);
    bench.fails(&of(&pool, &["clone", "a", "c"]), REFUSED, &["a is not a snapshot"]);
    let file = bench.file("file", &[1; 100_000]);
    bench.fails(&["pool", "stats", &file], 3, &["superblock", "magic number"]);
    bench.fails(&["pool", "stats", &bench.arg("none")], FAILED, &["none"]);
}
