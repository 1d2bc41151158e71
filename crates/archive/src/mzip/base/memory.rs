//! What the memory that a user grants is for.

use super::parallel::Crew;

/// What the program takes whatever it does, about: itself, its threads' stacks, buffers of its output.
const PROGRAM_BYTES: u64 = 14 << 20;
const MIB: u64 = 1 << 20;

/// The memory that is granted.
#[derive(Clone, Copy, Debug)]
pub(in crate::mzip) struct Memory(u64);

impl Memory {
    /// Bytes in all.
    pub(in crate::mzip) fn new(bytes: u64) -> Memory {
        Memory(bytes.saturating_sub(PROGRAM_BYTES).max(bytes / 4))
    }

    /// How much must be granted so that so much is left for blocks.
    pub(in crate::mzip) fn needed_for_blocks(bytes: u64) -> u64 {
        (bytes * 8).div_ceil(7 * MIB) * MIB + PROGRAM_BYTES
    }

    /// For a table of the plan; there are six at a time.
    pub(in crate::mzip) fn table(self) -> usize {
        (self.0 / 32) as usize
    }

    /// For a segment of the first reading. It does not depend on the threads: so the same file gives the same archive.
    pub(in crate::mzip) fn segment(self) -> u64 {
        (self.0 / 64).clamp(64 << 10, 4 * MIB)
    }

    /// Threads of the first reading: with their segments they take a quarter.
    pub(in crate::mzip) fn scanners(self, threads: usize) -> Crew {
        Crew::within(self.0 / 4, self.segment(), self.segment(), threads).unwrap_or(Crew::ONE)
    }

    /// For blocks that are compressed or restored, with what they are made of.
    pub(in crate::mzip) fn blocks(self) -> u64 {
        self.0 / 8 * 7
    }

    /// For the input, if it is kept: what the blocks leave, but not more than half. A short one is kept whatever they take:
    /// its own blocks are short, too.
    pub(in crate::mzip) fn input(self, of_blocks: u64) -> u64 {
        self.blocks().saturating_sub(of_blocks).clamp(self.0 / 32, self.0 / 2)
    }

    /// For the contents of blocks that a pass over the input gathers.
    pub(in crate::mzip) fn pass(self) -> u64 {
        self.0 / 4
    }

    /// For the parts of blocks that a window of the restored file is made of.
    pub(in crate::mzip) fn copies(self) -> u64 {
        self.0 / 8
    }

    /// For the index of an archive.
    pub(in crate::mzip) fn index(self) -> u64 {
        self.0 / 4
    }

    /// How much must be granted so that so much is left for the index.
    pub(in crate::mzip) fn needed_for_index(bytes: u64) -> u64 {
        (bytes.saturating_mul(4)).div_ceil(MIB).saturating_mul(MIB).saturating_add(PROGRAM_BYTES)
    }

    /// For a window of the restored file.
    pub(in crate::mzip) fn window(self) -> u64 {
        self.0 / 4
    }
}
