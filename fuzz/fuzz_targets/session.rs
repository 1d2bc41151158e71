//! What a session's object says.
#![no_main]

use format::{Kind, SessionRecord};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::Session, body, SessionRecord::decode, SessionRecord::encode);
});
