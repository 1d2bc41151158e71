//! Backups that are told what changed: they read that and nothing else, and are whole all the same.
#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

use crate::common;
use crate::common::{backup, image, next_version, rng, seed};
use image::{Changes, ImageError, Source};
use rand::rngs::StdRng;
use rand::RngExt;
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use vault::{
    BackupOptions, BackupReport, Policy, Progress, Rewrite, Scan, Since, Vault, VaultError, BALANCED, REVERSE,
};

const SEGMENT: usize = 64 << 10;
/// Segments that are read although the list does not name them.
const SPOT_CHECKED: usize = 32;

/// A source that remembers what was read of it.
struct Watched {
    source: Box<dyn Source>,
    read: Arc<Mutex<Vec<Range<u64>>>>,
}

impl Source for Watched {
    fn format(&self) -> &'static str {
        self.source.format()
    }
    fn size(&self) -> Option<u64> {
        self.source.size()
    }
    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        self.source.next_data(from)
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        self.read.lock().unwrap().push(offset..offset + buf.len() as u64);
        self.source.read_at(offset, buf)
    }
}

/// Backs up what `changes` says since `snapshot`; returns what was read, too.
fn told(
    vault: &Vault,
    bytes: &[u8],
    policy: Policy,
    snapshot: &str,
    changes: Changes,
) -> Result<(BackupReport, Changes), VaultError> {
    let read = Arc::default();
    let source = Watched { source: common::source(bytes, true), read: Arc::clone(&read) };
    let since = Some(Since { snapshot: snapshot.into(), changes });
    let options = BackupOptions { policy: Some(policy), since, ..BackupOptions::default() };
    let report = vault.backup("vm/d", Box::new(source), &options, &Progress::default())?;
    let read = Changes::new(std::mem::take(&mut *read.lock().unwrap()));
    Ok((report, read))
}

/// The blocks in which two versions differ, some of them joined with what is between them.
fn differences(rng: &mut StdRng, a: &[u8], b: &[u8]) -> Changes {
    let longer = a.len().max(b.len());
    let block = |bytes: &[u8], n: usize| -> Vec<u8> {
        let from = (n * 4096).min(bytes.len());
        bytes[from..(from + 4096).min(bytes.len())].to_vec()
    };
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for n in (0..longer.div_ceil(4096)).filter(|n| block(a, *n) != block(b, *n)) {
        let start = n * 4096;
        match ranges.last_mut() {
            Some(last) if rng.random_bool(0.1) => last.end = (start + 4096).min(longer) as u64,
            _ => ranges.push(start as u64..(start + 4096).min(longer) as u64),
        }
    }
    Changes::new(ranges)
}

fn small(rng: &mut StdRng) -> Policy {
    let policy = [BALANCED, REVERSE][rng.random_range(0..2)];
    Policy {
        segment_bytes: SEGMENT as u32,
        group_bytes: 32 << 10,
        container_bytes: 128 << 10,
        own_index_bytes: 1 << 20,
        ..policy
    }
}

#[test]
fn chains_of_told_changes_come_back() {
    let mut rng = rng(seed("chains_of_told_changes_come_back"));
    for _ in 0..20 {
        let dir = common::scratch();
        let vault = common::new_vault(dir.path());
        let policy = small(&mut rng);
        let mut bytes = image(&mut rng, 5_000_000);
        let mut newest = backup(&vault, "vm/d", &bytes, policy).unwrap().snapshot;
        let mut all = vec![(newest.id, bytes.clone())];
        for _ in 0..6 {
            let next = next_version(&mut rng, &bytes);
            let changes = differences(&mut rng, &bytes, &next);
            let (report, read) =
                told(&vault, &next, policy, &newest.id.to_string(), changes.clone()).unwrap();
            let Scan::Changed { bytes: touched } = report.scan else { panic!("{:?}", report.scan) };
            let spot_checked = (SPOT_CHECKED * SEGMENT) as u64;
            assert!(read.bytes() <= touched + spot_checked, "{} {touched}", read.bytes());
            let length_changed = next.len() != bytes.len();
            let mut beside = HashSet::new();
            for r in read.ranges() {
                let segment = SEGMENT as u64;
                for no in r.start / segment..r.end.div_ceil(segment) {
                    let at = no * segment..(no + 1) * segment;
                    let is_edge = at.end > bytes.len().min(next.len()) as u64;
                    if !(changes.touch(at) || (length_changed && is_edge)) {
                        beside.insert(no);
                    }
                }
            }
            assert!(beside.len() <= SPOT_CHECKED, "segments {beside:?} were read");
            let whole =
                next.chunks(4096).filter(|b| b.iter().any(|x| *x != 0)).map(|b| b.len() as u64).sum::<u64>();
            assert_eq!(report.snapshot.data_bytes, whole);
            newest = report.snapshot;
            bytes = next;
            all.push((newest.id, bytes.clone()));
        }
        for (id, bytes) in &all {
            assert!(common::restore(&vault, "vm/d", &id.to_string()).unwrap() == *bytes, "{id}");
        }
        assert!(vault.verify(None, true, &Progress::default()).unwrap().damaged.is_empty());
    }
}

#[test]
fn a_list_that_does_not_begin_at_the_newest_snapshot_does_not_count() {
    let mut rng = rng(seed("a_list_that_does_not_begin_at_the_newest_snapshot_does_not_count"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let mut bytes = vec![0; 8 * SEGMENT];
    rng.fill(&mut bytes[..]);
    let policy = Policy { segment_bytes: SEGMENT as u32, ..BALANCED };
    let whole = |done: (BackupReport, Changes), bytes: &[u8], why: &str| {
        let Scan::WholeAlthough(said) = &done.0.scan else { panic!("{:?}", done.0.scan) };
        assert!(said.contains(why), "{said}");
        let id = done.0.snapshot.id.to_string();
        assert!(common::restore(&vault, "vm/d", &id).unwrap() == bytes);
        id
    };
    let nothing = Changes::default;
    let first = whole(told(&vault, &bytes, policy, "0123", nothing()).unwrap(), &bytes, "no snapshot yet");
    rng.fill(&mut bytes[..SEGMENT]);
    let second =
        told(&vault, &bytes, policy, &first, Changes::new(vec![0..SEGMENT as u64])).unwrap().0.snapshot;
    rng.fill(&mut bytes[SEGMENT..2 * SEGMENT]);
    whole(told(&vault, &bytes, policy, &first, nothing()).unwrap(), &bytes, "is not the newest");
    whole(
        told(&vault, &bytes, policy, "0123456789abcdef", nothing()).unwrap(),
        &bytes,
        "there is no snapshot",
    );
    vault.delete("vm/d", &["latest"]).unwrap();
    vault.delete("vm/d", &["latest"]).unwrap();
    // What was deleted is not the newest, nor is it there.
    let other = Policy { segment_bytes: 2 * SEGMENT as u32, ..policy };
    whole(
        told(&vault, &bytes, other, &second.id.to_string(), nothing()).unwrap(),
        &bytes,
        "cut in another way",
    );
    let newest = vault.snapshots(Some("vm/d")).unwrap().snapshots.last().unwrap().entry.id.to_string();
    let beyond = Changes::new(vec![0..9 * SEGMENT as u64]);
    assert!(matches!(told(&vault, &bytes, other, &newest, beyond), Err(VaultError::Refused(_))));
    // `latest` would be right whatever the list is of.
    for vague in ["latest", "", "2026-11-21", &format!("{newest}0")] {
        assert!(
            matches!(told(&vault, &bytes, other, vague, nothing()), Err(VaultError::Usage(_))),
            "{vague}"
        );
    }
}

/// Two disks of 40 segments, clones of each other but for twelve segments; each has been written to once more since.
fn two_clones(vault: &Vault, policy: Policy, rng: &mut StdRng) -> [(Vec<u8>, String); 2] {
    let mut template = vec![0; 40 * SEGMENT];
    rng.fill(&mut template[..]);
    ["vm/d", "vm/e"].map(|disk| {
        let mut bytes = template.clone();
        rng.fill(&mut bytes[4 * SEGMENT..16 * SEGMENT]);
        backup(vault, disk, &bytes, policy).unwrap();
        rng.fill(&mut bytes[20 * SEGMENT..21 * SEGMENT]);
        let id = backup(vault, disk, &bytes, policy).unwrap().snapshot.id.to_string();
        (bytes, id)
    })
}

#[test]
fn a_list_that_leaves_out_what_was_written_last_does_not_count() {
    let mut rng = rng(seed("a_list_that_leaves_out_what_was_written_last_does_not_count"));
    for policy in [BALANCED, REVERSE] {
        let dir = common::scratch();
        let vault = common::new_vault(dir.path());
        let policy = Policy { segment_bytes: SEGMENT as u32, rewrite_at: Rewrite::Never, ..policy };
        let [(mut bytes, newest), _] = two_clones(&vault, policy, &mut rng);
        // The list begins too late: it has lost a change where the disk was written last.
        bytes[20 * SEGMENT + 5000] ^= 1;
        rng.fill(&mut bytes[30 * SEGMENT..31 * SEGMENT]);
        let late = Changes::new(vec![(30 * SEGMENT) as u64..(31 * SEGMENT) as u64]);
        let (report, _) = told(&vault, &bytes, policy, &newest, late).unwrap();
        let Scan::WholeAlthough(why) = &report.scan else { panic!("{:?}", report.scan) };
        assert!(why.contains(&format!("bytes {} to {}", 20 * SEGMENT, 21 * SEGMENT)), "{why}");
        let id = report.snapshot.id.to_string();
        assert!(common::restore(&vault, "vm/d", &id).unwrap() == bytes);
    }
}

/// A source of which only the first segment can be read.
struct Broken(Box<dyn Source>);

impl Source for Broken {
    fn format(&self) -> &'static str {
        self.0.format()
    }
    fn size(&self) -> Option<u64> {
        self.0.size()
    }
    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        self.0.next_data(from)
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        if offset + buf.len() as u64 > SEGMENT as u64 {
            return Err(ImageError::Changes { path: "disk".into(), why: "any error".into() });
        }
        self.0.read_at(offset, buf)
    }
}

#[test]
fn what_no_list_names_need_not_be_readable() {
    let mut rng = rng(seed("what_no_list_names_need_not_be_readable"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let policy = Policy { segment_bytes: SEGMENT as u32, ..BALANCED };
    let [(mut bytes, newest), _] = two_clones(&vault, policy, &mut rng);
    rng.fill(&mut bytes[..SEGMENT]);
    let run = |changes| {
        let since = Some(Since { snapshot: newest.clone(), changes: Changes::new(changes) });
        let options = BackupOptions { policy: Some(policy), since, ..BackupOptions::default() };
        let source = Box::new(Broken(common::source(&bytes, true)));
        vault.backup("vm/d", source, &options, &Progress::default())
    };
    let all = vec![0..bytes.len() as u64];
    assert!(matches!(run(all), Err(VaultError::Image(_))));
    let report = run(vec![0..SEGMENT as u64]).unwrap();
    assert_eq!(report.scan, Scan::Changed { bytes: SEGMENT as u64 });
    assert!(common::restore(&vault, "vm/d", "latest").unwrap() == bytes);
}

#[test]
fn swapped_sources_are_noticed_with_a_list_of_changes() {
    let mut rng = rng(seed("swapped_sources_are_noticed_with_a_list_of_changes"));
    for policy in [BALANCED, REVERSE] {
        let dir = common::scratch();
        let vault = common::new_vault(dir.path());
        let policy = Policy { segment_bytes: SEGMENT as u32, rewrite_at: Rewrite::Never, ..policy };
        let [(mut d, newest), (e, _)] = two_clones(&vault, policy, &mut rng);
        let options = |changes: Changes| BackupOptions {
            policy: Some(policy),
            since: Some(Since { snapshot: newest.clone(), changes }),
            refuse_doubtful: true,
            ..BackupOptions::default()
        };
        let run = |bytes: &[u8], changes| {
            let options = options(Changes::new(changes));
            vault.backup("vm/d", common::source(bytes, true), &options, &Progress::default())
        };
        let changed = || vec![0..SEGMENT as u64];
        let Err(VaultError::Refused(why)) = run(&e, changed()) else { panic!("the other disk was stored") };
        assert!(why.contains("probably vm/e"), "{why}");
        // Its own source is not suspected.
        rng.fill(&mut d[..SEGMENT]);
        let report = run(&d, changed()).unwrap();
        assert_eq!(report.scan, Scan::Changed { bytes: SEGMENT as u64 });
    }
}

/// The files that hold chunks, in order of their names.
fn data_objects(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(data_objects(&path))
        } else {
            found.extend(path.extension().is_some_and(|e| e == "data").then_some(path))
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_damaged_is_read_although_it_did_not_change() {
    let mut rng = rng(seed("what_is_damaged_is_read_although_it_did_not_change"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let mut bytes = vec![0; 64 * SEGMENT];
    rng.fill(&mut bytes[..]);
    let policy = Policy { segment_bytes: SEGMENT as u32, container_bytes: 2 * SEGMENT as u32, ..BALANCED };
    let first = backup(&vault, "vm/d", &bytes, policy).unwrap().snapshot.id.to_string();
    // The second container: segments 2 and 3.
    let victim = &data_objects(dir.path())[1];
    let mut stored = std::fs::read(victim).unwrap();
    // Behind the header and what fills its block.
    stored[4096 + 100] ^= 1;
    std::fs::write(victim, stored).unwrap();
    let found = vault.verify(None, true, &Progress::default()).unwrap().damaged;
    assert_eq!(found.len(), 1, "{found:?}");
    let (report, read) = told(&vault, &bytes, policy, &first, Changes::default()).unwrap();
    assert_eq!(report.scan, Scan::Changed { bytes: 2 * SEGMENT as u64 });
    assert_eq!(read.bytes(), ((2 + SPOT_CHECKED) * SEGMENT) as u64);
    assert!(common::restore(&vault, "vm/d", "latest").unwrap() == bytes);
}
