//! The reference index.

use super::{of, Case, B};
use crate::forge::{recipe_of, varint, Body, Vault};
use crate::parts::{far, first_container};
use format::{
    names, BlockAt, IndexRef, Indexed, Kind, RecipeName, ReferenceBlock, ReferenceEntry, ReferenceFooter,
    RunSet, SnapId, WriterNo,
};

pub const CASES: &[Case] = &[
    of("references-runs", B, |v| {
        let runs: Vec<(u32, u32)> = (0..500_000).map(|n| (n * 3 + 1, 1)).collect();
        let entry = |n| ReferenceEntry {
            container: first_container(v),
            recipe: n,
            chunks: RunSet::from_unsorted(runs.clone()),
        };
        let block = ReferenceBlock { entries: vec![entry(0)] }.encode(v.context("x"));
        let block = format::decode_frame(Kind::ReferenceBlock, v.context("x"), &block).unwrap().into_owned();
        with_references(v, &Body::Of(&block), 50, 65_000);
    }),
    of("references-recipes", B, |v| with_references(v, &Body::Of(&[0]), 1 << 16, 65_500)),
    of("references-bomb", B, |v| {
        let times = 100 << 20;
        let head =
            [&varint(1)[..], &first_container(v).raw().to_le_bytes(), &[0], &varint(times as u64)].concat();
        with_references(v, &Body::Repeated { head: &head, item: &[1, 1], times }, 1, 10);
    }),
    of("references-hole", B, |v| {
        // A block of 4 GiB after a hole of 4 TiB.
        let name = names::references(&v.folder(), WriterNo(1), 7);
        let block = |n: u32| [&far(n).raw().to_le_bytes()[..], &varint(u64::from(u32::MAX))].concat();
        let blocks: Vec<u8> = (0..1025).flat_map(block).collect();
        let body = [&[0][..], &varint(1025), &blocks].concat();
        let len = 1025 * u64::from(u32::MAX);
        let footer = v.frame(Kind::ReferenceFooter, &format!("{name}#{len}"), &Body::Of(&body));
        v.put_hole(&name, len);
        append(v, &name, len, &footer);
        let footer_len = footer.len() as u32;
        v.put_manifest(|m| {
            m.references = vec![IndexRef { writer: WriterNo(1), number: 7, blocks_len: len, footer_len }];
            m.recent.iter_mut().for_each(|s| s.indexed = Indexed::Yes);
        });
    }),
];

/// As many objects of the reference index as a manifest may list, each with so many equal blocks and recipes, those of the
/// snapshots first.
fn with_references(v: &Vault, block: &Body<'_>, blocks: usize, recipes: u64) {
    let folder = v.folder();
    let names: Vec<RecipeName> = v.manifest().recent.iter().map(recipe_of).collect();
    let others = (1 << 32..).map(|n| RecipeName { snap: SnapId(n), generation: WriterNo(9) });
    let recipes: Vec<RecipeName> = names.into_iter().chain(others).take(recipes as usize).collect();
    let mut all = Vec::new();
    for number in 0..16 {
        let name = names::references(&folder, WriterNo(1), number);
        let (mut object, mut at) = (Vec::new(), Vec::new());
        for _ in 0..blocks {
            let offset = object.len() as u64;
            let frame = v.frame(Kind::ReferenceBlock, &format!("{name}#{offset}"), block);
            at.push(BlockAt { first: first_container(v), offset, len: frame.len() as u32 });
            object.extend_from_slice(&frame);
        }
        let blocks_len = object.len() as u64;
        let footer = ReferenceFooter { recipes: recipes.clone(), blocks: at };
        let footer = footer.encode(v.context(&format!("{name}#{blocks_len}")));
        let footer_len = footer.len() as u32;
        object.extend_from_slice(&footer);
        v.write(&name, &object);
        all.push(IndexRef { writer: WriterNo(1), number, blocks_len, footer_len });
    }
    v.put_manifest(|m| {
        m.references = all;
        m.recent.iter_mut().for_each(|s| s.indexed = Indexed::Yes);
    });
}

fn append(v: &Vault, object: &str, at: u64, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(v.path(object)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, at).unwrap();
}
