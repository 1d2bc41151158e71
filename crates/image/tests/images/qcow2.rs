//! qcow2 images that QEMU made, against what QEMU reads of them.

use crate::common::*;
use rand::RngExt;
use tempfile::tempdir;

/// Makes an image with `options`, changes it at random, and compares.
fn changed_image(seed: u64, size: u64, options: &str, max_len: u64) {
    let dir = tempdir().unwrap();
    let (path, shown) = text(&dir, "disk.qcow2");
    qemu_img(&format!("create -q -f qcow2 -o {options} {shown} {size}"));
    let mut rng = rng(seed);
    qemu_io(&path, "qcow2", &random_changes(&mut rng, size, 60, max_len));
    compare_with_qemu(&path, "qcow2");
}

#[test]
fn every_cluster_size() {
    for bits in 9..=21 {
        let cluster = 1u64 << bits;
        let size = (cluster * 200).min(40 << 20) + 512 * 3;
        changed_image(bits, size, &format!("cluster_size={cluster}"), cluster * 4);
    }
}

#[test]
fn version_2() {
    for seed in 0..4 {
        changed_image(seed, (8 << 20) + 512, "compat=0.10", 300_000);
    }
}

#[test]
fn subclusters() {
    for (seed, cluster) in [(1, "16k"), (2, "64k"), (3, "128k"), (4, "2M")] {
        let options = format!("extended_l2=on,cluster_size={cluster}");
        changed_image(seed, (24 << 20) + 1536, &options, 100_000);
    }
}

#[test]
fn preallocated_clusters_that_are_holes_are_no_data() {
    let dir = tempdir().unwrap();
    let (path, shown) = text(&dir, "disk.qcow2");
    qemu_img(&format!("create -q -f qcow2 -o preallocation=metadata {shown} 1G"));
    qemu_io(&path, "qcow2", &["write -P 7 600M 64k".to_owned()]);
    let mut source = open(&path).unwrap();
    assert_eq!(source.next_data(0).unwrap(), Some(600 << 20..(600 << 20) + 65536));
    assert_eq!(source.next_data((600 << 20) + 65536).unwrap(), None);
}

#[test]
fn compressed_clusters() {
    let dir = tempdir().unwrap();
    let mut rng = rng(5);
    let (raw, raw_shown) = text(&dir, "disk.raw");
    std::fs::write(&raw, random_disk(&mut rng, (9 << 20) + 512 * 7)).unwrap();
    for (kind, cluster) in
        [("zlib", "4k"), ("zlib", "64k"), ("zlib", "2M"), ("zstd", "4k"), ("zstd", "64k"), ("zstd", "2M")]
    {
        let (path, shown) = text(&dir, &format!("{kind}-{cluster}.qcow2"));
        qemu_img(&format!(
            "convert -c -O qcow2 -o compression_type={kind},cluster_size={cluster} {raw_shown} {shown}"
        ));
        compare_with_qemu(&path, "qcow2");
        // Clusters written anew stand between compressed ones.
        qemu_io(&path, "qcow2", &random_changes(&mut rng, 9 << 20, 20, 200_000));
        compare_with_qemu(&path, "qcow2");
    }
    let (path, shown) = text(&dir, "v2.qcow2");
    qemu_img(&format!("convert -c -O qcow2 -o compat=0.10 {raw_shown} {shown}"));
    compare_with_qemu(&path, "qcow2");
    let (path, shown) = text(&dir, "extended.qcow2");
    qemu_img(&format!("convert -c -O qcow2 -o extended_l2=on,compression_type=zstd {raw_shown} {shown}"));
    compare_with_qemu(&path, "qcow2");
}

#[test]
fn backing_chains() {
    for seed in 10..16 {
        let dir = tempdir().unwrap();
        let mut rng = rng(seed);
        let bottom_format = ["raw", "qcow2", "vmdk"][rng.random_range(0..3)];
        let mut below = (format!("bottom.{bottom_format}"), bottom_format);
        let mut size = rng.random_range(2000..20_000u64) * 512;
        let (path, shown) = text(&dir, &below.0);
        qemu_img(&format!("create -q -f {bottom_format} {shown} {size}"));
        qemu_io(&path, bottom_format, &random_changes(&mut rng, size, 30, 400_000));
        for level in 1..=3 {
            // Smaller and larger than what lies below.
            size = (size as i64 + rng.random_range(-2000..4000i64) * 512).max(512 * 100) as u64;
            let name = format!("level{level}.qcow2");
            let (path, shown) = text(&dir, &name);
            let cluster = 1 << rng.random_range(9..18);
            let options = match rng.random_range(0..3) {
                0 => format!("cluster_size={cluster},compat=0.10"),
                1 => format!("cluster_size={cluster}"),
                _ => "cluster_size=64k,extended_l2=on".to_owned(),
            };
            qemu_img(&format!(
                "create -q -f qcow2 -o {options} -b {} -F {} {shown} {size}",
                below.0, below.1
            ));
            qemu_io(&path, "qcow2", &random_changes(&mut rng, size, 20, 200_000));
            compare_with_qemu(&path, "qcow2");
            below = (name, "qcow2");
        }
    }
}

#[test]
fn a_backing_file_without_a_format_goes_by_content() {
    let dir = tempdir().unwrap();
    let (base, base_shown) = text(&dir, "base.img");
    qemu_img(&format!("create -q -f qcow2 {base_shown} 3M"));
    qemu_io(&base, "qcow2", &["write -P 9 1M 100k".to_owned()]);
    let (path, shown) = text(&dir, "top.qcow2");
    qemu_img(&format!("create -q -f qcow2 -b base.img -F qcow2 {shown}"));
    // Old versions of QEMU wrote none.
    qemu_img(&format!("rebase -u -b base.img -F qcow2 {shown}"));
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(4).position(|w| w == 0xe279_2acau32.to_be_bytes()).unwrap();
    bytes[at..at + 4].copy_from_slice(b"xxxx");
    std::fs::write(&path, bytes).unwrap();
    let mut source = open(&path).unwrap();
    let disk = read_data(&mut *source, READ_BYTES).unwrap();
    assert!(disk[1 << 20..(1 << 20) + 102_400].iter().all(|b| *b == 9));
}

#[test]
fn internal_snapshots_are_passed_over() {
    let dir = tempdir().unwrap();
    let (path, shown) = text(&dir, "disk.qcow2");
    let mut rng = rng(77);
    qemu_img(&format!("create -q -f qcow2 {shown} 5M"));
    for name in ["one", "two"] {
        qemu_io(&path, "qcow2", &random_changes(&mut rng, 5 << 20, 10, 200_000));
        qemu_img(&format!("snapshot -c {name} {shown}"));
    }
    qemu_io(&path, "qcow2", &random_changes(&mut rng, 5 << 20, 10, 200_000));
    compare_with_qemu(&path, "qcow2");
}

#[test]
fn a_dirty_image_is_read() {
    let dir = tempdir().unwrap();
    let (path, shown) = text(&dir, "disk.qcow2");
    qemu_img(&format!("create -q -f qcow2 -o lazy_refcounts=on {shown} 5M"));
    qemu_io(&path, "qcow2", &["write -P 1 1M 1M".to_owned()]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[79] |= 1;
    std::fs::write(&path, bytes).unwrap();
    let disk = read_data(&mut *open(&path).unwrap(), READ_BYTES).unwrap();
    assert!(disk[1 << 20..2 << 20].iter().all(|b| *b == 1));
}

#[test]
fn a_huge_empty_disk_is_passed_over_in_one_step() {
    let dir = tempdir().unwrap();
    let (path, shown) = text(&dir, "disk.qcow2");
    qemu_img(&format!("create -q -f qcow2 {shown} 64T"));
    qemu_io(&path, "qcow2", &["write -P 1 60T 64k".to_owned()]);
    let (top, top_shown) = text(&dir, "top.qcow2");
    qemu_img(&format!("create -q -f qcow2 -b disk.qcow2 -F qcow2 {top_shown}"));
    for path in [path, top] {
        let mut source = open(&path).unwrap();
        assert_eq!(source.next_data(0).unwrap(), Some(60 << 40..(60 << 40) + 65536));
        assert_eq!(source.next_data((60 << 40) + 65536).unwrap(), None);
        let mut buf = [1; 100];
        assert_eq!(source.read_at((64 << 40) - 50, &mut buf).unwrap(), 50);
        assert!(buf[..50].iter().all(|b| *b == 0));
    }
}

#[test]
fn a_chain_of_200_is_read_and_one_of_201_is_not() {
    let dir = tempdir().unwrap();
    let (bottom, shown) = text(&dir, "0.qcow2");
    qemu_img(&format!("create -q -f qcow2 {shown} 1M"));
    qemu_io(&bottom, "qcow2", &["write -P 5 512k 64k".to_owned()]);
    let (_, shown) = text(&dir, "1.qcow2");
    qemu_img(&format!("create -q -f qcow2 -b 00000.qcow2 -F qcow2 -u {shown} 1M"));
    std::fs::rename(&bottom, dir.path().join("00000.qcow2")).unwrap();
    // One image written by QEMU, copied with other names inside.
    let link = std::fs::read(dir.path().join("1.qcow2")).unwrap();
    let at = link.windows(11).position(|w| w == b"00000.qcow2").unwrap();
    for n in 1..201 {
        let mut link = link.clone();
        link[at..at + 5].copy_from_slice(format!("{:05}", n - 1).as_bytes());
        std::fs::write(dir.path().join(format!("{n:05}.qcow2")), link).unwrap();
    }
    let mut source = open(&dir.path().join("00199.qcow2")).unwrap();
    assert_eq!(source.next_data(0).unwrap(), Some(512 << 10..576 << 10));
    let disk = read_all(&mut *source, READ_BYTES).unwrap();
    assert!(disk[512 << 10..576 << 10].iter().all(|b| *b == 5));
    let error = open(&dir.path().join("00200.qcow2")).err().unwrap().to_string();
    assert!(error.contains("more than 200"), "{error}");
}
