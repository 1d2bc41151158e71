//! Objects that are holes of a tebibyte.

use super::{of, Case, B};
use crate::forge::Vault;
use format::names;

pub const CASES: &[Case] = &[
    of("hole-vault", B, |v| holes(v, names::VAULT)),
    of("hole-copy-of-vault", B, |v| {
        holes(v, names::VAULT_COPY);
        v.remove(names::VAULT);
    }),
    of("hole-verifications-and-commits", B, |v| {
        v.put_hole(names::VERIFICATIONS, 1 << 40);
        let all = v.objects("").into_iter().filter(|n| n.contains("/commits/"));
        all.for_each(|n| v.put_hole(&n, 1 << 40));
    }),
    of("hole-manifest", B, |v| holes(v, "/manifest")),
    of("hole-pages", B, |v| {
        let folder = format!("{}pages/", v.folder());
        let all: Vec<String> = v.objects("").into_iter().filter(|n| n.starts_with(&folder)).collect();
        all.iter().for_each(|n| v.put_hole(n, 1 << 40));
    }),
    of("hole-roots", B, |v| holes(v, ".root")),
    of("hole-recipe-pages", B, |v| holes(v, ".pages")),
    of("hole-tables", B, |v| holes(v, ".table")),
    of("hole-data", B, |v| holes(v, ".data")),
    of("hole-dead", "reverse", |v| holes(v, ".dead")),
    of("hole-filters", "vm-centric-bloom", |v| holes(v, ".bloom")),
    of("hole-names-and-indexes", "conventional", |v| {
        let all = v.objects("").into_iter().filter(|n| n.starts_with("index/") || n.starts_with("names/"));
        all.for_each(|n| v.put_hole(&n, 1 << 40));
    }),
    of("hole-indexes", "reverse", |v| {
        let all = v.objects("").into_iter().filter(|n| n.starts_with("index/"));
        all.for_each(|n| v.put_hole(&n, 1 << 40));
    }),
];

fn holes(v: &Vault, suffix: &str) {
    v.objects(suffix).iter().for_each(|name| v.put_hole(name, 1 << 40));
}
