//! QEMU's monitor: one JSON object a line, a command at a time.

use super::PATIENCE;
use anyhow::{bail, Context as _, Result};
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No answer is longer.
const LONGEST_LINE: u64 = 64 << 20;

/// A connection to a monitor.
pub struct Qmp {
    lines: BufReader<UnixStream>,
    path: PathBuf,
    /// User and group of QEMU.
    owner: Option<(u32, u32)>,
}

impl Qmp {
    pub fn connect(path: &Path) -> Result<Self> {
        let cannot = || format!("{}: cannot talk to QEMU", path.display());
        let socket = UnixStream::connect(path).with_context(cannot)?;
        socket.set_read_timeout(Some(PATIENCE)).with_context(cannot)?;
        socket.set_write_timeout(Some(PATIENCE)).with_context(cannot)?;
        let owner = rustix::net::sockopt::socket_peercred(&socket).ok();
        let owner = owner.map(|c| (c.uid.as_raw(), c.gid.as_raw()));
        let mut qmp = Qmp { lines: BufReader::new(socket), path: path.into(), owner };
        if qmp.line()?.get("QMP").is_none() {
            bail!("{}: is no monitor of QEMU (QMP)", path.display());
        }
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Carries a command out. Events that come meanwhile are passed over.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.lines.get_mut().write_all(line.as_bytes()).with_context(|| self.cannot(command))?;
        loop {
            let mut answer = self.line().with_context(|| self.cannot(command))?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                bail!("QEMU: {command}: {}", error["desc"].as_str().unwrap_or("failed"));
            }
        }
    }

    /// Waits until nothing in a list has a certain value any more.
    pub fn wait_until_absent(&mut self, query: &str, key: &str, value: &str) -> Result<()> {
        let start = Instant::now();
        while self.execute(query, json!({}))?.as_array().into_iter().flatten().any(|e| e[key] == value) {
            if start.elapsed() > PATIENCE {
                bail!("QEMU does not end {value}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Lets QEMU use a file or a directory of ours.
    pub fn admit(&self, path: &Path) -> Result<()> {
        let Some((user, group)) = self.owner else { return Ok(()) };
        if rustix::process::geteuid().is_root() && user != 0 {
            chown(path, Some(user), Some(group))
                .with_context(|| format!("{}: cannot give it to QEMU", path.display()))?;
        }
        Ok(())
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = Vec::new();
        (&mut self.lines).take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            bail!("QEMU has gone");
        }
        serde_json::from_slice(&line).context("QEMU said what is no JSON")
    }

    fn cannot(&self, command: &str) -> String {
        format!("{}: {command}", self.path.display())
    }
}
