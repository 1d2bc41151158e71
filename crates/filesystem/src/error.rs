//! What can go wrong with a guest's file system, split by what the caller can do about it.

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, FsError>;

/// An error of a volume. Every variant names what it is about and carries its evidence.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// The structures on the disk are wrong.
    #[error("{what}: damaged: {why}")]
    Corrupt {
        /// What was read: `ext4`, `the partition table (GPT)`, `LVM group vg0`.
        what: String,
        /// What is wrong, with offsets, numbers and values.
        why: String,
    },
    /// A feature that is known and not supported.
    #[error("{what}: {feature} is not supported")]
    Unsupported {
        /// What was read.
        what: String,
        /// The feature.
        feature: String,
    },
    /// Asked for something that a node is not: the entries of a file, say.
    #[error("{what}: {why}")]
    Wrong {
        /// What was read.
        what: String,
        /// Why it cannot be.
        why: String,
    },
    /// The disk below could not be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
}

impl FsError {
    /// Damage.
    pub fn corrupt(what: impl Into<String>, why: impl Into<String>) -> FsError {
        FsError::Corrupt { what: what.into(), why: why.into() }
    }

    /// A feature that is missing.
    pub fn unsupported(what: impl Into<String>, feature: impl Into<String>) -> FsError {
        FsError::Unsupported { what: what.into(), feature: feature.into() }
    }
}
