//! The copy of a chunk table, without fingerprints, that stands in the container itself.
#![no_main]

use format::{Kind, Table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let found = fuzz::comes_back(Kind::Directory, body, Table::decode_directory, Table::encode_directory);
    if let Some(table) = found {
        fuzz::look_up(&table);
    }
});
