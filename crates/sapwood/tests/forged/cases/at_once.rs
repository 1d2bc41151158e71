//! What is forged where several snapshots are open at once: each may take what one alone may, but not all together.

use super::containers::{self, with_groups};
use super::pages::put_snapshot_pages;
use super::{of, Case, B};
use crate::forge::{recipe_of, Vault};
use crate::parts::{directs, first_container, nobody, segment_of, tags};
use format::{
    names, ChunkNo, Codec, ContainerId, Manifest, Ordinal, PageAt, RecipePage, Reference, Reverse, SegmentNo,
    SnapId, SnapshotEntry, WriterNo,
};

/// Chunks of a segment of `balanced`.
const CHUNKS: u32 = 1024;
/// Bytes of far smaller chunks, and how many a segment has between zeros.
const SMALL: u32 = 256;
const SMALL_CHUNKS: u32 = (4 << 20) / (SMALL + 4);

pub const CASES: &[Case] = &[
    of("at-once-pages", B, |v| {
        for s in snapshots(v, 8, Reverse::No) {
            v.put_recipe(&s, &[whole(v)]);
        }
    }),
    of("at-once-chain", B, |v| {
        // Each reference of the oldest leads through one of its own in each newer one.
        let all = snapshots(v, 3, Reverse::Done);
        let page = RecipePage { segments: (0..1024).map(|n| (n as u16, segment_of(turned(n)))).collect() };
        v.put_recipe(&all[0], std::slice::from_ref(&page));
        v.put_recipe(&all[1], &[page]);
        v.put_recipe(&all[2], &[directs(v)]);
    }),
    of("at-once-roots", B, |v| {
        for s in snapshots(v, 12, Reverse::Done) {
            let mut root = v.root(&s);
            root.pages = vec![PageAt::Newer; format::RECIPE_PAGES_MAX as usize];
            root.size = format::RECIPE_PAGES_MAX * format::SEGMENTS_PER_PAGE * u64::from(root.segment_bytes);
            v.put_root(&s, &root);
        }
    }),
    of("at-once-manifest", B, |v| {
        snapshots(v, 12, Reverse::No);
        v.put_manifest(|m| {
            m.recent[0].tags = tags(Manifest::MEMORY_MAX - m.memory_bytes());
        });
    }),
    of("at-once-snapshot-pages", B, |v| {
        // To find each, the list of all snapshots is read, which takes as much as it may.
        let mut older = snapshots(v, 12, Reverse::No);
        v.put_manifest(|m| {
            m.recent.drain(..older.len());
        });
        let room = Manifest::MEMORY_MAX - v.manifest().memory_bytes() - (64 << 10);
        older[0].tags = tags(room);
        put_snapshot_pages(v, older);
    }),
    of("at-once-everything", B, |v| {
        // Large manifests, pages, chunk tables, groups and maps of segments of one disk, and large roots of another one. Then
        // disks whose manifests are large, too.
        with_groups(v, Codec::Zstd, containers::CHUNKS, SMALL);
        let page = spread(v);
        for s in v.manifest().recent {
            v.put_recipe(&s, std::slice::from_ref(&page));
        }
        v.put_manifest(|m| m.recent[0].tags = tags(30 << 20));
        let b = v.of_disk("vm/b");
        let all = b.manifest().recent;
        for (n, s) in all.iter().enumerate() {
            let mut root = b.root(s);
            let rest = if n + 1 < all.len() { PageAt::Newer } else { PageAt::Null };
            root.pages.resize(format::RECIPE_PAGES_MAX as usize, rest);
            root.size = format::RECIPE_PAGES_MAX * format::SEGMENTS_PER_PAGE * u64::from(root.segment_bytes);
            b.put_root(s, &root);
        }
        b.put_manifest(|m| {
            m.recent[0].tags = tags(8 << 20);
            let newest = m.recent.len() - 1;
            m.recent[..newest].iter_mut().for_each(|s| s.reverse = Reverse::Done);
        });
        for n in 0..4 {
            let (disk, name) = (nobody(n), format!("vm/c{n}"));
            let m = Manifest { disk, name, ..v.manifest() };
            let object = names::manifest(&names::folder(disk));
            v.write(&object, &m.encode(v.context(&object)));
        }
    }),
];

/// So many snapshots more, in front of those that are there, whose recipes have the pages of the first one.
fn snapshots(v: &Vault, count: u64, reverse: Reverse) -> Vec<SnapshotEntry> {
    let first = v.manifest().recent[0].clone();
    let root = v.root(&first);
    let depends = root.pages.iter().filter_map(|p| p.page()).map(|p| p.recipe);
    let depends: Vec<_> = depends.collect();
    let fresh: Vec<SnapshotEntry> = (1..=count)
        .map(|n| SnapshotEntry {
            id: SnapId(n),
            reverse,
            generation: WriterNo(1),
            depends: depends.clone(),
            tags: Vec::new(),
            ..first.clone()
        })
        .collect();
    for s in &fresh {
        let name = names::recipe_root(&v.folder(), recipe_of(s));
        v.write(&name, &root.encode(v.context(&name)));
    }
    v.put_manifest(|m| {
        m.recent.splice(0..0, fresh.iter().cloned());
    });
    fresh
}

/// As many references as a page may have, which make whole segments: between all chunks there are four zeros, in place of
/// the last chunk.
fn whole(v: &Vault) -> RecipePage {
    let container = first_container(v);
    let segment = |n: u32| {
        let mut references = Vec::new();
        for k in 0..CHUNKS - 1 {
            let first = ChunkNo((n + k) % 2 * 7);
            references
                .extend([Reference::Direct { container, first, count: 1 }, Reference::Null { bytes: 4 }]);
        }
        references.push(Reference::Null { bytes: 4 });
        (n as u16, segment_of(references))
    };
    RecipePage { segments: (0..1024).map(segment).collect() }
}

/// As many references as a page may have, to small chunks far apart in all containers of a disk.
fn spread(v: &Vault) -> RecipePage {
    let mut containers: Vec<ContainerId> = Vec::new();
    for name in v.objects(".table").iter().filter(|name| name.starts_with(&v.folder())) {
        containers.extend(names::container_of(name).map(|(id, _)| id));
    }
    let of = containers.len() as u32;
    let segment = |n: u32| {
        let first = n / of % 2 * (containers::CHUNKS / 2);
        let mut references = Vec::new();
        for k in 0..SMALL_CHUNKS {
            let (container, first) = (containers[(n % of) as usize], ChunkNo(first + k * 4));
            references
                .extend([Reference::Direct { container, first, count: 1 }, Reference::Null { bytes: 4 }]);
        }
        references.push(Reference::Null { bytes: (4 << 20) - SMALL_CHUNKS * (SMALL + 4) });
        (n as u16, segment_of(references))
    };
    let segments = RecipePage::REFERENCES_MAX as u32 / (2 * SMALL_CHUNKS + 1);
    RecipePage { segments: (0..segments).map(segment).collect() }
}

/// As many references as a segment may have, into the same segment of the next newer snapshot, in reverse order.
fn turned(n: u64) -> Vec<Reference> {
    let to = |m| Reference::Indirect { segment: SegmentNo(n), ordinal: Ordinal(m), count: 1 };
    (0..2 * CHUNKS).rev().map(to).collect()
}
