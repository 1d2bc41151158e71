//! BLAKE3 of many short chunks at once, their parts side by side in SIMD lanes.
//!
//! BLAKE3 hashes a message as a binary tree over leaves of 1 KiB. A 4 KiB chunk has four leaves,
//! so hashing it alone leaves most of a wide register idle. Here chunks wait in a queue; then leaf
//! 0 of all of them is hashed, then leaf 1, and so on, then their parents level by level. The
//! values are those of `blake3::hash`, which the tests demand. Uses `blake3::platform`, which is
//! public but undocumented: the version is pinned in Cargo.toml.

use blake3::platform::Platform;
use blake3::IncrementCounter;

use crate::fingerprint::Fingerprint;
use crate::piece::Piece;

const LEAF_BYTES: usize = blake3::CHUNK_LEN;
const BLOCK_BYTES: usize = blake3::BLOCK_LEN;
/// Longer chunks fill the lanes by themselves.
const LEAVES_MAX: usize = 16;
/// Chunks hashed together.
const QUEUE: usize = 64;

/// Initial chaining value and domain flags, from the BLAKE3 specification, tables 1 and 3.
const IV: [u32; 8] =
    [0x6A09_E667, 0xBB67_AE85, 0x3C6E_F372, 0xA54F_F53A, 0x510E_527F, 0x9B05_688C, 0x1F83_D9AB, 0x5BE0_CD19];
const CHUNK_START: u8 = 1 << 0;
const CHUNK_END: u8 = 1 << 1;
const PARENT: u8 = 1 << 2;
const ROOT: u8 = 1 << 3;

/// Chaining value of a node of the tree.
type Node = [u8; blake3::OUT_LEN];

/// Appends to `out` the fingerprints of the pieces of `data` that have these `lengths` in bytes:
/// the first piece starts at the start of `data`, each next one where the last ended. Bytes of
/// `data` after the last piece are not read.
///
/// # Panics
/// When `lengths` add up to more than `data` holds.
pub fn fingerprints(data: &[u8], lengths: &[u32], out: &mut Vec<Fingerprint>) {
    out.reserve(lengths.len());
    let mut batch = Batch::new(out);
    let mut rest = data;
    for &length in lengths {
        let (piece, after) = rest.split_at(length as usize);
        batch.push(piece);
        rest = after;
    }
    batch.finish();
}

/// Appends to `out` the fingerprints of the data pieces of `segment`, passing over the null ones,
/// as [`cut`](crate::cut) made them.
///
/// # Panics
/// When the pieces are longer than `segment`.
pub fn fingerprint_pieces(segment: &[u8], pieces: &[Piece], out: &mut Vec<Fingerprint>) {
    out.reserve(pieces.len());
    let mut batch = Batch::new(out);
    let mut rest = segment;
    for piece in pieces {
        let (bytes, after) = rest.split_at(piece.bytes() as usize);
        if let Piece::Data { .. } = piece {
            batch.push(bytes);
        }
        rest = after;
    }
    batch.finish();
}

/// Appends the fingerprints of chunks to `out` in the order of `push`.
struct Batch<'data, 'out> {
    platform: Platform,
    out: &'out mut Vec<Fingerprint>,
    waiting: Vec<Waiting<'data>>,
    /// Of one level, those of chunk `i` at `i * LEAVES_MAX`.
    nodes: Vec<Node>,
}

struct Waiting<'data> {
    chunk: &'data [u8],
    out_at: usize,
}

impl<'data, 'out> Batch<'data, 'out> {
    fn new(out: &'out mut Vec<Fingerprint>) -> Self {
        Self {
            platform: Platform::detect(),
            out,
            waiting: Vec::with_capacity(QUEUE),
            nodes: vec![[0; 32]; QUEUE * LEAVES_MAX],
        }
    }

    fn push(&mut self, chunk: &'data [u8]) {
        if chunk.len() <= LEAF_BYTES || chunk.len() > LEAVES_MAX * LEAF_BYTES {
            self.out.push(Fingerprint::of(chunk));
            return;
        }
        self.waiting.push(Waiting { chunk, out_at: self.out.len() });
        self.out.push(Fingerprint([0; 32]));
        if self.waiting.len() == QUEUE {
            self.flush();
        }
    }

    fn finish(mut self) {
        self.flush();
    }

    fn flush(&mut self) {
        if let [only] = &self.waiting[..] {
            self.out[only.out_at] = Fingerprint::of(only.chunk);
        } else {
            self.hash_leaves();
            self.hash_parents();
            for (waiting, nodes) in self.waiting.iter().zip(self.nodes.chunks(LEAVES_MAX)) {
                self.out[waiting.out_at] = Fingerprint(nodes[0]);
            }
        }
        self.waiting.clear();
    }

    fn hash_leaves(&mut self) {
        for leaf in 0..LEAVES_MAX {
            let mut whole = Lanes::<LEAF_BYTES>::new();
            let from = leaf * LEAF_BYTES;
            for (no, waiting) in self.waiting.iter().enumerate() {
                let Some(bytes) = waiting.chunk.get(from..).filter(|rest| !rest.is_empty()) else {
                    continue;
                };
                let node = no * LEAVES_MAX + leaf;
                match bytes.first_chunk() {
                    Some(bytes) => whole.add(bytes, node),
                    None => self.nodes[node] = hash_last_leaf(self.platform, bytes, leaf as u64),
                }
            }
            if whole.count == 0 {
                break;
            }
            let flags = Flags { all: 0, start: CHUNK_START, end: CHUNK_END };
            whole.hash(self.platform, leaf as u64, flags, &mut self.nodes);
        }
    }

    /// Pairs neighbours until each chunk has one node; a node without a partner moves up as it is,
    /// which gives the specification's left-complete trees.
    fn hash_parents(&mut self) {
        let mut widths = [0; QUEUE];
        for (width, waiting) in widths.iter_mut().zip(&self.waiting) {
            *width = waiting.chunk.len().div_ceil(LEAF_BYTES);
        }
        loop {
            let widest = widths.iter().copied().max().unwrap_or(0);
            if widest < 2 {
                break;
            }
            for pair_no in 0..widest / 2 {
                self.hash_pairs(&widths, pair_no);
            }
            for (width, nodes) in widths.iter_mut().zip(self.nodes.chunks_mut(LEAVES_MAX)) {
                if *width > 1 && *width % 2 == 1 {
                    nodes[*width / 2] = nodes[*width - 1];
                }
                *width = width.div_ceil(2);
            }
        }
    }

    /// Replaces node `pair_no` of each chunk by the parent of its pair of that number, if any.
    fn hash_pairs(&mut self, widths: &[usize; QUEUE], pair_no: usize) {
        let mut pairs = [[0; BLOCK_BYTES]; QUEUE];
        let mut inner = Lanes::<BLOCK_BYTES>::new();
        let mut roots = Lanes::<BLOCK_BYTES>::new();
        for (no, (pair, &width)) in pairs.iter_mut().zip(widths).enumerate() {
            if 2 * pair_no + 1 < width {
                let children = &self.nodes[no * LEAVES_MAX + 2 * pair_no..][..2];
                pair.copy_from_slice(children.as_flattened());
                let lanes = if width == 2 { &mut roots } else { &mut inner };
                lanes.add(pair, no * LEAVES_MAX + pair_no);
            }
        }
        let flags = Flags { all: PARENT, start: 0, end: 0 };
        inner.hash(self.platform, 0, flags, &mut self.nodes);
        let flags = Flags { all: PARENT | ROOT, ..flags };
        roots.hash(self.platform, 0, flags, &mut self.nodes);
    }
}

/// The last leaf of a chunk, shorter than the others and not its only one.
fn hash_last_leaf(platform: Platform, leaf: &[u8], counter: u64) -> Node {
    let mut value = IV;
    let last = leaf.len().div_ceil(BLOCK_BYTES) - 1;
    for (no, bytes) in leaf.chunks(BLOCK_BYTES).enumerate() {
        let mut block = [0; BLOCK_BYTES];
        block[..bytes.len()].copy_from_slice(bytes);
        let start = if no == 0 { CHUNK_START } else { 0 };
        let end = if no == last { CHUNK_END } else { 0 };
        platform.compress_in_place(&mut value, &block, bytes.len() as u8, counter, start | end);
    }
    let mut node = Node::default();
    for (bytes, word) in node.chunks_exact_mut(4).zip(value) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    node
}

#[derive(Clone, Copy)]
struct Flags {
    all: u8,
    start: u8,
    end: u8,
}

/// Inputs of equal length that are hashed side by side, and the nodes they become.
struct Lanes<'data, const BYTES: usize> {
    inputs: [&'data [u8; BYTES]; QUEUE],
    nodes: [usize; QUEUE],
    count: usize,
}

impl<'data, const BYTES: usize> Lanes<'data, BYTES> {
    fn new() -> Self {
        Self { inputs: [&[0; BYTES]; QUEUE], nodes: [0; QUEUE], count: 0 }
    }

    fn add(&mut self, input: &'data [u8; BYTES], node: usize) {
        self.inputs[self.count] = input;
        self.nodes[self.count] = node;
        self.count += 1;
    }

    fn hash(&self, platform: Platform, counter: u64, flags: Flags, nodes: &mut [Node]) {
        let mut values = [Node::default(); QUEUE];
        platform.hash_many(
            &self.inputs[..self.count],
            &IV,
            counter,
            IncrementCounter::No,
            flags.all,
            flags.start,
            flags.end,
            values.as_flattened_mut(),
        );
        for (&node, value) in self.nodes[..self.count].iter().zip(values) {
            nodes[node] = value;
        }
    }
}

#[cfg(test)]
mod tests;
