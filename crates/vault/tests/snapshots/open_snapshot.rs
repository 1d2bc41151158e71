//! Open snapshots: read anywhere, by several threads, while the vault goes on, and from damaged objects.

use crate::between::Between;
use crate::common;
use crate::common::{backup, image, next_version, open_vault, rng, seed};
use rand::rngs::StdRng;
use rand::RngExt;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{SimFs, SimStore};
use vault::{Global, OpenSnapshot, Policy, ReadCache, Rewrite, Vault, VaultError, POLICIES};

const DISK: &str = "web/vda";

/// A policy with small everything, so that a little data has many segments, groups and containers.
fn small(policy: Policy, chunking: &str) -> Policy {
    let global = match policy.global {
        Global::Chunks { champions, .. } => Global::Chunks { sampled: 0, champions },
        other => other,
    };
    Policy {
        segment_bytes: 64 << 10,
        chunking: chunking.parse().unwrap(),
        group_bytes: 32 << 10,
        container_bytes: 512 << 10,
        own_index_bytes: 1 << 20,
        global,
        ..policy
    }
}

fn policies() -> impl Iterator<Item = Policy> {
    POLICIES.into_iter().flat_map(|p| ["4k", "12k", "cdc:4k"].map(|chunking| small(p, chunking)))
}

fn open(vault: &Vault, spec: &str, cache_bytes: u64) -> OpenSnapshot {
    vault.open_snapshot(DISK, spec, &ReadCache::new(cache_bytes)).unwrap()
}

/// Versions of a disk, and their ids.
fn versions(
    vault: &Vault,
    rng: &mut StdRng,
    policy: Policy,
    first: Vec<u8>,
    count: usize,
) -> Vec<(String, Vec<u8>)> {
    let mut current = first;
    (0..count)
        .map(|n| {
            if n > 0 {
                current = next_version(rng, &current);
            }
            let id = backup(vault, DISK, &current, policy).unwrap().snapshot.id;
            (id.to_string(), current.clone())
        })
        .collect()
}

/// Reads as a server does: what is ready, else what is not.
fn read(snapshot: &OpenSnapshot, at: usize, len: usize) -> vault::Result<Vec<u8>> {
    let mut buf = vec![0xa5; len];
    if snapshot.read_ready(at as u64, &mut buf) {
        Ok(buf)
    } else {
        snapshot.read_at(at as u64, &mut buf).map(|()| buf)
    }
}

fn read_here_and_there(snapshot: &OpenSnapshot, content: &[u8], rng: &mut StdRng, times: usize) {
    for _ in 0..times {
        let align = [1, 512, 4096][rng.random_range(0..3)];
        let at = rng.random_range(0..=content.len()) / align * align;
        let most = [1, 5000, 300_000][rng.random_range(0..3)];
        let len = rng.random_range(0..=most).min(content.len() - at);
        let found = read(snapshot, at, len).unwrap();
        assert!(found == content[at..at + len], "{len} bytes at {at} of {}", content.len());
    }
}

fn read_in_order(snapshot: &OpenSnapshot, content: &[u8], step: usize) {
    for at in (0..content.len()).step_by(step) {
        let len = step.min(content.len() - at);
        assert!(read(snapshot, at, len).unwrap() == content[at..at + len], "{len} bytes at {at}");
    }
}

/// What is outside the ranges that are told is zeros. Returns how many bytes are within.
fn told_data(snapshot: &OpenSnapshot, content: &[u8]) -> usize {
    let (mut at, mut told) = (0, 0);
    while let Some(range) = snapshot.next_data(at as u64).unwrap() {
        let (start, end) = (range.start as usize, range.end as usize);
        assert!(start >= at && end > start && end <= content.len(), "{range:?} after {at}");
        assert!(content[at..start].iter().all(|b| *b == 0), "data between {at} and {start} is not told");
        told += end - start;
        at = end;
    }
    assert!(content[at..].iter().all(|b| *b == 0), "data behind {at} is not told");
    assert_eq!(snapshot.next_data(content.len() as u64).unwrap(), None);
    assert_eq!(snapshot.next_data(u64::MAX).unwrap(), None);
    told
}

#[test]
fn every_version_is_read_as_it_was_backed_up() {
    let mut rng = rng(seed("every_version_is_read_as_it_was_backed_up"));
    for policy in policies() {
        let len = rng.random_range(500_000..2_500_000);
        let first = image(&mut rng, len);
        let dir = common::scratch();
        let vault = common::new_vault(dir.path());
        // Another disk has much of it too.
        vault
            .backup(
                "db/vda",
                common::source(&first, true),
                &vault::BackupOptions { policy: Some(policy), ..Default::default() },
                &vault::Progress::default(),
            )
            .unwrap();
        if policy.global == (Global::Popular { shortest_run: 4 }) || rng.random_bool(0.3) {
            vault.popular_build(1.0, dir.path()).unwrap();
        }
        let versions = versions(&vault, &mut rng, policy, first, 4);
        println!("{} {:?}, {} bytes", policy.name, policy.chunking, len);
        for (n, (id, content)) in versions.iter().enumerate() {
            for cache_bytes in [0, 1 << 20, 64 << 20] {
                let snapshot = open(&vault, id, cache_bytes);
                assert_eq!((snapshot.size(), snapshot.disk()), (content.len() as u64, DISK));
                told_data(&snapshot, content);
                std::thread::scope(|scope| {
                    for _ in 0..2 {
                        let mut rng = common::rng(rng.random());
                        let snapshot = &snapshot;
                        scope.spawn(move || read_here_and_there(snapshot, content, &mut rng, 15));
                    }
                    read_in_order(&snapshot, content, [20_000, 131_072, 3 << 20][n % 3]);
                });
            }
        }
    }
}

#[test]
fn sizes_of_all_kinds() {
    let mut rng = rng(seed("sizes_of_all_kinds"));
    for len in [0, 1, 511, 512, 4095, 4096, 4097, 65_535, 65_536, 65_537, 200_001] {
        let policy = small(POLICIES[len % POLICIES.len()], "4k");
        let dir = common::scratch();
        let vault = common::new_vault(dir.path());
        let mut content = vec![0; len];
        rng.fill(&mut content[..]);
        backup(&vault, DISK, &content, policy).unwrap();
        let snapshot = open(&vault, "latest", 1 << 20);
        told_data(&snapshot, &content);
        read_in_order(&snapshot, &content, 7777);
        read_here_and_there(&snapshot, &content, &mut rng, 30);
        assert!(snapshot.read_ready(len as u64, &mut []), "nothing needs no waiting");
        // Beyond the end.
        for (at, more) in [(len as u64, 1), (len as u64 + 1, 0), (0, len + 1), (u64::MAX, 1), (u64::MAX, 0)] {
            let mut buf = vec![0; more];
            let e = snapshot.read_at(at, &mut buf).unwrap_err();
            assert!(matches!(e, VaultError::Usage(_)) && e.to_string().contains("beyond its end"), "{e}");
            assert!(!snapshot.read_ready(at, &mut buf));
        }
    }
}

#[test]
fn big_holes_are_passed_over() {
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    for policy in POLICIES {
        let policy = Policy { segment_bytes: 64 << 10, ..small(policy, "4k") };
        // More than a page of the recipe between two pieces.
        let mut content = vec![0; 200 << 20];
        for at in [100_000, 150 << 20, (200 << 20) - 5000] {
            content[at..at + 3000].fill(7);
        }
        backup(&vault, DISK, &content, policy).unwrap();
        let snapshot = open(&vault, "latest", 1 << 20);
        let told = told_data(&snapshot, &content);
        assert!(told <= 3 * (8192 + 4096), "{}: {told} bytes", policy.name);
    }
}

/// Deletion, collection, compaction, backups with their reverse pass: nothing that an open snapshot needs is taken away.
#[test]
fn the_vault_goes_on_meanwhile() {
    let mut rng = rng(seed("the_vault_goes_on_meanwhile"));
    for (n, policy) in policies().enumerate() {
        let policy =
            Policy { rewrite_at: if n % 2 == 0 { policy.rewrite_at } else { Rewrite::Never }, ..policy };
        let dir = common::scratch();
        let vault = common::new_vault(dir.path());
        let first = image(&mut rng, 700_000);
        let mut all = versions(&vault, &mut rng, policy, first, 3);
        let opened: Vec<(OpenSnapshot, Vec<u8>)> = all
            .iter()
            .map(|(id, content)| (open(&vault, id, [0, 1 << 16][n % 2]), content.clone()))
            .collect();
        let compare = |what: &str| {
            println!("{} {:?}: {what}", policy.name, policy.chunking);
            for (snapshot, content) in &opened {
                read_in_order(snapshot, content, 50_000);
                told_data(snapshot, content);
            }
        };
        compare("before");
        let others = open_vault(dir.path()).unwrap();
        let next = next_version(&mut rng, &all.last().unwrap().1);
        backup(&others, DISK, &next, policy).unwrap();
        compare("after a backup");
        for (id, _) in all.drain(..) {
            others.delete(DISK, &[&id]).unwrap();
            others.gc(false).unwrap();
        }
        compare("after deletion");
        others.compact(None, 0.01).unwrap();
        backup(&others, DISK, &next_version(&mut rng, &next), policy).unwrap();
        others.gc(false).unwrap();
        compare("after compaction");
        // With those who read it, it goes.
        drop(opened);
        for _ in 0..2 {
            others.gc(false).unwrap();
        }
        let again = others.gc(false).unwrap();
        assert_eq!((again.orphans, again.waiting), (0, 0));
    }
}

fn objects(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(objects(&entry.path()))
        } else {
            found.push(entry.path())
        }
    }
    found.sort();
    found
}

/// Whatever object is damaged: each read gives the right bytes or an error that names an object, and what is elsewhere
/// can be read.
#[test]
fn damage_is_told_and_never_read() {
    let mut rng = rng(seed("damage_is_told_and_never_read"));
    let (mut failed, mut healed) = (0, 0);
    for (n, policy) in policies().enumerate() {
        let dir = common::scratch();
        let vault = common::new_vault(dir.path());
        let first = image(&mut rng, 1_500_000);
        let versions = versions(&vault, &mut rng, policy, first, 3);
        drop(vault);
        let all = objects(&dir.path().join("objects"));
        for kind in ["data", "table", "pages", "root", "manifest", "/pages/"] {
            let of_kind: Vec<&PathBuf> = all
                .iter()
                .filter(|p| p.extension().is_some_and(|e| e == kind) || p.to_str().unwrap().contains(kind))
                .collect();
            let Some(path) = of_kind.get(rng.random_range(0..of_kind.len().max(1))) else { continue };
            let good = fs::read(path).unwrap();
            let mut bad = good.clone();
            match rng.random_range(0..4) {
                0 => bad.truncate(rng.random_range(0..good.len())),
                1 => {
                    let at = rng.random_range(0..good.len());
                    let end = (at + 5000).min(good.len());
                    rng.fill(&mut bad[at..end]);
                }
                _ => bad[rng.random_range(0..good.len())] ^= 1 << rng.random_range(0..8),
            }
            fs::write(path, &bad).unwrap();
            let object = path.strip_prefix(dir.path().join("objects")).unwrap().to_str().unwrap();
            let named = |e: &VaultError| {
                assert!(e.is_damage(), "{object}: {e}");
                let stem = object.split('.').next().unwrap();
                assert!(e.to_string().contains(stem), "{object}: {e}");
            };
            for (id, content) in &versions {
                let outcome = open_vault(dir.path())
                    .and_then(|v| v.open_snapshot(DISK, id, &ReadCache::new([0, 8 << 20][n % 2])));
                let snapshot = match outcome {
                    Ok(snapshot) => Arc::new(snapshot),
                    Err(e) => {
                        named(&e);
                        failed += 1;
                        continue;
                    }
                };
                // One chunk may stand at many places.
                let mut blocks_failed = HashSet::new();
                for at in (0..content.len()).step_by(4096) {
                    let len = content.len().min(at + 4096) - at;
                    match read(&snapshot, at, len) {
                        Ok(found) => assert!(found == content[at..at + len], "{object}: wrong bytes at {at}"),
                        Err(e) => {
                            named(&e);
                            blocks_failed.insert(&content[at..at + len]);
                        }
                    }
                    if let Err(e) = snapshot.next_data(at as u64) {
                        named(&e);
                    }
                }
                failed += usize::from(!blocks_failed.is_empty());
                healed += usize::from(blocks_failed.is_empty());
                // Many groups of what compresses well stand in 5000 bytes; one bit is in one of them.
                let one_bit =
                    bad.len() == good.len() && bad.iter().zip(&good).filter(|(b, g)| b != g).count() == 1;
                if kind == "data" && one_bit && policy.chunking == "4k".parse().unwrap() {
                    let most = 2 * (5000 + policy.group_bytes as usize) * 4;
                    let lost = blocks_failed.len() * 4096;
                    assert!(lost <= most, "{object}: {lost} different bytes cannot be read");
                }
            }
            fs::write(path, &good).unwrap();
        }
    }
    println!("{failed} snapshots had errors, {healed} were read all the same");
    assert!(failed > 10 && healed > 10);
}

/// A group that is too large for the cache was read and decompressed again for each of its parts: hundreds of times for one
/// read.
#[test]
fn a_group_is_loaded_once_for_a_read() {
    let policy = small(POLICIES[0], "4k");
    let fs = SimFs::new(1);
    let vault = Vault::init(Arc::new(SimStore::create_on(fs.clone()).unwrap()), &policy).unwrap();
    // Between all blocks are zeros: each is a part by itself.
    let mut bytes = vec![0; 64 << 10];
    bytes
        .chunks_mut(8 << 10)
        .enumerate()
        .for_each(|(n, pair)| pair[..4096].copy_from_slice(&testing::noise(n as u64, 4096)));
    backup(&vault, DISK, &bytes, policy).unwrap();
    let counting = Between::counting(SimStore::open_on(fs).unwrap());
    let reads = counting.reads();
    let vault = Vault::open(Arc::new(counting)).unwrap();
    let open = open(&vault, "latest", 0);
    reads.lock().unwrap().clear();
    let mut found = vec![1; bytes.len()];
    open.read_at(0, &mut found).unwrap();
    assert!(found == bytes);
    let loaded = reads.lock().unwrap().iter().filter(|name| name.ends_with(".data")).count();
    assert_eq!(loaded, 1, "{:?}", reads.lock().unwrap());
}
