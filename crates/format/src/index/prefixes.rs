//! Prefixes: the part of the global chunk index for one shared container.

use crate::bytes::{In, Out, Result};
use crate::container::Table;
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::ChunkNo;

/// Bytes of one entry: number, prefix.
const ENTRY_BYTES: usize = 12;

/// The number of each chunk of a container, and the first 8 bytes of its fingerprint. A hint, never trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes(pub Vec<(ChunkNo, [u8; 8])>);

impl Prefixes {
    /// Those of a table's chunks.
    pub fn of(table: &Table) -> Prefixes {
        let numbers = table.numbers.runs().iter().flat_map(|r| r.0..r.0 + r.1).map(ChunkNo);
        let prefixes = table.fingerprints.iter().filter_map(|f| f.first_chunk().copied());
        Prefixes(numbers.zip(prefixes).collect())
    }

    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out(Vec::with_capacity(self.0.len() * ENTRY_BYTES));
        for (chunk, prefix) in &self.0 {
            o.u32(chunk.0);
            o.bytes(prefix);
        }
        encode_frame(Kind::Prefixes, context, &o.0)
    }

    /// From a frame.
    ///
    /// # Errors
    /// A body that is no whole number of entries, or what any frame may have wrong.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::Prefixes, context, bytes)?;
        let mut i = In::new(&body);
        let mut all = Vec::with_capacity(body.len() / ENTRY_BYTES);
        while i.remaining() > 0 {
            all.push((ChunkNo(i.u32()?), i.array()?));
        }
        Ok(Prefixes(all))
    }
}
