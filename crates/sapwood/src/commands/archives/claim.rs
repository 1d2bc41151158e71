//! Keeping others off the input of a command.

use anyhow::{Context as _, Result};
use locks::{ClaimError, Purpose};
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use vault::VaultError;

/// Claims a file or a device until it is closed. Standard input (`-`) is asked only: a claim of what another program opened
/// would outlive this process.
///
/// # Errors
/// Refused where another process writes it; where it is going to be removed, also where one only has it open.
pub fn claim_input(file: &File, path: &Path, is_removed: bool) -> Result<()> {
    let kind = file.metadata().with_context(|| path.display().to_string())?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(());
    }
    let purpose = if is_removed { Purpose::Replace } else { Purpose::Read };
    let asked =
        if path.as_os_str() == "-" { locks::check(file, purpose) } else { locks::claim(file, purpose) };
    asked.map_err(|e| match e {
        ClaimError::InUse(by) => VaultError::Refused(format!(
            "{}: is in use by {by}; end that first, or back up the running machine (backup VM/DISK qmp:SOCKET#NODE or \
             libvirt:DOMAIN) and compress the disk that is restored",
            path.display()
        ))
        .into(),
        ClaimError::Io(e) => anyhow::Error::new(e).context(format!("{}: cannot lock", path.display())),
    })
}
