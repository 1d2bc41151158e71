//! A QEMU without a guest: writes come from its monitor, or through a file that it shows the disk as. And a storage daemon
//! that has an image open.

use super::Bench;
use serde_json::{json, Value};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A QEMU with one disk, the node `d0` in the device `vd0`. `qmp.sock` beside the vault is the monitor for the program
/// under test. Dropped, it is killed.
pub struct Machine {
    process: std::process::Child,
    monitor: BufReader<UnixStream>,
    /// What the disk must hold.
    pub content: Vec<u8>,
}

impl Machine {
    /// Starts one with an image of a format.
    pub fn start(bench: &Bench, image: &str, format: &str, content: Vec<u8>) -> Self {
        Self::start_with(bench, image, format, content, &["-device", "virtio-blk-pci,drive=d0,id=vd0"])
    }

    /// Starts one whose disk is in no device.
    pub fn start_without_device(bench: &Bench, image: &str, format: &str) -> Self {
        Self::start_with(bench, image, format, Vec::new(), &[])
    }

    /// Starts one with arguments for its device.
    pub fn start_with(bench: &Bench, image: &str, format: &str, content: Vec<u8>, device: &[&str]) -> Self {
        let (ours, theirs) = (bench.path("test.sock"), bench.path("qmp.sock"));
        for socket in [&ours, &theirs] {
            let _ = std::fs::remove_file(socket);
        }
        let monitor = |path: &Path| format!("unix:{},server=on,wait=off", path.display());
        let process = Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg", "-M", "q35", "-m", "64", "-display", "none", "-nodefaults", "-S"])
            .args(["-qmp", &monitor(&ours), "-qmp", &monitor(&theirs)])
            .args(["-blockdev", &format!("driver=file,filename={image},node-name=f0")])
            .args(["-blockdev", &format!("driver={format},file=f0,node-name=d0")])
            .args(device)
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

    /// The number of its process.
    pub fn pid(&self) -> String {
        self.process.id().to_string()
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.monitor.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Carries a command out, which must succeed.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Value {
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

    /// Writes as the guest would.
    pub fn write(&mut self, at: usize, len: usize, byte: u8) {
        self.write_to("vd0", at, len, byte);
        self.content[at..at + len].fill(byte);
    }

    /// Writes to the disk of a device, which `content` does not tell of.
    pub fn write_to(&mut self, device: &str, at: usize, len: usize, byte: u8) {
        let io =
            format!("qemu-io -d /machine/peripheral/{device}/virtio-backend \"write -P {byte} {at} {len}\"");
        let said = self.execute("human-monitor-command", json!({ "command-line": io }));
        assert_eq!(said.as_str().unwrap_or_default().trim(), "", "{io}");
    }

    /// Shows a disk that is in no device as a file: writes to it go through a thread of their own, beside the monitor.
    pub fn shown_as(&mut self, file: &Path) -> File {
        std::fs::write(file, "").unwrap();
        let how = json!({
            "type": "fuse", "id": "w", "node-name": "d0", "mountpoint": file, "writable": true,
        });
        self.execute("block-export-add", how);
        File::options().read(true).write(true).open(file).unwrap()
    }

    /// Major and minor.
    pub fn version(&mut self) -> (u64, u64) {
        let version = self.execute("query-version", json!({}))["qemu"].clone();
        (version["major"].as_u64().unwrap(), version["minor"].as_u64().unwrap())
    }

    /// Names of the disk's bitmaps.
    pub fn bitmaps(&mut self) -> Vec<String> {
        let nodes = self.execute("query-named-block-nodes", json!({ "flat": true }));
        let node = nodes.as_array().unwrap().iter().find(|n| n["node-name"] == "d0").unwrap().clone();
        let all = node["dirty-bitmaps"].as_array().cloned().unwrap_or_default();
        all.iter().map(|b| b["name"].as_str().unwrap().to_owned()).collect()
    }

    /// What is left in it of backups: jobs, exports and nodes.
    pub fn leftovers(&mut self) -> Vec<String> {
        let lists =
            [("query-jobs", "id"), ("query-block-exports", "id"), ("query-named-block-nodes", "node-name")];
        let mut names = Vec::new();
        for (query, key) in lists {
            let all = self.execute(query, json!({}));
            names.extend(all.as_array().unwrap().iter().map(|e| e[key].as_str().unwrap().to_owned()));
        }
        names.retain(|name| name.starts_with("sapwood-"));
        names
    }

    /// Whether a backup has taken its point in time and not yet ended.
    pub fn keeps_a_point(&mut self) -> bool {
        let jobs = self.execute("query-jobs", json!({}));
        jobs.as_array().unwrap().iter().any(|j| j["id"].as_str().unwrap().starts_with("sapwood-"))
    }

    /// Ends it in order: what it keeps of bitmaps is in the image then. Returns what the disk must hold.
    pub fn quit(mut self) -> Vec<u8> {
        self.execute("quit", json!({}));
        self.process.wait().unwrap();
        std::mem::take(&mut self.content)
    }
}

impl Machine {
    /// Ends it without a word.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A `qemu-storage-daemon` that has an image open, as a running machine has it, until it is dropped. With `qmp.sock` beside
/// the vault as its monitor.
pub struct Holder(std::process::Child);

impl Holder {
    /// Opens an image; `node` says how, but for its name, `d0`.
    pub fn start(bench: &Bench, node: &Value, writable: bool) -> Self {
        let (ready, socket) = (bench.path("holder.pid"), bench.arg("holder.sock"));
        let _ = std::fs::remove_file(&ready);
        let mut node = node.clone();
        node["node-name"] = "d0".into();
        node["read-only"] = (!writable).into();
        // Not over NBD: there is one NBD server, which backups need.
        let export = json!({
            "type": "vhost-user-blk", "id": "e0", "node-name": "d0", "writable": writable,
            "addr": { "type": "unix", "path": socket },
        });
        let monitor = format!("socket,id=m,path={},server=on,wait=off", bench.arg("qmp.sock"));
        let mut process = Command::new("qemu-storage-daemon")
            .args(["--chardev", &monitor, "--monitor", "chardev=m", "--blockdev", &node.to_string()])
            .args(["--export", &export.to_string(), "--pidfile"])
            .arg(&ready)
            .spawn()
            .unwrap_or_else(|e| {
                panic!("qemu-storage-daemon is needed by this test (qemu-system-common): {e}")
            });
        let start = Instant::now();
        while !ready.exists() {
            let ended = process.try_wait().unwrap();
            assert!(ended.is_none(), "qemu-storage-daemon: {ended:?}");
            assert!(start.elapsed() < Duration::from_secs(60), "qemu-storage-daemon does not come up");
            std::thread::sleep(Duration::from_millis(5));
        }
        Holder(process)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
