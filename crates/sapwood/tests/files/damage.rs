//! Damage of the vault below, and of the guest's file system.

use crate::common::{Bench, DAMAGED};
use crate::disks::{alone, make, patch, run, text, Mounted, MIB};
use std::fs::{self, File};
use std::path::Path;

fn filled(top: &Path) {
    for dir in ["a", "broken", "z"] {
        fs::create_dir(top.join(dir)).unwrap();
        (0..20u32).for_each(|n| fs::write(top.join(dir).join(format!("file{n}")), dir.repeat(500)).unwrap());
    }
    let noise: Vec<u8> = (0..3_000_000u32).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    fs::write(top.join("noise"), noise).unwrap();
}

fn tar(bench: &Bench, args: &[&str], to: &Path) -> (Option<i32>, String) {
    let mut tar = bench.command(&[&["files", "vm/d", "tar"], args].concat());
    let output = tar.stdout(File::create(to).unwrap()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Damage below a tar was an error of writing, and the exit code that of any failure.
#[test]
fn damage_of_the_vault_is_told_as_such() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = make(&bench.path("image"), 60 * MIB, "mkfs.ext4 -q -F");
    filled(Mounted::new(&image).path());
    bench.backup("vm/d", text(&image));
    // Where the noise is stored: all of it in one container, most of which it is.
    let objects = bench.data_objects();
    let object = objects.iter().max_by_key(|o| o.metadata().unwrap().len()).unwrap();
    let whole = fs::read(object).unwrap();
    patch(object, whole.len() as u64 / 2, &[whole[whole.len() / 2] ^ 0x55]);
    let name = "containers/";
    let said = bench.fails(&["files", "vm/d", "get", "/noise", "--to", &bench.arg("got")], DAMAGED, &[name]);
    assert!(!said.stderr.contains("ext4"), "{said}");
    // The other files come back, and of an archive all but the part.
    let all = ["-q", "files", "vm/d", "get", "/", "--to", &bench.arg("all")];
    bench.fails(&all, DAMAGED, &["sapwood: disk:/noise: disks/", name]);
    assert!(fs::read(bench.path("all/disk/z/file7")).unwrap() == b"z".repeat(500));
    assert!(!bench.path("all/disk/noise").exists());
    let (code, said) = tar(&bench, &[], &bench.path("tar"));
    assert!(
        code == Some(DAMAGED) && said.contains("zeros are in the archive for a part of it"),
        "{code:?} {said}"
    );
    let listed = run("tar", &["-tf", text(&bench.path("tar"))]);
    assert!(listed.lines().any(|line| line == "noise") && listed.contains("z/file7\n"), "{listed}");
    let ended = bench.run(&["files", "vm/d", "get", "/noise", "--to", "-"]);
    assert_eq!(ended.code(), Some(DAMAGED), "{ended}");
    ended.expect_one_line(&[name]);
    let (code, said) = tar(&bench, &["/noise"], &bench.path("tar"));
    assert!(code == Some(DAMAGED) && said.contains(name), "{code:?} {said}");
    // What lies elsewhere is there.
    assert_eq!(bench.done(&["files", "vm/d", "get", "/z/file7", "--to", "-"]).stdout, b"z".repeat(500));
    // A file system that cannot be read for it is none that is not there.
    for at in (0..whole.len()).step_by(64) {
        patch(object, at as u64, &[whole[at] ^ 0x55]);
    }
    for args in [&["list"][..], &["list", "/"], &["list", "disk:/a"], &["tar"], &["get", "/none"]] {
        bench.fails(&[&["files", "vm/d"], args].concat(), DAMAGED, &[name]);
    }
    bench.fails(&["diff", "vm/d", "vm/d"], DAMAGED, &[name]);
}

/// A damaged directory ended a copy of all others, too.
#[test]
fn damage_of_the_guest_leaves_the_rest() {
    if !testing::can_mount("ext4") {
        return;
    }
    let _alone = alone();
    let bench = Bench::new("balanced");
    let image = make(&bench.path("image"), 60 * MIB, "mkfs.ext4 -q -F -O metadata_csum");
    filled(Mounted::new(&image).path());
    bench.backup("vm/d", text(&image));
    let number = |what: &str| run("debugfs", &["-R", what, text(&image)]).trim().parse::<u64>().unwrap();
    let block_bytes = 1024 << u64::from(fs::read(&image).unwrap()[1024 + 24]);
    patch(&image, number("blocks /broken") * block_bytes + 40, b"damage");
    bench.backup("vm/d", text(&image));
    let told = |said: &str, code: Option<i32>| {
        assert!(
            said.starts_with("sapwood: disk:/broken: ext4: damaged: ") && said.contains("checksum"),
            "{said}"
        );
        assert!(said.lines().count() == 1 && code == Some(1), "{said}");
    };
    let ended = bench.run(&["--json", "files", "vm/d", "list", "-r"]);
    told(&ended.stderr, ended.code());
    let listed = ended.json();
    assert_eq!((listed["entries"].as_array().unwrap().len(), &listed["damaged_count"]), (45, &1.into()));
    let ended = bench.run(&["--json", "files", "vm/d", "get", "/", "--to", &bench.arg("got")]);
    told(&ended.stderr, ended.code());
    assert_eq!((&ended.json()["file_count"], &ended.json()["damaged_count"]), (&41.into(), &1.into()));
    assert_eq!(fs::read(bench.path("got/disk/z/file19")).unwrap(), b"z".repeat(500));
    let (code, said) = tar(&bench, &[], &bench.path("tar"));
    told(&said, code);
    let listed = run("tar", &["-tf", text(&bench.path("tar"))]);
    assert!(listed.lines().count() == 46 && listed.contains("\nz/file9\n"), "{listed}");
    bench.fails(&["files", "vm/d", "list", "/broken"], 1, &["disk:/broken: ext4: damaged"]);
    bench.fails(&["files", "vm/d", "get", "/broken/file1"], 1, &["ext4: damaged"]);
    bench.done(&["files", "vm/d", "list", "/a", "/z/file1"]);
    let ended = bench.run(&["diff", "vm/d@latest~1", "vm/d"]);
    told(&ended.stderr, ended.code());
    assert!(!String::from_utf8_lossy(&ended.stdout).contains("disk:"), "{ended}");
    patch(&image, number("blocks /z/file7") * block_bytes + 7, b"y");
    bench.backup("vm/d", text(&image));
    let ended = bench.run(&["diff", "vm/d@latest~2", "vm/d"]);
    told(&ended.stderr, ended.code());
    assert!(String::from_utf8_lossy(&ended.stdout).ends_with("\nM disk:/z/file7\n"), "{ended}");

    // The whole file system: another volume would not care, and without one it is said what is wrong.
    patch(&image, 1024 + 4, &[0xff; 16]);
    bench.backup("vm/d", text(&image));
    bench.fails(&["files", "vm/d", "get", "/a"], 1, &["ext4: damaged"]);
    bench.fails(&["files", "vm/d", "list", "/"], 1, &["ext4: damaged"]);
}
