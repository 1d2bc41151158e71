//! A manifest with all its snapshots, and changes of any of them.
//!
//! There is no partial list: where a page cannot be read, there is an error.

use crate::base::error::{Result, VaultError};
use crate::base::snapshot_spec::{find_recent, find_snapshot};
use crate::manifest::folder::{release_object, Folder};
use crate::manifest::rollback::{load_checked, load_checked_closely, Evidence};
use crate::manifest::snapshots::pages::names_of;
use format::{names, Manifest, SnapId, SnapshotEntry, SnapshotPage, SnapshotState};
use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

/// How often a manifest is read again whose pages have been deleted meanwhile.
const TRIES: usize = 20;

/// A manifest and all its snapshots.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Whole {
    root: Arc<Manifest>,
    /// In the order of their commits; the last live one is the newest.
    pub snapshots: Vec<SnapshotEntry>,
}

impl Deref for Whole {
    type Target = Manifest;

    fn deref(&self) -> &Manifest {
        &self.root
    }
}

impl Whole {
    /// The manifest alone.
    pub fn root(&self) -> &Arc<Manifest> {
        &self.root
    }

    /// The snapshots alone.
    pub fn into_snapshots(self) -> Vec<SnapshotEntry> {
        self.snapshots
    }

    /// The newest snapshot that users see.
    pub fn newest(&self) -> Option<&SnapshotEntry> {
        self.live().next_back()
    }

    /// Snapshots that users see, oldest first.
    pub fn live(&self) -> impl DoubleEndedIterator<Item = &SnapshotEntry> {
        self.snapshots.iter().filter(|s| is_live(s))
    }
}

fn is_live(s: &SnapshotEntry) -> bool {
    s.state == SnapshotState::Live
}

impl Folder {
    /// The manifest as it is now, with all snapshots.
    pub fn load(&self) -> Result<Whole> {
        self.again_if_replaced(|| self.whole(Arc::new(self.load_root()?)))
    }

    /// The same of a folder that may be coming or going, as [`Folder::load_root_unless_empty`].
    pub fn load_unless_empty(&self) -> Result<Option<Whole>> {
        self.again_if_replaced(|| self.load_root_unless_empty()?.map(|m| self.whole(Arc::new(m))).transpose())
    }

    /// Who reads without a lease, or changes without a session, may find pages deleted that a newer manifest does not name.
    fn again_if_replaced<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 1..TRIES {
            match attempt() {
                Err(VaultError::Missing { object }) if self.is_replaced(&object) => {}
                done => return done,
            }
        }
        attempt()
    }

    /// Whether it is a page of snapshots that the manifest does not name.
    fn is_replaced(&self, object: &str) -> bool {
        if !object.starts_with(&names::snapshot_pages_of(&self.path)) {
            return false;
        }
        let is_named = |m: &Manifest| m.older.iter().any(|at| names_of(self, at)[0] == object);
        matches!(self.load_tagged(), Ok(Some((m, _))) if !is_named(&m))
    }

    /// A manifest with all its snapshots.
    pub fn whole(&self, root: Arc<Manifest>) -> Result<Whole> {
        let pages = self.snapshot_pages(&root)?;
        let snapshots = self.all(&root, &pages)?;
        Ok(Whole { root, snapshots })
    }

    /// All snapshots of a manifest with these pages.
    fn all(&self, m: &Manifest, pages: &[Arc<SnapshotPage>]) -> Result<Vec<SnapshotEntry>> {
        let mut all = Vec::with_capacity(m.snapshot_count());
        let mut changes = Changes::of(m);
        for entry in pages.iter().flat_map(|p| &p.entries) {
            all.extend(changes.now(entry).cloned());
        }
        changes.end(self)?;
        all.extend_from_slice(&m.recent);
        Ok(all)
    }

    /// The newest snapshot that users see. No page is read where it is a recent one.
    pub fn newest(&self, m: &Manifest) -> Result<Option<SnapshotEntry>> {
        match m.recent.iter().rfind(|s| is_live(s)) {
            None if !m.older.is_empty() => Ok(self.whole(Arc::new(m.clone()))?.newest().cloned()),
            recent => Ok(recent.cloned()),
        }
    }

    /// The manifest as it is now with all snapshots, and the commit records before it; an error where these, or what later
    /// sessions have put, prove that it was rolled back.
    pub fn load_checked_closely(&self) -> Result<(Whole, Evidence)> {
        self.again_if_replaced(|| {
            let (m, evidence) = load_checked_closely(self)?;
            Ok((self.whole(Arc::new(m))?, evidence))
        })
    }

    /// The snapshot that `spec` names now.
    pub fn find_now(&self, disk: &str, spec: &str) -> Result<SnapshotEntry> {
        self.again_if_replaced(|| self.find(self.load_root()?, disk, spec))
    }

    /// The same, where the manifest was not rolled back.
    pub fn find_checked(&self, disk: &str, spec: &str) -> Result<(SnapshotEntry, Evidence)> {
        self.again_if_replaced(|| {
            let (m, evidence) = load_checked(self)?;
            Ok((self.find(m, disk, spec)?, evidence))
        })
    }

    /// The snapshot that `spec` names. No page is read where it is surely a recent one.
    fn find(&self, m: Manifest, disk: &str, spec: &str) -> Result<SnapshotEntry> {
        let older = m.older.iter().map(|at| at.latest).max();
        if let Some(recent) = find_recent(&m.recent, older, spec) {
            return Ok(recent.clone());
        }
        find_snapshot(&self.whole(Arc::new(m))?.snapshots, disk, spec).cloned()
    }

    /// Snapshots of which one is that of `id`, and all newer ones. No page is read where it is a recent one.
    pub fn with_newer<'a>(&self, m: &'a Manifest, id: SnapId) -> Result<Cow<'a, [SnapshotEntry]>> {
        if m.older.is_empty() || m.recent.iter().any(|s| s.id == id) {
            return Ok(Cow::Borrowed(&m.recent));
        }
        Ok(Cow::Owned(self.whole(Arc::new(m.clone()))?.snapshots))
    }

    /// [`Folder::update`] with all snapshots, any of which may be changed.
    pub fn update_whole<T>(
        &self,
        mut change: impl FnMut(&mut Manifest, &mut Vec<SnapshotEntry>) -> Result<T>,
    ) -> Result<(Manifest, T)> {
        self.again_if_replaced(|| self.update(|m| self.change_snapshots(m, &mut change)))
    }

    /// Changes the snapshots of a manifest.
    pub fn change_snapshots<T>(
        &self,
        m: &mut Manifest,
        change: impl FnOnce(&mut Manifest, &mut Vec<SnapshotEntry>) -> Result<T>,
    ) -> Result<T> {
        let pages = self.snapshot_pages(m)?;
        let mut all = self.all(m, &pages)?;
        let value = change(m, &mut all)?;
        self.store_list(m, &pages, all);
        Ok(value)
    }

    /// Makes `all` the snapshots of a manifest that has these pages. Pages of which nothing stays are released.
    fn store_list(&self, m: &mut Manifest, pages: &[Arc<SnapshotPage>], all: Vec<SnapshotEntry>) {
        m.changed.clear();
        m.gone.clear();
        let mut place = 0;
        let older = std::mem::take(&mut m.older);
        for (at, page) in older.into_iter().zip(pages) {
            let (first, first_gone) = (place, m.gone.len());
            for entry in &page.entries {
                // The last one is always a recent one.
                match all.get(place).filter(|s| s.id == entry.id && place + 1 < all.len()) {
                    Some(now) => {
                        m.changed.extend((now != entry).then(|| now.clone()));
                        place += 1;
                    }
                    None => m.gone.push(entry.id),
                }
            }
            if place > first {
                m.older.push(at);
            } else {
                m.gone.truncate(first_gone);
                names_of(self, &at).into_iter().for_each(|object| release_object(m, object));
            }
        }
        m.recent = all;
        m.recent.drain(..place);
    }
}

/// What a manifest says of snapshots in its pages, taken in their order.
pub(super) struct Changes<'a> {
    changed: &'a [SnapshotEntry],
    gone: &'a [SnapId],
}

impl<'a> Changes<'a> {
    pub fn of(m: &'a Manifest) -> Changes<'a> {
        Changes { changed: &m.changed, gone: &m.gone }
    }

    /// What the next snapshot of the pages is now; `None` if it is gone.
    pub fn now(&mut self, entry: &'a SnapshotEntry) -> Option<&'a SnapshotEntry> {
        if let Some((_, rest)) = self.gone.split_first().filter(|(id, _)| **id == entry.id) {
            self.gone = rest;
            return None;
        }
        match self.changed.split_first().filter(|(s, _)| s.id == entry.id) {
            Some((now, rest)) => {
                self.changed = rest;
                Some(now)
            }
            None => Some(entry),
        }
    }

    /// How many changes are left.
    pub fn left(&self) -> usize {
        self.changed.len() + self.gone.len()
    }

    /// An error of the manifest, if it changes what its pages do not have.
    pub fn end(self, folder: &Folder) -> Result<()> {
        let Some(id) = self.gone.first().or(self.changed.first().map(|s| &s.id)) else { return Ok(()) };
        let why = format!("changes snapshot {id}, which its pages do not have at this place");
        Err(VaultError::corrupt(&folder.manifest_name(), why))
    }
}
