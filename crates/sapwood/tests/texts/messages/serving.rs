//! What is said where something else serves, or has the device: exports, pools, devices.

use super::Scene;
use crate::common::mounted::until;
use crate::common::{Child, LoopDevice, Mount};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// QEMU's client of an export, connected until it is dropped.
struct Client(std::process::Child);

impl Client {
    fn connect(uri: &str) -> Client {
        let mut io = Command::new("qemu-io")
            .args(["-f", "raw", uri])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        io.stdin.as_mut().unwrap().write_all(b"read 0 512\n").unwrap();
        let mut said = BufReader::new(io.stdout.as_mut().unwrap());
        let mut line = String::new();
        while !line.contains("read 512/512") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "qemu-io ended");
        }
        Client(io)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Serves a disk as the export `disk` at a socket.
fn qemu_nbd(s: &Scene, socket: &str, more: &[&str]) -> Child {
    let mut server = Command::new("qemu-nbd");
    server.args(["--read-only", "--persistent", "--format=raw", "--export-name=disk", "--socket"]);
    server.arg(s.bench.arg(socket)).args(more).arg(s.bench.arg("web01.raw"));
    let server = Child::start(server, "qemu-nbd");
    until("qemu-nbd", || s.bench.path(socket).exists());
    server
}

/// Exports of another NBD server.
pub fn exports(s: &mut Scene) {
    s.section("NBD exports");
    let server = qemu_nbd(s, "nbd.sock", &[]);
    s.says("backup new/vda nbd+unix:///none?socket=…/nbd.sock");
    s.says("backup web01/vda nbd+unix:///disk?socket=…/nbd.sock --since zz --bitmap dirty");
    s.says("backup new/vda nbd+unix:///disk?socket=…/nbd.sock --source-format qcow2");
    drop(server);
    // Only with a key is anybody served.
    let keys = s.bench.arg("keys");
    std::fs::create_dir(&keys).unwrap();
    s.bench.file("keys/keys.psk", b"user:00112233445566778899aabbccddeeff\n");
    let credentials = format!("tls-creds-psk,id=keys,dir={keys},endpoint=server");
    let server = qemu_nbd(s, "tls.sock", &["--object", &credentials, "--tls-creds", "keys"]);
    s.says("backup new/vda nbd+unix:///disk?socket=…/tls.sock");
    drop(server);
}

pub fn pools(s: &mut Scene) {
    s.section("Pools");
    s.says("pool create …/pool");
    s.says("pool create …/pool --size 1MiB");
    s.says("pool create …/none/pool --size 256MiB");
    s.bench.done(&["pool", "create", &s.bench.arg("pool"), "--size", "256MiB"]);
    s.says("pool create …/pool --size 256MiB");
    s.says("pool stats …/none");
    s.says("pool stats …/web01.raw");
    s.says("pool serve …/pool --nbd …/none/socket");
    s.says("pool serve …/pool --vhost …/none/sockets");
    s.says("pool serve …/pool --vhost …/web01.raw");
    let volume = ["volume", "--pool", &s.bench.arg("pool"), "create", "a", "--size", "10MiB"];
    s.bench.done(&volume);
    for command in [
        "create a --size 10MiB",
        "create b --size 1000",
        "create b@x --size 10MiB",
        "create c",
        "create c --size 10MiB --wait",
        "create c --from none/vda",
        "snapshot a",
        "snapshot none@x",
        "clone a c",
        "clone a@none c",
        "resize none 1MiB",
        "share none background",
        "share a sometimes",
        "delete none",
    ] {
        s.says(&format!("volume --pool …/pool {command}"));
    }
    s.bench.done(&["volume", "--pool", &s.bench.arg("pool"), "snapshot", "a@monday"]);
    s.says("volume --pool …/pool snapshot a@monday");
    s.says("volume --pool …/pool snapshot a@monday@tuesday");
    s.says("volume --pool …/pool delete a");
    s.says("volume list");
    s.says("backup new/vda volume:a@monday --pool …/pool --since zz --bitmap dirty");
    s.bench.done(&["volume", "--pool", &s.bench.arg("pool"), "create", "b", "--size", "10MiB"]);
    let serve = ["pool", "serve", &s.bench.arg("pool"), "--nbd", &s.bench.arg("pool.sock")];
    let server = Child::start(s.bench.command(&serve), "pool serve");
    until("serving the pool", || s.bench.path("pool.sock").exists());
    let uri = format!("nbd+unix:///b?socket={}", s.bench.arg("pool.sock"));
    let client = Client::connect(&uri);
    s.says("volume --pool …/pool delete b");
    s.says("pool check …/pool --repair");
    let known = s.hidden.len();
    s.hide(&format!("process {}", server.pid().as_raw_nonzero()), "process PID");
    s.says("pool serve …/pool --nbd …/pool2.sock");
    s.hidden.truncate(known);
    drop(client);
    server.signal(Signal::TERM);
    let ended = server.wait();
    assert_eq!(ended.code(), Some(0), "{ended}");
    s.says("backup new/vda volume:a@x");
    s.says("backup new/vda volume:none --pool …/pool");
    s.says("backup new/vda volume: --pool …/pool");
    s.says("backup new/vda volume:a@x --pool …/pool --agent …/agent");
    s.says("backup new/vda volume:a@x --pool …/pool");
    s.says("backup new/vda volume:a@x --pool …/pool --since latest");
    s.says("backup new/vda volume:a@x --pool …/none");
}

/// A block device. Returns false where there can be none.
pub fn devices(s: &mut Scene) -> bool {
    s.section("Devices");
    std::fs::copy(s.bench.path("files.raw"), s.bench.path("of-device")).unwrap();
    let Some(device) = LoopDevice::on(&s.bench.path("of-device")) else { return false };
    s.hide(&device.device, "/dev/vg/disk");
    s.says("restore web01/vda /dev/vg/disk --live");
    s.says("pool create /dev/vg/disk --size 256MiB");
    s.says("pool create /dev/vg/disk");
    s.says("restore web01/vda /dev/vg/disk");
    let Some(_mounted) = Mount::device(&s.bench.path("on-device"), &device.device) else { return false };
    s.says("restore files/vda /dev/vg/disk --force");
    s.says("restore files/vda /dev/vg/disk --live --force --map …/map");
    true
}
