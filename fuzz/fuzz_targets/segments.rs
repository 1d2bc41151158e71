//! Segments of a writer.
#![no_main]

use format::{Kind, Segments};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::Segments, body, Segments::decode, Segments::encode);
});
