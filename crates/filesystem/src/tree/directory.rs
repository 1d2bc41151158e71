//! The entries of a directory that can be used, told apart from those that cannot.

use super::node::{Entry, NodeId};
use super::FileSystem;
use crate::error::{FsError, Result};

/// What is told of the damaged entries of a directory; all of them may be.
const DAMAGE_MAX: usize = 100;

/// The entries of a directory.
#[derive(Debug, Default)]
pub struct Directory {
    /// Those with names that a node can have, each of them once, in the order in which they are stored.
    pub entries: Vec<Entry>,
    /// What is wrong with the others.
    pub damage: Vec<FsError>,
}

impl Directory {
    /// Reads a directory. A bad name costs its own entry only; of two equal ones the first counts.
    pub fn read(fs: &dyn FileSystem, id: NodeId) -> Result<Directory> {
        let stored = fs.entries(id)?;
        let equal = second_ones(&stored);
        let mut directory = Directory::default();
        let mut left_out = 0u64;
        for (entry, is_second) in stored.into_iter().zip(equal) {
            let why = match entry.check() {
                Err(why) => why,
                Ok(()) if is_second => "is there twice, and the second one is left out".into(),
                Ok(()) => {
                    directory.entries.push(entry);
                    continue;
                }
            };
            left_out += 1;
            if left_out <= DAMAGE_MAX as u64 {
                let (name, node) = (entry.name.escape_ascii(), entry.id.0);
                let why = format!("directory {}: the name \"{name}\" (of node {node}) {why}", id.0);
                directory.damage.push(FsError::corrupt(fs.kind(), why));
            }
        }
        if left_out > DAMAGE_MAX as u64 {
            let why = format!("directory {}: {left_out} of its names are damaged", id.0);
            directory.damage.push(FsError::corrupt(fs.kind(), why));
        }
        Ok(directory)
    }
}

impl Entry {
    /// Says why a node cannot have this name.
    fn check(&self) -> std::result::Result<(), String> {
        match &self.name[..] {
            b"" => Err("is empty".into()),
            b"." | b".." => Err("is that of the directory itself or of the one above".into()),
            name => match name.iter().find(|b| matches!(b, b'/' | 0)) {
                Some(bad) => Err(format!("has the byte {bad:#x}")),
                None => Ok(()),
            },
        }
    }
}

/// Whether an entry before it has the same name, for each entry.
fn second_ones(entries: &[Entry]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    // Stable: of equal names the first stays the first.
    order.sort_by(|a, b| entries[*a].name.cmp(&entries[*b].name));
    let mut is_second = vec![false; entries.len()];
    for pair in order.windows(2) {
        is_second[pair[1]] = entries[pair[0]].name == entries[pair[1]].name;
    }
    is_second
}
