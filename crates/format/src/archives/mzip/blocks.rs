//! The heads of blocks.

use super::head::BLOCK_BYTES_MAX;
use crate::archives::sealed::{check_seal, sealed, u32_at, u64_at};
use crate::bytes::{Malformed, Out, Result};

/// Bytes of the head of a block.
pub const BLOCK_HEAD_BYTES: usize = 48;
const BLOCK_MAGIC: [u8; 4] = *b"BLCK";

/// What the body of a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Its content, compressed.
    Packed,
    /// Its content as it is, because compressed it would be longer.
    Raw,
    /// Its far matches, and what is in none of them ([`FarBody`]).
    Far,
}

impl Body {
    const ALL: [Body; 3] = [Body::Packed, Body::Raw, Body::Far];
}

/// The head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    /// Its number, from 0.
    pub number: u64,
    /// What follows.
    pub body: Body,
    /// Bytes of its content.
    pub content_bytes: u32,
    /// Bytes that follow.
    pub body_bytes: u32,
    /// XXH3-64 of the bytes that follow.
    pub body_checksum: u64,
    /// XXH3-64 of the content.
    pub content_checksum: u64,
}

impl BlockHead {
    /// The head as bytes.
    pub fn encode(&self) -> [u8; BLOCK_HEAD_BYTES] {
        let mut out = Out::default();
        out.bytes(&BLOCK_MAGIC);
        out.u32(self.body as u32);
        out.u64(self.number);
        out.u32(self.content_bytes);
        out.u32(self.body_bytes);
        out.u64(self.body_checksum);
        out.u64(self.content_checksum);
        sealed(out)
    }

    /// Reads a head.
    pub fn decode(bytes: &[u8; BLOCK_HEAD_BYTES]) -> Result<BlockHead> {
        if !bytes.starts_with(&BLOCK_MAGIC) {
            return Err(Malformed::new("the magic number of a block is missing"));
        }
        check_seal(bytes)?;
        let kind = u32_at(bytes, 4);
        let Some(body) = Body::ALL.get(kind as usize) else {
            return Err(Malformed::new(format!("a block of kind {kind}")));
        };
        let head = BlockHead {
            number: u64_at(bytes, 8),
            body: *body,
            content_bytes: u32_at(bytes, 16),
            body_bytes: u32_at(bytes, 20),
            body_checksum: u64_at(bytes, 24),
            content_checksum: u64_at(bytes, 32),
        };
        let fits =
            (1..=BLOCK_BYTES_MAX).contains(&head.content_bytes) && head.body_bytes <= head.content_bytes;
        if !fits || head.body == Body::Raw && head.body_bytes != head.content_bytes {
            return Err(Malformed::new(format!(
                "a block of kind {kind}, {} bytes of content in {} bytes",
                head.content_bytes, head.body_bytes
            )));
        }
        Ok(head)
    }
}
