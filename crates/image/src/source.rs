//! Disks that are read as they come: raw files and devices, pipes, NBD exports; and lists of what changed on a disk.

pub mod changes;
pub mod limited;
pub mod nbd;
pub mod raw;
pub mod stream;
