//! A disk in a vmdk image, opened and read here and there.
#![no_main]

use image::Format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(mut disk) = image::open_bytes(Box::new(bytes.to_vec()), "vmdk", Some(Format::Vmdk)) {
        fuzz::read_here_and_there(&mut *disk);
    }
});
