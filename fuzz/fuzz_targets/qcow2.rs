//! A disk in a qcow2 image, opened and read here and there.
#![no_main]

use image::Format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(mut disk) = image::open_bytes(Box::new(bytes.to_vec()), "qcow2", Some(Format::Qcow2)) {
        fuzz::read_here_and_there(&mut *disk);
    }
});
