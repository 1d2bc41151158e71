//! Finds stored chunks for a backup, in the parent, the disk's own index, the chunks of other disks and the popular
//! set, and places new chunks.

pub(crate) mod champions;
pub(crate) mod claims;
pub(crate) mod hooks;
pub(crate) mod new_chunks;
pub(crate) mod other_disks;
pub(crate) mod own_index;
pub(crate) mod parent;
pub(crate) mod place;
pub(crate) mod popular;
pub(crate) mod referrers;
pub(crate) mod reindex;
pub(crate) mod rewrite;
pub(crate) mod since;
pub(crate) mod whole_segments;
