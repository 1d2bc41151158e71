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

/// Who owns a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// The disk whose recipe names it.
    Disk,
    /// The shared set: chunks that any disk may match.
    Shared,
    /// The popular set.
    Popular,
}

/// A container: owner, the writer that made it, and its number in that session. Stable for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(u64);

impl ContainerId {
    /// Most containers that one session may make.
    pub const MAX_NUMBER: u32 = (1 << 30) - 1;

    /// The `number`-th container of a writer; `number` is at most [`ContainerId::MAX_NUMBER`].
    pub fn new(owner: Owner, writer: WriterNo, number: u32) -> Self {
        assert!(number <= Self::MAX_NUMBER, "too many containers in one session");
        let owner = match owner {
            Owner::Disk => 0u64,
            Owner::Shared => 1,
            Owner::Popular => 2,
        };
        ContainerId(owner << 62 | u64::from(writer.0) << 30 | u64::from(number))
    }

    /// From the eight bytes that formats store.
    pub fn from_raw(raw: u64) -> Result<Self> {
        if raw >> 62 == 3 {
            return Err(Malformed::new(format!("{raw:#x} is no container id")));
        }
        Ok(ContainerId(raw))
    }

    /// As formats store it: 2 bits owner, 32 bits writer, 30 bits number.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// Whose it is.
    pub fn owner(self) -> Owner {
        match self.0 >> 62 {
            0 => Owner::Disk,
            1 => Owner::Shared,
            _ => Owner::Popular,
        }
    }

    /// The session that made it.
    pub fn writer(self) -> WriterNo {
        WriterNo((self.0 >> 30) as u32)
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A store may keep more replicas of what it knows by this name.
        let owner = if self.owner() == Owner::Popular { "popular-" } else { "" };
        write!(f, "{owner}{}-{}", self.writer().0, self.0 & u64::from(Self::MAX_NUMBER))
    }
}

impl fmt::Debug for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{self}", self.owner())
    }
}

/// A chunk's number in its container. Stable for ever: compaction leaves holes in the numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkNo(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_id_keeps_its_parts() {
        let id = ContainerId::new(Owner::Shared, WriterNo(u32::MAX), 7);
        assert_eq!(id.owner(), Owner::Shared);
        assert_eq!(id.writer(), WriterNo(u32::MAX));
        assert_eq!(id.to_string(), format!("{}-7", u32::MAX));
        assert_eq!(ContainerId::from_raw(id.raw()), Ok(id));
        assert!(ContainerId::from_raw(u64::MAX).is_err());
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
