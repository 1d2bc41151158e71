//! What can go wrong, by what one can do about it.

use std::io;

use format::Malformed;

/// The result of an operation on a pool.
pub type Result<T> = std::result::Result<T, PoolError>;

/// Why an operation on a pool failed.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The device failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, and where.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// Something in the pool is not what it should be.
    #[error("{what} is damaged: {why}")]
    Damaged {
        /// What, with its block.
        what: String,
        /// How it shows.
        why: String,
    },
    /// Written by a newer program.
    #[error("{0}: use a newer sapwood")]
    Newer(String),
    /// No free block is left. Nothing was changed.
    #[error("the pool is full: delete volumes or snapshots, or trim")]
    Full,
    /// No slot of the catalog is empty. Nothing was changed.
    #[error("the catalog is full: delete volumes, snapshots or files")]
    CatalogFull,
    /// A part of a volume has not arrived, and what the volume is filled from does not give it.
    #[error("{what} has not arrived: {source}")]
    Absent {
        /// Which part of which volume.
        what: String,
        /// Why it cannot be read.
        source: io::Error,
    },
    /// What was named is not there. Nothing was changed.
    #[error("{0}")]
    NotFound(String),
    /// What was asked for cannot be done. Nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// A name or a size that none can have. Nothing was changed.
    #[error("{0}")]
    Invalid(String),
    /// A write or a sync failed before: what is on the device is uncertain until the pool is opened again.
    #[error("the pool failed before ({0}) and must be opened again")]
    Failed(String),
}

impl PoolError {
    /// Damage of a block.
    pub(crate) fn damaged(what: impl Into<String>, why: Malformed) -> Self {
        let what = what.into();
        if why.newer {
            PoolError::Newer(format!("{what}: {why}"))
        } else {
            PoolError::Damaged { what, why: why.why }
        }
    }

    /// What was behind an error that went through the hands of others.
    pub(crate) fn from_io(error: io::Error) -> Self {
        match error.downcast::<PoolError>() {
            Ok(error) => error,
            Err(source) => PoolError::Io { what: "the file system".into(), source },
        }
    }

    /// A call of the device that failed.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| PoolError::Io { what, source }
    }
}

impl From<PoolError> for io::Error {
    fn from(error: PoolError) -> Self {
        let kind = match &error {
            PoolError::Full | PoolError::CatalogFull => io::ErrorKind::StorageFull,
            PoolError::NotFound(_) => io::ErrorKind::NotFound,
            PoolError::Refused(_) | PoolError::Invalid(_) => io::ErrorKind::InvalidInput,
            PoolError::Io { source, .. } => source.kind(),
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
