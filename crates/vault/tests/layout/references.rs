//! The reference index: what deletions find with it is what they find without it.

use crate::common;
use crate::common::{next_version, rng, seed};
use format::{names, BlockAt, Context, Indexed, Manifest, RecipeName, ReferenceBlock, ReferenceFooter};
use rand::rngs::StdRng;
use rand::RngExt;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use vault::{Global, Policy, Progress, Vault, BALANCED};

const DISK: &str = "vm/vda";

/// As soon as `index_at` reversed recipes wait, they are put into the index.
fn policy(index_at: usize) -> Policy {
    Policy {
        segment_bytes: 64 << 10,
        group_bytes: 16 << 10,
        container_bytes: 256 << 10,
        global: Global::Off,
        index_at,
        ..BALANCED
    }
}

fn image(rng: &mut StdRng) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    bytes.chunks_mut(64 << 10).step_by(2).for_each(|part| rng.fill(part));
    bytes
}

struct Bench {
    dir: tempfile::TempDir,
    vault: Vault,
    /// By id.
    content: BTreeMap<String, Vec<u8>>,
    /// Oldest first.
    ids: Vec<String>,
}

impl Bench {
    fn new() -> Self {
        let dir = common::scratch();
        let vault = common::new_vault(dir.path());
        Bench { dir, vault, content: BTreeMap::new(), ids: Vec::new() }
    }

    fn backup(&mut self, bytes: &[u8], policy: Policy) {
        let id = common::backup(&self.vault, DISK, bytes, policy).unwrap().snapshot.id.to_string();
        self.content.insert(id.clone(), bytes.to_vec());
        self.ids.push(id);
    }

    /// Deletes the n-th snapshot.
    fn delete(&mut self, n: usize) {
        let id = self.ids.remove(n);
        self.content.remove(&id);
        self.vault.delete(DISK, &[&id]).unwrap();
    }

    fn folder(&self) -> String {
        let disk = fs::read_dir(self.dir.path().join("objects/disks")).unwrap().next().unwrap().unwrap();
        format!("disks/{}/", disk.file_name().to_str().unwrap())
    }

    fn manifest(&self) -> Manifest {
        let name = names::manifest(&self.folder());
        let bytes = fs::read(self.path(&name)).unwrap();
        Manifest::decode(Context { vault: self.vault.id(), place: &name }, &bytes).unwrap()
    }

    fn path(&self, object: &str) -> PathBuf {
        self.dir.path().join("objects").join(object)
    }

    /// The objects of the index that the manifest names.
    fn parts(&self) -> Vec<String> {
        let folder = self.folder();
        self.manifest().references.iter().map(|r| names::references(&folder, r.writer, r.number)).collect()
    }

    fn footer(&self, part: usize) -> ReferenceFooter {
        let (object, at) = (&self.parts()[part], self.manifest().references[part]);
        let bytes = fs::read(self.path(object)).unwrap();
        let place = format!("{object}#{}", at.blocks_len);
        let context = Context { vault: self.vault.id(), place: &place };
        ReferenceFooter::decode(context, &bytes[at.blocks_len as usize..], at.blocks_len).unwrap()
    }

    /// Containers with their chunks and dead chunks: what deletions decide.
    fn chunks(&self) -> Vec<(u64, u64)> {
        let m = self.manifest();
        let page = |p: &format::PageRef| {
            let name = names::page(&self.folder(), p.writer, p.number);
            let bytes = fs::read(self.path(&name)).unwrap();
            format::ContainerPage::decode(Context { vault: self.vault.id(), place: &name }, &bytes).unwrap()
        };
        let of = |e: &format::ContainerEntry| (u64::from(e.chunks), u64::from(e.dead_chunks));
        m.pages.iter().flat_map(|p| page(p).entries).map(|e| of(&e)).collect()
    }

    fn damaged(&self) -> Vec<String> {
        let report = self.vault.verify(None, true, &Progress::default()).unwrap();
        assert!(report.damaged.iter().all(|d| d.snapshots.is_empty()), "{:?}", report.damaged);
        report.damaged.into_iter().map(|d| d.object).collect()
    }

    fn check(&self) {
        for (id, bytes) in &self.content {
            assert!(common::restore(&self.vault, DISK, id).unwrap() == *bytes, "{id}: restored wrong bytes");
        }
    }
}

/// What was there once comes back: chunks that old snapshots reference and newer ones do not.
fn changed(rng: &mut StdRng, old: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = next_version(rng, old.last().unwrap());
    bytes.resize(1 << 20, 0);
    let from = &old[rng.random_range(0..old.len())];
    let at = rng.random_range(0..(1 << 20) / 4096 - 20) * 4096;
    bytes[at..at + 20 * 4096].copy_from_slice(&from[at..at + 20 * 4096]);
    bytes
}

#[test]
fn deletions_find_the_same_with_it_and_without_it() {
    let mut rng = rng(seed("deletions_find_the_same_with_it_and_without_it"));
    for round in 0..6 {
        let mut versions = vec![image(&mut rng)];
        let mut benches = [Bench::new(), Bench::new()];
        // Most snapshots in pages, or all in the manifest.
        let recent_max = if round % 2 == 0 { 3 } else { 100 };
        benches[0].vault = common::open_vault(benches[0].dir.path()).unwrap().with_recent_max(recent_max);
        let policies = [policy(1 + round / 2), policy(usize::MAX)];
        for step in 0..40 {
            let bytes = changed(&mut rng, &versions);
            let deleted =
                (step > 5 && rng.random_bool(0.7)).then(|| rng.random_range(0..benches[0].ids.len()));
            for (bench, policy) in benches.iter_mut().zip(policies) {
                bench.backup(&bytes, policy);
                deleted.into_iter().for_each(|n| bench.delete(n));
            }
            versions.push(bytes);
            assert_eq!(benches[0].chunks(), benches[1].chunks(), "round {round}, step {step}");
        }
        assert!((1..=4).contains(&benches[0].parts().len()) && benches[1].parts().is_empty());
        let m = benches[0].manifest();
        let is_indexed = |s: &&format::SnapshotEntry| s.indexed == Indexed::Yes;
        assert_eq!(m.recent.iter().filter(is_indexed).count() > 5, recent_max > 3);
        assert_eq!(m.older.is_empty(), recent_max > 3);
        while benches[0].ids.len() > 1 {
            let n = rng.random_range(0..benches[0].ids.len());
            benches.iter_mut().for_each(|b| b.delete(n));
            assert_eq!(benches[0].chunks(), benches[1].chunks());
        }
        for bench in &benches {
            assert_eq!(bench.damaged(), [""; 0]);
            bench.check();
        }
    }
}

#[test]
fn a_part_is_joined_with_shorter_ones_and_forgets_what_is_gone() {
    let mut rng = rng(seed("a_part_is_joined_with_shorter_ones_and_forgets_what_is_gone"));
    let mut bench = Bench::new();
    let mut bytes = image(&mut rng);
    for version in 0..70 {
        bench.backup(&bytes, policy(2));
        rng.fill(&mut bytes[..4096]);
        let recipes: Vec<usize> = (0..bench.parts().len()).map(|n| bench.footer(n).recipes.len()).collect();
        assert!(recipes.len() <= 4, "{version}: parts of {recipes:?} recipes");
        assert!(version < 10 || recipes.iter().sum::<usize>() + 4 > version, "{version}: {recipes:?}");
    }
    for _ in 0..60 {
        bench.delete(3);
    }
    for _ in 0..10 {
        bench.backup(&bytes, policy(2));
        rng.fill(&mut bytes[..4096]);
    }
    let named: usize = (0..bench.parts().len()).map(|n| bench.footer(n).recipes.len()).sum();
    assert!(named < 40, "{named} recipes are still named");
    bench.vault.gc(false).unwrap();
    let stored = fs::read_dir(bench.path(&format!("{}references", bench.folder()))).unwrap().count();
    assert_eq!(stored, bench.parts().len());
    assert_eq!(bench.damaged(), [""; 0]);
    bench.check();
}

#[test]
fn without_an_index_that_can_be_read_nothing_is_lost() {
    let mut rng = rng(seed("without_an_index_that_can_be_read_nothing_is_lost"));
    type Harm = fn(&Path);
    let harms: [Harm; 4] = [
        |p| fs::remove_file(p).unwrap(),
        |p| fs::write(p, b"").unwrap(),
        // The first block.
        |p| flip(p, 40),
        // The footer.
        |p| flip(p, fs::metadata(p).unwrap().len() as usize - 3),
    ];
    for (n, harm) in harms.into_iter().enumerate() {
        let mut bench = Bench::new();
        let mut versions = vec![image(&mut rng)];
        for _ in 0..8 {
            bench.backup(versions.last().unwrap(), policy(1));
            versions.push(changed(&mut rng, &versions));
        }
        let parts = bench.parts();
        for part in &parts {
            harm(&bench.path(part));
        }
        assert_eq!(bench.damaged(), parts, "{n}");
        bench.delete(4);
        bench.delete(2);
        bench.check();
        if n % 2 == 0 {
            let report = bench.vault.reindex().unwrap();
            assert_eq!(report.reference_indexes, 1);
        } else {
            // The next ones are put into parts that can be read, or `gc` takes the others away.
            bench.backup(versions.last().unwrap(), policy(1));
            bench.vault.gc(false).unwrap();
        }
        if n != 2 {
            assert_eq!(bench.damaged(), [""; 0], "{n}");
        }
        assert!(!bench.parts().is_empty(), "{n}");
        bench.delete(1);
        bench.check();
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn an_index_that_says_too_little_is_found() {
    let mut rng = rng(seed("an_index_that_says_too_little_is_found"));
    let mut bench = Bench::new();
    let mut versions = vec![image(&mut rng)];
    for _ in 0..6 {
        bench.backup(versions.last().unwrap(), policy(1));
        versions.push(changed(&mut rng, &versions));
    }
    let object = bench.parts()[0].clone();
    let recipes: Vec<RecipeName> = bench.footer(0).recipes;
    // The same recipes, of which it says that they reference a chunk less.
    let at = bench.manifest().references[0];
    let bytes = fs::read(bench.path(&object)).unwrap();
    let context = |place| Context { vault: bench.vault.id(), place };
    let first = bench.footer(0).blocks[0];
    let place = format!("{object}#0");
    let mut block = ReferenceBlock::decode(context(&place), &bytes[..first.len as usize]).unwrap();
    let live = bench.manifest().recent.iter().map(|s| s.id).collect::<Vec<_>>();
    let of_living =
        block.entries.iter().position(|e| live.contains(&recipes[e.recipe as usize].snap)).unwrap();
    block.entries.remove(of_living);
    let frame = block.encode(context(&place));
    let blocks = vec![BlockAt { len: frame.len() as u32, ..first }];
    let place = format!("{object}#{}", frame.len());
    let footer = ReferenceFooter { recipes, blocks }.encode(context(&place));
    fs::write(bench.path(&object), [&frame[..], &footer].concat()).unwrap();
    let name = names::manifest(&bench.folder());
    let mut m = bench.manifest();
    m.references[0] =
        format::IndexRef { blocks_len: frame.len() as u64, footer_len: footer.len() as u32, ..at };
    fs::write(bench.path(&name), m.encode(context(&name))).unwrap();
    assert_eq!(bench.damaged(), [object]);
    bench.vault.reindex().unwrap();
    assert_eq!(bench.damaged(), [""; 0]);
    bench.check();
}

/// A disk of three recipe pages. The oldest snapshot shares the recipe of its last page with all others, until that page
/// changes; what it keeps of its first page is in the same recipe. That must stay, wherever the manifest has the snapshot.
#[test]
fn older_snapshots_keep_the_recipes_that_they_share() {
    const SEGMENT: usize = 16 << 10;
    const PAGE: usize = 1024 * SEGMENT;
    let policy = Policy { segment_bytes: SEGMENT as u32, rewrite_at: vault::Rewrite::Never, ..policy(1) };
    type Change = fn(&mut Bench);
    let changes: [(&str, Change); 4] = [
        ("as it was folded", |_| ()),
        ("held", |b| drop(b.vault.set_held(DISK, &b.ids[0], true).unwrap())),
        ("its neighbour deleted", |b| b.delete(1)),
        ("collected", |b| drop(b.vault.gc(false).unwrap())),
    ];
    for (what, change) in changes {
        let mut rng = rng(seed("older_snapshots_keep_the_recipes_that_they_share"));
        let mut bench = Bench::new();
        bench.vault = common::open_vault(bench.dir.path()).unwrap().with_recent_max(4);
        let mut bytes = vec![0; 3 * PAGE];
        let mut write = |bytes: &mut [u8], page: usize| {
            let at = page * PAGE + rng.random_range(0..1024) * SEGMENT;
            rng.fill(&mut bytes[at..at + SEGMENT]);
        };
        (0..3).for_each(|page| write(&mut bytes, page));
        bench.backup(&bytes, policy);
        bytes[..PAGE].fill(0);
        for _ in 0..10 {
            write(&mut bytes, 1);
            bench.backup(&bytes, policy);
        }
        assert!(!bench.manifest().older.is_empty());
        change(&mut bench);
        for _ in 0..3 {
            write(&mut bytes, 2);
            bench.backup(&bytes, policy);
        }
        assert_eq!(bench.damaged(), [""; 0], "{what}");
        bench.check();
    }
}
