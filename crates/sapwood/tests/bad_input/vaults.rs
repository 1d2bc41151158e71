//! Stores that hold no vault, or one that this program cannot read.

use super::Kept;
use crate::common::{files_below, random, Bench, DAMAGED, FAILED, REFUSED};
use serde_json::{json, Value};

use xxhash_rust::xxh3::xxh3_64;

#[test]
fn no_store_and_no_vault() {
    let bench = Bench::bare();
    let there = bench.store.to_str().unwrap();
    bench.fails(&["snapshots"], REFUSED, &[there, "no such directory", "check the path"]);
    std::fs::create_dir(&bench.store).unwrap();
    bench.fails(&["gc"], REFUSED, &[there, "there is no store", "check the path"]);
    std::fs::write(bench.store.join("thesis.txt"), "mine").unwrap();
    bench.fails(&["init"], REFUSED, &[there, "not empty", "thesis.txt"]);
    assert_eq!(files_below(&bench.store).len(), 1);

    let file = Bench::bare();
    std::fs::write(&file.store, "a file").unwrap();
    file.fails(&["init"], REFUSED, &[file.store.to_str().unwrap(), "not a directory"]);
    file.fails(&["snapshots"], REFUSED, &["not a directory"]);
}

impl Kept {
    /// `vault.json` cannot be read, its copy can: the vault is read, and one line says so.
    fn by_the_copy(&self) {
        let ended = self.bench.run(&["snapshots"]);
        assert!(
            ended.code() == Some(0) && String::from_utf8_lossy(&ended.stdout).contains("vm/kept"),
            "{ended}"
        );
        ended.expect_one_line(&["vault.json", "its copy serves", "sapwood repair"]);
    }
}

#[test]
fn a_store_whose_vault_file_is_gone() {
    let kept = Kept::new();
    let file = kept.bench.store.join("objects/vault.json");
    let copy = kept.bench.store.join("objects/vault.copy");
    let good = std::fs::read(&file).unwrap();
    // The copy serves as well, and says so.
    std::fs::remove_file(&file).unwrap();
    kept.by_the_copy();
    std::fs::remove_file(&copy).unwrap();
    // With disks in it, it is a damaged vault; a new one must not take its place.
    for command in [&["restore", "vm/kept", "-"][..], &["gc"], &["init"]] {
        kept.bench.fails(command, DAMAGED, &["vault.json", "missing"]);
    }
    for path in [&file, &copy] {
        std::fs::write(path, &good).unwrap();
    }
    kept.check();

    let empty = Bench::new("balanced");
    for name in ["vault.json", "vault.copy"] {
        std::fs::remove_file(empty.store.join("objects").join(name)).unwrap();
    }
    empty.fails(&["snapshots"], FAILED, &[empty.store.to_str().unwrap(), "no vault here", "sapwood init"]);
    empty.done(&["init"]);
}

#[test]
fn a_vault_is_made_once() {
    let kept = Kept::new();
    kept.bench.fails(&["init"], REFUSED, &[kept.bench.store.to_str().unwrap(), "there is a vault already"]);
    kept.check();
}

/// Rewrites `vault.json` as a newer program may have written it: with a checksum that is right.
fn rewrite(kept: &Kept, change: impl Fn(&mut Value)) {
    let path = kept.bench.store.join("objects/vault.json");
    let mut v: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut v);
    let features: Vec<_> =
        v["incompatible_features"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let fields = [
        v["sapwood_vault"].as_str().unwrap().to_string(),
        v["format_version"].to_string(),
        features.join(","),
        v["policy"].as_str().unwrap().to_string(),
        v["isolated"].to_string(),
        v["created"].to_string(),
    ];
    v["checksum"] = format!("{:016x}", xxh3_64(fields.join("\n").as_bytes())).into();
    std::fs::write(&path, serde_json::to_vec_pretty(&v).unwrap()).unwrap();
}

#[test]
fn vaults_of_newer_programs() {
    let kept = Kept::new();
    let source = kept.bench.arg("kept");
    let commands = [
        &["snapshots"][..],
        &["backup", "vm/new", &source],
        &["restore", "vm/kept", "-"],
        &["delete", "vm/kept@latest"],
        &["gc"],
        &["verify"],
    ];
    let file = kept.bench.store.join("objects/vault.json");
    let written = std::fs::read(&file).unwrap();
    // As it is, the file is found good: the checksum of this test is that of the program.
    rewrite(&kept, |_| {});
    kept.bench.done(&["snapshots"]);

    rewrite(&kept, |v| v["format_version"] = json!(99));
    for command in commands {
        kept.bench.fails(command, REFUSED, &["vault.json", "format version 99", "use a newer one"]);
    }
    rewrite(&kept, |v| v["format_version"] = json!(5));
    rewrite(&kept, |v| v["incompatible_features"] = json!(["erasure-coding"]));
    for command in commands {
        kept.bench.fails(command, REFUSED, &["vault.json", "erasure-coding", "use a newer one"]);
    }
    rewrite(&kept, |v| v["incompatible_features"] = json!([]));
    rewrite(&kept, |v| v["policy"] = json!("best"));
    let said = ["vault.json", "there is no policy \"best\"", "--policy"];
    kept.bench.fails(&["backup", "vm/kept", &source], REFUSED, &said);
    kept.bench.done(&["snapshots"]);
    // In other bytes, though with the same meaning, it would be named by `verify --data`.
    std::fs::write(&file, written).unwrap();
    kept.check();
}

#[test]
fn a_damaged_vault_file() {
    let kept = Kept::new();
    let path = kept.bench.store.join("objects/vault.json");
    let copy = kept.bench.store.join("objects/vault.copy");
    let good = std::fs::read(&path).unwrap();
    let changed = String::from_utf8(good.clone()).unwrap().replace("balanced", "unbalanced");
    for bad in [&b""[..], b"{}", &good[..good.len() / 2], changed.as_bytes(), &[0xff; 300]] {
        std::fs::write(&path, bad).unwrap();
        std::fs::write(&copy, &good).unwrap();
        // The copy serves as well, and says so.
        kept.by_the_copy();
        std::fs::write(&copy, bad).unwrap();
        kept.bench.fails(
            &["snapshots"],
            DAMAGED,
            &["vault.json", "vault.copy", "cannot be read", "sapwood repair"],
        );
        let repaired = kept.bench.run(&["repair"]);
        assert_eq!(repaired.code(), Some(0), "{repaired}");
        repaired.expect_one_line(&["vault.json and vault.copy were made anew"]);
        kept.check();
        assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(&copy).unwrap());
    }
}

/// The manifest of the only disk.
fn manifest(bench: &Bench) -> std::path::PathBuf {
    let mut found = files_below(&bench.store.join("objects/disks"));
    found.retain(|f| f.file_name() == Some("manifest".as_ref()));
    assert_eq!(found.len(), 1);
    found.remove(0)
}

/// An older manifest was put back: `verify` said "no damage", and `gc` removed the newer snapshot.
#[test]
fn an_older_manifest_put_back() {
    // Without a reverse pass, which replaces what the older manifest names.
    let kept = Kept::with(Bench::new("vm-centric"));
    let bench = &kept.bench;
    let manifest = manifest(bench);
    let older = std::fs::read(&manifest).unwrap();
    // Without new containers: a page of the container table that a newer manifest replaced is gone.
    let content = kept.content.clone();
    let source = bench.file("newer", &content);
    let snapshot = format!("vm/kept@{}", bench.backup("vm/kept", &source));
    let newer = std::fs::read(&manifest).unwrap();
    std::fs::write(&manifest, &older).unwrap();
    let files = files_below(&bench.store.join("objects"));

    let verified = bench.run(&["verify", "--data"]);
    assert_eq!(verified.code(), Some(DAMAGED), "{verified}");
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(
        said.contains("manifest: an older copy of it was put back") && said.contains(&snapshot),
        "{said}"
    );
    let said = ["manifest: an older copy", "nothing was changed", "put the newer one back"];
    bench.fails(&["backup", "vm/kept", &source], DAMAGED, &said);
    bench.fails(&["delete", "vm/kept@latest"], DAMAGED, &said);
    bench.fails(&["hold", "vm/kept@latest"], DAMAGED, &said);
    for command in [&["gc"][..], &["gc", "--dry-run"], &["compact"], &["compact", "vm/kept"]] {
        let ended = bench.run(command);
        assert_eq!(ended.code(), Some(DAMAGED), "{ended}");
        assert!(String::from_utf8_lossy(&ended.stdout).contains("an older copy"), "{ended}");
    }
    assert!(bench.restored("vm/kept") == kept.content, "what it lists can be restored");
    let mut now = files_below(&bench.store.join("objects"));
    now.retain(|f| !f.ends_with("verifications"));
    assert_eq!(now, files);
    assert!(std::fs::read(&manifest).unwrap() == older);

    std::fs::write(&manifest, &newer).unwrap();
    bench.verify();
    assert!(bench.restored(&snapshot) == content);
    kept_and_newer(&kept, &source);
}

/// All goes on with the newer manifest.
fn kept_and_newer(kept: &Kept, source: &str) {
    let next = kept.bench.backup("vm/kept", source);
    kept.bench.done(&["delete", &format!("vm/kept@{next}")]);
    kept.bench.collect();
    kept.bench.verify();
    assert!(kept.bench.restored(&format!("vm/kept@{}", kept.snapshot)) == kept.content);
}

/// The object that leads from a name to its disk was lost: the list was empty, and the next backup made a second disk.
#[test]
fn a_lost_name() {
    let kept = Kept::new();
    let bench = &kept.bench;
    let names = files_below(&bench.store.join("objects/names"));
    let good = std::fs::read(&names[0]).unwrap();
    for bad in [None, Some(&b""[..]), Some(&good[..good.len() - 1])] {
        match bad {
            None => std::fs::remove_file(&names[0]).unwrap(),
            Some(bad) => std::fs::write(&names[0], bad).unwrap(),
        }
        for command in [&["snapshots"][..], &["snapshots", "vm/kept"]] {
            let listed = bench.run(command);
            assert_eq!(listed.code(), Some(DAMAGED), "{listed}");
            assert!(String::from_utf8_lossy(&listed.stdout).contains(&kept.snapshot[..8]), "{listed}");
            assert!(listed.stderr.contains("names/") && listed.stderr.lines().count() == 1, "{listed}");
        }
        let verified = bench.run(&["verify"]);
        assert_eq!(verified.code(), Some(DAMAGED), "{verified}");
        assert!(bench.restored("vm/kept") == kept.content);
        let again = bench.backup("vm/kept", &bench.arg("kept"));
        manifest(bench);
        let collected = String::from_utf8(bench.done(&["gc"]).stdout).unwrap();
        assert!(collected.contains("put the name of vm/kept back"), "{collected}");
        assert_eq!(std::fs::read(&names[0]).unwrap(), good);
        bench.done(&["delete", &format!("vm/kept@{again}")]);
        kept.check_content();
    }
}

/// What cannot be looked at costs the space of what was deleted, not the deletion.
#[test]
fn a_deletion_that_meets_damage_says_that_its_snapshot_is_gone() {
    let bench = Bench::new("balanced");
    for seed in [1, 2] {
        bench.backup("vm/a", &bench.file("disk", &random(3 << 20, seed)));
    }
    let roots = files_below(&bench.store).into_iter().filter(|f| f.extension() == Some("root".as_ref()));
    for root in roots {
        std::fs::remove_file(&root).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&root).status().unwrap().success());
    }
    let ended = bench.run(&["delete", "vm/a@latest~1"]);
    assert_eq!(ended.code(), Some(DAMAGED), "{ended}");
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    for words in
        ["deleted vm/a@", "are gone from the list, but not all of their space was given back", ".root"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(bench.snapshots("vm/a").len(), 1);
}
