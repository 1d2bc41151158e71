//! A filter over what a snapshot references, and asking it.
#![no_main]

use format::{Bloom, ChunkNo, ContainerId, Kind, OwnerNo, WriterNo};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let Some(mut filter) = fuzz::comes_back(Kind::Bloom, body, Bloom::decode, Bloom::encode) else { return };
    let (container, chunk) = (ContainerId::new(OwnerNo::OWN, WriterNo(1), 2), ChunkNo(3));
    let _ = filter.may_have(container, chunk);
    filter.insert(container, chunk);
    assert!(filter.may_have(container, chunk));
    let same = filter.clone();
    assert!(filter.merge(&same) && filter == same);
});
