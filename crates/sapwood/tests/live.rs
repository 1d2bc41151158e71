//! Disks of a running QEMU: point in time, dirty bitmaps, and what is left when somebody is killed in between.
#![allow(clippy::unwrap_used)]

mod common;

use common::{from_env, qemu_img, Bench, FAILED, USAGE};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DISK_BYTES: usize = 48 << 20;
const SEGMENT: u64 = 4 << 20;

/// A QEMU without a guest: writes come from its monitor.
struct Machine {
    process: Child,
    monitor: BufReader<UnixStream>,
    /// What the disk must hold.
    content: Vec<u8>,
}

impl Machine {
    fn start(bench: &Bench, image: &str, content: Vec<u8>) -> Self {
        let (ours, theirs) = (bench.path("test.sock"), bench.path("qmp.sock"));
        for socket in [&ours, &theirs] {
            let _ = std::fs::remove_file(socket);
        }
        let monitor = |path: &Path| format!("unix:{},server=on,wait=off", path.display());
        let process = Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg", "-M", "q35", "-m", "64", "-display", "none", "-nodefaults", "-S"])
            .args(["-qmp", &monitor(&ours), "-qmp", &monitor(&theirs)])
            .args(["-blockdev", &format!("driver=file,filename={image},node-name=f0")])
            .args(["-blockdev", "driver=qcow2,file=f0,node-name=d0"])
            .args(["-device", "virtio-blk-pci,drive=d0,id=vd0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let socket = loop {
            match UnixStream::connect(&ours) {
                Ok(socket) => break socket,
                Err(e) => assert!(start.elapsed() < Duration::from_secs(30), "QEMU does not come up: {e}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut machine = Machine { process, monitor: BufReader::new(socket), content };
        machine.line();
        machine.execute("qmp_capabilities", json!({}));
        machine
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.monitor.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn execute(&mut self, command: &str, arguments: Value) -> Value {
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.monitor.get_mut().write_all(line.as_bytes()).unwrap();
        loop {
            let answer = self.line();
            assert!(answer.get("error").is_none(), "{command}: {answer}");
            if let Some(value) = answer.get("return") {
                return value.clone();
            }
        }
    }

    /// As the guest would.
    fn write(&mut self, at: usize, len: usize, byte: u8) {
        let io = format!("qemu-io -d /machine/peripheral/vd0/virtio-backend \"write -P {byte} {at} {len}\"");
        let said = self.execute("human-monitor-command", json!({ "command-line": io }));
        assert_eq!(said.as_str().unwrap_or_default().trim(), "", "{io}");
        self.content[at..at + len].fill(byte);
    }

    fn write_somewhere(&mut self, rng: &mut StdRng) {
        let len = rng.random_range(1..40) * 4096;
        let at = rng.random_range(0..(DISK_BYTES - len) / 4096) * 4096;
        self.write(at, len, rng.random());
    }

    fn bitmaps(&mut self) -> Vec<String> {
        let nodes = self.execute("query-named-block-nodes", json!({ "flat": true }));
        let node = nodes.as_array().unwrap().iter().find(|n| n["node-name"] == "d0").unwrap().clone();
        let all = node["dirty-bitmaps"].as_array().cloned().unwrap_or_default();
        all.iter().map(|b| b["name"].as_str().unwrap().to_owned()).collect()
    }

    fn count(&mut self, query: &str) -> usize {
        self.execute(query, json!({})).as_array().unwrap().len()
    }

    /// Ends it in order: what it keeps of bitmaps is in the image then.
    fn quit(mut self) -> Vec<u8> {
        self.execute("quit", json!({}));
        self.process.wait().unwrap();
        std::mem::take(&mut self.content)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn new_disk(bench: &Bench) -> String {
    let image = bench.arg("disk.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &image, &DISK_BYTES.to_string()]);
    image
}

#[test]
fn only_what_the_guest_wrote_is_read() {
    let bench = Bench::new("balanced");
    let image = new_disk(&bench);
    let mut vm = Machine::start(&bench, &image, vec![0; DISK_BYTES]);
    let source = format!("qmp:{}#d0", bench.arg("qmp.sock"));
    vm.write(0, 9 << 20, 1);
    let first = bench.json(&["backup", "vm/vda", &source]);
    assert_eq!((&first["source_format"], &first["scan"]["kind"]), (&"qemu".into(), &"whole".into()));
    assert_eq!(first["scan"]["why"], "there is no snapshot yet");
    assert!(bench.restored("vm/vda@latest") == vm.content);

    vm.write(5 << 20, 4096, 2);
    vm.write(30 << 20, 100_000 / 512 * 512, 3);
    // By the name of the device this time.
    let by_device = format!("qmp:{}#vd0", bench.arg("qmp.sock"));
    let second = bench.json(&["backup", "vm/vda", &by_device]);
    assert_eq!(second["scan"], json!({ "kind": "changed", "bytes": 2 * SEGMENT }), "{second}");
    assert!(bench.restored("vm/vda@latest") == vm.content);
    let third = bench.json(&["backup", "vm/vda", &source]);
    assert_eq!(third["scan"], json!({ "kind": "changed", "bytes": 0 }));
    let id = third["snapshot"].as_str().unwrap().to_owned();
    assert_eq!(vm.bitmaps().len(), 1, "one bitmap for the newest snapshot");
    assert!(vm.bitmaps()[0].ends_with(&id));
    assert_eq!((vm.count("query-jobs"), vm.count("query-block-exports")), (0, 0));

    // Bitmaps outlive the machine where its format keeps them.
    vm.write(40 << 20, 4096, 4);
    let content = vm.quit();
    let mut vm = Machine::start(&bench, &image, content);
    vm.write(41 << 20, 4096, 5);
    let fourth = bench.json(&["backup", "vm/vda", &source]);
    assert_eq!(fourth["scan"], json!({ "kind": "changed", "bytes": SEGMENT }));
    assert!(bench.restored("vm/vda@latest") == vm.content);

    // A snapshot that QEMU does not know of: its bitmap does not begin there.
    let raw = bench.file("raw", &vm.content);
    bench.backup("vm/vda", &raw);
    vm.write(1 << 20, 4096, 6);
    let after = bench.json(&["backup", "vm/vda", &source]);
    assert!(
        after["scan"]["why"].as_str().unwrap().contains("does not begin at the newest snapshot"),
        "{after}"
    );
    assert!(bench.restored("vm/vda@latest") == vm.content);

    bench.fails(&["backup", "vm/vda", &format!("{source}x")], FAILED, &["no block node or device \"d0x\""]);
    bench.fails(&["backup", "vm/vda", "qmp:/nowhere"], USAGE, &["qmp:SOCKET#NODE"]);
    bench.fails(&["backup", "vm/vda", "qmp:/nowhere#d0"], FAILED, &["/nowhere: cannot talk to QEMU"]);
}

/// Rounds of writing and backing up, in which the backup or QEMU is killed at some moment. Every snapshot there is in
/// the end must be what the disk was when its backup began.
#[test]
fn whoever_is_killed_no_backup_is_silently_incomplete() {
    let seed = from_env("SAPWOOD_TEST_SEED", 7);
    println!("SAPWOOD_TEST_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let bench = Bench::new("balanced");
    let image = new_disk(&bench);
    let mut vm = Machine::start(&bench, &image, vec![0; DISK_BYTES]);
    let source = format!("qmp:{}#d0", bench.arg("qmp.sock"));
    vm.write(0, 20 << 20, 1);
    let (mut killed, mut told) = (0, 0);
    for round in 0..from_env("SAPWOOD_ROUNDS", 24) {
        for _ in 0..rng.random_range(0..4) {
            vm.write_somewhere(&mut rng);
        }
        if round % 8 == 7 {
            // Without a word: what was not flushed is lost, and so are the bitmaps.
            drop(vm);
            qemu_img(&["convert", "-O", "raw", &image, &bench.arg("raw")]);
            vm = Machine::start(&bench, &image, std::fs::read(bench.path("raw")).unwrap());
        }
        let mut child = bench
            .command(&["--json", "backup", "vm/vda", &source])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if rng.random_bool(0.6) {
            std::thread::sleep(Duration::from_millis(rng.random_range(0..250)));
            if child.try_wait().unwrap().is_none() {
                child.kill().unwrap();
                killed += 1;
            }
            child.wait().unwrap();
        } else {
            let done = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success(), "round {round}: {said}");
            let report: Value = serde_json::from_slice(&done.stdout).unwrap();
            told += u64::from(report["scan"]["kind"] == "changed");
            assert!(bench.restored("vm/vda@latest") == vm.content, "round {round}: {report}");
        }
    }
    let last = bench.json(&["backup", "vm/vda", &source]);
    assert!(bench.restored("vm/vda@latest") == vm.content, "{last}");
    assert_eq!(vm.bitmaps().len(), 1);
    assert_eq!((vm.count("query-jobs"), vm.count("query-block-exports")), (0, 0));
    println!("{killed} backups killed, {told} went by a bitmap");
    assert!(told > 0 && killed > 0);
    bench.json(&["verify", "--data"]);
}
