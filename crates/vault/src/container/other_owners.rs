//! The other owners of containers that a disk references. Of each, its reader is kept and which manifest was read. The
//! lists of its manifest are in a cache that all owners share, however many there are.

use crate::base::error::{Result, VaultError};
use crate::base::lru::{Lru, SharedLru};
use crate::base::memory::{give_back, Room, KEPT_BYTES};
use crate::manifest::container_table::Containers;
use crate::manifest::folder::{Folder, MANIFEST_ROOM_BYTES};
use crate::manifest::reader::{Reader, ReaderLease};
use format::{ContainerEntry, ContainerId, DiskId, Manifest, OwnerNo, Sequence};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use store::Tag;

/// Memory for the lists of owners that were looked at last, in bytes, but for one that takes more. Most take a few hundred.
pub(crate) const LISTINGS_BYTES: usize = 8 << 20;
/// What a listing takes in the cache beside its contents, in bytes, about.
const SLOT_BYTES: usize = 192;

/// Another owner of containers that a disk references.
pub(crate) struct OtherOwner {
    pub folder: Folder,
    /// None where nothing is held.
    reader: Option<ReaderLease>,
    /// Which manifest was read first.
    sequence: Sequence,
    /// Which one was read last.
    listed: AtomicU64,
    /// The one that was decoded last to learn whether it has changed.
    seen: Mutex<Option<(Tag, Sequence)>>,
}

/// What an owner's manifest says of its containers.
struct Listing {
    /// Which manifest it is.
    sequence: Sequence,
    containers: Containers,
    /// Those that were found damaged, in order.
    damaged: Box<[ContainerId]>,
}

/// What was read last of owners. All disks whose snapshots are open share one.
#[derive(Clone)]
pub(crate) struct OwnerCache {
    /// By owner and by its manifest's sequence.
    listings: SharedLru<(DiskId, Sequence), Arc<Listing>>,
    /// Held while a manifest is read: it may take any memory that a manifest may.
    reading: Arc<Mutex<()>>,
    room: Room,
}

/// What an owner says of a container.
pub(crate) struct OwnersEntry {
    pub owner: Arc<OtherOwner>,
    /// As the owner names it; none where it has no such container.
    pub entry: Option<ContainerEntry>,
    pub is_damaged: bool,
}

/// The other owners that a disk counts. One is opened when the first of its containers is looked up.
pub(crate) struct OtherOwners {
    /// The disk's own.
    folder: Folder,
    /// Whether readers are held, so that nothing of the owners goes as long as this lives.
    lease: bool,
    known: Mutex<Known>,
    cache: OwnerCache,
}

/// What is known of them.
struct Known {
    /// As the disk counts them.
    disks: Vec<DiskId>,
    opened: HashMap<OwnerNo, std::result::Result<Arc<OtherOwner>, Fault>>,
    /// Those without a manifest: there may be hundreds of thousands.
    missing: HashSet<OwnerNo>,
}

/// Why another owner's containers cannot be found.
#[derive(Clone)]
enum Fault {
    Missing(String),
    Corrupt { object: String, why: String },
    Newer { object: String, why: String },
}

impl Fault {
    fn of(e: VaultError) -> Result<Fault> {
        match e {
            VaultError::Missing { object } => Ok(Fault::Missing(object)),
            VaultError::Corrupt { object, why } => Ok(Fault::Corrupt { object, why }),
            VaultError::Newer { object, why } => Ok(Fault::Newer { object, why }),
            e => Err(e),
        }
    }

    fn into_error(self) -> VaultError {
        match self {
            Fault::Missing(object) => VaultError::Missing { object },
            Fault::Corrupt { object, why } => VaultError::Corrupt { object, why },
            Fault::Newer { object, why } => VaultError::Newer { object, why },
        }
    }
}

impl OwnerCache {
    /// One of about so many bytes of lists.
    pub fn new(bytes: usize, room: Room) -> OwnerCache {
        let listings = Arc::new(Mutex::new(Lru::new(bytes)));
        OwnerCache { listings, reading: Arc::default(), room }
    }

    /// Takes what an owner's manifest lists.
    fn list(&self, folder: &Folder, m: &Manifest) -> Arc<Listing> {
        let mut damaged: Box<[ContainerId]> = m.damaged.as_slice().into();
        damaged.sort_unstable();
        let containers = Containers::new(folder.clone(), m);
        let bytes = containers.memory_bytes() + size_of_val(&damaged[..]) + SLOT_BYTES;
        let listing = Arc::new(Listing { sequence: m.sequence, containers, damaged });
        self.listings.lock().insert((folder.disk, m.sequence), listing.clone(), bytes);
        listing
    }

    fn listing(&self, owner: &OtherOwner) -> Option<Arc<Listing>> {
        let key = (owner.folder.disk, Sequence(owner.listed.load(Ordering::Relaxed)));
        self.listings.lock().get(&key)
    }

    /// What an owner's manifest lists. Where it is no longer in memory it is read again; what the owner has changed since is
    /// in it, and what a reader of the older one needs is there.
    fn read_listing(&self, owner: &OtherOwner) -> Result<Arc<Listing>> {
        if let Some(listing) = self.listing(owner) {
            return Ok(listing);
        }
        let _alone = self.reading.lock();
        // Another thread may have read it meanwhile.
        if let Some(listing) = self.listing(owner) {
            return Ok(listing);
        }
        let _room = self.room.take(MANIFEST_ROOM_BYTES);
        let m = Arc::new(owner.folder.load_root()?);
        owner.listed.store(m.sequence.0, Ordering::Relaxed);
        let listing = self.list(&owner.folder, &m);
        give_manifest_back(m);
        Ok(listing)
    }

    /// Reads an owner's manifest for the first time.
    fn open(&self, folder: Folder, lease: bool) -> Result<OtherOwner> {
        let _room = self.room.take(MANIFEST_ROOM_BYTES);
        let (reader, manifest) = if lease {
            Reader::open_owner(&folder)?.into_parts()
        } else {
            (None, Arc::new(folder.load_root()?))
        };
        let sequence = manifest.sequence;
        self.list(&folder, &manifest);
        give_manifest_back(manifest);
        Ok(OtherOwner {
            folder,
            reader,
            sequence,
            listed: AtomicU64::new(sequence.0),
            seen: Mutex::default(),
        })
    }
}

/// Drops a manifest.
fn give_manifest_back(m: Arc<Manifest>) {
    let bytes = m.memory_bytes();
    drop(m);
    if bytes > KEPT_BYTES {
        give_back();
    }
}

impl OtherOwners {
    /// Those that the manifest of a disk counts. With `lease`, they are kept from removing what is read.
    pub fn new(folder: &Folder, m: &Manifest, lease: bool, cache: OwnerCache) -> OtherOwners {
        let known = Known { disks: m.owners.clone(), opened: HashMap::new(), missing: HashSet::new() };
        OtherOwners { folder: folder.clone(), lease, known: Mutex::new(known), cache }
    }

    /// The number by which the disk counts an owner: a new one, if it does not count it yet. `None` if it counts too many.
    pub fn count(&self, disk: DiskId) -> Option<OwnerNo> {
        if disk == self.folder.disk {
            return Some(OwnerNo::OWN);
        }
        let disks = &mut self.known.lock().disks;
        let at = disks.iter().position(|d| *d == disk).unwrap_or(disks.len());
        let no = Some(OwnerNo(at as u32 + 1)).filter(|no| *no < OwnerNo::MAX)?;
        if at == disks.len() {
            disks.push(disk);
        }
        Some(no)
    }

    /// All of them, as the disk counts them.
    pub fn disks(&self) -> Vec<DiskId> {
        self.known.lock().disks.clone()
    }

    /// The one of a number.
    pub fn disk(&self, no: OwnerNo) -> Option<DiskId> {
        no.0.checked_sub(1).and_then(|n| self.known.lock().disks.get(n as usize).copied())
    }

    /// An owner.
    pub fn get(&self, no: OwnerNo) -> Result<Arc<OtherOwner>> {
        let Some(disk) = self.disk(no) else {
            let why = format!("has no owner of number {}", no.0);
            return Err(VaultError::corrupt(&self.folder.manifest_name(), why));
        };
        let folder = self.folder.of(disk);
        let known = |known: &Known| match known.opened.get(&no) {
            None if known.missing.contains(&no) => Some(Err(Fault::Missing(folder.manifest_name()))),
            opened => opened.cloned(),
        };
        let opened = known(&self.known.lock());
        if let Some(opened) = opened {
            return opened.map_err(Fault::into_error);
        }
        let _alone = self.cache.reading.lock();
        let opened = known(&self.known.lock());
        if let Some(opened) = opened {
            return opened.map_err(Fault::into_error);
        }
        let opened = match self.cache.open(folder.clone(), self.lease) {
            Ok(owner) => Ok(Arc::new(owner)),
            Err(VaultError::Missing { object }) if object == folder.manifest_name() => {
                self.known.lock().missing.insert(no);
                return Err(VaultError::Missing { object });
            }
            Err(e) => Err(Fault::of(e)?),
        };
        self.known.lock().opened.insert(no, opened.clone());
        opened.map_err(Fault::into_error)
    }

    /// Whether an owner was looked up and could not be read.
    pub fn is_unreadable(&self, no: OwnerNo) -> bool {
        let known = self.known.lock();
        known.missing.contains(&no) || known.opened.get(&no).is_some_and(std::result::Result::is_err)
    }

    /// What its owner says of a container. Where nobody holds its table, a change of the owner may have replaced a page since
    /// its manifest was read: then that is read anew. A page that is missing though the manifest has not changed is damage.
    pub fn entry(&self, id: ContainerId) -> Result<OwnersEntry> {
        let owner = self.get(id.owner())?;
        let listing = self.cache.read_listing(&owner)?;
        let (listing, entry) = match listing.containers.get(id.local()) {
            Err(VaultError::Missing { .. }) if self.has_changed(&owner, listing.sequence) => {
                self.cache.listings.lock().remove_all(|key| key.0 == owner.folder.disk);
                let listing = self.cache.read_listing(&owner)?;
                let entry = listing.containers.get(id.local())?;
                (listing, entry)
            }
            entry => (listing, entry?),
        };
        let is_damaged = listing.damaged.binary_search(&id.local()).is_ok();
        Ok(OwnersEntry { owner, entry, is_damaged })
    }

    /// Whether its owner lists a container as damaged; not where the owner cannot be read.
    pub fn list(&self, id: ContainerId) -> bool {
        let listing = self.get(id.owner()).and_then(|owner| self.cache.read_listing(&owner));
        listing.is_ok_and(|listing| listing.damaged.binary_search(&id.local()).is_ok())
    }

    /// Forgets what the owner of a container said, if its manifest is another one now: the owner may have replaced the table.
    /// Returns whether it is.
    pub fn ask_again(&self, id: ContainerId) -> Result<bool> {
        let owner = self.get(id.owner())?;
        let listing = self.cache.read_listing(&owner)?;
        let has_changed = self.has_changed(&owner, listing.sequence);
        if has_changed {
            self.cache.listings.lock().remove_all(|key| key.0 == owner.folder.disk);
        }
        Ok(has_changed)
    }

    fn has_changed(&self, owner: &OtherOwner, sequence: Sequence) -> bool {
        let _alone = self.cache.reading.lock();
        owner.has_changed_since(sequence)
    }

    /// Stops where the lease of a reader has lapsed.
    pub fn check(&self) -> Result<()> {
        self.opened().iter().try_for_each(|owner| owner.reader.as_ref().map_or(Ok(()), ReaderLease::check))
    }

    /// Whether what is missing or wrong may have been deleted while it was read.
    pub fn may_have_lost(&self) -> bool {
        self.opened().iter().any(|owner| owner.may_have_lost())
    }

    fn opened(&self) -> Vec<Arc<OtherOwner>> {
        self.known.lock().opened.values().filter_map(|opened| opened.as_ref().ok().cloned()).collect()
    }
}

impl OtherOwner {
    /// Whether what is missing may have been removed while it was read.
    fn may_have_lost(&self) -> bool {
        self.has_changed_since(self.sequence)
    }

    /// Whether nothing is held and the manifest is another one now.
    fn has_changed_since(&self, sequence: Sequence) -> bool {
        self.reader.is_none()
            && self.folder.sequence_now(&mut self.seen.lock()).map_or(true, |now| now != sequence)
    }
}
