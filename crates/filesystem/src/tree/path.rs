//! Finding a node by its path.

use super::node::{NodeId, NodeKind};
use super::FileSystem;
use crate::error::{FsError, Result};

/// Links that are followed on one path, as in Linux.
const LINKS_MAX: usize = 40;
/// The longest target of a link that is followed.
const LINK_BYTES_MAX: u64 = 64 << 10;

/// The node that a path leads to, from the root of the file system; `None` where there is none.
///
/// Links on the way are followed, absolute ones from the same root; the last one only with `follow`.
pub fn resolve(fs: &dyn FileSystem, path: &[u8], follow: bool) -> Result<Option<NodeId>> {
    let mut way = vec![fs.root()];
    // What is still to be walked, the next part last.
    let mut ahead: Vec<Vec<u8>> = parts(path).collect();
    let mut links = 0;
    while let Some(part) = ahead.pop() {
        if part == b".." {
            if way.len() > 1 {
                way.pop();
            }
            continue;
        }
        let here = way.last().copied().unwrap_or(fs.root());
        if fs.node(here)?.kind != NodeKind::Directory {
            return Ok(None);
        }
        let Some(entry) = fs.lookup(here, &part)? else { return Ok(None) };
        let node = fs.node(entry.id)?;
        if node.kind != NodeKind::Link || (ahead.is_empty() && !follow) {
            way.push(entry.id);
            continue;
        }
        links += 1;
        if links > LINKS_MAX || node.size > LINK_BYTES_MAX {
            let what = String::from_utf8_lossy(path).into_owned();
            return Err(FsError::Wrong { what, why: "leads through too many symbolic links".into() });
        }
        let target = fs.link(entry.id)?;
        if target.first() == Some(&b'/') {
            way.truncate(1);
        }
        ahead.extend(parts(&target));
    }
    Ok(way.last().copied())
}

/// The parts of a path, the last one first, without those that lead nowhere.
fn parts(path: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    path.split(|b| *b == b'/').rev().filter(|p| !p.is_empty() && *p != b".").map(<[u8]>::to_vec)
}
