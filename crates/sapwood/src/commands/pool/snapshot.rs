//! A snapshot of a volume as the source of a backup.

use super::control::{ask_server, open_free, PoolAtPath};
use super::file_system::PoolFiles;
use super::request::Request;
use crate::terminal::streams::errln;
use ::pool::{Known, Pool, Volume, VolumeBlock};
use anyhow::{Context, Result};
use export::{Block, BlockDevice};
use image::{ImageError, KnownBlock, KnownBlocks, NbdSource, Source, KNOWN_BLOCK_BYTES};
use parking_lot::Mutex;
use serde::Deserialize;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What stands behind the name of a volume or snapshot in the export of its fingerprints. No name has a `=`.
pub const FINGERPRINTS: &str = "=fingerprints";

/// What a pool says of a snapshot.
#[derive(Deserialize)]
pub struct Told {
    /// Tells the snapshot apart from all others.
    pub key: String,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// The ranges that may have changed since an earlier snapshot, where that is known.
    changes: Option<Vec<[u64; 2]>>,
    /// Where a server has the volume NAME.
    uri: Option<String>,
}

impl Told {
    /// The ranges that may have changed since the snapshot that was asked about; `None` where the pool does not have that any
    /// more, or the size has changed.
    pub fn changes(&self) -> Option<Vec<Range<u64>>> {
        self.changes.as_ref().map(|all| all.iter().map(|[start, end]| *start..*end).collect())
    }
}

/// The pool that a snapshot is read from, where this process has it. Dropped, it is closed.
pub struct OwnPool(Option<Arc<Pool>>);

impl Drop for OwnPool {
    fn drop(&mut self) {
        if let Some(Err(e)) = self.0.as_ref().map(|pool| pool.close()) {
            errln!("sapwood: {e}");
        }
    }
}

/// Opens a snapshot, and asks what changed since the one with the key `since`. Nobody can delete it while the source is
/// there, which must go before the pool.
pub fn open(path: &Path, name: &str, since: Option<String>) -> Result<(Box<dyn Source>, Told, OwnPool)> {
    let request = |since| Request::Changes { snapshot: name.to_owned(), since };
    let held = match open_free(path)? {
        PoolAtPath::Held(why) => why,
        PoolAtPath::Free(pool) => {
            let own = OwnPool(Some(Arc::clone(&pool)));
            let files = PoolFiles::new(Arc::clone(&pool));
            let told = serde_json::from_value(request(since).perform(&pool, &files)?)?;
            let shown = format!("volume:{name} of {}", path.display());
            let source = VolumeSource { shown, volume: pool.volume(name)? };
            return Ok((Box::new(source), told, own));
        }
    };
    let first: Told = serde_json::from_value(ask_server(path, &request(None), &held)?)?;
    let uri =
        first.uri.with_context(|| format!("{}: its server is still starting; try again", path.display()))?;
    let uri = uri.replacen("NAME", name, 1);
    let source =
        ServedSource { source: NbdSource::connect(&uri, None)?, blocks: ServedBlocks::connect(&uri) };
    // From here on its server has it open: what it says now is of what is read.
    let told = serde_json::from_value(ask_server(path, &request(since), &held)?)?;
    Ok((Box::new(source), told, OwnPool(None)))
}

/// A snapshot in a pool that this process has open.
struct VolumeSource {
    shown: String,
    volume: Arc<Volume>,
}

impl VolumeSource {
    fn failed(&self) -> impl Fn(std::io::Error) -> ImageError + '_ {
        |source| ImageError::Io { path: self.shown.clone(), op: "read", source }
    }
}

impl Source for VolumeSource {
    fn format(&self) -> &'static str {
        "volume"
    }

    fn size(&self) -> Option<u64> {
        Some(self.volume.size())
    }

    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        let mut found = None;
        let mut is_data = |extent: export::Extent| {
            found = Some(extent.range).filter(|_| extent.block == Block::Data);
            found.is_none()
        };
        if from < self.volume.size() {
            self.volume.extents(from..self.volume.size(), &mut is_data).map_err(self.failed())?;
        }
        Ok(found)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        let there = self.volume.size().saturating_sub(offset).min(buf.len() as u64) as usize;
        BlockDevice::read_at(&*self.volume, offset, &mut buf[..there]).map_err(self.failed())?;
        Ok(there)
    }

    fn known_blocks(&self) -> Option<Arc<dyn KnownBlocks>> {
        Some(Arc::new(VolumeSource { shown: self.shown.clone(), volume: Arc::clone(&self.volume) }))
    }
}

fn known_block(known: Known) -> KnownBlock {
    match known {
        Known::Zeros => KnownBlock::Zeros,
        Known::Fingerprint(fingerprint) => KnownBlock::Fingerprint(fingerprint.0),
        Known::Unknown => KnownBlock::Unknown,
    }
}

fn blocks_of(range: &Range<u64>) -> Range<u64> {
    let block = u64::from(KNOWN_BLOCK_BYTES);
    range.start / block..range.end.div_ceil(block)
}

impl KnownBlocks for VolumeSource {
    fn known(&self, range: Range<u64>) -> image::Result<Vec<KnownBlock>> {
        let known = self
            .volume
            .known(VolumeBlock::at(range.start)..VolumeBlock::behind(range.end))
            .map_err(|e| self.failed()(e.into()))?;
        Ok(known.into_iter().map(known_block).collect())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> image::Result<()> {
        BlockDevice::read_at(&*self.volume, offset, buf).map_err(self.failed())
    }
}

/// A snapshot that another process serves.
struct ServedSource {
    source: NbdSource,
    blocks: Option<Arc<ServedBlocks>>,
}

/// Its blocks and their fingerprints, which the server has as exports as well.
struct ServedBlocks {
    blocks: Mutex<NbdSource>,
    fingerprints: Mutex<NbdSource>,
}

impl ServedBlocks {
    /// Connects; `None` where a server tells no fingerprints.
    fn connect(uri: &str) -> Option<Arc<Self>> {
        let (export, socket) =
            uri.split_once('?').map_or((uri, String::new()), |(uri, q)| (uri, format!("?{q}")));
        let fingerprints = NbdSource::connect(&format!("{export}{FINGERPRINTS}{socket}"), None).ok()?;
        let blocks = NbdSource::connect(uri, None).ok()?;
        Some(Arc::new(ServedBlocks { blocks: Mutex::new(blocks), fingerprints: Mutex::new(fingerprints) }))
    }
}

impl Source for ServedSource {
    fn format(&self) -> &'static str {
        "volume"
    }

    fn size(&self) -> Option<u64> {
        self.source.size()
    }

    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        self.source.next_data(from)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        self.source.read_at(offset, buf)
    }

    fn known_blocks(&self) -> Option<Arc<dyn KnownBlocks>> {
        self.blocks.clone().map(|blocks| -> Arc<dyn KnownBlocks> { blocks })
    }

    fn finish(&mut self) -> image::Result<()> {
        self.source.finish()
    }
}

impl KnownBlocks for ServedBlocks {
    fn known(&self, range: Range<u64>) -> image::Result<Vec<KnownBlock>> {
        let blocks = blocks_of(&range);
        let mut bytes = vec![0; (blocks.end - blocks.start) as usize * Known::BYTES];
        let got = self.fingerprints.lock().read_at(blocks.start * Known::BYTES as u64, &mut bytes)?;
        let whole = bytes[..got].chunks_exact(Known::BYTES);
        Ok(whole
            .map(|bytes| {
                let mut one = [0; Known::BYTES];
                one.copy_from_slice(bytes);
                known_block(Known::decode(one))
            })
            .collect())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> image::Result<()> {
        let got = self.blocks.lock().read_at(offset, buf)?;
        // Behind the end are zeros.
        buf[got..].fill(0);
        Ok(())
    }
}
