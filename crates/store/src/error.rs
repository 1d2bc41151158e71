//! What can go wrong in a store, split by what the caller can do about it.

/// The result of a store's call.
pub type Result<T> = std::result::Result<T, StoreError>;

/// An error of a store. Every variant names the object (or place) and carries its evidence.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such object.
    #[error("{object}: not found")]
    NotFound {
        /// The object's name.
        object: String,
    },
    /// The name is taken; objects are never overwritten.
    #[error("{object}: exists already")]
    AlreadyExists {
        /// The object's name.
        object: String,
    },
    /// A compare-and-swap lost against another writer: load again and decide again.
    #[error("{object}: changed by another process meanwhile")]
    Conflict {
        /// The object's name.
        object: String,
    },
    /// The object ends before the wanted range.
    #[error("{object}: {len} bytes wanted at offset {offset}, but it has only {size}")]
    OutOfRange {
        /// The object's name.
        object: String,
        /// First byte wanted.
        offset: u64,
        /// Bytes wanted.
        len: u64,
        /// Bytes there are.
        size: u64,
    },
    /// The object is longer than what the caller can take.
    #[error("{object}: {size} bytes long, more than the {max} that are plausible")]
    TooLong {
        /// The object's name.
        object: String,
        /// Bytes there are.
        size: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The object cannot be read: it is no regular file, or the system does not give its bytes.
    #[error("{object}: cannot {op}: {source}")]
    Unreadable {
        /// The object's name.
        object: String,
        /// What was tried.
        op: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// No space left.
    #[error(
        "{object}: no space left on {location}; free some (`sapwood delete`, `sapwood gc`) and run it again"
    )]
    Full {
        /// The object being written.
        object: String,
        /// The store.
        location: String,
    },
    /// Another process has been changing the object for longer than is waited for.
    #[error("{object}: locked for more than {seconds} s by {holder}; wait until it has ended, or end it, and run this again")]
    Locked {
        /// The object's name.
        object: String,
        /// Who.
        holder: String,
        /// How long was waited.
        seconds: u64,
    },
    /// The place cannot keep what a store promises (no locks, no rename, …).
    #[error("{location}: cannot be used as a store: {why}")]
    Unsuitable {
        /// The store.
        location: String,
        /// Which promise fails, and what to do.
        why: String,
    },
    /// The place can be read and not written: a read-only mount, a user who may only read, or a host that may not write.
    #[error("{location}: cannot be written: {why}")]
    Unwritable {
        /// The store.
        location: String,
        /// What keeps it from being written, and what to do.
        why: String,
    },
    /// A name that no store takes.
    #[error("{object:?}: not a valid object name")]
    BadName {
        /// The name.
        object: String,
    },
    /// An earlier write of this writer failed.
    #[error("{object}: an earlier write failed; nothing more is written to it")]
    Poisoned {
        /// The object's name.
        object: String,
    },
    /// The operating system said no.
    #[error("{object}: cannot {op}: {source}")]
    Io {
        /// The object's name.
        object: String,
        /// What was tried.
        op: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}
