//! Files and block devices of this machine: reading, writing, locking them.

pub mod bytes;
pub mod host;
pub mod lock;
pub mod random_file;
pub mod read_ahead;
#[cfg(test)]
pub mod recorder;
pub mod zeros;
