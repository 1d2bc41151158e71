//! The reference index of a disk: which recipes reference which chunks of a container directly. It holds the summaries of
//! many recipes, turned round, so that a deletion reads the parts about a few containers instead of every summary.
//!
//! An object is a row of blocks, in order of containers, and a footer.

use crate::bytes::{In, Malformed, Out, Result};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::{ContainerId, SnapId, WriterNo};
use crate::recipe::RecipeName;
use crate::runs::RunSet;

/// What one recipe references of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceEntry {
    /// The container.
    pub container: ContainerId,
    /// The recipe, by its place in the footer.
    pub recipe: u32,
    /// The chunks that it references directly.
    pub chunks: RunSet,
}

/// Entries in order of containers, and then of recipes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceBlock {
    /// The entries.
    pub entries: Vec<ReferenceEntry>,
}

impl ReferenceBlock {
    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out::default();
        o.varint(self.entries.len() as u64);
        for e in &self.entries {
            o.u64(e.container.raw());
            o.varint(u64::from(e.recipe));
            e.chunks.encode(&mut o);
        }
        encode_frame(Kind::ReferenceBlock, context, &o.0)
    }

    /// From a frame.
    ///
    /// # Errors
    /// Entries out of order, or what any frame may have wrong.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::ReferenceBlock, context, bytes)?;
        let mut i = In::within(&body, Kind::ReferenceBlock.memory_max());
        let (n, mut entries) = i.list::<ReferenceEntry>(10)?;
        for _ in 0..n {
            let container = ContainerId::from_raw(i.u64()?)?;
            let recipe = i.varint32()?;
            entries.push(ReferenceEntry { container, recipe, chunks: RunSet::decode(&mut i)? });
        }
        i.end()?;
        if !entries.is_sorted_by(|a, b| (a.container, a.recipe) < (b.container, b.recipe)) {
            return Err(Malformed::new("entries out of order"));
        }
        Ok(ReferenceBlock { entries })
    }
}

/// Where a block stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAt {
    /// The container of its first entry.
    pub first: ContainerId,
    /// Bytes before it in the object.
    pub offset: u64,
    /// Bytes of its frame.
    pub len: u32,
}

/// What stands behind the blocks of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceFooter {
    /// The recipes that entries count: all that each of them references directly is in the blocks.
    pub recipes: Vec<RecipeName>,
    /// The blocks, in order, one behind the other from the object's first byte.
    pub blocks: Vec<BlockAt>,
}

impl ReferenceFooter {
    /// Most recipes of one object.
    pub const RECIPES_MAX: usize = 1 << 16;

    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out::default();
        o.varint(self.recipes.len() as u64);
        for r in &self.recipes {
            o.u64(r.snap.0);
            o.u32(r.generation.0);
        }
        o.varint(self.blocks.len() as u64);
        for b in &self.blocks {
            o.u64(b.first.raw());
            o.varint(u64::from(b.len));
        }
        encode_frame(Kind::ReferenceFooter, context, &o.0)
    }

    /// From a frame that stands behind `blocks_len` bytes of blocks.
    ///
    /// # Errors
    /// Blocks out of order or of another length, or what any frame may have wrong.
    pub fn decode(context: Context<'_>, bytes: &[u8], blocks_len: u64) -> Result<Self> {
        let body = decode_frame(Kind::ReferenceFooter, context, bytes)?;
        let mut i = In::within(&body, Kind::ReferenceFooter.memory_max());
        let (n, mut recipes) = i.list::<RecipeName>(12)?;
        if n > Self::RECIPES_MAX {
            return Err(Malformed::new(format!("{n} recipes, {} are the most", Self::RECIPES_MAX)));
        }
        for _ in 0..n {
            recipes.push(RecipeName { snap: SnapId(i.u64()?), generation: WriterNo(i.u32()?) });
        }
        let (n, mut blocks) = i.list::<BlockAt>(9)?;
        let mut offset = 0u64;
        for _ in 0..n {
            let (first, len) = (ContainerId::from_raw(i.u64()?)?, i.varint32()?);
            blocks.push(BlockAt { first, offset, len });
            offset += u64::from(len);
        }
        i.end()?;
        if offset != blocks_len || !blocks.is_sorted_by_key(|b| b.first) {
            return Err(Malformed::new("blocks out of order, or of another length"));
        }
        Ok(ReferenceFooter { recipes, blocks })
    }

    /// The blocks in which entries of a container may stand.
    pub fn blocks_of(&self, container: ContainerId) -> std::ops::Range<usize> {
        // The last block that begins before the container may end with it.
        let start = self.blocks.partition_point(|b| b.first < container).saturating_sub(1);
        let end = self.blocks.partition_point(|b| b.first <= container);
        start..end.max(start)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::ids::{OwnerNo, VaultId};

    const HERE: Context<'static> = Context { vault: VaultId([7; 16]), place: "references" };

    fn container(n: u32) -> ContainerId {
        ContainerId::new(OwnerNo::OWN, WriterNo(n), 0)
    }

    #[test]
    fn a_container_may_stand_in_several_blocks() {
        let blocks = [1, 3, 3, 3, 7].iter().zip(0..).map(|(c, n)| BlockAt {
            first: container(*c),
            offset: n * 10,
            len: 10,
        });
        let footer = ReferenceFooter { recipes: Vec::new(), blocks: blocks.collect() };
        let ranges: Vec<_> = (0..9).map(|n| footer.blocks_of(container(n))).collect();
        assert_eq!(ranges, [0..0, 0..1, 0..1, 0..4, 3..4, 3..4, 3..4, 3..5, 4..5]);
        assert_eq!(ReferenceFooter::default().blocks_of(container(1)), 0..0);
        let frame = footer.encode(HERE);
        assert_eq!(ReferenceFooter::decode(HERE, &frame, 50), Ok(footer));
        assert!(ReferenceFooter::decode(HERE, &frame, 51).is_err());
    }

    #[test]
    fn entries_are_in_order() {
        let entry = |c, recipe| ReferenceEntry {
            container: container(c),
            recipe,
            chunks: RunSet::from_unsorted(vec![(5, 6)]),
        };
        let block = |entries| ReferenceBlock { entries };
        let decoded = |b: &ReferenceBlock| ReferenceBlock::decode(HERE, &b.encode(HERE));
        let sound = block(vec![entry(1, 4), entry(2, 0), entry(2, 1)]);
        assert_eq!(decoded(&sound), Ok(sound.clone()));
        for wrong in [vec![entry(2, 0), entry(1, 0)], vec![entry(1, 1), entry(1, 0)], vec![entry(1, 0); 2]] {
            assert!(decoded(&block(wrong)).is_err());
        }
    }
}
