//! A volume of NTFS, walked over and read.
#![no_main]

use filesystem::ntfs::Ntfs;
use fuzz::disk::{Sectors, DISK_BYTES};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

#[path = "../../crates/filesystem/tests/common/walk.rs"]
mod walk;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(fs)) = Ntfs::open(Arc::new(Sectors::decode(bytes))) {
        walk::walk(&fs, DISK_BYTES);
    }
});
