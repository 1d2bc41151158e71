//! `sapwood restore VM --to DIR`: all disks of a machine at one instant, and its definition with the disks where they are
//! now.

use super::format::{self, Chosen};
use super::tar;
use crate::args::{Args, Restore};
use crate::commands::names::{open_to_read, split};
use crate::live::{define, defined_disks, has_domain, relocate, Definition, Relocated};
use crate::progress::watch;
use crate::tags::{is_tar, DISKS_TAG, INSTANT_TAG, TAR};
use crate::terminal::output::{counted, print_json, rate, size};
use crate::terminal::streams::{errln, note_done, outln};
use anyhow::{Context as _, Result};
use image::{create_target, TargetFormat, TargetOptions};
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use vault::{format_time, ReadCache, SnapshotEntry, Vault, VaultError};

/// Definitions are texts; what is longer is none.
const DEFINITION_BYTES_MAX: u64 = 16 << 20;

/// What is restored.
struct Plan {
    machine: String,
    /// The disks and their snapshots, with the format that the definition says they have.
    disks: Vec<(String, SnapshotEntry, Option<TargetFormat>)>,
    definition: Option<String>,
    /// Disks of the machine that are not of this instant, or not in the definition.
    left_out: Vec<String>,
    /// Disks that have a newer snapshot, where the newest instant was asked for.
    newer: Vec<String>,
}

pub fn run(args: &Args, a: &Restore, dir: &Path) -> Result<ExitCode> {
    let (machine, spec) = split(&a.snapshot);
    if machine.contains('/') {
        let why = format!(
            "{machine}: --to is for a machine with all its disks, such as web01; for one disk name its file"
        );
        return Err(VaultError::Usage(why).into());
    }
    let said = format::said(a.format.as_deref())?;
    let vault = open_to_read(args)?;
    let plan = Plan::new(&vault, machine, spec)?;
    std::fs::create_dir_all(dir).with_context(|| format!("{}: cannot be made", dir.display()))?;
    let dir = dir.canonicalize().with_context(|| format!("{}: cannot be entered", dir.display()))?;
    let targets = plan.targets(&dir, said);
    let definition = plan.definition.as_ref().map(|text| dir.join(file_of(machine, text)));
    let mut new = targets.iter().map(|t| &t.path).chain(&definition);
    if let Some(there) = new.find(|p| !a.force && p.exists()) {
        let why = format!("{}: exists; --force replaces it", there.display());
        return Err(VaultError::Refused(why).into());
    }
    if a.define {
        check_definable(&plan)?;
    }
    let start = Instant::now();
    let mut disks = Vec::new();
    for ((disk, snapshot, _), target) in plan.disks.iter().zip(&targets) {
        disks.push(restore(args, a, &vault, disk, snapshot, target)?);
    }
    if let (Some(text), Some(path)) = (&plan.definition, &definition) {
        std::fs::write(path, located(text, &plan, &targets)?)
            .with_context(|| format!("{}: cannot be written", path.display()))?;
        note_done(format!("the definition of {machine} is in {}", path.display()));
        if a.define {
            define(path)?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let time = plan.instant();
    if args.json {
        print_json(&json!({
            "machine": machine,
            "time": time,
            "disks": disks,
            "definition_file": definition.as_ref().map(|d| d.to_string_lossy()),
            "defined": a.define,
            "left_out": plan.left_out,
            "newer": plan.newer,
            "seconds": seconds,
        }));
    } else if !args.quiet {
        let bytes: u64 = plan.disks.iter().map(|d| d.1.size).sum();
        let when = time.map_or_else(|| "of different times".into(), |t| format!("of {}", format_time(t)));
        let count = counted(plan.disks.len(), "disk");
        outln!("{machine}: {count} {when}, {}, {seconds:.1} s, {}", size(bytes), rate(bytes, seconds));
        if let Some(path) = &definition {
            outln!("{}", next_step(a, machine, path));
        }
    }
    for disk in &plan.left_out {
        errln!(
            "sapwood: {disk}: is left out: it is not in the definition, or has no snapshot of this instant"
        );
    }
    for disk in &plan.newer {
        errln!("sapwood: {disk}: has a snapshot that is newer than the machine's newest definition; restore it by itself if you want that one");
    }
    Ok(ExitCode::SUCCESS)
}

/// What is left to do.
fn next_step(a: &Restore, machine: &str, definition: &Path) -> String {
    let path = definition.display();
    match definition.extension().and_then(|e| e.to_str()) {
        Some("xml") if a.define => format!("start it: virsh start {machine}"),
        Some("xml") => format!("define it: virsh define {path}"),
        _ => format!("the command line of its QEMU: {path}"),
    }
}

fn check_definable(plan: &Plan) -> Result<()> {
    let machine = &plan.machine;
    let text = plan.definition.as_deref().unwrap_or_default();
    if !is_libvirts(text) {
        let why = format!("{machine}: --define is for machines that were backed up through libvirt");
        return Err(VaultError::Usage(why).into());
    }
    if let Some(name) = has_domain(text)? {
        let why = format!(
            "libvirt has a domain {name} already; `virsh destroy {name}` if it runs, and `virsh undefine {name} \
             --checkpoints-metadata --keep-nvram`, or leave --define out"
        );
        return Err(VaultError::Refused(why).into());
    }
    Ok(())
}

fn is_libvirts(definition: &str) -> bool {
    definition.trim_start().starts_with('<')
}

fn file_of(machine: &str, definition: &str) -> String {
    format!("{machine}.{}", if is_libvirts(definition) { "xml" } else { "json" })
}

impl Plan {
    /// The disks of the instant of the definition that `spec` names; without a definition, the snapshot of each disk.
    fn new(vault: &Vault, machine: &str, spec: &str) -> Result<Plan> {
        let prefix = format!("{machine}/");
        let (names, damaged) = vault.disk_names()?;
        damaged.iter().for_each(|line| errln!("sapwood: {line}"));
        let of_machine: Vec<String> = names.into_iter().filter(|n| n.starts_with(&prefix)).collect();
        if of_machine.is_empty() {
            let what = format!(
                "{machine}: there is no disk of such a machine; `sapwood snapshots` lists what there is"
            );
            return Err(VaultError::NotFound { what }.into());
        }
        let defined = format!("{machine}/{}", Definition::DISK);
        let mut plan = Plan {
            machine: machine.to_owned(),
            disks: Vec::new(),
            definition: None,
            left_out: Vec::new(),
            newer: Vec::new(),
        };
        if !of_machine.contains(&defined) {
            for disk in of_machine {
                let snapshot = vault.find(&disk, spec)?;
                plan.disks.push((disk, snapshot, None));
            }
            return Ok(plan);
        }
        let snapshot = vault.find(&defined, spec)?;
        let text = read_text(vault, &defined, &snapshot)?;
        let of_libvirt = is_libvirts(&text).then(|| defined_disks(&text)).transpose();
        let formats = of_libvirt.with_context(|| format!("{defined}@{}", snapshot.id))?;
        let wanted = DisksOf::new(&snapshot, formats.as_ref());
        for disk in of_machine.into_iter().filter(|d| *d != defined) {
            plan.add(vault, disk, &snapshot, &wanted)?;
        }
        if spec != "latest" {
            plan.newer.clear();
        }
        plan.check(&prefix, &wanted, snapshot.time)?;
        plan.definition = Some(text);
        Ok(plan)
    }

    /// Adds a disk if it has a snapshot of the instant of the definition, and the machine had it then.
    fn add(
        &mut self,
        vault: &Vault,
        disk: String,
        definition: &SnapshotEntry,
        of_machine: &DisksOf,
    ) -> Result<()> {
        let target = disk.split_once('/').map_or("", |(_, d)| d);
        let is_wanted = of_machine.names.as_ref().is_none_or(|names| names.contains(target));
        let listed = vault.snapshots(Some(&disk))?.snapshots;
        if is_wanted && listed.last().is_some_and(|s| s.entry.time > definition.time) {
            self.newer.push(disk.clone());
        }
        let is_of_instant = |s: &SnapshotEntry| match tag(definition, INSTANT_TAG) {
            Some(instant) => tag(s, INSTANT_TAG) == Some(instant),
            None => s.time == definition.time,
        };
        match listed.into_iter().rev().find(|s| is_wanted && is_of_instant(&s.entry)) {
            Some(s) => {
                let format = of_machine.formats.get(target).copied();
                self.disks.push((disk, s.entry, format));
            }
            None => self.left_out.push(disk),
        }
        Ok(())
    }

    /// Refuses a machine that would lack a disk.
    fn check(&self, prefix: &str, of_machine: &DisksOf, time: i64) -> Result<()> {
        let wanted = of_machine.names.iter().flatten().map(|target| format!("{prefix}{target}"));
        let missing: Vec<String> = wanted.filter(|w| self.disks.iter().all(|d| d.0 != *w)).collect();
        if missing.is_empty() && !self.disks.is_empty() {
            return Ok(());
        }
        let what = format!(
            "{}: of {} there is no snapshot of {}; name another instant, or restore disk by disk",
            self.machine,
            if missing.is_empty() { "any disk".to_owned() } else { missing.join(" and ") },
            format_time(time)
        );
        Err(VaultError::NotFound { what }.into())
    }

    /// The time of all snapshots, if it is one.
    fn instant(&self) -> Option<i64> {
        let first = self.disks.first()?.1.time;
        self.disks.iter().all(|d| d.1.time == first).then_some(first)
    }

    /// Where each disk goes, and how: as the option says, the definition, or the snapshot.
    fn targets(&self, dir: &Path, said: Option<TargetFormat>) -> Vec<Target> {
        let target = |(disk, snapshot, defined): &(String, SnapshotEntry, Option<TargetFormat>)| {
            let chosen = format::choose(said.or(*defined), Path::new("disk"), snapshot);
            let format = if is_tar(snapshot) { TAR } else { chosen.name() };
            let name = format!("{}.{format}", disk.replace('/', "-"));
            Target { path: dir.join(name), chosen, format }
        };
        self.disks.iter().map(target).collect()
    }
}

/// The disks that a machine had when it was backed up.
struct DisksOf {
    /// As its backup, or else its definition, tells; `None` where neither does.
    names: Option<BTreeSet<String>>,
    /// Those whose format the definition tells.
    formats: BTreeMap<String, TargetFormat>,
}

impl DisksOf {
    /// From the snapshot of the definition, and what libvirt's XML says of the disks.
    fn new(snapshot: &SnapshotEntry, defined: Option<&BTreeMap<String, Option<String>>>) -> DisksOf {
        let listed = tag(snapshot, DISKS_TAG).map(|all| all.split(',').map(str::to_owned).collect());
        let names = listed.or_else(|| defined.map(|d| d.keys().cloned().collect()));
        let format = |name: &Option<String>| match name.as_deref() {
            Some("qcow2") => Some(TargetFormat::Qcow2),
            Some("raw") => Some(TargetFormat::Raw),
            _ => None,
        };
        let formats = defined.into_iter().flatten().filter_map(|(d, f)| Some((d.clone(), format(f)?)));
        DisksOf { names, formats: formats.collect() }
    }
}

/// The value of a tag.
fn tag<'a>(snapshot: &'a SnapshotEntry, name: &str) -> Option<&'a str> {
    snapshot.tags.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

/// A file to restore to.
struct Target {
    path: PathBuf,
    chosen: Chosen,
    /// What errors and results call it.
    format: &'static str,
}

fn read_text(vault: &Vault, disk: &str, snapshot: &SnapshotEntry) -> Result<String> {
    let no_text =
        || VaultError::Refused(format!("{disk}@{}: is not the definition of a machine", snapshot.id));
    if snapshot.size > DEFINITION_BYTES_MAX {
        return Err(no_text().into());
    }
    let open = vault.open_snapshot(disk, &snapshot.id.to_string(), &ReadCache::new(DEFINITION_BYTES_MAX))?;
    let mut bytes = vec![0; snapshot.size as usize];
    open.read_at(0, &mut bytes)?;
    Ok(String::from_utf8(bytes).map_err(|_| no_text())?)
}

/// The definition, with the disks where they are now if it is libvirt's.
fn located(text: &str, plan: &Plan, targets: &[Target]) -> Result<String> {
    if !is_libvirts(text) {
        return Ok(text.to_owned());
    }
    let mut disks = Vec::new();
    for ((disk, ..), target) in plan.disks.iter().zip(targets) {
        let path =
            target.path.to_str().with_context(|| format!("{}: is not UTF-8", target.path.display()))?;
        let name = disk.split_once('/').map_or("", |(_, d)| d);
        disks.push(Relocated { target: name.into(), path: path.into(), format: target.format });
    }
    relocate(text, &disks)
}

fn restore(
    args: &Args,
    a: &Restore,
    vault: &Vault,
    disk: &str,
    snapshot: &SnapshotEntry,
    target: &Target,
) -> Result<Value> {
    let make = |snapshot: &SnapshotEntry, data: &[std::ops::Range<u64>]| {
        let (overwrite, allow_in_use, mode) = (a.force, a.allow_in_use, a.mode);
        let (size, format) = (snapshot.size, target.chosen.format);
        create_target(&target.path, &TargetOptions { size, format, overwrite, allow_in_use, data, mode })
    };
    let (written_bytes, read_bytes) = if is_tar(snapshot) {
        let done = tar::restore(args.quiet, a, vault, (disk, snapshot), &target.path)?;
        (done.tar_bytes, None)
    } else {
        let id = snapshot.id.to_string();
        let report = watch(args.quiet, disk, |p| vault.restore_to(disk, &id, make, p))?;
        (report.written_bytes, Some(report.read_bytes))
    };
    note_done(format!("{disk}@{} is restored to {}", snapshot.id, target.path.display()));
    if !args.json && !args.quiet {
        outln!("{disk}@{} to {} ({})", snapshot.id, target.path.display(), size(snapshot.size));
    }
    Ok(json!({
        "disk": disk,
        "snapshot": snapshot.id.to_string(),
        "target": target.path.to_string_lossy(),
        "format": target.format,
        "size": snapshot.size,
        "written_bytes": written_bytes,
        "read_bytes": read_bytes,
    }))
}
