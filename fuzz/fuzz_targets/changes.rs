//! Lists of changes, as the tools write them that watch disks.
#![no_main]

use image::Changes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let Ok(changes) = Changes::parse("list", text) else { return };
    let ranges = changes.ranges();
    assert!(ranges.iter().all(|r| r.start < r.end));
    assert!(ranges.windows(2).all(|w| w[0].end < w[1].start));
    for r in ranges {
        assert!(changes.touch(r.clone()) && changes.touch(r.end - 1..r.end));
        assert!(!changes.touch(r.end..r.end));
    }
});
