//! ext2, ext3 and ext4, made by mkfs and filled by the kernel, against what the kernel shows.

#[path = "common/ext.rs"]
mod common;
#[path = "common/ext_tree.rs"]
mod tree;

use common::{alone, debugfs, make, open, Comparison, FileDisk, Mounted, Totals, MIB};
use filesystem::{Disk, FileSystem, FsError, NodeId};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tree::Limits;

/// Large enough for the block size that mkfs takes by itself.
const IMAGE_BYTES: u64 = 600 * MIB;

/// Compares an image with a mount of it.
fn compare(image: &Path, options: &str) -> Totals {
    let (fs, volume) = open(image);
    assert_eq!(fs.warnings(), [""; 0]);
    let mounted = Mounted::new(image, options);
    Comparison { fs: &fs, volume: &*volume, is_same: true, totals: Totals::default() }.run(&mounted.dir)
}

const LIMITS: Limits = Limits {
    entries: 2000,
    file_bytes: 1 << 40,
    attribute_bytes: 2000,
    has_fallocate: true,
    device_max: (u32::MAX, u32::MAX),
    block_bytes: 4096,
};

/// Makes a file system, fills it, and compares.
fn check(program: &str, args: &[&str], kind: &str, limits: Limits) -> Totals {
    let _alone = alone();
    let temp = common::temp();
    let image = make(temp.path(), program, &[&["-L", "a label"], args].concat(), IMAGE_BYTES);
    let mounted = Mounted::new(&image, "acl,user_xattr");
    tree::fill(&mounted.dir, limits);
    drop(mounted);
    let (fs, _) = open(&image);
    assert_eq!((fs.kind(), &fs.label()[..]), (kind, &b"a label"[..]));
    drop(fs);
    let totals = compare(&image, "ro");
    println!("{program} {args:?}: {totals:?}");
    assert!(totals.nodes > 2000 && totals.bytes > 20 * MIB && totals.attributes > 40, "{totals:?}");
    assert!(
        totals.holes > limits.file_bytes && (totals.never_written > MIB) == limits.has_fallocate,
        "{totals:?}"
    );
    totals
}

#[test]
fn ext4_as_mkfs_makes_it() {
    if !testing::can_mount("ext4") {
        return;
    }
    check("mkfs.ext4", &[], "ext4", Limits { entries: 20_000, ..LIMITS });
}

#[test]
fn ext2() {
    if !testing::can_mount("ext4") {
        return;
    }
    check("mkfs.ext2", &[], "ext2", Limits { has_fallocate: false, ..LIMITS });
}

#[test]
fn ext2_with_the_smallest_inodes_and_blocks() {
    if !testing::can_mount("ext4") {
        return;
    }
    let limits = Limits {
        has_fallocate: false,
        file_bytes: 16 << 30,
        attribute_bytes: 700,
        block_bytes: 1024,
        ..LIMITS
    };
    check("mkfs.ext2", &["-b", "1024", "-I", "128", "-O", "none,large_file"], "ext2", limits);
}

#[test]
fn ext3() {
    if !testing::can_mount("ext4") {
        return;
    }
    check("mkfs.ext3", &[], "ext3", Limits { has_fallocate: false, ..LIMITS });
}

#[test]
fn ext4_with_blocks_of_1_kib() {
    if !testing::can_mount("ext4") {
        return;
    }
    let limits = Limits { attribute_bytes: 700, block_bytes: 1024, ..LIMITS };
    check("mkfs.ext4", &["-b", "1024"], "ext4", limits);
}

#[test]
fn ext4_without_checksums() {
    if !testing::can_mount("ext4") {
        return;
    }
    check("mkfs.ext4", &["-O", "^metadata_csum,^64bit"], "ext4", LIMITS);
}

#[test]
fn ext4_with_checksums_of_groups() {
    if !testing::can_mount("ext4") {
        return;
    }
    check("mkfs.ext4", &["-O", "^metadata_csum,uninit_bg,^flex_bg"], "ext4", LIMITS);
}

#[test]
fn ext4_with_inline_data() {
    if !testing::can_mount("ext4") {
        return;
    }
    check("mkfs.ext4", &["-O", "inline_data", "-I", "256"], "ext4", LIMITS);
    check("mkfs.ext4", &["-O", "inline_data", "-I", "1024"], "ext4", LIMITS);
}

#[test]
fn ext4_with_clusters() {
    if !testing::can_mount("ext4") {
        return;
    }
    check("mkfs.ext4", &["-O", "bigalloc", "-C", "65536"], "ext4", LIMITS);
    let limits = Limits { attribute_bytes: 700, block_bytes: 1024, ..LIMITS };
    check("mkfs.ext4", &["-O", "bigalloc", "-b", "1024"], "ext4", limits);
}

#[test]
fn ext4_without_64_bits() {
    if !testing::can_mount("ext4") {
        return;
    }
    check("mkfs.ext4", &["-O", "^64bit,sparse_super2", "-I", "512"], "ext4", LIMITS);
}

#[test]
fn ext4_with_values_in_inodes() {
    if !testing::can_mount("ext4") {
        return;
    }
    check("mkfs.ext4", &["-O", "ea_inode"], "ext4", Limits { attribute_bytes: 60_000, ..LIMITS });
}

#[test]
fn ext4_with_descriptors_in_meta_groups() {
    if !testing::can_mount("ext4") {
        return;
    }
    let limits = Limits { attribute_bytes: 700, block_bytes: 1024, ..LIMITS };
    let options = ["-b", "1024", "-g", "1024", "-O", "meta_bg,^resize_inode,metadata_csum_seed,large_dir"];
    check("mkfs.ext4", &options, "ext4", limits);
}

#[test]
fn ext4_with_blocks_of_64_kib() {
    let _alone = alone();
    let temp = common::temp();
    let source = temp.path().join("source");
    std::fs::create_dir(&source).expect("mkdir");
    let limits = Limits { file_bytes: 1 << 30, attribute_bytes: 200, block_bytes: 65_536, ..LIMITS };
    tree::fill(&source, limits);
    let lost = source.join("lost+found");
    std::fs::create_dir(&lost).expect("mkdir");
    std::fs::set_permissions(&lost, PermissionsExt::from_mode(0o700)).expect("chmod");
    // Without checksums, an empty block is one entry, whose length has a form of its own.
    for features in ["metadata_csum", "^metadata_csum"] {
        let args = ["-b", "65536", "-O", features, "-d", source.to_str().expect("text")];
        let image = make(temp.path(), "mkfs.ext4", &args, IMAGE_BYTES);
        let (fs, volume) = open(&image);
        let comparison = Comparison { fs: &fs, volume: &*volume, is_same: false, totals: Totals::default() };
        let totals = comparison.run(&source);
        assert!(totals.nodes > 2000 && totals.bytes > 20 * MIB && totals.attributes > 40, "{totals:?}");
    }
}

/// Nodes whose names or data are encrypted are told apart; all else is read.
#[test]
fn encryption_concerns_single_nodes() {
    let _alone = alone();
    let temp = common::temp();
    let image = make(temp.path(), "mkfs.ext4", &["-O", "encrypt"], 16 * MIB);
    let file = temp.path().join("file");
    std::fs::write(&file, "content").expect("write");
    let write = format!("write {} file", file.display());
    let encrypt = |path| format!("set_inode_field {path} flags 0x80800");
    debugfs(
        &image,
        &["mkdir dir", &write, "symlink link target", &encrypt("dir"), &encrypt("file"), &encrypt("link")],
    );
    let (fs, _) = open(&image);
    let id = |name: &[u8]| fs.lookup(fs.root(), name).expect("readable").expect("an entry").id;
    let all = fs.entries(fs.root()).expect("readable");
    assert_eq!(all.len(), 4);
    let [dir, file, link] = [&b"dir"[..], b"file", b"link"].map(id);
    assert_eq!(fs.node(file).expect("a node").size, 7);
    let is_unsupported = |found: Option<FsError>| matches!(found, Some(FsError::Unsupported { .. }));
    assert!(is_unsupported(fs.entries(dir).err()));
    assert!(is_unsupported(fs.lookup(dir, b"x").err()));
    assert!(is_unsupported(fs.extents(file).err()));
    assert!(is_unsupported(fs.read_at(file, 0, &mut [0]).err()));
    assert!(is_unsupported(fs.link(link).err()));
}

#[test]
fn asking_for_what_a_node_is_not_is_wrong() {
    let _alone = alone();
    let temp = common::temp();
    let (fs, _) = open(&make(temp.path(), "mkfs.ext4", &[], 16 * MIB));
    let root = fs.root();
    assert!(matches!(fs.extents(root), Err(FsError::Wrong { .. })));
    assert!(matches!(fs.link(root), Err(FsError::Wrong { .. })));
    assert!(matches!(fs.read_at(root, 0, &mut [0]), Err(FsError::Wrong { .. })));
    for id in [0, 1 << 20, 1 << 32, u64::MAX] {
        assert!(matches!(fs.node(NodeId(id)), Err(FsError::Corrupt { .. })), "{id}");
    }
}

#[test]
fn a_volume_that_was_cut_off_is_read_with_a_warning() {
    let _alone = alone();
    let temp = common::temp();
    let image = make(temp.path(), "mkfs.ext4", &[], 16 * MIB);
    std::fs::OpenOptions::new().write(true).open(&image).and_then(|f| f.set_len(15 * MIB)).expect("cut");
    let (fs, volume) = open(&image);
    assert_eq!(volume.size(), FileDisk::open(&image).size());
    assert_eq!(fs.warnings(), ["it has 16384 blocks, and only 15360 are there"]);
    assert_eq!(fs.entries(fs.root()).expect("readable").len(), 1);
}
