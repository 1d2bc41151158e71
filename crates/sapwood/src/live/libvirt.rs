//! Backups of a domain of libvirt: `libvirt:DOMAIN`, all its disks at one instant.
//!
//! libvirt does in its own words what [`super::point`] does in QEMU's: a pull-mode backup is the point in time and the
//! export, a checkpoint is the bitmap that begins with it.
//!
//! 1. A backup job that is left of a backup that was killed is ended.
//! 2. `backup-begin` begins the job and a checkpoint in one step, with the guest's file systems frozen if its agent is
//!    there. Every disk's export tells what changed since the checkpoint that its newest snapshot names.
//! 3. The disks are read over NBD.
//! 4. When all their snapshots are committed the job is ended, and older checkpoints of this vault go.
//!
//! A snapshot names its checkpoint in its tag `checkpoint`, since one checkpoint is of all disks, and a snapshot of one.
//! A checkpoint of which no snapshot came does no harm: libvirt adds up what was recorded before and after it.

mod domain;
mod virsh;

use super::agent::set_frozen;
use super::node::SAFE_WITH_IOTHREADS;
use super::scratch::{self, Scratch};
use super::{uri, Point, Wanted};
use anyhow::{bail, ensure, Context as _, Result};
use domain::Domain;
use std::path::{Path, PathBuf};
use vault::VaultId;
use virsh::Virsh;

/// The tag of a snapshot that names its checkpoint.
pub const CHECKPOINT_TAG: &str = "checkpoint";
/// What an export calls its bitmap.
const BITMAP: &str = "changes";

/// A point in time of all disks of a domain. Dropped, the job is ended; the checkpoint stays if any snapshot is of it.
pub struct LibvirtPoint {
    virsh: Virsh,
    parts: Vec<Part>,
    /// The checkpoint that begins with it, where any disk can have one.
    checkpoint: Option<String>,
    /// Those of this vault that were there before.
    older: Vec<String>,
    scratch: Scratch,
    begun: bool,
    frozen: bool,
    not_frozen: Option<String>,
    broken: Option<String>,
}

/// One disk of it.
struct Part {
    target: String,
    keeps_bitmaps: bool,
    /// The checkpoint since which its changes are known, or why there is none.
    since: std::result::Result<String, String>,
    committed: bool,
}

/// Targets of a domain's disks that the guest may write to.
pub fn disks_of(domain: &str) -> Result<Vec<String>> {
    let all = describe(&Virsh::new(domain))?;
    ensure!(!all.disks.is_empty(), "libvirt domain {domain}: has no disk that the guest may write to");
    Ok(all.disks.into_iter().map(|d| d.target).collect())
}

/// The definition of a domain: what it is when it starts the next time.
pub fn definition(domain: &str) -> Result<String> {
    let virsh = Virsh::new(domain);
    // A domain that exists only while it runs has no other.
    virsh.of_domain("dumpxml", &["--inactive"]).or_else(|_| virsh.of_domain("dumpxml", &[]))
}

fn describe(virsh: &Virsh) -> Result<Domain> {
    Domain::parse(&virsh.of_domain("dumpxml", &[])?)
}

impl LibvirtPoint {
    /// Takes the point in time of `wanted` (all by their targets) and exports it.
    pub fn take(domain: &str, scratch: &Path, vault: VaultId, wanted: &[Wanted]) -> Result<Self> {
        let virsh = Virsh::new(domain);
        let state = virsh.of_domain("domstate", &[])?;
        if !matches!(state.trim(), "running" | "paused") {
            bail!(
                "libvirt domain {domain}: is not running ({}); start it, or back its disks up as files",
                state.trim()
            );
        }
        end_abandoned(&virsh)?;
        let described = describe(&virsh)?;
        check_iothreads(&virsh, &described)?;
        let prefix = format!("sapwood-{vault}-");
        let list = virsh.of_domain("checkpoint-list", &["--name"])?;
        let older: Vec<String> =
            list.lines().map(str::trim).filter(|c| c.starts_with(&prefix)).map(str::to_owned).collect();
        let mut parts = Vec::new();
        for w in wanted {
            let disk = described.disks.iter().find(|d| d.target == w.node);
            let disk = disk.with_context(|| format!("libvirt domain {domain}: has no disk {:?}", w.node))?;
            let since = match (&w.newest, &w.checkpoint) {
                (None, _) => Err("there is no snapshot yet".into()),
                _ if !disk.keeps_bitmaps => Err("libvirt keeps bitmaps in qcow2 images only".into()),
                (Some(newest), None) => Err(format!("snapshot {newest} was not made through libvirt")),
                (Some(_), Some(c)) if older.contains(c) => Ok(c.clone()),
                (Some(_), Some(c)) => Err(format!("libvirt has no checkpoint {c} any more")),
            };
            let keeps_bitmaps = disk.keeps_bitmaps;
            parts.push(Part { target: w.node.clone(), keeps_bitmaps, since, committed: false });
        }
        let any = parts.iter().any(|p| p.keeps_bitmaps);
        let checkpoint = wanted.first().filter(|_| any).map(|w| format!("{prefix}{}", w.snapshot));
        let scratch = Scratch::create(scratch)?;
        let owner = described.owner.filter(|(user, _)| *user != 0 && rustix::process::geteuid().is_root());
        let mut point = LibvirtPoint {
            virsh,
            parts,
            checkpoint,
            older,
            scratch,
            begun: false,
            frozen: false,
            not_frozen: None,
            broken: None,
        };
        point.begin(owner, described.has_agent)?;
        Ok(point)
    }

    fn begin(&mut self, owner: Option<(u32, u32)>, has_agent: bool) -> Result<()> {
        // The directory is QEMU's from here on: nothing of ours is made in it any more.
        let texts = tempfile::tempdir().context("cannot make a directory for libvirt's requests")?;
        self.scratch.open_to(owner)?;
        self.frozen = has_agent && self.freeze();
        let begun = self.begin_job(texts.path());
        if self.frozen {
            self.thaw()?;
        }
        begun
    }

    /// Where a bitmap is not what it should be (QEMU was killed, say), the disks are read whole.
    fn begin_job(&mut self, texts: &Path) -> Result<()> {
        let Err(e) = self.request(texts) else { return Ok(()) };
        if self.parts.iter().all(|p| p.since.is_err()) {
            return Err(e);
        }
        for part in self.parts.iter_mut().filter(|p| p.since.is_ok()) {
            part.since = Err(format!("libvirt cannot tell what changed: {e:#}"));
        }
        self.remove_older();
        self.request(texts)
    }

    fn request(&mut self, texts: &Path) -> Result<()> {
        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = texts.join(name);
            std::fs::write(&path, text).with_context(|| format!("{}: cannot write", path.display()))?;
            Ok(path)
        };
        let backup = write("backup.xml", &self.backup_xml())?;
        let mut args = vec![backup.to_string_lossy().into_owned()];
        if let Some(name) = &self.checkpoint {
            let path = write("checkpoint.xml", &self.checkpoint_xml(name))?;
            args.push(path.to_string_lossy().into_owned());
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.virsh.of_domain("backup-begin", &args)?;
        self.begun = true;
        Ok(())
    }

    fn backup_xml(&self) -> String {
        let mut disks = String::new();
        for part in &self.parts {
            let target = escaped(&part.target);
            let scratch = self.scratch.socket().with_file_name(format!("{}.scratch", part.target));
            let scratch = escaped(&scratch.to_string_lossy());
            let since = match &part.since {
                Ok(c) => {
                    format!("backupmode='incremental' incremental='{}' exportbitmap='{BITMAP}'", escaped(c))
                }
                Err(_) => "backupmode='full'".into(),
            };
            disks += &format!(
                "<disk name='{target}' backup='yes' type='file' exportname='{target}' {since}>\
                 <scratch file='{scratch}'/></disk>"
            );
        }
        let socket = escaped(&self.scratch.socket().to_string_lossy());
        format!(
            "<domainbackup mode='pull'><server transport='unix' socket='{socket}'/><disks>{disks}</disks></domainbackup>"
        )
    }

    fn checkpoint_xml(&self, name: &str) -> String {
        let mut disks = String::new();
        for part in &self.parts {
            let kind = if part.keeps_bitmaps { "bitmap" } else { "no" };
            disks += &format!("<disk name='{}' checkpoint='{kind}'/>", escaped(&part.target));
        }
        format!("<domaincheckpoint><name>{name}</name><disks>{disks}</disks></domaincheckpoint>")
    }

    fn freeze(&mut self) -> bool {
        set_frozen(true);
        match self.virsh.of_domain("domfsfreeze", &[]) {
            Ok(_) => true,
            Err(e) => {
                // Some may be frozen and others not.
                let _ = self.virsh.of_domain("domfsthaw", &[]);
                set_frozen(false);
                self.not_frozen = Some(format!("{e:#}"));
                false
            }
        }
    }

    fn thaw(&mut self) -> Result<()> {
        let tries = [(); 3].iter().map(|()| self.virsh.of_domain("domfsthaw", &[]));
        let mut last = None;
        for tried in tries {
            match tried {
                Ok(_) => {
                    set_frozen(false);
                    return Ok(());
                }
                Err(e) => last = Some(e),
            }
        }
        set_frozen(false);
        let why = last.map_or_else(String::new, |e| format!(": {e:#}"));
        bail!("THE GUEST'S FILE SYSTEMS MAY STILL BE FROZEN: thaw them (virsh domfsthaw){why}");
    }

    /// The point in time is no longer needed.
    fn end_job(&mut self) -> Result<()> {
        match std::mem::take(&mut self.begun) {
            true => self.virsh.of_domain("domjobabort", &[]).map(drop),
            false => Ok(()),
        }
    }

    /// Best effort: what stays is removed the next time.
    fn remove_older(&mut self) {
        for name in std::mem::take(&mut self.older) {
            // Where the bitmap is gone, libvirt can still forget it.
            let gone = self.virsh.of_domain("checkpoint-delete", &[&name]);
            let _ = gone.or_else(|_| self.virsh.of_domain("checkpoint-delete", &[&name, "--metadata"]));
        }
    }
}

impl Point for LibvirtPoint {
    fn uri(&self, disk: usize) -> String {
        uri(&self.parts[disk].target, &self.scratch.socket())
    }

    fn changes(&self, disk: usize) -> std::result::Result<&str, &str> {
        self.parts[disk].since.as_ref().map(|_| BITMAP).map_err(String::as_str)
    }

    fn check(&mut self, _disk: usize) -> Result<()> {
        if let Some(why) = &self.broken {
            bail!("{why}");
        }
        let job = self.virsh.of_domain("backup-dumpxml", &[]).context("the point in time was not kept")?;
        let socket = self.scratch.socket();
        ensure!(
            job.contains(&*escaped(&socket.to_string_lossy())),
            "libvirt has ended the job that kept the point in time"
        );
        Ok(())
    }

    fn check_scratch(&mut self) -> bool {
        if let (None, Err(why)) = (&self.broken, self.scratch.check()) {
            self.broken = Some(format!("{why:#}"));
            let _ = self.end_job();
        }
        self.broken.is_none()
    }

    fn commit(&mut self, disk: usize) -> Result<()> {
        self.parts[disk].committed = true;
        if self.parts.iter().all(|p| p.committed) {
            self.end_job()?;
            self.remove_older();
        }
        Ok(())
    }

    fn frozen(&self) -> bool {
        self.frozen
    }

    fn not_frozen(&self) -> Option<&str> {
        self.not_frozen.as_deref()
    }

    fn tags(&self, disk: usize) -> Vec<(String, String)> {
        let of_disk = self.checkpoint.iter().filter(|_| self.parts[disk].keeps_bitmaps);
        of_disk.map(|c| (CHECKPOINT_TAG.to_owned(), c.clone())).collect()
    }
}

impl Drop for LibvirtPoint {
    /// What cannot be done is left for the next backup.
    fn drop(&mut self) {
        let begun = self.begun;
        let _ = self.end_job();
        let none = self.parts.iter().all(|p| !p.committed);
        if let (true, true, Some(name)) = (begun, none, &self.checkpoint) {
            let _ = self.virsh.of_domain("checkpoint-delete", &[name]);
        }
    }
}

/// Ends a job of ours whose backup lives no more.
fn end_abandoned(virsh: &Virsh) -> Result<()> {
    let Ok(job) = virsh.of_domain("backup-dumpxml", &[]) else { return Ok(()) };
    let document = roxmltree::Document::parse(&job).context("libvirt describes a job in what is no XML")?;
    let server = document.descendants().find(|n| n.has_tag_name("server"));
    let socket = server.and_then(|s| s.attribute("socket")).map(PathBuf::from);
    match socket.filter(|s| scratch::is_ours(s)) {
        Some(socket) if scratch::is_in_use(&socket) => bail!(
            "libvirt domain {}: another backup of it is at work; try again when it is done",
            virsh.domain()
        ),
        Some(_) => virsh.of_domain("domjobabort", &[]).map(drop),
        None => bail!(
            "libvirt domain {}: somebody else's backup of it is at work; wait for it, or end it (virsh domjobabort)",
            virsh.domain()
        ),
    }
}

/// See [`SAFE_WITH_IOTHREADS`].
fn check_iothreads(virsh: &Virsh, domain: &Domain) -> Result<()> {
    let Some(disk) = domain.disks.iter().find(|d| d.has_iothread) else { return Ok(()) };
    let version = virsh.qemu_version()?;
    ensure!(
        version >= SAFE_WITH_IOTHREADS,
        "libvirt domain {}: the disk {} has an iothread, and QEMU {}.{} dies, with the guest, when a client leaves the \
         export of such a disk; use QEMU 9.0 or later, or take the iothread from the disk",
        virsh.domain(),
        disk.target,
        version.0,
        version.1
    );
    Ok(())
}

/// As the value of an attribute in single quotes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;")
}
