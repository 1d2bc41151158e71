//! How many files the process may have open.

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// Enough for a reader object at each of thousands of owners. Not as many as the system allows, which may be a billion: child
/// processes inherit the limit, and some of them close every file that they may have.
const FILES: u64 = 1 << 16;

/// Allows more than the usual 1,024. Who reads a disk holds a reader object at each other owner of its chunks: a file of its
/// own for each.
pub fn allow_many() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(FILES, |most| most.min(FILES));
    if limit.current.is_some_and(|now| now < wanted) {
        // Where it is refused, few owners still work.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}
