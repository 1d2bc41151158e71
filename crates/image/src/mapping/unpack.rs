//! Compressed clusters of a file.

use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::thread;

use crate::error::{Blame, ImageError, Result};
use crate::file::bytes::{read_full, ReadAt};
use crate::mapping::decode::{Decoder, Packing};

/// Compressed clusters mostly follow each other in the file: while they do, this much is read at once.
const WINDOW_BYTES: u64 = 1 << 20;
/// The most of the file that is held for clusters decompressed together.
const BATCH_BYTES: u64 = 8 << 20;
/// Clusters this far from each other are read apart.
const BATCH_GAP: u64 = 64 << 10;
/// Fewer bytes than this are not worth a thread.
const THREAD_BYTES: usize = 512 << 10;
const MAX_THREADS: usize = 8;

/// Where a compressed cluster is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompressedCluster {
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub len: u64,
}

impl CompressedCluster {
    fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// Bytes of the file around the compressed cluster that was read last.
#[derive(Debug, Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
    /// Where the last request ended.
    last_end: u64,
}

impl Window {
    /// The bytes from `offset`, at most `len`, fewer at the end of the file.
    fn get(&mut self, file: &dyn ReadAt, offset: u64, len: u64, blame: &Blame) -> Result<&[u8]> {
        let end = offset.saturating_add(len).min(file.len()).max(offset);
        let have = self.start..self.start + self.bytes.len() as u64;
        if offset < have.start || end > have.end {
            // Neighbours share a sector, so that the next one may begin before the last one's end.
            let goes_on = offset <= self.last_end && offset + 512 >= self.last_end;
            let want = if goes_on {
                (end - offset).max(WINDOW_BYTES.min(file.len().saturating_sub(offset)))
            } else {
                end - offset
            };
            self.start = offset;
            // Bounded by the largest cluster's length and the window.
            self.bytes.resize(want as usize, 0);
            let read = read_full(file, offset, &mut self.bytes);
            self.bytes.truncate(*read.as_ref().unwrap_or(&0));
            read.map_err(|e| blame.read(e))?;
        }
        self.last_end = end;
        let from = ((offset - self.start) as usize).min(self.bytes.len());
        let to = ((end - self.start) as usize).min(self.bytes.len());
        Ok(&self.bytes[from..to])
    }
}

/// Reads compressed clusters, several at a time on all cores, and keeps the last one for reads of a part.
pub(crate) struct Unpacker {
    blame: Blame,
    packing: Packing,
    /// One for each thread, made when they are needed first: most images have no cluster that is compressed.
    decoders: Vec<Decoder>,
    window: Window,
    /// File offset and content of the cluster that was last read in part.
    kept: Option<(u64, Vec<u8>)>,
}

impl Unpacker {
    /// A reader of clusters that are compressed as `packing` says.
    pub fn new(packing: Packing, blame: Blame) -> Self {
        Self { blame, packing, decoders: Vec::new(), window: Window::default(), kept: None }
    }

    /// Up to `len` bytes of the file from `offset`.
    pub fn peek(&mut self, file: &dyn ReadAt, offset: u64, len: u64) -> Result<&[u8]> {
        self.window.get(file, offset, len, &self.blame)
    }

    /// Fills `out` with the content of `clusters`, each of `cluster_bytes`, one after the other.
    pub fn read_whole(
        &mut self,
        file: &dyn ReadAt,
        clusters: &[CompressedCluster],
        cluster_bytes: usize,
        out: &mut [u8],
    ) -> Result<()> {
        let (mut clusters, mut out) = (clusters, out);
        while let Some(first) = clusters.first() {
            let (batch, rest) = clusters.split_at(batch_len(clusters));
            let (batch_out, rest_out) = out.split_at_mut(batch.len() * cluster_bytes);
            let end = batch.iter().map(|c| c.end()).max().unwrap_or(first.end());
            let bytes = self.window.get(file, first.offset, end - first.offset, &self.blame)?;
            let wanted = (batch_out.len() / THREAD_BYTES).clamp(1, MAX_THREADS);
            let threads = if wanted > 1 { cores().min(wanted) } else { 1 };
            while self.decoders.len() < threads {
                self.decoders.push(Decoder::new(self.packing));
            }
            decode_batch(&mut self.decoders[..threads], bytes, batch, cluster_bytes, batch_out)
                .map_err(|(cluster, why)| describe(&self.blame, cluster, &why))?;
            (clusters, out) = (rest, rest_out);
        }
        Ok(())
    }

    /// Fills `out` with the bytes from `skip` on of `cluster`, which is of `cluster_bytes`. The cluster may be shorter
    /// where nobody asks for its end.
    pub fn read_part(
        &mut self,
        file: &dyn ReadAt,
        cluster: CompressedCluster,
        cluster_bytes: usize,
        skip: usize,
        out: &mut [u8],
    ) -> Result<()> {
        let content = match self.kept.take() {
            Some((at, content)) if at == cluster.offset => content,
            other => {
                let mut content = other.map_or_else(Vec::new, |(_, content)| content);
                content.resize(cluster_bytes, 0);
                let packed = self.window.get(file, cluster.offset, cluster.len, &self.blame)?;
                if self.decoders.is_empty() {
                    self.decoders.push(Decoder::new(self.packing));
                }
                let n = self.decoders[0]
                    .decode(packed, &mut content)
                    .map_err(|why| describe(&self.blame, cluster, &why))?;
                content.truncate(n);
                content
            }
        };
        let result = match content.get(skip..skip + out.len()) {
            Some(part) => {
                out.copy_from_slice(part);
                Ok(())
            }
            None => Err(describe(&self.blame, cluster, &too_short(content.len(), skip + out.len()))),
        };
        self.kept = Some((cluster.offset, content));
        result
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn describe(blame: &Blame, cluster: CompressedCluster, why: &str) -> ImageError {
    blame.corrupt(format!("the compressed cluster at offset {:#x}: {why}", cluster.offset))
}

fn too_short(got: usize, wanted: usize) -> String {
    format!("it has {got} bytes of {wanted}")
}

/// How many of `clusters` (at least one) are close enough to each other in the file to be read at once.
fn batch_len(clusters: &[CompressedCluster]) -> usize {
    let follows = |pair: &&[CompressedCluster]| {
        let (before, next) = (pair[0], pair[1]);
        before.offset <= next.offset
            && next.offset <= before.end().saturating_add(BATCH_GAP)
            && next.end() - clusters[0].offset <= BATCH_BYTES
    };
    1 + clusters.windows(2).take_while(follows).count()
}

/// Decompresses `clusters` out of `bytes`, which begin with the first of them, on a thread for each of `decoders`.
fn decode_batch(
    decoders: &mut [Decoder],
    bytes: &[u8],
    clusters: &[CompressedCluster],
    cluster_bytes: usize,
    out: &mut [u8],
) -> std::result::Result<(), (CompressedCluster, String)> {
    let start = clusters.first().map_or(0, |c| c.offset);
    let jobs = Mutex::new(clusters.iter().zip(out.chunks_mut(cluster_bytes)));
    let work = |decoder: &mut Decoder| loop {
        let job = jobs.lock().next();
        let Some((cluster, out)) = job else {
            return Ok(());
        };
        // The last sector of the last cluster may be cut off.
        let from = ((cluster.offset - start) as usize).min(bytes.len());
        let to = ((cluster.end() - start) as usize).min(bytes.len());
        match decoder.decode(&bytes[from..to], out) {
            Ok(n) if n == out.len() => {}
            Ok(n) => return Err((*cluster, too_short(n, out.len()))),
            Err(why) => return Err((*cluster, why)),
        }
    };
    let Some((own, others)) = decoders.split_first_mut() else {
        return Ok(());
    };
    thread::scope(|scope| {
        // Where the system has no room for more threads, fewer do the work.
        let help = |decoder| thread::Builder::new().spawn_scoped(scope, || work(decoder)).ok();
        let helpers: Vec<_> = others.iter_mut().filter_map(help).collect();
        let result = work(own);
        helpers.into_iter().fold(result, |result, helper| match helper.join() {
            Ok(theirs) => result.and(theirs),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}
