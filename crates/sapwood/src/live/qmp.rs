//! A client of QEMU's monitor: one JSON object per line, one command at a time.

use anyhow::{anyhow, bail, Context as _, Result};
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long QEMU may take for a command that should be quick.
const PATIENCE: Duration = Duration::from_secs(60);
/// No answer is longer.
const LONGEST_LINE: u64 = 64 << 20;
/// A monitor that does not greet within this time serves another client.
const GREETING: Duration = Duration::from_secs(10);

/// A connection to a monitor.
pub struct Qmp {
    lines: BufReader<UnixStream>,
    path: PathBuf,
    /// Process, user and group at the other end.
    peer: Option<(i32, u32, u32)>,
    /// Major and minor.
    pub version: (u64, u64),
    /// The number of the last command.
    sent: u64,
    /// A command had no answer: its outcome is unknown, and the next answer may belong to it.
    lost: bool,
}

impl Qmp {
    pub fn connect(path: &Path) -> Result<Self> {
        let cannot = || {
            format!(
                "{}: cannot talk to QEMU; give the socket that a running machine's -qmp names",
                path.display()
            )
        };
        let socket = UnixStream::connect(path).with_context(cannot)?;
        socket.set_read_timeout(Some(GREETING)).with_context(cannot)?;
        socket.set_write_timeout(Some(PATIENCE)).with_context(cannot)?;
        let peer = rustix::net::sockopt::socket_peercred(&socket).ok();
        let peer = peer.map(|c| (c.pid.as_raw_nonzero().get(), c.uid.as_raw(), c.gid.as_raw()));
        let mut qmp = Qmp {
            lines: BufReader::new(socket),
            path: path.into(),
            peer,
            version: (0, 0),
            sent: 0,
            lost: false,
        };
        // Why is a time-out, which says less.
        let silent = |_| {
            anyhow!(
                "{}: QEMU's monitor does not answer; it serves one client at a time: is another one connected?",
                path.display()
            )
        };
        let greeting = qmp.line().map_err(silent)?;
        if greeting.get("QMP").is_none() {
            bail!("{}: is not a monitor of QEMU (QMP)", path.display());
        }
        let version = &greeting["QMP"]["version"]["qemu"];
        qmp.version = (version["major"].as_u64().unwrap_or(0), version["minor"].as_u64().unwrap_or(0));
        qmp.lines.get_ref().set_read_timeout(Some(PATIENCE)).with_context(cannot)?;
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Carries a command out. Events that come meanwhile are passed over.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        if self.lost {
            bail!("{}: QEMU's monitor has stopped answering", self.path.display());
        }
        self.sent += 1;
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments, "id": self.sent }));
        let answer =
            self.exchange(line.as_bytes()).with_context(|| format!("{}: {command}", self.path.display()));
        self.lost = answer.is_err();
        let mut answer = answer?;
        match answer.get("error") {
            Some(error) => bail!("QEMU: {command}: {}", error["desc"].as_str().unwrap_or("failed")),
            None => Ok(answer["return"].take()),
        }
    }

    fn exchange(&mut self, line: &[u8]) -> Result<Value> {
        self.lines.get_mut().write_all(line)?;
        loop {
            let answer = self.line()?;
            if answer["id"] == self.sent {
                return Ok(answer);
            }
            if answer.get("event").is_none() {
                bail!("QEMU answered a command that was not sent: {answer}");
            }
        }
    }

    /// Waits until nothing in a list has a certain value any more.
    pub fn wait_until_absent(&mut self, query: &str, key: &str, value: &str) -> Result<()> {
        let start = Instant::now();
        while self.has(query, key, value)? {
            if start.elapsed() > PATIENCE {
                bail!("QEMU does not end {value}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Whether something in a list has a certain value.
    pub fn has(&mut self, query: &str, key: &str, value: &str) -> Result<bool> {
        Ok(self.execute(query, json!({}))?.as_array().into_iter().flatten().any(|e| e[key] == value))
    }

    /// User and group of QEMU, where it is not ours.
    pub fn other_owner(&self) -> Option<(u32, u32)> {
        let owner = self.peer.map(|(_, user, group)| (user, group));
        owner.filter(|(user, _)| rustix::process::geteuid().is_root() && *user != 0)
    }

    /// The process at the other end.
    pub fn process(&self) -> Option<i32> {
        self.peer.map(|(process, ..)| process)
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = Vec::new();
        (&mut self.lines).take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            bail!("QEMU has gone");
        }
        serde_json::from_slice(&line).context("QEMU's answer is not JSON")
    }
}
