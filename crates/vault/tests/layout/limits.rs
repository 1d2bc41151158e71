//! What a vault refuses to write because it could not be read again.

use crate::common::{backup, new_vault, restore, scratch};
use format::{names, Context, DiskId, Manifest};
use std::path::PathBuf;
use vault::{VaultError, BALANCED};

/// A manifest could grow until writing it was a panic, and reading it took gigabytes. It takes no snapshot from three
/// quarters of its limit on, so that deleting snapshots has room in it, and is not written beyond the limit.
#[test]
fn a_full_manifest_takes_no_snapshot_and_gives_some_up() {
    let dir = scratch();
    let vault = new_vault(dir.path());
    let versions = [vec![1; 300_000], vec![2; 300_000]];
    for v in &versions {
        backup(&vault, "vm/a", v, BALANCED).unwrap();
    }
    let disks = dir.path().join("objects/disks");
    let id: DiskId = std::fs::read_dir(disks)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .file_name()
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    let name = names::manifest(&names::folder(id));
    let path: PathBuf = dir.path().join("objects").join(&name);
    let context = Context { vault: vault.id(), place: &name };
    let with_tags = |share: f64| {
        let mut m = Manifest::decode(context, &std::fs::read(&path).unwrap()).unwrap();
        m.recent[0].tags.clear();
        let room = (Manifest::MEMORY_MAX as f64 * share) as usize - m.memory_bytes();
        m.recent[0].tags = (0..room / 128).map(|_| ("k".repeat(8), "v".repeat(8))).collect();
        std::fs::write(&path, m.encode(context)).unwrap();
    };

    with_tags(0.74);
    backup(&vault, "vm/a", &versions[0], BALANCED).unwrap();
    with_tags(0.76);
    let refused = backup(&vault, "vm/a", &versions[1], BALANCED).unwrap_err();
    assert!(
        matches!(&refused, VaultError::Refused(why) if why.contains(&name) && why.contains("no room")),
        "{refused}"
    );
    with_tags(0.9999);
    assert_eq!(restore(&vault, "vm/a", "latest~1").unwrap(), versions[1]);
    vault.delete("vm/a", &["latest~2"]).unwrap();
    backup(&vault, "vm/a", &versions[1], BALANCED).unwrap();
    assert_eq!(restore(&vault, "vm/a", "latest").unwrap(), versions[1]);

    // A swap that would go beyond the limit fails, and the manifest stays as it was.
    let mut m = Manifest::decode(context, &std::fs::read(&path).unwrap()).unwrap();
    m.recent[0].tags.clear();
    let without = m.memory_bytes();
    m.recent[0].tags.push((String::new(), String::new()));
    let empty_tag = m.memory_bytes() - without;
    m.recent[0].tags[0].1 = "x".repeat(Manifest::MEMORY_MAX - without - empty_tag);
    let full = m.encode(context);
    std::fs::write(&path, &full).unwrap();
    let refused = vault.gc(false).unwrap_err();
    assert!(matches!(&refused, VaultError::Refused(why) if why.contains("bytes of memory")), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), full);
    assert_eq!(restore(&vault, "vm/a", "latest~1").unwrap(), versions[0]);
}
