//! Walking over a tree that may be damaged.

use filesystem::{Directory, Extent, FileSystem, FsError, NodeKind, Place};
use std::collections::HashSet;

/// A damaged directory may have any number of entries.
const NODES_MAX: usize = 20_000;

/// What a walk over a tree that may be damaged met.
#[derive(Debug, Default)]
pub struct Walked {
    pub nodes: usize,
    pub errors: usize,
}

/// How much of a file is read in a walk.
const WALK_BYTES: usize = 256 << 10;

/// Walks over all nodes of a volume of so many bytes, and reads them. Errors are fine, as long as they are of the kinds that damage gives.
pub fn walk(fs: &dyn FileSystem, volume_bytes: u64) -> Walked {
    let mut walked = Walked::default();
    let mut seen = HashSet::from([fs.root()]);
    let mut todo = vec![fs.root()];
    let mut buf = vec![0; WALK_BYTES];
    while let Some(id) = todo.pop() {
        walked.nodes += 1;
        if walked.nodes == NODES_MAX {
            break;
        }
        let mut errors = 0;
        let mut note = |error: Option<FsError>| {
            if let Some(error) = error {
                assert!(!matches!(error, FsError::Read(_)), "{error}");
                errors += 1;
            }
        };
        match fs.attributes(id) {
            Ok(found) => found.unread.iter().for_each(|u| note(Some(FsError::corrupt("", &u.why)))),
            Err(why) => note(Some(why)),
        }
        match fs.node(id) {
            Ok(node) if node.kind == NodeKind::Directory => match Directory::read(fs, id) {
                Ok(Directory { entries, damage }) => {
                    damage.into_iter().for_each(|why| note(Some(why)));
                    todo.extend(entries.iter().map(|e| e.id).filter(|id| seen.insert(*id)));
                }
                Err(why) => note(Some(why)),
            },
            Ok(node) if node.kind == NodeKind::Link => note(fs.link(id).err()),
            Ok(node) if node.kind == NodeKind::File => {
                match fs.extents(id) {
                    Ok(extents) => {
                        check_extents(&extents, node.size);
                        for e in &extents {
                            let Place::Volume(at) = e.place else { continue };
                            assert!(at.checked_add(e.len).is_some_and(|end| end <= volume_bytes), "{e:?}");
                        }
                        for e in extents.iter().take(3).chain(extents.last()) {
                            let into = &mut buf[..e.len.min(WALK_BYTES as u64) as usize];
                            note(fs.read_at(id, e.offset, into).err());
                        }
                    }
                    Err(why) => note(Some(why)),
                }
                note(fs.read_at(id, node.size / 2, &mut buf[..5000]).err());
            }
            Ok(_) => {}
            Err(why) => note(Some(why)),
        }
        walked.errors += errors;
    }
    walked
}

/// Extents are in order, within the file, and none could be one with its neighbour.
pub fn check_extents(extents: &[Extent], size: u64) {
    let mut end = 0;
    let mut previous: Option<&Extent> = None;
    for e in extents {
        assert!(e.len > 0 && e.offset >= end, "{e:?} after {end:#x}");
        if let Some(p) = previous.filter(|p| p.offset + p.len == e.offset) {
            let goes_on = match (p.place, e.place) {
                (Place::Volume(a), Place::Volume(b)) => a + p.len == b,
                (a, b) => a == b,
            };
            assert!(!goes_on, "{p:?} and {e:?} are one");
        }
        end = e.offset.checked_add(e.len).expect("an end");
        previous = Some(e);
    }
    assert!(end <= size, "extents up to {end} of {size}");
}
