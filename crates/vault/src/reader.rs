//! Readers: an object held while a disk's objects are read, so that nothing it may need is taken away.

use crate::error::{Named, Result, VaultError};
use crate::folder::Folder;
use crate::vault::random_token;
use format::{decode_frame, encode_frame, names, Kind, Manifest, WriterNo};
use std::collections::BTreeSet;
use store::{Hold, StoreError};

/// Keeps what the manifest names readable until it is dropped.
pub(crate) struct Reader {
    hold: Box<dyn Hold>,
    pub manifest: Manifest,
}

impl Reader {
    /// Holds a reader object, then reads the manifest.
    pub fn open(folder: &Folder) -> Result<Reader> {
        let since = folder.load()?.sequence;
        let name = names::reader(folder.disk, random_token()?);
        let frame = encode_frame(Kind::Reader, folder.context(&name), &since.to_le_bytes());
        let hold = folder.store.hold(&name, &frame)?;
        Ok(Reader { hold, manifest: folder.load()? })
    }

    /// Stops a reader whose lease has lapsed: what it reads may be gone.
    pub fn check(&self) -> Result<()> {
        if self.hold.is_valid() {
            return Ok(());
        }
        Err(VaultError::Refused(format!(
            "{}: this reader's lease has lapsed; run it again",
            self.hold.name()
        )))
    }
}

/// The oldest sequence that a living reader or writer (but for `own`) may still read.
fn oldest_in_use(folder: &Folder, m: &Manifest, own: Option<WriterNo>) -> Result<u64> {
    let mut oldest = u64::MAX;
    let mut dead = Vec::new();
    folder.store.list(&format!("{}{}/", names::READERS, folder.disk), &mut |e| {
        if !folder.store.is_held(&e.name)? {
            dead.push(e.name);
            return Ok(());
        }
        let bytes = match folder.store.read(&e.name, 4096) {
            Err(StoreError::NotFound { .. }) => return Ok(()),
            other => other?,
        };
        let since = decode_frame(Kind::Reader, folder.context(&e.name), &bytes).ok();
        // One that cannot be understood may read anything.
        let since = since.and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        oldest = oldest.min(since);
        Ok(())
    })?;
    for name in dead {
        folder.store.delete(&name)?;
    }
    for w in m.writers.iter().filter(|w| Some(w.no) != own) {
        if folder.store.is_held(&names::session(w.token))? {
            oldest = oldest.min(w.since);
        }
    }
    Ok(oldest)
}

/// Deletes what the manifest has released and nobody can still be reading. Returns the bytes freed.
pub(crate) fn delete_released(folder: &Folder, own: Option<WriterNo>) -> Result<u64> {
    let m = folder.load()?;
    if m.released.is_empty() {
        return Ok(0);
    }
    let oldest = oldest_in_use(folder, &m, own)?;
    let mut freed = 0;
    let mut gone = BTreeSet::new();
    for r in m.released.iter().filter(|r| r.sequence <= oldest) {
        match folder.store.allocated(&r.object) {
            Ok(n) => freed += n,
            Err(StoreError::NotFound { .. }) => {}
            other => {
                other.named()?;
            }
        }
        folder.store.delete(&r.object)?;
        gone.insert(r.object.clone());
    }
    if !gone.is_empty() {
        folder.update(|m, _| {
            m.released.retain(|r| !gone.contains(&r.object));
            Ok(())
        })?;
    }
    Ok(freed)
}
