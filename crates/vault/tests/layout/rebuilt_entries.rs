//! Containers whose entries a repair has made anew: until a sweep has looked at them, what is dead in them is not known.

use crate::common::{backup, new_vault, open_vault, restore, rng, scratch, seed};
use crate::data_objects::copy_all;
use crate::popular::SMALL;
use rand::RngExt;
use std::fs;
use std::path::{Path, PathBuf};
use vault::{Progress, RepairOptions, Vault, BALANCED};

/// Objects of all disks in a folder of theirs.
fn of_kind(dir: &Path, kind: &str) -> Vec<PathBuf> {
    let disks = fs::read_dir(dir.join("objects/disks")).unwrap().map(|disk| disk.unwrap().path());
    let of_disk = |disk: PathBuf| fs::read_dir(disk.join(kind)).into_iter().flatten();
    disks.flat_map(of_disk).map(|entry| entry.unwrap().path()).collect()
}

/// After a repair of container tables it is known only when a sweep has ended which chunks have been freed: until then no backup
/// takes them.
#[test]
fn no_backup_takes_chunks_that_may_be_freed() {
    let mut rng = rng(seed("no_backup_takes_chunks_that_may_be_freed"));
    let mut old = vec![0; 16 << 20];
    rng.fill(&mut old[..]);
    let mut new = old.clone();
    // So little that its space is punched, and nothing written again.
    rng.fill(&mut new[..2 << 20]);
    let original = scratch();
    let vault = new_vault(original.path());
    backup(&vault, "vm/a", &old, BALANCED).unwrap();
    backup(&vault, "vm/b", &old, BALANCED).unwrap();
    backup(&vault, "vm/a", &new, BALANCED).unwrap();
    vault.delete("vm/a", &["latest~1"]).unwrap();
    vault.delete("vm/b", &["latest"]).unwrap();
    backup(&vault, "vm/b", &new, BALANCED).unwrap();
    vault.gc(false).unwrap();
    for (disk, loses_recipe) in [(Some("vm/a"), false), (None, true), (None, false)] {
        let dir = scratch();
        copy_all(original.path(), dir.path());
        of_kind(dir.path(), "pages").iter().for_each(|page| fs::remove_file(page).unwrap());
        if loses_recipe {
            let is_root = |path: &&PathBuf| path.extension().is_some_and(|end| end == "root");
            of_kind(dir.path(), "recipes").iter().filter(is_root).for_each(|p| fs::write(p, b"x").unwrap());
        }
        let vault = open_vault(dir.path()).unwrap();
        let options = RepairOptions { disk: disk.map(str::to_owned), ..Default::default() };
        let report = vault.repair(&options, &Progress::default()).unwrap();
        assert_eq!(report.after.is_empty(), !loses_recipe, "{:?}", report.after);
        let what = format!("{disk:?} {loses_recipe}");
        for name in ["vm/a", "vm/c"] {
            let Ok(_) = backup(&vault, name, &old, BALANCED) else { continue };
            assert!(restore(&vault, name, "latest").unwrap() == old, "{what}: {name}");
        }
        // What a sweep has looked at is shared again.
        vault.repair(&RepairOptions::default(), &Progress::default()).unwrap();
        vault.gc_all().unwrap();
        if !loses_recipe {
            let shared = backup(&vault, "vm/d", &new, BALANCED).unwrap();
            assert_eq!(shared.snapshot.new_bytes, 0, "{what}");
            assert!(restore(&vault, "vm/d", "latest").unwrap() == new, "{what}");
            assert!(vault.verify(None, true, &Progress::default()).unwrap().damaged.is_empty(), "{what}");
        }
    }
}

/// Objects of the popular set in a folder of its, or those of the disks that are not among `others`.
fn pages(dir: &Path, others: &[PathBuf]) -> Vec<PathBuf> {
    let popular = fs::read_dir(dir.join("objects/popular/pages")).unwrap().map(|entry| entry.unwrap().path());
    let of_disks = of_kind(dir, "pages").into_iter().filter(|page| !others.contains(page));
    popular.chain(of_disks).collect()
}

/// What is damaged in a vault.
fn damage(vault: &Vault) -> Vec<String> {
    let damaged = vault.verify(None, true, &Progress::default()).unwrap().damaged;
    damaged.into_iter().map(|d| d.object).collect()
}

/// Backups may match any chunk of the popular set: one that no snapshot references is read all the same, and stays damaged.
#[test]
fn chunks_of_the_popular_set_are_looked_at() {
    const BLOCK: usize = 4096;
    let mut rng = rng(seed("chunks_of_the_popular_set_are_looked_at"));
    let dir = scratch();
    let vault = new_vault(dir.path());
    let mut all = vec![0; 64 * BLOCK];
    rng.fill(&mut all[..]);
    for disk in ["vm1/x", "vm2/x", "vm3/x"] {
        let mut own = vec![0; 16 * BLOCK];
        rng.fill(&mut own[..]);
        own.extend(&all);
        backup(&vault, disk, &own, SMALL).unwrap();
    }
    vault.popular_build(1.0, &std::env::temp_dir()).unwrap();
    backup(&vault, "c/x", &all[..16 * BLOCK], SMALL).unwrap();
    let others = of_kind(dir.path(), "pages");
    backup(&vault, "d/x", &all[..16 * BLOCK], SMALL).unwrap();
    // One that only the set has rots.
    let data = fs::read_dir(dir.path().join("objects/popular/containers")).unwrap();
    let mut data =
        data.map(|entry| entry.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "data"));
    let is_rotten = data.any(|path| {
        let mut bytes = fs::read(&path).unwrap();
        let Some(at) = bytes.windows(BLOCK).position(|w| *w == all[40 * BLOCK..41 * BLOCK]) else {
            return false;
        };
        bytes[at + 7] ^= 1;
        fs::write(&path, &bytes).unwrap();
        true
    });
    assert!(is_rotten);
    pages(dir.path(), &others).iter().for_each(|page| fs::remove_file(page).unwrap());
    let vault = open_vault(dir.path()).unwrap();
    // Its sweep ends at the disk whose page is lost.
    let repair = |disk: Option<&str>| {
        let options = RepairOptions { disk: disk.map(str::to_owned), ..Default::default() };
        vault.repair(&options, &Progress::default()).unwrap()
    };
    repair(Some("c/x"));
    let found = damage(&vault);
    assert!(found.iter().any(|object| object.contains("popular/containers/")), "{found:?}");
    repair(None);
    vault.gc(false).unwrap();
    backup(&vault, "f/x", &all, SMALL).unwrap();
    assert!(restore(&vault, "f/x", "latest").unwrap() == all);
}
