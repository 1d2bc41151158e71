//! Volumes that are made of something outside the pool: used from the first moment, and filled in the background.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use export::BlockDevice;
use format::pool::{
    CatalogEntry, CatalogIndex, Fill, Sharing, VolumeBlock, VolumeId, BLOCK_BYTES, FILL_SOURCE_BYTES_MAX,
};

use super::{check_size, now, Pool};
use crate::catalog::{check_name, Catalog};
use crate::engine::Urgency;
use crate::error::{PoolError, Result};
use crate::volume::{Origin, Volume, VolumeParts, STEP_BLOCKS};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A volume that is being filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillInfo {
    /// The volume's name.
    pub volume: String,
    /// What it is filled from, as it was made.
    pub source: String,
    /// All in front of this byte has arrived.
    pub filled: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// What a step of filling did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillStep {
    /// So many bytes of the volume were passed, and so many of them read.
    Going {
        /// Bytes that were passed.
        passed: u64,
        /// Bytes that were read for it.
        read: u64,
    },
    /// All has arrived and is durable: the volume needs what it was filled from no more. [`Pool::end_fill`] says so.
    Arrived,
    /// What can be read has arrived; parts are damaged where it comes from. The next step begins again with the first of them.
    Incomplete,
    /// The volume was deleted.
    Gone,
}

/// Fills a volume. One at a time for each volume.
pub struct Filling {
    /// Not an opened volume: that could not be deleted meanwhile.
    volume: Volume,
    origin: Arc<Origin>,
    size: u64,
    /// The next byte to look at.
    at: u64,
    /// Whether something in front of it has not arrived.
    is_damaged: bool,
    /// What could not be read last.
    damage: Option<PoolError>,
}

impl Pool {
    /// Makes a volume whose content is to come from elsewhere: it can be used at once, and what has not arrived is read there
    /// ([`Pool::set_origin`]). It is durable when this returns.
    pub fn create_filled(&self, name: &str, size: u64, sharing: Sharing, source: &str) -> Result<()> {
        check_name(name)?;
        check_size(size)?;
        if source.len() > FILL_SOURCE_BYTES_MAX {
            return Err(PoolError::Refused(format!(
                "{source:?}: what a volume is filled from has at most {FILL_SOURCE_BYTES_MAX} bytes: a symbolic link may have a \
                 shorter path"
            )));
        }
        let mut catalog = self.catalog.lock();
        catalog.check_free(name)?;
        let (index, id) = catalog.vacant()?;
        let fill = Some(Fill { source: source.into(), filled: 0 });
        let entry =
            CatalogEntry { fill, ..CatalogEntry::empty_volume(id, name.into(), size, sharing, now()) };
        self.put_entry(&mut catalog, index, entry, None)?;
        self.engine.flush()
    }

    /// Volumes that are being filled, by name.
    pub fn fills(&self) -> Result<Vec<FillInfo>> {
        let catalog = self.catalog.lock();
        let mut fills = Vec::new();
        for (index, entry) in catalog.entries() {
            let Some(Fill { source, .. }) = &entry.fill else { continue };
            let filled = self.root_at(&catalog, index)?.filled.unwrap_or(entry.size);
            fills.push(FillInfo {
                volume: entry.name.clone(),
                source: source.clone(),
                filled,
                size: entry.size,
            });
        }
        fills.sort_by(|a, b| a.volume.cmp(&b.volume));
        Ok(fills)
    }

    /// From now on, what has not arrived of a volume is read from a device. Until then, reading it waits for a while.
    pub fn set_origin(&self, name: &str, device: Arc<dyn BlockDevice>) -> Result<()> {
        let catalog = self.catalog.lock();
        let (_, entry) = get_filling(&catalog, name)?;
        self.origin_of(entry.id).open(device);
        Ok(())
    }

    /// From now on, reading what has not arrived of a volume fails at once.
    pub fn fail_origin(&self, name: &str, why: &str) -> Result<()> {
        let catalog = self.catalog.lock();
        let (_, entry) = get_filling(&catalog, name)?;
        self.origin_of(entry.id).close(why);
        Ok(())
    }

    /// Begins to fill a volume, or goes on with it.
    pub fn filling(&self, name: &str) -> Result<Filling> {
        let catalog = self.catalog.lock();
        let (index, entry) = get_filling(&catalog, name)?;
        let (slot, page) = catalog.slot(index)?;
        let origin = self.origin_of(entry.id);
        let volume = Volume::new(VolumeParts {
            engine: Arc::clone(&self.engine),
            id: entry.id,
            name: entry.name.clone(),
            catalog: page,
            slot,
            sharing: entry.sharing,
            is_snapshot: false,
            urgency: Urgency::Usual,
            in_flight: Arc::clone(&self.in_flight),
            origin: Arc::clone(&origin),
        });
        Ok(Filling { volume, origin, size: entry.size, at: 0, is_damaged: false, damage: None })
    }

    /// Lets a volume be like all others from now on: all of it has arrived. It is durable when this returns.
    pub fn end_fill(&self, name: &str) -> Result<()> {
        let mut catalog = self.catalog.lock();
        let (index, entry) = get_filling(&catalog, name)?;
        let entry = CatalogEntry { fill: None, ..entry.clone() };
        if self.root_at(&catalog, index)?.filled.is_some_and(|filled| filled < entry.size) {
            return Err(PoolError::Refused(format!("{name} has not arrived as a whole")));
        }
        let (slot, page) = catalog.slot(index)?;
        let (state, rest) = (entry.encode()[0], [0; CatalogEntry::BYTES - CatalogEntry::FILL_AT]);
        self.engine.transact(|t| {
            t.set(&page, slot.offset, &[state]);
            t.set(&page, slot.offset + CatalogEntry::FILL_AT, &rest);
            Ok(())
        })?;
        let id = entry.id;
        catalog.put(index, page, entry);
        self.engine.flush()?;
        if let Some(origin) = self.origins.lock().remove(&id) {
            origin.close("all has arrived");
        }
        Ok(())
    }

    /// What a volume is filled from.
    pub(super) fn origin_of(&self, id: VolumeId) -> Arc<Origin> {
        Arc::clone(self.origins.lock().entry(id).or_default())
    }

    /// Fails for a volume that is still being filled.
    pub(super) fn check_filled(&self, entry: &CatalogEntry) -> Result<()> {
        if entry.fill.is_none() {
            return Ok(());
        }
        Err(PoolError::Refused(format!(
            "{} is still being filled: wait until all of it has arrived (`volume list` tells how far it is)",
            entry.name
        )))
    }
}

fn get_filling<'a>(catalog: &'a Catalog, name: &str) -> Result<(CatalogIndex, &'a CatalogEntry)> {
    let (index, entry) = catalog.get(name)?;
    if entry.fill.is_none() {
        return Err(PoolError::Refused(format!("{name} is not being filled")));
    }
    Ok((index, entry))
}

/// Whether an error is one of what cannot be read for ever, rather than of a place that may come back.
fn is_damage(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

impl Filling {
    /// Lets the next part arrive, at most 1 MiB of data. Where the origin says that it is damaged (`InvalidData`), the rest
    /// arrives around it.
    ///
    /// # Errors
    /// Where the origin cannot be read now, or the pool has no room: the same step may be tried again.
    pub fn step(&mut self) -> Result<FillStep> {
        let Some(filled) = self.volume.filled() else { return Ok(FillStep::Gone) };
        self.volume.follow_sharing();
        match self.step_from(filled) {
            Err(_) if self.volume.filled().is_none() => Ok(FillStep::Gone),
            done => done,
        }
    }

    /// What could not be read last, since it is damaged.
    pub fn damage(&self) -> Option<&PoolError> {
        self.damage.as_ref()
    }

    fn step_from(&mut self, filled: u64) -> Result<FillStep> {
        if filled >= self.size {
            self.volume.flush()?;
            return Ok(FillStep::Arrived);
        }
        let at = self.at.max(filled);
        if at >= self.size {
            (self.at, self.is_damaged) = (0, false);
            return Ok(FillStep::Incomplete);
        }
        let (blocks, least) = self.next(at)?;
        let read = blocks.clone().map_or(0, |blocks| blocks.start.count_to(blocks.end)) * BLOCK;
        let end = match blocks {
            Some(blocks) => {
                self.bring(blocks.clone(), least)?;
                blocks.end.offset().min(self.size)
            }
            None => self.size,
        };
        self.at = end;
        if !self.is_damaged {
            self.volume.set_filled(end)?;
        }
        Ok(FillStep::Going { passed: end - at, read })
    }

    /// The next blocks with data, and how many of them are damaged together at least.
    fn next(&self, at: u64) -> Result<(Option<Range<VolumeBlock>>, u64)> {
        let (found, least) = match self.origin.next_data(at) {
            Ok(found) => (found, 1),
            // Where its data is cannot be told: here it may be.
            Err(error) if is_damage(&error) => (Some(at..self.size), STEP_BLOCKS),
            Err(source) => {
                let what = format!("{}: what stands from byte {at} on", self.volume.name());
                return Err(PoolError::Absent { what, source });
            }
        };
        let blocks = found.map(|data| {
            let first = VolumeBlock::at(data.start);
            let end = VolumeBlock::behind(data.end.min(self.size));
            first..end.min(first.leaf_end()).min(first + STEP_BLOCKS)
        });
        Ok((blocks.filter(|blocks| blocks.start.offset() < self.size), least))
    }

    /// Lets blocks arrive, around those that are damaged.
    fn bring(&mut self, blocks: Range<VolumeBlock>, least: u64) -> Result<()> {
        let volume = &self.volume;
        match volume.with_room(|| volume.bring(blocks.start, blocks.end)) {
            Err(PoolError::Absent { source, what }) if is_damage(&source) => {
                let count = blocks.start.count_to(blocks.end);
                if count > least {
                    let middle = blocks.start + count / 2;
                    self.bring(blocks.start..middle, least)?;
                    return self.bring(middle..blocks.end, least);
                }
                self.is_damaged = true;
                self.damage = Some(PoolError::Absent { source, what });
                Ok(())
            }
            done => done,
        }
    }
}
