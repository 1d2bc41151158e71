//! What is forged where several snapshots are open at once: each may take what one alone may, but not all together.

use crate::cases::{directs, first_container, of, segment_of, Case};
use crate::forge::{recipe_of, Vault};
use format::{
    names, ChunkNo, Ordinal, PageAt, RecipePage, Reference, Reverse, SegmentNo, SnapId, SnapshotEntry,
    WriterNo,
};

const B: &str = "balanced";

/// Chunks of a segment of `balanced`.
const CHUNKS: u32 = 1024;

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
            let room = format::Manifest::MEMORY_MAX - m.memory_bytes();
            m.recent[0].tags = (0..room / 120).map(|n| (format!("{n:06}"), String::new())).collect();
        });
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

/// As many references as a segment may have, into the same segment of the next newer snapshot, in reverse order.
fn turned(n: u64) -> Vec<Reference> {
    let to = |m| Reference::Indirect { segment: SegmentNo(n), ordinal: Ordinal(m), count: 1 };
    (0..2 * CHUNKS).rev().map(to).collect()
}
