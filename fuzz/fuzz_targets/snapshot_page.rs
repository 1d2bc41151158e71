//! A page of snapshots.
#![no_main]

use format::{Kind, SnapshotPage};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::SnapshotPage, body, SnapshotPage::decode, SnapshotPage::encode);
});
