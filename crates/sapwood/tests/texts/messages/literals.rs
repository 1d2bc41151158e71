//! Messages as they are in the sources: those of the program are on the page, and those that the page has without a command
//! are in the sources.

use super::Scene;
use crate::common::files_below;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Messages that the test cannot cause on every machine: when, what, exit code.
const OTHERS: &[(&str, &str, &str)] = &[
    (
        "an archive would go to a terminal (`files DISK tar`)",
        "a tar archive is not text: send it to a file or a pipe",
        "2",
    ),
    (
        "an archive would go to a terminal (`mzip -o -`)",
        "an archive is not written to a terminal; -o names a file",
        "2",
    ),
    (
        "a migrated archive would go to a terminal (`mtar migrate`)",
        "a migrated archive is not written to a terminal; name a file",
        "2",
    ),
    (
        "`mzip` without a file, at a terminal",
        "no file is named, and standard input is a terminal",
        "2",
    ),
    (
        "`mzip --rm` of a device or a pipe",
        "…: --rm removes regular files only",
        "2",
    ),
    (
        "`mzip --rm` of a file with other names",
        "…; --rm would not free its space",
        "4",
    ),
    (
        "`mzip -o /dev/stdout`, while standard output is a file",
        "…: leads to a file that is open already; - is standard output",
        "4",
    ),
    (
        "`mzip --rm`, and its input was changed, or renamed, while the archive was made durable",
        "…: was changed meanwhile, and is not removed",
        "4",
    ),
    (
        "root's restore meets damage in the vault of another user",
        "the damage could not be recorded, backups may refer to it again: …: the vault is another user's",
        "3",
    ),
    (
        "No was answered to the question of `delete`",
        "nothing was deleted; --yes deletes without a question",
        "4",
    ),
    (
        "the store's file system has no locks",
        "…: cannot be used as a store…: the file system has no working locks (…); use a local one",
        "4",
    ),
    (
        "jobs without `state_dir` and `HOME`",
        "where is the state of jobs kept? Set state_dir or HOME",
        "2",
    ),
    (
        "a long list, and TMPDIR is full",
        "…: cannot keep what is to be printed: …; TMPDIR names another directory",
        "1",
    ),
    (
        "QEMU before 9.0, and a disk with an iothread",
        "the disk … has an iothread, and QEMU … dies, with the guest, when a client leaves the export of such a disk; use QEMU 9.0 or later, or take the iothread from the disk",
        "1",
    ),
    (
        "a second backup of a QEMU",
        "another backup of this virtual machine is running: …; try again when it is done",
        "4",
    ),
    (
        "a backup by another program",
        "libvirt domain …: another program's backup of it is running; wait for it, or end it (virsh domjobabort)",
        "4",
    ),
    (
        "a backup that was killed in another container",
        "libvirt domain …: has a backup job with the socket …, which is not here; if its backup has died, end it (virsh domjobabort)",
        "4",
    ),
    (
        "a domain that is paused, saved or starting",
        "libvirt domain …: is neither running nor shut off (…); wait until it is",
        "1",
    ),
    (
        "a domain with a CD drive only",
        "libvirt domain …: has no disk that the guest may write to",
        "1",
    ),
    (
        "a QEMU with a CD drive only",
        "QEMU has no disk that the guest may write to",
        "1",
    ),
    (
        "a device without an id",
        "QEMU has a disk in a device without an id (…); name one disk (qmp:SOCKET#NODE)",
        "1",
    ),
    (
        "the guest's disk was replaced meanwhile",
        "nothing uses the block node … as its disk any more since the backup began: …",
        "4",
    ),
    (
        "the guest overwrites more than there is room for",
        "…: what the guest overwrites during the backup has filled it; name a directory with more room (--scratch)",
        "1 or 4",
    ),
    (
        "there is little room before the backup",
        "…: only … MiB are free for what the guest overwrites during the backup; name a directory with more room (--scratch)",
        "1",
    ),
    (
        "a long `--scratch`",
        "…: is too long for the path of a socket; name a shorter directory (--scratch)",
        "1",
    ),
    (
        "a socket of another program",
        "…: is not a monitor of QEMU (QMP)",
        "1",
    ),
    (
        "QEMU ends meanwhile",
        "QEMU has gone",
        "1",
    ),
    (
        "QEMU, or its host, hangs",
        "…: QEMU's monitor has stopped answering",
        "1",
    ),
    (
        "libvirt hangs",
        "virsh …: libvirt does not answer within … s",
        "1",
    ),
    (
        "libvirt's guest agent did not thaw",
        "THE GUEST'S FILE SYSTEMS MAY STILL BE FROZEN: thaw them (virsh domfsthaw)…",
        "1",
    ),
    (
        "another program uses QEMU's bitmap",
        "QEMU's bitmap … of … is in use; end the job or the export that uses it",
        "4",
    ),
    (
        "a machine that was off is started",
        "…: was started while it was backed up; run it again",
        "4",
    ),
    (
        "a machine that is off, with a disk in Ceph",
        "…: the machine is off, and the image of this disk is not a file or device of this host…: start the machine and back it up then",
        "4",
    ),
    (
        "a machine with a disk `definition`",
        "…: this name is reserved for the machine's definition; back that disk up by itself",
        "4",
    ),
    (
        "`restore VM --to`, and a disk was backed up at another time",
        "…: of … there is no snapshot of …; name another instant, or restore disk by disk",
        "1",
    ),
    (
        "`restore VM --to`, and `VM/definition` is something else",
        "…: is not the definition of a machine",
        "4",
    ),
    (
        "`restore --live` is interrupted",
        "stopped; run it again to go on",
        "1",
    ),
    (
        "somebody made the target of `restore --live` meanwhile",
        "…: exists now; the disk is in …",
        "4",
    ),
    (
        "a file on two volumes of a disk",
        "…: … is on several volumes; name one: …",
        "1",
    ),
    ("a volume that the disk does not have", "…there is no such volume; it has …", "1"),
    (
        "another command has the pool",
        "…: is in use by …; try again when that has ended: only a pool that `sapwood pool serve` serves may be used by several commands",
        "4",
    ),
    (
        "the server of the pool is stopped",
        "…: its server does not answer at its control socket",
        "1",
    ),
    (
        "`volume create --from --wait`, and the vault cannot be read",
        "… is not filled: …",
        "1",
    ),
    (
        "`volume create --from --wait` is interrupted",
        "stopped; … is filled on while the pool is served",
        "1",
    ),
    (
        "`volume create --from` with a `--size` below that of the disk",
        "…: has … bytes; a volume of … is too small for it",
        "4",
    ),
    (
        "a machine wants to go on with `pool serve --vhost` after that was killed",
        "volume …: the pool was not closed, so what the guest had not flushed is lost: restart the machine",
        "the server goes on",
    ),
    (
        "a second machine at a socket of `pool serve --vhost`",
        "volume …: it is in use by another machine: a second one was refused",
        "the server goes on",
    ),
    (
        "a guest of `pool serve --vhost` breaks the rules",
        "volume …: queue … is stopped, the guest broke the protocol: …",
        "the server goes on",
    ),
    (
        "somebody else made the directory of the control sockets",
        "…: not a directory that only this user can write",
        "1",
    ),
    (
        "`status` or a job, after a verification",
        "…: the verification of … found … and …; `sapwood verify …` tells more",
        "2 (`status`)",
    ),
    (
        "a job that verifies",
        "verification found …, in snapshots of …; `…` tells more",
        "3",
    ),
    (
        "a job that copies what is damaged",
        "skipped because of damage: …",
        "3",
    ),
    (
        "a job that recompresses a disk that `nbd` or `mount` reads meanwhile",
        "recompression stopped: …: locked by …; wait until it has ended",
        "1",
    ),
    (
        "a job that recompresses what is damaged",
        "… damaged containers; `… --data` lists them",
        "1",
    ),
    (
        "`status`, of a disk without snapshots",
        "…: has no snapshot; `sapwood remove …` takes its name away",
        "1 (`status`)",
    ),
    (
        "`status`, of a snapshot in the future",
        "…: snapshot … is of …, in the future, and stays the latest until then; if that time is wrong, delete …",
        "1 (`status`)",
    ),
];

/// Messages of the program that are not on the page, since no user can cause them, or what they say is not for users: each
/// by a part of it.
const NOT_ON_THE_PAGE: &[&str] = &[
    "QEMU answered a command that was not sent",
    "QEMU does not end",
    "virsh version does not tell",
    "the job that keeps the point in time is",
    "QEMU has ended the job that kept",
    "QEMU could not keep the point in time",
    "libvirt has ended the job that kept",
    "its backup job does not end",
    "what answers at the monitor is not QEMU itself",
    "QEMU has no bitmap since snapshot",
    "a running backup",
    "somebody moved it meanwhile",
    "the file ends before its size",
    "cannot be asked whether it is still off",
    "libvirt's definition of it is not kept",
];

/// What a message of the program stands behind.
const MARKS: [&str; 10] = [
    "bail!(",
    "anyhow!(",
    "ensure!(",
    "Usage(",
    "Refused(",
    "Invalid(",
    "refused(",
    "usage(",
    "let why =",
    "let what =",
];
/// Shorter parts say nothing.
const PART_CHARS_MIN: usize = 12;

/// Writes the section of the messages that the test cannot cause.
pub fn others(s: &mut Scene) {
    s.text += "\n## Not run by the test\n\n| when | says | code |\n| --- | --- | --- |\n";
    for (when, says, code) in OTHERS {
        writeln!(s.text, "| {when} | {says} | {code} |").unwrap();
    }
}

/// Compares the page with the sources.
pub fn check(page: &str) {
    let page = page.replace("\\|", "|").replace("\\<", "<");
    let of_program = literals_below(&crates().join("sapwood/src"), &MARKS);
    assert!(of_program.len() > 80, "only {} messages were found", of_program.len());
    let is_listed = |text: &str| NOT_ON_THE_PAGE.iter().any(|part| text.contains(part));
    let missing: Vec<&String> =
        of_program.iter().filter(|text| !is_on(&page, text) && !is_listed(text)).collect();
    assert!(missing.is_empty(), "not in docs/messages.md: {missing:#?}");
    for part in NOT_ON_THE_PAGE {
        let text = of_program.iter().find(|text| text.contains(part));
        let text = text.unwrap_or_else(|| panic!("no message of the program has {part:?}"));
        assert!(!is_on(&page, text), "{text:?} is on the page: it need not be listed");
    }
    let all: String = files_of(&crates()).iter().flat_map(|file| literals(&source(file), &["\""])).collect();
    for (_, says, _) in OTHERS {
        for part in says.split('…').map(trimmed).filter(|part| part.len() >= PART_CHARS_MIN) {
            assert!(all.contains(part), "no message in the sources has {part:?}");
        }
    }
}

/// A part of a message without what joins it to others.
fn trimmed(part: &str) -> &str {
    part.trim_matches([' ', ':', ';'])
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The source files below a directory, without tests.
fn files_of(dir: &Path) -> Vec<PathBuf> {
    let mut files = files_below(dir);
    files.retain(|f| {
        let text = f.to_str().unwrap();
        text.ends_with(".rs") && text.contains("/src/") && !text.contains("/tests")
    });
    files
}

/// A file without comments, and without the tests at its end.
fn source(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

fn literals_below(dir: &Path, marks: &[&str]) -> Vec<String> {
    files_of(dir).iter().flat_map(|file| literals(&source(file), marks)).collect()
}

/// The first string behind each mark, in the same statement.
fn literals(code: &str, marks: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    for mark in marks {
        let begins = code.match_indices(mark).map(|(at, _)| if *mark == "\"" { at } else { at + mark.len() });
        for at in begins {
            let statement = &code[at..];
            let Some((before, text)) = statement.split_once('"') else { continue };
            if !before.contains(';') {
                all.push(string(text));
            }
        }
    }
    all
}

/// A string up to its end, as the compiler sees it.
fn string(text: &str) -> String {
    let (mut out, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next() {
                Some('\n') => {
                    let rest = chars.as_str().trim_start();
                    chars = rest.chars();
                }
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => break,
            },
            other => out.push(other),
        }
    }
    out
}

/// Whether the page has the longest part of a message between its values. One without such a part is of values only.
fn is_on(page: &str, message: &str) -> bool {
    let parts = message.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest).trim());
    match parts.max_by_key(|part| part.len()) {
        Some(longest) if longest.len() >= PART_CHARS_MIN => page.contains(longest),
        _ => true,
    }
}
