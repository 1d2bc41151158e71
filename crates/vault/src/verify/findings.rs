//! What a verification has found: damaged objects, the snapshots that they affect, and the chunks that cannot be read because of
//! them.

pub(crate) mod affected;
pub(crate) mod bad_chunks;
pub(crate) mod containers;
pub(crate) mod damage;
pub(crate) mod gone;
pub(crate) mod objects;
pub(crate) mod others;
pub(crate) mod room;
