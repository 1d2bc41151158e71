//! A connection to a server, of whatever kind.

use std::io::{Read, Write};

/// A connection to a server.
pub(super) trait Socket: Read + Write + Send {}
impl<T: Read + Write + Send> Socket for T {}
