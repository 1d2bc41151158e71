//! The head of an archive.

use crate::archives::sealed::{check_seal, sealed, u32_at};
use crate::bytes::{Malformed, Out, Result};

/// What an archive begins with.
pub const MAGIC: [u8; 8] = *b"SAPMZIP\0";
/// The version of an archive with neither deltas nor far matches.
pub const VERSION: u32 = 1;
/// The version of an archive with deltas.
pub const VERSION_DELTAS: u32 = 2;
/// The version of an archive with far matches.
pub const VERSION_FAR: u32 = 3;
/// The version of an archive whose footer has a sum of the original file: the one that is written, and the last one that this
/// program reads.
pub const VERSION_SUMMED: u32 = 4;
/// Bytes of the head.
pub const HEAD_BYTES: usize = 32;
/// Smallest and largest number of stored bytes in a block.
pub const BLOCK_BYTES_MIN: u32 = 4 << 10;
/// Largest number of stored bytes in a block.
pub const BLOCK_BYTES_MAX: u32 = 64 << 20;
const MIGRATED: u16 = 1;
const DELTAS: u16 = 2;
const FAR: u16 = 4;
const SUMMED: u16 = 8;

/// What the blocks of an archive are compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// Nothing: each block is its content, for another program to compress.
    None,
    /// A gzip member a block.
    Gzip,
    /// A bzip2 stream a block.
    Bzip2,
    /// A zstd frame a block.
    Zstd,
    /// An xz stream a block.
    Xz,
}

impl Compressor {
    /// All of them.
    pub const ALL: [Compressor; 5] = [Self::None, Self::Gzip, Self::Bzip2, Self::Zstd, Self::Xz];

    fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Bzip2 => 2,
            Self::Zstd => 3,
            Self::Xz => 4,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Bzip2 => "bzip2",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Compressor> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }

    fn numbered(number: u8) -> Option<Compressor> {
        Self::ALL.into_iter().find(|c| c.number() == number)
    }
}

/// The head of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What blocks are compressed with.
    pub compressor: Compressor,
    /// With which level, as a note.
    pub level: u8,
    /// Whether chunks were moved: recipe pages follow. Else what is stored is the file.
    pub migrated: bool,
    /// Whether chunks may be stored as deltas. Only with recipe pages.
    pub deltas: bool,
    /// Whether blocks may have far matches.
    pub far: bool,
    /// Whether the footer has a sum of the original file.
    pub summed: bool,
    /// Stored bytes in each block but the last.
    pub block_bytes: u32,
}

impl Head {
    /// The head as bytes.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut out = Out::default();
        out.bytes(&MAGIC);
        out.u32(match self {
            Head { summed: true, .. } => VERSION_SUMMED,
            Head { far: true, .. } => VERSION_FAR,
            Head { deltas: true, .. } => VERSION_DELTAS,
            _ => VERSION,
        });
        out.u8(self.compressor.number());
        out.u8(self.level);
        let flags =
            [(self.migrated, MIGRATED), (self.deltas, DELTAS), (self.far, FAR), (self.summed, SUMMED)];
        out.u16(flags.into_iter().map(|(is_set, flag)| u16::from(is_set) * flag).sum());
        out.u32(self.block_bytes);
        out.u32(0);
        sealed(out)
    }

    /// Blocks for so many stored bytes.
    pub fn blocks_of(&self, stored_bytes: u64) -> u64 {
        stored_bytes.div_ceil(self.block_bytes.into())
    }

    /// Reads a head.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Head> {
        if !bytes.starts_with(&MAGIC) {
            return Err(Malformed::new("this is not an mzip archive: its magic number is missing"));
        }
        let version = u32_at(bytes, 8);
        if version > VERSION_SUMMED {
            let why = format!("mzip version {version}, this program reads {VERSION_SUMMED}");
            return Err(Malformed::newer(why));
        }
        check_seal(bytes)?;
        let (compressor, block_bytes) = (bytes[12], u32_at(bytes, 16));
        let flags = (u32_at(bytes, 12) >> 16) as u16;
        let moved = |flags: u16| matches!(flags, 0 | MIGRATED) || flags == MIGRATED | DELTAS;
        let known = match version {
            VERSION => flags & !MIGRATED == 0,
            VERSION_DELTAS => flags == MIGRATED | DELTAS,
            VERSION_FAR => moved(flags ^ FAR),
            VERSION_SUMMED => moved((flags ^ SUMMED) & !FAR),
            _ => false,
        };
        let known = known && u32_at(bytes, 20) == 0;
        match Compressor::numbered(compressor) {
            Some(compressor) if known && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes) => {
                let has = |flag| flags & flag != 0;
                let (migrated, deltas, far, summed) = (has(MIGRATED), has(DELTAS), has(FAR), has(SUMMED));
                Ok(Head { compressor, level: bytes[13], migrated, deltas, far, summed, block_bytes })
            }
            _ => Err(Malformed::new(format!(
                "version {version}, compressor {compressor}, flags {flags:#x}, blocks of {block_bytes} bytes"
            ))),
        }
    }
}
