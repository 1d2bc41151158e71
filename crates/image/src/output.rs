//! What a disk is written to. A file appears under its name only when it is complete; see [`partial`].

pub mod device;
mod flusher;
pub mod options;
pub mod overwritten;
pub mod partial;
pub mod pipe;
pub mod raw;
pub mod replaced;
pub mod written;
