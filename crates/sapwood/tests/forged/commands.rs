//! The commands that are run on what is forged.

use crate::cases::Case;
use crate::common::commands;
use rand::rngs::StdRng;
use rand::RngExt;

/// Its arguments, in the directory that the vault stands in; or those of a shell that runs `$SAPWOOD`.
pub type Line = &'static [&'static str];

/// What every case is run with.
const VERIFY: Line = &["verify", "--data"];
/// How often a case is run with another one.
const OTHERS: f64 = 0.05;
/// Reads everything that a mount shows, several snapshots at once.
const READ_AT_ONCE: Line = &[
    "mount",
    "mountpoint",
    "--",
    "sh",
    "-c",
    "find \"$SAPWOOD_MOUNT\"/vm -type f | sort | head -n 50 | xargs -P 12 -n 1 head -q -c 16M > all || exit 1",
];

/// The same with the beginnings of all files: little of what was read stays in memory for the next read.
const READ_BEGINNINGS_AT_ONCE: Line = &[
    "mount",
    "mountpoint",
    "--",
    "sh",
    "-c",
    "find \"$SAPWOOD_MOUNT\"/vm -type f | sort | head -n 50 | xargs -P 12 -n 1 head -q -c 512K > all || exit 1",
];

/// All of them.
pub const ALL: &[Line] = &[
    VERIFY,
    &["--json", "verify"],
    &["verify", "vm/a@latest~1"],
    &["snapshots"],
    &["--json", "snapshots"],
    &["stats"],
    &["stats", "vm/a"],
    &["stats", "--availability"],
    &["map", "vm/a"],
    &["status"],
    &["diff", "vm/a@latest~2", "vm/a"],
    &["restore", "vm/a", "restored"],
    &["restore", "vm/a@latest~2", "-"],
    &["restore", "vm/a", "older", "--in-place"],
    &["restore", "vm", "--to", "machine"],
    // All of it is restored after the command has ended.
    &["restore", "vm/a", "restored", "--live", "--", "true"],
    &["restore", "vm/a", "restored", "--live", "--", "sh", "-c", "qemu-img convert -O raw \"$NBD_URI\" read"],
    &["files", "vm/a"],
    &["files", "vm/a", "list", "-r"],
    &["files", "vm/a", "get", "/x", "--to", "files"],
    &["files", "vm/a", "tar"],
    &["nbd", "vm/a", "--", "sh", "-c", "qemu-img convert -O raw \"$NBD_URI\" restored"],
    &["nbd", "vm/a", "--scratch", "--", "sh", "-c", "qemu-img convert -O raw \"$NBD_URI\" restored"],
    &[
        "nbd",
        "vm/a",
        "--overlay",
        "overlay",
        "--",
        "sh",
        "-c",
        // Parts of blocks are written too: the rest of them is read.
        "qemu-io -f raw -c 'write 512 1M' -c 'write 5M 700' \"$NBD_URI\" && qemu-img convert -O raw \"$NBD_URI\" read",
    ],
    &[
        "mount",
        "mountpoint",
        "--",
        "sh",
        "-c",
        "find \"$SAPWOOD_MOUNT\"/vm/a -name '*.raw' | head -n 50 | xargs head -q -c 16M > all || exit 1",
    ],
    READ_AT_ONCE,
    READ_BEGINNINGS_AT_ONCE,
    &["backup", "vm/a", "next"],
    &["backup", "vm/c", "next"],
    &["run", "--config", "jobs.toml"],
    &["copy", "--all", "--to", "other"],
    &["delete", "vm/a@latest~1"],
    &["retain", "--all", "--last", "2"],
    &["gc"],
    &["gc", "--all"],
    &["compact", "--recompress", "5"],
    &["reindex"],
    &["popular", "status", "--scratch", "."],
    &["popular", "build", "--scratch", ".", "--fraction", "100"],
    &["repair", "--data"],
    &["repair", "--from-source", "next"],
    &["repair", "--from-vault", "other"],
    &["hold", "vm/a"],
    &["release", "vm/a"],
    &["tag", "vm/a", "k=v"],
    &["rename", "vm/a", "vm/z"],
    &["remove", "vm/a", "--yes"],
    &["init"],
    &["init", "--one-host"],
    &["volume", "--pool", "a.pool", "create", "v", "--from", "vm/a", "--wait"],
    &[
        "sh",
        "-c",
        "\"$SAPWOOD\" volume --pool a.pool create v --from vm/a && \"$SAPWOOD\" volume --pool a.pool delete v",
    ],
    &[
        "sh",
        "-c",
        "\"$SAPWOOD\" volume --pool a.pool create v --from vm/a || exit
        \"$SAPWOOD\" pool serve a.pool --nbd socket --fill-rate 1M &
        while [ ! -e socket ] && kill -0 $!; do sleep 0.05; done
        qemu-img convert -O raw nbd+unix:///v?socket=socket read
        kill $!; wait $!",
    ],
];

/// Those that cases are made for.
const OF_CASES: &[(&str, Line)] = &[
    ("leaks", &["gc"]),
    ("snapshots-of-many-disks", &["snapshots"]),
    ("snapshots-of-many-disks", &["--json", "snapshots"]),
    ("equal-chunks", &["popular", "build", "--scratch", ".", "--fraction", "100"]),
    ("lost-apart", &["repair", "--data"]),
    ("at-once-pages", READ_AT_ONCE),
    ("at-once-chain", READ_AT_ONCE),
    ("at-once-roots", READ_AT_ONCE),
    ("at-once-manifest", READ_AT_ONCE),
    ("at-once-snapshot-pages", READ_AT_ONCE),
    ("at-once-everything", READ_BEGINNINGS_AT_ONCE),
    ("at-once-everything", &["restore", "vm/a@latest~2", "-"]),
];

/// Cases that are run with their own commands only: with others a command takes minutes, though little memory.
const OF_FEW: [&str; 3] = [
    // 163,840 snapshots, of none of which there is a recipe: each is looked for.
    "snapshots-of-many-disks",
    // Disks of two pebibytes: who reads all of one asks for each page.
    "at-once-roots",
    // A million parts of 256 bytes in groups of 65,536 chunks: who reads all of the disk finds the place of each.
    "at-once-everything",
];

/// Commands with these words are left out of these cases.
const LEFT_OUT: [(&str, &str); 1] = [
    // Takes minutes, though little memory: each group of 16 MiB is decompressed up to 32 times.
    ("table-small-chunks", "repair"),
];

/// Commands that read no vault.
const OF_NO_VAULT: [&str; 15] = [
    "config check",
    "pool create",
    "pool check",
    "pool stats",
    "volume list",
    "volume resize",
    "volume share",
    "volume snapshot",
    "volume clone",
    "mtar migrate",
    "mtar restore",
    "mzip",
    "munzip",
    "study",
    "completions",
];

/// Those that a case is run with: all of them, or a sample; of these only the ones that `SAPWOOD_FORGED_COMMANDS` names
/// (`mount,nbd`).
pub fn of_case(case: &Case, all: bool, rng: &mut StdRng) -> Vec<Line> {
    let named = std::env::var("SAPWOOD_FORGED_COMMANDS").ok();
    let is_one = |line: &Line| {
        let is_sampled = rng.random_bool(OTHERS);
        let is_named = named.as_ref().is_none_or(|named| named.split(',').any(|word| word == line[0]));
        let is_sampled = (all || is_sampled) && !OF_FEW.contains(&case.name);
        let is_left_out = LEFT_OUT.iter().any(|(name, word)| *name == case.name && line.contains(word));
        is_named && !is_left_out && (is_sampled || *line == VERIFY || OF_CASES.contains(&(case.name, *line)))
    };
    ALL.iter().copied().filter(is_one).collect()
}

/// A command that is added later is run, too.
#[test]
fn every_command_that_reads_a_vault_is_among_them() {
    for command in commands::commands() {
        let is_run = ALL.iter().any(|line| commands::is_of(line, &command));
        let is_of_no_vault = OF_NO_VAULT.contains(&command.as_str());
        assert!(is_run != is_of_no_vault, "{command}: {is_run}");
    }
}
