//! A simulated directory: its names, and which of them are durable.

use std::collections::BTreeMap;

use super::inode::InodeNo;
use super::random::Random;

type Names = BTreeMap<String, InodeNo>;

/// The names in a directory.
#[derive(Clone, Default)]
pub(super) struct Directory {
    names: Names,
    durable: Names,
    /// Changes since the last sync: a name and what it leads to from then on.
    unsynced: Vec<(String, Option<InodeNo>)>,
}

impl Directory {
    /// Where a name leads now.
    pub fn get(&self, name: &str) -> Option<InodeNo> {
        self.names.get(name).copied()
    }

    /// Whether there is no name now.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All names as they are now, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&String, InodeNo)> {
        self.names.iter().map(|(name, inode)| (name, *inode))
    }

    /// Every inode that this directory, as it is or as a crash could leave it, names.
    pub fn mentioned(&self) -> impl Iterator<Item = InodeNo> + '_ {
        let unsynced = self.unsynced.iter().filter_map(|(_, inode)| *inode);
        self.names.values().chain(self.durable.values()).copied().chain(unsynced)
    }

    /// Lets a name lead to an inode, or removes it.
    pub fn set(&mut self, name: &str, inode: Option<InodeNo>) {
        apply(&mut self.names, name, inode);
        self.unsynced.push((name.to_owned(), inode));
    }

    /// Makes all changes durable.
    pub fn sync(&mut self) {
        for (name, inode) in std::mem::take(&mut self.unsynced) {
            apply(&mut self.durable, &name, inode);
        }
    }

    /// What a power cut leaves: a prefix of what was not synced.
    pub fn crash(&mut self, random: &mut Random) {
        let mut unsynced = std::mem::take(&mut self.unsynced);
        unsynced.truncate(random.below(unsynced.len() as u64 + 1) as usize);
        for (name, inode) in unsynced {
            apply(&mut self.durable, &name, inode);
        }
        self.names = self.durable.clone();
    }
}

fn apply(names: &mut Names, name: &str, inode: Option<InodeNo>) {
    match inode {
        Some(inode) => names.insert(name.to_owned(), inode),
        None => names.remove(name),
    };
}
