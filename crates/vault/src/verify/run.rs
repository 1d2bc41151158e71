//! One run of a verification: what it knows so far, and how that is kept.

use super::findings::containers::ContainerFindings;
use super::findings::damage::{Damage, More};
use super::owner::Reads;
use super::remember::{self, CheckedDisk};
use super::report::VerifyReport;
use super::settle::Known;
use crate::base::error::{fault, Result, VaultError};
use crate::base::progress::Progress;
use crate::lookup::referrers;
use crate::manifest::disks::{self, DiskAt};
use crate::manifest::folder::Folder;
use crate::manifest::vault::{now, Vault};
use crate::report::verifications::LastVerifications;

/// What it is run for: this decides how what was found is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Verify,
    Repair,
}

/// One run of a verification.
pub(super) struct Verification<'a> {
    pub(super) vault: &'a Vault,
    pub(super) reads: &'a Reads,
    pub(super) purpose: Purpose,
    pub(super) progress: &'a Progress,
    pub(super) report: VerifyReport,
    /// When it began, in seconds since 1970.
    pub(super) began: i64,
    /// What was kept of others then.
    pub(super) before: LastVerifications,
    /// The disks that were looked at as a whole.
    pub(super) looked: Vec<CheckedDisk>,
    /// What is known of containers.
    pub(super) known: Known<'a>,
    /// What the report has no room for.
    pub(super) more: More,
    /// Whether there are disks of which so little can be read that others which need their containers were not compared with them.
    pub(super) lacks_disks: bool,
}

impl<'a> Verification<'a> {
    /// One that begins now.
    pub(super) fn new(vault: &'a Vault, reads: &'a Reads, purpose: Purpose, progress: &'a Progress) -> Self {
        Verification {
            vault,
            reads,
            purpose,
            progress,
            report: VerifyReport::default(),
            began: now(),
            before: LastVerifications::default(),
            looked: Vec::new(),
            known: Known::new(vault, progress),
            more: More::default(),
            lacks_disks: false,
        }
    }

    /// Takes over what was found in a disk, unless the disk was deleted meanwhile.
    pub(super) fn conclude(&mut self, at: &DiskAt, own: ContainerFindings, is_readable: bool) -> Result<()> {
        if !own.found.is_empty() && disks::is_gone(self.vault, at)? {
            return Ok(());
        }
        // Its referrers look at its containers, too: each is looked at once.
        if !referrers::referred(&at.folder)?.is_empty() {
            self.known.others.owners.insert(at.folder.disk, own);
            return Ok(());
        }
        self.add(&at.folder, own, is_readable);
        Ok(())
    }

    /// Takes over what was found in an owner's folder, and records it there.
    pub(super) fn add(&mut self, folder: &Folder, mut found: ContainerFindings, record: bool) {
        if record {
            self.known.record(folder, &found);
        }
        self.known.keep_for_repair(folder.disk, &found);
        self.known.keep_bad_chunks(folder.disk, std::mem::take(&mut found.bad));
        found.forget();
        found.forget_seen();
        found.found.report(&mut self.report.damaged, &mut self.more);
    }

    /// Puts damage into the report that kept it from looking at a disk.
    pub(super) fn tell(&mut self, e: VaultError) -> Result<()> {
        let (object, why) = fault(e)?;
        self.report.damaged.push(Damage { object, why, snapshots: Vec::new() });
        self.lacks_disks = true;
        Ok(())
    }

    /// Keeps what was found of each disk.
    pub(super) fn keep(&mut self, everything: bool) {
        let (vault, looked, damaged) = (self.vault, &self.looked, &self.report.damaged);
        let read_chunks = matches!(self.reads, Reads::All);
        let (before, is_unlisted) = (std::mem::take(&mut self.before), self.known.is_unlisted);
        let run = remember::Run { began: self.began, read_chunks, is_unlisted, before };
        let kept = match self.purpose {
            Purpose::Repair => remember::keep_repaired(vault, looked, damaged, &run),
            Purpose::Verify => remember::keep(vault, looked, damaged, &run, everything),
        };
        self.report.not_kept = kept.err().map(|e| e.to_string());
    }

    /// Keeps what is known of the disks that were looked at before an error, or a signal, ended it: if nothing at all was found
    /// to be damaged, in the disk that was looked at last neither.
    pub(super) fn keep_sound(&mut self) {
        let others = &self.known.others;
        let is_sound = others.room.is_untouched() && others.gone.is_empty() && self.report.damaged.is_empty();
        if is_sound && !self.looked.is_empty() && self.purpose == Purpose::Verify {
            self.keep(false);
        }
    }
}
