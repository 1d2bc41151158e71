//! Copying files out.

mod target;

use super::damage::Damage;
use super::disk::{printable, Disk, NamedNode};
use crate::args::Args;
use crate::terminal::escape::escaped;
use crate::terminal::output::{print_json, size};
use crate::terminal::streams::{errln, note_done, outln, Out};
use anyhow::{Context, Result};
use filesystem::{FsError, NodeKind, Order, Step, Walk};
use rustix::io::Errno;
use serde_json::json;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use target::{Counts, LostAttributes, Target, STEP_BYTES};
use vault::VaultError;

/// Copies files and directories into the directory `to`; if `to` is `-`, one file to standard output.
pub fn run(args: &Args, mut disk: Disk, paths: &[OsString], to: Option<&Path>) -> Result<ExitCode> {
    let found = disk.find_all(paths)?;
    if to.is_some_and(|to| to.as_os_str() == "-") {
        return to_stdout(&found);
    }
    let to = to.unwrap_or(Path::new("."));
    std::fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    let (mut counts, mut damage, mut only_root) = (Counts::default(), Damage::default(), OnlyRoot::default());
    for f in &found {
        tree(f, to, &mut counts, &mut damage, &mut only_root)?;
    }
    only_root.tell(&disk.name);
    let Counts { files, bytes, left_out, incomplete, failed } = counts;
    note_done(format!("{} to {}: {files} files copied", disk.name, to.display()));
    if args.json {
        let (to, (disk, id)) = (to.to_string_lossy(), disk.snapshot());
        print_json(&json!({
            "disk": disk, "snapshot": id, "target": to, "file_count": files, "bytes": bytes,
            "left_out_count": left_out, "incomplete": incomplete, "damaged_count": damage.count,
        }));
    } else if !args.quiet {
        let some = |n: u64, what: &str| if n > 0 { format!(", {n} {what}") } else { String::new() };
        let left_out = some(left_out, "special files left out");
        let incomplete = some(incomplete, "without all of their owner, mode, times and extended attributes");
        let to = to.display();
        outln!("{} to {to}: {files} files, {}{left_out}{incomplete}", disk.name, size(bytes));
    }
    Ok(damage.exit_code(failed))
}

/// The extended attributes that were not copied because only root may set them. They are told once for all nodes: every file
/// of a guest with SELinux has one.
#[derive(Default)]
struct OnlyRoot {
    nodes: u64,
    names: BTreeSet<Vec<u8>>,
}

impl OnlyRoot {
    /// Guests may make any names.
    const NAMES_MAX: usize = 8;

    fn note(&mut self, names: &[Vec<u8>]) {
        self.nodes += u64::from(!names.is_empty());
        for name in names {
            if self.names.len() <= Self::NAMES_MAX {
                self.names.insert(name.clone());
            }
        }
    }

    fn tell(&self, disk: &str) {
        if self.nodes > 0 {
            let named = self.names.iter().take(Self::NAMES_MAX).map(|name| escaped(name));
            let more = (self.names.len() > Self::NAMES_MAX).then(|| "others".to_string());
            let names = named.chain(more).collect::<Vec<_>>().join(", ");
            let nodes = self.nodes;
            errln!(
                "sapwood: {disk}: {nodes} files without extended attributes that only root may set: {names}"
            );
        }
    }
}

/// Copies a node, with all below it, into a directory.
fn tree(
    found: &NamedNode,
    to: &Path,
    counts: &mut Counts,
    damage: &mut Damage,
    only_root: &mut OnlyRoot,
) -> Result<()> {
    let top = match found.name() {
        [] => found.volume.replace('/', "-").into_bytes(),
        name => name.to_vec(),
    };
    let mut target = Target::open(&*found.fs, to)?;
    let mut walk = Walk::new(&*found.fs, &top, found.id, Order::Number);
    while let Some(step) = walk.next() {
        let name = walk.path().rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec();
        let made = match step {
            Err(e) => Err(e.into()),
            Ok(Step::Left(id, node)) => target.leave(id, &node),
            Ok(Step::Node(_, node)) if node.kind == NodeKind::Directory => {
                target.enter(&name).map(|()| LostAttributes::default())
            }
            Ok(Step::Node(id, node)) => target.copy(&mut walk, &name, (id, &node), counts),
        };
        let in_guest = || printable(&[&found.path, &walk.path()[top.len()..]].concat());
        let target_path = || to.join(printable(walk.path())).display().to_string();
        match made {
            Ok(lost) => {
                counts.incomplete += u64::from(!lost.is_empty());
                only_root.note(&lost.only_root);
                if !lost.failed.is_empty() {
                    counts.failed += 1;
                    let (volume, failed) = (&found.volume, lost.failed.join("; "));
                    errln!("sapwood: {volume}:{}: its copy has lost: {failed}", in_guest());
                }
            }
            Err(e) if is_about_one_node(&e) => {
                counts.failed += 1;
                errln!("sapwood: {}:{}: making {}: {e}", found.volume, in_guest(), target_path());
                walk.pass_over();
            }
            Err(e) => damage
                .tell(e, &found.volume, in_guest)
                .with_context(|| format!("making {}", target_path()))?,
        }
    }
    Ok(())
}

/// Whether an error concerns this node only, because the target takes no such name, kind or size: the others are still
/// copied.
fn is_about_one_node(e: &anyhow::Error) -> bool {
    let of_io = || e.downcast_ref::<std::io::Error>().and_then(Errno::from_io_error);
    let errno = e.downcast_ref::<Errno>().copied().or_else(of_io);
    errno.is_some_and(|e| {
        [Errno::EXIST, Errno::NAMETOOLONG, Errno::INVAL, Errno::ILSEQ, Errno::PERM, Errno::FBIG].contains(&e)
    })
}

fn to_stdout(found: &[NamedNode]) -> Result<ExitCode> {
    let [one] = found else {
        return Err(VaultError::Usage("only one file can go to standard output; give --to DIR".into()).into());
    };
    let node = one.fs.node(one.id)?;
    if node.kind != NodeKind::File {
        let what = format!("{} is not a file; give --to DIR, or take it as a tar", printable(&one.path));
        return Err(VaultError::Usage(what).into());
    }
    let (mut buf, mut at) = (vec![0; STEP_BYTES], 0);
    while at < node.size {
        let got = one.fs.read_at(one.id, at, &mut buf)?;
        if got == 0 {
            return Err(FsError::corrupt(one.fs.kind(), "the file ends before its size").into());
        }
        Out.write_all(&buf[..got])?;
        at += got as u64;
    }
    Ok(ExitCode::SUCCESS)
}
