//! Images of every kind that people have, through the binary and back: what is restored is what QEMU reads.

use crate::common::nbd::{start, Nbd};
use crate::common::{qemu_img, qemu_io, random, Bench, DONE, FAILED, REFUSED, USAGE};
use rustix::process::Signal;

/// A disk as guests have them: random data, data that compresses, zeros; its end is no round number.
fn raw(bytes: usize, seed: u64) -> Vec<u8> {
    let mut disk = random(bytes, seed);
    for (n, part) in disk.chunks_mut(96 << 10).enumerate() {
        match n % 4 {
            0 => part.fill(0),
            1 => part.iter_mut().enumerate().for_each(|(i, b)| *b = (i / 700 + n) as u8),
            _ => {}
        }
    }
    disk
}

/// What QEMU reads of an image.
fn as_raw(bench: &Bench, image: &str) -> Vec<u8> {
    let out = bench.arg("reference");
    qemu_img(&["convert", "-O", "raw", image, &out]);
    std::fs::read(out).unwrap()
}

/// Backs an image up and restores it, through a pipe, to a file and to qcow2.
fn there_and_back(bench: &Bench, image: &str, format: &str, expected: &[u8]) {
    there_and_back_told(bench, image, &[], format, expected);
}

/// The same, with options of the backup.
fn there_and_back_told(bench: &Bench, image: &str, told: &[&str], format: &str, expected: &[u8]) {
    let made = bench.json(&[&["backup", "vm/disk", image, "--force"], told].concat());
    assert_eq!(made["source_format"], format, "{image}");
    assert_eq!(made["size"], expected.len(), "{image}");
    assert!(bench.restored("vm/disk") == expected, "{image}: through a pipe");
    let target = bench.arg("target.raw");
    bench.done(&["-q", "restore", "vm/disk", &target, "--force"]);
    assert!(std::fs::read(&target).unwrap() == expected, "{image}: to a file");
    let qcow2 = bench.arg("target.qcow2");
    bench.done(&["-q", "restore", "vm/disk", &qcow2, "--force", "--format", "qcow2"]);
    qemu_img(&["check", "-q", &qcow2]);
    let got = as_raw(bench, &qcow2);
    assert!(got[..expected.len()] == *expected, "{image}: to qcow2");
    assert!(got[expected.len()..].iter().all(|b| *b == 0), "{image}: to qcow2, what was added");
    // qcow2 has no disks of half a sector.
    assert_eq!(got.len(), expected.len().next_multiple_of(512));
}

#[test]
fn raw_files_of_odd_sizes() {
    for policy in ["balanced", "conventional"] {
        let bench = Bench::new(policy);
        for bytes in [0, 1, 511, 512, 4095, 4097, 1_000_003, (4 << 20) - 1, (4 << 20) + 1, 9_000_001] {
            let content = raw(bytes, bytes as u64);
            there_and_back(&bench, &bench.file("disk.img", &content), "raw", &content);
        }
        bench.verify();
    }
}

/// An overlay had the size of its disk in its header, of which QEMU took whole sectors: the last bytes were cut off.
#[test]
fn qemu_reads_disks_of_odd_sizes_to_their_last_byte() {
    let bench = Bench::new("balanced");
    let content = random(700_001, 8);
    let source = bench.file("source", &content);
    let mut padded = content.clone();
    padded.resize(content.len().next_multiple_of(512), 0);
    bench.backup("vm/disk", &source);
    let (qcow2, overlay) = (bench.arg("target.qcow2"), bench.arg("overlay.qcow2"));
    bench.done(&["-q", "restore", "vm/disk", &qcow2, "--format", "qcow2"]);
    qemu_img(&["compare", "-f", "raw", "-F", "qcow2", &source, &qcow2]);

    let uri = format!("nbd+unix:///?socket={}", bench.arg("socket"));
    let arriving = bench.arg("arriving");
    for args in [
        &["-q", "nbd", "vm/disk"][..],
        &["-q", "nbd", "vm/disk", "--scratch"],
        &["-q", "nbd", "vm/disk", "--overlay", &overlay],
        &["-q", "restore", "vm/disk", &arriving, "--live"],
    ] {
        let mut child = start(&bench, args);
        let client = Nbd::connect_to(&mut child, &bench.path("socket")).unwrap();
        qemu_img(&["compare", "-f", "raw", "-F", "raw", &source, &uri]);
        assert!(as_raw(&bench, &uri) == padded, "{args:?}");
        drop(client);
        child.signal(Signal::TERM);
        assert_eq!(child.wait().code(), Some(DONE), "{args:?}");
    }
    // The last sector is written whole, as by a guest.
    let mut child = start(&bench, &["-q", "nbd", "vm/disk", "--overlay", &overlay]);
    let mut client = Nbd::connect_to(&mut child, &bench.path("socket")).unwrap();
    let last = padded.len() - 512;
    client.write(last as u64, &[9; 512]).unwrap();
    padded[last..].fill(9);
    assert!(client.whole() == padded);
    drop(client);
    child.signal(Signal::TERM);
    assert_eq!(child.wait().code(), Some(DONE));
    let file = serde_json::json!({ "driver": "file", "filename": overlay });
    let below = serde_json::json!({ "driver": "raw", "file": { "driver": "file", "filename": source } });
    let image = serde_json::json!({ "driver": "qcow2", "backing": below, "file": file });
    let image = format!("json:{image}");
    qemu_img(&["check", "-q", &image]);
    assert!(as_raw(&bench, &image) == padded);
}

#[test]
fn qcow2() {
    let bench = Bench::new("balanced");
    let source = bench.file("source", &raw(9 << 20, 5));
    let image = bench.arg("disk.qcow2");
    for options in [
        &["-o", "compat=0.10"][..],
        &["-o", "compat=1.1,cluster_size=4k"],
        &["-o", "cluster_size=2M"],
        &["-o", "extended_l2=on,cluster_size=128k"],
        &["-c", "-o", "compression_type=zlib"],
        &["-c", "-o", "compression_type=zstd"],
        &["-o", "preallocation=metadata"],
    ] {
        let args = [&["convert", "-O", "qcow2"], options, &[source.as_str(), image.as_str()]].concat();
        qemu_img(&args);
        there_and_back(&bench, &image, "qcow2", &as_raw(&bench, &image));
    }
    bench.verify();
}

#[test]
fn backing_chains() {
    let bench = Bench::new("balanced");
    bench.file("base.raw", &raw(6 << 20, 6));
    let (middle, top) = (bench.arg("middle.qcow2"), bench.arg("top.qcow2"));
    // Each image is larger or smaller than what it stands on.
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", "base.raw", "-F", "raw", &middle, "10M"]);
    qemu_io(&middle, "write -P 17 1M 300k");
    qemu_io(&middle, "write -P 18 7M 1M");
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", "middle.qcow2", "-F", "qcow2", &top, "9M"]);
    qemu_io(&top, "write -P 19 1100k 64k");
    qemu_io(&top, "write -z 2M 1M");
    qemu_io(&top, "discard 7M 64k");
    // Said once, it holds for the disk.
    for (image, told) in [(&middle, &["--source-format", "qcow2"][..]), (&top, &[])] {
        there_and_back_told(&bench, image, told, "qcow2", &as_raw(&bench, image));
    }
    bench.verify();
}

#[test]
fn vmdk() {
    let bench = Bench::new("balanced");
    let source = bench.file("source", &raw(9 << 20, 7));
    for subformat in [
        "monolithicSparse",
        "streamOptimized",
        "monolithicFlat",
        "twoGbMaxExtentSparse",
        "twoGbMaxExtentFlat",
    ] {
        let image = bench.arg(&format!("{subformat}.vmdk"));
        qemu_img(&["convert", "-O", "vmdk", "-o", &format!("subformat={subformat}"), &source, &image]);
        let told = ["--source-format", "vmdk"];
        let told = if subformat == "monolithicFlat" { &told[..] } else { &[] };
        there_and_back_told(&bench, &image, told, "vmdk", &as_raw(&bench, &image));
    }
    bench.verify();
}

/// A disk that was a qcow2 came back as a raw disk in a file called `.qcow2`: the machine did not start.
#[test]
fn a_restored_disk_has_the_format_that_its_machine_expects() {
    let bench = Bench::new("balanced");
    let content = random(1 << 20, 3);
    let raw = bench.file("source.raw", &content);
    for format in ["raw", "qcow2", "vmdk"] {
        let image = bench.arg(&format!("source.{format}"));
        if format != "raw" {
            qemu_img(&["convert", "-O", format, &raw, &image]);
        }
        let disk = format!("vm/{format}");
        bench.backup(&disk, &image);
        for (name, options, expected, word) in [
            // What it was; a VMDK cannot be written.
            ("plain", &[][..], if format == "qcow2" { "qcow2" } else { "raw" }, format == "vmdk"),
            ("image.qcow2", &[], "qcow2", format != "qcow2"),
            ("image.QCOW2", &[], "qcow2", format != "qcow2"),
            ("image.raw", &[], "raw", format != "raw"),
            ("told.qcow2", &["--format", "raw"], "raw", false),
            ("told.raw", &["--format", "qcow2"], "qcow2", false),
        ] {
            let target = bench.arg(&format!("{format}-{name}"));
            let restored = bench.json(&[&["restore", &disk, &target], options].concat());
            assert_eq!(restored["format"], expected, "{format} to {name}");
            let head = std::fs::read(&target).unwrap();
            assert_eq!(head.starts_with(b"QFI\xfb"), expected == "qcow2", "{format} to {name}");
            let args = [&["restore", &disk, &target, "--force"], options].concat();
            let said = String::from_utf8(bench.done(&args).stdout).unwrap();
            assert!(said.contains(&format!("({expected}")), "{said}");
            assert_eq!(said.contains("the source was"), word, "{format} to {name}: {said}");
        }
        assert!(bench.restored(&disk) == content, "a pipe takes raw disks only");
    }
}

/// Back to an older snapshot, on the disk that the machine has: only what changed since is written.
#[test]
fn a_disk_is_restored_in_place() {
    let bench = Bench::new("balanced");
    let mut content = random(6 << 20, 4);
    content[1 << 20..2 << 20].fill(0);
    let disk = bench.file("disk", &content);
    bench.backup("vm/disk", &disk);
    let mut changed = content.clone();
    changed[..8192].fill(9);
    changed[1 << 20..(1 << 20) + 4096].fill(9);
    std::fs::write(&disk, &changed).unwrap();
    let restored = bench.json(&["restore", "vm/disk", &disk, "--in-place"]);
    assert_eq!(restored["written_bytes"], 3 * 4096, "{restored}");
    assert!(std::fs::read(&disk).unwrap() == content);
    assert_eq!(bench.json(&["restore", "vm/disk", &disk, "--in-place"])["written_bytes"], 0);
    bench.fails(&["restore", "vm/disk", &bench.arg("none"), "--in-place"], FAILED, &["none"]);
    let qcow2 = bench.arg("disk.qcow2");
    qemu_img(&["convert", "-O", "qcow2", &disk, &qcow2]);
    bench.fails(&["restore", "vm/disk", &qcow2, "--in-place"], REFUSED, &["only a raw disk"]);
    assert_eq!(bench.run(&["restore", "vm/disk", &disk, "--in-place", "--force"]).code(), Some(USAGE));
}
