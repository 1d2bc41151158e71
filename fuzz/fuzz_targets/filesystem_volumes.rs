//! A disk with partitions and logical volumes: each is opened.
#![no_main]

use filesystem::{volumes, Disk};
use fuzz::disk::Sectors;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|bytes: &[u8]| {
    let disk = Arc::new(Sectors::decode(bytes));
    let Ok(found) = volumes(disk.clone()) else { return };
    for volume in found {
        let _ = volume.open();
        let Ok(part) = volume.part() else { continue };
        let pieces = part.locate(0, u64::MAX);
        assert!(pieces.iter().all(|p| p.len > 0 && p.offset + p.len <= disk.size()));
        assert_eq!(pieces.iter().map(|p| p.len).sum::<u64>(), part.size());
    }
});
