//! The verification of a job: all its disks together, or the whole vault.

use super::job::JobRun;
use super::report::outcome_of;
use crate::commands::names::split;
use crate::jobs::state::Outcome;
use crate::jobs::values::Verify;
use crate::progress::watch;
use crate::terminal::output::counted;
use crate::terminal::streams::errln;
use anyhow::Result;
use std::collections::BTreeSet;
use vault::Vault;

/// Disks with damaged snapshots that a message names; more are counted.
const DISKS_NAMED_MAX: usize = 4;

impl JobRun<'_> {
    /// Verifies the disks, or everything where the job looks after all.
    pub(super) fn verify(&mut self, vault: &Vault, disks: &[String]) {
        let data = match self.job.verify {
            Verify::No => return,
            Verify::Metadata => false,
            Verify::Data => true,
        };
        let found = |why: Option<String>| why.map_or(Ok(()), |why| Err(anyhow::Error::msg(why)));
        if self.job.is_upkeep() {
            self.step("verification", |run| found(run.verify_together(vault, None, data)?));
            return;
        }
        let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
        if disks.is_empty() || self.is_stopped() {
            return;
        }
        let verified = self.verify_together(vault, Some(&disks), data);
        let is_cut = verified.as_ref().is_err_and(|e| outcome_of(e) == Outcome::Interrupted);
        if verified.is_ok() || is_cut || disks.len() == 1 {
            self.step("verification", |_| found(verified?));
            return;
        }
        // One that cannot be verified keeps no other from it.
        for disk in disks {
            self.step(disk, |run| found(run.verify_together(vault, Some(&[disk]), data)?));
        }
    }

    /// Verifies disks, or everything: what they share is read once. Returns what is to be said of damage.
    fn verify_together(
        &mut self,
        vault: &Vault,
        disks: Option<&[&str]>,
        data: bool,
    ) -> Result<Option<String>> {
        let what = format!("job {}: verify", self.job.name);
        let report = watch(self.is_quiet(), &what, |p| match disks {
            Some(disks) => vault.verify_disks(disks, data, p),
            None => vault.verify(None, data, p),
        })?;
        self.report.verified_disks += report.disks;
        if let Some(why) = &report.not_kept {
            errln!(
                "sapwood: job {}: `status` and `snapshots` will not know of its verification: {why}",
                self.job.name
            );
        }
        if let Some(why) = &report.unrecorded {
            errln!(
                "sapwood: job {}: damaged containers could not be recorded, backups may still match them: {why}",
                self.job.name
            );
        }
        if report.damaged.is_empty() {
            return Ok(None);
        }
        let snapshots = report.damaged.iter().flat_map(|d| &d.snapshots);
        let hit: BTreeSet<&str> = snapshots.map(|name| split(name).0).collect();
        let (mut affected, mut these) = (String::new(), String::new());
        if hit.len() > DISKS_NAMED_MAX {
            affected = format!(", in snapshots of {}", counted(hit.len(), "disk"));
        } else if !hit.is_empty() {
            these = hit.into_iter().fold(these, |all, disk| format!("{all} {disk}"));
            affected = format!(", in snapshots of{these}");
        }
        let found = counted(report.damaged.len(), "damaged object");
        let (sapwood, how) = (self.sapwood(), if data { " --data" } else { "" });
        Ok(Some(format!("verification found {found}{affected}; `{sapwood} verify{these}{how}` tells more")))
    }
}
