//! Detects manifests that were rolled back: an older copy has replaced a newer one, by hand, by a restore of the
//! store's own files, or because a disk lost a write that it had acknowledged.
//!
//! Such a manifest is whole and valid, and what it lists can be restored. But snapshots that only the newer one lists
//! look like garbage, and the writer numbers that it would give out next have been used. So no operation may change or
//! remove anything. Two things prove a rollback, and neither is rolled back with the manifest:
//! - A **commit record**, an object in the folder with the sequence of a manifest in its name, and a copy of that manifest
//!   in it. One is put after the last swap of a session, and after a swap that marks snapshots deleted or held; older ones
//!   are removed. So there are few, and one short listing finds them. `repair` puts a lost manifest again from it, so what
//!   the newest one names stays ([`crate::reclaim::released`]).
//! - An object in the folder with a writer number that the manifest has not given out. `gc`, `verify` and `repair` list the
//!   whole folder. Deletion and renaming list the names of recipes from the next writer on, of pages of the container table and of pages of
//!   snapshots: a session that added, moved or removed anything that counts has put one of these. A backup lists commit
//!   records only.
//!
//! Both are listed first, then the manifest is read. Each listed object was put after the swap that allowed it, so a
//! running session never looks like a rollback.

use crate::base::error::{Named, Result, VaultError};
use crate::manifest::folder::Folder;
use crate::manifest::listing::for_each_name;
use format::{decode_frame, names, Kind, Manifest, Sequence, WriterNo};
use store::{Reserve, StoreError};

/// What a listing of a folder tells of the newest manifest that was there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// Sequences of the commits on record.
    commits: Vec<Sequence>,
    /// The object with the highest writer's number.
    newest: Option<(WriterNo, String)>,
}

impl Evidence {
    /// By the commit records alone.
    pub fn of_commits(folder: &Folder) -> Result<Evidence> {
        Self::below(folder, &[names::commits_of(&folder.path)])
    }

    /// By the commit records, and by what sessions from `next` on have put that must not be lost.
    pub fn of_sessions(folder: &Folder, next: WriterNo) -> Result<Evidence> {
        let path = &folder.path;
        let few = [names::commits_of(path), names::pages_of(path), names::snapshot_pages_of(path)];
        let mut evidence = Self::below(folder, &few)?;
        folder.store.list_names_from(
            &names::recipes_of(path),
            &names::recipes_from(path, next),
            &mut |name| {
                evidence.add(&name);
                Ok(())
            },
        )?;
        Ok(evidence)
    }

    /// By everything in the folder.
    pub fn of_folder(folder: &Folder) -> Result<Evidence> {
        Self::below(folder, std::slice::from_ref(&folder.path))
    }

    fn below(folder: &Folder, prefixes: &[String]) -> Result<Evidence> {
        let mut evidence = Evidence::default();
        for prefix in prefixes {
            for_each_name(&*folder.store, prefix, |name| evidence.add(&name))?;
        }
        Ok(evidence)
    }

    /// Takes an object of the folder into account.
    pub fn add(&mut self, object: &str) {
        if let Some(sequence) = names::sequence_of_commit(object) {
            self.commits.push(sequence);
        } else if let Some(writer) = names::writer_of(object) {
            if self.newest.as_ref().is_none_or(|(newest, _)| *newest < writer) {
                self.newest = Some((writer, object.to_string()));
            }
        }
    }

    /// The sequences of the commits on record, the newest first.
    pub fn commits(&self) -> Vec<Sequence> {
        let mut all = self.commits.clone();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all
    }

    /// Counts a record that was put since the listing.
    pub fn add_commit(&mut self, sequence: Sequence) {
        self.commits.push(sequence);
    }

    /// The highest number of a writer that has put an object.
    pub fn highest_writer(&self) -> Option<WriterNo> {
        self.newest.as_ref().map(|(writer, _)| *writer)
    }

    /// Refuses a manifest, read after the listing, that is older than what was listed.
    pub fn check(&self, folder: &Folder, m: &Manifest) -> Result<()> {
        self.check_numbers(folder, m.sequence, m.next_writer)
    }

    /// The same within [`Folder::update`], where the sequence has been counted up.
    pub fn check_update(&self, folder: &Folder, m: &Manifest) -> Result<()> {
        self.check_numbers(folder, Sequence(m.sequence.0.saturating_sub(1)), m.next_writer)
    }

    fn check_numbers(&self, folder: &Folder, sequence: Sequence, next_writer: WriterNo) -> Result<()> {
        let rolled_back = |why| Err(VaultError::RolledBack { object: folder.manifest_name(), why });
        for commit in self.commits.iter().filter(|c| **c > sequence) {
            let record = names::commit(&folder.path, *commit);
            if is_record(folder, &record)? {
                return rolled_back(format!(
                    "{record} records a commit of sequence {commit}, and it has {sequence}"
                ));
            }
        }
        match &self.newest {
            Some((writer, object)) if *writer >= next_writer => rolled_back(format!(
                "{object} is of session {}, and its next one is {}",
                writer.0, next_writer.0
            )),
            _ => Ok(()),
        }
    }
}

/// Whether a commit record is one of this folder: a copy from elsewhere proves nothing.
fn is_record(folder: &Folder, record: &str) -> Result<bool> {
    match folder.store.read(record, Kind::Commit.frame_max()) {
        // One that a newer program wrote proves as much.
        Ok(bytes) => match decode_frame(Kind::Commit, folder.context(record), &bytes) {
            Err(e) => Ok(e.newer),
            Ok(_) => Ok(true),
        },
        Err(StoreError::NotFound { .. } | StoreError::TooLong { .. } | StoreError::Unreadable { .. }) => {
            Ok(false)
        }
        Err(e) => Err(e.into()),
    }
}

/// The manifest as it is now, and the commit records before it; an error where these prove that it was rolled back.
pub(crate) fn load_checked(folder: &Folder) -> Result<(Manifest, Evidence)> {
    check_loaded(folder, Evidence::of_commits(folder)?)
}

/// The same by [`Evidence::of_sessions`], for changes that cannot be undone and use a writer number up: nobody could prove
/// the rollback after them.
pub(crate) fn load_checked_closely(folder: &Folder) -> Result<(Manifest, Evidence)> {
    // Recipes of earlier sessions prove nothing, and there are many.
    let next = folder.load_root()?.next_writer;
    check_loaded(folder, Evidence::of_sessions(folder, next)?)
}

fn check_loaded(folder: &Folder, evidence: Evidence) -> Result<(Manifest, Evidence)> {
    let m = folder.load_root()?;
    evidence.check(folder, &m)?;
    Ok((m, evidence))
}

/// Records a commit, as far as that is possible: it stands all the same. Returns whether it is on record.
pub(crate) fn record(folder: &Folder, m: &Manifest, before: &Evidence) -> bool {
    put_record(folder, m, before).is_ok()
}

/// Puts the record of a manifest, and removes those that `before` lists.
fn put_record(folder: &Folder, m: &Manifest, before: &Evidence) -> Result<()> {
    let name = names::commit(&folder.path, m.sequence);
    let frame = m.encode_record(folder.context(&name));
    match folder.store.put(&name, &[&frame]) {
        // Somebody else had a reason to record the same manifest: it is durable now. The others go only if it can be read.
        Err(StoreError::AlreadyExists { .. }) => drop(read_record(folder, m.sequence)?),
        put => put?,
    }
    if let Err(e @ StoreError::NotFound { .. }) = folder.store.len(&folder.manifest_name()) {
        // The disk was empty and has been removed since the commit.
        let _ = folder.store.delete(&name);
        return Err(e.into());
    }
    for older in before.commits.iter().filter(|c| **c < m.sequence) {
        let _ = folder.store.delete(&names::commit(&folder.path, *older));
    }
    Ok(())
}

/// Puts a record of the manifest as it is now: what only older ones name may go then. A disk on no record, and without
/// anything in it, needs none. Returns whether it was put.
pub(crate) fn record_now(folder: &Folder, m: &Manifest) -> Result<bool> {
    let evidence = Evidence::of_commits(folder)?;
    if evidence.commits.is_empty() && m.recent.is_empty() && m.pages.is_empty() {
        return Ok(false);
    }
    // What follows gives space back.
    put_record(&folder.with_reserve(Reserve::Whole), m, &evidence).map(|()| true)
}

/// The manifest that a commit record is a copy of.
pub(crate) fn read_record(folder: &Folder, sequence: Sequence) -> Result<Manifest> {
    let name = names::commit(&folder.path, sequence);
    let bytes = folder.store.read(&name, Kind::Commit.frame_max()).named()?;
    let m = Manifest::decode_record(folder.context(&name), &bytes).map_err(VaultError::malformed(&name))?;
    if m.disk != folder.disk || m.sequence != sequence {
        return Err(VaultError::corrupt(&name, "is not of the manifest that its name says"));
    }
    Ok(m)
}
