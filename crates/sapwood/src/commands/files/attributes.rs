//! Extended attributes of a guest's node, as far as they can be read.

use crate::terminal::escape::escaped;
use filesystem::{Attributes, FileSystem, FsError, NodeId, Result};

/// Names and values.
type Values = Vec<(Vec<u8>, Vec<u8>)>;

/// What can be read of a node's extended attributes, and a line for each one that cannot: its name, and why.
///
/// # Errors
/// The vault below could not be read.
pub fn read(fs: &dyn FileSystem, id: NodeId) -> Result<(Values, Vec<String>)> {
    match fs.attributes(id) {
        Err(e @ FsError::Read(_)) => Err(e),
        Err(e) => Ok((Vec::new(), vec![format!("extended attributes: {e}")])),
        Ok(Attributes { values, unread }) => {
            let lost = unread.iter().map(|u| format!("{}: {}", escaped(&u.name), u.why));
            Ok((values, lost.collect()))
        }
    }
}
