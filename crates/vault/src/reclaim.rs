//! Freeing space: deletion, the reverse pass, compaction, sweeps and collection.

pub(crate) mod apply;
pub(crate) mod change;
pub(crate) mod compact;
pub(crate) mod dead_list;
pub(crate) mod delete;
pub(crate) mod gc;
pub(crate) mod gc_report;
pub(crate) mod leaks;
pub(crate) mod orphans;
pub(crate) mod released;
pub(crate) mod retiring;
pub(crate) mod reverse;
pub(crate) mod sweep;
pub(crate) mod unreferenced;
