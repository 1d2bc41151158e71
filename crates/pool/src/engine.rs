//! What keeps blocks: pages, their changes, the journal, free blocks. It knows nothing of volumes.

mod allocate;
mod checkpoint;
mod commit;
mod epochs;
mod filter_file;
mod fingerprint_store;
mod flush;
mod groups;
mod journal;
mod open;
mod page;
mod state;
mod transaction;

pub use allocate::{Run, Stream, Urgency};
pub use fingerprint_store::{can_share, Identity, StoreEdit};
pub use groups::BlockSet;

pub use open::format_device;
pub use page::Page;
pub use state::{Engine, Settings};
pub use transaction::{Need, Transaction};
