//! A vault for commands that only read it.

use crate::terminal::streams::errln;
use std::ops::Deref;
use vault::Vault;

/// A vault that is only read. Dropped, it is told of the damage that was met: later backups store anew what they need of it.
pub struct ReadVault(Vault);

impl ReadVault {
    pub fn new(vault: Vault) -> ReadVault {
        ReadVault(vault)
    }
}

impl Deref for ReadVault {
    type Target = Vault;

    fn deref(&self) -> &Vault {
        &self.0
    }
}

impl Drop for ReadVault {
    fn drop(&mut self) {
        if let Err(e) = self.0.record_damage_met() {
            errln!("sapwood: the damage could not be recorded, backups may refer to it again: {e}");
        }
    }
}
