//! What could not be counted because of damage, a line for each object.

use crate::base::error::{Result, VaultError};
use std::collections::HashSet;

/// Lines at most: a vault that lost a million containers is told in as many words as one that lost some.
const LINES_MAX: usize = 10_000;

/// Lines about damaged objects, in the order in which they were found, each once.
#[derive(Default)]
pub(crate) struct DamageLines {
    all: Vec<String>,
    told: HashSet<String>,
    /// Whether there was no room for some.
    has_more: bool,
}

impl DamageLines {
    /// Notes damage; other errors are passed on.
    pub fn note(&mut self, e: VaultError) -> Result<()> {
        if !e.is_damage() {
            return Err(e);
        }
        self.add(e.to_string());
        Ok(())
    }

    /// Notes what was found elsewhere.
    pub fn add(&mut self, line: String) {
        if self.told.contains(&line) {
        } else if self.all.len() < LINES_MAX {
            self.told.insert(line.clone());
            self.all.push(line);
        } else {
            self.has_more = true;
        }
    }

    /// All lines, and one that says that there are more.
    pub fn into_lines(mut self) -> Vec<String> {
        if self.has_more {
            self.all.push("more objects are damaged".into());
        }
        self.all
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_of_very_many_some() {
        let mut lines = DamageLines::default();
        for n in (0..LINES_MAX).chain(0..10) {
            lines.note(VaultError::corrupt(&format!("object {n}"), "is lost")).unwrap();
        }
        lines.note(VaultError::Refused("no damage".into())).unwrap_err();
        let few = std::mem::take(&mut lines.all);
        assert_eq!((few.len(), lines.has_more), (LINES_MAX, false));
        lines.all = few;
        lines.note(VaultError::corrupt("another", "is lost")).unwrap();
        let all = lines.into_lines();
        assert_eq!(all.len(), LINES_MAX + 1);
        assert_eq!(all[7], VaultError::corrupt("object 7", "is lost").to_string());
    }
}
