//! Sources whose content says another format than they have, or than they had.

use super::Kept;
use crate::common::{qemu_img, random, Child, DONE, REFUSED};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Writes over the beginning of a file, as a guest does to its raw disk.
fn write_into(raw: &str, header: &[u8]) {
    File::options().write(true).open(raw).unwrap().write_all_at(header, 0).unwrap();
}

/// The header of a qcow2 image that names `secret.raw`, and lies over all that a guest can write.
fn qcow2_naming_secret(kept: &Kept) -> Vec<u8> {
    let image = kept.bench.arg("header");
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", "secret.raw", "-F", "raw", &image]);
    fs::read(image).unwrap()
}

fn has_secret(kept: &Kept, disk: &str) -> bool {
    kept.bench.restored(disk).windows(16).any(|w| w == b"neighbour secret")
}

/// VDI, VHD, VHDX, Parallels and QED images were stored as if their bytes were the disk, without a word.
#[test]
fn containers_are_no_raw_disks() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let raw = bench.file("raw", &random(1 << 20, 2));
    for (format, what) in
        [("vdi", "VDI"), ("vpc", "VHD"), ("vhdx", "VHDX"), ("parallels", "Parallels"), ("qed", "QED")]
    {
        let image = bench.arg("image");
        qemu_img(&["convert", "-O", format, &raw, &image]);
        let said = [&*image, what, "qemu-img convert", "--source-format raw"];
        bench.fails(&["backup", "vm/new", &image], REFUSED, &said);
        bench.fails(&["backup", "vm/kept", &image], REFUSED, &said);
        let studied = bench.json(&["study", &image]);
        assert!(studied["skipped"][0].as_str().unwrap().contains(what), "{studied}");
        kept.check();
    }
    // Who means the bytes says so.
    let image = bench.arg("image");
    assert_eq!(bench.json(&["study", &image, "--source-format", "raw"])["file_count"], 1);
    bench.done(&["-q", "backup", "vm/image", &image, "--source-format", "raw"]);
    assert!(bench.restored("vm/image") == fs::read(&image).unwrap());
}

/// A pipe cannot be read as an image, and stored its bytes as a raw disk.
#[test]
fn images_do_not_come_through_pipes() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let raw = bench.file("raw", &random(1 << 20, 2));
    for format in ["raw", "qcow2", "vmdk", "vdi"] {
        let image = bench.arg("image");
        qemu_img(&["convert", "-O", format, &raw, &image]);
        let backup = |more: &[&str]| {
            let mut command = bench.command(&[&["-q", "backup", "vm/piped", "-"], more].concat());
            command.stdin(File::open(&image).unwrap());
            Child::start(command, format).wait()
        };
        if format == "raw" {
            backup(&[]).expect_done();
        } else {
            let what = if format == "vdi" { "VDI" } else { format };
            backup(&[]).expect_failure(REFUSED, &["-: begins like", what, "name a file"]);
        }
        backup(&["--source-format", "raw"]).expect_done();
        assert!(bench.restored("vm/piped") == fs::read(&image).unwrap());
    }
    // Shorter than any header.
    for bytes in [&b""[..], b"QF", b"QFI"] {
        let mut command = bench.command(&["-q", "backup", "vm/short", "-", "--force"]);
        command.stdin(File::open(bench.file("short", bytes)).unwrap());
        Child::start(command, "short").wait().expect_done();
        assert_eq!(bench.restored("vm/short"), bytes);
    }
}

/// A guest wrote a qcow2 header that names its neighbour's disk into its own raw one, and the next backup held the
/// neighbour's content.
#[test]
fn a_raw_disk_stays_one_whatever_its_guest_writes() {
    let kept = Kept::new();
    let bench = &kept.bench;
    bench.file("secret.raw", &b"neighbour secret".repeat(1 << 16));
    let header = qcow2_naming_secret(&kept);
    let raw = bench.file("guest.raw", &random(2 << 20, 3));
    let backup = |more: &[&str]| bench.run(&[&["-q", "backup", "vm/guest", &raw], more].concat());

    // From the start.
    backup(&[]).expect_done();
    write_into(&raw, &header);
    let said = [&*raw, "was read as raw before and looks like qcow2 now", "--source-format raw"];
    backup(&[]).expect_failure(REFUSED, &said);
    backup(&["--source-format", "raw"]).expect_done();
    assert!(bench.restored("vm/guest") == fs::read(&raw).unwrap() && !has_secret(&kept, "vm/guest"));
    // That it was said does not make the next header an image.
    backup(&[]).expect_failure(REFUSED, &said);
    // What comes between through a pipe or an export does not make it forget.
    let mut piped = bench.command(&["-q", "backup", "vm/guest", "-"]);
    piped.stdin(File::open(bench.file("other", &random(2 << 20, 4))).unwrap());
    Child::start(piped, "piped").wait().expect_done();
    backup(&[]).expect_failure(REFUSED, &said);
    assert_eq!(bench.snapshots("vm/guest").len(), 3);
    assert!(bench.snapshots("vm/guest").iter().all(|s| !has_secret(&kept, &format!("vm/guest@{s}"))));
    kept.check_content();
}

/// The same before the first backup, in one step and in two.
#[test]
fn a_header_from_before_the_first_backup_leads_nowhere() {
    let kept = Kept::new();
    let bench = &kept.bench;
    bench.file("secret.raw", &b"neighbour secret".repeat(1 << 16));
    let header = qcow2_naming_secret(&kept);
    let raw = bench.file("guest.raw", &random(2 << 20, 3));
    let backup = |more: &[&str]| bench.run(&[&["-q", "backup", "vm/guest", &raw], more].concat());
    write_into(&raw, &header);
    let said = [&*raw, "secret.raw", "as its backing file", "--source-format qcow2", "--source-format raw"];
    backup(&[]).expect_failure(REFUSED, &said);
    backup(&["--allow-backing-outside"]).expect_failure(REFUSED, &said);
    // First an image that names nothing, which is stored; it earns no trust.
    qemu_img(&["create", "-q", "-f", "qcow2", &bench.arg("harmless"), "1M"]);
    write_into(&raw, &fs::read(bench.path("harmless")).unwrap());
    backup(&[]).expect_done();
    write_into(&raw, &header);
    backup(&[]).expect_failure(REFUSED, &said);
    assert!(!has_secret(&kept, "vm/guest"));
    // An extent of a VMDK is such a name, too.
    let vmdk = "# Disk DescriptorFile\nversion=1\nRW 2048 FLAT \"secret.raw\" 0\n";
    let vmdk = bench.file("guest.vmdk", vmdk.as_bytes());
    bench.fails(&["backup", "vm/vmdk", &vmdk], REFUSED, &["secret.raw", "extent", "--source-format vmdk"]);
    kept.check_content();
}

/// For images it is enough to say it once; another format is refused all the same.
#[test]
fn what_the_user_said_of_a_format_is_remembered() {
    let kept = Kept::new();
    let bench = &kept.bench;
    bench.file("secret.raw", &b"neighbour secret".repeat(1 << 16));
    let image = bench.file("overlay.qcow2", &qcow2_naming_secret(&kept));
    let backup = |source: &str, more: &[&str]| bench.run(&[&["-q", "backup", "vm/d", source], more].concat());
    backup(&image, &[]).expect_failure(REFUSED, &["--source-format qcow2"]);
    backup(&image, &["--source-format", "qcow2"]).expect_done();
    backup(&image, &[]).expect_done();
    assert!(has_secret(&kept, "vm/d"));
    let listed = bench.json(&["snapshots", "vm/d"]);
    let tags: Vec<&str> = listed["snapshots"].as_array().unwrap().iter().map(tag).collect();
    assert_eq!(tags, ["qcow2,said", "qcow2,said"]);
    let raw = bench.file("raw", &random(1 << 20, 5));
    backup(&raw, &[]).expect_failure(REFUSED, &["was read as qcow2 before and looks like raw now"]);
    backup(&raw, &["--source-format", "raw"]).expect_done();
    backup(&raw, &[]).expect_done();
    // The word of then was for the image of then.
    backup(&image, &[]).expect_failure(REFUSED, &["was read as raw before"]);
    bench.fails(&["backup", "vm/d", &raw, "--tag", "source-format=raw"], 2, &["source-format"]);
    assert_eq!(bench.run(&["-q", "verify", "--data"]).code(), Some(DONE));
}

fn tag(snapshot: &serde_json::Value) -> &str {
    snapshot["tags"]["source-format"].as_str().unwrap()
}
