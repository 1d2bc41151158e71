//! The guest agent: freezes the guest's file systems while a point in time is taken.

use anyhow::{bail, Context as _, Result};
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// An agent that does not answer within this is not there.
const ANSWER: Duration = Duration::from_secs(5);
/// A freeze flushes the guest's caches.
const FREEZE: Duration = Duration::from_secs(60);

/// A guest whose file systems are frozen.
pub struct Frozen {
    lines: BufReader<UnixStream>,
}

/// Freezes the guest's file systems; `None` where no agent answers.
pub fn freeze(path: &Path) -> Result<Option<Frozen>> {
    let socket = UnixStream::connect(path)
        .with_context(|| format!("{}: cannot reach the guest agent", path.display()))?;
    socket.set_read_timeout(Some(ANSWER))?;
    let mut agent = Frozen { lines: BufReader::new(socket) };
    let token = std::process::id();
    if agent.call("guest-sync", json!({ "id": token })).ok() != Some(json!(token)) {
        return Ok(None);
    }
    agent.lines.get_ref().set_read_timeout(Some(FREEZE))?;
    match agent.call("guest-fsfreeze-freeze", json!({})) {
        Ok(_) => Ok(Some(agent)),
        Err(e) => {
            // Some may be frozen and others not.
            let _ = agent.call("guest-fsfreeze-thaw", json!({}));
            Err(e)
        }
    }
}

impl Frozen {
    pub fn thaw(mut self) -> Result<()> {
        self.call("guest-fsfreeze-thaw", json!({})).map(drop)
    }

    fn call(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.lines.get_mut().write_all(line.as_bytes())?;
        let mut answer = String::new();
        self.lines
            .read_line(&mut answer)
            .with_context(|| format!("the guest agent does not answer {command}"))?;
        let answer: Value = serde_json::from_str(answer.trim_start_matches('\u{ff}'))
            .context("the guest agent said what is no JSON")?;
        match answer.get("error") {
            Some(e) => bail!("the guest agent: {command}: {}", e["desc"].as_str().unwrap_or("failed")),
            None => Ok(answer["return"].clone()),
        }
    }
}
