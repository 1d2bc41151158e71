//! The house: which crate stands on which floor, and that every arrow between crates points down.

use std::fmt;
use std::path::PathBuf;

/// A place in the house.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A floor: uses crates on lower ones only.
    Floor(u8),
    /// Experiments: use every floor, and nothing uses them.
    Outside,
    /// Tools of the repository: use no crate of it, and nothing uses them.
    Apart,
}

use Place::{Apart, Floor, Outside};

/// Every crate of the workspace, those that are still to come too.
const HOUSE: [(&str, Place); 16] = [
    // What the tests of any crate use.
    ("testing", Floor(0)),
    ("chunk", Floor(1)),
    ("format", Floor(1)),
    ("locks", Floor(1)),
    ("store", Floor(2)),
    ("image", Floor(2)),
    ("export", Floor(2)),
    ("filesystem", Floor(2)),
    ("vault", Floor(3)),
    ("pool", Floor(3)),
    ("deploy", Floor(4)),
    ("archive", Floor(4)),
    ("server", Floor(5)),
    ("sapwood", Floor(6)),
    ("bench", Outside),
    ("xtask", Apart),
];

/// A crate and what it uses of this repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// Where its `Cargo.toml` stands.
    pub folder: PathBuf,
    /// Its arrows.
    pub uses: Vec<Use>,
}

/// An arrow from one crate to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The crate that is used.
    pub name: String,
    /// What for.
    pub when: When,
}

/// What a dependency is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The crate itself.
    Always,
    /// Its tests.
    Tests,
    /// Its build script.
    Building,
}

/// Why the house does not stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A crate without a place.
    NoPlace { name: String },
    /// An arrow that does not point down.
    Arrow { from: String, to: String, when: When, why: String },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::NoPlace { name } => {
                write!(f, "{name} has no floor; give it one in xtask/src/house.rs and in the design")
            }
            Wrong::Arrow { from, to, when, why } => {
                let when = match when {
                    When::Always => "",
                    When::Tests => " (in tests)",
                    When::Building => " (in its build script)",
                };
                write!(f, "{from} -> {to}{when}: {why}")
            }
        }
    }
}

/// Everything that is wrong with these crates; nothing, if the house stands.
pub fn check(crates: &[Crate]) -> Vec<Wrong> {
    let mut wrongs = Vec::new();
    for c in crates {
        let Some(from) = place_of(&c.name) else {
            wrongs.push(Wrong::NoPlace { name: c.name.clone() });
            continue;
        };
        for u in &c.uses {
            if let Some(why) = why_wrong(from, place_of(&u.name)) {
                wrongs.push(Wrong::Arrow { from: c.name.clone(), to: u.name.clone(), when: u.when, why });
            }
        }
    }
    wrongs
}

fn place_of(name: &str) -> Option<Place> {
    HOUSE.iter().find(|(n, _)| *n == name).map(|(_, place)| *place)
}

/// Why there may be no arrow between these places.
fn why_wrong(from: Place, to: Option<Place>) -> Option<String> {
    match (from, to) {
        (_, None) => Some("it leads to a crate that has no floor".into()),
        (_, Some(Outside | Apart)) => Some("nothing may use it".into()),
        (Apart, Some(Floor(_))) => Some("tools of the repository use none of its crates".into()),
        (Outside, Some(Floor(_))) => None,
        (Floor(upper), Some(Floor(lower))) if lower < upper => None,
        (Floor(same), Some(Floor(other))) if same == other => {
            Some(format!("it points sideways, both stand on floor {same}"))
        }
        (Floor(lower), Some(Floor(upper))) => {
            Some(format!("it points up, from floor {lower} to floor {upper}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Crates from `from -> to to` lines.
    fn graph(text: &[&str]) -> Vec<Crate> {
        let one = |line: &&str| {
            let (name, uses) = line.split_once("->").unwrap_or((line, ""));
            let arrow = |u: &str| match u.strip_prefix("dev:") {
                Some(name) => Use { name: name.into(), when: When::Tests },
                None => Use { name: u.into(), when: When::Always },
            };
            let uses = uses.split_whitespace().map(arrow).collect();
            Crate { name: name.trim().into(), folder: PathBuf::new(), uses }
        };
        text.iter().map(one).collect()
    }

    fn wrongs(text: &[&str]) -> Vec<String> {
        check(&graph(text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn arrows_that_point_down_are_right() {
        let house = [
            "chunk",
            "format",
            "store",
            "image",
            "vault -> chunk format store image dev:chunk",
            "archive -> vault format",
            "server -> archive vault",
            "sapwood -> server vault image",
            "bench -> chunk vault sapwood",
            "xtask",
        ];
        assert_eq!(wrongs(&house), [""; 0]);
    }

    #[test]
    fn an_arrow_up_or_sideways_is_named() {
        assert_eq!(wrongs(&["format -> store"]), ["format -> store: it points up, from floor 1 to floor 2"]);
        assert_eq!(
            wrongs(&["vault -> chunk pool"]),
            ["vault -> pool: it points sideways, both stand on floor 3"]
        );
        assert_eq!(wrongs(&["chunk -> chunk"]).len(), 1);
        let wrong = wrongs(&["store -> dev:vault", "image -> dev:format"]);
        assert_eq!(wrong, ["store -> vault (in tests): it points up, from floor 2 to floor 3"]);
    }

    #[test]
    fn a_crate_without_a_floor_is_named() {
        let wrong = wrongs(&["cellar -> chunk", "vault -> attic"]);
        assert!(wrong[0].starts_with("cellar has no floor"), "{wrong:?}");
        assert_eq!(wrong[1], "vault -> attic: it leads to a crate that has no floor");
        assert_eq!(wrong.len(), 2);
    }

    #[test]
    fn nothing_uses_experiments_or_tools() {
        assert_eq!(wrongs(&["sapwood -> dev:bench"]), ["sapwood -> bench (in tests): nothing may use it"]);
        assert_eq!(wrongs(&["bench -> xtask", "bench -> bench", "xtask -> chunk"]).len(), 3);
    }

    #[test]
    fn every_crate_has_one_place() {
        for (n, (name, _)) in HOUSE.iter().enumerate() {
            assert!(HOUSE[..n].iter().all(|(other, _)| other != name), "{name} stands twice");
        }
    }
}
