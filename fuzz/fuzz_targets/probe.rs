//! A disk whose format goes by its content.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut disk) = image::open_bytes(Box::new(bytes.to_vec()), "disk", None) else { return };
    if disk.format() == "raw" {
        assert_eq!(disk.size(), Some(bytes.len() as u64));
    }
    fuzz::read_here_and_there(&mut *disk);
});
