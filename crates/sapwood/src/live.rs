//! Backups of the disks of a running QEMU: `qmp:SOCKET#NODE`.
//!
//! 1. What an earlier backup left that was killed is cleared away ([`bitmaps::settle`]).
//! 2. In one QEMU transaction: the next bitmap begins, the old one stops, and a fleecing job keeps what the guest
//!    overwrites from then on. That is the point in time.
//! 3. The fleecing node is exported over NBD with the old bitmap; the backup reads what the bitmap names.
//! 4. Only when the snapshot is committed is the old bitmap removed. If it is not, the two are merged again.
//!
//! A bitmap is called `sapwood-VAULT-SNAPSHOT`: it tells what changed since that snapshot, and counts only while that
//! is the newest one. Whatever is not as it should be ends in a full scan, and that is said.

mod agent;
mod bitmaps;
mod qmp;

use anyhow::{bail, ensure, Context as _, Result};
use bitmaps::{Bitmap, State};
use image::{create_target, Changes, ImageError, NbdSource, Source, TargetFormat, TargetOptions};
use qmp::Qmp;
use serde_json::{json, Value};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vault::{SnapId, VaultId};

const GRANULARITY_BYTES: u64 = 64 << 10;
/// What the names of our nodes begin with.
const FLEECE: &str = "sapwood-f-";
const FILE: &str = "sapwood-p-";

/// Where a live disk is: `qmp:SOCKET#NODE`.
#[derive(Clone, Debug)]
pub struct LiveDisk {
    socket: PathBuf,
    /// A block node, or the id or QOM path of a device.
    node: String,
}

impl LiveDisk {
    /// Understands a source; `None` where it is no live disk.
    pub fn parse(source: &Path) -> Option<Result<Self>> {
        let rest = source.to_str()?.strip_prefix("qmp:")?;
        let Some((socket, node)) = rest.rsplit_once('#').filter(|(s, n)| !s.is_empty() && !n.is_empty())
        else {
            let why = vault::VaultError::Usage(format!("{}: write qmp:SOCKET#NODE", source.display()));
            return Some(Err(why.into()));
        };
        Some(Ok(LiveDisk { socket: socket.into(), node: node.into() }))
    }
}

/// What a backup of a live disk is told.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Where the guest's old data is kept while the backup runs.
    pub scratch: PathBuf,
    /// The guest agent's socket.
    pub agent: Option<PathBuf>,
}

/// A point in time of a live disk, exported.
pub struct PointInTime {
    qmp: Qmp,
    node: String,
    old: Option<Bitmap>,
    new: Bitmap,
    /// Why there is no old bitmap to go by.
    pub full_scan: Option<String>,
    /// Whether the guest's file systems were frozen for it.
    pub frozen: bool,
    names: Names,
    scratch: tempfile::TempDir,
    /// How far it has come; undone from the end.
    undo: Vec<Step>,
}

/// Names in QEMU that are ours alone.
struct Names {
    fleece: String,
    file: String,
    job: String,
    export: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    FileNode,
    FleeceNode,
    Transaction,
    Server,
    Export,
}

impl PointInTime {
    /// Takes a point in time for the snapshot `new`, and exports it. `newest` is the newest snapshot of the disk.
    pub fn take(
        disk: &LiveDisk,
        options: &LiveOptions,
        vault: VaultId,
        newest: Option<SnapId>,
        new: SnapId,
    ) -> Result<Self> {
        let mut qmp = Qmp::connect(&disk.socket)?;
        let node = find_node(&mut qmp, &disk.node)?;
        remove_leftovers(&mut qmp, vault)?;
        let state = bitmaps::settle(&mut qmp, &node.name, vault, newest)?;
        let (old, full_scan) = match state {
            State::Usable(bitmap) => (Some(bitmap), None),
            State::FullScan(why) => (None, Some(why)),
        };
        let scratch =
            tempfile::Builder::new().prefix("sapwood-fleece-").tempdir_in(&options.scratch).with_context(
                || format!("{}: cannot make a directory for the guest's old data", options.scratch.display()),
            )?;
        qmp.admit(scratch.path())?;
        let tag = format!("sapwood-{vault}-{new}");
        let mut point = PointInTime {
            node: node.name.clone(),
            old,
            new: Bitmap::of(vault, new),
            full_scan,
            frozen: false,
            names: Names {
                // Names of nodes have 31 characters at most.
                fleece: format!("{FLEECE}{new}"),
                file: format!("{FILE}{new}"),
                job: format!("{tag}-job"),
                export: format!("{tag}-export"),
            },
            scratch,
            undo: Vec::new(),
            qmp,
        };
        point.prepare(&node)?;
        point.freeze_and_take(options.agent.as_deref(), node.persistent)?;
        point.export()?;
        Ok(point)
    }

    /// The export, as a source.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///{}?socket={}", self.names.fleece, self.socket().display())
    }

    /// The bitmap that tells what changed since the newest snapshot.
    pub fn bitmap(&self) -> Option<&str> {
        self.old.as_ref().map(|b| b.name.as_str())
    }

    /// Whether the fleecing job has kept the point in time until now.
    fn check(&mut self) -> Result<()> {
        let jobs = self.qmp.execute("query-jobs", json!({}))?;
        let job = jobs.as_array().into_iter().flatten().find(|j| j["id"] == self.names.job.as_str());
        let Some(job) = job else { bail!("QEMU has ended the job that kept the point in time") };
        if let Some(why) = job["error"].as_str() {
            bail!("QEMU could not keep the point in time: {why}");
        }
        ensure!(job["status"] == "running", "the job that keeps the point in time is {}", job["status"]);
        Ok(())
    }

    /// Ends it once its snapshot is committed: the next backup goes by the new bitmap.
    pub fn commit(mut self) -> Result<()> {
        self.take_down()?;
        if let Some(old) = self.old.take() {
            old.remove(&mut self.qmp, &self.node)?;
        }
        Ok(())
    }

    fn socket(&self) -> PathBuf {
        self.scratch.path().join("nbd")
    }

    /// Makes the fleecing node: an empty image before the disk.
    fn prepare(&mut self, node: &Node) -> Result<()> {
        let path = self.scratch.path().join("fleece.qcow2");
        let how = TargetOptions { size: node.size, format: TargetFormat::Qcow2, overwrite: false, data: &[] };
        create_target(&path, &how)?.finish()?;
        self.qmp.admit(&path)?;
        let file = json!({ "driver": "file", "node-name": self.names.file, "filename": path });
        self.qmp.execute("blockdev-add", file)?;
        self.undo.push(Step::FileNode);
        let fleece = json!({
            "driver": "qcow2", "node-name": self.names.fleece, "file": self.names.file, "backing": self.node,
        });
        self.qmp.execute("blockdev-add", fleece)?;
        self.undo.push(Step::FleeceNode);
        Ok(())
    }

    fn freeze_and_take(&mut self, agent: Option<&Path>, persistent: bool) -> Result<()> {
        let frozen = agent.map(agent::freeze).transpose()?.flatten();
        self.frozen = frozen.is_some();
        let taken = self.take_point(persistent);
        // Thawed whatever came of it.
        frozen.map_or(Ok(()), agent::Frozen::thaw).and(taken)
    }

    fn take_point(&mut self, persistent: bool) -> Result<()> {
        let mut actions = vec![json!({
            "type": "block-dirty-bitmap-add",
            "data": {
                "node": self.node, "name": self.new.name, "persistent": persistent, "granularity": GRANULARITY_BYTES,
            },
        })];
        if let Some(old) = &self.old {
            let data = json!({ "node": self.node, "name": old.name });
            actions.push(json!({ "type": "block-dirty-bitmap-disable", "data": data }));
        }
        actions.push(json!({
            "type": "blockdev-backup",
            "data": {
                "job-id": self.names.job, "device": self.node, "target": self.names.fleece, "sync": "none",
            },
        }));
        self.qmp.execute("transaction", json!({ "actions": actions }))?;
        self.undo.push(Step::Transaction);
        Ok(())
    }

    fn export(&mut self) -> Result<()> {
        let address = json!({ "type": "unix", "data": { "path": self.socket() } });
        match self.qmp.execute("nbd-server-start", json!({ "addr": address })) {
            Err(e) if e.to_string().contains("already running") => {
                bail!("QEMU's NBD server is in use by somebody else; stop it (nbd-server-stop) and try again")
            }
            other => other?,
        };
        self.undo.push(Step::Server);
        let bitmaps: Vec<Value> =
            self.old.iter().map(|old| json!({ "node": self.node, "name": old.name })).collect();
        let export = json!({
            "type": "nbd", "id": self.names.export, "node-name": self.names.fleece, "name": self.names.fleece,
            "writable": false, "bitmaps": bitmaps,
        });
        self.qmp.execute("block-export-add", export)?;
        self.undo.push(Step::Export);
        Ok(())
    }

    /// Takes everything down but the bitmaps.
    fn take_down(&mut self) -> Result<()> {
        let mut done = Ok(());
        while let Some(step) = self.undo.pop() {
            let one = self.undo_step(step);
            done = done.and(one);
        }
        done
    }

    fn undo_step(&mut self, step: Step) -> Result<()> {
        let names = &self.names;
        match step {
            Step::Export => {
                self.qmp.execute("block-export-del", json!({ "id": names.export, "mode": "hard" }))?;
                self.qmp.wait_until_absent("query-block-exports", "id", &names.export)
            }
            Step::Server => self.qmp.execute("nbd-server-stop", json!({})).map(drop),
            Step::Transaction => {
                self.qmp.execute("block-job-cancel", json!({ "device": names.job, "force": true }))?;
                self.qmp.wait_until_absent("query-jobs", "id", &names.job)
            }
            Step::FleeceNode => {
                self.qmp.execute("blockdev-del", json!({ "node-name": names.fleece })).map(drop)
            }
            Step::FileNode => self.qmp.execute("blockdev-del", json!({ "node-name": names.file })).map(drop),
        }
    }
}

impl Drop for PointInTime {
    /// A point in time whose snapshot was not committed: the old bitmap goes on where it was stopped.
    fn drop(&mut self) {
        let taken = self.undo.contains(&Step::Transaction);
        let _ = self.take_down();
        if taken {
            let _ = bitmaps::give_back(&mut self.qmp, &self.node, self.old.as_ref(), &self.new);
        }
    }
}

/// A point in time, being read.
pub struct LiveSource {
    export: NbdSource,
    point: SharedPoint,
    /// What changed since the newest snapshot, if there is a bitmap.
    pub changes: Option<Changes>,
}

/// What remains of a point in time while it is read.
#[derive(Clone)]
pub struct SharedPoint(Arc<Mutex<Option<PointInTime>>>);

impl LiveSource {
    /// Connects to the export.
    pub fn connect(point: PointInTime) -> Result<(Self, SharedPoint)> {
        let mut export = NbdSource::connect(&point.uri(), point.bitmap())?;
        let changes = point.bitmap().is_some().then(|| export.changes()).transpose()?;
        let point = SharedPoint(Arc::new(Mutex::new(Some(point))));
        Ok((LiveSource { export, point: point.clone(), changes }, point))
    }
}

impl SharedPoint {
    /// See [`PointInTime::commit`].
    pub fn commit(self) -> Result<()> {
        let point = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        point.map_or(Ok(()), PointInTime::commit)
    }
}

impl Source for LiveSource {
    fn format(&self) -> &'static str {
        "qemu"
    }

    fn size(&self) -> Option<u64> {
        self.export.size()
    }

    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        self.export.next_data(from)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        self.export.read_at(offset, buf)
    }

    fn finish(&mut self) -> image::Result<()> {
        let mut point = self.point.0.lock().unwrap_or_else(PoisonError::into_inner);
        let checked = point.as_mut().map_or(Ok(()), PointInTime::check);
        checked.map_err(|e| ImageError::Refused { path: "QEMU".into(), why: format!("{e:#}") })
    }
}

/// A disk as QEMU sees it.
struct Node {
    name: String,
    size: u64,
    /// Whether its format keeps bitmaps while the virtual machine is off.
    persistent: bool,
}

/// Finds a node by its name, or by the name of the device that it is in.
fn find_node(qmp: &mut Qmp, wanted: &str) -> Result<Node> {
    let devices = qmp.execute("query-block", json!({}))?;
    let mut name = wanted.to_owned();
    for device in devices.as_array().into_iter().flatten() {
        let path = device["qdev"].as_str().unwrap_or_default();
        let id = path.strip_prefix("/machine/peripheral/").and_then(|rest| rest.split('/').next());
        let is_it = device["device"] == wanted || path == wanted || id == Some(wanted);
        if let (true, Some(node)) = (is_it, device["inserted"]["node-name"].as_str()) {
            name = node.to_owned();
        }
    }
    let nodes = qmp.execute("query-named-block-nodes", json!({ "flat": true }))?;
    let found = nodes.as_array().into_iter().flatten().find(|n| n["node-name"] == name.as_str());
    let node = found.with_context(|| format!("QEMU has no block node or device {wanted:?}"))?;
    let size = node["image"]["virtual-size"].as_u64().context("QEMU does not tell the size of the disk")?;
    ensure!(size > 0, "the disk {wanted:?} is empty");
    let keeps_bitmaps = node["image"]["format-specific"]["data"]["compat"] == "1.1";
    let persistent = node["drv"] == "qcow2" && keeps_bitmaps && node["ro"] == false;
    Ok(Node { name, size, persistent })
}

/// Takes down what backups into this vault have left in QEMU that were killed. Nobody else is at work: the monitor
/// serves one at a time.
fn remove_leftovers(qmp: &mut Qmp, vault: VaultId) -> Result<()> {
    let prefix = format!("sapwood-{vault}-");
    let exports = names_in(&qmp.execute("query-block-exports", json!({}))?, "id", &prefix);
    for id in &exports {
        qmp.execute("block-export-del", json!({ "id": id, "mode": "hard" }))?;
        qmp.wait_until_absent("query-block-exports", "id", id)?;
    }
    let jobs = names_in(&qmp.execute("query-jobs", json!({}))?, "id", &prefix);
    for job in &jobs {
        qmp.execute("block-job-cancel", json!({ "device": job, "force": true }))?;
        qmp.wait_until_absent("query-jobs", "id", job)?;
    }
    let mut nodes = Vec::new();
    // A node before the one that it stands on.
    for kind in [FLEECE, FILE] {
        let all = qmp.execute("query-named-block-nodes", json!({ "flat": true }))?;
        for node in names_in(&all, "node-name", kind) {
            // Those of another vault's backup may be in use.
            let _ = qmp.execute("blockdev-del", json!({ "node-name": node }));
            nodes.push(node);
        }
    }
    let had_any = !(exports.is_empty() && jobs.is_empty() && nodes.is_empty());
    let exports = qmp.execute("query-block-exports", json!({}))?;
    if had_any && exports.as_array().is_some_and(Vec::is_empty) {
        // It may not run.
        let _ = qmp.execute("nbd-server-stop", json!({}));
    }
    Ok(())
}

/// Values that begin with `prefix`.
fn names_in(list: &Value, key: &str, prefix: &str) -> Vec<String> {
    let all = list.as_array().into_iter().flatten().filter_map(|e| e[key].as_str());
    all.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect()
}

/// How long QEMU may take for what should be done at once.
const PATIENCE: Duration = Duration::from_secs(60);
