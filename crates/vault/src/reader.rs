//! Readers: an object held while a disk's objects are read, so that nothing it may need is taken away.

use crate::error::{Result, VaultError};
use crate::folder::Folder;
use crate::vault::random_token;
use format::{encode_frame, names, Kind, Manifest};
use store::Hold;

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
