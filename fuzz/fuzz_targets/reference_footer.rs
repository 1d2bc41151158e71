//! The footer of an object of the reference index. The input is the length of the blocks before it, and a body.
#![no_main]

use format::{Kind, ReferenceFooter};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((len, body)) = bytes.split_first_chunk() else { return };
    let len = u64::from_le_bytes(*len);
    let decode = |context: format::Context<'_>, bytes: &[u8]| ReferenceFooter::decode(context, bytes, len);
    let footer = fuzz::comes_back(Kind::ReferenceFooter, body, decode, ReferenceFooter::encode);
    for block in footer.iter().flat_map(|f| &f.blocks) {
        let blocks = footer.as_ref().map_or(0..0, |f| f.blocks_of(block.first));
        assert!(!blocks.is_empty());
    }
});
