//! What belongs to no disk: `vault.json`, the popular set, the hooks.

use super::findings::containers::ContainerFindings;
use super::findings::damage::Damage;
use super::findings::objects::Findings;
use super::owner::{Owner, Reads};
use super::run::Verification;
use crate::base::error::{fault, Result};
use crate::container::tables::{Tables, TABLE_CACHE_BYTES};
use crate::lookup::hooks;
use crate::lookup::popular::newest_set;
use crate::manifest::folder::Folder;
use crate::manifest::reader::Reader;
use crate::manifest::rollback::Evidence;
use format::DiskId;

impl Verification<'_> {
    /// Damage in `vault.json` and its copy. One of them is enough.
    pub(super) fn vault_file(&mut self) -> Result<()> {
        self.report.objects_checked += 2;
        let faults = self.vault.file_faults()?;
        let both = faults.len() > 1;
        for (object, why) in faults {
            let mut found = Findings::within(&self.known.others.room);
            let at = found.add(&object, &why);
            let snapshots =
                if both { self.vault.snapshots(None).unwrap_or_default().snapshots } else { Vec::new() };
            for s in snapshots {
                found.affects(at, &format!("{}@{}", s.disk, s.entry.id));
            }
            found.report(&mut self.report.damaged, &mut self.more);
        }
        Ok(())
    }

    /// The popular set: later backups may match what no snapshot references.
    pub(super) fn popular_set(&mut self) -> Result<()> {
        let folder = self.vault.popular();
        let mut own = self.known.others.take(DiskId::POPULAR);
        self.known.others.gone.move_into(DiskId::POPULAR, &mut own.found);
        let looked = self.look_at_popular_set(&folder, &mut own);
        self.known.others.owners.insert(DiskId::POPULAR, own);
        looked
    }

    fn look_at_popular_set(&mut self, folder: &Folder, own: &mut ContainerFindings) -> Result<()> {
        let evidence = Evidence::of_folder(folder)?;
        let Some((m, _)) = own.found.tell(folder.load_tagged(), "")?.flatten() else { return Ok(()) };
        own.found.tell(evidence.check(folder, &m), "")?;
        self.commit_record(folder, m.sequence, &evidence, own)?;
        drop(m);
        let reader = Reader::open(folder)?;
        self.report.objects_checked += 1;
        let tables = Tables::new(folder, &reader.manifest, false, TABLE_CACHE_BYTES);
        own.found
            .tell(newest_set(folder), "; restores do not need it, `sapwood popular build` makes it anew")?;
        // Those seen before are passed over.
        let listed = reader.manifest.damaged.iter().copied().collect();
        let of = Owner { folder, tables: &tables, listed: &listed, disk: None };
        self.container_table(of, &reader.manifest, own)?;
        reader.check()
    }

    /// The hooks: hints only. What is wrong with one costs space, so only those who read everything look at them all.
    pub(super) fn hooks(&mut self) -> Result<()> {
        let data = matches!(self.reads, Reads::All);
        for (object, checked) in hooks::check(&self.vault.popular(), data, self.progress)? {
            self.report.objects_checked += 1;
            if let Err(e) = checked {
                let (_, why) = fault(e)?;
                let why = format!("{why}; restores do not need it, `sapwood reindex` makes it anew");
                self.report.damaged.push(Damage { object, why, snapshots: Vec::new() });
            }
        }
        Ok(())
    }
}
