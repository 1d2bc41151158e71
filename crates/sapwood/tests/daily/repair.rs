//! `sapwood repair`: damage is healed from an image, from another vault, from a later backup; what stays lost is listed
//! with the files that it hits.

use crate::common;
use crate::common::{random, Bench, DAMAGED, DONE};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Bytes of a file on the guest's file system.
const FILE_BYTES: usize = 3 << 20;

/// A vault with one disk: an ext4 file system with one large file of noise.
fn vault_of_one_disk() -> (Bench, String, Vec<u8>) {
    let bench = Bench::new("balanced");
    let tree = bench.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("large.bin"), random(FILE_BYTES, 5)).unwrap();
    fs::write(tree.join("small.txt"), b"small").unwrap();
    let image = bench.file("disk.raw", &vec![0; 16 << 20]);
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(&tree).arg(&image).status();
    assert!(made.unwrap().success());
    bench.backup("web01/vda", &image);
    let bytes = fs::read(&image).unwrap();
    (bench, image, bytes)
}

/// Overwrites noise in the largest data object: chunks of the large file.
fn damage(bench: &Bench) {
    let largest = |path: &std::path::PathBuf| fs::metadata(path).unwrap().len();
    let object = bench.data_objects().into_iter().max_by_key(largest).unwrap();
    let len = largest(&object);
    let file = fs::File::options().write(true).open(object).unwrap();
    // Behind the metadata of the file system, which comes first.
    file.write_all_at(&[0x55; 20_000], len / 2).unwrap();
    assert_eq!(bench.run(&["verify", "--data"]).code(), Some(DAMAGED));
}

fn is_healed(bench: &Bench, content: &[u8]) {
    bench.verify();
    assert!(bench.restored("web01/vda") == content);
    bench.done(&["gc"]);
    assert!(bench.restored("web01/vda") == content);
    let again = bench.json(&["repair", "--data"]);
    assert_eq!(again["damaged_before"], serde_json::json!([]));
}

#[test]
fn what_is_lost_is_listed_and_comes_back_from_an_image() {
    let (bench, image, content) = vault_of_one_disk();
    damage(&bench);
    // By itself: the rest of the group is saved, and the file is named.
    let ended = bench.run(&["repair"]);
    assert_eq!(ended.code(), Some(DAMAGED), "{ended}");
    let said = String::from_utf8(ended.stdout.clone()).unwrap();
    assert!(said.contains("/large.bin") && !said.contains("/small.txt"), "{said}");
    let ended = bench.run(&["--json", "repair"]);
    let json: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    let bytes = json["lost"][0]["bytes"].as_u64().unwrap();
    assert!((20_000..40_000).contains(&bytes), "{json:#}");
    assert_eq!(bench.run(&["restore", "web01/vda", "-"]).code(), Some(DAMAGED));

    // The image that was backed up has it, also within another image.
    let copy = bench.arg("copy.qcow2");
    common::qemu_img(&["convert", "-O", "qcow2", &image, &copy]);
    let json = bench.json(&["repair", "--from-source", &copy]);
    assert_eq!(json["damaged"], serde_json::json!([]));
    assert!(json["chunks_found"].as_u64().unwrap() >= 5, "{json:#}");
    is_healed(&bench, &content);
}

#[test]
fn another_vault_and_a_later_backup_heal() {
    let (bench, _, content) = vault_of_one_disk();
    let second = bench.arg("second");
    assert_eq!(common::sapwood(Path::new(&second), &["-q", "init"]).status().unwrap().code(), Some(DONE));
    bench.done(&["copy", "--all", "--to", &second]);
    damage(&bench);
    let json = bench.json(&["repair", "web01/vda", "--from-vault", &second]);
    assert_eq!(json["damaged"], serde_json::json!([]));
    is_healed(&bench, &content);

    let (bench, image, content) = vault_of_one_disk();
    damage(&bench);
    // The chunks of damaged containers are stored again, and heal the older snapshot.
    bench.backup("web01/vda", &image);
    let older = bench.run(&["restore", "web01/vda@latest~1", "-"]);
    let json = bench.json(&["repair"]);
    assert_eq!(json["damaged"], serde_json::json!([]), "{older}");
    assert!(bench.restored("web01/vda@latest~1") == content);
    is_healed(&bench, &content);
}

#[test]
fn the_vaults_description_is_put_again() {
    let (bench, _, content) = vault_of_one_disk();
    let objects = bench.store.join("objects");
    let file = fs::read(objects.join("vault.json")).unwrap();
    fs::remove_file(objects.join("vault.json")).unwrap();
    let ended = bench.run(&["-q", "restore", "web01/vda", "-"]);
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    assert!(ended.stdout == content);
    assert!(ended.stderr.contains("sapwood repair"), "{ended}");
    bench.run(&["repair"]);
    assert!(fs::read(objects.join("vault.json")).unwrap() == file);
    is_healed(&bench, &content);

    fs::write(objects.join("vault.json"), b"{").unwrap();
    fs::remove_file(objects.join("vault.copy")).unwrap();
    bench.fails(&["snapshots"], DAMAGED, &["vault.json", "sapwood repair"]);
    assert_eq!(bench.run(&["repair"]).code(), Some(DONE));
    is_healed(&bench, &content);
}
