//! The journal: where its batches lie, what is synced with them, and how a crash has them read again.

pub(super) mod recovery;
pub(super) mod ring;
pub(super) mod unsynced;
