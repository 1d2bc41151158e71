//! Which type of file system a directory is on, and whether other hosts may see it.
//!
//! Locks keep the processes of one host apart. Those of two hosts that see one directory may know nothing of each other
//! (NFS mounted with `nolock`, SMB with `nobrl`, virtiofs, sshfs): each takes the other's living session for dead.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::retry_on_intr;

use crate::file_system::FsType;

/// Types that one host alone has mounted: they are on memory or on a block device of their own, and their locks hold for all
/// who see them. Every other type may be seen by other hosts.
const LOCAL: [(u32, &str); 19] = [
    (0xef53, "ext2/ext3/ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (0x794c_7630, "overlay"),
    (0x2011_bab0, "exfat"),
    (0x4d44, "vfat"),
    (0x7366_746e, "ntfs3"),
    (0x5346_544e, "ntfs"),
    (0x3153_464a, "jfs"),
    (0x5265_4973, "reiserfs"),
    (0x3434, "nilfs2"),
    (0x2405_1905, "ubifs"),
    (0x482b, "hfsplus"),
    (0x15_013_346, "udf"),
];

/// What the system says of everything that a process serves through FUSE, virtiofs included.
const FUSE: u32 = 0x6573_5546;

/// Types below FUSE that are on a block device of this host.
const LOCAL_FUSE: [&str; 1] = ["fuseblk"];

/// Names of types that `/proc` may not tell.
const SHARED: [(u32, &str); 14] = [
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x517b, "smb"),
    (0x0102_1997, "9p"),
    (FUSE, "fuse"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x6b41_4653, "afs"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x1983_0326, "beegfs"),
];

/// The type of the file system that an open directory is on.
pub(crate) fn of(dir: BorrowedFd<'_>) -> io::Result<FsType> {
    let stat = retry_on_intr(|| rustix::fs::fstatfs(dir))?;
    // The type is a number of 32 bits, whatever the width of the field.
    Ok(known(stat.f_type as u32, mounted_type(dir)))
}

/// What a magic number and a name in the table of mounts say.
fn known(magic: u32, mounted: Option<String>) -> FsType {
    let named =
        |list: &[(u32, &str)]| list.iter().find(|(m, _)| *m == magic).map(|(_, name)| (*name).to_owned());
    let local = named(&LOCAL);
    let is_local =
        local.is_some() || (magic == FUSE && mounted.as_deref().is_some_and(|m| LOCAL_FUSE.contains(&m)));
    let name = mounted.or(local).or_else(|| named(&SHARED)).unwrap_or_else(|| format!("type {magic:#x}"));
    FsType { name, is_local }
}

/// What the table of mounts calls the type, such as `fuse.sshfs`.
fn mounted_type(dir: BorrowedFd<'_>) -> Option<String> {
    let of_file = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", dir.as_raw_fd())).ok()?;
    let id = of_file.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().to_owned();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mount_of(&mounts, &id)
}

/// `ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS TAG… - TYPE SOURCE OPTIONS`
fn mount_of(mounts: &str, id: &str) -> Option<String> {
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(id))?;
    let (_, type_and_more) = line.split_once(" - ")?;
    type_and_more.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_others_may_see_is_told_from_what_is_local() {
        for (magic, mounted, name, is_local) in [
            (0xef53, Some("ext4"), "ext4", true),
            (0xef53, None, "ext2/ext3/ext4", true),
            (0x6969, Some("nfs4"), "nfs4", false),
            (0x6969, None, "nfs", false),
            (0xff53_4d42, Some("cifs"), "cifs", false),
            (0xfe53_4d42, Some("smb3"), "smb3", false),
            (0x0102_1997, Some("9p"), "9p", false),
            (FUSE, Some("virtiofs"), "virtiofs", false),
            (FUSE, Some("fuse.sshfs"), "fuse.sshfs", false),
            (FUSE, Some("fuse"), "fuse", false),
            (FUSE, None, "fuse", false),
            (FUSE, Some("fuseblk"), "fuseblk", true),
            (0x00c3_6400, Some("ceph"), "ceph", false),
            (0x1234_5678, None, "type 0x12345678", false),
            (0x1234_5678, Some("new"), "new", false),
            // Only below FUSE does the name decide.
            (0x6969, Some("fuseblk"), "fuseblk", false),
        ] {
            let found = known(magic, mounted.map(str::to_owned));
            assert_eq!((found.name.as_str(), found.is_local), (name, is_local), "{magic:#x} {mounted:?}");
        }
    }

    #[test]
    fn the_table_of_mounts_is_read() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                      221 22 0:50 / /mnt/a\\040-\\040b rw - fuse.sshfs host:/x rw,user_id=0\n";
        assert_eq!(mount_of(mounts, "22").as_deref(), Some("ext4"));
        assert_eq!(mount_of(mounts, "221").as_deref(), Some("fuse.sshfs"));
        assert_eq!(mount_of(mounts, "2"), None);
    }

    #[test]
    fn real_ones() {
        let type_of = |path: &str| of(std::fs::File::open(path).unwrap().as_fd()).unwrap();
        if std::path::Path::new("/dev/shm").is_dir() {
            assert_eq!(type_of("/dev/shm"), FsType { name: "tmpfs".to_owned(), is_local: true });
        }
        assert_eq!(type_of("/proc"), FsType { name: "proc".to_owned(), is_local: false });
    }
}
