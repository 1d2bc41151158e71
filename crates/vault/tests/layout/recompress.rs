//! Containers that are packed again at a higher level.

use crate::common::{self, backup, new_vault, open_vault, restore, rng, scratch, seed};
use format::{names, ContainerEntry, ContainerPage, Context, Manifest, WriterKind};
use rand::RngExt;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{SimFs, SimStore};
use vault::{
    BackupOptions, CodecChoice, Global, Policy, Progress, ReadCache, Rewrite, Vault, VaultError, BALANCED,
};

/// Chunks of text, of which a higher level makes less.
fn text(name: &str, chunks: usize) -> Vec<u8> {
    let mut rng = rng(seed(name) + name.bytes().map(u64::from).sum::<u64>());
    let words: Vec<String> =
        (0..400).map(|_| format!("{:x} ", rng.random::<u32>() >> rng.random_range(0..20))).collect();
    let mut all = Vec::new();
    while all.len() < chunks * 4096 {
        all.extend_from_slice(words[rng.random_range(0..words.len())].as_bytes());
    }
    all.truncate(chunks * 4096);
    all
}

fn entries(vault: &Vault, dir: &Path) -> Vec<ContainerEntry> {
    let mut entries = Vec::new();
    for disk in fs::read_dir(dir.join("objects/disks")).unwrap() {
        let folder = names::folder(disk.unwrap().file_name().to_str().unwrap().parse().unwrap());
        let read = |object: &str| fs::read(dir.join("objects").join(object)).unwrap();
        let name = names::manifest(&folder);
        // Of a disk that was removed an empty directory may be left.
        if !dir.join("objects").join(&name).exists() {
            continue;
        }
        let m = Manifest::decode(Context { vault: vault.id(), place: &name }, &read(&name)).unwrap();
        assert!(!m.writers.iter().any(|w| w.kind == WriterKind::Maintenance), "it has ended");
        for page in m.pages {
            let place = names::page(&folder, page.writer, page.number);
            let context = Context { vault: vault.id(), place: &place };
            entries.extend(ContainerPage::decode(context, &read(&place)).unwrap().entries);
        }
    }
    entries
}

fn stored(entries: &[ContainerEntry]) -> u64 {
    entries.iter().map(|e| e.stored_bytes).sum()
}

#[test]
fn containers_are_packed_again_once_for_each_level() {
    let dir = scratch();
    let vault = new_vault(dir.path());
    let own = |e: &&ContainerEntry| e.id.is_own();
    let policy = Policy {
        codec: CodecChoice::Zstd(1),
        rewrite_at: Rewrite::Never,
        container_bytes: 1 << 20,
        group_bytes: 256 << 10,
        ..BALANCED
    };
    let old = text("old", 600);
    let mut new = old.clone();
    let other = text("new", 600);
    for at in (0..600).filter(|n| n % 3 == 0).map(|n| n * 4096) {
        new[at..at + 4096].copy_from_slice(&other[at..at + 4096]);
    }
    backup(&vault, "vm/a", &old, policy).unwrap();
    backup(&vault, "vm/a", &new, policy).unwrap();
    backup(&vault, "vm/b", &old, policy).unwrap();
    let first = entries(&vault, dir.path());
    // What a backup packed at one level is at that level.
    assert!(first.iter().filter(own).all(|e| e.level == 1), "{first:?}");

    let progress = Progress::default();
    let report = vault.recompress(None, 9, None, &progress).unwrap();
    let nine = entries(&vault, dir.path());
    assert_eq!(report.compacted.containers as usize, nine.iter().filter(own).count());
    assert!(nine.iter().filter(own).all(|e| e.level == 9), "{nine:?}");
    assert!(stored(&nine) < stored(&first), "{} and {}", stored(&nine), stored(&first));
    assert_eq!(report.compacted.after_bytes, stored(&nine));
    assert_eq!((progress.done(), progress.total()), (stored(&first), stored(&first)));

    // Not again at this level or a lower one, by any process.
    let vault = open_vault(dir.path()).unwrap();
    for level in [9, 3] {
        assert_eq!(
            vault.recompress(None, level, None, &Progress::default()).unwrap().compacted.containers,
            0
        );
    }
    assert_eq!(entries(&vault, dir.path()), nine);
    assert!(vault.recompress(Some("vm/a"), 10, None, &Progress::default()).unwrap().compacted.containers > 0);
    for (disk, snapshot, data) in
        [("vm/a", "latest~1", &old), ("vm/a", "latest", &new), ("vm/b", "latest", &old)]
    {
        assert!(restore(&vault, disk, snapshot).unwrap() == *data, "{disk}@{snapshot}");
    }
    assert!(vault.verify(None, true, &Progress::default()).unwrap().damaged.is_empty());

    // What loses chunks is packed quickly, and may be packed again.
    vault.remove("vm/b").unwrap();
    vault.delete("vm/a", &["latest~1"]).unwrap();
    vault.gc_all().unwrap();
    vault.compact(None, 0.01).unwrap();
    let loose = entries(&vault, dir.path());
    assert!(loose.iter().any(|e| e.level == 0), "{loose:?}");
    assert!(loose.iter().all(|e| e.dead_chunks == 0));
    vault.recompress(None, 9, None, &Progress::default()).unwrap();
    assert!(entries(&vault, dir.path()).iter().all(|e| e.level >= 9));
    assert!(restore(&vault, "vm/a", "latest").unwrap() == new);
}

/// What was stored raw by choice is punched and read in parts; what is noise does not shrink. They are looked at once.
#[test]
fn raw_containers_are_left() {
    let dir = scratch();
    let vault = new_vault(dir.path());
    backup(&vault, "vm/a", &text("raw", 300), Policy { codec: CodecChoice::Raw, ..BALANCED }).unwrap();
    backup(&vault, "vm/b", &testing::noise(7, 300 * 4096), BALANCED).unwrap();
    let before = entries(&vault, dir.path());
    let report = vault.recompress(None, 19, None, &Progress::default()).unwrap();
    assert_eq!(report.compacted.containers, 0);
    let after = entries(&vault, dir.path());
    let with_level = |e: &ContainerEntry| ContainerEntry { level: 19, ..*e };
    assert_eq!(after, before.iter().map(with_level).collect::<Vec<_>>());
    assert_eq!(restore(&vault, "vm/a", "latest").unwrap(), text("raw", 300));
}

/// Where packing again makes nothing smaller, what is there stays.
#[test]
fn no_container_grows() {
    let dir = scratch();
    let vault = new_vault(dir.path());
    let well = Policy { codec: CodecChoice::Zstd(12), ..BALANCED };
    let data = text("well packed", 300);
    backup(&vault, "vm/a", &data, well).unwrap();
    let before = entries(&vault, dir.path());
    assert!(before.iter().all(|e| e.level == 12));
    // As a vault has it that does not know how well it was packed.
    let folder = fs::read_dir(dir.path().join("objects/disks")).unwrap().next().unwrap().unwrap();
    let folder = names::folder(folder.file_name().to_str().unwrap().parse().unwrap());
    let read = |object: &str| fs::read(dir.path().join("objects").join(object)).unwrap();
    let name = names::manifest(&folder);
    let m = Manifest::decode(Context { vault: vault.id(), place: &name }, &read(&name)).unwrap();
    let page = names::page(&folder, m.pages[0].writer, m.pages[0].number);
    let context = Context { vault: vault.id(), place: &page };
    let forgotten = before.iter().map(|e| ContainerEntry { level: 0, ..*e }).collect();
    let bytes = ContainerPage { entries: forgotten }.encode(context);
    fs::write(dir.path().join("objects").join(&page), bytes).unwrap();
    let vault = open_vault(dir.path()).unwrap();
    let report = vault.recompress(None, 1, None, &Progress::default()).unwrap();
    assert_eq!((report.compacted.containers, report.compacted.damaged), (0, 0));
    let after = entries(&vault, dir.path());
    assert!(after.iter().zip(&before).all(|(a, b)| (a.level, a.data, a.table) == (1, b.data, b.table)));
    assert_eq!(restore(&vault, "vm/a", "latest").unwrap(), data);
    assert!(vault.verify(None, true, &Progress::default()).unwrap().damaged.is_empty());
    assert_eq!(vault.gc(false).unwrap().orphans, 0, "what was not wanted is gone");
}

/// Many containers of little data.
const MANY: Policy =
    Policy { container_bytes: 64 << 10, group_bytes: 32 << 10, segment_bytes: 64 << 10, ..BALANCED };

/// The disk's maintenance is given up now and then; what comes in between is seen.
#[test]
fn many_containers_take_several_rounds() {
    let dir = scratch();
    let vault = new_vault(dir.path());
    let data = text("rounds", 1200);
    backup(&vault, "vm/a", &data, MANY).unwrap();
    let before = entries(&vault, dir.path());
    assert!(before.len() > 70, "{} containers", before.len());
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let vault = open_vault(dir.path()).unwrap();
            let mut held_up = 0;
            for n in 0..3 {
                let mut next = data.clone();
                next[n * 4096..(n + 1) * 4096].fill(n as u8 + 1);
                let report = backup(&vault, "vm/a", &next, MANY).unwrap();
                held_up += usize::from(report.reverse.held_up.is_some());
            }
            held_up
        });
        let report = vault.recompress(None, 7, None, &Progress::default()).unwrap();
        assert!(report.busy.is_empty(), "{:?}", report.busy);
        assert_eq!(others.join().unwrap(), 0, "reverse passes wait for a moment");
    });
    let done = entries(&vault, dir.path()).iter().filter(|e| e.level == 7).count();
    assert!(done >= 60, "{done} of {}", before.len());
    vault.recompress(None, 7, None, &Progress::default()).unwrap();
    let after = entries(&vault, dir.path());
    assert!(after.iter().all(|e| e.level == 7), "{after:?}");
    assert!(restore(&vault, "vm/a", "latest~3").unwrap() == data);
    assert!(vault.verify(None, true, &Progress::default()).unwrap().damaged.is_empty());
}

/// A reader keeps what was replaced: then not all of the disk is stored twice.
#[test]
fn it_is_put_off_while_a_reader_needs_what_it_replaces() {
    let dir = scratch();
    let vault = new_vault(dir.path());
    let data = text("put off", 6400);
    backup(&vault, "vm/a", &data, MANY).unwrap();
    let all = entries(&vault, dir.path()).len();
    let open = vault.open_snapshot("vm/a", "latest", &ReadCache::new(1 << 20)).unwrap();
    let report = vault.recompress(None, 7, None, &Progress::default()).unwrap();
    let told = report.busy.concat();
    assert!(told.contains("a reader or a backup that still needs what was packed again"), "{told}");
    let done = entries(&vault, dir.path()).iter().filter(|e| e.level == 7).count();
    assert!((100..all).contains(&done), "{done} of {all}");
    drop(open);
    assert!(vault.recompress(None, 7, None, &Progress::default()).unwrap().busy.is_empty());
    assert!(entries(&vault, dir.path()).iter().all(|e| e.level == 7));
    assert!(restore(&vault, "vm/a", "latest").unwrap() == data);
}

/// A backup that shares chunks of a disk finds them although all of its containers are packed again meanwhile.
#[test]
fn backups_of_clones_go_on_sharing() {
    let policy = Policy {
        global: Global::Chunks { sampled: 2, champions: 4 },
        segment_bytes: 256 << 10,
        container_bytes: 256 << 10,
        group_bytes: 64 << 10,
        codec: CodecChoice::Lz4,
        ..BALANCED
    };
    let data = text("template", 1200);
    for disk in ["vm/new", "vm/old"] {
        let dir = scratch();
        let vault = new_vault(dir.path());
        backup(&vault, "vm/a", &data, policy).unwrap();
        backup(&vault, "vm/old", &data, policy).unwrap();
        // Its first chunks are looked up among those of the parent, or of the template.
        let mut next = data.clone();
        next.rotate_left(64 * 4096);
        let packed = Arc::new(AtomicU64::new(0));
        let (path, count) = (dir.path().to_owned(), packed.clone());
        let source = common::source_with(&next, 600 * 4096, move || {
            let vault = open_vault(&path).unwrap();
            let report = vault.recompress(Some("vm/a"), 5, None, &Progress::default()).unwrap();
            count.store(report.compacted.containers, Ordering::SeqCst);
        });
        let options = BackupOptions { policy: Some(policy), ..BackupOptions::default() };
        let made = vault.backup(disk, source, &options, &Progress::default()).unwrap();
        assert!(packed.load(Ordering::SeqCst) > 15, "{disk}: {packed:?} containers");
        assert!(made.snapshot.new_bytes <= 16 * 4096, "{disk}: {} new bytes", made.snapshot.new_bytes);
        assert!(restore(&vault, disk, "latest").unwrap() == next);
    }
}

/// Where there is room for a few containers only, what was replaced is deleted before it goes on.
#[test]
fn a_little_room_is_enough() {
    let fs = SimFs::new(1);
    Vault::init(Arc::new(SimStore::create_on(fs.clone()).unwrap()), &BALANCED).unwrap();
    let vault = Vault::open(Arc::new(SimStore::open_on(fs.clone()).unwrap())).unwrap();
    let policy =
        Policy { codec: CodecChoice::Lz4, container_bytes: 1 << 20, group_bytes: 256 << 10, ..BALANCED };
    let data = text("a little room", 6400);
    backup(&vault, "vm/a", &data, policy).unwrap();
    let before = fs.used_bytes();
    fs.set_capacity(before + (5 << 20));
    let report = vault.recompress(None, 7, None, &Progress::default()).unwrap();
    assert_eq!(report.compacted.containers, 25);
    assert!(fs.used_bytes() < before);
    assert!(restore(&vault, "vm/a", "latest").unwrap() == data);
    // Where there is none, it says so, and nothing is left of what it began.
    fs.set_capacity(fs.used_bytes());
    let full = vault.recompress(None, 19, None, &Progress::default()).unwrap_err();
    assert!(full.to_string().contains("no space left"), "{full}");
    assert_eq!(vault.gc(false).unwrap().orphans, 0);
    assert!(restore(&vault, "vm/a", "latest").unwrap() == data);
}

#[test]
fn it_stops_when_it_is_told_to_and_knows_its_levels() {
    let dir = scratch();
    let vault = new_vault(dir.path());
    backup(&vault, "vm/a", &text("stopped", 300), BALANCED).unwrap();
    let before = entries(&vault, dir.path());
    let progress = Progress::default();
    progress.cancel();
    assert!(matches!(vault.recompress(None, 9, None, &progress), Err(VaultError::Cancelled)));
    for level in [0, 20] {
        let told = vault.recompress(None, level, None, &Progress::default()).unwrap_err().to_string();
        assert!(told.contains("is not a level of zstd from 1 to 19"), "{told}");
    }
    assert_eq!(entries(&vault, dir.path()), before);
}

/// When the time for it is over, what is left is told, and done the next time.
#[test]
fn its_time_is_limited() {
    let dir = scratch();
    let vault = new_vault(dir.path());
    for disk in ["vm/a", "vm/b"] {
        backup(&vault, disk, &text(disk, 1200), MANY).unwrap();
    }
    let before = entries(&vault, dir.path());
    let report = vault.recompress(None, 7, Some(Instant::now()), &Progress::default()).unwrap();
    assert_eq!((report.compacted.containers, report.left_bytes), (0, stored(&before)));
    assert_eq!(entries(&vault, dir.path()), before);
    // However much is done in this time, what is left is right.
    let mut left = vec![report.left_bytes];
    while left.last() != Some(&0) {
        let until = Instant::now() + Duration::from_millis(20) * left.len() as u32;
        let report = vault.recompress(None, 7, Some(until), &Progress::default()).unwrap();
        let behind: Vec<_> = entries(&vault, dir.path()).into_iter().filter(|e| e.level < 7).collect();
        assert_eq!(report.left_bytes, stored(&behind));
        left.push(report.left_bytes);
    }
    assert!(left.windows(2).all(|two| two[1] <= two[0]), "{left:?}");
    for disk in ["vm/a", "vm/b"] {
        assert!(restore(&vault, disk, "latest").unwrap() == text(disk, 1200));
    }
}

/// A container that is damaged is told and left; the others are packed.
#[test]
fn damaged_containers_are_left() {
    let dir = scratch();
    let vault = new_vault(dir.path());
    let policy = Policy { container_bytes: 1 << 20, group_bytes: 256 << 10, ..BALANCED };
    backup(&vault, "vm/a", &text("damaged", 600), policy).unwrap();
    let before = entries(&vault, dir.path());
    let folder = fs::read_dir(dir.path().join("objects/disks")).unwrap().next().unwrap().unwrap();
    let folder = names::folder(folder.file_name().to_str().unwrap().parse().unwrap());
    let object = dir.path().join("objects").join(names::data(&folder, before[1].data));
    let mut bytes = fs::read(&object).unwrap();
    bytes[1000] ^= 1;
    fs::write(&object, bytes).unwrap();
    let report = vault.recompress(None, 9, None, &Progress::default()).unwrap();
    assert_eq!((report.compacted.damaged, report.compacted.containers as usize), (1, before.len() - 1));
    let levels: Vec<u8> = entries(&vault, dir.path()).iter().map(|e| e.level).collect();
    assert_eq!(levels.iter().filter(|l| **l == 0).count(), 1, "{levels:?}");
    assert_eq!(levels[1], 0);
}
