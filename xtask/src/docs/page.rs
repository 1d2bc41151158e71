//! What a page in Markdown holds that can be checked.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};

/// The parts of a page that are checked.
#[derive(Debug, Default)]
pub struct Page {
    /// Names of the workspace in code spans: `name()` and `path::name`, as written.
    pub names: Vec<String>,
    /// Relative links, as written.
    pub links: Vec<String>,
    /// The anchors of its headings.
    pub headings: BTreeSet<String>,
}

impl Page {
    /// Takes a page apart.
    pub fn of(text: &str) -> Page {
        let mut page = Page::default();
        let mut heading: Option<String> = None;
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default());
                    let before = times.entry(anchor.clone()).or_default();
                    page.headings.insert(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
                    *before += 1;
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. })
                    if !dest_url.contains(':') =>
                {
                    page.links.push(dest_url.to_string());
                }
                Event::Text(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::Code(code) => {
                    page.names.extend(names(&code));
                    if let Some(heading) = &mut heading {
                        heading.push_str(&code);
                    }
                }
                _ => {}
            }
        }
        page
    }
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The names in a code span: what has `::` in it or `()` behind it.
fn names(code: &str) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
    let mut names = Vec::new();
    let mut rest = code;
    while let Some(start) = rest.find(is_name) {
        let from = &rest[start..];
        let (word, after) = from.split_at(from.find(|c| !is_name(c)).unwrap_or(from.len()));
        let word = word.trim_matches(':');
        if after.starts_with("()") {
            names.push(format!("{word}()"));
        } else if word.contains("::") {
            names.push(word.to_owned());
        }
        rest = after;
    }
    names
}
