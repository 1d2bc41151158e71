//! Copying files out.

mod target;

use super::{printable, Damage, Disk, Found};
use crate::args::Args;
use crate::output::{print_json, size};
use anyhow::{Context, Result};
use filesystem::{FsError, NodeKind, Order, Step, Walk};
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use target::Target;
use vault::VaultError;

/// What is read at a time.
const STEP_BYTES: usize = 1 << 20;

/// Copies what was named into the directory `to`; with `-` one file to standard output.
pub fn run(args: &Args, mut disk: Disk, paths: &[OsString], to: Option<&Path>) -> Result<ExitCode> {
    let found = disk.find_all(paths)?;
    if to.is_some_and(|to| to.as_os_str() == "-") {
        return to_stdout(&found);
    }
    let to = to.unwrap_or(Path::new("."));
    std::fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    let (mut counts, mut damage) = (Counts::default(), Damage::default());
    for f in &found {
        tree(f, to, &mut counts, &mut damage)?;
    }
    let Counts { files, bytes, left_out, incomplete } = counts;
    if args.json {
        let to = to.to_string_lossy();
        print_json(&json!({
            "snapshot": disk.name, "target": to, "files": files, "bytes": bytes,
            "left_out": left_out, "incomplete": incomplete, "damaged": damage.count,
        }));
    } else if !args.quiet {
        let some = |n: u64, what: &str| if n > 0 { format!(", {n} {what}") } else { String::new() };
        let left_out = some(left_out, "special files left out");
        let incomplete = some(incomplete, "without all of their owner, mode, times and extended attributes");
        let to = to.display();
        println!("{} to {to}: {files} files, {}{left_out}{incomplete}", disk.name, size(bytes));
    }
    Ok(damage.exit_code())
}

/// What was copied.
#[derive(Clone, Copy, Default)]
struct Counts {
    files: u64,
    bytes: u64,
    /// Devices, which only root can make, and sockets.
    left_out: u64,
    /// Nodes with attributes that could not be set.
    incomplete: u64,
}

/// Copies a node and what is below it into a directory.
fn tree(found: &Found, to: &Path, counts: &mut Counts, damage: &mut Damage) -> Result<()> {
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
            Ok(Step::Left(id, node)) => target.leave(id, &node, counts),
            Ok(Step::Node(_, node)) if node.kind == NodeKind::Directory => target.enter(&name),
            Ok(Step::Node(id, node)) => target.copy(&mut walk, &name, (id, &node), counts),
        };
        let told = made.or_else(|e| {
            damage.tell(e, &found.volume, || printable(&[&found.path, &walk.path()[top.len()..]].concat()))
        });
        told.with_context(|| format!("making {}", to.join(printable(walk.path())).display()))?;
    }
    Ok(())
}

fn to_stdout(found: &[Found]) -> Result<ExitCode> {
    let [one] = found else {
        return Err(VaultError::Usage("only one file can go to standard output; give --to DIR".into()).into());
    };
    let node = one.fs.node(one.id)?;
    if node.kind != NodeKind::File {
        let what = format!("{} is no file; give --to DIR, or take it as a tar", printable(&one.path));
        return Err(VaultError::Usage(what).into());
    }
    let mut out = std::io::stdout().lock();
    let (mut buf, mut at) = (vec![0; STEP_BYTES], 0);
    while at < node.size {
        let got = one.fs.read_at(one.id, at, &mut buf)?;
        if got == 0 {
            return Err(FsError::corrupt(one.fs.kind(), "the file ends before its size").into());
        }
        out.write_all(&buf[..got]).context("writing to standard output")?;
        at += got as u64;
    }
    out.flush().context("writing to standard output")?;
    Ok(ExitCode::SUCCESS)
}
