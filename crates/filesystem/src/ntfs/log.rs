//! The journal (`$LogFile`), as far as it says whether the volume was in use.

use super::mft::{File, Mft};
use super::record::{fix_up, kind};
use crate::bytes::{le16, le32, le64};
use crate::error::Result;

const PAGE_BYTES: u64 = 4096;
const NO_CLIENT: u16 = 0xffff;
const IS_CLEAN: u16 = 2;

/// Whether the journal holds what was not yet written to its place. One that cannot be understood says no.
pub(super) fn is_pending(mft: &Mft, file: &File) -> Result<bool> {
    let Some(log) = file.stream(&mft.volume, kind::DATA, &[])? else { return Ok(false) };
    let mut newest: Option<(u64, bool)> = None;
    for at in [0, PAGE_BYTES] {
        let mut page = vec![0; PAGE_BYTES as usize];
        log.read_at(&mft.volume, at, &mut page)?;
        if let Some(found) = restart_page(page) {
            newest = newest.max(Some(found));
        }
    }
    Ok(newest.is_some_and(|(_, pending)| pending))
}

/// The page's age, and whether somebody uses the journal; `None` if it is none.
fn restart_page(mut page: Vec<u8>) -> Option<(u64, bool)> {
    le32(&page, 0x10).filter(|bytes| u64::from(*bytes) == PAGE_BYTES)?;
    fix_up(&mut page, b"RSTR").ok()?;
    let area = page.get(usize::from(le16(&page, 0x18)?)..)?;
    let is_clean = le16(area, 0x0c)? == NO_CLIENT || le16(area, 0x0e)? & IS_CLEAN != 0;
    Some((le64(area, 0)?, !is_clean))
}
