//! What is said of running machines, and where there is no room.

use super::Scene;
use crate::common::guest_agent::{agent, Manner};
use crate::common::libvirt::{new_image, Libvirt};
use crate::common::mounted::{can_mount, until, Mounted};
use crate::common::qemu::Machine;
use crate::common::{random, Child, Mount, INTERRUPTED};
use rustix::process::Signal;
use std::os::unix::net::UnixStream;

/// A QEMU that libvirt does not know of.
pub fn qemu(s: &mut Scene) {
    s.section("Running machines, by QEMU's monitor");
    let image = new_image(&s.bench.path("guest.qcow2"), "qcow2", 8 << 20);
    let mut machine = Machine::start(&s.bench, &image, "qcow2", Vec::new());
    s.hide(&machine.pid(), "PID");
    s.bench.file("file", b"");
    std::fs::create_dir(s.bench.path("scratch")).unwrap();
    for source in ["…/qmp.sock#vdc", "…/none#d0", "…/file#d0", "…/qmp.sock#", "…/qmp.sock"] {
        s.says(&format!("backup new/vda qmp:{source}"));
    }
    s.says("backup new/vda …/guest.qcow2");
    s.says("restore web01/vda …/guest.qcow2 --force");
    s.says("restore web01/vda …/guest.qcow2 --live --force");
    s.says("nbd web01/vda --overlay …/guest.qcow2");
    s.says("backup new/archive …/guest.qcow2 --format tar");
    s.says("mzip …/guest.qcow2");
    s.says("mzip …/web01.raw --force -o …/guest.qcow2");
    s.says("mtar migrate …/guest.qcow2 …/out");
    s.says("pool stats …/guest.qcow2");
    s.says("backup new/vda qmp:…/qmp.sock#d0 --source-format raw");
    s.says("backup new/vda qmp:…/qmp.sock#d0 --stdin-size 3");
    s.says("backup new/vda qmp:…/qmp.sock#d0 --unsafe");
    s.says("backup new/vda qmp:…/qmp.sock#d0 --scratch …/none");
    s.says("backup new/vda qmp:…/qmp.sock#d0 --agent …/none");
    s.says("backup new qmp:…/qmp.sock#d0");
    let at = serde_json::json!({ "type": "unix", "data": { "path": s.bench.arg("qemu-nbd.sock") } });
    machine.execute("nbd-server-start", serde_json::json!({ "addr": at }));
    s.says("backup new/vda qmp:…/qmp.sock#d0");
    machine.execute("nbd-server-stop", serde_json::json!({}));
    let other = UnixStream::connect(s.bench.path("qmp.sock")).unwrap();
    s.says("backup new/vda qmp:…/qmp.sock#d0");
    drop(other);
    let overlay = s.bench.arg("overlay.qcow2");
    let how = serde_json::json!({
        "node-name": "d0", "snapshot-file": overlay, "snapshot-node-name": "o0"
    });
    machine.execute("blockdev-snapshot-sync", how);
    s.says("backup new/vda qmp:…/qmp.sock#d0");
}

/// Agents of guests that do not do what they should, one after the other.
pub fn agents(s: &mut Scene) {
    s.section("Guest agents");
    let image = new_image(&s.bench.path("agent.qcow2"), "qcow2", 8 << 20);
    let machine = Machine::start(&s.bench, &image, "qcow2", Vec::new());
    s.bench.file("no-socket", b"");
    s.says("backup agent/vda qmp:…/qmp.sock#d0 --agent …/none");
    s.says("backup agent/vda qmp:…/qmp.sock#d0 --agent …/no-socket");
    for (name, manner) in [
        ("frozen", Manner::FrozenAlready),
        ("refuses", Manner::CannotFreeze),
        ("rubbish", Manner::Rubbish),
        ("deaf", Manner::DeafToEachThaw),
    ] {
        agent(&s.bench.path(name), manner);
        s.says(&format!("backup agent/vda qmp:…/qmp.sock#d0 --agent …/{name}"));
    }
    drop(machine);
}

/// Places where nothing can be mounted, and commands that cannot run beside a mount. Returns whether this machine can mount.
pub fn mounts(s: &mut Scene) -> bool {
    if !can_mount() {
        return false;
    }
    s.section("Mounts");
    std::fs::create_dir(s.bench.path("place")).unwrap();
    std::fs::create_dir(s.bench.path("vault/place")).unwrap();
    s.says("mount …/vault/place");
    std::fs::remove_dir(s.bench.path("vault/place")).unwrap();
    s.says("mount …/place --cache much");
    let mounted = Mounted::start(&s.bench, "mounted", &[]);
    s.says("mount …/mounted");
    drop(mounted);
    s.says("mount …/place -- …/none");
    true
}

/// A daemon with one domain.
pub fn libvirt(s: &mut Scene) {
    s.section("Running machines, by libvirt");
    let mut libvirt = Libvirt::start(&mut s.bench);
    let image = new_image(&s.bench.path("vm.qcow2"), "qcow2", 8 << 20);
    libvirt.start_domain(&s.bench, &[("vda", "qcow2", &image)]);
    for source in ["none", "", "--help"] {
        s.says(&format!("backup vm libvirt:{source}"));
    }
    s.says("backup vm/vda libvirt:vm");
    s.says("backup vm libvirt:v*");
    s.says("backup * libvirt:w*");
    s.says("backup vm libvirt:vm --source-format raw");
    let definition = ["backup", "-q", "vm", "libvirt:vm"];
    s.bench.done(&definition);
    s.says("restore vm --to …/machine --define");
    s.says("restore vm@2020-01-01 --to …/machine");
    s.says("backup vm libvirt:vm --agent …/none");
    for at in 0..4 {
        libvirt.write("vda", at << 20, 1 << 20, 1);
    }
    // One is running, slowly.
    let slow = Child::start(
        s.bench.command(&["-q", "backup", "vm", "libvirt:vm", "--limit", "500k", "--full"]),
        "a slow backup",
    );
    until("a backup job", || libvirt.has_job());
    let known = s.hidden.len();
    s.hide(&format!("process {}", slow.pid().as_raw_nonzero()), "process PID");
    s.says("backup vm2 libvirt:vm");
    s.hidden.truncate(known);
    slow.signal(Signal::INT);
    assert_eq!(slow.wait().code(), Some(INTERRUPTED));
    let part = "<slices><slice type='storage' offset='0' size='1048576'/></slices>";
    libvirt.define_off(&s.bench, "part", &s.bench.arg("web01.raw"), part);
    s.says("backup part libvirt:part");
    libvirt.virsh(&["undefine", "part"]);
    libvirt.virsh(&["managedsave", "vm"]);
    s.says("backup vm libvirt:vm");
    s.bench.env.push(("LIBVIRT_DEFAULT_URI".into(), "qemu+unix:///system?socket=/none".into()));
    s.says("backup vm libvirt:vm");
    s.bench.env.push(("PATH".into(), "/none".into()));
    s.says("backup vm libvirt:vm");
    s.bench.env.clear();
}

/// A store and a target without room. Returns false where nothing can be mounted.
pub fn no_room(s: &mut Scene) -> bool {
    s.section("No room");
    let Some(_small) = Mount::tmpfs(&s.bench.path("small"), 12 << 20) else { return false };
    let store = s.bench.arg("small/vault");
    std::fs::create_dir(&store).unwrap();
    s.bench.done(&["--store", &store, "-q", "init"]);
    s.bench.file("large.raw", &random(24 << 20, 9));
    s.says("--store …/small/vault backup big/vda …/large.raw");
    s.says("copy web01/vda --to …/small/vault");
    let Some(_target) = Mount::tmpfs(&s.bench.path("target"), 12 << 20) else { return false };
    s.says("restore web01/vda …/target/out");
    s.says("restore web01/vda …/target/out --live");
    true
}
