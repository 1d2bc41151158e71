//! Where a store is, as users write it.

use std::path::PathBuf;

use crate::{LocalStore, ObjectStore, Result, StoreError, StoreOptions};

/// Kinds of stores that have a name but cannot be opened by this version.
const KNOWN_SCHEMES: [&str; 5] = ["mirror", "rados", "s3", "http", "https"];

/// Opens the store at `url`, a path or `file:///path`.
///
/// [`StoreError::Unsuitable`] for everything that is no store.
pub fn open(url: &str, options: &StoreOptions) -> Result<Box<dyn ObjectStore>> {
    Ok(Box::new(LocalStore::open_with(local_path(url)?, options)?))
}

/// Makes a store at `url`; opens the one that is there.
///
/// [`StoreError::Unsuitable`] for everything that cannot be one.
pub fn create(url: &str, options: &StoreOptions) -> Result<Box<dyn ObjectStore>> {
    Ok(Box::new(LocalStore::create_with(local_path(url)?, options)?))
}

fn local_path(url: &str) -> Result<PathBuf> {
    let unsuitable = |why: String| StoreError::Unsuitable { location: url.to_owned(), why };
    if url.is_empty() {
        return Err(unsuitable("the path is empty".to_owned()));
    }
    let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        return Ok(url.into());
    };
    let lower = scheme.to_ascii_lowercase();
    if lower == "file" {
        let path = rest
            .strip_prefix("//")
            .map(|rest| rest.strip_prefix("localhost").unwrap_or(rest))
            .unwrap_or(rest);
        return match decode(path) {
            Some(path) if path.starts_with('/') => Ok(path.into()),
            _ => Err(unsuitable("a file URL looks like file:///path".to_owned())),
        };
    }
    if KNOWN_SCHEMES.contains(&lower.as_str()) {
        return Err(unsuitable(format!(
            "{lower}: stores are not supported by this version; use a directory"
        )));
    }
    let why = format!("{scheme}: is not a known kind of store; write ./{url} if it is a directory");
    Err(unsuitable(why))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

/// Resolves `%xx`; `None` where it is malformed or no text.
fn decode(path: &str) -> Option<String> {
    let mut decoded = Vec::new();
    let mut parts = path.split('%');
    decoded.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        match u8::from_str_radix(digits, 16).ok()? {
            0 => return None,
            byte => decoded.push(byte),
        }
        decoded.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (url, path) in [
            ("/srv/store", "/srv/store"),
            ("store", "store"),
            ("./s3:x", "./s3:x"),
            ("a/b:c", "a/b:c"),
            ("file:///srv/store", "/srv/store"),
            ("file://localhost/srv", "/srv"),
            ("file:/srv", "/srv"),
            ("FILE:///srv", "/srv"),
            ("file:///a%20b%25", "/a b%"),
        ] {
            assert_eq!(local_path(url).unwrap(), PathBuf::from(path), "{url}");
        }
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        for (url, why) in [
            ("", "empty"),
            ("s3:bucket/prefix", "s3: stores are not supported by this version"),
            ("rados:pool", "not supported by this version"),
            ("mirror:/a,/b", "not supported by this version"),
            ("http://host/x", "not supported by this version"),
            ("HTTPS://host/x", "not supported by this version"),
            ("ftp://host/x", "not a known kind"),
            ("file://host/x", "file:///path"),
            ("file://", "file:///path"),
            ("file:///a%2", "file:///path"),
            ("file:///a%+1", "file:///path"),
            ("file:///a%00", "file:///path"),
        ] {
            match create(url, &StoreOptions::default()).map(drop) {
                Err(StoreError::Unsuitable { location, why: said }) => {
                    assert_eq!(location, url);
                    assert!(said.contains(why), "{url}: {said}");
                }
                other => panic!("{url}: {other:?}"),
            }
        }
    }

    #[test]
    fn opens_and_creates() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}/deep/down", dir.path().display());
        let options = StoreOptions::default();
        assert!(matches!(open(&url, &options), Err(StoreError::Unsuitable { .. })));
        create(&url, &options).unwrap().put("a", &[b"x"]).unwrap();
        create(&url, &options).unwrap();
        assert_eq!(open(&url, &options).unwrap().read("a", 1).unwrap(), b"x");
    }
}
