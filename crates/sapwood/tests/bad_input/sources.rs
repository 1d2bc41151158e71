//! Sources that are no disks, and images that are damaged, lie, or lead elsewhere.

use super::Kept;
use crate::common::{qemu_img, random, FAILED, REFUSED};
use rustix::fs::{mknodat, FileType, Mode, CWD};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;

/// A disk that compresses in part.
fn disk(bytes: usize) -> Vec<u8> {
    let mut disk = random(bytes, 3);
    disk.chunks_mut(64 << 10).step_by(3).for_each(|c| c.fill(7));
    disk
}

/// The source fails with `code` and says its own name and all of `said`, as a new disk and as one that there is.
fn refused(kept: &Kept, code: i32, source: &str, said: &[&str]) {
    refused_told(kept, code, source, &[], said);
}

/// The same for a source of which the user says that it is an image.
fn refused_image(kept: &Kept, code: i32, source: &str, format: &str, said: &[&str]) {
    refused_told(kept, code, source, &["--source-format", format], said);
}

fn refused_told(kept: &Kept, code: i32, source: &str, told: &[&str], said: &[&str]) {
    for disk in ["vm/new", "vm/kept"] {
        let ended = kept.bench.fails(&[&["backup", disk, source], told].concat(), code, said);
        assert!(ended.stderr.contains(source), "{ended}: does not name {source}");
    }
}

#[test]
fn what_is_no_disk() {
    let kept = Kept::new();
    let bench = &kept.bench;
    refused(&kept, FAILED, &bench.arg("missing"), &["cannot open", "No such file"]);
    refused(&kept, FAILED, &bench.arg("kept/below"), &["cannot open"]);
    refused(&kept, REFUSED, bench.dir.path().to_str().unwrap(), &["is a directory"]);
    mknodat(CWD, bench.path("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    refused(&kept, REFUSED, &bench.arg("fifo"), &["is a pipe", "standard input"]);
    let _socket = UnixListener::bind(bench.path("socket")).unwrap();
    refused(&kept, REFUSED, &bench.arg("socket"), &["is a socket"]);
    refused(&kept, REFUSED, "/dev/null", &["is a character device"]);
    kept.check();
}

#[test]
fn truncated_images() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let raw = bench.file("raw", &disk(3 << 20));
    let vmdk = |sub: &str| ["vmdk".to_string(), format!("subformat={sub}")];
    for [format, option] in [
        ["qcow2".to_string(), "compat=1.1".into()],
        ["qcow2".to_string(), "compression_type=zstd".into()],
        vmdk("monolithicSparse"),
        vmdk("streamOptimized"),
    ] {
        let image = bench.arg("image");
        qemu_img(&["convert", "-O", &format, "-o", &option, &raw, &image]);
        let whole = std::fs::read(&image).unwrap();
        let magic = if format == "qcow2" { 4 } else { 512 };
        for len in [magic, 600, 70_000, whole.len() / 2, whole.len() - 65_536] {
            let cut = bench.file("cut", &whole[..len]);
            let ended = bench.run(&["backup", "vm/new", &cut]);
            ended.expect_failure(FAILED, &[&cut, &format!("not a valid {format} image")]);
        }
    }
    kept.check();
}

#[test]
fn images_that_lie_about_their_size() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let raw = bench.file("raw", &disk(1 << 20));
    let image = bench.arg("image");
    qemu_img(&["convert", "-O", "qcow2", &raw, &image]);
    // The virtual size stands at offset 24.
    for size in [1u64 << 45, 1 << 62, u64::MAX] {
        write_at(&image, 24, &size.to_be_bytes());
        refused_image(&kept, FAILED, &image, "qcow2", &["not a valid qcow2 image"]);
    }
    qemu_img(&["convert", "-O", "vmdk", "-o", "subformat=monolithicSparse", &raw, &image]);
    // The capacity in sectors stands at offset 12; the descriptor in the same file says something else, too.
    for sectors in [1u64 << 40, u64::MAX] {
        write_at(&image, 12, &sectors.to_le_bytes());
        refused_image(&kept, FAILED, &image, "vmdk", &["not a valid vmdk image"]);
    }
    kept.check();
}

fn write_at(path: &str, offset: u64, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

#[test]
fn images_that_are_their_own_backing_file() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let create = |name: &str, backing: &str| {
        qemu_img(&[
            "create",
            "-q",
            "-u",
            "-f",
            "qcow2",
            "-b",
            backing,
            "-F",
            "qcow2",
            &bench.arg(name),
            "1M",
        ]);
    };
    create("self", "self");
    create("ring1", "ring2");
    create("ring2", "ring3");
    create("ring3", "ring1");
    create("orphan", "nowhere");
    refused_image(&kept, REFUSED, &bench.arg("self"), "qcow2", &["its own backing file"]);
    refused_image(&kept, REFUSED, &bench.arg("ring1"), "qcow2", &["its own backing file"]);
    refused_image(&kept, FAILED, &bench.arg("orphan"), "qcow2", &["nowhere", "No such file"]);
    kept.check();
}

#[test]
fn backing_files_outside_the_folder() {
    let kept = Kept::new();
    let bench = &kept.bench;
    std::fs::create_dir(bench.path("images")).unwrap();
    std::fs::create_dir(bench.path("secrets")).unwrap();
    let content = disk(2 << 20);
    bench.file("secrets/shadow", &content);
    let image = bench.arg("images/top");
    let create = |backing: &str| {
        qemu_img(&["create", "-q", "-u", "-f", "qcow2", "-b", backing, "-F", "raw", &image, "2M"]);
    };
    for backing in ["../secrets/shadow".to_string(), bench.arg("secrets/shadow"), "link".into()] {
        if backing == "link" {
            std::os::unix::fs::symlink(bench.path("secrets/shadow"), bench.path("images/link")).unwrap();
        }
        create(&backing);
        let said = [&*backing, "outside its own folder", "--allow-backing-outside"];
        refused_image(&kept, REFUSED, &image, "qcow2", &said);
        kept.check();
    }
    let told = ["--source-format", "qcow2", "--allow-backing-outside"];
    bench.done(&[&["-q", "backup", "vm/top", &image], &told[..]].concat());
    assert!(bench.restored("vm/top") == content);
    // A protocol is no file name.
    create("nbd://localhost/disk");
    refused_image(&kept, REFUSED, &image, "qcow2", &["nbd://localhost/disk", "not supported"]);
    kept.check_content();
}
