//! `sapwood diff`

use super::files::damage::Damage;
use super::files::disk::{printable, Disk};
use super::files::list;
use super::files::ranges::RangesOnVolume;
use crate::args::{Args, Diff};
use crate::commands::names::{open_to_read, split};
use crate::devices::read_cache;
use crate::terminal::output::{print_json, size};
use crate::terminal::streams::Out;
use anyhow::Result;
use filesystem::{Change, Comparison, Disk as _, FileSystem, FsError, Part};
use serde_json::{json, Value};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;

pub fn run(args: &Args, a: &Diff) -> Result<ExitCode> {
    let vault = open_to_read(args)?;
    let mut ranges = Vec::new();
    let (old, new) = vault.diff(split(&a.old), split(&a.new), &mut |range| ranges.push(range))?;
    let bytes: u64 = ranges.iter().map(|r| r.end - r.start).sum();
    // By id: "latest" may be another snapshot when the disks are opened, if a backup ends in between.
    let named = |disk: &str, id| format!("{}@{id}", split(disk).0);
    let (old, new) = (named(&a.old, old.id), named(&a.new, new.id));
    let mut report = json!({
        "old": old,
        "new": new,
        "bytes": bytes,
        "ranges": ranges.iter().map(|r| json!([r.start, r.end - r.start])).collect::<Vec<_>>(),
    });
    // What has no files is refused before anything is printed.
    let cache = read_cache(a.cache);
    let open = |snapshot: &String| Disk::open(args, snapshot, &cache);
    let disks = if a.ranges { None } else { Some((open(&old)?, open(&new)?)) };
    let mut out = BufWriter::new(Out);
    if !args.json {
        let plural = if ranges.len() == 1 { "" } else { "s" };
        writeln!(out, "{} in {} range{plural}", size(bytes), ranges.len())?;
        if a.ranges {
            ranges.iter().try_for_each(|r| writeln!(out, "{} {}", r.start, r.end - r.start))?;
        }
    }
    let mut damage = Damage::default();
    if let Some((old, new)) = disks {
        let lines = (!args.json).then_some(&mut out as &mut dyn Write);
        let files = Files { old, new, ranges: &ranges, lines, not_compared: Vec::new(), damage: &mut damage };
        (report["volumes"], report["not_compared"]) = files.compare()?;
    }
    out.flush()?;
    drop(out);
    if args.json {
        print_json(&report);
    }
    Ok(damage.exit_code(0))
}

/// The files of two disks.
struct Files<'a> {
    old: Disk,
    new: Disk,
    /// Where the disks differ.
    ranges: &'a [Range<u64>],
    /// Gets a line for each changed file. If `None`, the files are in the returned JSON.
    lines: Option<&'a mut dyn Write>,
    /// Volumes with changes of which only the ranges were compared.
    not_compared: Vec<String>,
    damage: &'a mut Damage,
}

impl Files<'_> {
    /// What changed on each volume that both disks have, and the volumes whose files were not compared.
    fn compare(mut self) -> Result<(Value, Value)> {
        let mut volumes = Vec::new();
        for name in shared_volumes(&self.old, &self.new) {
            let part = same_part(&self.old, &self.new, &name);
            if (RangesOnVolume { part, ranges: self.ranges }).are_elsewhere() {
                volumes.extend(self.unchanged_volume(&name)?);
                continue;
            }
            let was = known(&mut self.old, &name);
            match was.and_then(|was| Ok(was.zip(known(&mut self.new, &name)?))) {
                Ok(Some((was, is))) => volumes.push(self.compare_volume(&name, &*was, &*is)?),
                Ok(None) => self.not_compared(&name, "no file system that can be read on both disks"),
                Err(e) => self.damage.tell(e, &name, || "/".into())?,
            }
        }
        for name in volumes_of_one(&self.old, &self.new) {
            self.not_compared(&name, "one of the disks alone has this volume");
        }
        Ok((Value::Array(volumes), json!(self.not_compared)))
    }

    /// Says that the files of a volume were not compared.
    fn not_compared(&mut self, name: &str, why: &str) {
        if let Some(out) = &mut self.lines {
            drop(writeln!(out, "? {name}: files were not compared: {why}"));
        }
        self.not_compared.push(name.to_owned());
    }

    /// A volume without a changed range has no changed files. This holds also for what cannot be read in it because it
    /// is damaged or encrypted.
    fn unchanged_volume(&mut self, name: &str) -> Result<Option<Value>> {
        match self.new.file_system(name) {
            Ok(is) => Ok(Some(json!({ "name": name, "kind": is.kind(), "files": [] }))),
            Err(e @ FsError::Read(_)) => Err(e.into()),
            Err(_) => Ok(None),
        }
    }

    fn compare_volume(&mut self, name: &str, was: &dyn FileSystem, is: &dyn FileSystem) -> Result<Value> {
        let changes = RangesOnVolume { part: same_part(&self.old, &self.new, name), ranges: self.ranges };
        let comparison = Comparison { old: was, new: is, may_differ: &|id| changes.touch(is, id) };
        let mut files = Vec::new();
        comparison.run(|path, difference| {
            let (change, node) = match difference {
                Ok(told) => told,
                Err(e) => return self.damage.tell(e.into(), name, || printable(path)),
            };
            match &mut self.lines {
                // If standard output is closed, the flush at the end reports it.
                Some(out) => drop(writeln!(out, "{} {name}:{}", letter(change), printable(path))),
                None => {
                    let kind = list::kind_name(node.kind);
                    let mut entry = json!({ "change": name_of(change), "kind": kind, "size": node.size });
                    list::put_bytes(&mut entry, "path", path);
                    files.push(entry);
                }
            }
            Ok(())
        })?;
        Ok(json!({ "name": name, "kind": is.kind(), "files": files }))
    }
}

/// The names of the volumes that both disks have.
fn shared_volumes(old: &Disk, new: &Disk) -> Vec<String> {
    let names = new.volumes.iter().map(|v| v.name.clone());
    names.filter(|name| old.volumes.iter().any(|v| v.name == *name)).collect()
}

/// The names of the volumes that only one of the disks has.
fn volumes_of_one(old: &Disk, new: &Disk) -> Vec<String> {
    let lacks = |disk: &Disk, name: &String| disk.volumes.iter().all(|v| v.name != *name);
    let names = |disk: &Disk| disk.volumes.iter().map(|v| v.name.clone()).collect::<Vec<_>>();
    let gone = names(old).into_iter().filter(|name| lacks(new, name));
    gone.chain(names(new).into_iter().filter(|name| lacks(old, name))).collect()
}

/// The file system of a volume; `None` if there is none, or none that Sapwood can read. Then only the changed ranges
/// are reported.
fn known(disk: &mut Disk, name: &str) -> Result<Option<Arc<dyn FileSystem>>> {
    match disk.file_system(name) {
        Ok(fs) => Ok(Some(fs)),
        Err(FsError::Wrong { .. } | FsError::Unsupported { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The part of the disk that a volume takes, if it is the same on both disks.
fn same_part(old: &Disk, new: &Disk, name: &str) -> Option<Part> {
    let part = |disk: &Disk| disk.volumes.iter().find(|v| v.name == name).and_then(|v| v.part().ok());
    let (was, is) = (part(old)?, part(new)?);
    let pieces = |part: &Part| part.locate(0, part.size());
    (pieces(&was) == pieces(&is)).then_some(is)
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
