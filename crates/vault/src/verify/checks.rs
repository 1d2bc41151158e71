//! What a verification checks, one kind of object in each file.

pub(crate) mod containers;
pub(crate) mod descent;
pub(crate) mod recipes;
pub(crate) mod references;
mod segments;
pub(crate) mod snapshot_pages;
