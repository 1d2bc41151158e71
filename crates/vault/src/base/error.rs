//! The errors of this crate, split by what the caller can do about them.

mod damage_met;

pub(crate) use damage_met::{container_of, DamageMet, ToLookAt};

use format::Malformed;
use store::StoreError;

/// The result of a vault's call.
pub type Result<T> = std::result::Result<T, VaultError>;

/// An error of a vault.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// An object of the vault is damaged.
    #[error(
        "{object}: damaged: {why}; `sapwood verify --data` lists the snapshots it affects, `sapwood repair` may heal \
         it"
    )]
    Corrupt {
        /// The object.
        object: String,
        /// What is wrong with it.
        why: String,
    },
    /// An object that a manifest names is gone.
    #[error(
        "{object}: missing; `sapwood verify` lists the snapshots it affects, `sapwood repair` may heal it"
    )]
    Missing {
        /// The object.
        object: String,
    },
    /// Neither `vault.json` nor its copy can be read.
    #[error("vault.json: {why}, and its copy, vault.copy, cannot be read either; `sapwood repair` makes both anew from the other objects")]
    Description {
        /// What is wrong with `vault.json`.
        why: String,
    },
    /// An older manifest stands where a newer one was.
    #[error("{object}: an older copy of it was put back: {why}; nothing was changed: put the newer one back; until then restore what can be restored, and back up under another name")]
    RolledBack {
        /// The manifest.
        object: String,
        /// What proves it.
        why: String,
    },
    /// A reader that could not register has lost what it was reading.
    #[error("{object}: another process has deleted what was being read, and this reader could not register; run it again")]
    Gone {
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
    /// The disk is locked by another session.
    #[error("{disk}: locked by {holder}; wait until it has ended")]
    Busy {
        /// The disk.
        disk: String,
        /// Who: work, host, process, since when.
        holder: String,
    },
    /// The session's lease expired, and another process fenced it.
    #[error(
        "{disk}: the lease of this session expired and it was fenced; nothing was committed: run it again"
    )]
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
    /// The request makes no sense, whatever the vault contains.
    #[error("{0}")]
    Usage(String),
    /// The request cannot be carried out.
    #[error("{0}")]
    Refused(String),
    /// The user stopped it.
    #[error("stopped; what was acknowledged stays, `sapwood gc` removes the rest")]
    Cancelled,
    /// The system gave no thread.
    #[error("cannot start a thread: {0}; free some memory, or raise the limit of processes")]
    Thread(#[source] std::io::Error),
    /// The store. What it says of one object that cannot be read is [`VaultError::Corrupt`] instead.
    #[error(transparent)]
    Store(StoreError),
    /// The disk read or written.
    #[error(transparent)]
    Image(#[from] image::ImageError),
}

impl From<StoreError> for VaultError {
    /// An object that cannot be read is damaged, wherever it is read.
    fn from(e: StoreError) -> VaultError {
        match e {
            StoreError::Unreadable { object, op, source } => {
                VaultError::Corrupt { object, why: format!("cannot {op}: {source}") }
            }
            e => VaultError::Store(e),
        }
    }
}

impl VaultError {
    /// Whether it tells of damage in the vault.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            VaultError::Corrupt { .. }
                | VaultError::Missing { .. }
                | VaultError::Description { .. }
                | VaultError::RolledBack { .. }
        )
    }

    /// Whether it is damage or a full store: other work goes on, and this is done again later.
    pub(crate) fn is_damage_or_full(&self) -> bool {
        self.is_damage() || self.is_full()
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

/// The object and what is wrong with it, where an error tells of damage. What cannot be read is damaged, too;
/// where the system lacks memory, say, nothing is known of the object.
pub(crate) fn fault(e: VaultError) -> Result<Fault> {
    match e {
        VaultError::Corrupt { object, why } | VaultError::Newer { object, why } => Ok((object, why)),
        VaultError::Description { why } => Ok((format::names::VAULT.into(), why)),
        VaultError::RolledBack { object, why } => {
            Ok((object, format!("an older copy of it was put back: {why}")))
        }
        VaultError::Missing { object } | VaultError::Store(StoreError::NotFound { object }) => {
            Ok((object, "is missing".into()))
        }
        e => Err(e),
    }
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
            e => e.into(),
        })
    }
}

/// One line on a damaged object.
pub(crate) fn damage_line((object, why): Fault) -> String {
    format!("{object}: damaged: {why}")
}

/// Results whose damage costs space or speed, never data.
pub(crate) trait UnlessDamaged<T> {
    /// `None` where an object is damaged. Other errors stay errors.
    fn unless_damaged(self) -> Result<Option<T>>;

    /// `None` also where a newer program has written the object.
    fn unless_unreadable(self) -> Result<Option<T>>;

    /// `None` also where the store is full.
    fn unless_damaged_or_full(self) -> Result<Option<T>>;

    /// What `otherwise` makes of the damage. Other errors stay errors.
    fn if_damaged(self, otherwise: impl FnOnce(VaultError) -> Result<T>) -> Result<T>;
}

impl<T> UnlessDamaged<T> for Result<T> {
    fn unless_damaged(self) -> Result<Option<T>> {
        match self {
            Err(e) if e.is_damage() => Ok(None),
            other => other.map(Some),
        }
    }

    fn unless_unreadable(self) -> Result<Option<T>> {
        match self {
            Err(VaultError::Newer { .. }) => Ok(None),
            other => other.unless_damaged(),
        }
    }

    fn unless_damaged_or_full(self) -> Result<Option<T>> {
        match self {
            Err(e) if e.is_full() => Ok(None),
            other => other.unless_damaged(),
        }
    }

    fn if_damaged(self, otherwise: impl FnOnce(VaultError) -> Result<T>) -> Result<T> {
        match self {
            Err(e) if e.is_damage() => otherwise(e),
            other => other,
        }
    }
}
