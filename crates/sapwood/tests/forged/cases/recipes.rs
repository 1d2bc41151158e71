//! Recipes: roots and pages.

use super::{of, Case, B};
use crate::forge::{recipe_of, varint, Body, Vault};
use crate::parts::{directs, first_container, newest, page_of, segment_of};
use format::{names, ChunkNo, Ordinal, PageAt, RecipePage, RecipePageRef, Reference, SegmentNo};

pub const CASES: &[Case] = &[
    of("root-newer", B, |v| with_pages(v, 0, |_| PageAt::Newer)),
    of("root-pages", B, |v| {
        let recipe = recipe_of(&newest(v));
        with_pages(v, 2, move |n| {
            PageAt::Page(RecipePageRef { recipe, offset: n << 20, page_len: 300, summary_len: 300 })
        });
    }),
    of("root-one-page", B, |v| {
        let s = newest(v);
        let mut root = v.root(&s);
        root.pages = vec![root.pages[0]; 2048];
        root.size = 2048 * 1024 * u64::from(root.segment_bytes);
        v.put_root(&s, &root);
    }),
    of("root-long-pages", B, |v| {
        // A part of 4 GiB in an object that has a hole of that length.
        let s = newest(v);
        let mut root = v.root(&s);
        let name = names::recipe_pages(&v.folder(), recipe_of(&s));
        let recipe = recipe_of(&s);
        let at = RecipePageRef { recipe, offset: 0, page_len: u32::MAX, summary_len: u32::MAX };
        root.pages[0] = PageAt::Page(at);
        v.put_root(&s, &root);
        v.put_hole(&name, 1 << 33);
    }),
    of("page-bomb", B, |v| {
        // A segment with 2^30 references of one byte.
        let times = 1 << 30;
        let head = [&[0, 1, 0][..], &[7; 40], &varint(times as u64)].concat();
        let page = Body::Repeated { head: &head, item: &[4], times };
        v.put_recipe_of(&newest(v), &[(page, Body::Of(&[0]))]);
    }),
    of("page-nulls", B, |v| v.put_recipe(&newest(v), &[nulls()])),
    of("page-nulls-of-all", B, |v| {
        for s in v.manifest().recent {
            v.put_recipe(&s, &[nulls(), nulls()]);
        }
    }),
    of("page-directs", B, |v| v.put_recipe(&newest(v), &[directs(v), directs(v)])),
    of("page-counts", B, |v| {
        let container = first_container(v);
        let r = Reference::Direct { container, first: ChunkNo(0), count: u32::MAX };
        v.put_recipe(&newest(v), &[page_of(&[r; 64])]);
    }),
    of("page-indirect", B, |v| {
        // A few bytes of the older ones lead to as many references as a page may have, any number of times.
        let all = v.manifest().recent;
        v.put_recipe(&all[2], &[directs(v)]);
        let indirect =
            |n: u64, m: u32| Reference::Indirect { segment: SegmentNo(n), ordinal: Ordinal(m), count: 1000 };
        let segment = |n: u64| (0..1000).map(|m| indirect(n, m)).collect::<Vec<_>>();
        let segments = (0..1024).map(|n| (n as u16, segment_of(segment(n)))).collect();
        let page = RecipePage { segments };
        v.put_recipe(&all[1], std::slice::from_ref(&page));
        v.put_recipe(&all[0], &[page]);
    }),
    of("page-indirect-whole", B, |v| {
        // As reverse passes leave it, at the limits of a page.
        let all = v.manifest().recent;
        v.put_recipe(&all[2], &[directs(v)]);
        let whole = |n: u64| Reference::Indirect { segment: SegmentNo(n), ordinal: Ordinal(0), count: 2048 };
        let segments = (0..1024).map(|n| (n as u16, segment_of(vec![whole(n)]))).collect();
        let page = RecipePage { segments };
        v.put_recipe(&all[1], std::slice::from_ref(&page));
        v.put_recipe(&all[0], &[page]);
    }),
    of("page-indirect-counts", B, |v| {
        let r = Reference::Indirect { segment: SegmentNo(0), ordinal: Ordinal(0), count: u32::MAX };
        for s in &v.manifest().recent[..2] {
            v.put_recipe(s, &[page_of(&[r; 1000])]);
        }
    }),
];

/// A root with as many pages as it may have.
fn with_pages(v: &Vault, snapshot: usize, page: impl Fn(u64) -> PageAt) {
    let s = &v.manifest().recent[snapshot];
    let mut root = v.root(s);
    root.pages = (0..format::RECIPE_PAGES_MAX).map(page).collect();
    root.size = format::RECIPE_PAGES_MAX * format::SEGMENTS_PER_PAGE * u64::from(root.segment_bytes);
    v.put_root(s, &root);
}

/// As many references as a page may have, of zeros.
fn nulls() -> RecipePage {
    let references = vec![Reference::Null { bytes: 1 }; RecipePage::REFERENCES_MAX / 1024];
    RecipePage { segments: (0..1024).map(|n| (n, segment_of(references.clone()))).collect() }
}
