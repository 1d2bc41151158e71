//! What can go wrong.

use format::Malformed;
use std::io;

/// The result of compressing or restoring.
pub type Result<T> = std::result::Result<T, MzipError>;

/// Why a file was not compressed, or not restored.
#[derive(Debug, thiserror::Error)]
pub enum MzipError {
    /// The input could not be read.
    #[error("cannot read the input: {0}")]
    Read(io::Error),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Write(io::Error),
    /// A temporary file, for a stream or tables that are longer than memory, could not be used.
    #[error("cannot use a temporary file: {0}; TMPDIR names another directory, --memory allows more memory")]
    Scratch(io::Error),
    /// An archive's blocks, or its index, are too large for the memory.
    #[error("it needs --memory {}MiB", .0.div_ceil(1 << 20))]
    Memory(u64),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The archive is not as it was written.
    #[error("damaged at byte {offset}: {why}")]
    Damaged {
        /// Where in the archive the damaged part begins.
        offset: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The archive is of a version that this program does not know.
    #[error("{0}; use a newer sapwood")]
    Newer(String),
    /// The input was changed while it was compressed.
    #[error("changed while it was read; try again while nobody writes to it")]
    Changed,
    /// A range that the file does not have.
    #[error("the file has {0} bytes, and not all of the range")]
    Outside(u64),
    /// [`Progress::stop`](super::progress::Progress::stop) was called.
    #[error("interrupted")]
    Stopped,
}

impl MzipError {
    /// The error of reading the input again: what has become shorter was changed.
    pub(in crate::mzip) fn of_reading(e: io::Error) -> MzipError {
        if e.kind() == io::ErrorKind::UnexpectedEof {
            MzipError::Changed
        } else {
            MzipError::Read(e)
        }
    }
}

/// Damage at a place, or a newer version.
pub(in crate::mzip) fn malformed(offset: u64, e: Malformed) -> MzipError {
    if e.newer {
        MzipError::Newer(e.why)
    } else {
        MzipError::Damaged { offset, why: e.why }
    }
}

/// Damage at a place.
pub(in crate::mzip) fn damaged(offset: u64, why: impl Into<String>) -> MzipError {
    MzipError::Damaged { offset, why: why.into() }
}
