//! The definition of a machine, stored beside its disks as a small disk `VM/definition`: it has snapshots, and is
//! verified and restored like a disk.

use super::qmp::Qmp;
use anyhow::{ensure, Context as _, Result};
use image::Stream;
use serde_json::json;
use std::io::Cursor;
use std::path::Path;

/// A text: the domain's XML of libvirt, or the command line of a QEMU, as JSON.
pub struct Definition(Vec<u8>);

impl Definition {
    /// The disk's part of the name `vm/disk`.
    pub const DISK: &str = "definition";

    pub fn new(text: String) -> Self {
        Definition(text.into_bytes())
    }

    /// As a source to back up.
    pub fn source(self) -> Stream<Cursor<Vec<u8>>> {
        Stream::new(Cursor::new(self.0), Self::DISK)
    }

    /// The command line of the QEMU behind a monitor.
    pub fn of_qemu(qmp: &Qmp) -> Result<Self> {
        let pid = qmp.process().context("the system does not tell which process QEMU is")?;
        let path = format!("/proc/{pid}/cmdline");
        let line = std::fs::read(&path).with_context(|| format!("{path}: cannot read"))?;
        let words: Vec<_> = line.split(|b| *b == 0).map(String::from_utf8_lossy).collect();
        // A monitor may be passed on by another program, from another host.
        let program = words.first().and_then(|w| Path::new(&**w).file_name()?.to_str());
        let is_qemu = program.is_some_and(|name| name.contains("qemu") || name.contains("kvm"));
        ensure!(is_qemu, "what answers at the monitor is not QEMU itself but process {pid}");
        let words = words.strip_suffix(&["".into()]).unwrap_or(&words);
        let (major, minor) = qmp.version;
        let text = serde_json::to_string_pretty(&json!({
            "qemu": format!("{major}.{minor}"),
            "command": words,
        }))?;
        Ok(Self::new(text + "\n"))
    }
}
