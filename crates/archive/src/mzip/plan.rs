//! Which chunk of the input stands where: what is equal or similar is found, and from that come the recipes of migration and
//! restoration (Lin 2015, 2.4.1.2). Memory is bounded: tables are sorted, beyond a limit in temporary files.

mod clusters;
mod deltas;
mod found;
mod joining;
mod migration;
mod post;
mod run;
mod sorter;
mod tape;

pub(super) use deltas::{candidates, Candidate, DeltaWriter, Deltas, DELTAS_AT};
pub(super) use found::{Finder, Found, Room, Totals};
pub(super) use migration::{blocks, Migration, Piece};
