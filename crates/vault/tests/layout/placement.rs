//! Which chunks a backup writes, and which it only refers to.

use crate::common;
use crate::common::{backup, rng, seed};
use rand::rngs::StdRng;
use rand::RngExt;
use vault::{Global, Policy, Progress, Rewrite, BALANCED, REVERSE};

const SEGMENT: usize = 1 << 20;

const SEGMENTS: Policy = Policy {
    segment_bytes: SEGMENT as u32,
    group_bytes: SEGMENT as u32,
    container_bytes: SEGMENT as u32,
    ..REVERSE
};

/// Fills with what can be compressed, so that groups are read as a whole.
fn words(rng: &mut StdRng, bytes: &mut [u8]) {
    rng.fill(bytes);
    bytes.iter_mut().for_each(|b| *b &= 15);
}

/// A change of one block has a disk's own segment written whole, so that it is read in one piece; the segment that it
/// was goes. What another disk references stays, and is not written a second time.
#[test]
fn what_other_disks_keep_is_not_written_again() {
    let mut rng = rng(seed("what_other_disks_keep_is_not_written_again"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let mut bytes = vec![0; 8 * SEGMENT];
    rng.fill(&mut bytes[..]);
    let store = |disk: &str, bytes: &[u8]| backup(&vault, disk, bytes, SEGMENTS).unwrap().snapshot.new_bytes;
    assert_eq!(store("a/vda", &bytes), 8 * SEGMENT as u64);
    rng.fill(&mut bytes[2 * SEGMENT..2 * SEGMENT + 4096]);
    assert_eq!(store("a/vda", &bytes), SEGMENT as u64, "nobody else has it");

    assert_eq!(store("b/vda", &bytes), 0, "a clone");
    let mut clone = bytes.clone();
    rng.fill(&mut clone[5 * SEGMENT + 8192..5 * SEGMENT + 16384]);
    assert_eq!(store("b/vda", &clone), 8192);
    // What it wrote itself stands together again: with the first change, now.
    rng.fill(&mut clone[5 * SEGMENT + 65536..5 * SEGMENT + 69632]);
    assert_eq!(store("b/vda", &clone), 8192 + 4096);
    // Most of the segment is new: nothing of it is left where it was.
    rng.fill(&mut clone[5 * SEGMENT + 8192..6 * SEGMENT - 8192]);
    assert_eq!(store("b/vda", &clone), SEGMENT as u64);
    // And from then on it is the clone's own.
    rng.fill(&mut clone[5 * SEGMENT..5 * SEGMENT + 4096]);
    assert_eq!(store("b/vda", &clone), SEGMENT as u64);

    for (disk, wanted) in [("a/vda", &bytes), ("b/vda", &clone)] {
        assert!(common::restore(&vault, disk, "latest").unwrap() == **wanted, "{disk}");
    }
}

/// Where little is wanted of much, it is written again, once, and never more than twice what was new the time before, or a
/// little.
#[test]
fn what_is_dear_to_read_is_written_again() {
    let mut rng = rng(seed("what_is_dear_to_read_is_written_again"));
    let policy = Policy { rewrite_at: Rewrite::Fragmented { read_ratio: 2.0 }, ..BALANCED };
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let mut bytes = vec![0; 8 << 20];
    words(&mut rng, &mut bytes[..]);
    let first = backup(&vault, "vm/d", &bytes, policy).unwrap();
    assert_eq!((first.snapshot.new_bytes, first.rewritten_bytes), (8 << 20, 0));
    words(&mut rng, &mut bytes[1 << 20..]);
    let second = backup(&vault, "vm/d", &bytes, policy).unwrap();
    assert_eq!((second.snapshot.new_bytes, second.rewritten_bytes), (7 << 20, 0));
    words(&mut rng, &mut bytes[7 << 20..(7 << 20) + 4096]);
    let third = backup(&vault, "vm/d", &bytes, policy).unwrap();
    assert_eq!((third.snapshot.new_bytes, third.rewritten_bytes), (4096, 1 << 20), "1 MiB of 8 was wanted");
    assert_eq!(third.snapshot.changed_bytes, 4 << 20, "the other segment is equal, and moved all the same");
    let newest = vault.map("vm/d", "latest", 1).unwrap().fragmentation;
    assert_eq!(newest.containers, 2, "the first backup's is no longer read");
    words(&mut rng, &mut bytes[6 << 20..(6 << 20) + 4096]);
    let fourth = backup(&vault, "vm/d", &bytes, policy).unwrap();
    let written = (fourth.snapshot.new_bytes, fourth.rewritten_bytes);
    assert_eq!(written, (4096, 0), "joining two containers is not worth it");
    assert!(common::restore(&vault, "vm/d", "latest").unwrap() == bytes);
    assert!(vault.verify(None, true, &Progress::default()).unwrap().damaged.is_empty());
}

/// What the owner of a template has written again is taken from there by its clones: they need no copies of their own to be
/// read as fast.
#[test]
fn clones_follow_what_their_template_writes_again() {
    let mut rng = rng(seed("clones_follow_what_their_template_writes_again"));
    let policy = Policy { rewrite_at: Rewrite::Fragmented { read_ratio: 2.0 }, ..BALANCED };
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let disks = ["template/d", "clone/d", "late/d"];
    let read_from = |disk: &str| vault.map(disk, "latest", 1).unwrap().fragmentation.containers;
    let mut bytes = vec![0; 8 << 20];
    words(&mut rng, &mut bytes[..]);
    let store = |disk: &str, bytes: &[u8]| backup(&vault, disk, bytes, policy).unwrap();
    for disk in disks {
        store(disk, &bytes);
    }
    words(&mut rng, &mut bytes[1 << 20..]);
    for disk in disks {
        store(disk, &bytes);
        assert_eq!(read_from(disk), 2, "{disk}");
    }
    // 1 MiB of the first 8 is wanted: the template writes it again. A change of the clone's own brings it after.
    words(&mut rng, &mut bytes[7 << 20..(7 << 20) + 65536]);
    assert_eq!(store("template/d", &bytes).rewritten_bytes, 1 << 20);
    let mut own = bytes.clone();
    words(&mut rng, &mut own[6 << 20..(6 << 20) + 4096]);
    let followed = store("clone/d", &own);
    assert_eq!((followed.snapshot.new_bytes, followed.rewritten_bytes), (4096, 0));
    assert_eq!(
        read_from("clone/d"),
        3,
        "its own, and two of the template's: the first one's is no longer read"
    );
    // Nothing is left of what the template had first; what follows later finds only what stays.
    vault.delete("template/d", &["latest~2"]).unwrap();
    vault.delete("clone/d", &["latest~2", "latest~1"]).unwrap();
    store("late/d", &own);
    for (disk, wanted) in [("template/d", &bytes), ("clone/d", &own), ("late/d", &own)] {
        assert!(common::restore(&vault, disk, "latest").unwrap() == **wanted, "{disk}");
    }
    assert!(vault.verify(None, true, &Progress::default()).unwrap().damaged.is_empty());
}

/// Little that is wanted of a group of another disk is copied, once, but no more than the parent had new bytes. What comes
/// later follows.
#[test]
fn what_is_dear_to_read_of_another_disk_is_copied() {
    const LITTLE: usize = 256 << 10;
    let mut rng = rng(seed("what_is_dear_to_read_of_another_disk_is_copied"));
    // Each chunk is a hook, so that all that others have is found.
    let policy = Policy {
        rewrite_at: Rewrite::Fragmented { read_ratio: 2.0 },
        global: Global::Chunks { sampled: 0, champions: 4 },
        ..BALANCED
    };
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let store = |disk: &str, bytes: &[u8]| {
        let report = backup(&vault, disk, bytes, policy).unwrap();
        (report.snapshot.new_bytes as usize, report.rewritten_bytes as usize)
    };
    let takes_of_other = |disk: &str| {
        let taken = vault.newest_stats(disk).unwrap().unwrap().taken;
        taken.iter().any(|t| t.owner == "other/d")
    };
    let mut other = vec![0; 8 << 20];
    words(&mut rng, &mut other[..]);
    store("other/d", &other);
    let mut bytes = vec![0; 8 << 20];
    words(&mut rng, &mut bytes[..]);
    bytes[5 << 20..(5 << 20) + LITTLE].copy_from_slice(&other[1 << 20..(1 << 20) + LITTLE]);
    assert_eq!(store("template/d", &bytes), ((8 << 20) - LITTLE, 0));
    let mut clone = bytes.clone();
    words(&mut rng, &mut clone[..4096]);
    assert_eq!(store("clone/d", &clone), (4096, 0));

    let mut change = |bytes: &mut [u8], n: usize| words(&mut rng, &mut bytes[n << 20..(n << 20) + 4096]);
    change(&mut clone, 1);
    assert_eq!(store("clone/d", &clone).0, 4096);
    assert!(takes_of_other("clone/d"), "the place is more than the clone may copy");
    change(&mut bytes, 2);
    assert_eq!(store("template/d", &bytes), (4096, LITTLE));
    assert!(!takes_of_other("template/d"));
    change(&mut bytes, 3);
    assert_eq!(store("template/d", &bytes).0, 4096, "once");
    change(&mut clone, 2);
    assert_eq!(store("clone/d", &clone).0, 4096);
    assert!(!takes_of_other("clone/d"), "it follows");
    for (disk, wanted) in [("template/d", &bytes), ("clone/d", &clone), ("other/d", &other)] {
        assert!(common::restore(&vault, disk, "latest").unwrap() == **wanted, "{disk}");
    }
    assert!(vault.verify(None, true, &Progress::default()).unwrap().damaged.is_empty());
}

/// After many backups of a disk that hardly changes, it is not read from as many containers.
#[test]
fn small_changes_stay_together() {
    let mut rng = rng(seed("small_changes_stay_together"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let mut bytes = vec![0; 8 << 20];
    words(&mut rng, &mut bytes[..]);
    let mut written = 0;
    for version in 0..60 {
        let report = backup(&vault, "vm/d", &bytes, BALANCED).unwrap();
        written += report.rewritten_bytes;
        let newest = vault.map("vm/d", "latest", 1).unwrap().fragmentation;
        assert!(newest.containers <= 6, "version {version} is in {} containers", newest.containers);
        let at = rng.random_range(0..bytes.len() / 4096) * 4096;
        words(&mut rng, &mut bytes[at..at + 4096]);
    }
    println!("{written} bytes were written again");
    assert!(written < 20 << 20, "{written} bytes were written again");
    // The last change, and what that has scattered.
    for _ in 0..2 {
        backup(&vault, "vm/d", &bytes, BALANCED).unwrap();
    }
    let unchanged = backup(&vault, "vm/d", &bytes, BALANCED).unwrap();
    assert_eq!(unchanged.rewritten_bytes, 0, "nothing was new");
    assert!(common::restore(&vault, "vm/d", "latest").unwrap() == bytes);
    assert!(vault.verify(None, true, &Progress::default()).unwrap().damaged.is_empty());
}

/// A disk to which little is added each time: small containers are joined now and then, and not one of them in every backup.
#[test]
fn small_containers_are_joined_now_and_then() {
    let mut rng = rng(seed("small_containers_are_joined_now_and_then"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let mut bytes = vec![0; 20 << 20];
    words(&mut rng, &mut bytes[..4 << 20]);
    const BACKUPS: usize = 150;
    let (mut again, mut joining) = ([0; 2], [0; 2]);
    for version in 0..BACKUPS {
        let report = backup(&vault, "vm/d", &bytes, BALANCED).unwrap();
        let half = version * 2 / BACKUPS;
        again[half] += report.rewritten_bytes;
        joining[half] += usize::from(report.rewritten_bytes > 0);
        let at = (4 << 20) + version * (64 << 10);
        words(&mut rng, &mut bytes[at..at + (64 << 10)]);
    }
    let newest = vault.map("vm/d", "latest", 1).unwrap().fragmentation;
    println!("{again:?} bytes in {joining:?} backups, {} containers", newest.containers);
    assert!(newest.containers <= 12, "{} containers", newest.containers);
    // 4.7 MiB are new in each half.
    for half in [0, 1] {
        assert!(again[half] < 45 << 20, "{} bytes were written again", again[half]);
        assert!((1..BACKUPS / 4).contains(&joining[half]), "{} backups wrote some again", joining[half]);
    }
    assert!(
        common::restore(&vault, "vm/d", "latest").unwrap()[..] != bytes[..],
        "the last change was not backed up"
    );
    backup(&vault, "vm/d", &bytes, BALANCED).unwrap();
    assert!(common::restore(&vault, "vm/d", "latest").unwrap() == bytes);
}

/// A group that many windows of the disk want is kept, although a pipe takes one window after the other.
#[test]
fn a_restore_to_a_pipe_reads_no_more_than_one_to_a_file() {
    let mut rng = rng(seed("a_restore_to_a_pipe_reads_no_more_than_one_to_a_file"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let mut bytes = vec![0; 200 << 20];
    for version in 0..4 {
        for at in (0..bytes.len()).step_by(8 << 20) {
            words(&mut rng, &mut bytes[at + version * 4096..at + 65536]);
        }
        backup(&vault, "vm/d", &bytes, BALANCED).unwrap();
    }
    assert!(common::restore_in_order(&vault, "vm/d", "latest").unwrap() == bytes);
    let read = |in_order| -> u64 {
        vault.reads("vm/d", "latest", in_order).unwrap().iter().map(|read| read.len).sum()
    };
    assert!(read(true) <= read(false), "{} {}", read(true), read(false));
}
