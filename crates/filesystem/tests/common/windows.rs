//! What the tests of NTFS and FAT share: tools, mounts, comparing a tree with what somebody else shows of it, and
//! walking damaged trees.

#![allow(dead_code, reason = "each test uses some of it")]

#[path = "disks.rs"]
mod disks;
#[path = "walk.rs"]
mod walk;

#[allow(unused_imports, reason = "each test uses some of them")]
pub use disks::{CountingDisk, FileDisk, Memory};
pub use walk::{check_extents, walk};

use filesystem::{
    Attributes, Disk, Entry, Extent, FileSystem, FsError, Node, NodeId, NodeKind, Place, Result, Unread,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Files up to this size are compared whole.
const WHOLE_BYTES: u64 = 64 << 20;
/// How much of each end of an extent of larger files is compared.
const EDGE_BYTES: u64 = 64 << 10;

/// A disk in memory, but for some bytes.
struct Changed {
    disk: Arc<Memory>,
    bytes: Vec<(usize, u8)>,
}

impl Disk for Changed {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.disk.read_at(offset, buf)?;
        for (at, byte) in &self.bytes {
            if let Some(place) = at.checked_sub(offset as usize).and_then(|at| buf.get_mut(at)) {
                *place = *byte;
            }
        }
        Ok(())
    }
}

/// Runs a tool of a Debian package.
pub fn run(package: &str, program: &str, args: &[&OsStr]) -> Vec<u8> {
    let output = Command::new(program).args(args).env("TZ", "UTC").env("LC_ALL", "C.UTF-8").output();
    let output = output.unwrap_or_else(|why| panic!("{program} of the package {package}: {why}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {}: {said}", output.status);
    output.stdout
}

/// A new file of so many bytes, all of them holes.
pub fn sparse_file(path: &Path, bytes: u64) {
    File::create(path).and_then(|f| f.set_len(bytes)).expect("a file for an image");
}

/// A directory on which something is mounted until this goes.
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts an image of NTFS.
    pub fn ntfs(image: &Path, at: &Path, options: &str) -> Mount {
        fs::create_dir_all(at).expect("a directory to mount on");
        run("ntfs-3g", "ntfs-3g", &["-o".as_ref(), options.as_ref(), image.as_ref(), at.as_ref()]);
        Mount(at.to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        testing::unmount(&self.0);
        // ntfs-3g writes on after the system call.
        while !wait_for_nobody(&self.0) {}
    }
}

/// Whether the process that serves a directory has ended.
fn wait_for_nobody(at: &Path) -> bool {
    let serves = |pid: &Path| {
        let line = fs::read(pid.join("cmdline")).unwrap_or_default();
        line.starts_with(b"ntfs-3g")
            && line.windows(at.as_os_str().len()).any(|w| w == at.as_os_str().as_bytes())
    };
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let busy = processes.map(|p| p.path()).any(|p| serves(&p));
    if busy {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    !busy
}

/// What is compared, beside kinds, names, links and content.
#[derive(Clone, Copy)]
pub struct Compared {
    /// The number of names of a file.
    pub links: bool,
    /// When attributes were changed.
    pub changed: bool,
    /// Times in steps of so many nanoseconds.
    pub nanos: u32,
    /// Times of directories.
    pub directory_times: bool,
    /// Extended attributes: ours begin with this, theirs with `user.`.
    pub attributes: Option<&'static str>,
}

/// Compares a tree with a directory, everything in it; how many nodes there are.
pub fn compare(fs: &dyn FileSystem, from: NodeId, with: &Path, how: Compared) -> usize {
    let mut rng = StdRng::seed_from_u64(7);
    let mut count = 0;
    let mut todo = vec![(from, with.to_owned())];
    while let Some((id, path)) = todo.pop() {
        let entries = by_name(fs, id, &path);
        let theirs: Vec<_> = {
            let list = fs::read_dir(&path).expect("their directory");
            let mut names: Vec<_> = list.map(|e| e.expect("an entry").file_name().into_vec()).collect();
            names.sort();
            names
        };
        let ours: Vec<_> = entries.keys().cloned().collect();
        assert!(ours == theirs, "{}: {}", path.display(), difference(&ours, &theirs));
        for (name, entry) in entries {
            let path = path.join(OsStr::from_bytes(&name));
            compare_node(fs, entry.id, &path, how, &mut rng);
            count += 1;
            if fs.node(entry.id).expect("a node").kind == NodeKind::Directory {
                todo.push((entry.id, path));
            }
        }
    }
    count
}

fn by_name(fs: &dyn FileSystem, id: NodeId, path: &Path) -> BTreeMap<Vec<u8>, Entry> {
    let list = fs.entries(id).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let mut entries = BTreeMap::new();
    for entry in list {
        let found = fs.lookup(id, &entry.name).expect("a lookup");
        assert_eq!(found.as_ref(), Some(&entry), "{}", path.display());
        let twice = entries.insert(entry.name.clone(), entry);
        assert_eq!(twice, None, "{}", path.display());
    }
    entries
}

fn difference(ours: &[Vec<u8>], theirs: &[Vec<u8>]) -> String {
    let text = |names: &[Vec<u8>], without: &[Vec<u8>]| {
        let names = names.iter().filter(|n| !without.contains(n)).take(5);
        names.map(|n| format!("{:?} ", String::from_utf8_lossy(n))).collect::<String>()
    };
    format!("only ours: {}only theirs: {}", text(ours, theirs), text(theirs, ours))
}

fn compare_node(fs: &dyn FileSystem, id: NodeId, path: &Path, how: Compared, rng: &mut StdRng) {
    let name = path.display();
    let ours = fs.node(id).unwrap_or_else(|why| panic!("{name}: {why}"));
    let theirs = fs::symlink_metadata(path).expect("their node");
    assert_eq!(ours.kind, kind(&theirs), "{name}");
    let is_directory = ours.kind == NodeKind::Directory;
    if how.links && !is_directory {
        assert_eq!(u64::from(ours.links), theirs.nlink(), "{name}");
    }
    if how.directory_times || !is_directory {
        let nanos = theirs.mtime_nsec() as u32 / how.nanos * how.nanos;
        assert_eq!((ours.modified.seconds, ours.modified.nanos), (theirs.mtime(), nanos), "{name}");
    }
    if how.changed {
        let nanos = theirs.ctime_nsec() as u32 / how.nanos * how.nanos;
        assert_eq!((ours.changed.seconds, ours.changed.nanos), (theirs.ctime(), nanos), "{name}");
    }
    if let Some(prefix) = how.attributes.filter(|_| ours.kind == NodeKind::File) {
        compare_attributes(fs, id, path, prefix);
    }
    match ours.kind {
        NodeKind::File => compare_content(fs, id, &ours, path, &theirs, rng),
        NodeKind::Link => {
            let target = fs.link(id).expect("a link");
            assert_eq!(ours.size, target.len() as u64, "{name}");
            assert_eq!(target, fs::read_link(path).expect("their link").as_os_str().as_bytes(), "{name}");
        }
        _ => assert_eq!(ours.size, 0, "{name}"),
    }
    if ours.kind != NodeKind::File {
        assert!(fs.extents(id).is_err() && fs.read_at(id, 0, &mut [0]).is_err(), "{name}");
    }
}

fn kind(theirs: &fs::Metadata) -> NodeKind {
    let kind = theirs.file_type();
    let device = theirs.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    match () {
        () if kind.is_file() => NodeKind::File,
        () if kind.is_dir() => NodeKind::Directory,
        () if kind.is_symlink() => NodeKind::Link,
        () if kind.is_fifo() => NodeKind::Fifo,
        () if kind.is_socket() => NodeKind::Socket,
        () if kind.is_char_device() => NodeKind::CharDevice { major, minor },
        () => NodeKind::BlockDevice { major, minor },
    }
}

fn compare_attributes(fs: &dyn FileSystem, id: NodeId, path: &Path, prefix: &str) {
    let mut list = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(path, &mut list).expect("their attributes");
    let (mut theirs, mut too_large) = (Vec::new(), Vec::new());
    for name in list[..len].split(|b| *b == 0) {
        let Some(own) = name.strip_prefix(b"user.") else { continue };
        let mut value = vec![0; 1 << 20];
        let name = OsStr::from_bytes(name);
        let own = [prefix.as_bytes(), own].concat();
        match rustix::fs::lgetxattr(path, name, &mut value) {
            Ok(len) => theirs.push((own, value[..len].to_vec())),
            Err(Errno::TOOBIG | Errno::RANGE) => too_large.push(own),
            Err(why) => panic!("{}: {why}", path.display()),
        }
    }
    theirs.sort();
    let Attributes { values: ours, mut unread } = fs.attributes(id).expect("attributes");
    too_large.sort();
    unread.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(unread.len(), too_large.len(), "{}: {unread:?}, theirs {too_large:?}", path.display());
    for (Unread { name, why }, theirs) in unread.iter().zip(&too_large) {
        assert!(name == theirs && why.starts_with("a stream of "), "{}: {why}", path.display());
    }
    let short = |list: &[(Vec<u8>, Vec<u8>)]| {
        let text = |(n, v): &(Vec<u8>, Vec<u8>)| format!("{} ({})", String::from_utf8_lossy(n), v.len());
        list.iter().map(text).collect::<Vec<_>>()
    };
    assert!(ours == theirs, "{}: {:?}, theirs {:?}", path.display(), short(&ours), short(&theirs));
}

fn compare_content(
    fs: &dyn FileSystem,
    id: NodeId,
    ours: &Node,
    path: &Path,
    theirs: &fs::Metadata,
    rng: &mut StdRng,
) {
    let name = path.display();
    assert_eq!(ours.size, theirs.size(), "{name}");
    let extents = fs.extents(id).unwrap_or_else(|why| panic!("{name}: {why}"));
    check_extents(&extents, ours.size);
    let file = File::open(path).expect("their file");
    let check = |offset: u64, len: u64| {
        let mut want = vec![0; len.min(ours.size - offset) as usize];
        file.read_exact_at(&mut want, offset).expect("their data");
        let mut got = vec![0xee; len as usize];
        let n = fs.read_at(id, offset, &mut got).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(n, want.len(), "{name}");
        let first = got.iter().zip(&want).position(|(a, b)| a != b);
        assert!(first.is_none(), "{name}: differs at {} + {first:?} of {}", offset, ours.size);
        want
    };
    if ours.size <= WHOLE_BYTES {
        let want = check(0, ours.size + 1);
        check_places(&extents, &want, &name.to_string());
    }
    for e in extents.iter().take(200) {
        check(e.offset, e.len.min(EDGE_BYTES));
        check(e.offset + e.len - e.len.min(EDGE_BYTES), EDGE_BYTES);
    }
    for _ in 0..if ours.size == 0 { 0 } else { 4 } {
        check(rng.random_range(0..ours.size), rng.random_range(1..100_000));
    }
    assert_eq!(fs.read_at(id, ours.size, &mut [0; 9]).expect("the end"), 0, "{name}");
    assert_eq!(fs.read_at(id, u64::MAX, &mut [0; 9]).expect("beyond"), 0, "{name}");
}

/// What is in no extent, or was never written, is zeros.
fn check_places(extents: &[Extent], content: &[u8], name: &str) {
    let zeros = |from: u64, to: u64| content[from as usize..to as usize].iter().all(|b| *b == 0);
    let mut at = 0;
    for e in extents {
        assert!(zeros(at, e.offset), "{name}: a hole at {at} is no hole");
        assert!(e.place != Place::Zeros || zeros(e.offset, e.offset + e.len), "{name}: {e:?} is not zeros");
        at = e.offset + e.len;
    }
    assert!(zeros(at, content.len() as u64), "{name}: a hole at {at} is no hole");
}

/// The node at a path.
pub fn find(fs: &dyn FileSystem, path: &str) -> NodeId {
    path.split('/').filter(|name| !name.is_empty()).fold(fs.root(), |id, name| {
        let found = fs.lookup(id, name.as_bytes()).unwrap_or_else(|why| panic!("{path}: {why}"));
        found.unwrap_or_else(|| panic!("{path}: {name} is not there")).id
    })
}

/// Changes one to six bytes of a volume at `places`, so many times, and each time walks over all that can be opened.
pub fn damage(
    image: Vec<u8>,
    times: u64,
    seed: u64,
    places: impl Fn(&mut StdRng) -> usize,
    open: impl Fn(Arc<dyn Disk>) -> Result<Option<Box<dyn FileSystem>>> + std::panic::RefUnwindSafe,
) {
    let image = Arc::new(Memory(image));
    let (mut opened, mut harmed, mut slowest) = (0, 0, Duration::ZERO);
    for round in 0..times {
        let seed = seed << 32 | round;
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bytes = Vec::new();
        for _ in 0..rng.random_range(1..=6) {
            let odd = [0, 1, 0x7f, 0x80, 0xff, rng.random(), rng.random()];
            bytes.push((places(&mut rng), odd[rng.random_range(0..odd.len())]));
        }
        let disk = Arc::new(Changed { disk: image.clone(), bytes });
        let (begin, size) = (Instant::now(), disk.size());
        let walked = std::panic::catch_unwind(|| match open(disk) {
            Ok(Some(fs)) => Some(walk(&*fs, size)),
            Ok(None) | Err(FsError::Corrupt { .. } | FsError::Unsupported { .. }) => None,
            Err(why) => panic!("{why}"),
        });
        let walked = walked.unwrap_or_else(|_| panic!("seed {seed:#x}"));
        opened += usize::from(walked.is_some());
        harmed += usize::from(walked.is_some_and(|w| w.errors > 0));
        slowest = slowest.max(begin.elapsed());
        // Only against hanging: a busy machine is slow.
        assert!(begin.elapsed() < Duration::from_secs(300), "seed {seed:#x}: {:?}", begin.elapsed());
    }
    println!(
        "{times} times from seed {:#x} on: {opened} opened, {harmed} with errors, {slowest:?} at most",
        seed << 32
    );
    assert!(
        opened > times as usize / 2 && harmed > times as usize / 20,
        "{opened} opened, {harmed} with errors"
    );
}
