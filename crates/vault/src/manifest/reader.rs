//! Readers: while a process reads a disk, it holds a lease on a reader object, so that no object it may need is
//! removed.
//!
//! If the store is full, read-only or fails to write, no reader object can be put. The process then reads without a
//! lease, and a notice says so once: if another process deletes an object that is being read, the read fails
//! ([`Reader::is_leased`]).

use crate::base::error::{Result, VaultError};
use crate::base::random::random_token;
use crate::manifest::folder::Folder;
use format::{names, Manifest, ReaderRecord, Sequence};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use store::{Lease, Reserve, StoreError, Tag};

/// Says that readers are not registered, once.
fn not_held(why: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        store::notice(&format!(
            "cannot register as a reader ({why}): if another process deletes snapshots meanwhile, this may fail"
        ));
    }
}

/// Why the store takes no reader object; `None` for errors that reading would meet too.
fn why_not(e: &StoreError) -> Option<String> {
    match e {
        StoreError::Unwritable { why, .. } => why.split(';').next().map(str::to_owned),
        StoreError::Full { .. } => Some("no space left".into()),
        StoreError::Io { source, .. } | StoreError::Unreadable { source, .. } => Some(source.to_string()),
        // By an earlier reader of the same handle.
        StoreError::Poisoned { .. } => Some("an earlier write failed".into()),
        _ => None,
    }
}

/// Keeps what the manifest names readable until it is dropped.
pub(crate) struct Reader {
    /// `None` where the store takes no reader object.
    lease: Option<ReaderLease>,
    pub manifest: Arc<Manifest>,
}

/// A reader object that is held.
pub(crate) struct ReaderLease(Box<dyn Lease>);

impl ReaderLease {
    /// Stops a reader whose lease has lapsed: what it reads may be gone.
    pub fn check(&self) -> Result<()> {
        if self.0.is_valid() {
            return Ok(());
        }
        Err(VaultError::Refused(format!("{}: this reader's lease has lapsed; run it again", self.0.name())))
    }
}

impl Reader {
    /// Leases a reader object, then reads the manifest.
    pub fn open(folder: &Folder) -> Result<Reader> {
        let (manifest, tag) = folder.load_root_tagged()?;
        Reader::lease(folder, manifest.sequence, Some((manifest, tag)))
    }

    /// The same for an owner that may be gone: a disk may count hundreds of thousands of these. Nothing that lasts is decided
    /// by its absence.
    pub fn open_owner(folder: &Folder) -> Result<Reader> {
        Reader::lease(folder, folder.glance()?.sequence, None)
    }

    /// Registers, and reads the manifest anew: another one may have replaced what was `known` before.
    fn lease(folder: &Folder, since: Sequence, known: Option<(Manifest, Tag)>) -> Result<Reader> {
        let name = names::reader(folder.disk, random_token()?);
        let frame = ReaderRecord { since }.encode(folder.context(&name));
        let lease = match folder.with_reserve(folder.reserve.max(Reserve::Part)).store.lease(&name, &frame) {
            Ok(lease) => Some(ReaderLease(lease)),
            Err(e) => {
                not_held(&why_not(&e).ok_or(e)?);
                None
            }
        };
        let manifest = match known {
            Some((manifest, tag)) => folder.load_root_again(manifest, tag)?,
            None => folder.load_root()?,
        };
        Ok(Reader { lease, manifest: Arc::new(manifest) })
    }

    /// Whether what it reads is kept from being removed.
    pub fn is_leased(&self) -> bool {
        self.lease.is_some()
    }

    /// Stops a reader whose lease has lapsed: what it reads may be gone.
    pub fn check(&self) -> Result<()> {
        self.lease.as_ref().map_or(Ok(()), ReaderLease::check)
    }

    /// The lease without the manifest, for who has taken from that what it needs.
    pub fn into_parts(self) -> (Option<ReaderLease>, Arc<Manifest>) {
        (self.lease, self.manifest)
    }
}
