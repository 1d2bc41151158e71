//! Summaries of recipe pages.

use super::{of, Case, B};
use crate::forge::{varint, Body, Vault};
use crate::parts::{directs, far, first_container, newest, page_of};
use format::{Kind, RecipePage, Reference, RunSet, Summary};

pub const CASES: &[Case] = &[
    of("summary-runs", B, |v| {
        let runs = (0..2_000_000).map(|n| (n * 2, 1)).collect();
        with_summary(v, Summary { containers: [(first_container(v), RunSet::from_unsorted(runs))].into() });
    }),
    of("summary-containers", B, |v| {
        let run = || RunSet::from_unsorted(vec![(0, u32::MAX - 1)]);
        with_summary(v, Summary { containers: (0..400_000).map(|n| (far(n), run())).collect() });
    }),
    of("summaries-of-many-pages", B, |v| {
        // All together they name 64 million chunks of one container, none beside another.
        let page = page_body(v, &page_of(&[Reference::Null { bytes: 4 << 20 }]));
        let body = |n: u32| {
            let runs = RunSet::from_unsorted((0..1_000_000).map(|k| (k * 128 + n * 2, 1)).collect());
            let summary = Summary { containers: [(first_container(v), runs)].into() };
            let frame = summary.encode(v.context("x"));
            format::decode_frame(Kind::Summary, v.context("x"), &frame).unwrap().into_owned()
        };
        let bodies: Vec<Vec<u8>> = (0..64).map(body).collect();
        let pages: Vec<_> = bodies.iter().map(|b| (Body::Of(&page), Body::Of(b))).collect();
        for s in &v.manifest().recent[1..] {
            v.put_recipe_of(s, &pages);
        }
    }),
    of("summary-bomb", B, |v| {
        let times = 256 << 20;
        let head = [&[1][..], &first_container(v).raw().to_le_bytes(), &varint(times as u64)].concat();
        let summary = Body::Repeated { head: &head, item: &[1, 1], times };
        let page = page_body(v, &directs(v));
        v.put_recipe_of(&newest(v), &[(Body::Of(&page), summary)]);
    }),
    of("leaks", "vm-centric-bloom", |v| {
        // Snapshots reference every other chunk of many containers, and something was deleted by filters.
        let page = page_body(v, &page_of(&[Reference::Null { bytes: 2 << 20 }]));
        let body = |n: u32| {
            let runs = RunSet::from_unsorted((0..500_000).map(|k| (k * 2, 1)).collect());
            let summary = Summary { containers: [(far(n), runs)].into() };
            let frame = summary.encode(v.context("x"));
            format::decode_frame(Kind::Summary, v.context("x"), &frame).unwrap().into_owned()
        };
        let bodies: Vec<Vec<u8>> = (0..64).map(body).collect();
        let pages: Vec<_> = bodies.iter().map(|b| (Body::Of(&page), Body::Of(b))).collect();
        v.put_recipe_of(&newest(v), &pages);
        v.put_manifest(|m| m.by_filter = 1);
    }),
];

/// The newest snapshot with another summary.
fn with_summary(v: &Vault, summary: Summary) {
    let frame = summary.encode(v.context("x"));
    let body = format::decode_frame(Kind::Summary, v.context("x"), &frame).unwrap();
    let page = page_body(v, &page_of(&[Reference::Null { bytes: 4 << 20 }]));
    for s in v.manifest().recent {
        v.put_recipe_of(&s, &[(Body::Of(&page), Body::Of(&body))]);
    }
}

fn page_body(v: &Vault, page: &RecipePage) -> Vec<u8> {
    let frame = page.encode(v.context("x"));
    format::decode_frame(Kind::RecipePage, v.context("x"), &frame).unwrap().into_owned()
}
