//! A vault with disks that hooks may lead to, and the runs of a large vault's levels.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use format::{names, ContainerId, DiskId, Hook, HooksFooter, HOOK_BYTES};
use store::ObjectStore;
use vault::{BackupOptions, Progress, Vault, VaultId, BALANCED};

use crate::files::BLOCK_BYTES;
use crate::images::generate::{Content, Random};
use crate::workload::hook_runs::{HookRun, Places};
use crate::workload::MemoryDisk;

/// Disks whose containers hooks lead to.
const REAL_OWNERS: u64 = 16;
const OWNER_BYTES: usize = 4 << 20;
/// Shortest run of hooks: shorter ones would be of its size for those that join them.
const RUN_HOOKS_MIN: u64 = 512;
/// How much longer the runs of the next level are.
const FAN: u64 = 8;
/// Longest object of hooks that is read here.
const READ_MAX: u64 = 64 << 20;

/// What the runs of a vault need.
pub struct Ground {
    vault: VaultId,
    places: Places,
    /// The hooks of the disk that was stored last, with owners by their numbers.
    planted: Vec<Hook>,
}

/// A disk of `bytes` random bytes: no two blocks of all disks are equal.
pub fn disk(content: &Content, name: u64, bytes: usize) -> MemoryDisk {
    let mut data = vec![0; bytes];
    for (n, block) in data.chunks_mut(BLOCK_BYTES).enumerate() {
        content.fill((name << 32) + n as u64, block);
    }
    MemoryDisk(Arc::new(data))
}

/// Stores a disk; returns the bytes that were not known.
pub fn back_up(vault: &Vault, name: &str, disk: &MemoryDisk) -> Result<u64> {
    let source = Box::new(MemoryDisk(Arc::clone(&disk.0)));
    let report = vault.backup(name, source, &BackupOptions::default(), &Progress::default())?;
    Ok(report.snapshot.new_bytes)
}

impl Ground {
    /// Makes a vault in a store, with disks that hooks lead to, and the disk `template`. Their own hooks are taken out.
    pub fn lay(
        store: &Arc<dyn ObjectStore>,
        content: &Content,
        owners: usize,
        template: &MemoryDisk,
    ) -> Result<Self> {
        let vault = Vault::init(Arc::clone(store), &BALANCED)?;
        for n in 0..REAL_OWNERS {
            back_up(&vault, &format!("owner-{n}/vda"), &disk(content, 100 + n, OWNER_BYTES))?;
        }
        let others = take_hooks(&**store, vault.id())?;
        back_up(&vault, "template/vda", template)?;
        let of_template = take_hooks(&**store, vault.id())?;
        let real: BTreeSet<DiskId> = others.iter().chain(&of_template).map(|(owner, _)| *owner).collect();
        let mut all: Vec<DiskId> = real.into_iter().collect();
        let number = |owner: &DiskId| all.iter().position(|d| d == owner).map_or(0, |n| n as u32);
        let hook = |(owner, hook): &(DiskId, Hook)| Hook { owner: number(owner), ..*hook };
        let planted = of_template.iter().map(hook).collect();
        let containers: BTreeSet<(u32, ContainerId)> =
            others.iter().map(|(owner, hook)| (number(owner), hook.container)).collect();
        let containers = containers.into_iter().collect();
        let mut random = Random::new(1);
        while all.len() < owners {
            let (a, b) = (random.bits(), random.bits());
            all.push(DiskId((u128::from(a) << 64 | u128::from(b)).to_be_bytes()));
        }
        Ok(Ground { vault: vault.id(), places: Places { owners: all, containers }, planted })
    }

    /// The runs of `hooks` hooks: `of_a_size` of each size. Those of the template are in the first, which is one of the
    /// longest.
    pub fn runs(&self, hooks: u64, of_a_size: u64) -> Vec<Arc<HookRun>> {
        let mut runs = Vec::new();
        // All levels together are 8 / 7 of the last one.
        let mut length = hooks * (FAN - 1) / FAN / of_a_size;
        while length >= RUN_HOOKS_MIN {
            for _ in 0..of_a_size {
                runs.push(Arc::new(self.run(runs.len() as u64, length)));
            }
            length /= FAN;
        }
        runs
    }

    /// How many hooks of disks that no run names are in a store.
    pub fn count_others(&self, store: &dyn ObjectStore) -> Result<u64> {
        let hooks = take_hooks(store, self.vault)?;
        Ok(hooks.iter().filter(|(owner, _)| !self.places.owners.contains(owner)).count() as u64)
    }

    /// The run with this number.
    pub fn run(&self, number: u64, hooks: u64) -> HookRun {
        let planted = if number == 0 { &self.planted[..] } else { &[] };
        HookRun::new(self.vault, 1000 + number, hooks, &self.places, planted)
    }
}

/// Removes the hooks of a vault, and returns them with their owners.
fn take_hooks(store: &dyn ObjectStore, vault: VaultId) -> Result<Vec<(DiskId, Hook)>> {
    let mut objects = Vec::new();
    store.list(names::HOOKS, &mut |entry| {
        objects.push(entry.name);
        Ok(())
    })?;
    let mut taken = Vec::new();
    for name in objects {
        let bytes = store.read(&name, READ_MAX)?;
        let tail = bytes.last_chunk::<8>().context("hooks without a footer")?;
        let begins = HooksFooter::begins_at(bytes.len() as u64, tail).map_err(anyhow::Error::msg)? as usize;
        let context = format::Context { vault, place: &name };
        let frame = &bytes[begins..bytes.len() - tail.len()];
        let footer =
            HooksFooter::decode(context, frame, (begins / HOOK_BYTES) as u64).map_err(anyhow::Error::msg)?;
        for bytes in bytes[..begins].chunks_exact(HOOK_BYTES) {
            let hook = Hook::decode(bytes.try_into()?).context("no hook")?;
            taken.push((*footer.owners.get(hook.owner as usize).context("no owner")?, hook));
        }
        store.delete(&name)?;
    }
    Ok(taken)
}
