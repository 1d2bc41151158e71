//! Where bytes lie on a disk, and what reading them there costs.

pub mod extents;
pub mod free_extents;
pub mod raw;
pub mod seek_model;
