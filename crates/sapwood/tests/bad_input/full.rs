//! A vault on a file system that is full, or cannot be written.

use super::Kept;
use crate::common::{random, Bench, Mount, FAILED, REFUSED};

/// Room that backups leave for deletion and collection is within it.
const ROOM: u64 = 28 << 20;

#[test]
fn a_full_vault_still_restores_deletes_and_collects() {
    let bench = Bench::bare();
    let Some(_mount) = Mount::tmpfs(&bench.store, ROOM) else { return };
    bench.done(&["init"]);
    let kept = Kept::with(bench);
    let bench = &kept.bench;
    let mut contents = Vec::new();
    loop {
        assert!(contents.len() < 20, "it never became full");
        let content = random(4 << 20, contents.len() as u64 + 10);
        let source = bench.file("source", &content);
        let ended = bench.run(&["-q", "backup", "vm/big", &source]);
        if ended.code() != Some(0) {
            ended.expect_failure(
                FAILED,
                &["no space left on", bench.store.to_str().unwrap(), "sapwood delete"],
            );
            break;
        }
        contents.push(content);
    }
    assert!(contents.len() > 2);
    let compare = |contents: &[Vec<u8>]| {
        for (back, content) in contents.iter().rev().enumerate() {
            assert!(bench.restored(&format!("vm/big@latest~{back}")) == *content);
        }
        kept.check_content();
    };
    compare(&contents);
    // Another disk is refused as well, and nothing of it stays.
    let objects = bench.objects();
    bench.fails(&["-q", "backup", "vm/other", &bench.arg("source")], FAILED, &["no space left on"]);
    bench.collect();
    assert_eq!(bench.objects(), objects);

    let oldest = format!("vm/big@latest~{}", contents.len() - 1);
    bench.done(&["delete", &oldest]);
    contents.remove(0);
    bench.collect();
    compare(&contents);
    bench.done(&["-q", "backup", "vm/big", &bench.arg("source")]);
    contents.push(std::fs::read(bench.path("source")).unwrap());
    compare(&contents);
}

/// Somebody else's files have taken the room that was kept.
#[test]
fn no_room_at_all() {
    let bench = Bench::bare();
    let Some(mount) = Mount::tmpfs(&bench.path("mount"), ROOM) else { return };
    let bench = Bench { store: mount.path.join("vault"), ..bench };
    bench.done(&["init"]);
    let kept = Kept::with(bench);
    let bench = &kept.bench;
    bench.backup("vm/kept2", &bench.arg("kept"));
    let filler = mount.path.join("filler");
    let _ = std::fs::write(&filler, vec![1; ROOM as usize]);
    for args in [&["backup", "vm/new", &bench.arg("kept")][..], &["delete", "vm/kept2@latest"], &["gc"]] {
        bench.fails(args, FAILED, &["no space left on", "free some"]);
    }
    std::fs::remove_file(&filler).unwrap();
    bench.done(&["delete", "vm/kept2@latest"]);
    bench.collect();
    kept.check_content();
}

#[test]
fn a_vault_that_cannot_be_written() {
    let bench = Bench::bare();
    let Some(mount) = Mount::tmpfs(&bench.store, ROOM) else { return };
    bench.done(&["init"]);
    let kept = Kept::with(bench);
    mount.read_only();
    for args in [&["snapshots"][..], &["restore", "vm/kept", "-"], &["gc"], &["verify"], &["init"]] {
        kept.bench.fails(
            args,
            REFUSED,
            &[kept.bench.store.to_str().unwrap(), "read-only", "mount it writable"],
        );
    }
    assert_eq!(kept.bench.objects(), kept.objects);
}
