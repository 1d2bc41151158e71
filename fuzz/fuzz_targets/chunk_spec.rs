//! How segments are cut, as users write it, and cutting one so. The input is a line of text, and a segment.
#![no_main]

use chunk::{cut, is_null, ChunkSpec, Piece};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let line = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
    let segment = bytes.get(line + 1..).unwrap_or_default();
    let Ok(text) = std::str::from_utf8(&bytes[..line]) else { return };
    let Ok(spec) = text.parse::<ChunkSpec>() else { return };
    assert_eq!(spec.to_string().parse(), Ok(spec), "{text:?}");
    let mut pieces = Vec::new();
    cut(segment, spec, &mut pieces);
    let mut at = 0;
    for piece in pieces {
        let end = at + piece.bytes() as usize;
        assert!(end > at && end <= segment.len());
        if let Piece::Null { .. } = piece {
            assert!(is_null(&segment[at..end]));
        }
        at = end;
    }
    assert_eq!(at, segment.len());
});
