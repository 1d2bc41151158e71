//! A vault as a tree of files: `VM/DISK/SNAPSHOT.raw`, and links to them named `latest.raw` and by their times.

use super::snapshot::SnapshotDevice;
use super::OpenVault;
use crate::tags::is_tar;
use export::{Attributes, BlockDevice, Entry, Extent, NodeId, NodeKind, Tree};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};
use vault::{format_time, Listing, ReadCache, SnapshotEntry, VaultError};

/// The vault is listed again after this time, and listing takes a tenth of the time at most.
const LISTING_VALID: Duration = Duration::from_secs(1);
const LISTING_PART: u32 = 10;

/// The vault as a tree. Snapshots that are open share one cache.
pub struct VaultTree {
    vault: OpenVault,
    cache: Arc<ReadCache>,
    nodes: Mutex<Nodes>,
    damaged: Arc<Damaged>,
}

/// The nodes of the tree. Numbers count from 1; a path keeps its number while it exists, and no number is used again.
struct Nodes {
    numbers: HashMap<String, NodeId>,
    nodes: HashMap<NodeId, Node>,
    last: NodeId,
    /// What there is now: the entries of each directory.
    entries: HashMap<NodeId, BTreeMap<String, NodeId>>,
    /// When to list the vault again.
    due: Instant,
}

#[derive(Clone)]
struct Node {
    path: String,
    modified: SystemTime,
    what: NodeContent,
}

#[derive(Clone)]
enum NodeContent {
    Directory { data_bytes: u64 },
    File(Arc<SnapshotFile>),
    Link(String),
}

struct SnapshotFile {
    disk: String,
    snapshot: String,
    size: u64,
    data_bytes: u64,
    /// While anybody has it open.
    open: Mutex<Weak<OpenFile>>,
}

struct OpenFile {
    device: SnapshotDevice,
    name: String,
    damaged: Arc<Damaged>,
}

/// Damage that was met, for the report at the end.
#[derive(Default)]
struct Damaged {
    lines: Mutex<BTreeSet<String>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock()
}

impl VaultTree {
    /// The tree of a vault, whose snapshots are read through a cache.
    pub fn new(vault: OpenVault, cache: Arc<ReadCache>) -> io::Result<VaultTree> {
        let nodes = Mutex::new(Nodes::new());
        let tree = VaultTree { vault, cache, nodes, damaged: Arc::default() };
        drop(tree.nodes_now()?);
        Ok(tree)
    }

    /// Disks and snapshots that there are.
    pub fn count(&self) -> io::Result<(usize, usize)> {
        let nodes = self.nodes_now()?;
        let files = || nodes.entries.values().flat_map(BTreeMap::values).filter_map(|id| nodes.file(*id));
        let disks: BTreeSet<&str> = files().map(|f| f.disk.as_str()).collect();
        Ok((disks.len(), files().count()))
    }

    /// Records the damage that was met: those that have files open keep the vault.
    pub fn record_damage(&self) {
        self.vault.record_damage();
    }

    /// A line on everything that was found to be damaged.
    pub fn damaged(&self) -> Vec<String> {
        lock(&self.damaged.lines).iter().cloned().collect()
    }

    /// The nodes, after the vault was listed if that is due.
    fn nodes_now(&self) -> io::Result<MutexGuard<'_, Nodes>> {
        let mut nodes = lock(&self.nodes);
        let start = Instant::now();
        if start >= nodes.due {
            let listing = self.cache.read_alone(|| self.vault.snapshots(None)).map_err(io::Error::other)?;
            lock(&self.damaged.lines).extend(listing.damaged.iter().cloned());
            nodes.update(&listing);
            nodes.due = Instant::now() + LISTING_VALID.max(start.elapsed() * LISTING_PART);
        }
        Ok(nodes)
    }

    fn open_anew(&self, file: &SnapshotFile) -> io::Result<OpenFile> {
        let snapshot = self.vault.open_snapshot(&file.disk, &file.snapshot, &self.cache);
        let name = format!("{}@{}", file.disk, file.snapshot);
        let snapshot = snapshot.map_err(|e| {
            if e.is_damage() {
                self.damaged.note(&name);
            }
            match e {
                VaultError::NotFound { .. } => io::Error::new(io::ErrorKind::NotFound, e),
                e => io::Error::other(e),
            }
        })?;
        let device = SnapshotDevice::new(snapshot);
        Ok(OpenFile { device, name, damaged: self.damaged.clone() })
    }
}

impl Tree for VaultTree {
    fn attributes(&self, id: NodeId) -> io::Result<Attributes> {
        // Files never change.
        if let Some(known) = lock(&self.nodes).attributes(id).filter(|a| a.kind == NodeKind::File) {
            return Ok(known);
        }
        let nodes = self.nodes_now()?;
        nodes.attributes(id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn lookup(&self, directory: NodeId, name: &str) -> io::Result<Attributes> {
        let nodes = self.nodes_now()?;
        let found = nodes.entries.get(&directory).and_then(|e| e.get(name));
        found.and_then(|id| nodes.attributes(*id)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn entries(&self, directory: NodeId) -> io::Result<Vec<Entry>> {
        let nodes = self.nodes_now()?;
        let found = nodes.entries.get(&directory).ok_or(io::ErrorKind::NotFound)?;
        let entry = |(name, id): (&String, &NodeId)| {
            Some(Entry { name: name.clone(), id: *id, kind: nodes.node(*id)?.what.kind() })
        };
        Ok(found.iter().filter_map(entry).collect())
    }

    fn link(&self, id: NodeId) -> io::Result<String> {
        match self.nodes_now()?.node(id).map(|n| &n.what) {
            Some(NodeContent::Link(target)) => Ok(target.clone()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn open(&self, id: NodeId) -> io::Result<Arc<dyn BlockDevice>> {
        let file = lock(&self.nodes).file(id).cloned().ok_or(io::ErrorKind::NotFound)?;
        // Another thread that comes meanwhile waits, and gets the same.
        let mut open = lock(&file.open);
        if let Some(shared) = open.upgrade() {
            return Ok(shared);
        }
        let opened = Arc::new(self.open_anew(&file)?);
        *open = Arc::downgrade(&opened);
        Ok(opened)
    }

    fn path(&self, id: NodeId) -> String {
        lock(&self.nodes).node(id).map_or_else(|| format!("node {}", id.0), |n| n.path.clone())
    }
}

impl Nodes {
    fn new() -> Nodes {
        let mut nodes = Nodes {
            numbers: HashMap::new(),
            nodes: HashMap::new(),
            last: NodeId(0),
            entries: HashMap::new(),
            due: Instant::now(),
        };
        nodes.put("/", SystemTime::UNIX_EPOCH, NodeContent::Directory { data_bytes: 0 });
        nodes
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    fn file(&self, id: NodeId) -> Option<&Arc<SnapshotFile>> {
        match &self.node(id)?.what {
            NodeContent::File(file) => Some(file),
            _ => None,
        }
    }

    /// What is known of a node; of a directory that is gone, nothing.
    fn attributes(&self, id: NodeId) -> Option<Attributes> {
        let node = self.node(id)?;
        let (size, data_bytes) = match &node.what {
            NodeContent::Directory { .. } if !self.entries.contains_key(&id) => return None,
            NodeContent::Directory { data_bytes } => (0, *data_bytes),
            NodeContent::File(file) => (file.size, file.data_bytes),
            NodeContent::Link(target) => (target.len() as u64, 0),
        };
        Some(Attributes { id, kind: node.what.kind(), size, data_bytes, modified: node.modified })
    }

    /// Makes or changes the node of a path.
    fn put(&mut self, path: &str, modified: SystemTime, what: NodeContent) -> NodeId {
        let id = self.numbers.get(path).copied().unwrap_or(NodeId(self.last.0 + 1));
        self.last = self.last.max(id);
        self.numbers.insert(path.to_owned(), id);
        self.nodes.insert(id, Node { path: path.to_owned(), modified, what });
        id
    }

    /// Removes nodes that do not exist any more, except for open files.
    fn forget(&mut self) {
        let there: HashSet<NodeId> = self.entries.values().flat_map(BTreeMap::values).copied().collect();
        self.nodes.retain(|id, node| *id == NodeId::ROOT || there.contains(id) || node.what.is_open());
        let nodes = &self.nodes;
        self.numbers.retain(|_, id| nodes.contains_key(id));
    }

    /// Updates the tree from a listing.
    fn update(&mut self, listing: &Listing) {
        let mut machines: BTreeMap<&str, BTreeMap<&str, Vec<&SnapshotEntry>>> = BTreeMap::new();
        for s in &listing.snapshots {
            if let Some((vm, disk)) = s.disk.split_once('/') {
                machines.entry(vm).or_default().entry(disk).or_default().push(&s.entry);
            }
        }
        self.entries.clear();
        let (mut root, mut of_root) = (BTreeMap::new(), Totals::default());
        for (vm, disks) in machines {
            let (mut below, mut of_machine) = (BTreeMap::new(), Totals::default());
            for (disk, snapshots) in disks {
                let (id, of_disk) = self.put_disk(&format!("{vm}/{disk}"), &snapshots);
                below.insert(disk.to_owned(), id);
                of_machine.add(of_disk);
            }
            root.insert(vm.to_owned(), self.put_directory(vm, of_machine, below));
            of_root.add(of_machine);
        }
        self.put_directory("/", of_root, root);
        self.forget();
    }

    /// The directory of a disk: its snapshots, oldest first, and the links to them.
    fn put_disk(&mut self, disk: &str, snapshots: &[&SnapshotEntry]) -> (NodeId, Totals) {
        let (mut entries, mut all) = (BTreeMap::new(), Totals::default());
        for s in snapshots {
            // An archive as it is stored.
            let extension = if is_tar(s) { "mtar" } else { "raw" };
            let (file, modified) = (format!("{}.{extension}", s.id), time(s.time));
            let path = format!("{disk}/{file}");
            let known = self.numbers.get(&path).copied();
            let id = known.unwrap_or_else(|| {
                let (disk, snapshot) = (disk.to_owned(), s.id.to_string());
                let (size, data_bytes, open) = (s.size, s.data_bytes, Mutex::default());
                let file = SnapshotFile { disk, snapshot, size, data_bytes, open };
                self.put(&path, modified, NodeContent::File(Arc::new(file)))
            });
            // Where two have the same time, the later one has the name.
            let is_latest = snapshots.last().is_some_and(|last| last.id == s.id);
            let latest = is_latest.then(|| format!("latest.{extension}"));
            for name in latest.into_iter().chain([format!("{}.{extension}", format_time(s.time))]) {
                let link = self.put(&format!("{disk}/{name}"), modified, NodeContent::Link(file.clone()));
                entries.insert(name, link);
            }
            entries.insert(file, id);
            all.add(Totals { data_bytes: s.data_bytes, modified });
        }
        (self.put_directory(disk, all, entries), all)
    }

    fn put_directory(&mut self, path: &str, below: Totals, entries: BTreeMap<String, NodeId>) -> NodeId {
        let Totals { data_bytes, modified } = below;
        let id = self.put(path, modified, NodeContent::Directory { data_bytes });
        self.entries.insert(id, entries);
        id
    }
}

/// What a directory has below it.
#[derive(Clone, Copy)]
struct Totals {
    data_bytes: u64,
    /// The time of the newest snapshot.
    modified: SystemTime,
}

impl Default for Totals {
    fn default() -> Totals {
        Totals { data_bytes: 0, modified: SystemTime::UNIX_EPOCH }
    }
}

impl Totals {
    fn add(&mut self, other: Totals) {
        self.data_bytes += other.data_bytes;
        self.modified = self.modified.max(other.modified);
    }
}

fn time(seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

impl NodeContent {
    fn kind(&self) -> NodeKind {
        match self {
            NodeContent::Directory { .. } => NodeKind::Directory,
            NodeContent::File(_) => NodeKind::File,
            NodeContent::Link(_) => NodeKind::Link,
        }
    }

    /// Whether it is open, or is just being opened.
    fn is_open(&self) -> bool {
        matches!(self, NodeContent::File(file) if file.open.try_lock().is_none_or(|open| open.strong_count() > 0))
    }
}

impl Damaged {
    fn note(&self, snapshot: &str) {
        lock(&self.lines).insert(format!("{snapshot}: damage was met"));
    }
}

impl OpenFile {
    fn noting<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        if outcome.is_err() && self.device.is_damaged() {
            self.damaged.note(&self.name);
        }
        outcome
    }
}

impl BlockDevice for OpenFile {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.noting(self.device.read_at(offset, buf))
    }

    fn read_ready(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.device.read_ready(offset, buf)
    }

    fn extents(&self, range: Range<u64>, each: &mut dyn FnMut(Extent) -> bool) -> io::Result<()> {
        self.noting(self.device.extents(range, each))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_forgotten_and_its_number_does_not_come_again() {
        let mut nodes = Nodes::new();
        let mut show = |names: &[&str]| {
            nodes.entries.clear();
            let link = |n: &mut Nodes, name: &str| {
                n.put(name, SystemTime::UNIX_EPOCH, NodeContent::Link("to".into()))
            };
            let entries = names.iter().map(|name| ((*name).to_owned(), link(&mut nodes, name))).collect();
            nodes.put_directory("/", Totals::default(), entries);
            nodes.forget();
            (nodes.nodes.len(), nodes.numbers["/"], nodes.numbers.get("b").copied())
        };
        assert_eq!(show(&["a", "b"]), (3, NodeId::ROOT, Some(NodeId(3))));
        assert_eq!(show(&["b"]), (2, NodeId::ROOT, Some(NodeId(3))));
        assert_eq!(show(&["a"]), (2, NodeId::ROOT, None));
        assert_eq!(show(&["a", "b"]), (3, NodeId::ROOT, Some(NodeId(5))));
    }
}
