//! What can go wrong with a vault, split by what the caller can do about it.

use format::Malformed;
use store::StoreError;

/// The result of a vault's call.
pub type Result<T> = std::result::Result<T, VaultError>;

/// An error of a vault.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// An object of the vault is damaged.
    #[error("{object}: damaged: {why}; `sapwood verify` lists the snapshots it affects")]
    Corrupt {
        /// The object.
        object: String,
        /// What is wrong with it.
        why: String,
    },
    /// An object that a manifest names is gone.
    #[error("{object}: missing; `sapwood verify` lists the snapshots it affects")]
    Missing {
        /// The object.
        object: String,
    },
    /// Written by a newer program.
    #[error("{object}: {why}")]
    Newer {
        /// The object.
        object: String,
        /// Version or feature.
        why: String,
    },
    /// There is no such vault, disk or snapshot.
    #[error("{what}")]
    NotFound {
        /// What, where, and what there is instead.
        what: String,
    },
    /// Somebody else is at work on the same disk.
    #[error("{disk}: {what} is at work on this disk; wait until it has ended")]
    Busy {
        /// The disk.
        disk: String,
        /// Who.
        what: String,
    },
    /// This session was declared dead by another process.
    #[error("{disk}: this session was taken for dead and shut out; nothing was committed, run it again")]
    Fenced {
        /// The disk.
        disk: String,
    },
    /// A commit failed in a way that leaves open whether it took effect.
    #[error("{object}: {source}; it cannot be told whether the last change took effect: look with `sapwood snapshots`, nothing was removed")]
    Uncertain {
        /// The manifest.
        object: String,
        /// What the store said.
        #[source]
        source: StoreError,
    },
    /// What was asked for makes no sense, whatever is in the vault.
    #[error("{0}")]
    Usage(String),
    /// What was asked for cannot be done.
    #[error("{0}")]
    Refused(String),
    /// The user stopped it.
    #[error("stopped; what was acknowledged stays, `sapwood gc` removes the rest")]
    Cancelled,
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk read or written.
    #[error(transparent)]
    Image(#[from] image::ImageError),
}

impl VaultError {
    /// Whether it tells of damage in the vault.
    pub fn is_damage(&self) -> bool {
        matches!(self, VaultError::Corrupt { .. } | VaultError::Missing { .. })
    }

    /// Whether it tells that the store has no room.
    pub fn is_full(&self) -> bool {
        matches!(self, VaultError::Store(StoreError::Full { .. }))
    }

    /// An object that does not decode.
    pub(crate) fn malformed(object: &str) -> impl FnOnce(Malformed) -> VaultError + '_ {
        move |m| {
            let object = object.to_string();
            if m.newer {
                VaultError::Newer { object, why: m.why }
            } else {
                VaultError::Corrupt { object, why: m.why }
            }
        }
    }

    pub(crate) fn corrupt(object: &str, why: impl Into<String>) -> VaultError {
        VaultError::Corrupt { object: object.to_string(), why: why.into() }
    }
}

/// A damaged object, and what is wrong with it.
pub(crate) type Fault = (String, String);

/// The object and what is wrong with it, where an error tells of damage. What cannot be read is damaged, too.
pub(crate) fn fault(e: VaultError) -> Result<Fault> {
    match e {
        VaultError::Corrupt { object, why } | VaultError::Newer { object, why } => Ok((object, why)),
        VaultError::Missing { object } | VaultError::Store(StoreError::NotFound { object }) => {
            Ok((object, "is missing".into()))
        }
        VaultError::Store(StoreError::Io { object, op, source }) => {
            Ok((object, format!("cannot {op}: {source}")))
        }
        e => Err(e),
    }
}

/// A device that cannot read what it holds: damage of the object, not a fault of the store.
fn is_bad_sector(e: &std::io::Error) -> bool {
    const EIO: i32 = 5;
    e.raw_os_error() == Some(EIO)
}

/// Reads of objects that a manifest names: what a store calls absent or short is damage here.
pub(crate) trait Named<T> {
    fn named(self) -> Result<T>;
}

impl<T> Named<T> for store::Result<T> {
    fn named(self) -> Result<T> {
        self.map_err(|e| match e {
            StoreError::NotFound { object } => VaultError::Missing { object },
            StoreError::OutOfRange { object, offset, len, size } => VaultError::Corrupt {
                object,
                why: format!("{len} bytes at offset {offset} are missing, it ends at {size}"),
            },
            StoreError::TooLong { object, size, max } => {
                VaultError::Corrupt { object, why: format!("{size} bytes long, at most {max} are plausible") }
            }
            StoreError::Io { object, op, source } if is_bad_sector(&source) => {
                VaultError::Corrupt { object, why: format!("cannot {op}: {source}") }
            }
            e => VaultError::Store(e),
        })
    }
}
