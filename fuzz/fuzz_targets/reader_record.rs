//! What a reader's object says.
#![no_main]

use format::{Kind, ReaderRecord};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::Reader, body, ReaderRecord::decode, ReaderRecord::encode);
});
