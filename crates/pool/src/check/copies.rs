//! The two copies of the catalog.

use format::pool::{PageKind, PoolBlock};

use super::{CheckReport, Finding};
use crate::error::Result;
use crate::pool::Pool;

impl Pool {
    /// Reads both copies of each page of the catalog from the device. One of them is enough for the pool; with `mends` both are
    /// written anew where one is damaged.
    pub(super) fn compare_copies(&self, mends: bool, report: &mut CheckReport) -> Result<()> {
        let engine = self.engine();
        let start = engine.geometry.catalog_start().0;
        // What is only in memory is written first.
        engine.checkpoint()?;
        for page in (start..start + u64::from(engine.geometry.catalog_blocks)).map(PoolBlock) {
            let copies = [Some(page), engine.geometry.catalog_twin(page)];
            let damage: Vec<_> = copies
                .into_iter()
                .flatten()
                .filter_map(|copy| engine.read_copy(copy, PageKind::Catalog).err())
                .collect();
            if mends && !damage.is_empty() {
                engine.renew_copies(page)?;
            }
            let found = damage.into_iter().map(|error| Finding { what: error.to_string(), is_mended: mends });
            report.findings.extend(found);
        }
        if mends {
            self.flush()?;
            engine.checkpoint()?;
        }
        Ok(())
    }
}
