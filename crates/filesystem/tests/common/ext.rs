//! Real file systems in files, mounted, and compared with what the crate reads.

#[path = "disks.rs"]
pub mod disks;

pub use disks::FileDisk;

use filesystem::{ext, Disk, Extent, FileSystem, NodeId, NodeKind, Place};
use rustix::fs::{FileType, SeekFrom};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Runs a program, which must succeed, and returns what it printed.
pub fn run(program: &str, package: &str, args: &[&str]) -> String {
    let out = Command::new(program)
        .args(args)
        .env("LC_ALL", "C.UTF-8")
        .env("LVM_SUPPRESS_FD_WARNINGS", "1")
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .output()
        .unwrap_or_else(|why| panic!("{program} cannot be run ({why}): install the package {package}"));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {args:?} failed: {said}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub const MIB: u64 = 1 << 20;

/// One test at a time: loop devices are few.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory for images: they are unmounted often.
pub fn temp() -> tempfile::TempDir {
    tempfile::tempdir_in(testing::memory_dir()).expect("no temporary directory")
}

/// A new file system in `dir`.
pub fn make(dir: &Path, program: &str, args: &[&str], size: u64) -> PathBuf {
    let image = dir.join("image");
    File::create(&image).expect("create").set_len(size).expect("set_len");
    run(program, "e2fsprogs", &[&["-q", "-F"], args, &[image.to_str().expect("text")]].concat());
    image
}

pub fn open(image: &Path) -> (ext::Ext, Arc<dyn Disk>) {
    let volume: Arc<dyn Disk> = Arc::new(FileDisk::open(image));
    let fs = ext::open(volume.clone()).expect("readable").expect("its magic number");
    (fs, volume)
}

/// Runs commands of debugfs, which may write.
pub fn debugfs(image: &Path, commands: &[&str]) -> String {
    let script = image.with_extension("commands");
    std::fs::write(&script, commands.join("\n")).expect("write");
    let [script, image] = [&script, image].map(|p| p.to_str().expect("text"));
    run("debugfs", "e2fsprogs", &["-w", "-f", script, image])
}

/// A loop device, detached when dropped.
pub struct Loop(pub String);

impl Loop {
    /// Others may take the device that was found free: then it is tried again.
    pub fn attach(image: &Path, options: &[&str]) -> Loop {
        let image = image.to_str().expect("a path that is text");
        let args = [&["-f", "--show"], options, &[image]].concat();
        for _ in 0..100 {
            let out = Command::new("/usr/sbin/losetup").args(&args).output();
            let out = out.expect("losetup cannot be run: install the package mount");
            if out.status.success() {
                return Loop(String::from_utf8_lossy(&out.stdout).trim().into());
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        panic!("no loop device is free (or not root)");
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("/usr/sbin/losetup").args(["-d", &self.0]).status();
    }
}

/// A mounted image, unmounted when dropped.
pub struct Mounted {
    pub dir: PathBuf,
    _device: Loop,
    _temp: tempfile::TempDir,
}

impl Mounted {
    pub fn new(image: &Path, options: &str) -> Mounted {
        let temp = tempfile::tempdir().expect("no temporary directory");
        let device = Loop::attach(image, &[]);
        let dir = temp.path().to_path_buf();
        run("mount", "mount", &["-o", options, &device.0, dir.to_str().expect("text")]);
        Mounted { dir, _device: device, _temp: temp }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        testing::unmount(&self.dir);
    }
}

/// What was compared.
#[derive(Debug, Default)]
pub struct Totals {
    pub nodes: u64,
    pub bytes: u64,
    pub attributes: u64,
    pub holes: u64,
    pub never_written: u64,
}

/// A file system and the same tree elsewhere.
pub struct Comparison<'a> {
    pub fs: &'a dyn FileSystem,
    pub volume: &'a dyn Disk,
    /// The tree is mounted from the same volume: inode numbers, times and ranges of data are the same too.
    pub is_same: bool,
    pub totals: Totals,
}

impl Comparison<'_> {
    /// Compares everything below the root with the directory `dir`.
    pub fn run(mut self, dir: &Path) -> Totals {
        let mut todo = vec![(self.fs.root(), dir.to_path_buf())];
        while let Some((id, path)) = todo.pop() {
            self.compare(id, &path);
            if self.fs.node(id).expect("a node").kind == NodeKind::Directory {
                self.compare_entries(id, &path, &mut todo);
            }
        }
        self.totals
    }

    fn compare_entries(&self, id: NodeId, path: &Path, todo: &mut Vec<(NodeId, PathBuf)>) {
        let entries = self.fs.entries(id).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let mut ours: Vec<Vec<u8>> = entries.iter().map(|e| e.name.clone()).collect();
        let listed = std::fs::read_dir(path).expect("a directory");
        let mut theirs: Vec<Vec<u8>> =
            listed.map(|e| e.expect("an entry").file_name().as_bytes().to_vec()).collect();
        ours.sort_unstable();
        theirs.sort_unstable();
        assert!(ours == theirs, "{}: other names", path.display());
        for entry in entries.iter().step_by(entries.len() / 5 + 1) {
            let found = self.fs.lookup(id, &entry.name).expect("readable");
            assert_eq!(found.as_ref(), Some(entry), "{}", path.display());
        }
        assert_eq!(self.fs.lookup(id, b"no such name").expect("readable"), None);
        for entry in entries {
            todo.push((entry.id, path.join(std::ffi::OsStr::from_bytes(&entry.name))));
        }
    }

    fn compare(&mut self, id: NodeId, path: &Path) {
        let node = self.fs.node(id).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let stat = std::fs::symlink_metadata(path).expect("a node");
        let shown = path.display();
        let (major, minor) = (rustix::fs::major(stat.rdev()), rustix::fs::minor(stat.rdev()));
        let kind = match FileType::from_raw_mode(stat.mode()) {
            FileType::RegularFile => NodeKind::File,
            FileType::Directory => NodeKind::Directory,
            FileType::Symlink => NodeKind::Link,
            FileType::CharacterDevice => NodeKind::CharDevice { major, minor },
            FileType::BlockDevice => NodeKind::BlockDevice { major, minor },
            FileType::Fifo => NodeKind::Fifo,
            FileType::Socket => NodeKind::Socket,
            other => panic!("{shown}: {other:?}"),
        };
        assert_eq!(node.kind, kind, "{shown}");
        assert_eq!(u32::from(node.mode), stat.mode() & 0o7777, "mode of {shown}");
        assert_eq!((node.uid, node.gid), (stat.uid(), stat.gid()), "owner of {shown}");
        if self.is_same {
            assert_eq!(
                (node.modified.seconds, node.modified.nanos.into()),
                (stat.mtime(), stat.mtime_nsec()),
                "mtime of {shown}"
            );
            assert_eq!(id.0, stat.ino(), "inode of {shown}");
            assert_eq!(
                (node.changed.seconds, node.changed.nanos.into()),
                (stat.ctime(), stat.ctime_nsec()),
                "ctime of {shown}"
            );
            assert_eq!(u64::from(node.links), stat.nlink(), "links of {shown}");
        }
        match kind {
            NodeKind::File => {
                assert_eq!(node.size, stat.size(), "size of {shown}");
                self.compare_data(id, node.size, path);
            }
            NodeKind::Link => {
                let target = std::fs::read_link(path).expect("a link");
                assert_eq!(self.fs.link(id).expect("a link"), target.as_os_str().as_bytes(), "{shown}");
                assert_eq!(node.size, stat.size(), "size of {shown}");
            }
            _ => assert_eq!(node.size, 0, "size of {shown}"),
        }
        self.compare_attributes(id, path);
        self.totals.nodes += 1;
    }

    fn compare_attributes(&mut self, id: NodeId, path: &Path) {
        let ours = self.fs.attributes(id).unwrap_or_else(|why| panic!("{}: {why}", path.display())).values;
        assert!(ours.is_sorted(), "attributes of {}", path.display());
        self.totals.attributes += ours.len() as u64;
        let ours: BTreeMap<_, _> = ours.into_iter().collect();
        assert!(ours == attributes(path), "attributes of {}", path.display());
    }

    fn compare_data(&mut self, id: NodeId, size: u64, path: &Path) {
        let shown = path.display();
        let extents = self.fs.extents(id).unwrap_or_else(|why| panic!("{shown}: {why}"));
        check_order(&extents, size, path);
        let file = File::open(path).expect("a file");
        let kernel = data_ranges(&file, size);
        if self.is_same {
            assert_eq!(ranges(&extents), kernel, "ranges of data of {shown}");
        }
        let mut expected = vec![0; 1 << 20];
        let mut got = vec![0xee; 1 << 20];
        for (start, end) in with_edges(&kernel, size) {
            let mut at = start;
            while at < end {
                let n = (end - at).min(expected.len() as u64) as usize;
                file.read_exact_at(&mut expected[..n], at).expect("readable");
                let read =
                    self.fs.read_at(id, at, &mut got[..n]).unwrap_or_else(|why| panic!("{shown}: {why}"));
                assert_eq!(read, n, "{shown} at {at}");
                assert!(expected[..n] == got[..n], "{shown}: other bytes in {at}..{}", at + n as u64);
                self.by_extents(id, &extents, at, &mut got[..n]);
                assert!(expected[..n] == got[..n], "{shown}: other bytes by extents in {at}..");
                at += n as u64;
                self.totals.bytes += n as u64;
            }
        }
        assert_eq!(self.fs.read_at(id, size, &mut got).expect("readable"), 0, "{shown} at its end");
        if size > 2 {
            assert_eq!(self.fs.read_at(id, size - 2, &mut got).expect("readable"), 2, "{shown} at its end");
        }
        let covered: u64 = extents.iter().map(|e| e.len).sum();
        self.totals.holes += size - covered;
        self.totals.never_written +=
            extents.iter().filter(|e| e.place == Place::Zeros).map(|e| e.len).sum::<u64>();
    }

    /// Reads a file as one would who sees only its extents.
    fn by_extents(&self, id: NodeId, extents: &[Extent], offset: u64, buf: &mut [u8]) {
        buf.fill(0);
        let end = offset + buf.len() as u64;
        for e in extents {
            let (first, last) = (e.offset.max(offset), (e.offset + e.len).min(end));
            if first >= last {
                continue;
            }
            let into = &mut buf[(first - offset) as usize..(last - offset) as usize];
            match e.place {
                Place::Volume(at) => {
                    self.volume.read_at(at + (first - e.offset), into).expect("within the volume");
                }
                Place::Encoded => {
                    self.fs.read_at(id, first, into).expect("readable");
                }
                Place::Zeros => {}
            }
        }
    }
}

/// Extents follow each other, end within the file, and none could be merged with the next.
fn check_order(extents: &[Extent], size: u64, path: &Path) {
    let shown = path.display();
    assert!(extents.iter().all(|e| e.len > 0 && e.offset + e.len <= size), "{shown}: {extents:?}");
    for pair in extents.windows(2) {
        let end = pair[0].offset + pair[0].len;
        let is_one = match (pair[0].place, pair[1].place) {
            (Place::Volume(a), Place::Volume(b)) => a + pair[0].len == b,
            (a, b) => a == b,
        };
        assert!(end <= pair[1].offset && !(end == pair[1].offset && is_one), "{shown}: {pair:?}");
    }
}

/// What of a file was written, by its extents.
fn ranges(extents: &[Extent]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for e in extents.iter().filter(|e| e.place != Place::Zeros) {
        match ranges.last_mut() {
            Some(last) if last.1 == e.offset => last.1 += e.len,
            _ => ranges.push((e.offset, e.offset + e.len)),
        }
    }
    ranges
}

/// What of a file was written, by the kernel.
fn data_ranges(file: &File, size: u64) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let Ok(start) = rustix::fs::seek(file, SeekFrom::Data(at)) else { break };
        at = rustix::fs::seek(file, SeekFrom::Hole(start)).expect("a hole follows").min(size);
        ranges.push((start, at));
    }
    ranges
}

/// The ranges of a file that are read: its data, and some bytes at the edges of holes. All of a small file.
fn with_edges(data: &[(u64, u64)], size: u64) -> Vec<(u64, u64)> {
    if size <= 64 << 20 {
        return vec![(0, size)];
    }
    let edge = 100_000;
    let mut wanted: Vec<(u64, u64)> = vec![(0, edge), (size / 2, size / 2 + edge), (size - edge, size)];
    wanted.extend(data.iter().map(|(s, e)| (s.saturating_sub(edge), (e + edge).min(size))));
    wanted
}

/// Attributes of a path, by the kernel.
fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0u8; 64 << 10];
    let n = rustix::fs::llistxattr(path, &mut names[..]).expect("a list of attributes");
    let names = names[..n].split(|b| *b == 0).filter(|n| !n.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0u8; 64 << 10];
        let n = rustix::fs::lgetxattr(path, std::ffi::CString::new(name).expect("no zeros"), &mut value[..]);
        value.truncate(n.expect("an attribute"));
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}
