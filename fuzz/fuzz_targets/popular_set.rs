//! The index of the popular set, and looking chunks up in it.
#![no_main]

use format::{Kind, PopularSet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let Some(set) = fuzz::comes_back(Kind::Popular, body, PopularSet::decode, PopularSet::encode) else {
        return;
    };
    let chunks: u64 = set.chunks().values().map(|c| c.len()).sum();
    assert!(chunks <= set.len() as u64);
    for start in (0..body.len().saturating_sub(8)).step_by(4) {
        let mut fingerprint = [0; 32];
        fingerprint[..8].copy_from_slice(&body[start..start + 8]);
        if let Some((container, chunk)) = set.find(&fingerprint) {
            assert!(set.chunks()[&container].contains(chunk));
        }
    }
});
