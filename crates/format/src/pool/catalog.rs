//! A slot of the catalog: a volume or a snapshot.

use std::fmt;

use super::PoolBlock;
use crate::bytes::{In, Malformed, Out, Result};

/// The longest name in bytes.
pub const CATALOG_NAME_BYTES_MAX: usize = 255;
/// The longest text that says what a volume is filled from, in bytes.
pub const FILL_SOURCE_BYTES_MAX: usize = 200;

const EMPTY: u8 = 0;
const VOLUME: u8 = 1;
const SNAPSHOT: u8 = 2;
const DELETED: u8 = 3;
const FILLING: u8 = 4;

/// A volume or snapshot of a pool, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What a slot of the catalog holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogState {
    /// A volume.
    Volume,
    /// A snapshot of a volume.
    Snapshot,
    /// What was deleted, and whose blocks are being freed.
    Deleted,
}

/// When blocks of equal content are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Never.
    Off,
    /// When they are written.
    Inline,
    /// Later, when they have not been written for a while.
    Background,
}

impl Sharing {
    /// Its byte in a slot.
    pub const fn code(self) -> u8 {
        match self {
            Sharing::Off => 0,
            Sharing::Inline => 1,
            Sharing::Background => 2,
        }
    }

    /// What a byte of a slot stands for.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Sharing::Off),
            1 => Some(Sharing::Inline),
            2 => Some(Sharing::Background),
            _ => None,
        }
    }
}

/// What is known of a volume whose content is still arriving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fill {
    /// What it is filled from: a text that the pool does not read.
    pub source: String,
    /// All in front of this byte has arrived.
    pub filled: u64,
}

/// A slot of the catalog that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogEntry {
    /// What it is.
    pub state: CatalogState,
    /// When its blocks are shared.
    pub sharing: Sharing,
    /// Level of its root.
    pub level: u8,
    /// Its id.
    pub id: VolumeId,
    /// Of a snapshot: its volume; of a clone: the snapshot that it was made from.
    pub origin: Option<VolumeId>,
    /// Size in bytes.
    pub size: u64,
    /// The root of its map, if anything was written.
    pub root: Option<PoolBlock>,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// Blocks that its map names; `None` in slots of programs that did not count them.
    pub mapped: Option<u64>,
    /// Its name; of a snapshot the part behind `@`.
    pub name: String,
    /// Of a volume whose content is still arriving.
    pub fill: Option<Fill>,
}

/// The part of a slot that every read and write needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRoot {
    /// Level of the root.
    pub level: u8,
    /// The root, if anything was written.
    pub root: Option<PoolBlock>,
    /// Size in bytes.
    pub size: u64,
    /// Whose slot it is, if it is one of a volume or a snapshot that was not deleted.
    pub owner: Option<VolumeId>,
    /// Of a volume whose content is still arriving: all in front of this byte has arrived.
    pub filled: Option<u64>,
    /// Blocks that the map names, where they are counted.
    pub mapped: Option<u64>,
}

impl MapRoot {
    /// Where the block of the root stands in a slot; it has 8 bytes.
    pub const ROOT_AT: usize = 24;
    /// Where the number of mapped blocks stands in a slot.
    pub const MAPPED_AT: usize = 496;
    /// Where it stands how far a volume is filled; it has 8 bytes.
    pub const FILLED_AT: usize = 504;

    /// What the slot of a volume or a snapshot has.
    pub fn read(slot: &[u8; CatalogEntry::BYTES]) -> Self {
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&slot[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let root = Some(number(Self::ROOT_AT)).filter(|block| *block != 0).map(PoolBlock);
        let id = VolumeId(number(4) as u32);
        let owner = matches!(slot[0], VOLUME | SNAPSHOT | FILLING).then_some(id);
        let filled = (slot[0] == FILLING).then(|| number(Self::FILLED_AT));
        let mapped = number(Self::MAPPED_AT).checked_sub(1);
        MapRoot { level: slot[2], root, size: number(16), owner, filled, mapped }
    }

    /// The bytes at [`Self::MAPPED_AT`].
    pub fn encode_mapped(mapped: Option<u64>) -> [u8; 8] {
        mapped.map_or(0, |blocks| blocks + 1).to_le_bytes()
    }

    /// Whether a tree of this height reaches so many bytes.
    pub fn level_for(size: u64) -> u8 {
        let blocks = size.div_ceil(4096);
        (0..3).find(|level| blocks <= 512 << (9 * level)).unwrap_or(3)
    }
}

impl CatalogEntry {
    /// Bytes of a slot.
    pub const BYTES: usize = 512;
    /// Where the byte of [`Sharing`] stands in a slot.
    pub const SHARING_AT: usize = 1;
    /// Where what is known of a fill begins; it reaches to the end.
    pub const FILL_AT: usize = 295;
    /// Where the text begins that says what a volume is filled from; its length stands in front.
    const SOURCE_AT: usize = Self::FILL_AT + 1;

    /// That of a volume that nothing was written to. The size is in bytes, the time in seconds since 1970.
    pub fn empty_volume(id: VolumeId, name: String, size: u64, sharing: Sharing, created: i64) -> Self {
        CatalogEntry {
            state: CatalogState::Volume,
            sharing,
            level: MapRoot::level_for(size),
            id,
            origin: None,
            size,
            root: None,
            created,
            mapped: Some(0),
            name,
            fill: None,
        }
    }

    /// The bytes of its slot.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = Out(Vec::with_capacity(Self::BYTES));
        out.u8(match self.state {
            CatalogState::Volume if self.fill.is_some() => FILLING,
            CatalogState::Volume => VOLUME,
            CatalogState::Snapshot => SNAPSHOT,
            CatalogState::Deleted => DELETED,
        });
        out.u8(self.sharing.code());
        out.u8(self.level);
        out.u8(self.name.len() as u8);
        out.u32(self.id.0);
        out.u32(self.origin.map_or(0, |id| id.0));
        out.u32(0);
        out.u64(self.size);
        out.u64(self.root.map_or(0, |block| block.0));
        out.u64(self.created as u64);
        out.bytes(self.name.as_bytes());
        let mut slot = [0; Self::BYTES];
        slot[..out.0.len()].copy_from_slice(&out.0);
        slot[MapRoot::MAPPED_AT..MapRoot::FILLED_AT].copy_from_slice(&MapRoot::encode_mapped(self.mapped));
        if let Some(Fill { source, filled }) = &self.fill {
            slot[Self::SOURCE_AT - 1] = source.len() as u8;
            slot[Self::SOURCE_AT..Self::SOURCE_AT + source.len()].copy_from_slice(source.as_bytes());
            slot[MapRoot::FILLED_AT..].copy_from_slice(&filled.to_le_bytes());
        }
        slot
    }

    /// What [`CatalogEntry::encode`] wrote; `None` for an empty slot.
    pub fn decode(slot: &[u8; Self::BYTES]) -> Result<Option<Self>> {
        let mut fields = In::within(slot, 4096);
        let code = fields.u8()?;
        let state = match code {
            EMPTY => return Ok(None),
            VOLUME | FILLING => CatalogState::Volume,
            SNAPSHOT => CatalogState::Snapshot,
            DELETED => CatalogState::Deleted,
            other => return Err(Malformed::new(format!("a slot of the catalog in state {other}"))),
        };
        let sharing = fields.u8()?;
        let sharing =
            Sharing::from_code(sharing).ok_or_else(|| Malformed::new(format!("sharing {sharing}")))?;
        let (level, name_bytes) = (fields.u8()?, usize::from(fields.u8()?));
        if level > 3 {
            return Err(Malformed::new(format!("a root of level {level}")));
        }
        let id = VolumeId(fields.u32()?);
        let origin = Some(fields.u32()?).filter(|id| *id != 0).map(VolumeId);
        fields.u32()?;
        let (size, root, created) = (fields.u64()?, fields.u64()?, fields.u64()? as i64);
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec()).map_err(|_| Malformed::new("a name that is not UTF-8"))
        };
        let name = text(fields.bytes(name_bytes)?)?;
        let root = (root != 0).then_some(PoolBlock(root));
        let fill = (code == FILLING).then(|| {
            let length = usize::from(slot[Self::SOURCE_AT - 1]);
            if length > FILL_SOURCE_BYTES_MAX {
                return Err(Malformed::new(format!("a source of {length} bytes")));
            }
            let source = text(&slot[Self::SOURCE_AT..Self::SOURCE_AT + length])?;
            Ok(Fill { source, filled: MapRoot::read(slot).filled.unwrap_or(0) })
        });
        let fill = fill.transpose()?;
        let mapped = MapRoot::read(slot).mapped;
        Ok(Some(CatalogEntry { state, sharing, level, id, origin, size, root, created, mapped, name, fill }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back() {
        let entry = CatalogEntry {
            state: CatalogState::Snapshot,
            sharing: Sharing::Inline,
            level: 2,
            id: VolumeId(7),
            origin: Some(VolumeId(3)),
            size: 5 << 30,
            root: Some(PoolBlock(99)),
            created: -1,
            mapped: Some(0),
            name: "ä".repeat(127),
            fill: None,
        };
        let root = MapRoot::read(&entry.encode());
        assert_eq!((root.level, root.root, root.size), (entry.level, entry.root, entry.size));
        assert_eq!((root.owner, root.filled), (Some(VolumeId(7)), None));
        assert_eq!(root.mapped, Some(0));
        let uncounted = CatalogEntry { mapped: None, ..entry.clone() };
        assert_eq!(CatalogEntry::decode(&uncounted.encode()).unwrap(), Some(uncounted));
        assert_eq!(CatalogEntry::decode(&entry.encode()).unwrap(), Some(entry));
        assert_eq!(CatalogEntry::decode(&[0; 512]).unwrap(), None);
    }

    #[test]
    fn what_is_still_arriving_comes_back() {
        let mut entry = CatalogEntry::empty_volume(VolumeId(7), "x".repeat(255), 5 << 30, Sharing::Inline, 1);
        entry.fill = Some(Fill { source: "y".repeat(FILL_SOURCE_BYTES_MAX), filled: 1 << 33 });
        let root = MapRoot::read(&entry.encode());
        assert_eq!((root.owner, root.filled), (Some(VolumeId(7)), Some(1 << 33)));
        assert_eq!(CatalogEntry::decode(&entry.encode()).unwrap(), Some(entry.clone()));
        let mut wrong = entry.encode();
        wrong[CatalogEntry::SOURCE_AT - 1] = 255;
        assert!(CatalogEntry::decode(&wrong).is_err());
        // Nothing arrives in what was deleted.
        entry.state = CatalogState::Deleted;
        assert_eq!(CatalogEntry::decode(&entry.encode()).unwrap().unwrap().fill, None);
        assert_eq!(MapRoot::read(&entry.encode()).owner, None);
    }

    #[test]
    fn each_way_of_sharing_has_a_byte() {
        for sharing in [Sharing::Off, Sharing::Inline, Sharing::Background] {
            assert_eq!(Sharing::from_code(sharing.code()), Some(sharing));
        }
        assert_eq!(Sharing::from_code(3), None);
    }
}
