//! POSIX access control lists, which are stored shorter than they are shown.

use crate::bytes::{array, le16, le32};

const STORED_VERSION: u32 = 1;
const SHOWN_VERSION: u32 = 2;
/// Entries of a named user and of a named group; only these have a number.
const TAG_USER: u16 = 0x2;
const TAG_GROUP: u16 = 0x8;
/// The number of all others, when shown.
const NOBODY: u32 = u32::MAX;

/// The form in which the kernel shows a list.
pub(super) fn shown(stored: &[u8]) -> Option<Vec<u8>> {
    if le32(stored, 0)? != STORED_VERSION {
        return None;
    }
    let mut shown = SHOWN_VERSION.to_le_bytes().to_vec();
    let mut at = 4;
    while at < stored.len() {
        let head: [u8; 4] = array(stored, at)?;
        at += head.len();
        let id = match le16(&head, 0)? {
            TAG_USER | TAG_GROUP => {
                at += 4;
                le32(stored, at - 4)?
            }
            _ => NOBODY,
        };
        shown.extend(head);
        shown.extend(id.to_le_bytes());
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_have_numbers() {
        let stored = [1, 0, 0, 0, 1, 0, 7, 0, 2, 0, 6, 0, 44, 1, 0, 0, 0x20, 0, 4, 0];
        let expected = [
            2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 44, 1, 0, 0, 0x20, 0, 4, 0, 255, 255,
            255, 255,
        ];
        assert_eq!(shown(&stored), Some(expected.to_vec()));
        assert_eq!(shown(&stored[..14]), None);
        assert_eq!(shown(&expected), None);
        assert_eq!(shown(&[]), None);
    }
}
