//! `sapwood restore --live` that goes on trusts nothing it finds: another device under the same name, older or damaged
//! maps, files that others put beside the target.

use crate::common;
use crate::common::nbd::{start, Nbd};
use crate::common::{Bench, LoopDevice, DONE, FAILED, REFUSED};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::Path;

const DISK_BYTES: usize = 8 << 20;
const WRITTEN_AT: usize = DISK_BYTES - (1 << 20);

/// A vault with a snapshot of random bytes, and these with what the guest writes.
fn backed_up() -> (Bench, Vec<u8>) {
    let bench = Bench::new("balanced");
    let mut disk = common::random(DISK_BYTES, 1);
    bench.backup("vm/vda", &bench.file("disk", &disk));
    disk[WRITTEN_AT..WRITTEN_AT + 7].copy_from_slice(b"written");
    (bench, disk)
}

/// Begins a restore, lets a guest write and flush, and is killed before half of the disk has arrived.
fn killed(bench: &Bench, target: &str, more: &[&str]) {
    let args = [&["-q", "restore", "--live", "--limit", "1M", "vm/vda", target], more].concat();
    let mut child = start(bench, &args);
    let Some(mut client) = Nbd::connect_to(&mut child, &bench.path("socket")) else {
        panic!("{}", child.wait())
    };
    client.write(WRITTEN_AT as u64, b"written").unwrap();
    client.flush().unwrap();
    child.signal(Signal::KILL);
    child.wait();
}

/// The same command goes on to the end.
fn goes_on(bench: &Bench, target: &str, more: &[&str], expected: &[u8]) {
    let args = [&["-q", "restore", "--live", "vm/vda", target], more].concat();
    bench.done(&args);
    assert!(fs::read(target).unwrap()[..DISK_BYTES] == *expected);
}

/// Killed, another disk attached under the same name, run again without `--force`: exit 0, a quarter of the blocks were
/// the other disk's, and the rest of that disk was destroyed.
#[test]
fn another_device_under_the_same_name_is_left_alone() {
    let (bench, disk) = backed_up();
    let (own, other) = (bench.file("own", &[0xaa; DISK_BYTES]), bench.file("other", &[0xbb; DISK_BYTES]));
    let Some(own) = LoopDevice::on(Path::new(&own)) else { return };
    let Some(foreign) = LoopDevice::on(Path::new(&other)) else { return };
    let (name, map) = (bench.arg("device"), bench.arg("map"));
    let attach = |device: &str| {
        drop(fs::remove_file(&name));
        symlink(device, &name).unwrap();
    };
    attach(&own.device);
    killed(&bench, &name, &["--map", &map, "--force"]);
    attach(&foreign.device);
    for force in [&[][..], &["--force"]] {
        let args = [&["-q", "restore", "--live", "vm/vda", &name, "--map", &map], force].concat();
        bench.fails(&args, REFUSED, &[&name, "is not the device", "put that one in its place", "begin anew"]);
        assert!(fs::read(&other).unwrap() == [0xbb; DISK_BYTES]);
    }
    // Its marked copy is another device all the same.
    fs::write(bench.path("copy"), fs::read(&own.device).unwrap()).unwrap();
    let Some(copy) = LoopDevice::on(&bench.path("copy")) else { return };
    attach(&copy.device);
    let args = ["-q", "restore", "--live", "vm/vda", &name, "--map", &map];
    bench.fails(&args, REFUSED, &["is not the device", "backing_file"]);
    attach(&own.device);
    goes_on(&bench, &name, &["--map", &map], &disk);
    assert!(!Path::new(&map).exists());
}

/// Killed between the making of the map and its header, the restore began anew without `--force`, whatever the device.
#[test]
fn a_map_without_anything_in_it_allows_nothing() {
    let (bench, _) = backed_up();
    let file = bench.file("device", &[0xaa; DISK_BYTES]);
    let Some(device) = LoopDevice::on(Path::new(&file)) else { return };
    let map = bench.file("map", b"");
    let args = ["-q", "restore", "--live", "vm/vda", &device.device, "--map", &map];
    bench.fails(&args, REFUSED, &["would be lost", "--force"]);
    assert!(fs::read(&device.device).unwrap() == [0xaa; DISK_BYTES]);
}

/// A target that was copied, or made by another, and a map that was put back from a copy: what the guest had written
/// since was lost, with exit 0.
#[test]
fn copies_of_a_target_or_its_map_are_refused() {
    let (bench, disk) = backed_up();
    let target = bench.arg("target");
    let [arriving, map] = ["sapwood-arriving", "sapwood-map"].map(|s| bench.path(&format!("target.{s}")));
    let [copy, older] = ["copy", "older"].map(|name| bench.path(name));
    let args = ["-q", "restore", "--live", "--limit", "1M", "vm/vda", &target];
    let mut child = start(&bench, &args);
    let mut client = Nbd::connect_to(&mut child, &bench.path("socket")).unwrap();
    client.write(0, &common::random(4096, 2)).unwrap();
    client.flush().unwrap();
    fs::copy(&map, &older).unwrap();
    client.write(WRITTEN_AT as u64, b"written").unwrap();
    client.flush().unwrap();
    child.signal(Signal::KILL);
    child.wait();
    let mut disk = disk;
    disk[..4096].copy_from_slice(&common::random(4096, 2));

    // In its place, so that its inode stays.
    let newer = fs::read(&map).unwrap();
    fs::write(&map, fs::read(&older).unwrap()).unwrap();
    bench.fails(&args, REFUSED, &["target.sapwood-map", "an older copy", "put the newer map back"]);
    fs::write(&map, &newer).unwrap();

    fs::rename(&arriving, bench.path("away")).unwrap();
    bench.fails(&args, REFUSED, &["is gone, or not there yet", "begin anew"]);
    fs::copy(bench.path("away"), &arriving).unwrap();
    bench.fails(&args, REFUSED, &["is not the file", "inode", "begin anew"]);
    fs::write(&copy, vec![0xaa; DISK_BYTES]).unwrap();
    fs::set_permissions(&copy, Permissions::from_mode(0o600)).unwrap();
    fs::rename(&copy, &arriving).unwrap();
    bench.fails(&args, REFUSED, &["is not the file", "inode"]);
    assert!(fs::read(&arriving).unwrap() == [0xaa; DISK_BYTES]);
    fs::rename(bench.path("away"), &arriving).unwrap();
    goes_on(&bench, &target, &[], &disk);
}

/// Bits of the map were flipped: 5 of 40 restores went on to a wrong disk, with exit 0.
#[test]
fn a_damaged_map_is_refused_and_the_target_kept() {
    let (bench, disk) = backed_up();
    let target = bench.arg("target");
    killed(&bench, &target, &[]);
    let map = bench.path("target.sapwood-map");
    let good = fs::read(&map).unwrap();
    let block = WRITTEN_AT / 4096;
    for at in [20, 4100, 5300, 8192 + block / 8, 8192 + 480] {
        let mut bad = good.clone();
        bad[at] ^= 1 << (block % 8);
        fs::write(&map, &bad).unwrap();
        bench.fails(
            &["-q", "restore", "--live", "vm/vda", &target],
            REFUSED,
            &["target.sapwood-map", "is damaged", "nothing was changed", "begin anew"],
        );
    }
    fs::write(&map, &good).unwrap();
    goes_on(&bench, &target, &[], &disk);
}

/// Where the disk was whole and in use when sapwood was killed, another file under its name was served, and written.
#[test]
fn another_file_under_the_name_of_a_whole_disk_is_refused() {
    let (bench, disk) = backed_up();
    let target = bench.arg("target");
    let args = ["-q", "restore", "--live", "vm/vda", &target];
    let mut child = start(&bench, &args);
    let mut client = Nbd::connect_to(&mut child, &bench.path("socket")).unwrap();
    client.write(WRITTEN_AT as u64, b"written").unwrap();
    while !Path::new(&target).exists() {
        assert!(!child.has_ended());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // Whole from the moment on that it has its name.
    assert!(fs::read(&target).unwrap() == disk);
    client.write(DISK_BYTES as u64 - 512, &[9; 512]).unwrap();
    child.signal(Signal::KILL);
    child.wait();
    fs::rename(&target, bench.path("away")).unwrap();
    fs::write(&target, vec![0xaa; DISK_BYTES]).unwrap();
    for force in [&[][..], &["--force"]] {
        bench.fails(&[&args[..], force].concat(), REFUSED, &["is not the file"]);
    }
    assert!(fs::read(&target).unwrap() == [0xaa; DISK_BYTES]);
    fs::rename(bench.path("away"), &target).unwrap();
    let mut disk = disk;
    disk[DISK_BYTES - 512..].fill(9);
    goes_on(&bench, &target, &[], &disk);
}

/// Whatever stood beside the target was opened and written: links to other files, files that others own or may change.
#[test]
fn files_that_others_may_have_put_there_are_refused() {
    let (bench, disk) = backed_up();
    let [target, overlay] = ["target", "overlay"].map(|name| bench.arg(name));
    let restore = ["-q", "restore", "--live", "vm/vda", &target];
    let serve =
        ["-q", "nbd", "vm/vda", "--overlay", &overlay, "--socket", &bench.arg("socket"), "--", "true"];
    killed(&bench, &target, &[]);
    bench.done(&serve);
    let precious = bench.path("precious");
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        testing::skip("root", "files are given to another user");
    }
    for (file, args) in
        [("target.sapwood-map", &restore[..]), ("target.sapwood-arriving", &restore), ("overlay", &serve)]
    {
        let path = bench.path(file);
        let mode = path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode & 0o027, 0, "{file}: {mode:o}");
        let refused = |said: &str| bench.fails(args, REFUSED, &[file, said]);
        fs::rename(&path, &precious).unwrap();
        symlink(&precious, &path).unwrap();
        refused("is a symbolic link");
        fs::remove_file(&path).unwrap();
        fs::hard_link(&precious, &path).unwrap();
        refused("has 2 names");
        fs::remove_file(&precious).unwrap();
        for mode in [0o620, 0o602, 0o666] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            refused("may be written by others");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        if is_root {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            refused("belongs to user 65534");
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        fs::rename(&path, &precious).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        refused("is not a regular file");
        fs::remove_file(&path).unwrap();
        fs::rename(&precious, &path).unwrap();
    }
    // Links to nothing are not followed either, when all begins.
    for name in ["new.sapwood-map", "new.sapwood-arriving", "new-overlay", "new-overlay.sapwood-new"] {
        symlink(bench.path("nowhere"), bench.path(name)).unwrap();
        let (new, over) = (bench.arg("new"), bench.arg("new-overlay"));
        let args = if name.starts_with("new-overlay") {
            vec!["-q", "nbd", "vm/vda", "--overlay", &over, "--", "true"]
        } else {
            vec!["-q", "restore", "--live", "vm/vda", &new]
        };
        let ended = bench.run(&args);
        assert!([Some(REFUSED), Some(FAILED)].contains(&ended.code()), "{name}: {ended}");
        assert!(!bench.path("nowhere").exists(), "{name}");
        fs::remove_file(bench.path(name)).unwrap();
    }
    goes_on(&bench, &target, &[], &disk);
    assert_eq!(bench.run(&serve).code(), Some(DONE));
    drop::<io::Result<()>>(fs::remove_file(&overlay));
}
