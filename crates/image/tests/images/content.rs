//! What follows from a file's content: containers that cannot be read, another format than before, names of other files.

use std::path::{Path, PathBuf};

use crate::common::*;
use image::{Format, ImageError, SourceOptions};
use tempfile::{tempdir, TempDir};

fn raw_of(path: &Path) -> Vec<u8> {
    let how = SourceOptions { format: Some(Format::Raw), ..SourceOptions::default() };
    let mut source = image::open(path, &how).unwrap();
    assert_eq!(source.format(), "raw");
    read_data(&mut *source, READ_BYTES).unwrap()
}

/// Refused by its content, with what it is and what to do; its bytes are read by whoever says that it is raw.
fn check_container(path: &Path, what: &str) {
    let error = image::open(path, &SourceOptions::default()).err().unwrap();
    assert!(matches!(error, ImageError::Unsupported { .. }), "{error}");
    for said in [&path.display().to_string(), what, "qemu-img convert", "--source-format raw"] {
        assert!(error.to_string().contains(said), "{said:?}: {error}");
    }
    assert_same(&raw_of(path), &std::fs::read(path).unwrap(), what);
}

/// VDI, VHD, VHDX, Parallels and QED containers were stored as raw disks without a warning.
#[test]
fn containers_that_qemu_makes() {
    let dir = tempdir().unwrap();
    let (raw, raw_shown) = text(&dir, "disk.raw");
    std::fs::write(&raw, random_disk(&mut rng(3), 3 << 20)).unwrap();
    for (format, options, what) in [
        ("vdi", "static=off", "VDI"),
        ("vdi", "static=on", "VDI"),
        ("vpc", "subformat=dynamic", "VHD"),
        // A raw disk with a footer behind it.
        ("vpc", "subformat=fixed", "VHD"),
        ("vhdx", "subformat=dynamic", "VHDX"),
        ("vhdx", "subformat=fixed", "VHDX"),
        ("parallels", "cluster_size=1M", "Parallels"),
        ("qed", "cluster_size=64k", "QED"),
    ] {
        let (path, shown) = text(&dir, &format!("{}.{format}", options.replace('=', "-")));
        qemu_img(&format!("convert -O {format} -o {options} {raw_shown} {shown}"));
        check_container(&path, what);
    }
    let (path, shown) = text(&dir, "disk.qcow");
    qemu_img(&format!("convert -O qcow {raw_shown} {shown}"));
    let error = open(&path).err().unwrap().to_string();
    assert!(error.contains("qcow version 1") && error.contains("qemu-img convert"), "{error}");
}

#[test]
fn containers_that_qemu_only_reads() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk");
    let footer = [b"koly\0\0\0\x04\0\0\x02\0".as_slice(), &[0; 500]].concat();
    for (at, magic, what) in [
        (0, b"WithoutFreeSpace".as_slice(), "Parallels"),
        (0, b"Bochs Virtual HD Image\0", "Bochs"),
        (0, b"#!/bin/sh\n#V2.0 Format\nmodprobe cloop file=$0 && mount", "cloop"),
        (5000 - 512, &footer, "DMG"),
    ] {
        let mut bytes = vec![0; 5000];
        bytes[at..at + magic.len()].copy_from_slice(magic);
        std::fs::write(&path, bytes).unwrap();
        check_container(&path, what);
    }
    // Nothing of the kind, at every length around that of a sector; and what guests have on raw disks.
    for len in [0, 1, 8, 63, 64, 68, 511, 512, 513, 1024] {
        std::fs::write(&path, vec![b'c'; len]).unwrap();
        assert_eq!(open(&path).unwrap().format(), "raw");
    }
    std::fs::write(&path, [b"LUKS\xba\xbe".as_slice(), &[7; 5000]].concat()).unwrap();
    assert_eq!(open(&path).unwrap().format(), "raw");
}

/// An image that names `neighbour.raw`, which is full of 42s, with the bytes that a guest would write: nothing but a
/// header. Returns its path.
fn attack(dir: &TempDir, format: &str) -> PathBuf {
    std::fs::write(dir.path().join("neighbour.raw"), vec![42; 1 << 20]).unwrap();
    let (path, shown) = text(dir, &format!("guest.{format}"));
    match format {
        "qcow2" => drop(qemu_img(&format!("create -q -f qcow2 -b neighbour.raw -F raw {shown}"))),
        _ => std::fs::write(&path, "# Disk DescriptorFile\nversion=1\nRW 2048 FLAT \"neighbour.raw\" 0\n")
            .unwrap(),
    }
    path
}

/// A guest wrote the header of an image into its raw disk, and got its neighbour's disk into its own backup.
#[test]
fn names_are_not_followed_for_the_content_alone() {
    for (name, format, role) in [("qcow2", Format::Qcow2, "backing file"), ("vmdk", Format::Vmdk, "extent")] {
        let dir = tempdir().unwrap();
        let path = attack(&dir, name);
        let refused = |how: SourceOptions, said: &[&str]| {
            let error = image::open(&path, &how).err().unwrap();
            assert!(matches!(error, ImageError::Refused { .. }), "{error}");
            said.iter().for_each(|s| assert!(error.to_string().contains(s), "{s:?}: {error}"));
        };
        let advice = format!("--source-format {name}");
        // The first backup; one of a disk that was such an image before, by its content; one that may look outside, too.
        for expected in [None, Some(format)] {
            for allow_backing_outside in [false, true] {
                let how = SourceOptions { expected, allow_backing_outside, ..SourceOptions::default() };
                refused(how, &[role, "neighbour.raw", &advice, "--source-format raw"]);
            }
        }
        // The disk was raw before, or another image.
        for before in [Format::Raw, Format::Qcow2, Format::Vmdk].into_iter().filter(|f| *f != format) {
            let how =
                SourceOptions { expected: Some(before), follow_names: true, ..SourceOptions::default() };
            let was = format!("--source-format {}", before.name());
            refused(how, &["was read as", before.name(), "looks like", &was, &advice]);
        }
        // The user says what it is, or has said so before.
        for how in [
            SourceOptions { format: Some(format), expected: Some(Format::Raw), ..SourceOptions::default() },
            SourceOptions { expected: Some(format), follow_names: true, ..SourceOptions::default() },
        ] {
            let disk = read_data(&mut *image::open(&path, &how).unwrap(), READ_BYTES).unwrap();
            assert!(disk == vec![42; 1 << 20]);
        }
        assert_same(&raw_of(&path), &std::fs::read(&path).unwrap(), "raw");
    }
}

/// The same in a raw disk that an overlay lies over, where the overlay does not say that it is raw.
#[test]
fn a_backing_file_without_a_format_names_nothing() {
    for name in ["qcow2", "vmdk"] {
        let dir = tempdir().unwrap();
        attack(&dir, name);
        let (top, shown) = text(&dir, "top.qcow2");
        qemu_img(&format!("create -q -u -f qcow2 -b guest.{name} -F {name} {shown} 1M"));
        assert!(read_data(&mut *open(&top).unwrap(), READ_BYTES).unwrap() == vec![42; 1 << 20]);
        let mut bytes = std::fs::read(&top).unwrap();
        // The extension with the format of the backing file is one that nobody knows.
        let at = bytes.windows(4).position(|w| w == 0xe279_2acau32.to_be_bytes()).unwrap();
        bytes[at..at + 4].copy_from_slice(b"xxxx");
        std::fs::write(&top, bytes).unwrap();
        let error = open(&top).err().unwrap();
        assert!(matches!(error, ImageError::Refused { .. }), "{error}");
        for said in ["neighbour.raw", &format!("qemu-img rebase -u -F {name}")] {
            assert!(error.to_string().contains(said), "{said:?}: {error}");
        }
    }
    // A container is none, either.
    let dir = tempdir().unwrap();
    let (_, base) = text(&dir, "base.vdi");
    qemu_img(&format!("create -q -f vdi {base} 1M"));
    let (top, shown) = text(&dir, "top.qcow2");
    qemu_img(&format!("create -q -u -f qcow2 -b base.vdi -F vdi {shown} 1M"));
    let error = open(&top).err().unwrap().to_string();
    assert!(error.contains("\"vdi\""), "{error}");
    let mut bytes = std::fs::read(&top).unwrap();
    let at = bytes.windows(4).position(|w| w == 0xe279_2acau32.to_be_bytes()).unwrap();
    bytes[at..at + 4].copy_from_slice(b"xxxx");
    std::fs::write(&top, bytes).unwrap();
    let error = open(&top).err().unwrap().to_string();
    assert!(error.contains("VDI") && error.contains("rebase -u -F"), "{error}");
}

/// What was replaced by an image, and an image of which the header is gone.
#[test]
fn another_format_than_before_is_refused() {
    let dir = tempdir().unwrap();
    let (raw, _) = text(&dir, "raw");
    std::fs::write(&raw, vec![7; 1 << 20]).unwrap();
    let (qcow2, shown) = text(&dir, "qcow2");
    qemu_img(&format!("create -q -f qcow2 {shown} 1M"));
    let (vmdk, shown) = text(&dir, "vmdk");
    qemu_img(&format!("create -q -f vmdk {shown} 1M"));
    let all = [(&raw, Format::Raw), (&qcow2, Format::Qcow2), (&vmdk, Format::Vmdk)];
    for (path, is) in all {
        for (_, was) in all {
            let how = SourceOptions { expected: Some(was), ..SourceOptions::default() };
            match image::open(path, &how) {
                Ok(source) => assert_eq!((source.format(), was), (is.name(), is)),
                Err(e) => assert!(matches!(e, ImageError::Refused { .. }) && was != is, "{e}"),
            }
            let how = SourceOptions { format: Some(is), ..how };
            assert!(image::open(path, &how).is_ok());
        }
    }
}
