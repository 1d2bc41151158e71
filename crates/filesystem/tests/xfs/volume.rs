//! Real XFS volumes: made by mkfs.xfs, mounted by the kernel, and compared with what the crate reads.

use crate::disks::FileDisk;
use filesystem::xfs::Xfs;
use filesystem::{FileSystem, NodeId, NodeKind, Place, Time};
use rustix::fs::{SeekFrom, XattrFlags};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the volumes; the kernel's tools refuse less than 300 MiB.
pub const VOLUME_BYTES: u64 = 400 << 20;
/// Files up to this size are read whole, holes too.
const READ_WHOLE_BYTES: u64 = 48 << 20;
/// How long other users of the loop devices are waited for.
const LOOP_PATIENCE: Duration = Duration::from_secs(60);

pub fn open(image: &Path) -> Xfs {
    let disk = Arc::new(FileDisk::open(image));
    Xfs::open(disk).expect("opens").expect("is XFS")
}

/// Runs a program that must succeed.
pub fn run(program: &str, package: &str, arguments: &[&OsStr]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| {
        panic!("{program}: {e}; it is in the package {package} (tools/install-packages test)")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes a file system with more options, given as one would type them.
pub fn make(image: &Path, bytes: u64, options: &str) {
    File::create(image).and_then(|f| f.set_len(bytes)).expect("an image");
    let mut arguments: Vec<&OsStr> = ["-q", "-f"].iter().map(OsStr::new).collect();
    arguments.extend(options.split_whitespace().map(OsStr::new));
    arguments.push(image.as_os_str());
    run("mkfs.xfs", "xfsprogs", &arguments);
}

/// A mounted image; unmounted at the end of its life.
pub struct Mount {
    at: tempfile::TempDir,
}

impl Mount {
    pub fn new(image: &Path, options: &str) -> Mount {
        let at = tempfile::tempdir().expect("a directory");
        let started = Instant::now();
        loop {
            let mut mount = Command::new("mount");
            mount.args(["-t", "xfs", "-o", &format!("loop,nouuid,{options}")]).arg(image).arg(at.path());
            let output = mount.output().expect("mount runs; it is in the package mount");
            if output.status.success() {
                return Mount { at };
            }
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_busy = errors.contains("loop device");
            assert!(
                is_busy && started.elapsed() < LOOP_PATIENCE,
                "mount {} (as root?): {errors}",
                image.display()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub fn path(&self) -> &Path {
        self.at.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        testing::unmount(self.at.path());
    }
}

/// What was compared.
#[derive(Debug, Default)]
pub struct Compared {
    pub nodes: u64,
    pub bytes: u64,
    pub attributes: u64,
    pub extents_most: usize,
}

/// Compares a whole tree with what the kernel shows of it.
pub fn compare(fs: &dyn FileSystem, mounted: &Path) -> Compared {
    let mut compared = Compared::default();
    let mut open = vec![(fs.root(), mounted.to_path_buf())];
    while let Some((id, path)) = open.pop() {
        let there = path.symlink_metadata().expect("the kernel's view");
        compare_node(fs, id, &path, &there);
        compared.nodes += 1;
        compared.attributes += compare_attributes(fs, id, &path);
        if there.is_dir() {
            open.extend(compare_entries(fs, id, &path));
        } else if there.is_symlink() {
            let target = path.read_link().expect("the kernel's target").into_os_string().into_vec();
            assert_eq!(fs.link(id).expect("a target"), target, "{path:?}");
        } else if there.is_file() {
            compare_content(fs, id, &path, &there, &mut compared);
        }
    }
    compared
}

fn compare_node(fs: &dyn FileSystem, id: NodeId, path: &Path, there: &Metadata) {
    let node = fs.node(id).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let (major, minor) = (rustix::fs::major(there.rdev()), rustix::fs::minor(there.rdev()));
    let kind = match there.mode() >> 12 {
        0x1 => NodeKind::Fifo,
        0x2 => NodeKind::CharDevice { major, minor },
        0x4 => NodeKind::Directory,
        0x6 => NodeKind::BlockDevice { major, minor },
        0x8 => NodeKind::File,
        0xa => NodeKind::Link,
        0xc => NodeKind::Socket,
        other => panic!("{path:?}: mode {other:#x}"),
    };
    let has_size = there.is_file() || there.is_symlink();
    assert_eq!(id.0, there.ino(), "{path:?}");
    assert_eq!(node.kind, kind, "{path:?}");
    assert_eq!(u32::from(node.mode), there.mode() & 0o7777, "{path:?}");
    assert_eq!((node.uid, node.gid), (there.uid(), there.gid()), "{path:?}");
    assert_eq!(node.size, if has_size { there.size() } else { 0 }, "{path:?}");
    assert_eq!(u64::from(node.links), there.nlink(), "{path:?}");
    let time = |seconds, nanos| Time { seconds, nanos: u32::try_from(nanos).expect("nanoseconds") };
    assert_eq!(node.modified, time(there.mtime(), there.mtime_nsec()), "{path:?}");
    assert_eq!(node.changed, time(there.ctime(), there.ctime_nsec()), "{path:?}");
}

fn compare_entries(fs: &dyn FileSystem, id: NodeId, path: &Path) -> Vec<(NodeId, PathBuf)> {
    let entries = fs.entries(id).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let mut names: Vec<&[u8]> = entries.iter().map(|e| e.name.as_slice()).collect();
    let listed = path.read_dir().expect("the kernel's list");
    let mut expected: Vec<Vec<u8>> = listed.map(|e| e.expect("an entry").file_name().into_vec()).collect();
    names.sort_unstable();
    expected.sort_unstable();
    assert!(names == expected, "{path:?}: {} names instead of {}", names.len(), expected.len());
    entries.iter().map(|e| (e.id, path.join(OsStr::from_bytes(&e.name)))).collect()
}

/// The attributes of a node as the kernel shows them, without the double view of access lists.
pub fn kernel_attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(path, &mut names[..]).expect("names of attributes");
    let mut value = vec![0; 64 << 10];
    names[..len]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty() && !name.starts_with(b"trusted.SGI_ACL_"))
        .map(|name| {
            let len = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]).expect("a value");
            (name.to_vec(), value[..len].to_vec())
        })
        .collect()
}

fn compare_attributes(fs: &dyn FileSystem, id: NodeId, path: &Path) -> u64 {
    let expected: Vec<_> = kernel_attributes(path).into_iter().collect();
    let attributes = fs.attributes(id).unwrap_or_else(|e| panic!("{path:?}: {e}")).values;
    let names = |all: &[(Vec<u8>, Vec<u8>)]| -> Vec<String> {
        all.iter().map(|(n, v)| format!("{} ({})", n.escape_ascii(), v.len())).collect()
    };
    assert!(attributes == expected, "{path:?}: {:?} instead of {:?}", names(&attributes), names(&expected));
    attributes.len() as u64
}

fn compare_content(fs: &dyn FileSystem, id: NodeId, path: &Path, there: &Metadata, compared: &mut Compared) {
    let file = File::open(path).expect("the kernel's file");
    let extents = fs.extents(id).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    compared.extents_most = compared.extents_most.max(extents.len());
    let (mut end, mut on_disk) = (0, 0);
    for extent in &extents {
        assert!(extent.len > 0 && extent.offset >= end, "{path:?}: {extent:?} after {end}");
        assert_zeros(&file, end, extent.offset, path);
        end = extent.offset + extent.len;
        if extent.place == Place::Zeros {
            assert_zeros(&file, extent.offset, end, path);
        } else {
            compare_range(fs, id, &file, extent.offset, end, path);
            compared.bytes += extent.len;
        }
        on_disk += extent.len;
    }
    assert!(end <= there.size(), "{path:?}: extents to {end} of {}", there.size());
    assert_zeros(&file, end, there.size(), path);
    assert!(on_disk <= there.blocks() * 512, "{path:?}: {on_disk} bytes in {} sectors", there.blocks());
    if there.size() <= READ_WHOLE_BYTES {
        compare_range(fs, id, &file, 0, there.size(), path);
    }
    let mut beyond = [7; 10];
    assert_eq!(fs.read_at(id, there.size(), &mut beyond).expect("nothing"), 0, "{path:?}");
    assert_eq!(fs.read_at(id, u64::MAX, &mut beyond).expect("nothing"), 0, "{path:?}");
}

fn compare_range(fs: &dyn FileSystem, id: NodeId, file: &File, start: u64, end: u64, path: &Path) {
    // An odd size, so that reads begin and end anywhere.
    let mut here = vec![0xa5; (1 << 20) - 77];
    let mut there = here.clone();
    let mut at = start;
    while at < end {
        let len = (end - at).min(here.len() as u64) as usize;
        let n = fs.read_at(id, at, &mut here[..len]).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        assert_eq!(n, len, "{path:?} at {at}");
        file.read_exact_at(&mut there[..len], at).expect("the kernel's bytes");
        assert!(here[..len] == there[..len], "{path:?}: other bytes from {at} to {}", at + len as u64);
        at += len as u64;
    }
}

/// Holds a range that the crate calls empty against the data that the kernel sees.
fn assert_zeros(file: &File, start: u64, end: u64, path: &Path) {
    let mut buf = vec![0; 1 << 16];
    let mut at = start;
    while at < end {
        let Ok(data) = rustix::fs::seek(file, SeekFrom::Data(at)) else { return };
        if data >= end {
            return;
        }
        let len = (end - data).min(buf.len() as u64) as usize;
        file.read_exact_at(&mut buf[..len], data).expect("the kernel's bytes");
        assert!(buf[..len].iter().all(|b| *b == 0), "{path:?}: data at {data}, where none was found");
        at = data + len as u64;
    }
}

pub fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|e| panic!("{path:?}: {name} of {} bytes: {e}", value.len()));
}
