//! A vault for commands that only read it.

use crate::terminal::streams::errln;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use vault::Vault;

/// A vault that is only read. Dropped, it is told of the damage that was met: later backups store anew what they need of it.
pub struct ReadVault(Vault);

impl ReadVault {
    pub fn new(vault: Vault) -> ReadVault {
        ReadVault(vault)
    }

    /// Records the damage that was met so far, where the vault is this user's: what root wrote there would be root's.
    pub fn record_damage(&self) {
        let vault = &self.0;
        if !vault.has_met_damage() || !is_own(&vault.location()) {
            return;
        }
        if let Err(e) = vault.record_damage_met() {
            errln!("sapwood: the damage could not be recorded, backups may refer to it again: {e}");
        }
    }
}

/// Whether a directory belongs to the user that this process acts as.
fn is_own(directory: &str) -> bool {
    std::fs::metadata(directory).is_ok_and(|m| m.uid() == rustix::process::geteuid().as_raw())
}

impl Deref for ReadVault {
    type Target = Vault;

    fn deref(&self) -> &Vault {
        &self.0
    }
}

impl Drop for ReadVault {
    fn drop(&mut self) {
        self.record_damage();
    }
}
