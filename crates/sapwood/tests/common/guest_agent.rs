//! A guest agent that freezes nothing, but remembers what it was told.

use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// How it behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Well,
    /// Says first what was meant for somebody else.
    Stale,
    Silent,
    NothingToFreeze,
    CannotFreeze,
    FrozenAlready,
    /// Does not answer the first order to thaw.
    DeafToTheFirstThaw,
    /// Does not answer any.
    DeafToEachThaw,
    /// Has thawed before it was told to.
    ThawsItself,
    /// Answers with what is no JSON.
    Rubbish,
}

/// Listens on a socket for as long as the test lives. Returns the orders that it got.
pub fn agent(path: &Path, manner: Manner) -> Arc<Mutex<Vec<String>>> {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).unwrap();
    let orders = Arc::new(Mutex::new(Vec::new()));
    let seen = orders.clone();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            // Until whoever asks hangs up.
            let _ = serve(socket, manner, &seen);
        }
    });
    orders
}

fn serve(socket: UnixStream, manner: Manner, orders: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut lines = BufReader::new(socket);
    if manner == Manner::Stale {
        lines.get_mut().write_all(b"{\"return\": 77}\n{\"retu")?;
        lines.get_mut().write_all(b"rn\": {}}\n")?;
    }
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let Ok(said) = serde_json::from_str::<Value>(&line) else { continue };
        let command = said["execute"].as_str().unwrap_or_default().to_owned();
        let nth = {
            let mut orders = orders.lock().unwrap();
            orders.push(command.trim_start_matches("guest-").to_owned());
            orders.iter().filter(|o| **o == "fsfreeze-thaw").count()
        };
        let answer = match command.as_str() {
            _ if manner == Manner::Silent => continue,
            "guest-sync" => json!({ "return": said["arguments"]["id"] }),
            "guest-fsfreeze-status" if manner == Manner::FrozenAlready => json!({ "return": "frozen" }),
            "guest-fsfreeze-status" if manner == Manner::Rubbish => {
                lines.get_mut().write_all(b"?\n")?;
                continue;
            }
            "guest-fsfreeze-status" => json!({ "return": "thawed" }),
            "guest-fsfreeze-freeze" => match manner {
                Manner::CannotFreeze => {
                    json!({ "error": { "class": "GenericError", "desc": "a hook said no" } })
                }
                Manner::NothingToFreeze => json!({ "return": 0 }),
                _ => json!({ "return": 2 }),
            },
            "guest-fsfreeze-thaw" if manner == Manner::DeafToTheFirstThaw && nth == 1 => return Ok(()),
            "guest-fsfreeze-thaw" if manner == Manner::DeafToEachThaw => return Ok(()),
            "guest-fsfreeze-thaw" if manner == Manner::ThawsItself => json!({ "return": 0 }),
            "guest-fsfreeze-thaw" => json!({ "return": 2 }),
            _ => json!({ "error": { "class": "CommandNotFound", "desc": "?" } }),
        };
        lines.get_mut().write_all(format!("{answer}\n").as_bytes())?;
    }
}
