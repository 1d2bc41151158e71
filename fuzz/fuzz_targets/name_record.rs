//! The object that leads from a name to a disk.
#![no_main]

use format::{Kind, NameRecord};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::Name, body, NameRecord::decode, NameRecord::encode);
});
