//! Disks of a running QEMU: point in time, dirty bitmaps, the guest's agent, and room for the guest's old data.

use crate::common::guest_agent::{agent, Manner};
use crate::common::qemu::Machine;
use crate::common::{qemu_img, random, Bench, Child, Mount, FAILED, REFUSED, USAGE};
use rustix::process::Signal;
use serde_json::{json, Value};
use std::time::{Duration, Instant};

const DISK_BYTES: usize = 48 << 20;
const SEGMENT: u64 = 4 << 20;

fn new_disk(bench: &Bench) -> String {
    let image = bench.arg("disk.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &image, &DISK_BYTES.to_string()]);
    image
}

fn source(bench: &Bench) -> String {
    format!("qmp:{}#d0", bench.arg("qmp.sock"))
}

/// A disk full of what takes long to compress.
fn slow_backup(bench: &Bench, disk_bytes: usize) -> (Machine, Vec<String>) {
    let bytes: Vec<u8> = random(disk_bytes, 3).iter().map(|b| b & 15).collect();
    let raw = bench.file("disk.raw", &bytes);
    let vm = Machine::start(bench, &raw, "raw", std::fs::read(&raw).unwrap());
    let args = ["--json", "-q", "backup", "vm/vda", &source(bench), "--codec", "zstd:15"];
    (vm, args.map(str::to_owned).to_vec())
}

fn wait_for_the_point(vm: &mut Machine) {
    let start = Instant::now();
    while !vm.keeps_a_point() {
        assert!(start.elapsed() < Duration::from_secs(60), "no point in time is taken");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn only_what_the_guest_wrote_is_read() {
    let bench = Bench::new("balanced");
    let image = new_disk(&bench);
    let mut vm = Machine::start(&bench, &image, "qcow2", vec![0; DISK_BYTES]);
    let source = source(&bench);
    vm.write(0, 9 << 20, 1);
    let first = bench.json(&["backup", "vm/vda", &source]);
    assert_eq!((&first["source_format"], &first["scan"]["kind"]), (&"qemu".into(), &"whole".into()));
    assert_eq!(first["scan"]["why"], "there is no snapshot yet");
    assert_eq!((&first["consistency"], &first["not_frozen"]), (&"crash".into(), &Value::Null));
    assert!(bench.restored("vm/vda@latest") == vm.content);

    vm.write(5 << 20, 4096, 2);
    vm.write(30 << 20, 100_000 / 512 * 512, 3);
    // By the name of the device this time.
    let by_device = format!("qmp:{}#vd0", bench.arg("qmp.sock"));
    let second = bench.json(&["backup", "vm/vda", &by_device]);
    assert_eq!(second["scan"], json!({ "kind": "changed", "bytes": 2 * SEGMENT, "why": null }), "{second}");
    assert!(bench.restored("vm/vda@latest") == vm.content);
    let third = bench.json(&["backup", "vm/vda", &source]);
    assert_eq!(third["scan"], json!({ "kind": "changed", "bytes": 0, "why": null }));
    let id = third["snapshot"].as_str().unwrap().to_owned();
    assert_eq!(vm.bitmaps().len(), 1, "one bitmap for the newest snapshot");
    assert!(vm.bitmaps()[0].ends_with(&id));
    assert_eq!(vm.leftovers(), [""; 0]);

    // Bitmaps outlive the machine where its format keeps them.
    vm.write(40 << 20, 4096, 4);
    let content = vm.quit();
    let mut vm = Machine::start(&bench, &image, "qcow2", content);
    vm.write(41 << 20, 4096, 5);
    let fourth = bench.json(&["backup", "vm/vda", &source]);
    assert_eq!(fourth["scan"], json!({ "kind": "changed", "bytes": SEGMENT, "why": null }));
    assert!(bench.restored("vm/vda@latest") == vm.content);

    // A snapshot that QEMU does not know of: its bitmap does not begin there.
    let raw = bench.file("raw", &vm.content);
    bench.done(&["-q", "backup", "vm/vda", &raw, "--source-format", "raw"]);
    vm.write(1 << 20, 4096, 6);
    let after = bench.json(&["backup", "vm/vda", &source]);
    assert!(
        after["scan"]["why"].as_str().unwrap().contains("does not begin at the newest snapshot"),
        "{after}"
    );
    assert!(bench.restored("vm/vda@latest") == vm.content);

    // All of it where somebody wants so; the bitmap goes on from there.
    let full = bench.json(&["backup", "vm/vda", &source, "--full"]);
    assert_eq!(full["scan"], json!({ "bytes": null, "kind": "whole", "why": "as --full says" }));
    let last = bench.json(&["backup", "vm/vda", &source]);
    assert_eq!(last["scan"], json!({ "kind": "changed", "bytes": 0, "why": null }));
}

#[test]
fn what_is_no_disk_to_back_up_is_refused() {
    let bench = Bench::new("balanced");
    let image = new_disk(&bench);
    let mut vm = Machine::start(&bench, &image, "qcow2", vec![0; DISK_BYTES]);
    let source = source(&bench);
    bench.fails(&["backup", "vm/vda", &format!("{source}x")], FAILED, &["no block node or device \"d0x\""]);
    bench.fails(&["backup", "vm/vda", "qmp:/nowhere#"], USAGE, &["qmp:SOCKET#NODE"]);
    bench.fails(&["backup", "vm/vda", "qmp:/nowhere#d0"], FAILED, &["/nowhere: cannot talk to QEMU"]);
    bench.fails(&["backup", "vm/vda", &source, "--source-format", "raw"], USAGE, &["--source-format"]);
    bench.fails(&["backup", "vm/vda", &image, "--agent", "/nowhere"], USAGE, &["--agent", "qmp:"]);
    bench.fails(&["backup", "vm/vda", &source, "--scratch", "/nowhere"], FAILED, &["/nowhere"]);
    let long = bench.path(&"d".repeat(90));
    std::fs::create_dir(&long).unwrap();
    bench.fails(&["backup", "vm/vda", &source, "--scratch", long.to_str().unwrap()], FAILED, &["--scratch"]);
    assert_eq!((vm.leftovers(), vm.bitmaps()), (vec![], vec![]));

    // A disk with an iothread, which would cost the guest its life; others of the same machine have none.
    drop(vm);
    for (device, refused) in [
        (&["virtio-blk-pci,drive=d0,id=vd0,iothread=t0"][..], true),
        (&["virtio-scsi-pci,id=sc0,iothread=t0", "scsi-hd,drive=d0,id=vd0,bus=sc0.0"], true),
        (&["virtio-scsi-pci,id=sc0", "scsi-hd,drive=d0,id=vd0,bus=sc0.0"], false),
    ] {
        let mut args = vec!["-object", "iothread,id=t0"];
        args.extend(device.iter().flat_map(|d| ["-device", *d]));
        let mut vm = Machine::start_with(&bench, &image, "qcow2", vec![0; DISK_BYTES], &args);
        if vm.version() >= (9, 0) {
            break;
        }
        for node in ["d0", "vd0"] {
            let source = source.replace("d0", node);
            if refused {
                bench.fails(&["backup", "vm/other", &source], FAILED, &["iothread", "QEMU 9.0"])
            } else {
                bench.done(&["-q", "backup", "vm/other", &source])
            };
        }
        assert_eq!(vm.leftovers(), [""; 0]);
    }
    let mut vm = Machine::start(&bench, &image, "qcow2", vec![0; DISK_BYTES]);

    // Somebody else talks to the monitor.
    let other = std::os::unix::net::UnixStream::connect(bench.path("qmp.sock")).unwrap();
    bench.fails(&["backup", "vm/vda", &source], FAILED, &["serves one client at a time"]);
    drop(other);

    // A snapshot within QEMU: the guest writes to the overlay from then on.
    bench.backup("vm/vda", &source);
    let overlay = bench.arg("overlay.qcow2");
    let how = json!({ "node-name": "d0", "snapshot-file": overlay, "snapshot-node-name": "o0" });
    vm.execute("blockdev-snapshot-sync", how);
    vm.write(7 << 20, 4096, 9);
    let said = ["block node \"d0\"", "vd0 uses o0", "name the device"];
    bench.fails(&["backup", "vm/vda", &source], REFUSED, &said);
    let report = bench.json(&["backup", "vm/vda", &source.replace("#d0", "#vd0")]);
    assert_eq!(report["scan"]["kind"], "whole");
    assert!(bench.restored("vm/vda@latest") == vm.content);
}

#[test]
fn all_disks_of_a_machine_are_backed_up_at_one_instant() {
    let bench = Bench::new("balanced");
    let image = new_disk(&bench);
    let (second, cd) = (bench.arg("second.qcow2"), bench.file("cd", &random(1 << 20, 4)));
    qemu_img(&["create", "-q", "-f", "qcow2", &second, "8M"]);
    let second = format!("driver=qcow2,node-name=d1,file.driver=file,file.filename={second}");
    let cd = format!("driver=raw,node-name=d2,read-only=on,file.driver=file,file.filename={cd}");
    let devices = [
        "virtio-blk-pci,drive=d0,id=vd0",
        "virtio-blk-pci,drive=d1,id=vd1",
        "virtio-blk-pci,drive=d2,id=vd2",
    ];
    let mut args = vec!["-blockdev", &second, "-blockdev", &cd];
    args.extend(devices.iter().flat_map(|d| ["-device", *d]));
    let mut vm = Machine::start_with(&bench, &image, "qcow2", vec![0; DISK_BYTES], &args);
    vm.write(0, 2 << 20, 1);
    vm.write_to("vd1", 0, 1 << 20, 2);
    let machine = format!("qmp:{}", bench.arg("qmp.sock"));
    let first = bench.json(&["backup", "vm", &machine]);
    let disks = |report: &Value| -> Vec<Value> { report["disks"].as_array().unwrap().clone() };
    let names: Vec<Value> = disks(&first).iter().map(|d| d["disk"].clone()).collect();
    assert_eq!(names, ["vm/vd0", "vm/vd1"], "not what the guest cannot write to");

    vm.write(9 << 20, 4096, 3);
    let second = bench.json(&["backup", "vm", &machine]);
    let read: Vec<Value> = disks(&second).iter().map(|d| d["scan"]["bytes"].clone()).collect();
    assert_eq!(read, [json!(SEGMENT), json!(0)]);
    assert!(bench.restored("vm/vd0@latest") == vm.content);
    let mut wanted = vec![0; 8 << 20];
    wanted[..1 << 20].fill(2);
    assert!(bench.restored("vm/vd1@latest") == wanted);
    let times = |disk: &str| -> Vec<Value> {
        let listed = bench.json(&["snapshots", disk]);
        listed["snapshots"].as_array().unwrap().iter().map(|s| s["time"].clone()).collect()
    };
    assert_eq!(times("vm/vd0"), times("vm/vd1"), "the two disks of each backup");
    assert_eq!(times("vm/vd0"), times("vm/definition"));
    let definition: Value = serde_json::from_slice(&bench.restored("vm/definition@latest")).unwrap();
    let command = definition["command"].as_array().unwrap();
    assert!(command.contains(&json!("virtio-blk-pci,drive=d1,id=vd1")), "{definition}");
    assert_eq!(vm.leftovers(), [""; 0]);
    bench.fails(&["backup", "vm/vda", &machine], USAGE, &["vm/vda"]);
    bench.fails(&["backup", "--", "-vm", &machine], USAGE, &["\"-vm/definition\" is not the name of a disk"]);
    bench.fails(&["backup", "vm", &format!("{machine}#d0")], USAGE, &["not the name of a disk"]);

    // It comes back whole, in the formats that QEMU had, or not at all: its definition alone does not tell its disks.
    let restored = bench.json(&["restore", "vm", "--to", &bench.arg("restored")]);
    let formats: Vec<&Value> = restored["disks"].as_array().unwrap().iter().map(|d| &d["format"]).collect();
    assert_eq!((formats, restored["left_out"].clone()), (vec![&json!("qcow2"), &json!("qcow2")], json!([])));
    bench.done(&["-q", "delete", "--yes", "vm/vd1@latest"]);
    let again = ["restore", "vm", "--to", &bench.arg("again")];
    bench.fails(&again, FAILED, &["vm/vd1", "there is no snapshot of"]);
}

#[test]
fn an_agent_freezes_the_guest_for_the_point_in_time() {
    let bench = Bench::new("balanced");
    let image = new_disk(&bench);
    let mut vm = Machine::start(&bench, &image, "qcow2", vec![0; DISK_BYTES]);
    vm.write(0, 1 << 20, 1);
    let (source, socket) = (source(&bench), bench.arg("agent.sock"));
    let args = ["backup", "vm/vda", &source, "--agent", &socket].map(str::to_owned);

    for manner in [Manner::Well, Manner::Stale] {
        let orders = agent(&bench.path("agent.sock"), manner);
        let report = bench.json(&args);
        assert_eq!((&report["consistency"], &report["not_frozen"]), (&"application".into(), &Value::Null));
        assert_eq!(*orders.lock().unwrap(), ["sync", "fsfreeze-status", "fsfreeze-freeze", "fsfreeze-thaw"]);
    }
    for (manner, why) in [
        (Manner::Silent, "does not answer"),
        (Manner::NothingToFreeze, "has frozen no"),
        (Manner::ThawsItself, "by itself"),
    ] {
        agent(&bench.path("agent.sock"), manner);
        let report = bench.json(&args);
        assert_eq!(report["consistency"], "crash");
        assert!(report["not_frozen"].as_str().unwrap().contains(why), "{report}");
    }
    let before = bench.snapshots("vm/vda");
    let orders = agent(&bench.path("agent.sock"), Manner::CannotFreeze);
    bench.fails(&args, FAILED, &["a hook said no"]);
    assert_eq!(orders.lock().unwrap().last().unwrap(), "fsfreeze-thaw", "some may be frozen");
    let orders = agent(&bench.path("agent.sock"), Manner::FrozenAlready);
    bench.fails(&args, FAILED, &["frozen already", "guest-fsfreeze-thaw"]);
    assert_eq!(orders.lock().unwrap().last().unwrap(), "fsfreeze-status", "it is not for us to thaw");
    assert_eq!(bench.snapshots("vm/vda"), before);
    assert_eq!((vm.leftovers().len(), vm.bitmaps().len()), (0, 1));

    let orders = agent(&bench.path("agent.sock"), Manner::DeafToTheFirstThaw);
    assert_eq!(bench.json(&args)["consistency"], "application");
    assert_eq!(orders.lock().unwrap().iter().filter(|o| *o == "fsfreeze-thaw").count(), 2);
}

#[test]
fn a_stopped_backup_takes_down_what_it_has_put_up() {
    let bench = Bench::new("balanced");
    let (mut vm, args) = slow_backup(&bench, DISK_BYTES);
    let first = bench.json(&["backup", "vm/vda", &source(&bench), "--codec", "none"]);
    vm.write(0, DISK_BYTES, 5);
    vm.write(3 << 20, 4096, 6);
    let before = vm.content.clone();
    for byte in [11, 12] {
        let child = Child::start(bench.command(&args), "a backup that is stopped");
        wait_for_the_point(&mut vm);
        // Another one of the same disk is refused before it touches QEMU.
        if byte == 11 {
            bench.fails(&["backup", "vm/vda", &source(&bench)], REFUSED, &["vm/vda", "locked by a backup"]);
        }
        vm.write(9 << 20, 4096, byte);
        child.signal(Signal::TERM);
        child.wait();
    }
    // It may have been faster than the signal.
    let snapshots = bench.snapshots("vm/vda");
    for id in snapshots.iter().skip(1) {
        assert!(bench.restored(&format!("vm/vda@{id}"))[..9 << 20] == before[..9 << 20]);
    }
    assert_eq!(vm.leftovers(), [""; 0]);
    assert_eq!(vm.bitmaps().len(), 1);
    let report = bench.json(&["backup", "vm/vda", &source(&bench)]);
    assert_eq!(report["scan"]["kind"], "changed", "{report} after {first}");
    assert!(bench.restored("vm/vda@latest") == vm.content);
}

#[test]
fn a_full_scratch_ends_the_backup_and_not_the_guest() {
    let bench = Bench::new("balanced");
    // More than a backup reads ahead: what has been read needs no point in time any more.
    let (mut vm, mut args) = slow_backup(&bench, 4 * DISK_BYTES);
    let Some(scratch) = Mount::tmpfs(&bench.path("s"), 80 << 20) else { return };
    let small = bench.path("t");
    let Some(_too_small) = Mount::tmpfs(&small, 32 << 20) else { return };
    let refused =
        ["backup", "vm/vda", &source(&bench), "--scratch", small.to_str().unwrap()].map(str::to_owned);
    bench.fails(&refused, FAILED, &["only 3", "MiB are free", "--scratch"]);

    args.extend(["--scratch".to_owned(), scratch.path.to_str().unwrap().to_owned()]);
    let child = Child::start(bench.command(&args), "a backup whose scratch fills up");
    wait_for_the_point(&mut vm);
    let filler = scratch.path.join("filler");
    std::fs::write(&filler, vec![1; 72 << 20]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    // As much as there would be no room for.
    vm.write(0, 4 * DISK_BYTES, 9);
    child.wait().expect_failure(FAILED_OR_REFUSED, &["has filled it", "--scratch"]);
    std::fs::remove_file(&filler).unwrap();
    assert_eq!(vm.leftovers(), [""; 0]);
    assert_eq!(bench.snapshots("vm/vda").len(), 0);
    bench.json(&["backup", "vm/vda", &source(&bench)]);
    assert!(bench.restored("vm/vda@latest") == vm.content);
    assert_eq!(
        std::fs::read_dir(&scratch.path).unwrap().count(),
        0,
        "nothing stays in the scratch directory"
    );
}

/// The source has gone: the same code as for an image that cannot be read on.
const FAILED_OR_REFUSED: i32 = REFUSED;
