//! Objects with valid checksums and amplifying contents: whatever stands in a vault, no command takes more than 256 MiB,
//! none panics, and none gives wrong bytes with exit 0 that `verify` calls right.
//!
//! A manifest of 6 KB took 5.2 GiB in `verify`, and a page of a recipe of 1.1 KB 1.8 GiB.
//!
//! Every case is run with a sample of the commands. `SAPWOOD_FORGED=all` runs all of them, `SAPWOOD_FORGED=page,owner` all on
//! the cases whose names begin so; `SAPWOOD_FORGED_COMMANDS=mount,nbd` runs these only.
#![allow(clippy::unwrap_used)]

mod cases;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod forge;
mod kinds;
mod parts;

use cases::Case;
use commands::Line;
use common::{from_env, line_of, Child, Ended, DAMAGED, DONE, FAILED, REFUSED, USAGE};
use forge::{Original, POLICIES};
use kinds::Kinds;
use rand::rngs::StdRng;
use rand::SeedableRng;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
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

#[test]
fn no_command_takes_more_than_256_mib() {
    let wanted = std::env::var("SAPWOOD_FORGED").unwrap_or_default();
    let seed = from_env("SAPWOOD_SEED", 13);
    println!("SAPWOOD_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut runs = Vec::new();
    for case in cases::all() {
        let commands = commands::of_case(case, !wanted.is_empty(), &mut rng);
        let is_wanted =
            wanted == "all" || wanted.split(',').any(|beginning| case.name.starts_with(beginning));
        if is_wanted {
            runs.push((case, commands));
        }
    }
    let originals: BTreeMap<&str, Original> = POLICIES.map(|p| (p, Original::new(p))).into_iter().collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let kinds = Mutex::new(Kinds::default());
    std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            threads.spawn(|| {
                while let Some((case, commands)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = try_case(case, &originals[case.policy], commands, &kinds);
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} runs went wrong:\n{}", wrong.len(), wrong.join("\n"));
    if ["", "all"].contains(&wanted.as_str()) {
        kinds.into_inner().unwrap().check_all_are_there();
    }
}

/// Nothing is forged: what the commands do then is what they are meant to do on forged objects.
#[test]
fn every_command_works_on_a_whole_vault() {
    let vault = Original::new("balanced").copy();
    let mut wrong = Vec::new();
    for args in commands::ALL {
        let ended = vault.copy_for(args).run(args);
        let wanted = match args[0] {
            // The disk has no file system, and the vault is there.
            "files" if ["get", "tar"].iter().any(|what| args.contains(what)) => FAILED,
            "init" if args.len() == 1 => REFUSED,
            _ => DONE,
        };
        if ended.code() != Some(wanted) {
            wrong.push(ended.to_string());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong with how the commands end on what a case forges, each on a copy of its own.
fn try_case(case: &Case, original: &Original, commands: &[Line], kinds: &Mutex<Kinds>) -> Vec<String> {
    let forged = original.copy();
    let mut forging = Command::new(std::env::current_exe().unwrap());
    forging.args(["forging", "--exact", "--ignored", "--nocapture"]).env("SAPWOOD_FORGING", case.name);
    let done = forging.env("SAPWOOD_FORGING_IN", forged.dir()).output().unwrap();
    assert!(done.status.success(), "{}: {}", case.name, String::from_utf8_lossy(&done.stderr));
    let found = Kinds::of_change(original.store(), &forged.dir().join("vault"));
    assert!(!found.is_empty(), "{} forges nothing", case.name);
    kinds.lock().unwrap().add(found);
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
    let case = cases::all().find(|c| c.name == name).unwrap();
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
    let is_right = |file: &Path, version: Vec<u8>| {
        std::fs::metadata(file).unwrap().len() != version.len() as u64
            || std::fs::read(file).unwrap() == version
    };
    let restored = vault.dir().join("restored");
    let right = match (ended.code(), args[0]) {
        (Some(DONE), "restore") if args[2] == "-" => {
            let version = original.version(0);
            ended.stdout.len() != version.len() || ended.stdout == version
        }
        (Some(DONE), "restore" | "nbd") if restored.exists() => is_right(&restored, original.version(2)),
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
        command.arg(format!("--data={ALLOWED_BYTES}"));
        if args[0] == "sh" {
            command.args(args).env("SAPWOOD", inner.get_program());
        } else {
            command.arg(inner.get_program()).args(inner.get_args());
        }
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
