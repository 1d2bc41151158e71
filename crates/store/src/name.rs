//! Object names: what is one, and what is not.
//!
//! The rules are those that every backend can keep: a name is a path below a directory, a RADOS object
//! name and an S3 key alike, and no name leads out of the store.

use crate::{Result, StoreError};

/// Longest name in bytes (the limit of S3 keys).
pub const NAME_BYTES_MAX: usize = 1024;

/// Longest part of a name in bytes (the limit of most file systems).
pub const PART_BYTES_MAX: usize = 255;

/// Accepts a valid object name; every backend calls it first.
pub fn check_name(name: &str) -> Result<()> {
    if name.len() <= NAME_BYTES_MAX && name.split('/').all(is_part) {
        Ok(())
    } else {
        Err(bad(name))
    }
}

/// Accepts a valid prefix of a listing: empty, or a name followed by `/`.
pub fn check_prefix(prefix: &str) -> Result<()> {
    if prefix.is_empty() {
        return Ok(());
    }
    match prefix.strip_suffix('/') {
        Some(name) => check_name(name).map_err(|_| bad(prefix)),
        None => Err(bad(prefix)),
    }
}

/// Whether `part` may stand between two slashes of a name.
pub(crate) fn is_part(part: &str) -> bool {
    !part.is_empty()
        && part.len() <= PART_BYTES_MAX
        && !part.starts_with('.')
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn bad(name: &str) -> StoreError {
    StoreError::BadName { object: name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let part = "x".repeat(PART_BYTES_MAX);
        let long = [part.as_str(); 4].join("/");
        for good in ["a", "vault.json", "disks/0f/manifest", "a-b_c.D/9", &part, &long] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        let part = "x".repeat(PART_BYTES_MAX + 1);
        let long = ["xyz"; NAME_BYTES_MAX / 4 + 1].join("/");
        for bad in [
            "", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", ".a", "a/.b", "a b", "ä",
            "a\0", "a\n", "a\\b", &part, &long,
        ] {
            assert!(
                matches!(check_name(bad), Err(StoreError::BadName { object }) if object == *bad),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn prefixes() {
        for good in ["", "a/", "a/b/"] {
            assert!(check_prefix(good).is_ok(), "{good}");
        }
        for bad in ["a", "/", "../", "a//", ".a/"] {
            assert!(check_prefix(bad).is_err(), "{bad}");
        }
    }
}
