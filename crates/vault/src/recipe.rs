//! Recipes: how they are stored, read through chains of indirect references, and written.

pub(crate) mod cache;
pub(crate) mod chain;
pub(crate) mod filters;
pub(crate) mod indirect;
pub(crate) mod reference_index;
pub(crate) mod referenced;
pub(crate) mod stored;
pub(crate) mod writer;
