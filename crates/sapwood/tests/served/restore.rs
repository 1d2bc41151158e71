//! `sapwood restore --live`: a disk that is written to while it arrives, killed, cut short, without room, from a damaged
//! vault.

use crate::common;
use crate::common::nbd::{libnbd, start, Nbd};
use crate::common::{fresh, from_env, Bench, LoopDevice, Mount, DAMAGED, DONE, FAILED, REFUSED, USAGE};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes of most disks: no whole number of blocks.
const DISK_BYTES: usize = (9 << 20) + 5 * 512;

/// A vault with a snapshot, and what is in it.
fn backed_up(seed: u64) -> (Bench, Vec<u8>) {
    backed_up_bytes(seed, DISK_BYTES)
}

fn backed_up_bytes(seed: u64, bytes: usize) -> (Bench, Vec<u8>) {
    let bench = Bench::new("balanced");
    let disk = fresh(bytes, &mut StdRng::seed_from_u64(seed));
    bench.backup("vm/vda", &bench.file("disk", &disk));
    (bench, disk)
}

fn leftovers(bench: &Bench) -> [PathBuf; 2] {
    ["target.sapwood-arriving", "target.sapwood-map"].map(|name| bench.path(name))
}

/// A guest, and a plain copy of what its disk must hold.
struct Guest {
    plain: Vec<u8>,
    /// A write that was not acknowledged: where, and the bytes.
    pending: Option<(usize, Vec<u8>)>,
}

impl Guest {
    /// Reads, writes, zeros and flushes until the server is gone, or so many times.
    fn run(&mut self, disk: &mut Nbd, rng: &mut StdRng, times: usize) -> io::Result<()> {
        self.settle(disk)?;
        for n in 0..times {
            let align = [1, 512, 4096][rng.random_range(0..3)];
            let at = rng.random_range(0..self.plain.len()) / align * align;
            let most = if rng.random_bool(0.1) { 1 << 20 } else { 20_000 };
            let len = rng.random_range(1..most).min(self.plain.len() - at);
            match rng.random_range(0..10) {
                0..4 => {
                    let found = disk.read(at as u64, len)?;
                    assert!(found == self.plain[at..at + len], "step {n}: {len} bytes at {at}");
                }
                4..8 => {
                    let data: Vec<u8> = (0..len).map(|k| (k as u8).wrapping_mul(n as u8) | 1).collect();
                    self.pending = Some((at, data.clone()));
                    disk.write(at as u64, &data)?;
                    self.done();
                }
                8 => {
                    self.pending = Some((at, vec![0; len]));
                    if n % 2 == 0 {
                        disk.zero(at as u64, len)?
                    } else {
                        disk.trim(at as u64, len)?
                    }
                    self.done();
                }
                _ => disk.flush()?,
            }
        }
        Ok(())
    }

    fn done(&mut self) {
        if let Some((at, data)) = self.pending.take() {
            self.plain[at..at + data.len()].copy_from_slice(&data);
        }
    }

    /// Sees what came of a write that was not acknowledged: of each byte the old one or the new one, from now on.
    fn settle(&mut self, disk: &mut Nbd) -> io::Result<()> {
        if let Some((at, data)) = &self.pending {
            let found = disk.read(*at as u64, data.len())?;
            self.settle_as(&found);
        }
        Ok(())
    }

    fn settle_as(&mut self, found: &[u8]) {
        let Some((at, data)) = self.pending.take() else { return };
        for (k, found) in found.iter().enumerate() {
            let old = &mut self.plain[at + k];
            assert!(*found == *old || *found == data[k], "byte {} is neither old nor new", at + k);
            *old = *found;
        }
    }

    fn compare(&mut self, target: &[u8]) {
        if let Some((at, data)) = &self.pending {
            let range = *at..*at + data.len();
            self.settle_as(&target[range]);
        }
        let differs = target.iter().zip(&self.plain).position(|(a, b)| a != b);
        assert_eq!((differs, target.len()), (None, self.plain.len()));
    }
}

#[test]
fn whoever_is_killed_the_guest_finds_what_it_has_written() {
    let seed = from_env("SAPWOOD_SEED", 13);
    println!("SAPWOOD_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (bench, disk) = backed_up_bytes(seed, 4 * DISK_BYTES);
    let fresh = || Guest { plain: disk.clone(), pending: None };
    let (socket, target) = (bench.path("socket"), bench.path("target"));
    // With --force, too, nothing of what a guest wrote is lost.
    let args = ["-q", "restore", "--live", "--force", "--limit", "200M", "vm/vda", &bench.arg("target")];
    let mut guest = fresh();
    let (mut killed, mut went_on, mut served_on, mut whole) = (0, 0, 0, 0);
    let begun = Instant::now();
    for round in 0..from_env("SAPWOOD_ROUNDS", 100) {
        if begun.elapsed() > Duration::from_secs(40) {
            println!("no time for more than {round} rounds");
            break;
        }
        let mut child = start(&bench, &args);
        let signal =
            [None, Some(Signal::TERM), Some(Signal::KILL), Some(Signal::KILL)][rng.random_range(0..4)];
        let pid = child.pid();
        let after = Duration::from_micros(rng.random_range(0..150_000));
        let killer = signal.map(|signal| {
            std::thread::spawn(move || {
                std::thread::sleep(after);
                let _ = rustix::process::kill_process(pid, signal);
            })
        });
        went_on += usize::from(leftovers(&bench)[0].exists());
        if let Some(mut client) = Nbd::connect_to(&mut child, &socket) {
            let times = if signal.is_some() { 100_000 } else { 50 };
            let outcome = guest.run(&mut client, &mut rng, times);
            assert!(signal.is_some() || outcome.is_ok(), "round {round}: {outcome:?}");
        }
        killer.into_iter().for_each(|k| k.join().unwrap());
        let ended = child.wait();
        killed += usize::from(ended.code() != Some(DONE));
        assert!(signal.is_some() || ended.code() == Some(DONE), "round {round}: {ended}");
        assert!(
            signal != Some(Signal::KILL) || ended.code().is_none_or(|c| c == DONE),
            "round {round}: {ended}"
        );
        if target.exists() {
            guest.compare(&fs::read(&target).unwrap());
            // Whole, but in use when it was killed: the same command serves it, and begins nothing anew.
            served_on += usize::from(leftovers(&bench)[1].exists());
            if !leftovers(&bench)[1].exists() {
                fs::remove_file(&target).unwrap();
                guest = fresh();
                whole += 1;
            }
        }
    }
    println!(
        "{killed} killed, {went_on} went on, {served_on} served a whole disk on, {whole} disks became whole"
    );
    assert!(killed > 10 && went_on > 5 && served_on > 2 && whole > 2);
}

#[test]
fn a_command_has_the_disk_while_it_arrives() {
    let (bench, disk) = backed_up(1);
    let other = fresh(DISK_BYTES, &mut StdRng::seed_from_u64(2));
    let new = bench.file("new", &other);
    let target = bench.arg("target");
    let script = format!("nbdcopy \"$NBD_URI\" {} && nbdcopy {new} \"$NBD_URI\" && exit 7", bench.arg("old"));
    let args = ["--json", "restore", "--live", "vm/vda", &target, "--", "sh", "-c", &script];
    let ended = bench.run(&args);
    assert_eq!(ended.code(), Some(7), "{ended}");
    let told = ended.json();
    assert_eq!((&told["disk"], &told["size"]), (&"vm/vda".into(), &DISK_BYTES.into()));
    assert_eq!((&told["target"], &told["arrived_bytes"]), (&target.as_str().into(), &0.into()));
    assert!(fs::read(bench.path("old")).unwrap() == disk);
    assert!(fs::read(&target).unwrap() == other);
    assert!(leftovers(&bench).iter().all(|l| !l.exists()));
    assert!(ended.stderr.contains("all of it is in"), "{ended}");

    // Nobody needs to come.
    fs::remove_file(&target).unwrap();
    let ended = bench.run(&["-q", "restore", "--live", "vm/vda", &target, "--cache", "100k"]);
    ended.expect_done();
    assert!(fs::read(&target).unwrap() == disk);
    assert!(bench.restored("vm/vda@latest") == disk);
}

/// Without a terminal, a long restore says every ten seconds how far it is; a command has the output for itself.
#[test]
fn it_says_how_far_it_is() {
    let (bench, _) = backed_up(4);
    let target = bench.arg("target");
    let args = ["restore", "--live", "vm/vda", &target, "--limit", "500k"];
    let ended = bench.run(&args);
    ended.expect_done();
    let is_progress = |line: &&str| line.contains(" of 9.00 MiB, ") && line.starts_with("vm/vda@");
    assert!(ended.stderr.lines().any(|line| is_progress(&line)), "{ended}");

    fs::remove_file(&target).unwrap();
    let ended = bench.run(&[&args[..], &["--", "true"]].concat());
    ended.expect_done();
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
}

#[test]
fn names_are_kept_as_the_documentation_says() {
    let (bench, disk) = backed_up(3);
    let (socket, target) = (bench.path("socket"), bench.arg("target"));
    let args = ["-q", "restore", "--live", "vm/vda", &target];
    let mut child = start(&bench, &args);
    let mut client = Nbd::connect_to(&mut child, &socket).unwrap();
    client.write(1000, b"hello").unwrap();
    // Somebody else cannot have it.
    let (another, elsewhere) = (bench.arg("other"), bench.arg("elsewhere"));
    let twice = [&args[..], &["--socket", &another]].concat();
    if leftovers(&bench)[0].exists() {
        let ended = bench.run(&twice);
        assert_eq!(ended.code(), Some(REFUSED), "{ended}");
    }
    child.signal(Signal::KILL);
    child.wait();
    if leftovers(&bench)[0].exists() {
        assert!(!bench.path("target").exists());
        // Another snapshot is not mixed with it, and neither is one of another disk.
        let old = bench.snapshots("vm/vda")[0].clone();
        bench.backup("vm/vda", &bench.file("disk2", &[1; DISK_BYTES]));
        bench.fails(&args, REFUSED, &["another restore", &format!("vm/vda@{old}"), "name that snapshot"]);
        bench.backup("vm/vdb", &bench.file("disk2", &[1; DISK_BYTES]));
        bench.fails(&["-q", "restore", "--live", "vm/vdb", &target], REFUSED, &["another restore"]);
        // Without its map it is not thrown away.
        let elsewhere = [&args[..], &["--map", &elsewhere]].concat();
        bench.fails(&elsewhere, REFUSED, &["target.sapwood-arriving", "--map"]);
        let first = format!("vm/vda@{old}");
        bench.done(&["-q", "restore", "--live", &first, &target]);
    } else {
        // All of it had arrived: it is served as it is.
        bench.done(&[&args[..], &["--force"]].concat());
    }
    let mut plain = disk;
    plain[1000..1005].copy_from_slice(b"hello");
    assert!(fs::read(&target).unwrap() == plain);
    assert!(leftovers(&bench).iter().all(|l| !l.exists()));

    // What is there stays, unless it may be replaced.
    fs::write(&target, "precious").unwrap();
    bench.fails(&args, REFUSED, &["exists already", "--force"]);
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    bench.done(&[&args[..], &["--force"]].concat());
    assert_eq!(fs::metadata(&target).unwrap().len(), DISK_BYTES as u64);
    // A map that is none.
    let precious = bench.file("precious", b"precious");
    let other = bench.arg("t2");
    let ended = bench.run(&["-q", "restore", "--live", "vm/vda", &other, "--map", &precious]);
    assert_eq!(ended.code(), Some(FAILED), "{ended}");
    ended.expect_one_line(&["precious", "map of an arriving disk"]);
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
    for (more, said) in [
        (&["--format", "qcow2"][..], "raw files and block devices"),
        (&["--cache", "much"], "is not a size"),
        (&["--socket", "/nowhere/s", "--listen", "127.0.0.1:0"], "--listen"),
    ] {
        let ended = bench.run(&[&args[..], more].concat());
        assert_eq!(ended.code(), Some(USAGE), "{ended}");
        assert!(ended.stderr.contains(said), "{ended}");
    }
    bench.fails(&["restore", "vm/vda", &other, "--socket", "/tmp/s"], USAGE, &["--live"]);
    bench.fails(&["restore", "--live", "vm/vda", "-"], USAGE, &["raw files and block devices"]);
    let nowhere = bench.arg("nowhere/target");
    assert_eq!(bench.run(&["restore", "--live", "vm/vda", &nowhere]).code(), Some(FAILED));
}

#[test]
fn a_signal_ends_it_soon_and_nothing_is_lost() {
    let bench = Bench::new("balanced");
    let disk = fresh(64 << 20, &mut StdRng::seed_from_u64(4));
    bench.backup("vm/vda", &bench.file("disk", &disk));
    let (socket, target) = (bench.path("socket"), bench.arg("target"));
    let args = ["restore", "--live", "vm/vda", &target];
    let mut child = start(&bench, &args);
    let mut client = Nbd::connect_to(&mut child, &socket).unwrap();
    client.write(disk.len() as u64 - 7, b"written").unwrap();
    child.signal(Signal::TERM);
    let ended = child.wait();
    assert!(!socket.exists());
    if ended.code() != Some(DONE) {
        assert_eq!(ended.code(), Some(FAILED), "{ended}");
        assert!(ended.stderr.contains("run it again"), "{ended}");
        assert!(leftovers(&bench).iter().all(|l| l.exists()));
        bench.done(&["-q", "restore", "--live", "vm/vda", &target]);
    }
    let mut plain = disk;
    let end = plain.len();
    plain[end - 7..].copy_from_slice(b"written");
    assert!(fs::read(&target).unwrap() == plain);
}

/// The arrival gave up at the first write without room, with a line for each megabyte that was still to come.
#[test]
fn without_room_the_guest_is_told_and_all_goes_on_when_there_is_some() {
    let bench = Bench::new("balanced");
    let disk: Vec<u8> = common::random(12 << 20, 5);
    bench.backup("vm/vda", &bench.file("disk", &disk));
    let Some(small) = Mount::tmpfs(&bench.path("small"), 16 << 20) else { return };
    let (filler, target) = (small.path.join("filler"), small.path.join("target"));
    fs::write(&filler, vec![1; 10 << 20]).unwrap();
    let args = ["-q", "restore", "--live", "vm/vda", target.to_str().unwrap()];
    // Nobody is there to wait for.
    let ended = bench.run(&args);
    assert_eq!(ended.code(), Some(FAILED), "{ended}");
    assert!(ended.stderr.lines().count() <= 2 && ended.stderr.contains("No space left"), "{ended}");
    assert!(!target.exists());

    let mut child = start(&bench, &args);
    let socket = bench.path("socket");
    let mut client = Nbd::connect_to(&mut child, &socket).unwrap();
    let mut plain = disk;
    let (mut refused, mut at) = (0, 8 << 20);
    let start = Instant::now();
    while refused == 0 {
        assert!(start.elapsed() < Duration::from_secs(30));
        match client.write(at as u64, &[7; 4096]) {
            Ok(()) => plain[at..at + 4096].fill(7),
            Err(e) => {
                assert_eq!(e.kind(), io::ErrorKind::StorageFull, "{e}");
                refused = at;
            }
        }
        at = if at + 8192 > plain.len() { 8 << 20 } else { at + 8192 };
    }
    let found = client.read(refused as u64, 4096).unwrap();
    assert!(found == plain[refused..refused + 4096] || found == [7; 4096]);
    fs::remove_file(&filler).unwrap();
    client.write(refused as u64, &[8; 4096]).unwrap();
    plain[refused..refused + 4096].fill(8);
    client.flush().unwrap();
    let start = Instant::now();
    while !target.exists() {
        assert!(start.elapsed() < Duration::from_secs(30), "nothing arrives although there is room");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(client);
    let ended = child.wait();
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    assert!(fs::read(&target).unwrap() == plain);
}

#[test]
fn a_block_device_is_written_with_its_map_elsewhere() {
    let (bench, disk) = backed_up(6);
    let file = bench.file("device", &vec![0xaa; DISK_BYTES + 4096 * 3]);
    let Some(device) = LoopDevice::on(file.as_ref()) else { return };
    let map = bench.arg("map");
    let args = ["-q", "restore", "--live", "vm/vda", &device.device, "--map", &map];
    bench.fails(&args[..5], USAGE, &["--map"]);
    bench.fails(&args, REFUSED, &["would be lost", "--force"]);
    let forced = [&args[..], &["--force"]].concat();
    let mut child = start(&bench, &forced);
    let mut client = Nbd::connect_to(&mut child, &bench.path("socket")).unwrap();
    let mut guest = Guest { plain: disk, pending: None };
    let mut rng = StdRng::seed_from_u64(7);
    guest.run(&mut client, &mut rng, 150).unwrap();
    child.signal(Signal::KILL);
    child.wait();
    let again = if bench.path("map").exists() { &args[..] } else { &forced };
    if bench.path("map").exists() {
        let mut child = start(&bench, again);
        let mut client = Nbd::connect_to(&mut child, &bench.path("socket")).unwrap();
        guest.run(&mut client, &mut rng, 50).unwrap();
        drop(client);
        assert_eq!(child.wait().code(), Some(DONE));
    }
    assert!(!bench.path("map").exists());
    let found = fs::read(&device.device).unwrap();
    guest.compare(&found[..DISK_BYTES]);
    assert!(found[DISK_BYTES..].iter().all(|b| *b == 0xaa), "what lies behind the disk is not touched");
    drop(device);

    let file = bench.file("small", &vec![0; DISK_BYTES / 512 * 512 - 512]);
    let Some(small) = LoopDevice::on(file.as_ref()) else { return };
    let args = ["-q", "restore", "--live", "vm/vda", &small.device, "--map", &map, "--force"];
    bench.fails(&args, REFUSED, &["has", "bytes, and the disk has"]);
    assert!(!bench.path("map").exists());
}

/// Flips a byte in the midst of some objects.
fn damage(paths: &[PathBuf]) {
    for path in paths {
        let mut bytes = fs::read(path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    }
}

/// A damaged table ended the arrival there and then; a damaged group kept a megabyte from arriving.
#[test]
fn what_is_not_damaged_arrives() {
    for kind in ["data", "table"] {
        let bench = Bench::new("balanced");
        // Two disks' worth, so that there is more than one container.
        let disk = common::random(24 << 20, 8);
        bench.backup("vm/vda", &bench.file("disk", &disk[..12 << 20]));
        bench.backup("vm/vda", &bench.file("disk", &disk));
        let mut objects = common::files_below(&bench.store.join("objects/disks"));
        objects.retain(|p| p.extension().is_some_and(|e| e == kind));
        objects.sort();
        assert!(objects.len() > 1);
        damage(&objects[..1]);
        let target = bench.arg("target");
        let ended = bench.run(&["-q", "restore", "--live", "vm/vda", &target]);
        assert_eq!(ended.code(), Some(DAMAGED), "{kind}: {ended}");
        assert!(ended.stderr.contains("is not whole") && ended.stderr.contains("verify"), "{ended}");
        assert!(ended.stderr.lines().count() < 20, "{ended}");
        assert!(!bench.path("target").exists());
        let found = fs::read(&leftovers(&bench)[0]).unwrap();
        // The last sector is that of the mark.
        let last = disk.len() - 4096;
        let mut wrong: Vec<usize> =
            (0..last).step_by(4096).filter(|at| found[*at..][..4096] != disk[*at..][..4096]).collect();
        assert!(!wrong.is_empty());
        assert!(wrong.iter().all(|at| found[*at..][..4096] == [0; 4096]), "missing, never wrong");
        wrong.push(last);
        let most = if kind == "data" { 1 << 19 } else { 13 << 20 };
        assert!(wrong.len() * 4096 <= most, "{kind}: {} bytes are missing", wrong.len() * 4096);

        // Whoever writes what is missing anew makes it whole.
        let mut child = start(&bench, &["-q", "restore", "--live", "vm/vda", &target]);
        let mut client = Nbd::connect_to(&mut child, &bench.path("socket")).unwrap();
        let e = client.read(wrong[0] as u64, 4096).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(5));
        for at in wrong {
            client.write(at as u64, &disk[at..][..4096]).unwrap();
        }
        drop(client);
        let ended = child.wait();
        assert_eq!(ended.code(), Some(DAMAGED), "{kind}: {ended}");
        // Where the client came before the arrival, that has found all of it written.
        if !ended.stderr.contains("is whole") {
            assert!(ended.stderr.contains("is not whole"), "{kind}: {ended}");
            let ended = bench.run(&["-q", "restore", "--live", "vm/vda", &target]);
            // Of a damaged table it is not known what it is of.
            let expected = if kind == "data" { (Some(DONE), false) } else { (Some(DAMAGED), true) };
            assert_eq!((ended.code(), ended.stderr.contains("is whole")), expected, "{kind}: {ended}");
        }
        assert!(fs::read(&target).unwrap() == disk);
    }
}

#[test]
fn nbd_tools_find_a_disk_that_arrives() {
    let (bench, disk) = backed_up(9);
    let mut child = start(&bench, &["-q", "restore", "--live", "vm/vda", &bench.arg("target")]);
    let client = Nbd::connect_to(&mut child, &bench.path("socket")).unwrap();
    let uri = format!("nbd+unix:///?socket={}", bench.arg("socket"));
    let info: serde_json::Value = serde_json::from_str(&libnbd("nbdinfo", &["--json", &uri])).unwrap();
    let export = &info["exports"][0];
    assert_eq!((&export["export-size"], &export["is_read_only"]), (&DISK_BYTES.into(), &false.into()));
    libnbd("nbdcopy", &[&uri, &bench.arg("copy")]);
    assert!(fs::read(bench.path("copy")).unwrap() == disk);
    drop(client);
    assert_eq!(child.wait().code(), Some(DONE));
}
