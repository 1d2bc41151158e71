//! FAT, made by mkfs.fat and QEMU, filled and read through mtools, and read by this crate.

#[path = "common/windows.rs"]
mod windows;

use filesystem::fat::Fat;
use filesystem::{FileSystem, NodeKind, Part, Piece, Place};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use windows::{compare, damage, find, run, sparse_file, Compared, CountingDisk, FileDisk};

const HOW: Compared =
    Compared { links: false, changed: false, nanos: 1_000_000_000, directory_times: false, attributes: None };

/// A volume in a file, and mtools to work on it.
struct Volume(PathBuf);

impl Volume {
    fn make(path: PathBuf, kib: u64, options: &[&str]) -> Volume {
        sparse_file(&path, kib << 10);
        let mut args: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
        args.push(path.as_os_str());
        run("dosfstools", "/usr/sbin/mkfs.fat", &args);
        Volume(path)
    }

    fn tool(&self, tool: &str, args: &[&OsStr]) {
        run("mtools", tool, &[&["-i".as_ref(), self.0.as_os_str()], args].concat());
    }

    fn copy_in(&self, from: &Path) {
        self.tool("mcopy", &["-s".as_ref(), "-m".as_ref(), "-n".as_ref(), from.as_ref(), "::/".as_ref()]);
    }

    fn copy_out(&self, to: &Path) {
        fs::create_dir(to).expect("a directory");
        self.tool("mcopy", &["-s".as_ref(), "-m".as_ref(), "-n".as_ref(), "::*".as_ref(), to.as_ref()]);
    }

    fn open(&self) -> Fat {
        Fat::open(Arc::new(FileDisk::open(&self.0))).expect("a sound volume").expect("FAT")
    }

    /// Makes mtools look for free clusters from the first one on.
    fn forget_next_free(&self) {
        let image = File::options().read(true).write(true).open(&self.0).expect("the image");
        let mut boot = [0; 512];
        image.read_exact_at(&mut boot, 0).expect("a boot sector");
        if boot[82..].starts_with(b"FAT32") {
            let info = u64::from(boot[48]) * (u64::from(boot[12]) << 8);
            image.write_all_at(&[0xff; 4], info + 492).expect("no hint");
        }
    }

    /// Whether dosfstools thinks so too.
    fn check(&self) {
        run("dosfstools", "/usr/sbin/fsck.fat", &["-n".as_ref(), self.0.as_ref()]);
    }
}

fn write(path: &Path, len: usize, rng: &mut StdRng) {
    let mut bytes = vec![0; len];
    rng.fill_bytes(&mut bytes);
    fs::write(path, bytes).expect("a file");
    let time =
        UNIX_EPOCH + Duration::from_secs(315_532_800 + u64::from(rng.next_u32() / 2) * 2 % 3_780_000_000);
    File::options().write(true).open(path).and_then(|f| f.set_modified(time)).expect("a time");
}

/// A tree to copy: odd names, sizes around clusters, deep and large directories.
fn tree(at: &Path, cluster: usize, crowd: usize, rng: &mut StdRng) {
    fs::create_dir(at).expect("a directory");
    // mtools makes room for a name in one cluster only.
    let longest = "l".repeat(if cluster == 512 { 150 } else { 251 }) + ".txt";
    let names = [
        "UPPER.TXT",
        "lower.txt",
        "Mixed.Txt",
        "lower.EXT",
        "UPPER.ext",
        "no_extension",
        ".hidden",
        "two.dots.txt",
        "with space",
        "größe €.ß",
        "ünïcödé name",
        "日本語の名前",
        "+,;=[]",
        "a.b",
        "thirteen unit",
        "thirteen units",
        "twelve units",
        &longest,
    ];
    names.iter().for_each(|name| write(&at.join(name), 10, rng));
    for size in [0, 1, cluster - 1, cluster, cluster + 1, 5 * cluster, 5 * cluster + 1] {
        write(&at.join(format!("{size} bytes")), size, rng);
    }
    let mut deep = at.to_owned();
    for n in 0..25 {
        deep.push(format!("dir {n}"));
        fs::create_dir(&deep).expect("a directory");
        write(&deep.join("file"), n, rng);
    }
    let large = at.join("crowd");
    fs::create_dir(&large).expect("a directory");
    (0..crowd).for_each(|n| write(&large.join(format!("file number {n}")), n % 3, rng));
}

/// Leaves holes among the files and fills them with one.
fn fragment(volume: &Volume, dir: &Path, cluster: usize, rng: &mut StdRng) {
    let small = dir.join("small");
    fs::create_dir(&small).expect("a directory");
    (0..60).for_each(|n| write(&small.join(format!("{n}")), cluster, rng));
    volume.copy_in(&small);
    for n in (0..60).step_by(2) {
        volume.tool("mdel", &[format!("::/small/{n}").as_ref()]);
    }
    volume.forget_next_free();
    write(&dir.join("fragments"), cluster * 40 + 3, rng);
    volume.copy_in(&dir.join("fragments"));
}

fn check(kind: &str, kib: u64, cluster: usize, crowd: usize, options: &[&str]) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut rng = StdRng::seed_from_u64(kib);
    let options = [&["-n", "MY LABEL"], options].concat();
    let volume = Volume::make(dir.path().join("image"), kib, &options);
    // Some of the free clusters are not in order, then.
    fragment(&volume, dir.path(), cluster, &mut rng);
    let from = dir.path().join("tree");
    tree(&from, cluster, crowd, &mut rng);
    volume.copy_in(&from);
    volume.tool("mattrib", &["+r".as_ref(), "::/tree/UPPER.TXT".as_ref()]);
    volume.check();
    let shown = dir.path().join("shown");
    volume.copy_out(&shown);
    let fat = volume.open();
    let nodes = compare(&fat, fat.root(), &shown, HOW);
    assert!(nodes > crowd + 90, "{nodes} nodes");
    // What was copied in, with its times: mtools may read what it writes, and both be wrong.
    let copied = compare(&fat, find(&fat, "tree"), &from, HOW);
    assert!(copied > crowd + 60, "{copied} nodes");
    assert_eq!((fat.kind(), fat.label()), (kind, b"MY LABEL".to_vec()));
    assert_eq!(fat.warnings(), Vec::<String>::new());
    let extents = fat.extents(find(&fat, "fragments")).expect("extents");
    assert!(extents.len() > 10 && extents.iter().all(|e| matches!(e.place, Place::Volume(_))), "{extents:?}");
    assert_eq!(fat.node(find(&fat, "TREE/upper.txt")).expect("a node").mode, 0o444);
    assert_eq!(
        fat.node(find(&fat, "tree/GRÖSSE €.ß".replace("ÖSS", "Öß").as_str())).expect("a node").mode,
        0o644
    );
    assert_eq!(fat.node(find(&fat, "small")).expect("a node").kind, NodeKind::Directory);
}

#[test]
fn fat12_floppy() {
    check("fat12", 1440, 512, 50, &[]);
}

#[test]
fn fat12_with_clusters_of_4_kib() {
    check("fat12", 8000, 4096, 100, &["-F", "12", "-s", "8", "-f", "1"]);
}

#[test]
fn fat16() {
    check("fat16", 64 << 10, 2048, 300, &["-F", "16", "-s", "4"]);
}

#[test]
fn fat16_with_clusters_of_64_kib() {
    check("fat16", 512 << 10, 65536, 100, &["-F", "16", "-s", "128"]);
}

#[test]
fn fat32() {
    check("fat32", 300 << 10, 4096, 200, &["-F", "32", "-s", "8"]);
}

#[test]
fn fat32_with_sectors_of_4_kib() {
    check("fat32", 600 << 10, 4096, 100, &["-F", "32", "-S", "4096", "-s", "1"]);
}

#[test]
fn fat32_with_clusters_of_1_kib() {
    check("fat32", 80 << 10, 1024, 100, &["-F", "32", "-s", "2"]);
}

/// QEMU writes FAT on its own, in a partition.
#[test]
fn a_directory_as_qemu_shows_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let from = dir.path().join("from");
    tree(&from, 4096, 200, &mut StdRng::seed_from_u64(1));
    let image = dir.path().join("image");
    let source = format!("fat:16:{}", from.display());
    let args = ["convert", "-f", "vvfat", "-O", "raw", &source].map(OsStr::new);
    run("qemu-utils", "qemu-img", &[&args[..], &[image.as_os_str()]].concat());
    let disk = Arc::new(FileDisk::open(&image));
    let size = filesystem::Disk::size(&*disk);
    let part = Part::new(disk, &[Piece { offset: 63 * 512, len: size - 63 * 512 }]).expect("a partition");
    let fat = Fat::open(Arc::new(part)).expect("a sound volume").expect("FAT");
    assert!(compare(&fat, fat.root(), &from, HOW) > 200);
}

/// mtools takes minutes for so many entries; they are written here, and it only lists them.
#[test]
fn a_directory_of_20_000_entries() {
    const COUNT: usize = 20_000;
    let dir = tempfile::tempdir().expect("a directory");
    let volume = Volume::make(dir.path().join("image"), 64 << 10, &["-F", "32", "-s", "1"]);
    let mut image = fs::read(&volume.0).expect("the image");
    let field = |at: usize| usize::from(u16::from_le_bytes([image[at], image[at + 1]]));
    let (table, table_bytes) = (field(14) * 512, field(36) * 512);
    let data = table + table_bytes * usize::from(image[16]);
    // The root goes on in every second cluster from its first, which is 2.
    let clusters = COUNT * 32 / 512 + 1;
    for n in 0..clusters {
        let next = if n + 1 == clusters { 0x0fff_ffff } else { 2 + (n as u32 + 1) * 2 };
        let at = table + (2 + n * 2) * 4;
        image[at..at + 4].copy_from_slice(&next.to_le_bytes());
    }
    for n in 0..COUNT {
        let at = data + n / 16 * 1024 + n % 16 * 32;
        image[at..at + 12].copy_from_slice(format!("N{n:07}TXT ").as_bytes());
    }
    fs::write(&volume.0, image).expect("the image");
    let listed = run("mtools", "mdir", &["-b".as_ref(), "-i".as_ref(), volume.0.as_os_str(), "::".as_ref()]);
    let disk = Arc::new(CountingDisk::open(&volume.0));
    let fat = Fat::open(disk.clone()).expect("a sound volume").expect("FAT");
    let entries = fat.entries(fat.root()).expect("entries");
    let ours: Vec<u8> = entries.iter().flat_map(|e| [b"::/", &e.name[..], b"\n"].concat()).collect();
    assert!(ours == listed, "{} entries", entries.len());
    for entry in &entries {
        assert_eq!(fat.lookup(fat.root(), &entry.name).expect("a lookup").as_ref(), Some(entry));
        assert_eq!(fat.node(entry.id).expect("a node").size, 0);
    }
    // Neither the directory nor the table is read again for each entry.
    let reads = disk.reads.load(Ordering::Relaxed);
    println!("{reads} reads");
    assert!(reads < 3 * COUNT as u64, "{reads} reads");
}

/// Bytes of the boot sector, the tables, directories and files are changed.
#[test]
fn damage_is_no_harm() {
    for (kib, options) in [(1440, &[][..]), (9000, &["-F", "16"]), (40 << 10, &["-F", "32", "-s", "1"])] {
        let dir = tempfile::tempdir().expect("a directory");
        let volume = Volume::make(dir.path().join("image"), kib, options);
        let from = dir.path().join("tree");
        tree(&from, 512, 40, &mut StdRng::seed_from_u64(kib));
        volume.copy_in(&from);
        let image = fs::read(&volume.0).expect("the image");
        let used: Vec<usize> = (512..image.len()).filter(|at| image[*at] != 0).take(10_000).collect();
        let places = |rng: &mut StdRng| match rng.random_range(0..20) {
            0 => rng.random_range(0..64),
            1 => rng.random_range(512..image.len().min(120_000)),
            _ => used[rng.random_range(0..used.len())],
        };
        let open = |disk| Fat::open(disk).map(|fat| fat.map(|fat| Box::new(fat) as Box<dyn FileSystem>));
        damage(image.clone(), 2000, kib, places, open);
    }
}
