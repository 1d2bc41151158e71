//! What a recipe page references.
#![no_main]

use format::{Kind, Summary};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::Summary, body, Summary::decode, Summary::encode);
});
