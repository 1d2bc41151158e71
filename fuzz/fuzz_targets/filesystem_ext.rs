//! An ext file system, opened and read through.
#![no_main]

use filesystem::{ext, Disk};
use fuzz::disk::Sectors;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

#[path = "../../crates/filesystem/tests/common/explore.rs"]
mod explore;

fuzz_target!(|bytes: &[u8]| {
    let volume: Arc<dyn Disk> = Arc::new(Sectors::decode(bytes));
    if let Ok(Some(fs)) = ext::open(volume.clone()) {
        explore::explore(&fs, &*volume);
    }
});
