//! Pages say only what is there: names of functions and types, links and anchors.

mod names;
mod page;

use crate::sources::Files;
use names::Defined;
use page::Page;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Pages whose code spans name functions and types of the workspace.
const NAMING_PAGES: [&str; 2] = ["docs/flows/", "docs/design.md"];

/// What a page says that is not so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A code span that names what no crate defines.
    Undefined { page: String, name: String },
    /// A link to a file that does not exist.
    NoFile { page: String, link: String },
    /// A link to a heading that does not exist.
    NoHeading { page: String, link: String },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Undefined { page, name } => write!(f, "{page}: `{name}` is defined nowhere"),
            Wrong::NoFile { page, link } => write!(f, "{page}: the link {link} leads to no file"),
            Wrong::NoHeading { page, link } => write!(f, "{page}: the link {link} leads to no heading"),
        }
    }
}

/// Everything that is wrong in these pages.
///
/// `pages` are the texts by their path from the root of the repository, `paths` everything there that a link may lead
/// to, and `crates` the sources of each crate by its name. The error names a source that does not parse.
pub fn check(
    pages: &Files,
    paths: &BTreeSet<String>,
    crates: &BTreeMap<String, Files>,
) -> Result<Vec<Wrong>, String> {
    let defined = Defined::of(crates)?;
    let mut wrongs = Vec::new();
    let pages: BTreeMap<&str, Page> =
        pages.iter().map(|(path, text)| (path.as_str(), Page::of(text))).collect();
    for (path, page) in &pages {
        if NAMING_PAGES.iter().any(|p| path == p || (p.ends_with('/') && path.starts_with(p))) {
            let unknown = page.names.iter().filter(|name| !defined.contains(name));
            wrongs.extend(unknown.map(|name| Wrong::Undefined { page: (*path).into(), name: name.clone() }));
        }
        wrongs.extend(page.links.iter().filter_map(|link| broken(path, link, &pages, paths)));
    }
    Ok(wrongs)
}

/// Why a relative link leads nowhere.
fn broken(page: &str, link: &str, pages: &BTreeMap<&str, Page>, paths: &BTreeSet<String>) -> Option<Wrong> {
    let (file, heading) = link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
    let target = if file.is_empty() { page.to_owned() } else { joined(page, file) };
    if !paths.contains(&target) {
        return Some(Wrong::NoFile { page: page.into(), link: link.into() });
    }
    let known = &pages.get(target.as_str())?.headings;
    let heading = heading.filter(|heading| !known.contains(*heading));
    heading.map(|_| Wrong::NoHeading { page: page.into(), link: link.into() })
}

/// The path that a link on a page means, from the root of the repository.
fn joined(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[(&str, &str)]) -> Files {
        texts.iter().map(|(file, text)| ((*file).into(), (*text).into())).collect()
    }

    fn wrongs(pages: &[(&str, &str)]) -> Vec<String> {
        let sources = [
            ("lib.rs", "mod backup;"),
            ("backup.rs", "pub fn backup() {} impl Writer { fn append(&self) {} } pub enum Group { Raw }"),
            (
                "pipeline/read.rs",
                "pub(crate) fn read() {} trait Stage { fn run(&self); } const GAP_BYTES: u64 = 1;",
            ),
        ];
        let crates = BTreeMap::from([("vault".to_owned(), files(&sources))]);
        let pages = files(pages);
        let paths = pages.keys().cloned().chain(["docs".to_owned(), "Makefile".to_owned()]).collect();
        check(&pages, &paths, &crates).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_in_code_spans_are_defined() {
        let right = "`backup()`, `backup::backup`, `vault::Writer::append`, `vault: read::read`, `GAP_BYTES`, `Group::Raw`,
                     `run` of `Stage::run()`, `backup --no-wait`, `pwrite`, and gone() without quotes.\n\n```\nno::such()\n```";
        assert_eq!(wrongs(&[("docs/flows/backup.md", right)]), [""; 0]);
        let stale = "1. `restore::plan` calls `sweep()`, `backup::append`; then `read::backup`.";
        for page in ["docs/flows/README.md", "docs/design.md"] {
            let names = ["restore::plan", "sweep()", "read::backup"]
                .map(|n| format!("{page}: `{n}` is defined nowhere"));
            assert_eq!(wrongs(&[(page, stale)]), names);
        }
        assert_eq!(wrongs(&[("docs/report.md", stale)]), [""; 0]);
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let right = "# How `gc` works, twice\n[a](#how-gc-works-twice) [b](../../README.md#a-b) [c](../../Makefile) [d](https://example.org/x) [e](../../docs/)";
        let readme = "# A & b\n[flow](docs/flows/gc.md)";
        let found = wrongs(&[("docs/flows/gc.md", right), ("README.md", "# A b\n")]);
        assert_eq!(found, [""; 0]);
        let found = wrongs(&[("README.md", readme)]);
        assert_eq!(found, ["README.md: the link docs/flows/gc.md leads to no file"]);
        let found = wrongs(&[("README.md", "# A\n\n## A\n\n[x](#a) [y](#a-1) [z](#a-2) [w](#a--b)")]);
        let gone = ["#a-2", "#a--b"].map(|link| format!("README.md: the link {link} leads to no heading"));
        assert_eq!(found, gone);
    }
}
