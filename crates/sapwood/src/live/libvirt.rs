//! Backups of a domain of libvirt: `libvirt:DOMAIN`, all its disks at one instant.
//!
//! libvirt carries out what [`super::qemu`] does through QEMU's monitor: a pull-mode backup is the point in time and its
//! export, and a checkpoint is the bitmap that begins with it.
//!
//! 1. A backup job of a killed backup is ended.
//! 2. Every disk's newest snapshot names its checkpoint and its image. The checkpoint is used if libvirt still has it,
//!    and the disk had the snapshot's image then and has it now (libvirt itself compares only targets). `backup-begin`
//!    begins the job and a checkpoint in one step, with the guest's file systems frozen if its agent is there.
//! 3. The disks are read over NBD.
//! 4. When all their snapshots are committed, the job ends and older checkpoints of this vault are deleted.
//!
//! A checkpoint covers all disks and a snapshot only one, so a snapshot names its checkpoint in the tag `checkpoint`. A
//! checkpoint without a snapshot does no harm: libvirt merges the changes recorded before and after it.

mod domain;
mod relocate;
mod virsh;

use super::agent::set_frozen;
use super::node::SAFE_WITH_IOTHREADS;
use super::point::{DiskFormat, DiskRequest, Point};
use super::scratch::{self, Scratch};
use crate::system::own_directory::{self, OwnDirectory};
use anyhow::{bail, ensure, Context as _, Result};
use domain::Domain;
pub use domain::DomainDisk;
use export::nbd::unix_uri;
use image::Format;
pub use relocate::{defined_disks, relocate, Relocated};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vault::{VaultError, VaultId};
use virsh::Virsh;

/// The tag of a snapshot that names its checkpoint.
pub const CHECKPOINT_TAG: &str = "checkpoint";
/// The tag of a snapshot that names its image, where it is a file of this host.
pub const IMAGE_TAG: &str = "image";
/// What an export calls its bitmap.
const BITMAP: &str = "changes";
/// How long a job may take to end.
const JOB_PATIENCE: Duration = Duration::from_secs(60);

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
    /// As the definition says it.
    format: Option<Format>,
    /// Identifies its image.
    image: Option<String>,
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

/// The disks of a domain that is off; `None` where it is not: its images are its own then.
pub fn disks_if_off(domain: &str) -> Result<Option<Vec<DomainDisk>>> {
    let virsh = Virsh::new(domain);
    let is_off = matches!(virsh.of_domain("domstate", &[])?.trim(), "shut off" | "crashed");
    if !is_off {
        return Ok(None);
    }
    ensure!(
        !virsh.is_saved()?,
        "libvirt domain {domain}: is saved (virsh managedsave), and what its guest had not yet written is not in its \
         images: start it and back it up then"
    );
    Ok(Some(describe(&virsh)?.disks))
}

/// The names of all domains, running or not.
pub fn all_domains() -> Result<Vec<String>> {
    Virsh::new("").names()
}

/// The definition of a domain: what it is when it starts the next time.
pub fn definition(domain: &str) -> Result<String> {
    let virsh = Virsh::new(domain);
    // A domain that exists only while it runs has no other.
    virsh.of_domain("dumpxml", &["--inactive"]).or_else(|_| virsh.of_domain("dumpxml", &[]))
}

/// The name in a definition, if libvirt has a domain of this name or with its UUID.
pub fn has_domain(definition: &str) -> Result<Option<String>> {
    let document = roxmltree::Document::parse(definition).context("the definition is not XML")?;
    let root = document.root_element();
    let names = [domain::child(root, "name"), domain::child(root, "uuid")];
    for name in names.into_iter().flatten().filter_map(|n| n.text()) {
        let virsh = Virsh::new(name.trim());
        // It fails where libvirt does not answer, too.
        virsh.names()?;
        if virsh.of_domain("domstate", &[]).is_ok() {
            return Ok(Some(name.trim().to_owned()));
        }
    }
    Ok(None)
}

/// Makes libvirt know the domain of a file.
pub fn define(file: &Path) -> Result<()> {
    Virsh::define(file)
}

fn describe(virsh: &Virsh) -> Result<Domain> {
    Domain::parse(&virsh.of_domain("dumpxml", &[])?)
}

impl LibvirtPoint {
    /// Takes the point in time of `wanted` (all by their targets) and exports it.
    pub fn take(domain: &str, scratch: &Path, vault: VaultId, wanted: &[DiskRequest]) -> Result<Self> {
        let virsh = Virsh::new(domain);
        let state = virsh.of_domain("domstate", &[])?;
        if !matches!(state.trim(), "running" | "paused") {
            bail!(
                "libvirt domain {domain}: is neither running nor shut off ({}); wait until it is",
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
            let image = image_of(disk);
            let since = since(&virsh, w, disk, image.as_deref(), &older);
            parts.push(Part {
                target: w.node.clone(),
                keeps_bitmaps: disk.keeps_bitmaps(),
                format: disk.format.as_deref().and_then(Format::by_name),
                image,
                since,
                committed: false,
            });
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
        let texts = OwnDirectory::create(&std::env::temp_dir(), own_directory::REQUESTS)
            .context("cannot make a directory for libvirt's requests")?;
        self.scratch.open_to(owner)?;
        loop {
            self.frozen = has_agent && self.freeze();
            let begun = self.request(texts.path());
            // Before anything else is tried: that may take its time.
            let thawed = if self.frozen { self.thaw() } else { Ok(()) };
            match begun {
                Err(e) if thawed.is_ok() && self.asks_for_less(&e) => {}
                other => return thawed.and(other),
            }
        }
    }

    /// Where libvirt cannot go by a bitmap (QEMU was killed, say), the disks are read whole; where it cannot begin one
    /// (old formats cannot keep any), there is no checkpoint. Whether there is less to ask for.
    fn asks_for_less(&mut self, why: &anyhow::Error) -> bool {
        let why = format!("{why:#}");
        if !why.contains("bitmap") && !why.contains("heckpoint") {
            return false;
        }
        let mut by_bitmap = self.parts.iter_mut().filter(|p| p.since.is_ok()).peekable();
        if by_bitmap.peek().is_none() {
            return self.checkpoint.take().is_some();
        }
        by_bitmap.for_each(|p| p.since = Err(format!("libvirt cannot tell what changed: {why}")));
        true
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
        let begun = self.virsh.of_domain("backup-begin", &args).map(drop);
        // The answer may be lost on the way.
        self.begun = begun.is_ok() || self.has_job().unwrap_or(true);
        begun
    }

    /// Whether the job that the domain has is ours.
    fn has_job(&self) -> Result<bool> {
        Ok(job_socket(&self.virsh)?.is_some_and(|socket| socket == self.scratch.socket()))
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

    /// The point in time is no longer needed. A job of another program is not ended.
    fn end_job(&mut self) -> Result<()> {
        if self.begun && self.has_job()? {
            abort_job(&self.virsh)?;
        }
        self.begun = false;
        Ok(())
    }

    /// Best effort: what stays is removed the next time.
    fn remove_older(&mut self) {
        for name in std::mem::take(&mut self.older) {
            match self.virsh.of_domain("checkpoint-delete", &[&name]) {
                // Where the bitmap is gone, libvirt can still forget it.
                Err(e) if format!("{e:#}").contains("bitmap") => {
                    let _ = self.virsh.of_domain("checkpoint-delete", &[&name, "--metadata"]);
                }
                _ => {}
            }
        }
    }
}

impl Point for LibvirtPoint {
    fn uri(&self, disk: usize) -> String {
        unix_uri(&self.parts[disk].target, &self.scratch.socket())
    }

    fn changes(&self, disk: usize) -> std::result::Result<&str, &str> {
        self.parts[disk].since.as_ref().map(|_| BITMAP).map_err(String::as_str)
    }

    fn check(&mut self, _disk: usize) -> Result<()> {
        if let Some(why) = &self.broken {
            bail!("{why}");
        }
        ensure!(self.has_job()?, "libvirt has ended the job that kept the point in time");
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

    fn format(&self, disk: usize) -> DiskFormat {
        DiskFormat { format: self.parts[disk].format, is_defined: true }
    }

    fn tags(&self, disk: usize) -> Vec<(String, String)> {
        let part = &self.parts[disk];
        let checkpoint = self.checkpoint.iter().filter(|_| part.keeps_bitmaps);
        let checkpoint = checkpoint.map(|c| (CHECKPOINT_TAG.to_owned(), c.clone()));
        checkpoint.chain(part.image.iter().map(|i| (IMAGE_TAG.to_owned(), i.clone()))).collect()
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

/// The checkpoint since which the changes of a disk are known, or why there is none.
fn since(
    virsh: &Virsh,
    wanted: &DiskRequest,
    disk: &DomainDisk,
    image: Option<&str>,
    older: &[String],
) -> std::result::Result<String, String> {
    let tag = |name: &str| wanted.tags.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    let Some(newest) = wanted.newest else { return Err("there is no snapshot yet".into()) };
    if !disk.keeps_bitmaps() {
        return Err("libvirt keeps bitmaps in qcow2 images only".into());
    }
    let Some(checkpoint) = tag(CHECKPOINT_TAG) else {
        return Err(format!("snapshot {newest} was not made through libvirt"));
    };
    if !older.iter().any(|c| c == checkpoint) {
        return Err(format!("libvirt has no checkpoint {checkpoint} any more"));
    }
    let then =
        virsh.of_domain("checkpoint-dumpxml", &[checkpoint]).and_then(|xml| Domain::of_checkpoint(&xml));
    let then =
        then.map_err(|e| format!("libvirt does not tell what the disk was at its checkpoint: {e:#}"))?;
    let same_source = then.disks.iter().any(|d| d.target == disk.target && d.source == disk.source);
    // Files may be renamed while the machine is off.
    let same_file = tag(IMAGE_TAG).is_none_or(|then| image == Some(then));
    if same_source && same_file {
        Ok(checkpoint.to_owned())
    } else {
        Err(format!("the disk has another image than in snapshot {newest}"))
    }
}

/// What tells a disk's image from others, where it is a file of this host: its inode number, and when it was made. The
/// number of its device may be another one after each start of the host.
fn image_of(disk: &DomainDisk) -> Option<String> {
    let path = disk.source.iter().find(|(name, _)| name == "file")?;
    let meta = std::fs::metadata(&path.1).ok()?;
    let made = meta.created().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    Some(format!("{}-{}", meta.ino(), made.map_or(0, |t| t.as_nanos())))
}

/// The socket of the backup job that a domain has; `None` where it has none.
fn job_socket(virsh: &Virsh) -> Result<Option<PathBuf>> {
    let job = match virsh.of_domain("backup-dumpxml", &[]) {
        Err(e) if format!("{e:#}").contains("no domain backup job") => return Ok(None),
        other => other?,
    };
    let document = roxmltree::Document::parse(&job).context("libvirt's description of a job is not XML")?;
    let server = document.descendants().find(|n| n.has_tag_name("server"));
    Ok(Some(server.and_then(|s| s.attribute("socket")).map(PathBuf::from).unwrap_or_default()))
}

fn refused(why: &str) -> Result<()> {
    Err(VaultError::Refused(why.to_owned()).into())
}

/// Ends a job of ours whose backup process has died.
fn end_abandoned(virsh: &Virsh) -> Result<()> {
    let Some(socket) = job_socket(virsh)? else { return Ok(()) };
    let domain = virsh.domain();
    if !scratch::is_ours(&socket) {
        return refused(&format!("libvirt domain {domain}: another program's backup of it is running; wait for it, or end it (virsh domjobabort)"));
    }
    if let Some(by) = scratch::holder(&socket) {
        return refused(&format!(
            "libvirt domain {domain}: another backup of it is running: {by}; try again when it is done"
        ));
    }
    if !socket.parent().is_some_and(Path::exists) {
        // It may live in another container, or on another host.
        return refused(&format!(
            "libvirt domain {domain}: has a backup job with the socket {}, which is not here; if its backup has died, \
             end it (virsh domjobabort)",
            socket.display()
        ));
    }
    abort_job(virsh)
}

/// Ends the domain's backup job, and waits until it has ended: libvirt answers earlier, and a backup that comes next would
/// find a job that is not its own.
fn abort_job(virsh: &Virsh) -> Result<()> {
    virsh.of_domain("domjobabort", &[])?;
    let start = Instant::now();
    while job_socket(virsh)?.is_some() {
        ensure!(
            start.elapsed() < JOB_PATIENCE,
            "libvirt domain {}: its backup job does not end",
            virsh.domain()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
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
