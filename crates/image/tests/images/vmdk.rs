//! VMDK images that QEMU made, against what QEMU reads of them.

use std::path::Path;

use crate::common::*;
use tempfile::tempdir;

const SUBFORMATS: [&str; 5] =
    ["monolithicSparse", "streamOptimized", "monolithicFlat", "twoGbMaxExtentSparse", "twoGbMaxExtentFlat"];

#[test]
fn every_subformat() {
    for (seed, size) in [(1, 9 << 20), (2, (40 << 20) + 512 * 5), (3, 512)] {
        let dir = tempdir().unwrap();
        let (raw, raw_shown) = text(&dir, "disk.raw");
        std::fs::write(&raw, random_disk(&mut rng(seed), size)).unwrap();
        for subformat in SUBFORMATS {
            let (path, shown) = text(&dir, &format!("{subformat}.vmdk"));
            qemu_img(&format!("convert -O vmdk -o subformat={subformat} {raw_shown} {shown}"));
            let content = compare_with_qemu(&path, "vmdk");
            assert_same(&content, &std::fs::read(&raw).unwrap(), subformat);
        }
    }
}

#[test]
fn changed_and_zeroed_grains() {
    for (seed, options) in [(4, "zeroed_grain=on"), (5, "zeroed_grain=off")] {
        let dir = tempdir().unwrap();
        let (path, shown) = text(&dir, "disk.vmdk");
        qemu_img(&format!("create -q -f vmdk -o {options} {shown} 70M"));
        qemu_io(&path, "vmdk", &random_changes(&mut rng(seed), 70 << 20, 60, 400_000));
        compare_with_qemu(&path, "vmdk");
    }
}

#[test]
fn several_extents() {
    for subformat in ["twoGbMaxExtentSparse", "twoGbMaxExtentFlat"] {
        let dir = tempdir().unwrap();
        let (path, shown) = text(&dir, "disk.vmdk");
        qemu_img(&format!("create -q -f vmdk -o subformat={subformat} {shown} 5G"));
        let at = |n: u64| n / 512 * 512;
        let writes = [
            format!("write -P 1 {} 1M", at(2_147_000_000)),
            format!("write -P 2 {} 200k", at(4_294_900_000)),
        ];
        qemu_io(&path, "vmdk", &writes);
        let mut source = open(&path).unwrap();
        assert_eq!(source.size(), Some(5 << 30));
        let mut buf = vec![0; 1 << 20];
        source.read_at(at(2_147_000_000), &mut buf).unwrap();
        assert!(buf.iter().all(|b| *b == 1));
        source.read_at(at(4_294_900_000), &mut buf[..204_800]).unwrap();
        assert!(buf[..204_800].iter().all(|b| *b == 2));
        // Some file systems give the first block of a file of holes.
        let first = source.next_data(4096).unwrap().unwrap();
        assert!(first.start <= at(2_147_000_000) && first.start > 2_146_000_000, "{first:?}");
        let mut data = 0;
        let mut end = 0;
        while let Some(range) = source.next_data(end).unwrap() {
            data += range.end - range.start;
            end = range.end;
        }
        assert!(data < 4 << 20, "{data} bytes of data");
    }
}

/// Moves the directory's place from the header into a footer, as programs do that cannot seek.
fn with_footer(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    let mut marker = [0; 512];
    marker[0] = 1;
    marker[12] = 3;
    let header = bytes[..512].to_vec();
    bytes[56..64].fill(0xff);
    bytes.extend(marker);
    bytes.extend(header);
    bytes.extend([0; 512]);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_footer() {
    let dir = tempdir().unwrap();
    let (raw, raw_shown) = text(&dir, "disk.raw");
    std::fs::write(&raw, random_disk(&mut rng(8), 5 << 20)).unwrap();
    let (path, shown) = text(&dir, "disk.vmdk");
    qemu_img(&format!("convert -O vmdk -o subformat=streamOptimized {raw_shown} {shown}"));
    with_footer(&path);
    compare_with_qemu(&path, "vmdk");
    // Cut off in the middle, it is no whole disk.
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 512]).unwrap();
    let error = open(&path).err().unwrap().to_string();
    assert!(error.contains("no footer"), "{error}");
}

fn error_of(descriptor: &str) -> String {
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk.vmdk");
    std::fs::write(dir.path().join("flat.bin"), [1; 5120]).unwrap();
    std::fs::write(&path, format!("# Disk DescriptorFile\nversion=1\n{descriptor}\n")).unwrap();
    match open(&path) {
        Ok(_) => "none".to_owned(),
        Err(e) => e.to_string(),
    }
}

#[test]
fn descriptors_that_cannot_be_read_say_why() {
    for (descriptor, why) in [
        ("RW 10 FLAT \"flat.bin\" 0", "none"),
        ("rdonly 10 flat \"flat.bin\"", "none"),
        ("RW 10 VMFS \"flat.bin\"", "none"),
        ("parentCID=ffffffff\nRW 10 FLAT \"flat.bin\" 0\nRW 20 ZERO", "none"),
        ("", "names no extent"),
        ("RW 11 FLAT \"flat.bin\" 0", "has 5120 bytes"),
        ("RW 10 FLAT \"flat.bin\" 1", "has 5120 bytes"),
        ("RW 10 FLAT \"flat.bin\" 99999999999999999", "has 5120 bytes"),
        ("RW 18446744073709551615 FLAT \"flat.bin\" 0", "too large"),
        ("RW 9007199254740992 ZERO\nRW 9007199254740992 ZERO", "too large"),
        ("RW 10 FLAT flat.bin 0", "is malformed"),
        ("RW 10 FLAT \"\" 0", "is malformed"),
        ("RW 10 FLAT \"flat.bin\" x", "is malformed"),
        ("RW x FLAT \"flat.bin\" 0", "is malformed"),
        ("RW", "is malformed"),
        ("RW 10 WHAT \"flat.bin\" 0", "is malformed"),
        ("RW 10 FLAT \"missing.bin\" 0", "missing.bin"),
        ("RW 10 SPARSE \"flat.bin\"", "no complete header"),
        ("RW 10 SESPARSE \"flat.bin\"", "SESPARSE extent is not supported"),
        ("RW 10 VMFSSPARSE \"flat.bin\"", "VMFSSPARSE extent is not supported"),
        ("NOACCESS 10 FLAT \"flat.bin\"", "may not be accessed"),
        ("parentCID=12345678\nRW 10 FLAT \"flat.bin\" 0", "snapshot"),
        ("parentCID=zz\nRW 10 FLAT \"flat.bin\" 0", "parentCID"),
        ("RW 10 FLAT \"/etc/hostname\" 0", "outside its own folder"),
        ("RW 10 FLAT \"../../etc/hostname\" 0", "outside its own folder"),
        ("RW 10 FLAT \"nbd://host/x\" 0", "not a plain file name"),
    ] {
        let error = error_of(descriptor);
        assert!(error.contains(why), "{descriptor:?}: {error}");
    }
}

#[test]
fn esx_sparse_files_and_lone_extents_are_refused() {
    let dir = tempdir().unwrap();
    for (name, head, why) in [
        ("cow.vmdk", b"COWD\x01\0\0\0".as_slice(), "vmfsSparse"),
        ("se.vmdk", &[0xbe, 0xba, 0xfe, 0xca, 0, 0, 0, 0], "seSparse"),
    ] {
        let path = dir.path().join(name);
        let mut bytes = vec![0; 4096];
        bytes[..8].copy_from_slice(head);
        std::fs::write(&path, bytes).unwrap();
        let error = open(&path).err().unwrap().to_string();
        assert!(error.contains(why) && error.contains("vmkfstools"), "{error}");
    }
    let (_, shown) = text(&dir, "split.vmdk");
    qemu_img(&format!("create -q -f vmdk -o subformat=twoGbMaxExtentSparse {shown} 5M"));
    let error = open(&dir.path().join("split-s001.vmdk")).err().unwrap().to_string();
    assert!(error.contains("one extent of a disk"), "{error}");
}
