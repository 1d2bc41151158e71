//! Partition tables of sfdisk and groups of LVM, against what these tools say of them.

#![allow(dead_code, reason = "not all helpers are used here")]

#[path = "common/ext.rs"]
mod common;

use common::{alone, run, FileDisk, Loop, MIB};
use filesystem::{volumes, Disk, FsError, Volume};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

fn blank(dir: &Path, size: u64) -> PathBuf {
    let image = dir.join("disk");
    File::create(&image).expect("create").set_len(size).expect("set_len");
    image
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

/// Writes a table that a script of sfdisk describes.
fn sfdisk(image: &Path, script: &str, args: &[&str]) {
    let child = Command::new("/usr/sbin/sfdisk")
        .args([&["-q", "--no-reread", "--no-tell-kernel"], args, &[text(image)]].concat())
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .spawn();
    let mut child = child.expect("sfdisk cannot be run: install the package fdisk");
    child.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("write");
    assert!(child.wait().expect("wait").success(), "sfdisk failed");
}

/// Number, start, length, type and label of each partition, by `sfdisk --json`, whose layout is one field a line.
fn by_sfdisk(device: &str, sector_bytes: u64) -> Vec<(String, u64, u64, String, String)> {
    let json = run("sfdisk", "fdisk", &["--json", device]);
    let mut found = Vec::new();
    for object in json.split('{').skip(3).map(|o| o.split('}').next().unwrap_or("")) {
        let field = |name: &str| {
            let rest = object.split(&format!("\"{name}\":")).nth(1)?;
            Some(rest.split([',', '\n']).next()?.trim().trim_matches('"').to_string())
        };
        let number = |name| field(name).and_then(|n| n.parse::<u64>().ok()).expect("a number") * sector_bytes;
        let node = field("node").expect("a node");
        let name = node.strip_prefix(device).expect("the device").trim_start_matches('p').to_string();
        let label = field("name").unwrap_or_default();
        found.push((name, number("start"), number("size"), field("type").expect("a type"), label));
    }
    found
}

fn listed(image: &Path) -> Vec<Volume> {
    volumes(Arc::new(FileDisk::open(image))).expect("readable")
}

/// Compares what is listed; partitions that only hold others are not.
fn compare(image: &Path, device: &str, sector_bytes: u64) -> usize {
    let ours: Vec<_> = listed(image)
        .into_iter()
        .map(|v| {
            let start = v.part().expect("on the disk").locate(0, 1)[0].offset;
            (v.name, start, v.size, v.type_id, v.label)
        })
        .collect();
    let mut theirs = by_sfdisk(device, sector_bytes);
    theirs.retain(|t| !matches!(&t.3[..], "5" | "f" | "85"));
    assert_eq!(ours, theirs);
    ours.len()
}

#[test]
fn mbr_with_logical_partitions() {
    let temp = common::temp();
    let image = blank(temp.path(), 100 * MIB);
    let script = "label: dos\n,10M,83,*\n,5M,7\n,60M,f\n,,c\n,10M,83\n,7M,82\n,9M,8e\n,,83\n";
    sfdisk(&image, script, &[]);
    assert_eq!(compare(&image, text(&image), 512), 7);
    let names: Vec<String> = listed(&image).into_iter().map(|v| v.name).collect();
    assert_eq!(names, ["1", "2", "4", "5", "6", "7", "8"]);
    // The second partition is removed, and so is a logical one.
    run("sfdisk", "fdisk", &["-q", "--delete", text(&image), "2", "6"]);
    assert_eq!(compare(&image, text(&image), 512), 5);
}

#[test]
fn a_list_of_logical_partitions_that_comes_back_is_damage() {
    let temp = common::temp();
    let image = blank(temp.path(), 100 * MIB);
    sfdisk(&image, "label: dos\nstart=2048,type=5\n,10M,83\n,10M,83\n,10M,83\n", &[]);
    let disk = OpenOptions::new().read(true).write(true).open(&image).expect("open");
    let mut entry = [0; 16];
    disk.read_exact_at(&mut entry, 2048 * 512 + 446 + 16).expect("read");
    let second = 2048 + u64::from(u32::from_le_bytes(entry[8..12].try_into().expect("four bytes")));
    assert_eq!(listed(&image).len(), 3);
    // The second link leads to itself.
    disk.write_all_at(&entry, second * 512 + 446 + 16).expect("write");
    let Err(FsError::Corrupt { why, .. }) = volumes(Arc::new(FileDisk::open(&image))) else {
        panic!("no error")
    };
    assert_eq!(why, format!("the list of logical partitions comes back to sector {second}"));
}

const GPT: &str = "label: gpt
size=10M, type=U, name=\"EFI\"
size=5M, type=L, name=\"größe\"
size=30M, type=S
type=L
";

#[test]
fn gpt_and_its_copy() {
    let temp = common::temp();
    let image = blank(temp.path(), 100 * MIB);
    sfdisk(&image, GPT, &[]);
    run("sfdisk", "fdisk", &["-q", "--delete", text(&image), "3"]);
    assert_eq!(compare(&image, text(&image), 512), 3);
    assert_eq!(listed(&image)[1].label, "größe");
    let before: Vec<_> = listed(&image).into_iter().map(|v| (v.name, v.size, v.label)).collect();
    let disk = OpenOptions::new().write(true).open(&image).expect("open");
    for (damage, offset) in [("an entry", 1024 + 40), ("the header", 512 + 60), ("all of it", 512)] {
        disk.write_all_at(&[0xaa; 8], offset).expect("write");
        let after: Vec<_> = listed(&image).into_iter().map(|v| (v.name, v.size, v.label)).collect();
        assert_eq!(after, before, "{damage} is damaged");
    }
    disk.write_all_at(&[0xaa; 8], 100 * MIB - 512 + 50).expect("write");
    let Err(why) = volumes(Arc::new(FileDisk::open(&image))) else { panic!("no error") };
    assert!(why.to_string().contains("at offset 104857088: the header's checksum is"), "{why}");
}

#[test]
fn gpt_with_sectors_of_4_kib() {
    if !testing::can_mount("") {
        return;
    }
    let _alone = alone();
    let temp = common::temp();
    let image = blank(temp.path(), 100 * MIB);
    let device = Loop::attach(&image, &["--sector-size", "4096"]);
    sfdisk(Path::new(&device.0), GPT, &[]);
    assert_eq!(compare(&image, &device.0, 4096), 4);
}

#[test]
fn a_hybrid_table_is_a_gpt() {
    let temp = common::temp();
    let image = blank(temp.path(), 100 * MIB);
    sfdisk(&image, "label: gpt\n,10M\n,20M\n", &[]);
    let disk = OpenOptions::new().read(true).write(true).open(&image).expect("open");
    let mut entry = [0; 16];
    disk.read_exact_at(&mut entry, 446).expect("read");
    disk.write_all_at(&entry, 446 + 16).expect("write");
    entry[4] = 0x83;
    entry[8..].copy_from_slice(&[0, 8, 0, 0, 0, 80, 0, 0]);
    disk.write_all_at(&entry, 446).expect("write");
    assert_eq!(compare(&image, text(&image), 512), 2);
}

#[test]
fn partitions_that_overlap_or_end_behind_the_disk_are_listed() {
    let temp = common::temp();
    let image = blank(temp.path(), 100 * MIB);
    let mut sector = [0; 512];
    for (n, (start, len)) in
        [(2048u32, 40_960u32), (8192, 100_000), (150_000, 50_000)].into_iter().enumerate()
    {
        let entry = &mut sector[446 + n * 16..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&len.to_le_bytes());
    }
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    OpenOptions::new().write(true).open(&image).and_then(|f| f.write_all_at(&sector, 0)).expect("write");
    assert_eq!(listed(&image).len(), 3);
    OpenOptions::new().write(true).open(&image).and_then(|f| f.set_len(50 * MIB)).expect("cut");
    let found = listed(&image);
    let sizes: Vec<_> =
        found.iter().map(|v| (v.size / 512, v.part().map_or(0, |p| p.size() / 512))).collect();
    assert_eq!(sizes, [(40960, 40960), (100_000, 94_208), (50_000, 0)]);
    assert!(matches!(found[2].open(), Err(FsError::Corrupt { .. })));
}

/// Makes a file system of each sort in a file, and says what it is.
#[test]
fn contents_are_told() {
    let temp = common::temp();
    for (program, package, args, kind) in [
        ("mkfs.ext4", "e2fsprogs", &["-q", "-F"][..], "ext4"),
        ("mkfs.ext3", "e2fsprogs", &["-q", "-F"], "ext3"),
        ("mkfs.ext2", "e2fsprogs", &["-q", "-F"], "ext2"),
        ("mkfs.xfs", "xfsprogs", &["-q"], "xfs"),
        ("mkswap", "util-linux", &["-q"], "swap"),
    ] {
        let image = blank(temp.path(), 400 * MIB);
        run(program, package, &[args, &[text(&image)]].concat());
        let found = listed(&image);
        let shown: Vec<_> = found.iter().map(|v| (&v.name[..], v.kind, v.size)).collect();
        assert_eq!(shown, [("disk", kind, 400 * MIB)]);
        let opened = found[0].open().map(|fs| fs.kind());
        match kind {
            "ext4" | "ext3" | "ext2" => assert_eq!(opened.expect("readable"), kind),
            "swap" => assert!(matches!(opened, Err(FsError::Unsupported { .. }))),
            _ => {}
        }
    }
    let empty = listed(&blank(temp.path(), MIB));
    assert_eq!((&empty[0].name[..], empty[0].kind), ("disk", ""));
    assert!(matches!(empty[0].open(), Err(FsError::Wrong { .. })));
}

/// Of what cannot be read it is told what it is, by its magic number.
#[test]
fn magic_numbers_are_known() {
    let temp = common::temp();
    let bcachefs = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
    for (at, magic, kind) in [
        (0x1_0040, &b"_BHRfS_M"[..], "btrfs"),
        (3, b"EXFAT   ", "exfat"),
        (0x1_0034, b"ReIsEr2Fs", "reiserfs"),
        (0x1_0000, b"ReIsEr4", "reiser4"),
        (0x8000, b"JFS1", "jfs"),
        (1024, b"\x10\x20\xf5\xf2", "f2fs"),
        (4096 + 24, bcachefs, "bcachefs"),
        (0x4000, b"\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0\x24\0\0\0\x20\0\0\0\x07version\0", "zfs"),
        (0, b"LUKS\xba\xbe", "luks"),
        (3, b"-FVE-FS-", "bitlocker"),
        (516, b"!Stra0tis\x86\xff\x02^\x41rh", "stratis"),
        (0, b"dmvdo001", "vdo"),
        (0x1_0000, b"\x01\x16\x19\x70\0\0\0\x01", "gfs2"),
        (2048, b"OCFSV2", "ocfs2"),
        ((64 << 10) + 1372, b"\x19\x01\x54\x19", "ufs"),
        (1030, b"\x34\x34", "nilfs2"),
        (1024, b"BD", "hfs"),
        (1040, b"\x8f\x13", "minix"),
        (0x8001, b"CD001", "iso9660"),
    ] {
        let image = blank(temp.path(), MIB);
        let disk = OpenOptions::new().write(true).open(&image).expect("open");
        disk.write_all_at(magic, at).expect("write");
        let found = listed(&image);
        assert_eq!((found.len(), found[0].kind), (1, kind));
        let Err(error) = found[0].open() else { panic!("{kind} was opened") };
        assert_eq!(error.to_string(), format!("volume disk: {kind} is not supported"));
    }
}

/// An ext4 whose numbers of inodes are, by chance, the short magic number of another file system was taken for that.
#[test]
fn short_magic_numbers_count_last() {
    let temp = common::temp();
    let image = common::make(temp.path(), "mkfs.ext4", &["-O", "^metadata_csum"], 16 * MIB);
    for (field, value) in
        [("free_inodes_count", 0x1138f), ("free_inodes_count", 0x2468), ("r_blocks_count", 0x10)]
    {
        common::debugfs(&image, &[&format!("ssv {field} {value}")]);
        assert_eq!(listed(&image)[0].kind, "ext4", "{field} {value:#x}");
    }
}

/// A boot sector of FAT, with the signature that partition tables have, and a boot program where these are.
#[test]
fn a_boot_sector_of_a_file_system_is_no_table() {
    let temp = common::temp();
    let image = blank(temp.path(), MIB);
    let mut sector = [0x90u8; 512];
    sector[..3].copy_from_slice(&[0xeb, 0x58, 0x90]);
    sector[3..11].copy_from_slice(b"MSDOS5.0");
    sector[11..22].copy_from_slice(&[0, 2, 8, 32, 0, 2, 0, 0, 0, 0, 0xf8]);
    sector[0x52..0x5a].copy_from_slice(b"FAT32   ");
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    let disk = OpenOptions::new().write(true).open(&image).expect("open");
    let valid_entry = [0x80, 0, 0, 0, 0x83, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0];
    for start in (446..510).step_by(16) {
        sector[start..start + 16].copy_from_slice(&valid_entry);
    }
    for (name, kind) in [(b"MSDOS5.0", "fat32"), (b"NTFS    ", "ntfs")] {
        sector[3..11].copy_from_slice(name);
        disk.write_all_at(&sector, 0).expect("write");
        let found = listed(&image);
        assert_eq!((found.len(), &found[0].name[..], found[0].kind), (1, "disk", kind));
    }
}

/// Runs a program of LVM on a machine without a device mapper, with no device but these.
fn lvm(devices: &[&str], args: &[&str]) -> String {
    let filter: String = devices.iter().map(|d| format!("\"a|^{d}$|\",")).collect();
    let config = format!(
        "devices {{ filter=[{filter}\"r|.*|\"] use_devicesfile=0 obtain_device_list_from_udev=0 scan=[\"/dev\"] }} \
         activation {{ udev_sync=0 udev_rules=0 monitoring=0 }} global {{ event_activation=0 }}"
    );
    let (program, rest) = args.split_first().expect("a program");
    run(program, "lvm2", &[&["--driverloaded", "n", "--config", &config], rest].concat())
}

/// A disk with two partitions that are physical volumes of one group, and what LVM says of its volumes' segments.
struct Lvm {
    image: PathBuf,
    _temp: tempfile::TempDir,
    segments: String,
}

/// Where each partition of that disk begins and how long it is, in MiB.
const PHYSICAL: [(u64, u64); 2] = [(1, 100), (120, 150)];

/// Where the extents begin in each, behind a small buffer for metadata.
const DATA_AT: u64 = 64 << 10;

fn lvm_disk() -> Lvm {
    let temp = common::temp();
    let image = blank(temp.path(), 300 * MIB);
    let parts = PHYSICAL.map(|(start, len)| {
        let (start, len) = ((start * MIB).to_string(), (len * MIB).to_string());
        (start, len)
    });
    sfdisk(&image, "label: gpt\nstart=1M,size=100M,type=lvm\nstart=120M,size=150M,type=lvm\n", &[]);
    let devices = parts.map(|(start, len)| Loop::attach(&image, &["-o", &start, "--sizelimit", &len]));
    let [one, two] = [&devices[0].0[..], &devices[1].0];
    let lvm = |args: &[&str]| lvm(&[one, two], args);
    lvm(&["pvcreate", "-q", "--metadatasize", "32k", "--dataalignment", "64k", one, two]);
    lvm(&["vgcreate", "-q", "-s", "1M", "vg0", one, two]);
    let create = |name: &str, args: &[&str]| {
        lvm(&[&["lvcreate", "-q", "-an", "-Zn", "-Wn", "-n", name, "vg0"], args].concat());
    };
    create("root", &["-L", "30M", one]);
    create("between", &["-L", "10M", one]);
    lvm(&["lvextend", "-q", "vg0/root", "-L", "+60M", two]);
    lvm(&["lvextend", "-q", "vg0/root", "-L", "+5M", one]);
    create("striped", &["-L", "40M", "-i", "2", "-I", "64k"]);
    create("other", &["-L", "8M", "--type", "error"]);
    go_round(&image, &lvm);
    let fields = "lv_name,segtype,seg_start,seg_size,stripes,stripe_size,seg_pe_ranges";
    let segments = lvm(&[
        "lvs",
        "--segments",
        "--noheadings",
        "--units",
        "b",
        "--nosuffix",
        "--separator",
        ";",
        "-o",
        fields,
        "vg0",
    ]);
    let starts = lvm(&["pvs", "--noheadings", "--units", "b", "--nosuffix", "-o", "pe_start"]);
    assert!(starts.split_whitespace().all(|s| s == DATA_AT.to_string()), "{starts}");
    let segments = segments.replace(one, "one").replace(two, "two");
    Lvm { image, _temp: temp, segments }
}

/// Changes the group until its text begins at the end of its buffer and ends at the buffer's beginning.
fn go_round(image: &Path, lvm: &dyn Fn(&[&str]) -> String) {
    for n in 0..60 {
        lvm(&["lvchange", "-q", "--addtag", &format!("tag{n}"), "vg0/root"]);
        // The area's header says how long the buffer is, and where in it the text.
        let mut header = [0; 56];
        File::open(image).and_then(|f| f.read_exact_at(&mut header, MIB + 4096)).expect("read");
        let field = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        if field(40) + field(48) > field(32) {
            return;
        }
    }
    panic!("the text never went round");
}

/// Where byte `at` of a volume is on the disk, by what `lvs` says.
fn by_lvs(segments: &str, volume: &str, at: u64) -> u64 {
    for line in segments.lines() {
        let fields: Vec<&str> = line.trim().split(';').collect();
        let number = |n: usize| fields[n].parse::<u64>().expect("a number");
        if fields[0] != volume || !(number(2)..number(2) + number(3)).contains(&at) {
            continue;
        }
        let within = at - number(2);
        let stripe_bytes = number(5).max(1);
        let (stripe, at) = match number(4) {
            1 => (0, within),
            n => {
                let chunk = within / stripe_bytes;
                (chunk % n, chunk / n * stripe_bytes + within % stripe_bytes)
            }
        };
        let range = fields[6].split_whitespace().nth(stripe as usize).expect("a range");
        let (device, extents) = range.split_once(':').expect("device and extents");
        let first: u64 = extents.split('-').next().and_then(|f| f.parse().ok()).expect("an extent");
        let base = PHYSICAL[usize::from(device == "two")].0 * MIB;
        return base + DATA_AT + first * MIB + at;
    }
    panic!("{volume} has no byte {at}: {segments}");
}

#[test]
fn logical_volumes() {
    if !testing::can_mount("") {
        return;
    }
    let _alone = alone();
    let made = lvm_disk();
    let found = listed(&made.image);
    let shown: Vec<_> = found.iter().map(|v| (&v.name[..], v.kind, v.size / MIB)).collect();
    let expected = [
        ("1", "lvm", 100),
        ("2", "lvm", 150),
        ("vg0/root", "", 95),
        ("vg0/between", "", 10),
        ("vg0/striped", "", 40),
        ("vg0/other", "", 8),
    ];
    assert_eq!(shown, expected);
    assert!(matches!(found[0].open(), Err(FsError::Unsupported { .. })));
    let Err(FsError::Unsupported { what, feature }) = found[5].open() else { panic!("no error") };
    assert_eq!((&what[..], &feature[..]), ("LVM vg0/other", "the segment type error"));
    for (name, nth) in [("root", 2), ("between", 3), ("striped", 4)] {
        let part = found[nth].part().expect("on the disk");
        for at in (0..part.size()).step_by(16 << 10) {
            assert_eq!(part.locate(at, 1)[0].offset, by_lvs(&made.segments, name, at), "{name} at {at}");
        }
    }
}

#[test]
fn a_file_system_on_a_logical_volume() {
    if !testing::can_mount("") {
        return;
    }
    let _alone = alone();
    let made = lvm_disk();
    let disk = OpenOptions::new().write(true).open(&made.image).expect("open");
    for (name, size) in [("root", 95), ("striped", 40)] {
        let temp = common::temp();
        let source = temp.path().join("source");
        std::fs::create_dir(&source).expect("mkdir");
        let content: Vec<u8> = (0..20 * MIB).map(|n| (n / 1000) as u8).collect();
        std::fs::write(source.join("file"), &content).expect("write");
        let image = common::make(temp.path(), "mkfs.ext4", &["-d", text(&source)], size * MIB);
        let bytes = std::fs::read(&image).expect("read");
        for (nth, piece) in bytes.chunks(64 << 10).enumerate() {
            disk.write_all_at(piece, by_lvs(&made.segments, name, (nth as u64) << 16)).expect("write");
        }
        let found = listed(&made.image);
        let volume = found.iter().find(|v| v.name == format!("vg0/{name}")).expect("listed");
        assert_eq!(volume.kind, "ext4");
        let fs = volume.open().expect("readable");
        let file = fs.lookup(fs.root(), b"file").expect("readable").expect("an entry").id;
        let mut got = vec![0; content.len()];
        assert_eq!(fs.read_at(file, 0, &mut got).expect("readable"), content.len());
        assert!(got == content, "{name}: other bytes");
    }
}

#[test]
fn physical_volumes_that_are_missing_or_damaged() {
    if !testing::can_mount("") {
        return;
    }
    let _alone = alone();
    let made = lvm_disk();
    let disk = OpenOptions::new().read(true).write(true).open(&made.image).expect("open");
    let mut head = vec![0; MIB as usize];
    disk.read_exact_at(&mut head, 120 * MIB).expect("read");
    disk.write_all_at(&vec![0; MIB as usize], 120 * MIB).expect("write");
    let found = listed(&made.image);
    let open = |name: &str| {
        let volume = found.iter().find(|v| v.name == name).expect("listed");
        volume.part().err().map(|why| why.to_string()).unwrap_or_default()
    };
    assert_eq!(open("vg0/between"), "");
    assert!(open("vg0/root").contains("is not on this disk"), "{}", open("vg0/root"));
    assert!(open("vg0/striped").contains("is not on this disk"));
    disk.write_all_at(&head, 120 * MIB).expect("write");
    // One copy of the metadata is enough; without any, the physical volumes say what is wrong.
    disk.write_all_at(&[0xaa; 8], MIB + 4096 + 100).expect("write");
    assert_eq!(listed(&made.image).len(), 6);
    disk.write_all_at(&[0xaa; 8], 120 * MIB + 4096 + 100).expect("write");
    let found = listed(&made.image);
    assert_eq!(found.len(), 2);
    let Err(FsError::Corrupt { what, why }) = found[1].open() else { panic!("no error") };
    assert!(what.contains("LVM metadata at offset 4096") && why.contains("checksum"), "{what}: {why}");
}

#[test]
fn a_physical_volume_that_is_the_whole_disk() {
    if !testing::can_mount("") {
        return;
    }
    let _alone = alone();
    let temp = common::temp();
    let image = blank(temp.path(), 100 * MIB);
    let device = Loop::attach(&image, &[]);
    let lvm = |args: &[&str]| lvm(&[&device.0], args);
    lvm(&["pvcreate", "-q", &device.0]);
    lvm(&["vgcreate", "-q", "group-1", &device.0]);
    lvm(&["lvcreate", "-q", "-an", "-Zn", "-Wn", "-n", "lv.1", "-L", "32M", "group-1"]);
    drop(device);
    let found = listed(&image);
    let shown: Vec<_> = found.iter().map(|v| (&v.name[..], v.kind, v.size / MIB)).collect();
    assert_eq!(shown, [("disk", "lvm", 100), ("group-1/lv.1", "", 32)]);
    assert_eq!(found[1].part().expect("on the disk").locate(0, 1)[0].offset, MIB);
}

/// Changes bytes of all tables and of LVM's metadata. Whatever is listed can be opened or refused.
#[test]
fn damage_is_an_error_or_a_volume() {
    if !testing::can_mount("") {
        return;
    }
    const SEED: u64 = 0x5a9_0002;
    const ROUNDS: u64 = 1000;
    // Tables, labels, the headers of metadata, and the texts.
    const AREAS: [(u64, u64); 8] = [
        (440, 72),
        (512, 92),
        (1024, 256),
        (300 * MIB - 512, 92),
        (MIB + 512, 128),
        (MIB + 4096, 64),
        (120 * MIB + 512, 128),
        (120 * MIB + 4096, 8192),
    ];
    let _alone = alone();
    let made = lvm_disk();
    let disk = OpenOptions::new().read(true).write(true).open(&made.image).expect("open");
    let (mut refused, mut fewer, mut unreadable) = (0, 0, 0);
    for round in 0..ROUNDS {
        let mut random = StdRng::seed_from_u64(SEED + round);
        let mut undo = Vec::new();
        for _ in 0..random.random_range(1..10) {
            let (base, len) = AREAS[random.random_range(0..AREAS.len())];
            let at = base + random.random_range(0..len);
            let mut before = [0];
            disk.read_exact_at(&mut before, at).expect("read");
            undo.push((before, at));
            disk.write_all_at(&[random.random()], at).expect("write");
        }
        match volumes(Arc::new(FileDisk::open(&made.image))) {
            Ok(found) => {
                fewer += u64::from(found.len() < 6);
                unreadable += u64::from(found.iter().filter(|v| v.part().is_err()).count() > 1);
                found.iter().for_each(|volume| drop(volume.open()));
            }
            Err(why) => {
                assert!(matches!(why, FsError::Corrupt { .. }), "seed {SEED}, round {round}: {why}");
                refused += 1;
            }
        }
        for (before, at) in undo.iter().rev() {
            disk.write_all_at(before, *at).expect("write");
        }
    }
    println!(
        "seed {SEED}: {refused} refused, {fewer} with fewer volumes, {unreadable} unreadable, of {ROUNDS}"
    );
    assert!(refused.min(fewer).min(unreadable) > ROUNDS / 50);
    assert_eq!(listed(&made.image).len(), 6);
}
