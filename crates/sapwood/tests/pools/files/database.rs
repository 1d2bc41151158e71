//! A database that is used while the server is killed: what it was told to be durable is there, and it is whole.

use super::{mounted, stop};
use crate::common::{from_env, Bench};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Adds rows, changes and removes some, and prints the number of each transaction that is durable.
const WRITE: &str = r#"
import os, random, sqlite3, sys
path, mode, seed = sys.argv[1:]
dice = random.Random(seed)
db = sqlite3.connect(path, isolation_level=None)
db.execute('PRAGMA journal_mode=' + mode)
# With less, removing the journal need not be durable.
db.execute('PRAGMA synchronous=EXTRA')
db.execute('CREATE TABLE IF NOT EXISTS done (number INTEGER PRIMARY KEY)')
db.execute('CREATE TABLE IF NOT EXISTS rows (number INTEGER, part INTEGER, data BLOB, PRIMARY KEY (number, part))')
number = db.execute('SELECT COALESCE(MAX(number), 0) FROM done').fetchone()[0]
# Opened while it is certain that the file system is there: later the path may lead to what is below its place.
directory = os.open(os.path.dirname(path), os.O_RDONLY)
while True:
    number += 1
    db.execute('BEGIN')
    db.execute('INSERT INTO done VALUES (?)', (number,))
    for part in range(3):
        data = bytes([number % 256]) * dice.choice([10, 500, 9000])
        db.execute('INSERT INTO rows VALUES (?, ?, ?)', (number, part, data))
    # Each row of the one before becomes another, those of an older one go.
    longer = bytes([(number - 1) % 256]) * dice.choice([1, 1000, 20000])
    db.execute('UPDATE rows SET data = ? WHERE number = ?', (longer, number - 1))
    db.execute('DELETE FROM rows WHERE number = ?', (number - 40,))
    db.execute('COMMIT')
    # If the server goes before SQLite opens the directory to sync it, SQLite says that all is well.
    os.fsync(directory)
    print(number, flush=True)
"#;

/// Prints the last transaction, if all is as it should be.
const CHECK: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
assert db.execute('PRAGMA integrity_check').fetchall() == [('ok',)]
last, count = db.execute('SELECT COALESCE(MAX(number), 0), COUNT(*) FROM done').fetchone()
assert last == count, (last, count)
rows = db.execute('SELECT number, COUNT(*), MIN(part), MAX(part) FROM rows GROUP BY number').fetchall()
assert [row[0] for row in rows] == list(range(max(1, last - 39), last + 1)), rows
assert all(row[1:] == (3, 0, 2) for row in rows), rows
for number, data in db.execute('SELECT number, data FROM rows'):
    assert set(data) == {number % 256}, number
print(last)
"#;

fn check(database: &Path) -> u64 {
    let mut command = Command::new("python3");
    let output = command.args(["-c", CHECK]).arg(database).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

/// Kills the server at random while the database is written, in each way that it keeps a journal.
pub fn survives_kills() {
    let seed = from_env("SAPWOOD_SEED", 1);
    println!("SAPWOOD_SEED={seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let bench = Bench::bare();
    let modes = ["delete", "truncate", "wal"];
    let mut durable = [0; 3];
    for kill in 0..from_env("SAPWOOD_KILLS", 9) {
        let mode = kill as usize % modes.len();
        let mounted = mounted(&bench);
        let database = mounted.file(&format!("{}.db", modes[mode]));
        let mut command = Command::new("python3");
        command.args(["-c", WRITE]).arg(&database).args([modes[mode], &kill.to_string()]);
        let mut writer = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines().map_while(Result::ok);
        // From here on it has its files open.
        let first = lines.next().unwrap();
        let reading = std::thread::spawn(move || lines.last());
        std::thread::sleep(Duration::from_millis(dice.random_range(0..800)));
        mounted.signal(Signal::KILL);
        drop(mounted);
        // It ends by itself: its file system is gone.
        assert!(!writer.wait().unwrap().success());
        durable[mode] = reading.join().unwrap().unwrap_or(first).parse().unwrap();
        let mounted = self::mounted(&bench);
        for (mode, durable) in modes.iter().zip(&mut durable) {
            let database = mounted.file(&format!("{mode}.db"));
            if database.exists() {
                let found = check(&database);
                assert!(found >= *durable, "kill {kill}, {mode}: {found} of {durable} transactions");
                *durable = found;
            }
        }
        stop(mounted);
    }
    assert!(durable.iter().all(|durable| *durable > 3), "{durable:?} transactions");
    bench.done(&["pool", "check", &bench.arg("pool"), "--data"]);
}
