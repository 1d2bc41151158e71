//! What recipes reference of containers.
#![no_main]

use format::{Kind, ReferenceBlock};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::ReferenceBlock, body, ReferenceBlock::decode, ReferenceBlock::encode);
});
