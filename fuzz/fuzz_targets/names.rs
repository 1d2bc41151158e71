//! Small texts that come from users or from names of objects: disks, times, codecs, ids.
#![no_main]

use format::{names, DiskId, VaultId};
use libfuzzer_sys::fuzz_target;
use vault::{check_disk_name, format_time, parse_time, CodecChoice, Policy};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if check_disk_name(text).is_ok() {
        assert_eq!(text.split('/').count(), 2);
        assert!(store::check_name(&names::name(text)).is_ok());
    }
    if store::check_name(text).is_ok() {
        assert!(!text.contains("..") || !text.split('/').any(|part| part == ".."));
    }
    let _ = names::writer_of(text);
    if let Ok(id) = text.parse::<DiskId>() {
        assert_eq!(id.to_string(), text);
    }
    let _ = text.parse::<VaultId>();
    let _ = text.parse::<CodecChoice>();
    let _ = Policy::by_name(text);
    if let Some(time) = parse_time(text) {
        let back = format_time(time);
        assert_eq!(parse_time(&back), Some(time), "{text:?}: {back}");
    }
});
