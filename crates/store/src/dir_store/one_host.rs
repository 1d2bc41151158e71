//! Which host may write to a store.
//!
//! Processes tell by locks which of them are at work. Where other hosts may see the file system their locks may not be seen
//! here, so nobody may write, unless the user has said that one host alone does: then that host is recorded in the store,
//! and every other one is refused.

use super::refusal::{io_error, unsuitable};
use super::text_file::{read_text, write_text};
use crate::file_system::FileSystem;
use crate::{Result, StoreError};

/// The record of the one host that writes, beside the marker.
pub(super) const ONE_HOST: &str = "one-host";
/// Its name while it is written.
pub(super) const ONE_HOST_ASIDE: &str = "one-host.new";

const FIRST_LINE: &str = "sapwood one host 1";

/// Accepts a host that may write, and otherwise says what to do.
pub(super) fn check<F: FileSystem>(fs: &F) -> Result<()> {
    match read_text(fs, ONE_HOST)
        .map_err(|e| io_error(fs, "read the record of the host that writes to", e))?
    {
        Some(record) => check_host(fs, &record),
        None => check_type(fs),
    }
}

/// Refuses a file system that other hosts may see.
pub(super) fn check_type<F: FileSystem>(fs: &F) -> Result<()> {
    let found = fs.fs_type().map_err(|e| io_error(fs, "ask for the type of", e))?;
    if found.is_local {
        return Ok(());
    }
    let why = format!(
        "other hosts may see its file system ({}), and their locks may be unknown here, so it is only read. Keep the vault \
         on a disk of this host; or, if this host alone will ever write there, say so with `sapwood init --one-host`",
        found.name
    );
    Err(unwritable(fs, why))
}

fn check_host<F: FileSystem>(fs: &F, record: &str) -> Result<()> {
    let mut lines = record.lines();
    let mut field = |name: &str| lines.next().and_then(|line| line.strip_prefix(name)).map(str::to_owned);
    let (first, machine, host) = (field(""), field("machine "), field("host "));
    let (Some(FIRST_LINE), Some(machine), Some(host)) = (first.as_deref(), machine, host) else {
        let why = format!(
            "its file {ONE_HOST:?} cannot be understood; on the host that writes there, run `sapwood init --one-host`"
        );
        return Err(unwritable(fs, why));
    };
    let here = fs.machine().map_err(|e| io_error(fs, "compare this host with the one that writes to", e))?;
    if here.is_some_and(|id| hex(&id) == machine) {
        return Ok(());
    }
    let why = format!(
        "only host {host} writes there, this one only reads. To move that right here, end everything that uses it there, \
         then run `sapwood init --one-host` here"
    );
    Err(unwritable(fs, why))
}

fn unwritable<F: FileSystem>(fs: &F, why: String) -> StoreError {
    StoreError::Unwritable { location: fs.location(), why }
}

/// Records this host as the only one that writes, durably.
pub(super) fn record<F: FileSystem>(fs: &F) -> Result<()> {
    let failed = |e| io_error(fs, "record this host in", e);
    let Some(machine) = fs.machine().map_err(failed)? else {
        let why = "this host has no machine id to be known by; make one with `systemd-machine-id-setup`";
        return Err(unsuitable(fs, why.to_owned()));
    };
    write_text(fs, ONE_HOST_ASIDE, ONE_HOST, &text(&machine, &locks::host_name())).map_err(failed)
}

fn text(machine: &[u8; 16], host: &str) -> String {
    format!("{FIRST_LINE}\nmachine {}\nhost {host}\n", hex(machine))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are promised in docs/format/store.md.
    #[test]
    fn golden() {
        let machine = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255];
        assert_eq!(
            text(&machine, "nas1"),
            "sapwood one host 1\nmachine 000102030405060708090a0b0c0d0eff\nhost nas1\n"
        );
    }
}
