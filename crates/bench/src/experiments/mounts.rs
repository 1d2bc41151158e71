//! The file system of a pool, mounted, beside ext4 on a loop device over the same disk.

pub mod sequential;
pub mod space;
