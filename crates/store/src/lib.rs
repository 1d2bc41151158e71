//! Objects: where bytes live.
//!
//! A store keeps named, immutable objects and a few small replaceable ones. It knows nothing of what
//! the bytes mean. Every backend passes the same conformance suite ([`conformance`]).
//!
//! What always holds, for every backend:
//! - An object is visible under its name only when it is whole and durable.
//! - What a call acknowledged survives a power cut.
//! - A failed call leaves the named object as it was.

pub mod conformance;
mod dir_store;
mod error;
pub mod file_system;
mod fs_type;
mod host;
mod name;
mod notice;
mod object_store;
mod real_fs;
pub mod sim_fs;
mod url;

pub use dir_store::{DirStore, LocalStore, StoreOptions, LOCK_WAIT, REPLACEABLE_BYTES_MAX};
pub use error::{Result, StoreError};
pub use name::{check_name, check_prefix, NAME_BYTES_MAX, PART_BYTES_MAX};
pub use notice::{notice, send_notices_to};
pub use object_store::{Entry, Lease, Mapped, ObjectStore, ObjectWriter, Reserve, Tag};
pub use real_fs::RealFs;
pub use sim_fs::SimFs;
pub use url::{create, open};

/// A store on a simulated disk.
pub type SimStore = DirStore<SimFs>;
