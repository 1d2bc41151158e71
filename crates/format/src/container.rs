//! The parts of a container: data object, chunk table, list of dead chunks, and its entry in the container table.

mod data;
mod dead;
mod page;
mod table;
mod table_range;

pub use data::{group_checksum, DataFooter, DataHeader, DataName, DATA_FOOTER_BYTES, DATA_HEADER_BYTES};
pub use dead::DeadLog;
pub use page::{ContainerEntry, ContainerPage, CONTAINERS_PER_PAGE};
pub use table::{Codec, Group, Table};
pub use table_range::TableRange;
