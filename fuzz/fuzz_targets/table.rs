//! A container's chunk table, with fingerprints.
#![no_main]

use format::{Kind, Table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    if let Some(table) = fuzz::comes_back(Kind::Table, body, Table::decode, Table::encode) {
        fuzz::look_up(&table);
    }
});
