//! Owners of which nothing can be read, because their manifest cannot. A disk may reference hundreds of thousands that are
//! gone, so each takes a few bytes here.

use super::damage::{Damage, More};
use super::objects::Findings;
use super::room::NAMES_MAX;
use format::{names, DiskId};
use std::collections::{BTreeMap, BTreeSet};

/// Different things that are said of them at most.
const WHYS_MAX: usize = 1000;

/// The owners, and the snapshots that reference their containers.
#[derive(Default)]
pub(crate) struct GoneOwners {
    /// What is wrong with the manifest of each: an index of `whys`.
    owners: BTreeMap<DiskId, u32>,
    whys: Vec<String>,
    /// The snapshots that reference them: indices of `names`.
    affected: BTreeSet<(DiskId, u32)>,
    names: Vec<String>,
    /// Snapshots for which there was no room there.
    more: BTreeSet<String>,
}

impl GoneOwners {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Whether an owner is one of them.
    pub fn has(&self, owner: &DiskId) -> bool {
        self.owners.contains_key(owner)
    }

    /// Adds an owner, and what is wrong with its manifest.
    pub fn add(&mut self, owner: DiskId, why: &str) {
        let known = self.whys.iter().position(|w| w == why);
        let no = known.unwrap_or_else(|| {
            if self.whys.len() < WHYS_MAX {
                self.whys.push(why.to_owned());
            } else if self.whys.len() == WHYS_MAX {
                self.whys.push("cannot be read".into());
            }
            self.whys.len() - 1
        });
        self.owners.entry(owner).or_insert(no as u32);
    }

    /// A snapshot references containers of some of them. Called snapshot by snapshot.
    pub fn affect(&mut self, snapshot: &str, owners: impl Iterator<Item = DiskId>) {
        for owner in owners {
            if self.affected.len() >= NAMES_MAX {
                self.more.insert(snapshot.to_owned());
                return;
            }
            if self.names.last().is_none_or(|last| last != snapshot) {
                self.names.push(snapshot.to_owned());
            }
            self.affected.insert((owner, self.names.len() as u32 - 1));
        }
    }

    /// Says of an owner in its own findings what is known here, and forgets it.
    pub fn move_into(&mut self, owner: DiskId, found: &mut Findings) {
        let Some(why) = self.owners.remove(&owner) else { return };
        let at = found.add(&manifest_of(owner), &self.whys[why as usize]);
        self.snapshots_of(owner).for_each(|s| found.affects(at, s));
    }

    /// Adds the manifests to a report, and to `more` what there is no room for.
    pub fn report(mut self, damaged: &mut Vec<Damage>, more: &mut More) {
        let (owners, whys) = (std::mem::take(&mut self.owners), std::mem::take(&mut self.whys));
        for (owner, why) in owners {
            let snapshots = self.snapshots_of(owner).map(str::to_owned).collect();
            let why = whys[why as usize].clone();
            more.report(Damage { object: manifest_of(owner), why, snapshots }, damaged);
        }
        more.affected(self.more);
    }

    fn snapshots_of(&self, owner: DiskId) -> impl Iterator<Item = &str> {
        self.affected.range((owner, 0)..=(owner, u32::MAX)).map(|(_, no)| self.names[*no as usize].as_str())
    }
}

fn manifest_of(owner: DiskId) -> String {
    names::manifest(&names::folder(owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_with_the_snapshots_that_need_it_as_far_as_there_is_room() {
        let disk = |n: u32| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&n.to_be_bytes());
            DiskId(id)
        };
        let mut gone = GoneOwners::default();
        let count = NAMES_MAX as u32 / 2 + 1;
        (0..count).for_each(|n| gone.add(disk(n), ["is missing", "is cut short"][n as usize % 2]));
        assert!(gone.has(&disk(1)) && !gone.has(&disk(count)));
        for snapshot in ["vm/a@1", "vm/a@2"] {
            // Page by page.
            gone.affect(snapshot, (0..count).map(disk));
            gone.affect(snapshot, (0..3).map(disk));
        }
        let mut found = Findings::default();
        gone.move_into(disk(1), &mut found);
        gone.move_into(disk(count), &mut found);
        let (mut damaged, mut more) = (Vec::new(), More::default());
        found.report(&mut damaged, &mut more);
        gone.report(&mut damaged, &mut more);
        let told = |n: usize| (damaged[n].why.as_str(), damaged[n].snapshots.join(" "));
        assert_eq!(told(0), ("is cut short", "vm/a@1 vm/a@2".into()));
        assert_eq!(told(1), ("is missing", "vm/a@1 vm/a@2".into()));
        let all: usize = damaged.iter().map(|d| d.snapshots.len()).sum();
        let rest = more.into_damage().unwrap_or_default();
        assert_eq!(all, 2 * damaged.len());
        assert!(
            rest.why.starts_with(&format!("{} more objects", count as usize - damaged.len())),
            "{}",
            rest.why
        );
        assert_eq!(rest.snapshots, ["vm/a@1", "vm/a@2"]);
    }
}
