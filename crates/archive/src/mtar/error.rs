//! What can go wrong.

use std::io;

/// The result of migrating or restoring.
pub type Result<T> = std::result::Result<T, MtarError>;

/// Why an archive was not migrated, or not restored.
#[derive(Debug, thiserror::Error)]
pub enum MtarError {
    /// The input could not be read.
    #[error("cannot read the input: {0}")]
    Read(io::Error),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Write(io::Error),
    /// The stream is not as it was written.
    #[error("damaged at byte {offset}: {why}")]
    Damaged {
        /// Where in the stream the damaged part begins.
        offset: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The stream is of a version that this program does not know.
    #[error("{0}; use a newer sapwood")]
    Newer(String),
    /// The alignment is none.
    #[error("an alignment of {0} bytes: it is a power of two from 512 to 65536")]
    Alignment(u64),
}
