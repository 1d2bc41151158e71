//! Disks of a running QEMU that move to another block node: between two backups, before the point in time, and after it.

use crate::common::guest_agent::{agent, Manner};
use crate::common::qemu::{Holder, Machine};
use crate::common::{qemu_img, random, Bench, Child, DONE, REFUSED};
use serde_json::{json, Value};
use std::time::{Duration, Instant};

const DISK_BYTES: usize = 16 << 20;

fn new_image(bench: &Bench, name: &str) -> String {
    let image = bench.arg(name);
    qemu_img(&["create", "-q", "-f", "qcow2", &image, &DISK_BYTES.to_string()]);
    image
}

fn qmp(bench: &Bench, node: &str) -> String {
    format!("qmp:{}#{node}", bench.arg("qmp.sock"))
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "not {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Adds a node of a qcow2 image.
fn add_node(vm: &mut Machine, name: &str, image: &str) {
    let file = json!({ "driver": "file", "filename": image });
    vm.execute("blockdev-add", json!({ "driver": "qcow2", "node-name": name, "file": file }));
}

/// Moves a disk to another node as an administrator does: copied, then changed over.
fn mirror(vm: &mut Machine, from: &str, to: &str) {
    let how = json!({ "job-id": "move", "device": from, "target": to, "sync": "full" });
    vm.execute("blockdev-mirror", how);
    wait_until("copied", || job_status(vm).as_deref() == Some("ready"));
    vm.execute("job-complete", json!({ "id": "move" }));
    wait_until("changed over", || job_status(vm).is_none());
}

fn job_status(vm: &mut Machine) -> Option<String> {
    let jobs = vm.execute("query-jobs", json!({}));
    let status = jobs.as_array().unwrap().iter().find(|j| j["id"] == "move")?["status"].clone();
    Some(status.as_str().unwrap().to_owned())
}

/// The node of the image that the disk was moved away from was backed up with exit 0 and `"bytes":0`: everything that the
/// guest had written since was missing.
#[test]
fn a_node_that_nothing_writes_to_is_refused() {
    let bench = Bench::new("balanced");
    let image = new_image(&bench, "disk.qcow2");
    let mut vm = Machine::start(&bench, &image, "qcow2", vec![0; DISK_BYTES]);
    let by_node = qmp(&bench, "d0");
    let by_device = qmp(&bench, "vd0");
    vm.write(0, 4 << 20, 1);
    bench.backup("vm/vda", &by_node);

    add_node(&mut vm, "m0", &new_image(&bench, "moved.qcow2"));
    let unused = ["block node \"m0\"", "vd0 uses d0", "name the device"];
    bench.fails(&["backup", "vm/vda", &qmp(&bench, "m0")], REFUSED, &unused);
    mirror(&mut vm, "d0", "m0");
    vm.write(5 << 20, 4096, 2);
    let said = ["block node \"d0\"", "vd0 uses m0", "name the device"];
    bench.fails(&["backup", "vm/vda", &by_node], REFUSED, &said);
    assert_eq!(bench.snapshots("vm/vda").len(), 1);
    let report = bench.json(&["backup", "vm/vda", &by_device]);
    assert_eq!(report["scan"]["kind"], "whole", "{report}");
    assert!(bench.restored("vm/vda@latest") == vm.content);
    vm.write(6 << 20, 4096, 3);
    let report = bench.json(&["backup", "vm/vda", &qmp(&bench, "m0")]);
    assert_eq!(report["scan"]["kind"], "changed", "{report}");
    assert!(bench.restored("vm/vda@latest") == vm.content);

    // And back again: the bitmap that the first node has kept is of an older snapshot.
    mirror(&mut vm, "m0", "d0");
    vm.write(7 << 20, 4096, 4);
    let report = bench.json(&["backup", "vm/vda", &by_device]);
    assert_eq!(report["scan"]["kind"], "whole", "{report}");
    assert!(bench.restored("vm/vda@latest") == vm.content);
    assert_eq!((vm.leftovers(), vm.bitmaps().len()), (vec![], 1));
}

/// Below a filter, and below the raw format, the same disk goes by several names. The file of a qcow2 image is no disk.
#[test]
fn nodes_that_a_device_leads_to_are_backed_up() {
    let bench = Bench::new("balanced");
    let image = new_image(&bench, "disk.qcow2");
    let throttled = [
        "-object",
        "throttle-group,id=g0",
        "-blockdev",
        "driver=throttle,node-name=t0,throttle-group=g0,file=d0",
        "-blockdev",
        "driver=copy-on-read,node-name=c0,file=t0",
        "-device",
        "virtio-blk-pci,drive=c0,id=vd0",
    ];
    let mut vm = Machine::start_with(&bench, &image, "qcow2", vec![0; DISK_BYTES], &throttled);
    for (n, node) in ["vd0", "c0", "t0", "d0"].into_iter().enumerate() {
        vm.write(n << 20, 4096, n as u8 + 1);
        for kind in ["whole", "changed"] {
            let disk = format!("vm/{node}");
            let report = bench.json(&["backup", &disk, &qmp(&bench, node)]);
            assert_eq!(report["scan"]["kind"], kind, "{node}: {report}");
            vm.write(n << 20, 8192, n as u8 + 7);
        }
        bench.json(&["backup", &format!("vm/{node}"), &qmp(&bench, node)]);
        assert!(bench.restored(&format!("vm/{node}")) == vm.content, "{node}");
    }
    bench.fails(&["backup", "vm/f0", &qmp(&bench, "f0")], REFUSED, &["block node \"f0\"", "vd0 uses c0"]);
    drop(vm);

    let raw = bench.file("disk.raw", &random(DISK_BYTES, 1));
    let mut vm = Machine::start(&bench, &raw, "raw", std::fs::read(&raw).unwrap());
    vm.write(0, 4096, 1);
    bench.backup("vm/raw", &qmp(&bench, "f0"));
    assert!(bench.restored("vm/raw") == vm.content);
    drop(vm);

    // A disk that is a part of its node.
    let part = ["-blockdev", "driver=raw,node-name=p0,offset=1048576,size=4194304,file=d0"];
    let device = ["-device", "virtio-blk-pci,drive=p0,id=vd0"];
    let vm = Machine::start_with(&bench, &raw, "raw", Vec::new(), &[&part[..], &device[..]].concat());
    bench.fails(&["backup", "vm/raw", &qmp(&bench, "d0")], REFUSED, &["block node \"d0\"", "vd0 uses p0"]);
    drop(vm);

    let vm = Machine::start_without_device(&bench, &raw, "raw");
    let said = ["block node \"d0\"", "no device and no writable export"];
    bench.fails(&["backup", "vm/raw", &qmp(&bench, "d0")], REFUSED, &said);
    drop(vm);
}

/// A storage daemon has no devices: what it exports to be written is in use.
#[test]
fn a_writable_export_uses_its_node() {
    let bench = Bench::new("balanced");
    let content = random(DISK_BYTES, 2);
    let raw = bench.file("disk.raw", &content);
    let node = json!({ "driver": "raw", "file": { "driver": "file", "filename": raw } });
    let daemon = Holder::start(&bench, &node, true);
    for kind in ["whole", "changed"] {
        let report = bench.json(&["backup", "vm/vda", &qmp(&bench, "d0")]);
        assert_eq!(report["scan"]["kind"], kind, "{report}");
    }
    assert!(bench.restored("vm/vda") == content);
    drop(daemon);
    let _daemon = Holder::start(&bench, &node, false);
    bench.fails(
        &["backup", "vm/vda", &qmp(&bench, "d0")],
        REFUSED,
        &["block node \"d0\"", "no writable export"],
    );
}

/// A machine whose disk can be taken out without the guest's help.
fn with_pluggable_disk(bench: &Bench) -> Machine {
    let bytes: Vec<u8> = random(DISK_BYTES, 3).iter().map(|b| b & 15).collect();
    let raw = bench.file("disk.raw", &bytes);
    let scsi = ["-device", "virtio-scsi-pci,id=sc0", "-device", "scsi-hd,drive=d0,id=vd0,bus=sc0.0"];
    let mut vm = Machine::start_with(bench, &raw, "raw", bytes, &scsi);
    add_node(&mut vm, "m0", &new_image(bench, "moved.qcow2"));
    vm
}

/// Gives the device another node.
fn replug(vm: &mut Machine, node: &str) {
    vm.execute("device_del", json!({ "id": "vd0" }));
    let devices = |vm: &mut Machine| vm.execute("query-block", json!({})).as_array().unwrap().len();
    wait_until("taken out", || devices(vm) == 0);
    let device = json!({ "driver": "scsi-hd", "id": "vd0", "bus": "sc0.0", "drive": node });
    vm.execute("device_add", device);
}

#[test]
fn a_disk_that_moves_during_a_backup_is_read_whole_the_next_time() {
    let bench = Bench::new("balanced");
    let mut vm = with_pluggable_disk(&bench);
    let source = qmp(&bench, "d0");
    bench.backup("vm/vda", &source);
    let args = ["--json", "-q", "backup", "vm/vda", &source, "--full", "--codec", "zstd:15", "--limit", "8M"];
    let child = Child::start(bench.command(&args), "a backup whose disk moves");
    wait_until("at the point in time", || vm.keeps_a_point());
    let content = vm.content.clone();
    replug(&mut vm, "m0");
    let ended = child.wait();
    // The point in time was kept: the snapshot is what the disk was.
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    let said = ["the next backup reads all of the disk", "block node \"d0\"", "vd0 uses m0"];
    ended.expect_one_line(&said);
    assert!(bench.restored("vm/vda") == content);
    assert_eq!((vm.leftovers(), vm.bitmaps()), (vec![], vec![]));
    bench.fails(&["backup", "vm/vda", &source], REFUSED, &["vd0 uses m0"]);
    replug(&mut vm, "d0");
    let report = bench.json(&["backup", "vm/vda", &source]);
    assert_eq!(report["scan"]["kind"], "whole", "{report}");
}

#[test]
fn a_disk_that_moves_before_the_point_in_time_is_refused() {
    let bench = Bench::new("balanced");
    let mut vm = with_pluggable_disk(&bench);
    let source = qmp(&bench, "vd0");
    bench.backup("vm/vda", &source);
    // It is waited for before the point in time.
    let socket = bench.arg("agent.sock");
    agent(&bench.path("agent.sock"), Manner::Silent);
    let args = ["-q", "backup", "vm/vda", &source, "--agent", &socket];
    let child = Child::start(bench.command(&args), "a backup whose disk moves");
    wait_until("prepared", || !vm.leftovers().is_empty());
    replug(&mut vm, "m0");
    child.wait().expect_failure(REFUSED, &["block node \"d0\"", "vd0 uses m0"]);
    assert_eq!(bench.snapshots("vm/vda").len(), 1);
    assert_eq!(vm.leftovers(), [""; 0]);
    let report: Value = bench.json(&["backup", "vm/vda", &source]);
    assert_eq!(report["scan"]["kind"], "whole", "{report}");
    assert!(bench.restored("vm/vda") == vec![0; DISK_BYTES]);
}
