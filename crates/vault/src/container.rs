//! Containers: writing them, their tables and lists of dead chunks, reading their groups.

pub(crate) mod codec;
pub(crate) mod container_set;
pub(crate) mod dead;
pub(crate) mod group_cache;
pub(crate) mod group_reader;
pub(crate) mod other_owners;
pub(crate) mod room;
pub(crate) mod tables;
pub(crate) mod versions;
pub(crate) mod view;
pub(crate) mod writer;
