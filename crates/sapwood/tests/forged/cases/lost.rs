//! What is forged of destroyed vaults: more than a million containers that are lost, in a row and each apart from the others.
//! What `verify` remembered of them grew with their number.

use super::{of, Case, B};
use crate::forge::Vault;
use crate::parts::segment_of;
use format::{
    names, ChunkNo, ContainerEntry, ContainerId, ContainerPage, DataName, DiskId, Manifest, OwnerNo, PageRef,
    RecipePage, Reference, WriterNo,
};

/// Containers that are lost.
const LOST: u32 = 5 << 18;
/// Those of one page of a container table, and of a recipe.
const PER_TABLE_PAGE: u32 = 256;
const PER_RECIPE_PAGE: u32 = 1 << 18;

pub const CASES: &[Case] = &[
    of("lost-in-a-row", B, |v| with_table(v, |n| (1 << 20, n))),
    of("lost-apart", B, |v| with_table(v, apart)),
    of("lost-unlisted", B, |v| {
        // The disk's own, of which its table has none.
        with_references(v, |n| ContainerId::new(OwnerNo::OWN, WriterNo(apart(n).0), apart(n).1));
    }),
    of("lost-of-others", B, |v| {
        // Those of an owner that is there and has none.
        let owner = DiskId([0xcd; 16]);
        let name = names::manifest(&names::folder(owner));
        v.write(&name, &Manifest::new(owner, "vm/owner").encode(v.context(&name)));
        v.put_manifest(|m| m.owners.push(owner));
        let no = OwnerNo(v.manifest().owners.len() as u32);
        with_references(v, |n| ContainerId::new(no, WriterNo(apart(n).0), apart(n).1));
    }),
];

/// Writer and number of a container whose neighbours are not there.
fn apart(n: u32) -> (u32, u32) {
    ((1 << 20) + n / 65_536, n % 65_536 * 64)
}

/// Behind what the disk's table has: containers of which nothing else is there.
fn with_table(v: &Vault, place: impl Fn(u32) -> (u32, u32)) {
    let id = |n: u32| ContainerId::new(OwnerNo::OWN, WriterNo(place(n).0), place(n).1);
    let entry = |n: u32| ContainerEntry {
        id: id(n),
        table: WriterNo(1),
        data: DataName { container: id(n), generation: WriterNo(1) },
        dead: None,
        chunks: 1,
        dead_chunks: 0,
        stored_bytes: 1,
        level: 0,
    };
    let mut pages = Vec::new();
    for first in (0..LOST).step_by(PER_TABLE_PAGE as usize) {
        let page = PageRef { first: id(first), writer: WriterNo(1), number: (1 << 20) + first };
        let name = names::page(&v.folder(), page.writer, page.number);
        let entries = (first..first + PER_TABLE_PAGE).map(entry).collect();
        v.write(&name, &ContainerPage { entries }.encode(v.context(&name)));
        pages.push(page);
    }
    v.put_manifest(|m| m.pages.extend(pages));
}

/// Recipes of all snapshots that reference one chunk of each container.
fn with_references(v: &Vault, id: impl Fn(u32) -> ContainerId) {
    let direct = |n: u32| Reference::Direct { container: id(n), first: ChunkNo(0), count: 1 };
    let page = |of: u32| {
        let first = |n: u32| of * PER_RECIPE_PAGE + n * 256;
        let segment = |n: u32| (n as u16, segment_of((first(n)..first(n) + 256).map(direct).collect()));
        RecipePage { segments: (0..1024).map(segment).collect() }
    };
    let pages: Vec<RecipePage> = (0..LOST / PER_RECIPE_PAGE).map(page).collect();
    for s in v.manifest().recent {
        v.put_recipe(&s, &pages);
    }
}
