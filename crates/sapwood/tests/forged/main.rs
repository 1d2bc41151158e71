//! Objects with valid checksums and amplifying contents: whatever stands in a vault, no command takes more than 256 MiB,
//! none panics, and none gives wrong bytes with exit 0 that `verify` calls right.
//!
//! A manifest of 6 KB took 5.2 GiB in `verify`, and a page of a recipe of 1.1 KB 1.8 GiB.
//!
//! Every case is run with a sample of the commands. `SAPWOOD_FORGED=all` runs all of them, `SAPWOOD_FORGED=<case>` those
//! of one case.
#![allow(clippy::unwrap_used)]

mod at_once;
mod cases;
#[path = "../common/mod.rs"]
mod common;
mod forge;
mod lost;

use cases::{Case, CASES};
use common::{from_env, line_of, Child, Ended, DAMAGED, DONE, FAILED, REFUSED, USAGE};
use forge::{Original, POLICIES};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{ChildStdout, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Duration;

/// What any command may take.
const MEMORY_BYTES: u64 = 256 << 20;
/// What the system gives it: a case that fails must not take the machine with it.
const ALLOWED_BYTES: u64 = 1536 << 20;
/// What is read of a command's output.
const OUTPUT_BYTES: u64 = 64 << 20;
/// Processor time of one command. Others run beside it, on the same cores.
const TIME: Duration = Duration::from_secs(120);

/// Commands, in the directory that the vault stands in.
const COMMANDS: [&[&str]; 41] = [
    &["snapshots"],
    &["--json", "snapshots"],
    &["stats"],
    &["stats", "vm/a"],
    &["stats", "--availability"],
    &["map", "vm/a"],
    &["--json", "verify"],
    &["verify", "--data"],
    &["verify", "vm/a@latest~1"],
    &["restore", "vm/a", "restored"],
    &["restore", "vm/a@latest~2", "-"],
    &["backup", "vm/a", "next"],
    &["backup", "vm/c", "next"],
    &["diff", "vm/a@latest~2", "vm/a"],
    &["files", "vm/a"],
    &["delete", "vm/a@latest~1"],
    &["gc"],
    &["compact"],
    &["reindex"],
    &["nbd", "vm/a", "--", "sh", "-c", "qemu-img convert -O raw \"$NBD_URI\" restored"],
    &[
        "mount",
        "mountpoint",
        "--",
        "sh",
        "-c",
        "find \"$SAPWOOD_MOUNT\"/vm/a -name '*.raw' | head -n 50 | xargs head -q -c 16M > all || exit 1",
    ],
    &["status"],
    &["copy", "--all", "--to", "other"],
    &["retain", "--all", "--last", "2"],
    &["popular", "status", "--scratch", "."],
    &["popular", "build", "--scratch", ".", "--fraction", "100"],
    &["repair", "--data"],
    &["hold", "vm/a"],
    &["tag", "vm/a", "k=v"],
    &["rename", "vm/a", "vm/z"],
    &["remove", "vm/a", "--yes"],
    &[
        "mount",
        "mountpoint",
        "--",
        "sh",
        "-c",
        "find \"$SAPWOOD_MOUNT\"/vm/a -type f | xargs -P 12 -n 1 head -q -c 16M > all || exit 1",
    ],
    &["release", "vm/a"],
    &["files", "vm/a", "get", "/x", "--to", "files"],
    &["files", "vm/a", "tar"],
    &["restore", "vm/a", "restored", "--live", "--", "true"],
    &["restore", "vm/a", "older", "--in-place"],
    &["restore", "vm", "--to", "machine"],
    &["nbd", "vm/a", "--scratch", "--", "sh", "-c", "qemu-img convert -O raw \"$NBD_URI\" restored"],
    &["repair", "--from-source", "next"],
    &["repair", "--from-vault", "other"],
];
/// The one that every case is run with, `verify --data`, and how often another one is.
const ALWAYS: usize = 7;
const OTHERS: f64 = 0.06;
/// A case with so many snapshots that some commands take minutes, though little memory.
const TOO_MANY: &str = "snapshots-of-many-disks";
/// The same with so large ones.
const TOO_LARGE: &str = "at-once-roots";
/// Reads all snapshots of a disk at once, which takes minutes where there are thousands: only for cases that it is made for.
const AT_ONCE: usize = 31;
/// Those that cases are made for.
const OF_CASES: [(&str, usize); 9] = [
    ("leaks", 16),
    (TOO_MANY, 0),
    (TOO_MANY, 1),
    ("equal-chunks", 25),
    ("lost-apart", 26),
    ("at-once-pages", AT_ONCE),
    ("at-once-chain", AT_ONCE),
    (TOO_LARGE, AT_ONCE),
    ("at-once-manifest", AT_ONCE),
];

#[test]
fn no_command_takes_more_than_256_mib() {
    let wanted = std::env::var("SAPWOOD_FORGED").unwrap_or_default();
    let seed = from_env("SAPWOOD_SEED", 13);
    println!("SAPWOOD_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut runs = Vec::new();
    for case in CASES.iter().chain(at_once::CASES).chain(lost::CASES) {
        if ["", "all", case.name].contains(&wanted.as_str()) {
            runs.push((case, commands_of(case, !wanted.is_empty(), &mut rng)));
        }
    }
    let originals: BTreeMap<&str, Original> = POLICIES.map(|p| (p, Original::new(p))).into_iter().collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            threads.spawn(|| {
                while let Some((case, commands)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = try_case(case, &originals[case.policy], commands);
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} runs went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The commands that a case is run with.
fn commands_of(case: &Case, all: bool, rng: &mut StdRng) -> Vec<&'static [&'static str]> {
    let is_one = |n: usize| {
        let is_sampled =
            n != AT_ONCE && ![TOO_MANY, TOO_LARGE].contains(&case.name) && (all || rng.random_bool(OTHERS));
        n == ALWAYS || OF_CASES.contains(&(case.name, n)) || is_sampled
    };
    let chosen: Vec<bool> = (0..COMMANDS.len()).map(is_one).collect();
    COMMANDS.into_iter().zip(chosen).filter(|(_, is)| *is).map(|(args, _)| args).collect()
}

/// What is wrong with how the commands end on what a case forges, each on a copy of its own.
fn try_case(case: &Case, original: &Original, commands: &[&[&str]]) -> Vec<String> {
    let forged = original.copy();
    let mut forging = Command::new(std::env::current_exe().unwrap());
    forging.args(["forging", "--exact", "--ignored", "--nocapture"]).env("SAPWOOD_FORGING", case.name);
    let done = forging.env("SAPWOOD_FORGING_IN", forged.dir()).output().unwrap();
    assert!(done.status.success(), "{}: {}", case.name, String::from_utf8_lossy(&done.stderr));
    let mut wrong = Vec::new();
    for args in commands {
        let run = forged.copy_for(args);
        let ended = run.run(args);
        wrong.extend(check(case, original, &run, args, &ended));
    }
    wrong
}

/// Forges one case in a process of its own: a process counts the peak memory of the one that started it as its own.
#[test]
#[ignore = "no test: the test of this file starts it as a process"]
fn forging() {
    let dir = std::env::var_os("SAPWOOD_FORGING_IN").unwrap();
    let name = std::env::var("SAPWOOD_FORGING").unwrap();
    let case = CASES.iter().chain(at_once::CASES).chain(lost::CASES).find(|c| c.name == name).unwrap();
    (case.forge)(&forge::Vault::at(dir.as_ref()));
}

/// What is wrong with how a command ended.
fn check(
    case: &Case,
    original: &Original,
    vault: &forge::Vault,
    args: &[&str],
    ended: &Ended,
) -> Vec<String> {
    let what = format!("{}: `{}`", case.name, line_of(args));
    println!("{what}: {:?}, {} MiB, {:.1?}", ended.code(), ended.peak_bytes >> 20, ended.cpu);
    let mut wrong = Vec::new();
    let mut say = |why: String| wrong.push(format!("{what}: {why}"));
    if ended.peak_bytes > MEMORY_BYTES {
        say(format!("{} MiB of memory", ended.peak_bytes >> 20));
    }
    if ended.cpu > TIME {
        say(format!("{:.0?} of processor time", ended.cpu));
    }
    match ended.code() {
        Some(DONE | FAILED | USAGE | DAMAGED | REFUSED | 130) if !ended.stderr.contains("panicked") => {}
        code => say(format!("ended with {code:?}: {}", &ended.stderr[..ended.stderr.len().min(300)])),
    }
    // One whose size was forged is another disk.
    let restored = |version: Vec<u8>| {
        let file = vault.dir().join("restored");
        std::fs::metadata(&file).unwrap().len() != version.len() as u64
            || std::fs::read(&file).unwrap() == version
    };
    let right = match (ended.code(), args[0]) {
        (Some(DONE), "restore") if args[2] == "-" => {
            let version = original.version(0);
            ended.stdout.len() != version.len() || ended.stdout == version
        }
        (Some(DONE), "restore" | "nbd") if vault.dir().join("restored").exists() => {
            restored(original.version(2))
        }
        _ => true,
    };
    if !right && vault.run(&["verify"]).code() != Some(DAMAGED) {
        say("exit 0 with wrong bytes, and `verify` finds nothing".into());
    }
    wrong
}

impl forge::Vault {
    /// A command on it, in a process of its own limits.
    fn command(&self, args: &[&str]) -> Command {
        let dir = self.dir();
        let inner = common::sapwood(&dir.join("vault"), args);
        let mut command = Command::new("prlimit");
        command.arg(format!("--data={ALLOWED_BYTES}")).arg(inner.get_program()).args(inner.get_args());
        command.env("SAPWOOD_STORE", dir.join("vault")).env("TMPDIR", dir).current_dir(dir);
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        // A disk whose size was forged has no end.
        let read = |out: &mut ChildStdout| {
            let mut bytes = Vec::new();
            let _ = out.take(OUTPUT_BYTES).read_to_end(&mut bytes);
            bytes
        };
        Child::start_with_reader(self.command(args), &line_of(args), read).wait()
    }
}
