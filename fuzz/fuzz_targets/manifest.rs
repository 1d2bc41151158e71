//! The root of an owner's folder.
#![no_main]

use format::{Kind, Manifest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::Manifest, body, Manifest::decode, Manifest::encode);
});
