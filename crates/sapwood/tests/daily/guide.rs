//! The commands of the README and of the user's guide do what these say: they are run in their order, with their paths in
//! a directory of the test. So are the sessions of the guide: commands that serve a disk to others.

use crate::common::mounted::{can_mount, Mounted};
use crate::common::{qemu_img, random, Bench, Child};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The places that the guide uses.
const PLACES: [&str; 4] = ["/srv", "/images", "/mnt/second", "/etc/sapwood"];

/// A file on the disks.
const FSTAB: &[u8] = b"/dev/vda / ext4 defaults 0 1\n";

/// In the place of QEMU: a machine that is not started. QEMU opens its disk, says what it is, and ends.
const SHORT_QEMU: &str = "\
#!/bin/sh
for command in qmp_capabilities query-block quit; do echo \"{\\\"execute\\\":\\\"$command\\\"}\"; done |
    exec /usr/bin/qemu-system-x86_64 \"$@\" -display none -S -qmp stdio
";

/// The blocks that begin with this line, in order.
fn blocks<'a>(text: &'a str, fence: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == fence {
            let block: Vec<&'a str> = lines.by_ref().take_while(|l| *l != "```").collect();
            all.push(block.join("\n") + "\n");
        }
    }
    all
}

/// A text of the project, by its path.
fn page(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// Makes the places, with the images that the pages speak of.
fn places() -> Bench {
    let bench = Bench::bare();
    let root = bench.dir.path().to_str().unwrap();
    for place in PLACES {
        std::fs::create_dir_all(format!("{root}{place}")).unwrap();
    }
    // A disk with a file system, so that there are files to list.
    let raw = bench.file("raw", &vec![0; 64 << 20]);
    std::fs::create_dir_all(bench.path("files/etc")).unwrap();
    bench.file("files/etc/fstab", FSTAB);
    let mkfs = Command::new("mkfs.ext4").args(["-q", "-F", "-d", &bench.arg("files"), &raw]).status();
    assert!(mkfs.unwrap().success());
    for (n, name) in ["web01", "mail", "db01"].into_iter().enumerate() {
        let mut disk = std::fs::read(&raw).unwrap();
        disk[40 << 20..41 << 20].copy_from_slice(&random(1 << 20, n as u64));
        let image = format!("{root}/images/{name}.qcow2");
        qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &bench.file("disk", &disk), &image]);
    }
    std::fs::rename(bench.path("disk"), format!("{root}/images/db01.raw")).unwrap();
    bench
}

/// Runs the commands of a page, and returns what they printed.
fn run(bench: &Bench, page: &str, commands_min: usize) -> String {
    let mut script = blocks(page, "```sh").concat();
    let commands = script.lines().filter(|l| l.contains("sapwood ")).count();
    assert!(commands >= commands_min, "only {commands} commands were found");
    let root = bench.dir.path().to_str().unwrap();
    for place in PLACES {
        script = script.replace(&format!("{place}/"), &format!("{root}{place}/"));
    }
    // The state of root's jobs would be kept in the host's directory.
    let script = script.replace("[defaults]\n", &format!("state_dir = \"{root}/state\"\n[defaults]\n"));
    // A command that fails leaves no server behind, whose output would be waited for.
    let script = format!("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}");
    let ran = shell(&script, &bench.path("")).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}\n{err}");
    out.into_owned()
}

/// A shell that knows the binary, and programs in a directory before others.
fn shell(script: &str, programs: &Path) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_sapwood")).parent().unwrap();
    let path = format!("{}:{}:{}", programs.display(), binary.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-euxo", "pipefail", "-c", script]).env("PATH", path).env_remove("SAPWOOD_CONFIG");
    command.stdin(Stdio::null());
    command
}

/// The commands of a page that use a disk without restoring it first.
fn sessions(page: &str) -> Vec<String> {
    let all = blocks(page, "```console").concat();
    let serves = |line: &&str| {
        ["sapwood files ", "sapwood nbd ", "sapwood mount ", "--live"].iter().any(|s| line.contains(s))
    };
    all.lines().filter(serves).map(|line| line.split(" #").next().unwrap().trim().to_owned()).collect()
}

#[test]
fn the_readmes_quick_start_works_as_printed() {
    let bench = places();
    run(&bench, &page("README.md"), 5);
    let image = |name: &str| format!("{}/images/{name}.qcow2", bench.dir.path().display());
    qemu_img(&["compare", "-q", &image("web01"), &image("restored")]);
}

#[test]
fn the_guide_works_as_printed() {
    let bench = places();
    let root = bench.dir.path().to_str().unwrap();
    let packed = Command::new("gzip").arg("-1").arg(format!("{root}/images/db01.raw")).status().unwrap();
    assert!(packed.success());
    let out = run(&bench, &page("docs/guide.md"), 30);
    let restored = |name: &str| std::fs::read(format!("{root}/images/{name}")).unwrap();
    let web01 = format!("{root}/images/web01.qcow2");
    qemu_img(&["compare", "-q", &web01, &format!("{root}/images/web01-restored.qcow2")]);
    assert!(restored("web01-before.raw") == restored("web01-piped.raw"));
    assert!(out.contains("snapshots copied") && out.contains("OK"), "{out}");
    // The volume came through the pool, its snapshot and the vault.
    let volume = bench.arg("app01.raw");
    let vault = format!("{root}/srv/vault");
    bench.done(&["--store", &vault, "-q", "restore", "app01/vda", &volume]);
    qemu_img(&["compare", "-q", &volume, &format!("{root}/images/mail.qcow2")]);
}

#[test]
fn the_guides_sessions_work_as_printed() {
    let bench = places();
    let root = bench.dir.path().to_str().unwrap();
    let image = format!("{root}/images/web01.qcow2");
    bench.done(&["-q", "init"]);
    bench.done(&["-q", "backup", "web01/vda", &image]);
    let programs = bench.path("programs");
    std::fs::create_dir(&programs).unwrap();
    let short_qemu = bench.file("programs/qemu-system-x86_64", SHORT_QEMU.as_bytes());
    std::fs::set_permissions(short_qemu, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut seen = Vec::new();
    for line in sessions(&page("docs/guide.md")) {
        let script = line.replace("/mnt/", &format!("{root}/mnt/"));
        let mut session = shell(&format!("exec {script}"), &programs);
        session.current_dir(root).env("SAPWOOD_STORE", &bench.store);
        let words: Vec<&str> = line.split(' ').collect();
        seen.push(if words.contains(&"--live") { "--live" } else { words[1] }.to_owned());
        if words[1] == "mount" {
            if !can_mount() {
                continue;
            }
            let path = bench.path(words[2].trim_start_matches('/'));
            std::fs::create_dir_all(&path).unwrap();
            let mounted = Mounted::started(session, path);
            assert_eq!(mounted.names(""), ["web01"]);
            let ended = mounted.end();
            assert_eq!(ended.code(), Some(0), "{ended}");
            continue;
        }
        if words[1] == "nbd" && !Path::new("/usr/bin/qemu-system-x86_64").exists() {
            testing::skip("qemu-system-x86_64 (qemu-system-x86)", "it is missing");
            continue;
        }
        let ended = Child::start(session, &line).wait();
        assert_eq!(ended.code(), Some(0), "{ended}");
        let said = String::from_utf8_lossy(&ended.stdout);
        match words[1] {
            "files" => assert!(ended.stdout == FSTAB, "{ended}"),
            "nbd" => assert!(said.contains("nbd+unix:") && said.contains("\"inserted\""), "{ended}"),
            _ => drop(qemu_img(&["compare", "-q", &image, &bench.arg("web01.raw")])),
        }
    }
    assert_eq!(seen, ["files", "nbd", "mount", "--live"]);
}
