//! Gives a disk another name.
//!
//! 1. A session registers as a backup does: no backup, no removal and no other renaming of the disk runs meanwhile.
//! 2. The manifest lists the new name among its other names; then the object of the new name is put. It is a refusal if
//!    there is one.
//! 3. One swap: the disk has the new name, and the old one is among the others.
//! 4. The object of the old name is deleted, and the manifest forgets that name.
//!
//! An object that leads to a disk under one of its other names means nothing: what a crash leaves is removed by `gc`, or by
//! the first backup of a disk of that name.

use crate::base::disk_name::check_disk_name;
use crate::base::error::{Result, VaultError};
use crate::manifest::disks;
use crate::manifest::folder::Folder;
use crate::manifest::names::delete_names;
use crate::manifest::rollback::load_checked_closely;
use crate::manifest::session::Session;
use crate::manifest::vault::Vault;
use format::{names, Manifest};

impl Vault {
    /// Gives a disk another name.
    ///
    /// # Errors
    /// `Refused` where there is a disk of the new name; `Busy` while a backup of the disk runs.
    pub fn rename(&self, old: &str, new: &str) -> Result<()> {
        check_disk_name(new)?;
        let folder = disks::one(self, old)?.folder;
        // It may have been named by its folder.
        let called = folder.load_root()?.name;
        let taken =
            || VaultError::Refused(format!("{new}: there is a disk of this name; nothing was renamed"));
        if old == new || disks::find(self, new)?.is_some() {
            return Err(taken());
        }
        load_checked_closely(&folder)?;
        let session = Session::begin_renaming(&folder)?;
        // What an earlier one has left; its names may be those that are wanted now.
        forget_other_names(&session)?;
        session.swap(|m| {
            if m.name != called {
                let what = format!("{old}: has just been given another name, {}", m.name);
                return Err(VaultError::NotFound { what });
            }
            m.other_names.push(new.to_owned());
            Ok(())
        })?;
        let is_put = self.put_name(new, &folder)? || (self.free_name(new)? && self.put_name(new, &folder)?);
        if !is_put {
            forget_other_names(&session)?;
            return Err(taken());
        }
        session.swap(|m| {
            m.name = new.to_owned();
            m.other_names = vec![called.clone()];
            Ok(())
        })?;
        delete_names(&folder, std::slice::from_ref(&called))?;
        session.commit(|m| {
            m.other_names.clear();
            Ok(())
        })?;
        Ok(())
    }
}

impl Vault {
    /// Removes the object of a name if it is one that a stopped renaming has left. Returns whether it was.
    ///
    /// # Errors
    /// `Busy` while the renaming is at work.
    pub(crate) fn free_name(&self, name: &str) -> Result<bool> {
        let Ok(Some((n, id))) = self.read_name(&names::name(name)) else { return Ok(false) };
        let folder = self.folder(id);
        let Some((m, _)) = folder.load_tagged()? else { return Ok(false) };
        if n != name || m.name == name || !m.other_names.iter().any(|other| other == name) {
            return Ok(false);
        }
        let session = Session::begin_renaming(&folder)?;
        forget_other_names(&session)?;
        session.end()?;
        Ok(true)
    }
}

/// Removes the objects of a disk's other names, which a stopped renaming has left. The session has registered as a backup.
pub(crate) fn forget_other_names(session: &Session) -> Result<()> {
    let other_names = session.folder.load_root()?.other_names;
    if other_names.is_empty() {
        return Ok(());
    }
    delete_names(&session.folder, &other_names)?;
    session.swap(|m| {
        m.other_names.clear();
        Ok(())
    })?;
    Ok(())
}

/// The same in a session of its own, unless one that may be at it is at work.
pub(crate) fn tidy_names(folder: &Folder, m: &Manifest) -> Result<()> {
    if m.other_names.is_empty() {
        return Ok(());
    }
    match Session::begin_renaming(folder) {
        Err(VaultError::Busy { .. } | VaultError::Missing { .. }) => Ok(()),
        session => {
            let session = session?;
            forget_other_names(&session)?;
            session.end()
        }
    }
}
