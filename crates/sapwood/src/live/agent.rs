//! The guest agent: freezes the guest's file systems while a point in time is taken.

use crate::terminal::streams::errln;
use anyhow::{anyhow, bail, Context as _, Result};
use serde_json::{json, Value};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// An agent that does not answer within this time counts as absent.
const ANSWER: Duration = Duration::from_secs(5);
/// A freeze flushes the guest's caches.
const FREEZE: Duration = Duration::from_secs(60);
/// Why a guest that was frozen does not count as such.
pub const THAWED_ITSELF: &str = "the guest had thawed its file systems by itself";

/// How often the thaw is tried while the guest does not answer.
const THAW_TRIES: usize = 3;
/// No answer is longer.
const LONGEST_ANSWER: usize = 64 << 10;

/// What else can be done where the agent does not do its part.
const WITHOUT: &str = "without --agent the snapshot is as after a power cut";

/// Whether we have frozen a guest: the program must not be ended now.
static FROZEN: AtomicBool = AtomicBool::new(false);

pub fn set_frozen(frozen: bool) {
    FROZEN.store(frozen, Ordering::SeqCst);
}

pub fn is_guest_frozen() -> bool {
    FROZEN.load(Ordering::SeqCst)
}

/// The outcome of an attempt to freeze.
pub enum Freeze {
    Frozen(Frozen),
    /// Nothing is frozen: why.
    Not(String),
}

/// A guest whose file systems are frozen. It is thawed when this is dropped.
pub struct Frozen {
    agent: Agent,
    thawed: bool,
}

/// Freezes the guest's file systems, if an agent answers.
pub fn freeze(path: &Path) -> Result<Freeze> {
    let mut agent = Agent::connect(path)?;
    if !agent.is_there() {
        return Ok(Freeze::Not("the guest agent does not answer".into()));
    }
    if agent.call("guest-fsfreeze-status", ANSWER)? == "frozen" {
        bail!(
            "{}: the guest's file systems are frozen already, by somebody else or by a backup that was killed; thaw them \
             (guest-fsfreeze-thaw, or `virsh domfsthaw`) and try again",
            path.display()
        );
    }
    set_frozen(true);
    let mut frozen = Frozen { agent, thawed: false };
    // Where it fails, some may be frozen and others not: dropping thaws.
    let count = frozen.agent.call("guest-fsfreeze-freeze", FREEZE)?;
    if count.as_u64() == Some(0) {
        frozen.thaw()?;
        return Ok(Freeze::Not("the guest agent has frozen no file system".into()));
    }
    Ok(Freeze::Frozen(frozen))
}

impl Frozen {
    /// Thaws it. Returns whether it was frozen until now: a guest may thaw by itself, as Windows does after some seconds.
    pub fn thaw(&mut self) -> Result<bool> {
        let mut last = None;
        for _ in 0..THAW_TRIES {
            match self.agent.call("guest-fsfreeze-thaw", FREEZE) {
                Ok(count) => {
                    self.thawed = true;
                    set_frozen(false);
                    // A second order finds nothing frozen where only the answer to the first was lost.
                    return Ok(last.is_some() || count.as_u64() != Some(0));
                }
                Err(e) => last = Some(e),
            }
            // A late answer would be mistaken for the answer to the next command.
            if let Ok(again) = Agent::connect(&self.agent.path) {
                self.agent = again;
                self.agent.is_there();
            }
        }
        self.thawed = true;
        set_frozen(false);
        let why = last.map_or_else(String::new, |e| format!(": {e:#}"));
        bail!("THE GUEST'S FILE SYSTEMS MAY STILL BE FROZEN: thaw them (guest-fsfreeze-thaw, or `virsh domfsthaw`){why}");
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if !self.thawed {
            if let Err(e) = self.thaw() {
                errln!("sapwood: {e:#}");
            }
        }
    }
}

/// A connection to an agent. Unlike the monitor it may die at any time, and what it sends may be the answer to another
/// program's command.
struct Agent {
    socket: UnixStream,
    path: PathBuf,
    /// What was read beyond the last line.
    rest: Vec<u8>,
}

impl Agent {
    fn connect(path: &Path) -> Result<Self> {
        let socket = UnixStream::connect(path)
            .with_context(|| format!("{}: cannot reach the guest agent ({WITHOUT})", path.display()))?;
        socket.set_write_timeout(Some(ANSWER))?;
        Ok(Agent { socket, path: path.into(), rest: Vec::new() })
    }

    /// Whether it answers, after any late answers to other programs.
    fn is_there(&mut self) -> bool {
        let mut random = [0; 4];
        let _ = getrandom::fill(&mut random);
        let token = u32::from_le_bytes(random);
        let deadline = Instant::now() + ANSWER;
        if self.send("guest-sync", json!({ "id": token })).is_err() {
            return false;
        }
        loop {
            match self.line(deadline) {
                Ok(line) => {
                    let answer = serde_json::from_slice::<Value>(&line);
                    if answer.is_ok_and(|a| a["return"] == token) {
                        return true;
                    }
                }
                Err(_) => return false,
            }
        }
    }

    fn call(&mut self, command: &str, within: Duration) -> Result<Value> {
        let silent = || format!("{}: the guest agent does not answer {command}", self.path.display());
        let silent = silent();
        let deadline = Instant::now() + within;
        self.send(command, json!({})).with_context(|| silent.clone())?;
        let line = self.line(deadline).context(silent)?;
        let path = self.path.display();
        let mut answer: Value = serde_json::from_slice(&line)
            .map_err(|_| anyhow!("{path}: the guest agent's answer to {command} is not JSON ({WITHOUT})"))?;
        match answer.get("error") {
            Some(e) => {
                let why = e["desc"].as_str().unwrap_or("failed");
                bail!("{path}: the guest agent cannot do {command}: {why} ({WITHOUT})")
            }
            None => Ok(answer["return"].take()),
        }
    }

    fn send(&mut self, command: &str, arguments: Value) -> std::io::Result<()> {
        let line = if arguments.as_object().is_some_and(serde_json::Map::is_empty) {
            format!("{}\n", json!({ "execute": command }))
        } else {
            format!("{}\n", json!({ "execute": command, "arguments": arguments }))
        };
        self.socket.write_all(line.as_bytes())
    }

    fn line(&mut self, deadline: Instant) -> std::io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let mut line: Vec<u8> = self.rest.drain(..=end).collect();
                line.retain(|b| *b != 0xff);
                return Ok(line);
            }
            if self.rest.len() > LONGEST_ANSWER {
                return Err(std::io::Error::new(ErrorKind::InvalidData, "its answer does not end"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left))?;
            let mut bytes = [0; 4096];
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.rest.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
                Err(e) => return Err(e),
            }
        }
    }
}
