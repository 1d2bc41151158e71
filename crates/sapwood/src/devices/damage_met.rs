//! The damage that a command has met: it is recorded, so that later backups store anew what they need of it.

use crate::terminal::output::counted;
use std::os::unix::fs::MetadataExt;
use vault::{Progress, RecordedDamage, Vault, VaultError};

/// What is shown while it is looked at.
pub(super) const LOOKING: &str = "looking at what is damaged";

/// Records what was met, if anything was, and if the vault is this user's: what root wrote there would be root's.
pub(super) fn record(vault: &Vault, is_last: bool, progress: &Progress) -> RecordedDamage {
    if !vault.has_met_damage() {
        return RecordedDamage::default();
    }
    if !is_own(&vault.location()) {
        let why = format!("{}: the vault is another user's", vault.location());
        return RecordedDamage { left: Some(VaultError::Refused(why)), ..RecordedDamage::default() };
    }
    vault.record_damage_met(is_last, progress)
}

/// What is said of damage: the first object, and how many there are.
pub(super) fn told(recorded: &RecordedDamage) -> Option<String> {
    let (first, more) = recorded.damaged.split_first()?;
    let more = match more.len() {
        0 => String::new(),
        n => format!("; and {}", counted(n, "more damaged object")),
    };
    Some(format!(
        "the vault is damaged: {}: {}{more}; `sapwood verify --data` names the snapshots that are affected, `sapwood repair` heals \
         what can be healed",
        first.object, first.why
    ))
}

/// What is said where something was not recorded.
pub(super) fn unrecorded(recorded: &RecordedDamage) -> Option<String> {
    recorded.left.as_ref().map(|why| match why {
        VaultError::Cancelled => {
            "the damage could not be recorded, backups may refer to it again, until `sapwood verify --data` has looked at it".into()
        }
        why => format!("the damage could not be recorded, backups may refer to it again: {why}"),
    })
}

/// Whether a directory belongs to the user that this process acts as.
fn is_own(directory: &str) -> bool {
    std::fs::metadata(directory).is_ok_and(|m| m.uid() == rustix::process::geteuid().as_raw())
}
