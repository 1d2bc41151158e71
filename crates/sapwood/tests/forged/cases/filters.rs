//! Filters over what recipes reference.

use super::{of, Case};
use crate::forge::Body;
use format::Kind;

pub const CASES: &[Case] = &[
    of("filter-full", "vm-centric-bloom", |v| {
        for name in v.objects(".bloom") {
            v.put(Kind::Bloom, &name, &Body::Of(&filter(28)));
        }
    }),
    of("filters-of-all-sizes", "vm-centric-bloom", |v| {
        for (name, log2) in v.objects(".bloom").into_iter().zip(26..) {
            v.put(Kind::Bloom, &name, &Body::Of(&filter(log2.min(28))));
        }
    }),
    of("filter-longer", "vm-centric-bloom", |v| {
        for name in v.objects(".bloom") {
            v.put(Kind::Bloom, &name, &Body::Of(&filter(29)));
        }
    }),
];

/// A filter that has everything.
fn filter(log2_bits: u8) -> Vec<u8> {
    let mut body = vec![log2_bits, 7];
    body.extend_from_slice(&u64::MAX.to_le_bytes());
    body.resize(10 + (1 << (log2_bits - 3)), 255);
    body
}
