//! Which container a data object belongs to.

use crate::common::{backup, new_vault, open_vault, rng, scratch, seed};
use format::{names, ContainerPage, Context, DiskId, Manifest};
use rand::RngExt;
use std::fs;
use vault::{Policy, Progress, BALANCED};

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
    let disk = fs::read_dir(dir.path().join("objects/disks")).unwrap().next().unwrap().unwrap();
    let id: DiskId = disk.file_name().to_str().unwrap().parse().unwrap();
    let folder = names::folder(id);
    let read = |object: &str| fs::read(dir.path().join("objects").join(object)).unwrap();
    let name = names::manifest(&folder);
    let m = Manifest::decode(Context { vault: vault.id(), place: &name }, &read(&name)).unwrap();
    let page = names::page(&folder, m.pages[0].writer, m.pages[0].number);
    let context = Context { vault: vault.id(), place: &page };
    let mut entries = ContainerPage::decode(context, &read(&page)).unwrap().entries;
    entries[1].data = entries[0].data;
    fs::write(dir.path().join("objects").join(&page), ContainerPage { entries }.encode(context)).unwrap();
    // What this process knows of the page is not asked.
    for vault in [vault, open_vault(dir.path()).unwrap()] {
        let damaged = vault.verify(None, false, &Progress::default()).unwrap().damaged;
        let is_told = damaged.iter().any(|d| d.object == page && d.why.contains("has the data of"));
        assert!(is_told, "{damaged:#?}");
    }
}
