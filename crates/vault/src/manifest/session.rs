//! Sessions: the right to change a folder, held by a process.
//!
//! A session takes a lease on an object, then registers a writer in the manifest. The same swap chooses the parent. So
//! the manifest lists every parent, and nothing that a parent references is removed. A writer whose lease has ended is
//! dead. Removing it from the manifest fences it: it cannot commit.

use crate::base::calendar::format_time;
use crate::base::error::{Result, VaultError};
use crate::base::random::random_token;
use crate::manifest::edit::ManifestEdit;
use crate::manifest::folder::Folder;
use crate::manifest::listing::for_each_name;
use crate::manifest::names::delete_names;
use crate::manifest::rollback::{self, Evidence};
use crate::manifest::vault::now;
use format::Token;
use format::{names, Manifest, SessionRecord, SnapshotEntry, Writer, WriterKind, WriterNo};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store::{Lease, ObjectStore, Reserve, StoreError};

/// A registered writer. Dropped without [`Session::commit`], it takes back what it put.
pub(crate) struct Session {
    pub folder: Folder,
    pub writer: WriterNo,
    pub token: Token,
    pub parent: Option<SnapshotEntry>,
    /// The manifest in which it was registered.
    pub manifest: Manifest,
    /// The commit records that are older than the next one.
    evidence: Mutex<Evidence>,
    lease: Option<Box<dyn Lease>>,
    put: Mutex<Vec<String>>,
    next_page: Mutex<u32>,
    /// Writers of dead backups whose objects are this session's now.
    pub adopted: Vec<WriterNo>,
    /// Whether what it has put stays if it does not commit, for the next one to adopt.
    leaves: AtomicBool,
    ended: bool,
}

/// What the session of maintenance says.
const MAINTENANCE: &str = "maintenance run";
/// What a session says of a copy from another vault.
const RESUMING: &str = "copy";
const RENAMING: &str = "renaming";
const REPAIR: &str = "repair";

/// The manifest that lists the writer, its number, the commit records before, and the writers that were adopted.
struct Registered {
    manifest: Manifest,
    writer: WriterNo,
    evidence: Evidence,
    adopted: Vec<WriterNo>,
}

/// Another session has the disk.
struct Occupied {
    disk: String,
    holder: String,
    patience: Patience,
}

/// After so long a wait people are told who is waited for.
const QUIET: Duration = Duration::from_secs(5);

fn next_after(folder: &Folder, no: WriterNo) -> Result<WriterNo> {
    let used_up = || VaultError::Refused(format!("{}: all writer numbers are used up", folder.path));
    Some(WriterNo(no.0 + 1)).filter(|_| no < WriterNo::MAX).ok_or_else(used_up)
}

/// Holds the object that shows a session to live.
pub(crate) fn lease_session(folder: &Folder, kind: &str) -> Result<(Token, Box<dyn Lease>)> {
    let token = random_token()?;
    let name = names::session(token);
    Ok((token, folder.store.lease(&name, &record(folder, &name, kind))?))
}

/// What a session's object says: the work, and whose it is.
fn record(folder: &Folder, name: &str, work: &str) -> Vec<u8> {
    let (host, process) = (locks::host_name(), std::process::id());
    SessionRecord { work: work.to_owned(), host, process, since: now() }.encode(folder.context(name))
}

/// What the session of a collection says that takes an empty disk away.
const REMOVAL: &str = "removal of an empty disk";
/// How the work of `sapwood compact --recompress` is called in session objects.
const RECOMPRESSION: &str = "recompression";
/// It gives the disk up every ten seconds, when what it has begun is packed.
const RECOMPRESSION_WAIT: Duration = Duration::from_secs(60);

/// How long a backup waits at most for such a removal, which takes milliseconds.
const REMOVAL_WAIT: Duration = Duration::from_secs(30);

/// How long those wait who otherwise would not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Patience {
    #[default]
    None,
    /// Until the removal of an empty disk has ended.
    OfRemoval,
    /// Until recompression gives the disk's maintenance up for a moment.
    OfRecompression,
}

/// Who holds a session, for those who wait for it, and how long they do.
fn holder(folder: &Folder, token: Token) -> (String, Patience) {
    let name = names::session(token);
    let read = folder.store.read(&name, 1 << 16).ok();
    match read.and_then(|bytes| SessionRecord::decode(folder.context(&name), &bytes).ok()) {
        Some(SessionRecord { work, host, process, since }) => {
            let since = format_time(since);
            let patience = match &*work {
                REMOVAL => Patience::OfRemoval,
                RECOMPRESSION => Patience::OfRecompression,
                _ => Patience::None,
            };
            (format!("a {work} (host {host}, process {process}, since {since})"), patience)
        }
        None => (format!("a session whose object {name} cannot be read"), Patience::None),
    }
}

/// Whether the process that registered a writer is alive. One whose session object cannot be read may be.
pub(crate) fn is_alive(store: &dyn ObjectStore, token: Token) -> Result<bool> {
    match store.is_leased(&names::session(token)) {
        Err(StoreError::Unreadable { .. }) => Ok(true),
        other => Ok(other?),
    }
}

impl Session {
    /// Registers a writer. A second live backup of a disk is refused; maintenance waits for other maintenance.
    pub fn begin(folder: &Folder, kind: WriterKind) -> Result<Session> {
        match kind {
            WriterKind::Backup => Self::register_within(folder, kind, "backup", Duration::ZERO),
            WriterKind::Maintenance => Self::register_within(folder, kind, MAINTENANCE, folder.patience),
        }
    }

    /// Registers a backup that goes on with what killed ones of the disk have written: `gc` does not remove it any more.
    pub fn begin_resuming(folder: &Folder) -> Result<Session> {
        Self::register_within(folder, WriterKind::Backup, RESUMING, Duration::ZERO)
    }

    /// Registers as a backup would, to take an empty disk away: no backup can begin meanwhile. Refused at once where one
    /// has the disk.
    pub fn begin_removal(folder: &Folder) -> Result<Session> {
        Self::register_within(folder, WriterKind::Backup, REMOVAL, Duration::ZERO)
    }

    /// Registers as a backup would, to give the disk another name.
    pub fn begin_renaming(folder: &Folder) -> Result<Session> {
        Self::register_within(folder, WriterKind::Backup, RENAMING, Duration::ZERO)
    }

    /// Registers as a backup would, so that none runs while recipes are made again.
    pub fn begin_repair(folder: &Folder) -> Result<Session> {
        Self::register_within(folder, WriterKind::Backup, REPAIR, Duration::ZERO)
    }

    /// Registers maintenance that packs containers again, for some seconds: others wait for it.
    pub fn begin_recompression(folder: &Folder) -> Result<Session> {
        Self::register_within(folder, WriterKind::Maintenance, RECOMPRESSION, folder.patience)
    }

    /// Registers maintenance that can as well be done later: refused at once where other maintenance has the folder, but
    /// recompression.
    pub fn begin_if_free(folder: &Folder) -> Result<Session> {
        Self::register_within(folder, WriterKind::Maintenance, MAINTENANCE, Duration::ZERO)
    }

    fn register_within(folder: &Folder, kind: WriterKind, work: &str, wait: Duration) -> Result<Session> {
        let (token, lease) = lease_session(folder, work)?;
        let start = Instant::now();
        let mut is_told = false;
        loop {
            match Self::register(folder, kind, token, work == RESUMING)? {
                Ok(Registered { manifest, writer, evidence, adopted }) => {
                    let newest = folder.newest(&manifest)?;
                    let parent = newest.filter(|_| kind == WriterKind::Backup);
                    return Ok(Session {
                        folder: folder.clone(),
                        writer,
                        token,
                        parent,
                        manifest,
                        evidence: Mutex::new(evidence),
                        lease: Some(lease),
                        put: Mutex::default(),
                        next_page: Mutex::default(),
                        adopted,
                        leaves: AtomicBool::new(false),
                        ended: false,
                    });
                }
                Err(Occupied { disk, holder, patience }) => {
                    // A backup does not wait for another one, but for the removal of its disk, after which it begins anew.
                    let wait = match patience {
                        Patience::OfRemoval if work != REMOVAL => wait.max(folder.patience.min(REMOVAL_WAIT)),
                        Patience::OfRecompression => wait.max(folder.patience.min(RECOMPRESSION_WAIT)),
                        _ => wait,
                    };
                    if start.elapsed() >= wait {
                        return Err(VaultError::Busy { disk, holder });
                    }
                    if !is_told && start.elapsed() >= QUIET {
                        is_told = true;
                        let most = wait.as_secs();
                        store::notice(&format!(
                            "{disk}: waiting for {holder}, which locks it, for {most} s at most"
                        ));
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }

    fn register(
        folder: &Folder,
        kind: WriterKind,
        token: Token,
        adopts: bool,
    ) -> Result<std::result::Result<Registered, Occupied>> {
        let evidence = Evidence::of_commits(folder)?;
        let mut patience = Patience::None;
        let registered = folder.update(|m| {
            evidence.check_update(folder, m)?;
            for other in m.writers.iter().filter(|w| w.kind == kind) {
                if is_alive(&*folder.store, other.token)? {
                    let disk = if m.name.is_empty() { folder.path.clone() } else { m.name.clone() };
                    let (holder, of_holder) = holder(folder, other.token);
                    // It may have ended between the two looks.
                    if !is_alive(&*folder.store, other.token)? {
                        continue;
                    }
                    patience = of_holder;
                    return Err(VaultError::Busy { disk, holder });
                }
            }
            m.writers.retain(|w| w.kind != kind || adopts);
            let sequence = m.sequence;
            let mut adopted = Vec::new();
            for dead in m.writers.iter_mut().filter(|w| w.kind == kind) {
                adopted.push(dead.no);
                *dead = Writer { no: dead.no, token, kind, parent: None, since: sequence };
            }
            let no = m.next_writer;
            m.next_writer = next_after(folder, no)?;
            let is_backup = kind == WriterKind::Backup;
            let parent = if is_backup { folder.newest(m)?.map(|s| s.id) } else { None };
            m.writers.push(Writer { no, token, kind, parent, since: m.sequence });
            Ok((no, adopted))
        });
        match registered {
            Ok((manifest, (writer, adopted))) => Ok(Ok(Registered { manifest, writer, evidence, adopted })),
            Err(VaultError::Busy { disk, holder }) => Ok(Err(Occupied { disk, holder, patience })),
            Err(e) => Err(e),
        }
    }

    /// Remembers an object that goes if the session does not commit.
    pub fn wrote(&self, object: String) {
        self.put.lock().push(object);
    }

    /// Whether its lease still stands.
    pub fn check(&self) -> Result<()> {
        match &self.lease {
            Some(h) if !h.is_valid() => Err(self.fenced(&self.manifest)),
            _ => Ok(()),
        }
    }

    fn fenced(&self, m: &Manifest) -> VaultError {
        VaultError::Fenced { disk: m.name.clone() }
    }

    /// Puts a record of the manifest as it is now, before the session ends.
    pub fn record_now(&self, m: &Manifest) -> Result<()> {
        if rollback::record_now(&self.folder, m)? {
            self.evidence.lock().add_commit(m.sequence);
        }
        Ok(())
    }

    /// Changes the manifest as this writer and stays registered. What it has put so far belongs to the manifest.
    pub fn swap<T>(
        &self,
        mut change: impl FnMut(&mut ManifestEdit<'_>) -> Result<T>,
    ) -> Result<(Manifest, T)> {
        self.check()?;
        let mut next_page = self.next_page.lock();
        let out = self.folder.replace(|m, put| {
            // Another session may have taken over what a dead one has written, under its number.
            if !m.writers.iter().any(|w| w.no == self.writer && w.token == self.token) {
                return Err(self.fenced(m));
            }
            let (folder, writer) = (&self.folder, self.writer);
            let mut edit = ManifestEdit { folder, writer, manifest: m, put, next_page: &mut next_page };
            let value = change(&mut edit)?;
            edit.fold_snapshots()?;
            Ok(value)
        });
        if matches!(out, Ok(_) | Err(VaultError::Uncertain { .. })) {
            self.put.lock().clear();
        }
        out
    }

    /// Goes on under another number: what it wrote so far has its names for itself.
    pub fn renew(&mut self) -> Result<()> {
        let writer = self.writer;
        let folder = self.folder.clone();
        let (_, fresh) = self.swap(|m| {
            let no = m.next_writer;
            m.next_writer = next_after(&folder, no)?;
            m.writers.iter_mut().filter(|w| w.no == writer).for_each(|w| w.no = no);
            Ok(no)
        })?;
        self.writer = fresh;
        Ok(())
    }

    /// The last change: the writer is no longer registered afterwards.
    pub fn commit<T>(self, change: impl FnMut(&mut ManifestEdit<'_>) -> Result<T>) -> Result<(Manifest, T)> {
        let (m, value, _) = self.commit_on_record(change)?;
        Ok((m, value))
    }

    /// The same; also returns whether it is on record.
    pub fn commit_on_record<T>(
        mut self,
        mut change: impl FnMut(&mut ManifestEdit<'_>) -> Result<T>,
    ) -> Result<(Manifest, T, bool)> {
        let token = self.token;
        let (m, value) = self.swap(|m| {
            let value = change(m)?;
            m.writers.retain(|w| w.token != token);
            Ok(value)
        })?;
        self.ended = true;
        let is_recorded = rollback::record(&self.folder, &m, &self.evidence.lock());
        Ok((m, value, is_recorded))
    }

    /// What it has put stays, and its writers stay registered, as if it were killed: the next one that resumes adopts them.
    pub fn leave(&self) {
        self.leaves.store(true, Ordering::Relaxed);
    }

    /// Ends without a change.
    pub fn end(self) -> Result<()> {
        self.commit(|_| Ok(())).map(|_| ())
    }
}

impl Drop for Session {
    /// As far as it is possible; `gc` finds the rest.
    fn drop(&mut self) {
        if self.ended || self.leaves.load(Ordering::Relaxed) {
            return;
        }
        // What failed for want of space must not leave less of it.
        let folder = self.folder.with_reserve(Reserve::Whole);
        for object in self.put.lock().drain(..) {
            let _ = folder.store.delete(&object);
        }
        let (writer, token) = (self.writer, self.token);
        let ended = folder.update(|m| {
            let is_ours = |w: &Writer| w.token == token && w.kind == WriterKind::Backup;
            let is_alone = !m.writers.is_empty() && m.writers.iter().all(is_ours);
            let takes_away = is_alone && !folder.is_popular() && is_empty(m) && !has_newer(&folder, writer)?;
            if !takes_away {
                m.writers.retain(|w| w.token != token);
            }
            Ok(takes_away)
        });
        // As long as its writer is registered and held, no other backup begins.
        if let Ok((m, true)) = ended {
            if let Some(lease) = &mut self.lease {
                // So that a backup which meets it waits.
                let _ = lease.replace(&record(&folder, &names::session(self.token), REMOVAL));
            }
            let _ = remove_disk(&folder, &m);
        }
    }
}

/// Whether a folder has objects that this writer or a later one has put: where the manifest was rolled back, they are
/// not garbage.
fn has_newer(folder: &Folder, writer: WriterNo) -> Result<bool> {
    let mut found = false;
    for_each_name(&*folder.store, &folder.path, |name| {
        found |= names::writer_of(&name).is_some_and(|w| w >= writer);
    })?;
    Ok(found)
}

/// Whether a disk has no snapshot, and nothing else that its manifest names.
pub(crate) fn is_empty(m: &Manifest) -> bool {
    m.recent.is_empty() && m.pages.is_empty() && m.released.is_empty() && m.unswept.is_empty()
}

/// Removes an empty disk: its names first, so that a name that is found leads to a manifest.
fn remove_disk(folder: &Folder, m: &Manifest) -> Result<()> {
    delete_names(folder, std::slice::from_ref(&m.name))?;
    delete_names(folder, &m.other_names)?;
    folder.remove().map(drop)
}

/// Takes writers that no longer live out of the manifest: they cannot commit any more.
pub(crate) fn fence_dead(session: &Session) -> Result<()> {
    let folder = &session.folder;
    let mut dead: HashSet<Token> = HashSet::new();
    for w in folder.load_root()?.writers {
        if w.no != session.writer && !is_alive(&*folder.store, w.token)? {
            dead.insert(w.token);
        }
    }
    if !dead.is_empty() {
        session.swap(|m| {
            m.writers.retain(|w| !dead.contains(&w.token));
            Ok(())
        })?;
    }
    Ok(())
}

/// The same for one dead session, by who is about to ignore what it has claimed. A manifest that was rolled back stays as
/// it is: one sequence more may hide that.
pub(crate) fn fence(folder: &Folder, session: Token) -> Result<()> {
    let is_its = |w: &Writer| w.token == session;
    if folder.load_tagged()?.is_some_and(|(m, _)| m.writers.iter().any(is_its)) {
        let evidence = Evidence::of_commits(folder)?;
        folder.update(|m| {
            evidence.check_update(folder, m)?;
            m.writers.retain(|w| !is_its(w));
            Ok(())
        })?;
    }
    Ok(())
}

/// The same for all dead maintenance of a folder. Returns whether other maintenance of it is alive.
pub(crate) fn fence_dead_maintenance(folder: &Folder) -> Result<bool> {
    let Some((m, _)) = folder.load_tagged()? else { return Ok(false) };
    let mut is_maintained = false;
    for w in m.writers.iter().filter(|w| w.kind == WriterKind::Maintenance) {
        if is_alive(&*folder.store, w.token)? {
            is_maintained = true;
        } else {
            fence(folder, w.token)?;
        }
    }
    Ok(is_maintained)
}

/// Takes a disk away that has no snapshot and nothing else: its first backup was killed, or all were deleted.
pub(crate) fn remove_if_empty(folder: &Folder) -> Result<()> {
    match folder.load_tagged()? {
        Some((m, _)) if is_empty(&m) => {}
        _ => return Ok(()),
    }
    match Session::begin_removal(&folder.with_reserve(Reserve::Whole)) {
        // As a backup that fails does; none can begin meanwhile.
        Ok(session) => drop(session),
        Err(VaultError::Busy { .. } | VaultError::Missing { .. }) => {}
        Err(e) => return Err(e),
    }
    Ok(())
}
