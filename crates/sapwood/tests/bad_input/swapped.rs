//! Two disks whose sources were swapped: devices that a reboot counts anew, exports that are wired to another machine,
//! files that were renamed. Nothing was said of it before, and each disk's history became that of the other one. Where
//! a disk has changed as disks do, nothing is said of it.

use super::common::{random, Bench, LoopDevice, DONE, REFUSED};
use std::path::Path;

const MIB: usize = 1 << 20;

/// Disks of these parts, each of so many MiB of noise of its own number; 0 is zeros.
fn disk(parts: &[(usize, u64)]) -> Vec<u8> {
    let part = |(mib, seed): &(usize, u64)| match seed {
        0 => vec![0; mib * MIB],
        seed => random(mib * MIB, *seed),
    };
    parts.iter().flat_map(part).collect()
}

/// Backs a content up, as the user does.
fn back_up(bench: &Bench, name: &str, content: &[u8]) {
    // Each disk has a file of its own.
    let file = bench.file(&name.replace('/', "-"), content);
    let ended = bench.run(&["-q", "backup", name, &file]);
    assert_eq!(ended.code(), Some(DONE), "{ended}");
}

/// The backup is refused: it names the other disk. Nothing is stored.
fn is_refused(bench: &Bench, name: &str, source: &Path, other: &str) {
    let before = (bench.all_snapshots(), bench.objects());
    let said = [name, &format!("the source is probably {other}"), "swapped", "--force"];
    bench.fails(&["backup", name, source.to_str().unwrap()], REFUSED, &said);
    assert_eq!((bench.all_snapshots(), bench.objects()), before);
}

fn swap(a: &Path, b: &Path) {
    let aside = a.with_extension("aside");
    std::fs::rename(a, &aside).unwrap();
    std::fs::rename(b, a).unwrap();
    std::fs::rename(aside, b).unwrap();
}

#[test]
fn files_that_were_exchanged_under_their_names_are_noticed() {
    exchange(&Bench::new("balanced"), &[("web01", "web02"), ("db01", "db02")]);
}

/// Policies that do not look for chunks of other disks compare whole segments first. Two of the disks have only one.
#[test]
fn exchanged_files_are_noticed_under_other_policies() {
    for bench in [Bench::new("reverse"), Bench::new("vm-centric"), isolated()] {
        exchange(&bench, &[("web01", "web02"), ("db01", "db02")]);
    }
}

/// With a vault in which no disk takes anything from another.
fn isolated() -> Bench {
    let bench = Bench::bare();
    bench.done(&["init", "--isolate"]);
    bench
}

fn exchange(bench: &Bench, pairs: &[(&str, &str)]) {
    // A template of 12 MiB, and what each clone has of its own.
    let web01 = disk(&[(8, 1), (1, 2), (4, 3), (2, 0)]);
    let web02 = disk(&[(8, 1), (1, 4), (4, 3), (2, 0)]);
    // Nothing like them, and smaller than what else is doubted.
    let (db01, db02) = (disk(&[(2, 5)]), disk(&[(2, 6)]));
    let all = [("web01/vda", &web01), ("web02/vda", &web02), ("db01/vda", &db01), ("db02/vda", &db02)];
    for (name, content) in all {
        back_up(bench, name, content);
        // A day later a little has changed.
        let mut later = content.clone();
        later[..8192].fill(name.len() as u8);
        back_up(bench, name, &later);
    }
    for (a, b) in pairs {
        let (first, second) = (bench.path(&format!("{a}-vda")), bench.path(&format!("{b}-vda")));
        swap(&first, &second);
        // And another day later.
        let mut content = std::fs::read(&first).unwrap();
        let at = content.len() / 2;
        content[at..at + 8192].fill(9);
        std::fs::write(&first, content).unwrap();
        is_refused(bench, &format!("{a}/vda"), &first, &format!("{b}/vda"));
        is_refused(bench, &format!("{b}/vda"), &second, &format!("{a}/vda"));
        // The user knows it better.
        bench.done(&["-q", "backup", &format!("{a}/vda"), first.to_str().unwrap(), "--force"]);
        swap(&first, &second);
    }
    bench.collect();
    bench.verify();
}

#[test]
fn devices_that_are_counted_anew_are_noticed() {
    let bench = Bench::new("balanced");
    let files = [1, 2].map(|seed| bench.file(&format!("disk{seed}"), &disk(&[(3, seed), (4, 7)])));
    let [Some(first), Some(second)] = files.map(|file| LoopDevice::on(file.as_ref())) else { return };
    let named = |name: &str, device: &LoopDevice| {
        let path = bench.path(name);
        let _ = std::fs::remove_file(&path);
        std::os::unix::fs::symlink(&device.device, &path).unwrap();
        path
    };
    for (name, disk, device) in [("sda", "a/vda", &first), ("sdb", "b/vda", &second)] {
        bench.done(&["-q", "backup", disk, named(name, device).to_str().unwrap()]);
    }
    let (sda, sdb) = (named("sda", &second), named("sdb", &first));
    is_refused(&bench, "a/vda", &sda, "b/vda");
    is_refused(&bench, "b/vda", &sdb, "a/vda");
}

/// What one clone installs, another one had a day before; much of it at the same place.
#[test]
fn clones_of_one_template_are_upgraded() {
    upgrade(&Bench::new("balanced"));
    upgrade(&Bench::new("reverse"));
    upgrade(&isolated());
}

fn upgrade(bench: &Bench) {
    let names: Vec<String> = (0..4).map(|n| format!("clone{n}/vda")).collect();
    // 512 KiB of its own.
    let own = |n: usize, day: u64| random(MIB / 2, 100 + n as u64 * 10 + day);
    let with = |n: usize, parts: &[(usize, u64)]| [own(n, 0), disk(parts)].concat();
    for (n, name) in names.iter().enumerate() {
        back_up(bench, name, &with(n, &[(8, 1), (4, 0)]));
    }
    // New files in free space, then over old ones, then the whole system of another image.
    for parts in [[(8, 1), (4, 2)], [(8, 3), (4, 2)], [(8, 4), (4, 5)]] {
        for (n, name) in names.iter().enumerate() {
            back_up(bench, name, &with(n, &parts));
        }
    }
    // Each begins anew from a new image, with nothing of what it had.
    for (n, name) in names.iter().enumerate() {
        back_up(bench, name, &[own(n, 1), disk(&[(8, 8), (4, 9)])].concat());
    }
}

/// A machine is installed like one that was installed before.
#[test]
fn a_machine_is_installed_like_another_one() {
    let bench = Bench::new("balanced");
    back_up(&bench, "old/vda", &disk(&[(8, 1), (2, 2)]));
    for day in 3..6 {
        back_up(&bench, "new/vda", &disk(&[(8, 10), (1, 11), (1, day)]));
    }
    back_up(&bench, "old/vda", &disk(&[(8, 10), (2, 12)]));
}

#[test]
fn a_disk_is_taken_back_to_an_older_state() {
    let bench = Bench::new("balanced");
    // Its clone has never been changed since: what it is taken back to is more like the clone than like its newest.
    let before = disk(&[(1, 1), (8, 2), (3, 0)]);
    back_up(&bench, "clone/vda", &disk(&[(1, 3), (8, 2), (3, 0)]));
    let states = [before.clone(), disk(&[(1, 1), (8, 4), (3, 5)]), disk(&[(1, 1), (8, 6), (3, 5)])];
    states.iter().for_each(|state| back_up(&bench, "web01/vda", state));
    back_up(&bench, "web01/vda", &before);
    // Also where the vault does not have that state any more.
    back_up(&bench, "web01/vda", &states[2]);
    bench.done(&["-q", "retain", "web01/vda", "--last", "1"]);
    back_up(&bench, "web01/vda", &before);
    // And from the vault.
    let restored = bench.arg("web01-vda");
    bench.done(&["-q", "restore", "web01/vda@latest~1", &restored, "--force"]);
    bench.done(&["-q", "backup", "web01/vda", &restored]);
}

/// The halves of a mirror always hold the same.
#[test]
fn the_disks_of_a_mirror_are_not_told_apart() {
    let bench = Bench::new("balanced");
    for day in 1..4 {
        for half in ["raid/vda", "raid/vdb"] {
            back_up(&bench, half, &disk(&[(4, day), (4, 20 + day)]));
        }
    }
}
