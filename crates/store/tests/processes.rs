//! Several processes on one local store. The test binary starts itself with a role.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use store::{LocalStore, ObjectStore, StoreError};

const ROLE: &str = "STORE_TEST_ROLE";
const DIR: &str = "STORE_TEST_DIR";
const SWAPS: u64 = 500;

/// What the other processes run.
#[test]
#[ignore = "no test: the tests of this file start it as a process"]
fn role() {
    let role = std::env::var(ROLE).unwrap();
    let store = LocalStore::open(std::env::var(DIR).unwrap()).unwrap();
    match role.as_str() {
        "hold" => {
            let mut hold = store.lease("sessions/other", b"first").unwrap();
            hold.replace(b"second").unwrap();
            let mut writer = store.writer("never/finished").unwrap();
            writer.append(&vec![1; 5 << 20]).unwrap();
            println!("ready");
            wait_for_the_end();
        }
        "swap" => (0..SWAPS).for_each(|_| increment(&store)),
        "put" => {
            for i in 0..200 {
                match store.put(&format!("raced/{i}"), &[&std::process::id().to_le_bytes()]) {
                    Ok(()) => println!("won {i}"),
                    Err(StoreError::AlreadyExists { .. }) => {}
                    Err(e) => panic!("{e}"),
                }
            }
        }
        other => panic!("no role {other}"),
    }
}

fn wait_for_the_end() {
    // The parent's death closes the pipe, so no test leaves a process behind.
    let mut byte = [0];
    let _ = std::io::stdin().read(&mut byte);
}

fn increment(store: &LocalStore) {
    loop {
        let (found, tag) = store.load("counter").unwrap().unwrap();
        let next = u64::from_le_bytes(found.try_into().unwrap()) + 1;
        match store.swap("counter", Some(tag), &next.to_le_bytes()) {
            Ok(_) => return,
            Err(StoreError::Conflict { .. }) => {}
            Err(e) => panic!("{e}"),
        }
    }
}

fn start(role: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["role", "--exact", "--ignored", "--nocapture"])
        .env(ROLE, role)
        .env(DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_killed_holder_holds_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::create(dir.path()).unwrap();
    let mut child = start("hold", dir.path());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(|line| line.ok()).any(|line| line.contains("ready")));
    assert!(store.is_leased("sessions/other").unwrap());
    assert!(matches!(store.lease("sessions/other", b"me").map(drop), Err(StoreError::AlreadyExists { .. })));
    assert_eq!(store.sweep().unwrap(), 0, "its unfinished object is being written");
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!store.is_leased("sessions/other").unwrap());
    assert_eq!(store.read("sessions/other", 100).unwrap(), b"second");
    assert!(matches!(store.len("never/finished"), Err(StoreError::NotFound { .. })));
    assert!(store.sweep().unwrap() >= 4 << 20);
    assert_eq!(std::fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0);
    assert!(store.delete("sessions/other").unwrap());
    assert!(store.lease("sessions/other", b"me").unwrap().is_valid());
}

#[test]
fn no_update_of_two_processes_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::create(dir.path()).unwrap();
    store.swap("counter", None, &0_u64.to_le_bytes()).unwrap();
    let children = [start("swap", dir.path()), start("swap", dir.path())];
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(store.load("counter").unwrap().unwrap().0, (2 * SWAPS).to_le_bytes());
}

#[test]
fn each_name_is_won_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::create(dir.path()).unwrap();
    let children = [start("put", dir.path()), start("put", dir.path())];
    let mut wins = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        wins += String::from_utf8(output.stdout).unwrap().matches("won ").count();
    }
    assert_eq!(wins, 200);
    for i in 0..200 {
        assert_eq!(store.len(&format!("raced/{i}")).unwrap(), 4);
    }
}
