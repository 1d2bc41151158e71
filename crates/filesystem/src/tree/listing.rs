//! The entries of a directory whose file system does not tell cases apart.

use super::node::{Entry, NodeId};
use crate::cache::Cache;
use crate::error::Result;
use std::collections::HashMap;
use std::sync::Arc;

/// How many bytes of names are kept for lookups.
const KEPT_BYTES: usize = 32 << 20;
/// What an entry takes beside its name, which is there twice.
const ENTRY_BYTES: usize = 160;

/// Listings of the directories that were looked into last.
pub(crate) struct Listings(Cache<NodeId, Arc<Listing>>);

struct Listing {
    entries: Vec<Entry>,
    /// The places of the entries, in their order, by their names without regard to case.
    by_name: HashMap<Vec<u8>, Vec<u32>>,
}

impl Listings {
    /// Nothing is kept yet.
    pub fn new() -> Self {
        Listings(Cache::new(KEPT_BYTES))
    }

    /// Looks for the name in a directory: exactly, then without regard to case.
    pub fn lookup(
        &self,
        directory: NodeId,
        name: &[u8],
        list: impl FnOnce() -> Result<Vec<Entry>>,
    ) -> Result<Option<Entry>> {
        let listing = match self.0.get(directory) {
            Some(listing) => listing,
            None => {
                let listing = Arc::new(Listing::new(list()?));
                self.0.put(directory, listing.clone(), listing.bytes());
                listing
            }
        };
        Ok(listing.lookup(name))
    }
}

impl Listing {
    fn new(entries: Vec<Entry>) -> Listing {
        let mut by_name: HashMap<_, Vec<u32>> = HashMap::with_capacity(entries.len());
        for (n, entry) in (0u32..).zip(&entries) {
            by_name.entry(upper(&entry.name)).or_default().push(n);
        }
        Listing { entries, by_name }
    }

    fn bytes(&self) -> usize {
        self.entries.iter().map(|e| e.name.len() * 2 + ENTRY_BYTES).sum()
    }

    fn lookup(&self, name: &[u8]) -> Option<Entry> {
        let same = self.by_name.get(&upper(name))?;
        let mut found = same.iter().filter_map(|n| self.entries.get(*n as usize));
        found.clone().find(|e| e.name == name).or_else(|| found.next()).cloned()
    }
}

/// A name in upper case, one character for each, as these file systems know it. Bytes that are no UTF-8 stay.
fn upper(name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    for piece in name.utf8_chunks() {
        for c in piece.valid().chars() {
            let mut upper = c.to_uppercase();
            let c = if upper.len() == 1 { upper.next().unwrap_or(c) } else { c };
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        bytes.extend_from_slice(piece.invalid());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_names_come_first() {
        let names: [&[u8]; 4] = [b"readme", b"README", "straße-é".as_bytes(), b"\xed\xa0\xbdx"];
        let list =
            || Ok((0..).zip(names).map(|(n, name)| Entry { name: name.to_vec(), id: NodeId(n) }).collect());
        let listings = Listings::new();
        let find = |name: &[u8]| listings.lookup(NodeId(9), name, list).expect("a listing").map(|e| e.id.0);
        assert_eq!(find(b"README"), Some(1));
        assert_eq!(find(b"ReadMe"), Some(0));
        assert_eq!(find("STRAßE-É".as_bytes()), Some(2));
        assert_eq!(find("STRASSE-É".as_bytes()), None);
        assert_eq!(find(b"\xed\xa0\xbdX"), Some(3));
        assert_eq!(find(b"readm"), None);
    }
}
