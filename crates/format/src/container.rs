//! The parts of a container: data object, chunk table, list of dead chunks, and its entry in the container table.

mod data;
mod dead;
mod page;
mod table;

pub use data::{group_checksum, DataFooter, DataHeader, DATA_FOOTER_BYTES, DATA_HEADER_BYTES};
pub use dead::DeadLog;
pub use page::{ContainerEntry, ContainerPage, CONTAINERS_PER_PAGE};
pub use table::{Codec, Group, Table};
