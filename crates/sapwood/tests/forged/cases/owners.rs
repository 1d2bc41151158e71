//! Containers of other owners, which are there or not.

use super::{of, Case, B};
use crate::forge::Vault;
use crate::parts::{far, newest, nobody, page_of, segment_of};
use format::{
    names, ChunkNo, ContainerEntry, ContainerId, ContainerPage, DataName, DiskId, OwnerNo, PageRef,
    RecipePage, Reference, Release, Released, WriterNo,
};

pub const CASES: &[Case] = &[
    of("owners", B, |v| {
        // Containers of as many owners as a manifest may count, none of which exists.
        v.put_manifest(|m| {
            m.owners = (0..OwnerNo::MAX.0).map(nobody).collect();
            let room = (format::Manifest::MEMORY_MAX - m.memory_bytes()) / 32 - 1000;
            m.unswept = (0..room as u32).map(|n| of_owner(n % OwnerNo::MAX.0 + 1, n)).collect();
            m.unswept.sort_unstable();
        });
    }),
    of("owners-of-references", B, |v| {
        v.put_manifest(|m| m.owners = (0..OwnerNo::MAX.0).map(nobody).collect());
        let direct =
            |n: u32| Reference::Direct { container: of_owner(n + 1, n), first: ChunkNo(0), count: 1 };
        let segment = |n: u32| (n as u16, segment_of((n * 50..(n + 1) * 50).map(direct).collect()));
        let page = RecipePage { segments: (0..1024).map(segment).collect() };
        v.put_recipe(&newest(v), &[page]);
    }),
    of("owners-gone", B, |v| {
        // As many as a manifest may count, all referenced by all snapshots.
        v.put_manifest(|m| m.owners = (0..OwnerNo::MAX.0).map(nobody).collect());
        let direct = |n: u32| Reference::Direct {
            container: of_owner(n.min(OwnerNo::MAX.0 - 1) + 1, n),
            first: ChunkNo(0),
            count: 1,
        };
        reference_everywhere(v, direct);
    }),
    // Owners that are there, each with a long container table of which nothing else is.
    of("owners-of-pages", B, |v| with_owners_of_pages(v, 0, 50)),
    // What they list does not fit into memory together, and the references change between them chunk by chunk: each look at
    // another owner decodes its manifest.
    of("owners-in-turn", B, |v| with_owners_of_pages(v, 900_000, 1)),
    of("containers-lost", B, |v| {
        // A destroyed vault: container tables of owners that are there, and nothing of their 262,144 containers.
        let owners: Vec<DiskId> = (0..OWNERS_WITH_PAGES).map(nobody).collect();
        let each = (1 << 18) / OWNERS_WITH_PAGES;
        let entry = |n: u32| ContainerEntry {
            id: far(n),
            table: WriterNo(1),
            data: DataName { container: far(n), generation: WriterNo(1) },
            dead: None,
            chunks: 1,
            dead_chunks: 0,
            stored_bytes: 1,
            level: 0,
        };
        for owner in &owners {
            let folder = names::folder(*owner);
            let mut m = format::Manifest::new(*owner, &format!("vm/{owner}"));
            for first in (0..each).step_by(256) {
                let name = names::page(&folder, WriterNo(1), first);
                let entries = (first..first + 256).map(entry).collect();
                v.write(&name, &ContainerPage { entries }.encode(v.context(&name)));
                m.pages.push(PageRef { first: far(first), writer: WriterNo(1), number: first });
            }
            let name = names::manifest(&folder);
            v.write(&name, &m.encode(v.context(&name)));
        }
        v.put_manifest(|m| m.owners = owners);
        let direct = |n: u32| Reference::Direct {
            container: of_owner(n / each + 1, n % each),
            first: ChunkNo(0),
            count: 1,
        };
        reference_everywhere(v, direct);
    }),
    of("owners-too-many", B, |v| {
        forge_manifest(v, |m| m.owners = (0..=OwnerNo::MAX.0).map(nobody).collect());
    }),
    of("owner-twice", B, |v| {
        forge_manifest(v, |m| m.owners = vec![nobody(1), nobody(2), nobody(1)]);
    }),
    of("owner-itself", B, |v| {
        // Half of what it references it calls another owner's, which is the same disk.
        forge_manifest(v, |m| {
            m.owners = vec![m.disk];
            m.unswept = vec![m.pages[0].first.of(OwnerNo(1))];
        });
    }),
    of("owner-not-counted", B, |v| {
        v.put_manifest(|m| {
            m.damaged.push(of_owner(9, 1));
            m.unswept.extend([of_owner(9, 2), of_owner(OwnerNo::MAX.0, 3)]);
            let what = Release::Foreign(of_owner(9, 4));
            m.released.push(Released { sequence: format::Sequence::FIRST, what });
        });
        let direct = |no| Reference::Direct { container: of_owner(no, 1), first: ChunkNo(0), count: 5 };
        v.put_recipe(&newest(v), &[page_of(&[direct(9), direct(OwnerNo::MAX.0)])]);
    }),
    of("released-of-owners", B, |v| {
        v.put_manifest(|m| {
            m.owners = (0..OwnerNo::MAX.0).map(nobody).collect();
            let what = |n: u32| Release::Foreign(of_owner(n + 1, n));
            m.released =
                (0..131_072).map(|n| Released { sequence: format::Sequence::FIRST, what: what(n) }).collect();
        });
    }),
];

/// Owners that have long container tables.
const OWNERS_WITH_PAGES: u32 = 16;

/// A container of an owner that the disk counts so, or does not count.
fn of_owner(no: u32, n: u32) -> ContainerId {
    ContainerId::new(OwnerNo(no), WriterNo(1 << 20), n)
}

/// So many references a segment to containers of owners that have long container tables, and damaged containers.
fn with_owners_of_pages(v: &Vault, damaged: u32, of_segment: u32) {
    let owners: Vec<DiskId> = (0..OWNERS_WITH_PAGES).map(nobody).collect();
    for owner in &owners {
        let mut m = format::Manifest::new(*owner, &format!("vm/{owner}"));
        let page = |n: u32| PageRef { first: far(n), writer: WriterNo(1), number: n };
        m.pages = (0..16_384).map(page).collect();
        m.damaged = (0..damaged).map(far).collect();
        m.check_limits().unwrap();
        let name = names::manifest(&names::folder(*owner));
        v.write(&name, &m.encode(v.context(&name)));
    }
    v.put_manifest(|m| m.owners = owners);
    let direct = |n: u32| Reference::Direct {
        container: of_owner(n % OWNERS_WITH_PAGES + 1, n * 13 % 16_384),
        first: ChunkNo(0),
        count: 1,
    };
    let segment = |n: u32| {
        let all = n * of_segment..(n + 1) * of_segment;
        (n as u16, segment_of(all.map(direct).collect()))
    };
    let page = RecipePage { segments: (0..1024).map(segment).collect() };
    v.put_recipe(&newest(v), &[page]);
}

/// A manifest that an encoder with checks would not write.
fn forge_manifest(v: &Vault, change: impl FnOnce(&mut format::Manifest)) {
    let name = names::manifest(&v.folder());
    let mut m = v.manifest();
    change(&mut m);
    v.write(&name, &m.encode(v.context(&name)));
}

/// Gives all snapshots a recipe whose segments have these references, 256 each.
fn reference_everywhere(v: &Vault, direct: impl Fn(u32) -> Reference) {
    let segment = |n: u32| (n as u16, segment_of((n * 256..(n + 1) * 256).map(&direct).collect()));
    let page = RecipePage { segments: (0..1024).map(segment).collect() };
    for s in v.manifest().recent {
        v.put_recipe(&s, std::slice::from_ref(&page));
    }
}
