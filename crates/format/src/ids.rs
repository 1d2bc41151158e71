//! One type for every identifier, so that mixing them does not compile.

use crate::bytes::{Malformed, Result};
use std::fmt;
use std::str::FromStr;

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = Malformed;
            fn from_str(s: &str) -> Result<Self> {
                let wrong = || Malformed::new(format!("{s:?} is not an id of 32 hexadecimal digits"));
                if s.len() != 32 || !s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
                    return Err(wrong());
                }
                let mut id = [0; 16];
                for (i, b) in id.iter_mut().enumerate() {
                    *b = u8::from_str_radix(&s[2 * i..2 * i + 2], 16).map_err(|_| wrong())?;
                }
                Ok($name(id))
            }
        }
    };
}

hex_id! {
    /// A vault, for ever. Random.
    VaultId
}
hex_id! {
    /// A disk within a vault. Random, so that object names tell nothing of the VM.
    DiskId
}

impl DiskId {
    /// What owns the containers of the popular set, in place of a disk.
    pub const POPULAR: DiskId = DiskId([0; 16]);
}

/// A snapshot. Random; users see it as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapId(pub u64);

impl fmt::Display for SnapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SnapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A segment of a disk, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNo(pub u64);

impl fmt::Display for SegmentNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A page of a recipe, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNo(pub u64);

impl fmt::Display for PageNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A chunk of a segment, counted from 0. Null chunks are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ordinal(pub u32);

/// A session or a reader, while it lives. Random; its objects have it in their names, as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A session that may write below one owner. Counted up in the owner's manifest, never used twice.
///
/// It is also the generation of everything that the session writes: the name of an object that nothing
/// references tells who wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterNo(pub u32);

impl WriterNo {
    /// Before every session of any owner: the first one is 1.
    pub const BEFORE_ALL: WriterNo = WriterNo(0);
    /// The last one that an owner may have.
    pub const MAX: WriterNo = WriterNo((1 << WRITER_BITS) - 1);
}

/// Which manifest of an owner: each swap counts it up by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Of an owner's first manifest.
    pub const FIRST: Sequence = Sequence(0);
    /// No manifest has a higher one.
    pub const MAX: Sequence = Sequence(u64::MAX);

    /// That of the manifest which replaces the one with this.
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Whose a container is, as one disk counts: 0 is the disk itself, n the n-th of the list `owners` in its manifest.
///
/// Only together with that manifest does it tell which disk is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerNo(pub u32);

impl OwnerNo {
    /// The disk itself.
    pub const OWN: OwnerNo = OwnerNo(0);
    /// The last one that a disk may have.
    pub const MAX: OwnerNo = OwnerNo((1 << OWNER_BITS) - 1);
}

const OWNER_BITS: u32 = 18;
const WRITER_BITS: u32 = 24;
const NUMBER_BITS: u32 = 22;

/// A container: owner, the writer that made it, and its number in that session. Stable for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(u64);

impl ContainerId {
    /// Most containers that one session may make.
    pub const MAX_NUMBER: u32 = (1 << NUMBER_BITS) - 1;
    /// Bits of an id that its owner knows it by: of the writer and the number.
    pub const LOCAL_BITS: u32 = WRITER_BITS + NUMBER_BITS;

    /// The `number`-th container that a writer of an owner made; each at most its maximum.
    pub fn new(owner: OwnerNo, writer: WriterNo, number: u32) -> Self {
        assert!(owner <= OwnerNo::MAX && writer <= WriterNo::MAX, "no container of {owner:?} and {writer:?}");
        assert!(number <= Self::MAX_NUMBER, "too many containers in one session");
        let (owner, writer) = (u64::from(owner.0), u64::from(writer.0));
        ContainerId(owner << Self::LOCAL_BITS | writer << NUMBER_BITS | u64::from(number))
    }

    /// From the eight bytes that formats store.
    ///
    /// # Errors
    /// An id without a writer.
    pub fn from_raw(raw: u64) -> Result<Self> {
        let id = ContainerId(raw);
        if id.writer().0 == 0 {
            return Err(Malformed::new(format!("{raw:#x} is not a container id")));
        }
        Ok(id)
    }

    /// As formats store it: 18 bits owner, 24 bits writer, 22 bits number.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// Whose it is, for the disk that names it.
    pub fn owner(self) -> OwnerNo {
        OwnerNo((self.0 >> Self::LOCAL_BITS) as u32)
    }

    /// Whether the disk that names it owns it.
    pub fn is_own(self) -> bool {
        self.owner() == OwnerNo::OWN
    }

    /// The same container as its owner names it.
    pub fn local(self) -> ContainerId {
        ContainerId(self.0 & ((1 << Self::LOCAL_BITS) - 1))
    }

    /// The same container as a disk names it that counts its owner so.
    pub fn of(self, owner: OwnerNo) -> ContainerId {
        assert!(owner <= OwnerNo::MAX, "no container of {owner:?}");
        ContainerId(self.local().0 | u64::from(owner.0) << Self::LOCAL_BITS)
    }

    /// The session that made it.
    pub fn writer(self) -> WriterNo {
        WriterNo((self.0 >> NUMBER_BITS) as u32 & WriterNo::MAX.0)
    }

    /// Its number in that session.
    pub fn number(self) -> u32 {
        self.0 as u32 & Self::MAX_NUMBER
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.writer().0, self.number())
    }
}

impl fmt::Debug for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{self}", self.owner().0)
    }
}

/// A chunk's number in its container. Stable for ever: compaction leaves holes in the numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkNo(pub u32);

/// A chunk's place in its container's chunk table, counted from 0: compaction changes it, the number stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableIndex(pub u32);

/// A group of a container, counted from 0 in the order of the chunk table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNo(pub u32);

impl fmt::Display for GroupNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_id_keeps_its_parts() {
        for owner in [OwnerNo::OWN, OwnerNo(5), OwnerNo::MAX] {
            let id = ContainerId::new(owner, WriterNo::MAX, 7);
            assert_eq!((id.owner(), id.writer(), id.number()), (owner, WriterNo::MAX, 7));
            assert_eq!(id.to_string(), format!("{}-7", WriterNo::MAX.0));
            assert_eq!(ContainerId::from_raw(id.raw()), Ok(id));
            assert_eq!(id.local(), ContainerId::new(OwnerNo::OWN, WriterNo::MAX, 7));
            assert_eq!(id.local().of(owner), id);
        }
        assert!(ContainerId::from_raw(7).is_err());
    }

    #[test]
    fn ids_are_read_back_from_their_text() {
        let id = DiskId([0xab; 16]);
        assert_eq!(id.to_string().parse::<DiskId>(), Ok(id));
        for bad in ["", "ab", &"g".repeat(32), &"+1".repeat(16), &"é".repeat(16)] {
            assert!(bad.parse::<DiskId>().is_err());
        }
    }
}
