//! A relay between a program under test and QEMU's monitor, which kills the program at a chosen command.

use super::Bench;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anybody may be silent.
const PATIENCE: Duration = Duration::from_secs(60);

/// When the program is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    Never,
    /// When it has sent so many commands (1: at the first one), the last of which QEMU does not get.
    Before(usize),
    /// The same, when QEMU has carried the last one out.
    After(usize),
}

/// What became of the program.
pub struct Relayed {
    pub output: Output,
    /// The commands that it sent.
    pub commands: Vec<String>,
    pub was_killed: bool,
}

/// Runs the program with the monitor `relay.sock`, which leads to `qmp.sock`, both beside the vault.
pub fn run(bench: &Bench, args: &[&str], kill: Kill) -> Relayed {
    let path = bench.path("relay.sock");
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut child = bench.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut commands = Vec::new();
    let mut was_killed = false;
    if let Some(client) = accept(&listener, &mut child) {
        let qemu = UnixStream::connect(bench.path("qmp.sock")).unwrap();
        was_killed = pass_on(client, qemu, kill, &mut child, &mut commands);
    }
    Relayed { output: child.wait_with_output().unwrap(), commands, was_killed }
}

/// None if the program ends without a connection.
fn accept(listener: &UnixListener, child: &mut Child) -> Option<UnixStream> {
    let start = Instant::now();
    loop {
        if let Ok((client, _)) = listener.accept() {
            client.set_nonblocking(false).unwrap();
            return Some(client);
        }
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        assert!(start.elapsed() < PATIENCE, "the program does not connect");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Passes commands and answers on, one after the other. Returns whether the program was killed.
fn pass_on(
    mut client: UnixStream,
    mut qemu: UnixStream,
    kill: Kill,
    child: &mut Child,
    commands: &mut Vec<String>,
) -> bool {
    for side in [&client, &qemu] {
        side.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    let mut requests = BufReader::new(client.try_clone().unwrap());
    let mut answers = BufReader::new(qemu.try_clone().unwrap());
    let mut answer = |is_last: &dyn Fn(&Value) -> bool| loop {
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        // Who is killed meanwhile hears nothing.
        let _ = client.write_all(line.as_bytes());
        let said: Value = serde_json::from_str(&line).unwrap();
        if is_last(&said) {
            return;
        }
    };
    answer(&|said| said.get("QMP").is_some());
    let mut line = String::new();
    while requests.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let request: Value = serde_json::from_str(&line).unwrap();
        commands.push(request["execute"].as_str().unwrap().to_owned());
        let is_here = |at| at == commands.len();
        if matches!(kill, Kill::Before(at) if is_here(at)) {
            child.kill().unwrap();
            return true;
        }
        qemu.write_all(line.as_bytes()).unwrap();
        if matches!(kill, Kill::After(at) if is_here(at)) {
            child.kill().unwrap();
            answer(&|said| said.get("id").is_some());
            return true;
        }
        answer(&|said| said.get("id").is_some());
        line.clear();
    }
    false
}
