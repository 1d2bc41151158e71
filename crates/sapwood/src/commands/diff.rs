//! `sapwood diff`

use super::files::{list, printable, Disk};
use super::{open, split};
use crate::args::{Args, Diff};
use crate::output::{print_json, size};
use anyhow::Result;
use filesystem::{Change, Comparison, Disk as _, FileSystem, NodeId, Part, Place};
use serde_json::{json, Value};
use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;

pub fn run(args: &Args, a: &Diff) -> Result<ExitCode> {
    let vault = open(args)?;
    let mut ranges = Vec::new();
    let (old, new) = vault.diff(split(&a.old), split(&a.new), &mut |range| ranges.push(range))?;
    let bytes: u64 = ranges.iter().map(|r| r.end - r.start).sum();
    let mut report = json!({
        "old": format!("{}@{}", split(&a.old).0, old.id),
        "new": format!("{}@{}", split(&a.new).0, new.id),
        "bytes": bytes,
        "ranges": ranges.iter().map(|r| json!([r.start, r.end - r.start])).collect::<Vec<_>>(),
    });
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    if !args.json {
        writeln!(out, "{} in {} ranges", size(bytes), ranges.len())?;
        if a.ranges {
            ranges.iter().try_for_each(|r| writeln!(out, "{} {}", r.start, r.end - r.start))?;
        }
    }
    if !a.ranges {
        let (mut old, mut new) = (Disk::open(args, &a.old, a.cache)?, Disk::open(args, &a.new, a.cache)?);
        let mut volumes = Vec::new();
        for name in shared_volumes(&old, &new) {
            let (was, is) = match (old.file_system(&name), new.file_system(&name)) {
                (Ok(was), Ok(is)) => (was, is),
                // No file system, or none that is known: the ranges say what there is to say.
                _ => continue,
            };
            let part = new.volumes.iter().find(|v| v.name == name).map(|v| v.part()).transpose()?;
            let changes = Changes { part, ranges: &ranges };
            let comparison = Comparison { old: &*was, new: &*is, may_differ: &|id| changes.touch(&*is, id) };
            let mut files = Vec::new();
            comparison.run(&mut |path, change, node| {
                let mut entry = json!({ "change": name_of(change), "kind": list::kind_name(node.kind), "size": node.size });
                list::put_bytes(&mut entry, "path", path);
                if args.json {
                    files.push(entry);
                } else {
                    // Where standard output is gone, flushing it says so.
                    drop(writeln!(out, "{} {name}:{}", letter(change), printable(path)));
                }
            })?;
            volumes.push(json!({ "name": name, "kind": is.kind(), "files": files }));
        }
        report["volumes"] = Value::Array(volumes);
    }
    out.flush()?;
    drop(out);
    if args.json {
        print_json(&report);
    }
    Ok(ExitCode::SUCCESS)
}

/// The volumes that both have.
fn shared_volumes(old: &Disk, new: &Disk) -> Vec<String> {
    let names = new.volumes.iter().map(|v| v.name.clone());
    names.filter(|name| old.volumes.iter().any(|v| v.name == *name)).collect()
}

/// What of a disk was written, as a volume on it sees it.
struct Changes<'a> {
    part: Option<Part>,
    ranges: &'a [Range<u64>],
}

impl Changes<'_> {
    /// Whether any of it is within a file.
    fn touch(&self, fs: &dyn FileSystem, id: NodeId) -> filesystem::Result<bool> {
        let Some(part) = &self.part else { return Ok(true) };
        Ok(fs.extents(id)?.iter().any(|extent| match extent.place {
            Place::Zeros => false,
            Place::Encoded => true,
            Place::Volume(at) => {
                let pieces = part.locate(at, extent.len.min(part.size()));
                pieces.iter().any(|p| self.has(p.offset..p.offset + p.len))
            }
        }))
    }

    fn has(&self, range: Range<u64>) -> bool {
        let first = self.ranges.partition_point(|r| r.end <= range.start);
        self.ranges.get(first).is_some_and(|r| r.start < range.end)
    }
}

fn letter(change: Change) -> char {
    match change {
        Change::Added => 'A',
        Change::Removed => 'D',
        Change::Content => 'M',
        Change::Attributes => 'a',
    }
}

fn name_of(change: Change) -> &'static str {
    match change {
        Change::Added => "added",
        Change::Removed => "removed",
        Change::Content => "content",
        Change::Attributes => "attributes",
    }
}
