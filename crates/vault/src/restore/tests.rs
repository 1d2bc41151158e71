#![allow(clippy::unwrap_used)]

use super::*;
use crate::container::tables::{Cache, TableName};
use crate::{BackupOptions, Global, Policy, BALANCED};
use image::Source;
use store::{SimFs, SimStore};

const POLICY: Policy = Policy {
    segment_bytes: 64 << 10,
    group_bytes: 16 << 10,
    container_bytes: 128 << 10,
    global: Global::Chunks { sampled: 0, champions: 4 },
    ..BALANCED
};
const BLOCK: usize = 4096;

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Source for Memory {
    fn format(&self) -> &'static str {
        "memory"
    }

    fn size(&self) -> Option<u64> {
        Some(self.0.lock().len() as u64)
    }

    fn next_data(&mut self, from: u64) -> image::Result<Option<Range<u64>>> {
        let len = self.0.lock().len() as u64;
        Ok((from < len).then_some(from..len))
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> image::Result<usize> {
        let bytes = self.0.lock();
        let rest = &bytes[(offset as usize).min(bytes.len())..];
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

impl Target for Memory {
    fn in_order(&self) -> bool {
        false
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> image::Result<()> {
        self.0.lock()[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn finish(self: Box<Self>) -> image::Result<()> {
        Ok(())
    }
}

/// Blocks that no other number gives.
fn blocks(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    numbers.flat_map(|n| chunk::Fingerprint::of(&n.to_le_bytes()).0.repeat(BLOCK / 32)).collect()
}

fn backup(vault: &Vault, disk: &str, bytes: &[u8]) -> u64 {
    let source = Memory(Arc::new(Mutex::new(bytes.to_vec())));
    let options = BackupOptions { policy: Some(POLICY), ..BackupOptions::default() };
    vault.backup(disk, Box::new(source), &options, &Progress::default()).unwrap().snapshot.new_bytes
}

/// Between plan and reads an owner writes its containers anew, and what it had listed goes out of memory: the places of the
/// plan are places in the tables as they were. They would be others in the new ones, with as valid chunks.
#[test]
fn an_owner_may_write_its_containers_anew_while_others_are_restored() {
    let fs = SimFs::new(1);
    let vault = Vault::init(Arc::new(SimStore::create_on(fs.clone()).unwrap()), &POLICY).unwrap();
    for owner in 0..2u64 {
        backup(&vault, &format!("owner-{owner}/x"), &blocks(owner * 1000..owner * 1000 + 128));
    }
    // The later part of each four blocks of both: their places change when the others go.
    let wanted = |n: &u64| n % 4 > 1;
    let bytes = blocks((0..128).chain(1000..1128).filter(wanted));
    assert_eq!(backup(&vault, "all/x", &bytes), 0);

    let folder = crate::manifest::disks::one(&vault, "all/x").unwrap().folder;
    // Room for one owner's lists, and for one table.
    let view = vault.view_with(&folder, Cache::with_budgets(0, 0)).unwrap();
    let snapshot = view.whole().unwrap().newest().unwrap();
    let restored = Memory::default();
    let names = |view: &View| -> Vec<TableName> {
        let mut recipe =
            RecipeReader::open(&view.folder, view.with_newer(snapshot.id).unwrap(), snapshot).unwrap();
        plan(&mut recipe, &view.tables, 0, snapshot.size).unwrap().containers
    };
    let before = names(&view);
    let make = |s: &SnapshotEntry, _: &[Range<u64>]| {
        let other = Vault::open(Arc::new(SimStore::open_on(fs.process()).unwrap())).unwrap();
        for owner in 0..2 {
            other.delete(&format!("owner-{owner}/x"), &["latest"]).unwrap();
        }
        other.gc(false).unwrap();
        restored.0.lock().resize(s.size as usize, 0);
        Ok(Box::new(restored.clone()) as Box<dyn Target>)
    };
    restore(&view, snapshot, make, &Progress::default()).unwrap();
    assert!(*restored.0.lock() == bytes);
    let after = names(&view);
    assert!(after.iter().all(|name| !before.contains(name)), "{before:?} {after:?}");
}
