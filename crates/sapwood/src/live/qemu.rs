//! A point in time of disks of a running QEMU: takes it, exports it, and removes it.

use super::agent::{self, Freeze};
use super::bitmaps::{self, Bitmap, State};
use super::leftovers;
use super::names::Names;
use super::node::Node;
use super::point::{DiskFormat, DiskRequest, LiveOptions, Point};
use super::qmp::Qmp;
use super::scratch::Scratch;
use anyhow::{bail, ensure, Context as _, Result};
use export::nbd::unix_uri;
use serde_json::{json, Value};
use std::path::Path;
use vault::{SnapId, VaultError, VaultId};

const GRANULARITY_BYTES: u64 = 64 << 10;

/// A point in time. Dropping it removes it from QEMU; the bitmaps of disks whose snapshot was not committed record again.
pub struct QemuPoint {
    qmp: Qmp,
    vault: VaultId,
    parts: Vec<Part>,
    not_frozen: Option<String>,
    frozen: bool,
    scratch: Scratch,
    serving: bool,
    /// Why it was given up, if it was.
    broken: Option<String>,
}

/// One disk of it.
struct Part {
    node: Node,
    newest: Option<SnapId>,
    /// What changed since `newest`.
    old: State,
    new: Bitmap,
    names: Names,
    /// The steps that were done; undone in reverse order.
    undo: Vec<Step>,
    /// The bitmaps have changed, and the snapshot is not committed.
    unsettled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    FileNode,
    FleeceNode,
    Job,
    Export,
}

impl QemuPoint {
    /// Takes the same point in time of several disks, and exports it.
    pub fn take(
        socket: &Path,
        options: &LiveOptions,
        vault: VaultId,
        wanted: &[DiskRequest],
    ) -> Result<Self> {
        let mut qmp = Qmp::connect(socket)?;
        leftovers::remove(&mut qmp)?;
        let mut parts = Vec::new();
        for w in wanted {
            let node = Node::find(&mut qmp, &w.node)?;
            let old = bitmaps::settle(&mut qmp, &node.name, vault, w.newest)?;
            parts.push(Part {
                node,
                newest: w.newest,
                old,
                new: Bitmap::of(vault, w.snapshot),
                names: Names::of(vault, w.snapshot),
                undo: Vec::new(),
                unsettled: false,
            });
        }
        let scratch = Scratch::create(&options.scratch)?;
        let mut point = QemuPoint {
            qmp,
            vault,
            parts,
            not_frozen: None,
            frozen: false,
            scratch,
            serving: false,
            broken: None,
        };
        point.prepare()?;
        point.freeze_and_take(options.agent.as_deref())?;
        point.export()?;
        Ok(point)
    }

    /// Everything that can be done before the point in time: images before the disks, and a server.
    fn prepare(&mut self) -> Result<()> {
        for (number, part) in self.parts.iter_mut().enumerate() {
            let path = self.scratch.add_image(number, part.node.size, self.qmp.other_owner())?;
            part.prepare(&mut self.qmp, &path)?;
        }
        self.scratch.open_to(self.qmp.other_owner())?;
        let address = json!({ "type": "unix", "data": { "path": self.scratch.socket() } });
        match self.qmp.execute("nbd-server-start", json!({ "addr": address })) {
            Err(e) if e.to_string().contains("already running") => {
                let why =
                    "QEMU's NBD server is in use by another program; stop it (nbd-server-stop) and try again";
                return Err(VaultError::Refused(why.into()).into());
            }
            other => other?,
        };
        self.serving = true;
        Ok(())
    }

    /// Before the last nodes go: while there are any, the next backup knows after a crash that the server is ours.
    fn stop_server(&mut self) -> Result<()> {
        if std::mem::take(&mut self.serving) {
            self.qmp.execute("nbd-server-stop", json!({})).map(drop)
        } else {
            Ok(())
        }
    }

    fn freeze_and_take(&mut self, agent: Option<&Path>) -> Result<()> {
        let mut frozen = match agent.map(agent::freeze).transpose()? {
            None => None,
            Some(Freeze::Frozen(frozen)) => Some(frozen),
            Some(Freeze::Not(why)) => {
                self.not_frozen = Some(why);
                None
            }
        };
        self.frozen = frozen.is_some();
        let taken = self.take_point();
        // The guest is thawed even after an error.
        let was_frozen = frozen.as_mut().map_or(Ok(true), agent::Frozen::thaw);
        let was_frozen = was_frozen?;
        taken?;
        if !was_frozen {
            (self.frozen, self.not_frozen) = (false, Some(agent::THAWED_ITSELF.to_owned()));
        }
        // Until now a disk could be moved to another node.
        self.parts.iter().try_for_each(|part| part.node.check_used(&mut self.qmp))
    }

    /// In one transaction: the new bitmaps begin, jobs keep what the guest overwrites, and the old bitmaps stop, in this
    /// order. A job stops the guest's writes until the transaction is done: what is written before that is in both
    /// bitmaps, what is written after it in the new one. The other way round, a write between the end of the old bitmap
    /// and the job would be in the snapshot and in no bitmap that this backup reads.
    fn take_point(&mut self) -> Result<()> {
        for part in &mut self.parts {
            // Before it is known whether it was done: undoing a step that was not done does no harm.
            part.undo.push(Step::Job);
            part.unsettled = true;
        }
        // QEMU 10.1 and later can rather lose the point in time than fail a write of the guest.
        let spared = json!({ "on-cbw-error": "break-snapshot" });
        match self.transaction(&spared) {
            Err(e) if e.to_string().contains("on-cbw-error") => self.transaction(&json!({})),
            other => other,
        }
    }

    fn transaction(&mut self, of_jobs: &Value) -> Result<()> {
        let mut actions: Vec<Value> = self.parts.iter().map(Part::begin_bitmap).collect();
        actions.extend(self.parts.iter().map(|part| part.begin_job(of_jobs)));
        actions.extend(self.parts.iter().filter_map(Part::stop_bitmap));
        self.qmp.execute("transaction", json!({ "actions": actions })).map(drop)
    }

    fn export(&mut self) -> Result<()> {
        self.parts.iter_mut().try_for_each(|part| part.export(&mut self.qmp))
    }
}

impl Point for QemuPoint {
    fn uri(&self, disk: usize) -> String {
        unix_uri(&self.parts[disk].names.fleece, &self.scratch.socket())
    }

    fn changes(&self, disk: usize) -> std::result::Result<&str, &str> {
        match &self.parts[disk].old {
            State::Usable(bitmap) => Ok(&bitmap.name),
            State::FullScan(why) => Err(why),
        }
    }

    fn check(&mut self, disk: usize) -> Result<()> {
        if let Some(why) = &self.broken {
            bail!("{why}");
        }
        let jobs = self.qmp.execute("query-jobs", json!({}))?;
        let job =
            jobs.as_array().into_iter().flatten().find(|j| j["id"] == self.parts[disk].names.job.as_str());
        let Some(job) = job else { bail!("QEMU has ended the job that kept the point in time") };
        if let Some(why) = job["error"].as_str() {
            bail!("QEMU could not keep the point in time: {why}");
        }
        let status = job["status"].as_str().unwrap_or("?");
        // While a virtual machine is stopped, so are its jobs.
        let keeps = matches!(status, "running" | "paused" | "ready" | "standby");
        ensure!(keeps, "the job that keeps the point in time is {status}");
        Ok(())
    }

    fn check_scratch(&mut self) -> bool {
        if let (None, Err(why)) = (&self.broken, self.scratch.check()) {
            self.broken = Some(format!("{why:#}"));
            for part in &mut self.parts {
                // Exports first: they stand on what the job keeps.
                while part.undo.last().is_some_and(|step| matches!(step, Step::Export | Step::Job)) {
                    part.undo_last(&mut self.qmp).unwrap_or_default();
                }
            }
        }
        self.broken.is_none()
    }

    fn commit(&mut self, disk: usize) -> Result<()> {
        let part = &mut self.parts[disk];
        part.unsettled = false;
        part.end_export(&mut self.qmp)?;
        if self.parts.iter().all(|p| !p.undo.contains(&Step::Export)) {
            self.stop_server()?;
        }
        let part = &mut self.parts[disk];
        part.take_down(&mut self.qmp)?;
        if let State::Usable(old) = &part.old {
            old.remove(&mut self.qmp, &part.node.name)?;
        }
        let used = part.node.check_used(&mut self.qmp);
        if used.is_err() {
            // What is written elsewhere is in no bitmap of this node.
            part.new.remove(&mut self.qmp, &part.node.name)?;
        }
        used.context("the next backup reads all of the disk")
    }

    fn frozen(&self) -> bool {
        self.frozen
    }

    fn not_frozen(&self) -> Option<&str> {
        self.not_frozen.as_deref()
    }

    fn format(&self, disk: usize) -> DiskFormat {
        DiskFormat { format: self.parts[disk].node.format, is_defined: false }
    }

    fn tags(&self, _disk: usize) -> Vec<(String, String)> {
        Vec::new()
    }
}

impl Drop for QemuPoint {
    /// What cannot be done is left for the next backup.
    fn drop(&mut self) {
        for part in &mut self.parts {
            let _ = part.end_export(&mut self.qmp);
        }
        let _ = self.stop_server();
        for part in &mut self.parts {
            let _ = part.take_down(&mut self.qmp);
            if part.unsettled {
                let _ = bitmaps::settle(&mut self.qmp, &part.node.name, self.vault, part.newest);
            }
        }
    }
}

impl Part {
    /// Makes the fleecing node: an empty image before the disk.
    fn prepare(&mut self, qmp: &mut Qmp, image: &Path) -> Result<()> {
        let file = json!({ "driver": "file", "node-name": self.names.file, "filename": image });
        qmp.execute("blockdev-add", file).with_context(|| {
            format!("{}: QEMU must be able to use it; --scratch names another place", image.display())
        })?;
        self.undo.push(Step::FileNode);
        let fleece = json!({
            "driver": "qcow2", "node-name": self.names.fleece, "file": self.names.file, "backing": self.node.name,
        });
        qmp.execute("blockdev-add", fleece)?;
        self.undo.push(Step::FleeceNode);
        Ok(())
    }

    fn begin_bitmap(&self) -> Value {
        let data = json!({
            "node": self.node.name, "name": self.new.name, "persistent": self.node.persistent,
            "granularity": GRANULARITY_BYTES,
        });
        json!({ "type": "block-dirty-bitmap-add", "data": data })
    }

    fn begin_job(&self, more: &Value) -> Value {
        let mut data = json!({
            "job-id": self.names.job, "device": self.node.name, "target": self.names.fleece, "sync": "none",
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            data[key] = value.clone();
        }
        json!({ "type": "blockdev-backup", "data": data })
    }

    fn stop_bitmap(&self) -> Option<Value> {
        let State::Usable(old) = &self.old else { return None };
        let data = json!({ "node": self.node.name, "name": old.name });
        Some(json!({ "type": "block-dirty-bitmap-disable", "data": data }))
    }

    fn export(&mut self, qmp: &mut Qmp) -> Result<()> {
        let mut bitmaps = Vec::new();
        if let State::Usable(old) = &self.old {
            bitmaps.push(json!({ "node": self.node.name, "name": old.name }));
        }
        let export = json!({
            "type": "nbd", "id": self.names.export, "node-name": self.names.fleece, "name": self.names.fleece,
            "writable": false, "bitmaps": bitmaps,
        });
        self.undo.push(Step::Export);
        qmp.execute("block-export-add", export).map(drop)
    }

    fn end_export(&mut self, qmp: &mut Qmp) -> Result<()> {
        match self.undo.last() {
            Some(Step::Export) => self.undo_last(qmp),
            _ => Ok(()),
        }
    }

    /// Takes everything down but the bitmaps.
    fn take_down(&mut self, qmp: &mut Qmp) -> Result<()> {
        let mut done = Ok(());
        while !self.undo.is_empty() {
            let one = self.undo_last(qmp);
            done = done.and(one);
        }
        done
    }

    fn undo_last(&mut self, qmp: &mut Qmp) -> Result<()> {
        let Some(step) = self.undo.pop() else { return Ok(()) };
        let names = &self.names;
        match step {
            Step::Export if qmp.has("query-block-exports", "id", &names.export)? => {
                qmp.execute("block-export-del", json!({ "id": names.export, "mode": "hard" }))?;
                qmp.wait_until_absent("query-block-exports", "id", &names.export)
            }
            Step::Job if qmp.has("query-jobs", "id", &names.job)? => {
                qmp.execute("block-job-cancel", json!({ "device": names.job, "force": true }))?;
                qmp.wait_until_absent("query-jobs", "id", &names.job)
            }
            Step::Export | Step::Job => Ok(()),
            Step::FleeceNode => qmp.execute("blockdev-del", json!({ "node-name": names.fleece })).map(drop),
            Step::FileNode => qmp.execute("blockdev-del", json!({ "node-name": names.file })).map(drop),
        }
    }
}
