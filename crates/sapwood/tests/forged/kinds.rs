//! Which kinds of objects are forged: all that the pages of the format list.

use crate::common::files_below;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The names and the frames of objects.
const FORMAT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format/vault.md");
/// What is looked at of an object, at its beginning and its end: forged ones are long.
const LOOK_BYTES: u64 = 1 << 20;

/// Objects that were forged.
#[derive(Default)]
pub struct Kinds {
    /// Their names.
    names: BTreeSet<String>,
    /// The kinds of frames in them.
    frames: BTreeSet<u8>,
}

impl Kinds {
    /// What stands in a vault, and stood not like that in the one that it is made of.
    pub fn of_change(original: &Path, forged: &Path) -> Kinds {
        let objects = |vault: &Path| -> Vec<(String, PathBuf)> {
            let root = vault.join("objects");
            let name = |path: &Path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            files_below(&root).into_iter().map(|path| (name(&path), path)).collect()
        };
        let mut frames = BTreeSet::new();
        for (_, path) in objects(original) {
            frames.extend(frames_of(&path));
        }
        let mut found = Kinds::default();
        for (name, path) in objects(forged) {
            if !is_same(&original.join("objects").join(&name), &path) {
                let fresh = frames_of(&path).into_iter().filter(|frame| !frames.contains(frame));
                found.frames.extend(fresh.map(|(kind, _)| kind));
                found.names.insert(name);
            }
        }
        found
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn add(&mut self, others: Kinds) {
        self.names.extend(others.names);
        self.frames.extend(others.frames);
    }

    /// A kind that is added later is forged, too.
    pub fn check_all_are_there(&self) {
        let text = std::fs::read_to_string(FORMAT).unwrap();
        let names = names_in(&text);
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            assert!(self.names.iter().any(|n| is_like(n, &name)), "no case forges `{name}`");
        }
        let frames = frames_in(&text);
        assert!(frames.len() > 20, "{frames:?}");
        for (number, what) in frames {
            assert!(self.frames.contains(&number), "no case forges the frame {number}: {what}");
        }
    }
}

/// Kind and checksum of the frames in an object.
fn frames_of(path: &Path) -> BTreeSet<(u8, [u8; 16])> {
    let file = File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let mut frames = BTreeSet::new();
    for from in [0, len.saturating_sub(LOOK_BYTES)] {
        let mut bytes = vec![0; LOOK_BYTES.min(len) as usize];
        file.read_exact_at(&mut bytes, from).unwrap();
        let heads = bytes.windows(format::FRAME_HEADER_BYTES).filter(|head| head.starts_with(b"SAPW"));
        frames.extend(heads.map(|head| (head[4], *head.last_chunk().unwrap())));
    }
    frames
}

fn is_same(one: &Path, other: &Path) -> bool {
    let (Ok(a), Ok(b)) = (std::fs::metadata(one), std::fs::metadata(other)) else { return false };
    a.len() == b.len() && std::fs::read(one).unwrap() == std::fs::read(other).unwrap()
}

/// The names of objects in the page of the format: the block below its heading.
fn names_in(page: &str) -> Vec<String> {
    let (_, from) = page.split_once("\n## Names\n").unwrap();
    let block = from.lines().skip_while(|line| !line.starts_with("    "));
    let lines = block.take_while(|line| line.starts_with("    "));
    lines.map(|line| line.trim().split("  ").next().unwrap().to_owned()).collect()
}

/// The kinds of frames in the page: numbers and names, three in a row of the table, or two.
fn frames_in(page: &str) -> Vec<(u8, String)> {
    let (_, from) = page.split_once("\n| kind | | kind | | kind | |\n").unwrap();
    let rows = from.lines().skip(1).take_while(|line| line.starts_with('|'));
    let mut all = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        for pair in cells.chunks(2).filter(|pair| !pair[0].is_empty() && pair[1] != "not used") {
            all.push((pair[0].parse().unwrap(), pair[1].to_owned()));
        }
    }
    all
}

/// Whether a name is as a pattern says: `<what>` stands for a word without dots and slashes, `…` at its end for anything.
fn is_like(name: &str, pattern: &str) -> bool {
    if pattern == "…" {
        return true;
    }
    let Some(rest) = pattern.strip_prefix('<') else {
        let Some(next) = pattern.chars().next() else { return name.is_empty() };
        return name.strip_prefix(next).is_some_and(|name| is_like(name, &pattern[next.len_utf8()..]));
    };
    let word = name.find(['.', '/']).unwrap_or(name.len());
    let (_, pattern) = rest.split_once('>').unwrap();
    word > 0 && is_like(&name[word..], pattern)
}

#[test]
fn names_are_like_patterns() {
    let page = "disks/<disk>/snapshots/<number>.<writer>";
    assert!(is_like("disks/00ff/snapshots/12.3", page));
    assert!(!is_like("disks/00ff/snapshots/12.3.copy", page));
    assert!(!is_like("disks/00ff/snapshots/.3", page));
    assert!(is_like("popular/pages/1.2", "popular/…"));
    assert!(!is_like("popular2/x", "popular/…"));
}
