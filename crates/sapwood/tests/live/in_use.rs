//! Files that QEMU has open: backing them up, restoring over them, and keeping QEMU off what we have open.

use crate::common;
use crate::common::nbd::{start, Nbd};
use crate::common::qemu::{Holder, Machine};
use crate::common::{qemu_img, random, Bench, Child, LoopDevice, DONE, REFUSED, USAGE};
use rustix::process::Signal;
use serde_json::{json, Value};
use std::fs;
use std::path::Path;
use std::process::Command;

const DISK_BYTES: usize = 4 << 20;

/// An image, and what QEMU has open when it has the image.
struct Image {
    name: &'static str,
    /// What a backup names.
    path: String,
    /// As QEMU is told to open it.
    node: Value,
    /// Files that a running machine writes to.
    written: Vec<String>,
    /// Files that it only reads.
    read: Vec<String>,
}

fn file_node(driver: &str, path: &str) -> Value {
    json!({ "driver": driver, "file": { "driver": "file", "filename": path } })
}

/// An image of every kind.
fn images(bench: &Bench) -> Vec<Image> {
    let content = random(DISK_BYTES, 1);
    let raw = bench.file("disk.raw", &content);
    let qcow2 = bench.arg("disk.qcow2");
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &raw, &qcow2]);
    let base = bench.file("base.raw", &content);
    let top = bench.arg("top.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", "base.raw", "-F", "raw", &top]);
    let vmdk = bench.arg("disk.vmdk");
    qemu_img(&["convert", "-f", "raw", "-O", "vmdk", "-o", "subformat=monolithicFlat", &raw, &vmdk]);
    let extent = bench.arg("disk-flat.vmdk");
    let image = |name, path: &str, driver, written: &[&String], read: &[&String]| Image {
        name,
        path: path.to_owned(),
        node: file_node(driver, path),
        written: written.iter().map(|p| (*p).clone()).collect(),
        read: read.iter().map(|p| (*p).clone()).collect(),
    };
    vec![
        image("raw", &raw, "raw", &[&raw], &[]),
        image("qcow2", &qcow2, "qcow2", &[&qcow2], &[]),
        image("qcow2 over raw", &top, "qcow2", &[&top], &[&base]),
        image("vmdk", &vmdk, "vmdk", &[&vmdk, &extent], &[]),
    ]
}

/// How QEMU has an image open, if at all.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Open {
    No,
    ToRead,
    ToWrite,
}

const ALL: [Open; 3] = [Open::No, Open::ToRead, Open::ToWrite];

fn hold(bench: &Bench, node: &Value, open: Open) -> Option<Holder> {
    (open != Open::No).then(|| Holder::start(bench, node, open == Open::ToWrite))
}

/// The image of a running machine was backed up from its file, torn, with exit 0: ten of 50 MiB were missing.
#[test]
fn what_a_machine_writes_is_backed_up_from_the_machine_alone() {
    let bench = Bench::new("balanced");
    for image in images(&bench) {
        // Content alone is not followed to other files, and the disk had another format before.
        let format = image.node["driver"].as_str().unwrap();
        let plain = ["-q", "backup", "vm/vda", &image.path, "--source-format", format];
        let backup = |more: &[&str]| bench.run(&[&plain[..], more].concat());
        for open in ALL {
            let held = hold(&bench, &image.node, open);
            let ended = backup(&[]);
            match open {
                Open::ToWrite => {
                    let said = [
                        "is in use by process ",
                        "(qemu-storage-da, since 2",
                        "qmp:SOCKET#NODE",
                        "libvirt:DOMAIN",
                        "--unsafe",
                    ];
                    ended.expect_failure(REFUSED, &said);
                    ended.expect_one_line(&[image.written[0].as_str()]);
                    backup(&["--unsafe"]).expect_done();
                    // Templates and the like: what is only read may be read.
                    for path in &image.read {
                        bench.done(&["-q", "backup", "vm/base", path]);
                    }
                }
                _ => ended.expect_done(),
            }
            drop(held);
        }
        for path in &image.read {
            // Somebody writes what the image stands on.
            let held = Holder::start(&bench, &file_node("raw", path), true);
            backup(&[]).expect_failure(REFUSED, &[path.as_str(), "qmp:SOCKET#NODE"]);
            drop(held);
        }
        backup(&[]).expect_done();
    }
    assert!(bench.restored("vm/vda") == random(DISK_BYTES, 1));
}

/// `restore --force` took the image away under a running machine, whose writes then went to a file without a name.
#[test]
fn what_qemu_has_open_is_not_restored_over() {
    let bench = Bench::new("balanced");
    let content = random(DISK_BYTES, 2);
    bench.backup("vm/vda", &bench.file("other", &content));
    for open in ALL {
        for image in images(&bench) {
            let _held = hold(&bench, &image.node, open);
            for path in image.written.iter().chain(&image.read) {
                for more in [
                    &["--force", "--format", "raw"][..],
                    &["--force", "--format", "qcow2"],
                    &["--force", "--live"],
                    &["--in-place"],
                ] {
                    // Only a raw disk is written in place.
                    if more == ["--in-place"] && image.name != "raw" {
                        continue;
                    }
                    let before = fs::read(path).unwrap();
                    let args = [&["-q", "restore", "vm/vda", path], more].concat();
                    let ended = bench.run(&args);
                    if open == Open::No {
                        assert_eq!(ended.code(), Some(DONE), "{}: {ended}", image.name);
                        fs::write(path, before).unwrap();
                        continue;
                    }
                    ended.expect_failure(
                        REFUSED,
                        &[path, "is in use by process ", "(qemu-storage-da, since 2", "--unsafe"],
                    );
                    assert!(fs::read(path).unwrap() == before, "{}", image.name);
                }
            }
            if open != Open::No {
                bench.done(&[
                    "-q",
                    "restore",
                    "vm/vda",
                    &image.path,
                    "--force",
                    "--unsafe",
                    "--format",
                    "raw",
                ]);
                assert!(fs::read(&image.path).unwrap() == content, "{}", image.name);
            }
            let leftovers = common::files_below(bench.dir.path());
            assert!(!leftovers.iter().any(|f| f.to_str().unwrap().contains(".sapwood-")), "{leftovers:?}");
        }
    }
}

#[test]
fn block_devices_are_locked_like_files() {
    let bench = Bench::new("balanced");
    let content = random(DISK_BYTES, 3);
    let Some(device) = LoopDevice::on(Path::new(&bench.file("disk", &content))) else { return };
    let path = device.device.as_str();
    let node = json!({ "driver": "raw", "file": { "driver": "host_device", "filename": path } });
    bench.done(&["-q", "backup", "vm/vda", path]);
    let map = bench.arg("map");
    for open in [Open::ToWrite, Open::ToRead] {
        let held = hold(&bench, &node, open);
        let backup = bench.run(&["-q", "backup", "vm/vda", path]);
        match open {
            Open::ToWrite => backup.expect_failure(
                REFUSED,
                &[path, "is in use by process ", "(qemu-storage-da, since 2", "qmp:SOCKET#NODE"],
            ),
            _ => backup.expect_done(),
        }
        bench.fails(
            &["restore", "vm/vda", path, "--force"],
            REFUSED,
            &[path, "is in use by process ", "(qemu-storage-da, since 2"],
        );
        let args = ["restore", "vm/vda", path, "--force", "--live", "--map", &map];
        bench.fails(&args, REFUSED, &[path, "is in use by process ", "(qemu-storage-da, since 2"]);
        drop(held);
    }
    bench.done(&["-q", "restore", "vm/vda", path, "--force"]);
    assert!(fs::read(path).unwrap() == content);
}

#[test]
fn the_file_of_a_running_machine_is_refused_and_the_machine_is_backed_up() {
    let bench = Bench::new("balanced");
    let image = bench.arg("disk.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &image, &DISK_BYTES.to_string()]);
    let mut vm = Machine::start(&bench, &image, "qcow2", vec![0; DISK_BYTES]);
    vm.write(0, 1 << 20, 1);
    bench.fails(
        &["backup", "vm/vda", &image],
        REFUSED,
        &["is in use by process ", "(qemu-system-x86, since 2", "qmp:SOCKET#NODE"],
    );
    let source = format!("qmp:{}#vd0", bench.arg("qmp.sock"));
    bench.fails(&["backup", "vm/vda", &source, "--unsafe"], USAGE, &["--unsafe"]);
    bench.done(&["-q", "backup", "vm/vda", &source]);
    assert!(bench.restored("vm/vda") == vm.content);
    assert_eq!(bench.run(&["restore", "vm/vda", &image, "--unsafe"]).code(), Some(USAGE), "without --force");
    // Nothing is stored: the numbers may be a little wrong.
    bench.done(&["study", &image]);
}

/// `mzip` compressed the image of a running machine torn, and with `--rm` removed it; `mtar` and a backup of an archive read
/// it as well, and `--force` put their results in its place.
#[test]
fn archives_are_not_made_of_what_qemu_writes_and_take_no_image_away_from_it() {
    let bench = Bench::new("balanced");
    let content = random(DISK_BYTES, 6);
    let (image, other) = (bench.file("disk.raw", &content), bench.file("other", &random(DISK_BYTES, 7)));
    let tar = bench.arg("some.tar");
    let mut tarred = Command::new("tar");
    tarred.args(["-cf", &tar, "-C", bench.dir.path().to_str().unwrap(), "other"]);
    assert!(tarred.status().unwrap().success());
    bench.done(&["-q", "mzip", &other, "--keep"]);
    bench.done(&["-q", "mtar", "migrate", &tar, &bench.arg("some.mtar")]);
    bench.done(&["-q", "backup", "vm/archive", &tar, "--format", "tar"]);
    let (mz, mtar, out) = (format!("{other}.mz"), bench.arg("some.mtar"), bench.arg("out"));
    for open in [Open::ToRead, Open::ToWrite] {
        let held = hold(&bench, &file_node("raw", &image), open);
        let refused = |args: &[&str], said: &[&str]| {
            let said = [&["disk.raw: is in use by process ", "(qemu-storage-da, since 2"], said].concat();
            bench.fails(args, REFUSED, &said);
            assert!(fs::read(&image).unwrap() == content, "{args:?}");
            assert!(!Path::new(&out).exists() && !bench.path("disk.raw.mz").exists(), "{args:?}");
        };
        // Whoever only reads it does not mind others who do.
        if open == Open::ToWrite {
            for args in [
                &["mzip", &image, "--keep"][..],
                &["mzip", &image, "-c"],
                &["mtar", "migrate", &image, &out],
                &["mtar", "migrate", &image, "-"],
            ] {
                refused(args, &["backup VM/DISK qmp:SOCKET#NODE or libvirt:DOMAIN"]);
            }
            let said = ["qmp:SOCKET#NODE", "--unsafe"];
            refused(&["backup", "vm/new", &image, "--format", "tar"], &said);
            for (args, name) in [
                (&["backup", "vm/new", "-"][..], "-"),
                (&["backup", "vm/new", "-", "--format", "tar"], "-"),
                (&["mzip", "-c"], "-"),
                (&["mtar", "migrate", "-", &out], "-"),
            ] {
                let mut command = bench.command(args);
                command.stdin(fs::File::open(&image).unwrap());
                let said = [name, ": is in use by process ", "(qemu-storage-da, since 2"];
                Child::start(command, "of standard input").wait().expect_failure(REFUSED, &said);
            }
        } else {
            bench.done(&["-q", "mzip", &image, "--keep", "-o", &out]);
            fs::remove_file(&out).unwrap();
        }
        refused(&["mzip", &image, "--rm"], &[]);
        for args in [
            &["mzip", &other, "--keep", "--force", "-o", &image][..],
            &["munzip", &mz, "--keep", "--force", "-o", &image],
            &["mtar", "migrate", &tar, &image, "--force"],
            &["mtar", "restore", &mtar, &image, "--force"],
        ] {
            refused(args, &["end that first, or choose another name"]);
        }
        let said = ["end that first, or choose another target", "--unsafe"];
        refused(&["restore", "vm/archive", &image, "--force"], &said);
        drop(held);
    }
    let held = hold(&bench, &file_node("raw", &image), Open::ToWrite);
    bench.done(&["-q", "restore", "vm/archive", &image, "--force", "--unsafe"]);
    assert!(fs::read(&image).unwrap() == fs::read(&tar).unwrap());
    drop(held);
    bench.done(&["-q", "mzip", &image, "--rm"]);
    assert!(!Path::new(&image).exists());
}

/// A device that a running machine had was made a pool, and what it wrote then went into the pool.
#[test]
fn what_qemu_has_open_becomes_no_pool() {
    let bench = Bench::bare();
    let content = vec![1; 160 << 20];
    let Some(device) = LoopDevice::on(Path::new(&bench.file("disk", &content))) else { return };
    let path = device.device.as_str();
    let node = json!({ "driver": "raw", "file": { "driver": "host_device", "filename": path } });
    for open in [Open::ToRead, Open::ToWrite] {
        let held = hold(&bench, &node, open);
        let said = [path, "is in use by process ", "(qemu-storage-da, since 2"];
        bench.fails(&["pool", "create", path, "--force"], REFUSED, &said);
        assert!(fs::read(path).unwrap() == content);
        drop(held);
    }
    bench.done(&["-q", "pool", "create", path, "--force"]);
    let held = hold(&bench, &node, Open::ToWrite);
    let said = [path, "is in use by process ", "(qemu-storage-da, since 2"];
    bench.fails(&["pool", "stats", path], REFUSED, &said);
    bench.fails(&["pool", "serve", path, "--nbd", &bench.arg("socket")], REFUSED, &said);
    drop(held);
    // The server has the device for itself, and its commands go through it.
    let socket = bench.arg("pool.sock");
    let server = Child::start(bench.command(&["-q", "pool", "serve", path, "--nbd", &socket]), "pool serve");
    while !Path::new(&socket).exists() {
        assert!(!server.has_ended());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    bench.done(&["-q", "volume", "--pool", path, "create", "a", "--size", "8MiB"]);
    let said = [path, "is in use by process ", "(sapwood, since 2"];
    bench.fails(&["pool", "serve", path, "--nbd", &bench.arg("other")], REFUSED, &said);
    bench.fails(&["pool", "create", path, "--force"], REFUSED, &said);
    stop(server);
    bench.done(&["-q", "pool", "check", path]);
}

/// `qemu-io` wrote into the file of a pool that was being served.
#[test]
fn qemu_is_kept_off_a_pool() {
    let bench = Bench::bare();
    let pool = bench.arg("pool");
    bench.done(&["-q", "pool", "create", &pool, "--size", "256MiB"]);
    let held = hold(&bench, &file_node("raw", &pool), Open::ToWrite);
    let said = [pool.as_str(), "is in use by process ", "(qemu-storage-da, since 2"];
    bench.fails(&["volume", "--pool", &pool, "create", "a", "--size", "8MiB"], REFUSED, &said);
    let (socket, other) = (bench.arg("pool.sock"), bench.arg("other.sock"));
    bench.fails(&["pool", "serve", &pool, "--nbd", &other], REFUSED, &said);
    drop(held);
    let server = Child::start(bench.command(&["-q", "pool", "serve", &pool, "--nbd", &socket]), "pool serve");
    while !Path::new(&socket).exists() {
        assert!(!server.has_ended());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    is_kept_from_qemu(&pool, "raw");
    // Its commands go through its server.
    bench.done(&["-q", "volume", "--pool", &pool, "create", "a", "--size", "8MiB"]);
    let said = [pool.as_str(), "is in use by process ", "(sapwood, since 2"];
    bench.fails(&["pool", "serve", &pool, "--nbd", &other], REFUSED, &said);
    stop(server);
    bench.done(&["-q", "pool", "check", &pool]);
}

/// It said that another backup was running, and not which.
#[test]
fn the_backup_that_a_machine_has_is_named() {
    let bench = Bench::new("balanced");
    let image = bench.arg("disk.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &image, &DISK_BYTES.to_string()]);
    // A monitor has one client at a time.
    let (first, second) = (bench.arg("qmp.sock"), bench.arg("second.sock"));
    let monitor = format!("unix:{second},server=on,wait=off");
    let device = ["-device", "virtio-blk-pci,drive=d0,id=vd0", "-qmp", &monitor];
    let mut vm = Machine::start_with(&bench, &image, "qcow2", vec![0; DISK_BYTES], &device);
    vm.write(0, 3 << 20, 1);
    let source = |socket: &str| format!("qmp:{socket}#d0");
    let slow = ["-q", "backup", "vm/vda", &source(&first), "--limit", "500k"];
    let slow = Child::start(bench.command(&slow), "a slow backup");
    while !vm.keeps_a_point() {
        assert!(!slow.has_ended());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let process = format!("running: process {} (sapwood, since 2", slow.pid().as_raw_nonzero());
    let said = ["another backup of this virtual machine is ", &process, ") of host "];
    bench.fails(&["backup", "vm/vdb", &source(&second)], REFUSED, &said);
    slow.signal(Signal::KILL);
    slow.wait();
    bench.done(&["-q", "backup", "vm/vdb", &source(&second)]);
    assert!(bench.restored("vm/vdb") == vm.content);
}

/// Whether QEMU's tools do something with an image; says what they say where they do not.
fn qemu_tool(name: &str, args: &[&str]) -> Result<(), String> {
    let out = Command::new(name).args(args).output().unwrap();
    if out.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&out.stderr).into_owned())
    }
}

fn is_kept_from_qemu(path: &str, driver: &str) {
    let file = json!({ "driver": "file", "filename": path });
    let mut image = json!({ "driver": driver, "file": file });
    if driver == "qcow2" {
        image["backing"] = Value::Null;
    }
    let image = format!("json:{image}");
    for (tool, args) in
        [("qemu-io", &["-c", "write 0 4k", &image][..]), ("qemu-img", &["check", "-r", "all", &image])]
    {
        if driver == "raw" && tool == "qemu-img" {
            continue;
        }
        let said = qemu_tool(tool, args).unwrap_err();
        assert!(said.contains("lock"), "{tool} on {path}: {said}");
    }
}

fn stop(child: Child) {
    child.signal(Signal::TERM);
    let ended = child.wait();
    assert_eq!(ended.code(), Some(DONE), "{ended}");
}

/// `qemu-io` on an overlay that was being served took its mark *dirty* away and rebuilt its refcounts.
#[test]
fn qemu_is_kept_off_a_live_overlay() {
    let bench = Bench::new("balanced");
    bench.backup("vm/vda", &bench.file("disk", &random(DISK_BYTES, 4)));
    let overlay = bench.arg("overlay.qcow2");
    let args = ["-q", "nbd", "vm/vda", "--overlay", &overlay];
    let mut child = start(&bench, &args);
    let mut client = Nbd::connect_to(&mut child, &bench.path("socket")).unwrap();
    client.write(0, &[7; 4096]).unwrap();
    client.flush().unwrap();
    let before = fs::read(&overlay).unwrap();
    is_kept_from_qemu(&overlay, "qcow2");
    assert!(fs::read(&overlay).unwrap() == before);
    bench.fails(
        &["nbd", "vm/vda", "--overlay", &overlay],
        REFUSED,
        &[&overlay, "is in use by process ", "(sapwood, since 2"],
    );
    bench.fails(
        &["backup", "vm/other", &overlay],
        REFUSED,
        &[&overlay, "is in use by process ", "(sapwood, since 2"],
    );
    drop(client);
    stop(child);
    let node = json!({
        "driver": "qcow2", "backing": null, "file": { "driver": "file", "filename": overlay },
    });
    for writable in [true, false] {
        let held = Holder::start(&bench, &node, writable);
        bench.fails(
            &["nbd", "vm/vda", "--overlay", &overlay],
            REFUSED,
            &[&overlay, "is in use by process ", "(qemu-storage-da, since 2"],
        );
        drop(held);
    }
    bench.done(&["-q", "nbd", "vm/vda", "--overlay", &overlay, "--", "true"]);
}

#[test]
fn qemu_is_kept_off_an_arriving_disk_and_what_it_replaces() {
    let bench = Bench::new("balanced");
    let content = random(DISK_BYTES, 5);
    bench.backup("vm/vda", &bench.file("disk", &content));
    let target = bench.file("target.raw", &[1; 512]);
    let args = ["-q", "restore", "vm/vda", &target, "--live", "--force", "--limit", "1M"];
    let mut child = start(&bench, &args);
    let client = Nbd::connect_to(&mut child, &bench.path("socket")).unwrap();
    is_kept_from_qemu(&format!("{target}.sapwood-arriving"), "raw");
    is_kept_from_qemu(&target, "raw");
    bench.fails(&args, REFUSED, &["is in use by process ", "(sapwood, since 2"]);
    while Path::new(&format!("{target}.sapwood-arriving")).exists() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    // It has its name, and is served still.
    is_kept_from_qemu(&target, "raw");
    drop(client);
    assert_eq!(child.wait().code(), Some(DONE));
    assert!(fs::read(&target).unwrap() == content);
    qemu_tool("qemu-io", &["-f", "raw", "-c", "write 0 4k", &target]).unwrap();
}
