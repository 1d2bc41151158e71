//! Cutting a segment into pieces. A cut never looks outside its segment, and what it returns
//! tiles the segment exactly.

use std::fmt;
use std::str::FromStr;

use crate::cdc;
use crate::null::is_null;
use crate::piece::Piece;

/// Alignment and length of the null blocks that content-defined cutting takes out first.
const NULL_BLOCK_BYTES: usize = 4096;
const KIB: u32 = 1024;
const FIXED_UNIT_BYTES: u32 = 512;
const MIN_BYTES_MIN: u32 = 64;
const BYTES_MAX: u32 = 16 << 20;

/// How a segment is cut. Written as `4k`, `fixed:12k`, `cdc:4k`, or `cdc:1k,4k,16k` for a minimum,
/// average and maximum; `cdc:4k` means a minimum of a quarter and a maximum of four times that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkSpec {
    /// Pieces of equal length at multiples of it; a segment's last one may be shorter.
    Fixed {
        /// Length in bytes: a multiple of 512, at most 16 MiB.
        bytes: u32,
    },
    /// Pieces that end where the content says, so that they move with the data.
    ContentDefined {
        /// No piece is shorter, but those in front of a null run or a segment's end.
        min: u32,
        /// About the mean length over random data.
        average: u32,
        /// No piece is longer.
        max: u32,
    },
}

impl ChunkSpec {
    /// The content-defined spec of this average, with a quarter as minimum and four times as
    /// maximum.
    pub fn content_defined(average: u32) -> Self {
        Self::ContentDefined { min: average / 4, average, max: average.saturating_mul(4) }
    }

    /// Bytes of a chunk on average, roughly.
    pub fn average_bytes(self) -> u32 {
        match self {
            Self::Fixed { bytes } => bytes,
            Self::ContentDefined { average, .. } => average,
        }
    }

    /// Whether [`cut`] accepts the numbers: ask before using a spec that was read from somewhere.
    pub fn check(self) -> Result<(), SpecError> {
        match self {
            Self::Fixed { bytes } => {
                if bytes == 0 || bytes > BYTES_MAX || bytes % FIXED_UNIT_BYTES != 0 {
                    return Err(SpecError::FixedRange { bytes });
                }
            }
            Self::ContentDefined { min, average, max } => {
                if min < MIN_BYTES_MIN || average <= min || max <= average || max > BYTES_MAX {
                    return Err(SpecError::ContentRange { min, average, max });
                }
            }
        }
        Ok(())
    }
}

/// Why a text or a set of numbers is no [`ChunkSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not of the written form.
    #[error("chunk size {text:?} is not of the form 4k, fixed:12k, cdc:4k or cdc:1k,4k,16k")]
    Form {
        /// What was given.
        text: String,
    },
    /// A fixed length that cannot be.
    #[error("a fixed chunk of {bytes} bytes: it must be a multiple of 512 bytes, at most 16 MiB")]
    FixedRange {
        /// Length that was given.
        bytes: u32,
    },
    /// Content-defined lengths that cannot be.
    #[error(
        "content-defined chunks of {min}, {average}, {max} bytes: \
         they must be at least 64 bytes, each larger than the one before, at most 16 MiB"
    )]
    ContentRange {
        /// Minimum that was given.
        min: u32,
        /// Average that was given.
        average: u32,
        /// Maximum that was given.
        max: u32,
    },
}

impl FromStr for ChunkSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let form = || SpecError::Form { text: text.to_owned() };
        let spec = match text.split_once(':') {
            None => Self::Fixed { bytes: size(text).ok_or_else(form)? },
            Some(("fixed", bytes)) => Self::Fixed { bytes: size(bytes).ok_or_else(form)? },
            Some(("cdc", sizes)) => {
                let sizes: Option<Vec<u32>> = sizes.split(',').map(size).collect();
                match sizes.as_deref() {
                    Some(&[average]) => Self::content_defined(average),
                    Some(&[min, average, max]) => Self::ContentDefined { min, average, max },
                    _ => return Err(form()),
                }
            }
            Some(_) => return Err(form()),
        };
        spec.check()?;
        Ok(spec)
    }
}

/// Reads `4k`, `4K`, `1m` or plain bytes.
fn size(text: &str) -> Option<u32> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], KIB),
        b'm' | b'M' => (&text[..text.len() - 1], KIB * KIB),
        _ => (text, 1),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u32>().ok()?.checked_mul(unit)
}

impl fmt::Display for ChunkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fixed { bytes } => write!(f, "{}", Size(bytes)),
            Self::ContentDefined { average, .. } if *self == Self::content_defined(average) => {
                write!(f, "cdc:{}", Size(average))
            }
            Self::ContentDefined { min, average, max } => {
                write!(f, "cdc:{},{},{}", Size(min), Size(average), Size(max))
            }
        }
    }
}

struct Size(u32);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= KIB && bytes % KIB == 0 => write!(f, "{}k", bytes / KIB),
            bytes => write!(f, "{bytes}"),
        }
    }
}

/// Cuts a segment and appends its pieces to `out`.
///
/// Fixed: pieces of that length, the last perhaps shorter; those that are all zero are null.
/// Content-defined: maximal runs of all-zero blocks, aligned to 4 KiB, are null, and what is
/// between them is cut by content. The exact rule is in `docs/format/chunking.md`.
///
/// # Panics
/// When the segment has 4 GiB or more, or when [`ChunkSpec::check`] refuses the spec.
pub fn cut(segment: &[u8], spec: ChunkSpec, out: &mut Vec<Piece>) {
    assert!(u32::try_from(segment.len()).is_ok(), "a segment of {} bytes", segment.len());
    if let Err(why) = spec.check() {
        panic!("{why}");
    }
    match spec {
        ChunkSpec::Fixed { bytes } => cut_fixed(segment, bytes as usize, out),
        ChunkSpec::ContentDefined { min, average, max } => {
            let rule = cdc::Rule::new(min, average, max);
            cut_by_content(segment, &rule, out);
        }
    }
}

fn cut_fixed(segment: &[u8], chunk_bytes: usize, out: &mut Vec<Piece>) {
    out.reserve(segment.len() / chunk_bytes + 1);
    let mut null_bytes = 0;
    for chunk in segment.chunks(chunk_bytes) {
        if is_null(chunk) {
            null_bytes += chunk.len();
        } else {
            push_null(&mut null_bytes, out);
            out.push(Piece::Data { bytes: chunk.len() as u32 });
        }
    }
    push_null(&mut null_bytes, out);
}

fn cut_by_content(segment: &[u8], rule: &cdc::Rule, out: &mut Vec<Piece>) {
    let mut null_bytes = 0;
    let mut data_from = 0;
    let mut at = 0;
    for block in segment.chunks(NULL_BLOCK_BYTES) {
        if is_null(block) {
            if null_bytes == 0 {
                cdc::cut(&segment[data_from..at], rule, out);
            }
            null_bytes += block.len();
            data_from = at + block.len();
        } else {
            push_null(&mut null_bytes, out);
        }
        at += block.len();
    }
    push_null(&mut null_bytes, out);
    cdc::cut(&segment[data_from..], rule, out);
}

fn push_null(null_bytes: &mut usize, out: &mut Vec<Piece>) {
    if *null_bytes > 0 {
        out.push(Piece::Null { bytes: *null_bytes as u32 });
        *null_bytes = 0;
    }
}

#[cfg(test)]
mod tests;
