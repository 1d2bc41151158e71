//! Which container a data object belongs to.

use crate::common::{backup, new_vault, open_vault, restore, rng, scratch, seed};
use format::{names, ContainerId, ContainerPage, Context, DiskId, Manifest};
use rand::RngExt;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use vault::{CodecChoice, Policy, Progress, RepairOptions, Vault, BALANCED, CONVENTIONAL};

/// The first page of the container table of the only disk.
fn first_page(vault: &Vault, dir: &Path) -> String {
    let disk = fs::read_dir(dir.join("objects/disks")).unwrap().next().unwrap().unwrap();
    let id: DiskId = disk.file_name().to_str().unwrap().parse().unwrap();
    let folder = names::folder(id);
    let name = names::manifest(&folder);
    let bytes = fs::read(dir.join("objects").join(&name)).unwrap();
    let m = Manifest::decode(Context { vault: vault.id(), place: &name }, &bytes).unwrap();
    names::page(&folder, m.pages[0].writer, m.pages[0].number)
}

/// A deletion gives a data object away with the entry whose container's name it bears, without a look at all others: `verify`
/// tells of another entry that names it.
#[test]
fn an_entry_with_the_data_of_another_container_is_told() {
    let dir = scratch();
    let vault = new_vault(dir.path());
    let mut bytes = vec![0; 4 << 20];
    rng(seed("an_entry_with_the_data_of_another_container_is_told")).fill(&mut bytes[..]);
    let policy = Policy { group_bytes: 64 << 10, container_bytes: 1 << 20, ..BALANCED };
    backup(&vault, "vm/a", &bytes, policy).unwrap();
    let page = first_page(&vault, dir.path());
    let context = Context { vault: vault.id(), place: &page };
    let at = dir.path().join("objects").join(&page);
    let mut entries = ContainerPage::decode(context, &fs::read(&at).unwrap()).unwrap().entries;
    entries[1].data = entries[0].data;
    fs::write(at, ContainerPage { entries }.encode(context)).unwrap();
    // What this process knows of the page is not asked.
    for vault in [vault, open_vault(dir.path()).unwrap()] {
        let damaged = vault.verify(None, false, &Progress::default()).unwrap().damaged;
        let is_told = damaged.iter().any(|d| d.object == page && d.why.contains("has the data of"));
        assert!(is_told, "{damaged:#?}");
    }
}

pub fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// The objects of the only disk's containers.
fn of_containers(dir: &Path) -> Vec<String> {
    let disk = fs::read_dir(dir.join("objects/disks")).unwrap().next().unwrap().unwrap();
    let entries = fs::read_dir(disk.path().join("containers")).unwrap().map(|entry| entry.unwrap().path());
    let objects = dir.join("objects");
    entries.map(|path| path.strip_prefix(&objects).unwrap().to_str().unwrap().to_owned()).collect()
}

/// What killed sessions have left of containers may lack chunks, and may be newer or older than what counts: a repair of
/// the container table takes what has the chunks that snapshots need.
#[test]
fn what_a_killed_session_has_left_is_not_taken_for_the_containers() {
    let dir = scratch();
    let vault = new_vault(dir.path());
    let mut rng = rng(seed("what_a_killed_session_has_left_is_not_taken_for_the_containers"));
    // So that zstd makes less of it than lz4.
    let mut noise = |bytes: &mut [u8]| {
        for part in bytes.chunks_mut(16) {
            part[..8].iter_mut().for_each(|b| *b = rng.random::<u8>() & 15);
        }
    };
    let mut old = vec![0; 2 << 20];
    noise(&mut old);
    let mut new = old.clone();
    noise(&mut new[..1 << 20]);
    // Every second chunk of the first containers is the older snapshot's alone.
    for chunk in (0..256).step_by(2) {
        new[chunk * 4096..][..4096].copy_from_slice(&old[chunk * 4096..][..4096]);
    }
    let (group_bytes, container_bytes) = (64 << 10, 512 << 10);
    let policy = Policy { group_bytes, container_bytes, codec: CodecChoice::Lz4, ..CONVENTIONAL };
    backup(&vault, "vm/a", &old, policy).unwrap();
    backup(&vault, "vm/a", &new, policy).unwrap();

    // A deletion that is killed before its swap.
    let killed = scratch();
    copy_all(dir.path(), killed.path());
    open_vault(killed.path()).unwrap().delete("vm/a", &["latest~1"]).unwrap();
    let before = of_containers(dir.path());
    let left: Vec<String> =
        of_containers(killed.path()).into_iter().filter(|object| !before.contains(object)).collect();
    let written_again: BTreeSet<ContainerId> = left
        .iter()
        .filter(|o| o.ends_with(".data"))
        .filter_map(|o| names::container_of(o).map(|(id, _)| id))
        .collect();
    assert!(written_again.len() >= 2, "{left:?}");
    // The number of its session is not given out again.
    vault.compact(None, 1.0).unwrap();
    assert_eq!(of_containers(dir.path()), before);

    let at = |dir: &Path, object: &str| dir.join("objects").join(object);
    for is_older in [false, true] {
        if is_older {
            // All containers are written again, with all chunks.
            assert!(vault.recompress(None, 9, None, &Progress::default()).unwrap().compacted.containers >= 4);
        }
        let current = of_containers(dir.path());
        for lost in [None, Some(".table"), Some(".data")] {
            let copy = scratch();
            copy_all(dir.path(), copy.path());
            for object in &left {
                fs::copy(at(killed.path(), object), at(copy.path(), object)).unwrap();
            }
            let is_lost = |object: &&String| {
                let id = names::container_of(object).map(|(id, _)| id);
                id == written_again.first().copied() && lost.is_some_and(|end| object.ends_with(end))
            };
            assert!(lost.is_none() || current.iter().filter(is_lost).count() == 1);
            current.iter().filter(is_lost).for_each(|o| fs::remove_file(at(copy.path(), o)).unwrap());
            fs::write(at(copy.path(), &first_page(&vault, dir.path())), b"damaged").unwrap();

            let vault = open_vault(copy.path()).unwrap();
            let options = RepairOptions { data: true, ..Default::default() };
            let report = vault.repair(&options, &Progress::default()).unwrap();
            assert_eq!(report.pages, 1);
            let what = format!("{is_older} {lost:?}: {:?}", report.after);
            assert!(restore(&vault, "vm/a", "latest").unwrap() == new, "{what}");
            // Without the data, what was left is the best there is.
            assert_eq!(report.after.is_empty(), lost != Some(".data"), "{what}");
            if lost != Some(".data") {
                assert!(restore(&vault, "vm/a", "latest~1").unwrap() == old, "{what}");
            }
        }
    }
}
