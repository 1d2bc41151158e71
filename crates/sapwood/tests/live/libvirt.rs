//! Domains of libvirt: all disks at one instant, by checkpoints, with the domain's definition.

mod boots;

use crate::common::libvirt::{new_image, Libvirt};
use crate::common::{qemu_img, random, Bench, Child, FAILED, REFUSED, USAGE};
use rustix::process::Signal;
use serde_json::{json, Value};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const DISK_BYTES: usize = 48 << 20;
const SMALL_BYTES: usize = 8 << 20;
const SEGMENT: u64 = 4 << 20;

fn machine(bench: &mut Bench, content: &[u8]) -> Libvirt {
    let mut libvirt = Libvirt::start(bench);
    let (a, b) = (bench.arg("a.qcow2"), new_image(&bench.path("b.raw"), "raw", SMALL_BYTES));
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &bench.file("a.raw", content), &a]);
    libvirt.start_domain(bench, &[("vda", "qcow2", &a), ("vdb", "raw", &b)]);
    libvirt
}

/// Backs the domain up. Returns what was read of its first disk and of its second, and the report.
fn back_up(bench: &Bench) -> (Value, Value, Value) {
    let report = bench.json(&["backup", "vm", "libvirt:vm"]);
    let disks = report["disks"].as_array().unwrap();
    let names: Vec<&Value> = disks.iter().map(|d| &d["disk"]).collect();
    assert_eq!(names, ["vm/vda", "vm/vdb"]);
    (disks[0]["scan"].clone(), disks[1]["scan"].clone(), report.clone())
}

#[test]
fn a_domain_is_backed_up_by_its_checkpoints() {
    let mut bench = Bench::new("balanced");
    let libvirt = machine(&mut bench, &vec![0; DISK_BYTES]);
    let mut wanted = vec![0; DISK_BYTES];
    let mut write = |at: usize, len: usize, byte: u8| {
        libvirt.write("vda", at, len, byte);
        wanted[at..at + len].fill(byte);
        wanted.clone()
    };
    write(0, 9 << 20, 1);
    libvirt.write("vdb", 0, 1 << 20, 2);
    let (first, raw, report) = back_up(&bench);
    assert_eq!((&first["kind"], &first["why"]), (&json!("whole"), &json!("there is no snapshot yet")));
    assert_eq!(raw["kind"], "whole");
    assert_eq!(report["disks"][0]["consistency"], "crash", "it has no agent");

    let content = write(30 << 20, 4096, 3);
    let (second, raw, _) = back_up(&bench);
    assert_eq!(second, json!({ "kind": "changed", "bytes": SEGMENT, "why": null }));
    assert!(raw["why"].as_str().unwrap().contains("qcow2 images only"), "{raw}");
    assert!(bench.restored("vm/vda@latest") == content);
    let mut of_raw = vec![0; SMALL_BYTES];
    of_raw[..1 << 20].fill(2);
    assert!(bench.restored("vm/vdb@latest") == of_raw);
    assert_eq!((libvirt.checkpoints().len(), libvirt.has_job()), (1, false));
    let (third, ..) = back_up(&bench);
    assert_eq!(third, json!({ "kind": "changed", "bytes": 0, "why": null }));

    // What it is made of, in as many versions.
    assert_eq!(bench.snapshots("vm/definition").len(), 3);
    let definition = String::from_utf8(bench.restored("vm/definition@latest")).unwrap();
    assert_eq!(definition, libvirt.virsh(&["dumpxml", "vm", "--inactive"]));
    assert!(definition.contains("<name>vm</name>"), "{definition}");

    // A snapshot of the same disk that libvirt does not know of.
    write(40 << 20, 4096, 4);
    let other = bench.file("other.raw", &content);
    bench.fails(&["backup", "vm/vda", &other], REFUSED, &["was read as qcow2 before"]);
    bench.done(&["-q", "backup", "vm/vda", &other, "--source-format", "raw"]);
    let content = write(41 << 20, 4096, 5);
    let (fourth, ..) = back_up(&bench);
    assert!(fourth["why"].as_str().unwrap().contains("not made through libvirt"), "{fourth}");
    assert!(bench.restored("vm/vda@latest") == content);

    // Ended in order, QEMU keeps its bitmaps.
    let content = write(20 << 20, 4096, 6);
    libvirt.virsh(&["destroy", "vm", "--graceful"]);
    let off = bench.json(&["backup", "vm", "libvirt:vm"]);
    assert_eq!(off["disks"][0]["consistency"], "off");
    assert!(bench.restored("vm/vda@latest") == content);
    libvirt.virsh(&["start", "vm"]);
    // What a checkpoint of before has recorded says nothing of an image that may have been put back meanwhile.
    assert_eq!(back_up(&bench).0["kind"], "whole");
    let content = write(20 << 20, 4096, 7);
    libvirt.virsh(&["destroy", "vm", "--graceful"]);
    libvirt.virsh(&["start", "vm"]);
    assert_eq!(back_up(&bench).0, json!({ "kind": "changed", "bytes": SEGMENT, "why": null }));
    assert!(bench.restored("vm/vda@latest") == content);
    // Killed, it does not, and libvirt says so.
    let content = write(24 << 20, 4096, 8);
    libvirt.kill_qemu(&bench);
    libvirt.virsh(&["start", "vm"]);
    let (sixth, ..) = back_up(&bench);
    assert!(sixth["why"].as_str().unwrap().contains("libvirt cannot tell what changed"), "{sixth}");
    assert!(bench.restored("vm/vda@latest") == content);
    let content = write(21 << 20, 4096, 7);
    assert_eq!(back_up(&bench).0, json!({ "kind": "changed", "bytes": SEGMENT, "why": null }));
    assert!(bench.restored("vm/vda@latest") == content);
    assert_eq!((libvirt.checkpoints().len(), libvirt.has_job()), (1, false));
    bench.verify();
}

#[test]
fn a_backup_that_is_ended_leaves_nothing_out_of_the_next() {
    let mut bench = Bench::new("balanced");
    // Hard to compress, and cut in another way than what is there, so that a backup takes its time.
    let mut wanted: Vec<u8> = random(DISK_BYTES, 3).iter().map(|b| b & 15).collect();
    let libvirt = machine(&mut bench, &wanted);
    back_up(&bench);
    libvirt.write("vda", 0, 4096, 1);
    wanted[..4096].fill(1);
    let args = ["-q", "backup", "vm", "libvirt:vm", "--full", "--policy", "vm-centric", "--codec", "zstd:19"];
    for (round, signal) in [Signal::KILL, Signal::TERM, Signal::KILL].into_iter().enumerate() {
        let at = (30 + round) << 20;
        libvirt.write("vda", at, 4096, 9);
        let left = libvirt.job_socket();
        let child = Child::start(bench.command(&args), "a backup that is ended");
        let start = Instant::now();
        // A job of its own: that of a killed one may still be there.
        while libvirt.job_socket().is_none_or(|socket| Some(socket) == left) {
            assert!(start.elapsed() < Duration::from_secs(60), "no job begins");
        }
        if round == 1 {
            bench.fails(&["backup", "vm", "libvirt:vm"], REFUSED, &["vm/vda", "locked by a backup"]);
        }
        libvirt.write("vda", 2 << 20, 4096, 20 + round as u8);
        child.signal(signal);
        let ended = child.wait();
        // It may have been faster than the signal.
        if signal == Signal::TERM {
            assert!(!libvirt.has_job(), "a job is left: {ended}");
        }
        // Any other process removed the directory of the killed one, and the next backup was refused.
        let mut other = bench.command(&["-q", "nbd", "vm/vda", "--", "true"]);
        other.env_remove("XDG_RUNTIME_DIR");
        Child::start(other, "a process with a directory of its own").wait().expect_done();
    }
    let (scan, ..) = back_up(&bench);
    assert_eq!(scan["kind"], "changed", "{scan}");
    let restored = bench.restored("vm/vda@latest");
    (30..33).for_each(|at| wanted[at << 20..(at << 20) + 4096].fill(9));
    wanted[2 << 20..(2 << 20) + 4096].fill(22);
    assert!(restored == wanted);
    assert_eq!((libvirt.checkpoints().len(), libvirt.has_job()), (1, false));

    // Somebody else's job is not ours to end.
    let backup = "<domainbackup mode='pull'><server transport='unix' socket='SOCKET'/></domainbackup>";
    std::fs::create_dir(bench.path("theirs")).unwrap();
    std::fs::set_permissions(bench.path("theirs"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let file = bench.file("backup.xml", backup.replace("SOCKET", &bench.arg("theirs/nbd")).as_bytes());
    libvirt.virsh(&["backup-begin", "vm", &file]);
    bench.fails(&["backup", "vm", "libvirt:vm"], REFUSED, &["another program's backup", "domjobabort"]);
    assert!(libvirt.has_job());
}

/// libvirt's checkpoints are of targets, not of images: where another image has come to a target, its bitmap of the same
/// name tells nothing of the snapshots of that target.
#[test]
fn another_image_at_the_same_target_is_read_whole() {
    let mut bench = Bench::new("balanced");
    let mut libvirt = Libvirt::start(&mut bench);
    let new = |name: &str| new_image(&bench.path(name), "qcow2", SMALL_BYTES);
    let (a, b) = (new("a.qcow2"), new("b.qcow2"));
    libvirt.start_domain(&bench, &[("vda", "qcow2", &a), ("vdb", "qcow2", &b)]);
    libvirt.write("vda", 0, SMALL_BYTES, 1);
    libvirt.write("vdb", 0, SMALL_BYTES, 2);
    back_up(&bench);
    let check = |a: u8, b: u8, known: bool| {
        let (of_a, of_b, _) = back_up(&bench);
        for scan in [of_a, of_b] {
            let why = scan["why"].as_str().unwrap_or_default();
            assert!(known == (scan["kind"] == "changed") && known != why.contains("another image"), "{scan}");
        }
        for (disk, byte) in [("vm/vda@latest", a), ("vm/vdb@latest", b)] {
            assert!(bench.restored(disk)[4096..].iter().all(|x| *x == byte), "{disk}");
        }
    };
    libvirt.write("vda", 0, 4096, 9);
    libvirt.write("vdb", 0, 4096, 9);
    check(1, 2, true);

    // By the definition.
    let xml = libvirt.virsh(&["dumpxml", "vm", "--inactive"]);
    libvirt.virsh(&["destroy", "vm", "--graceful"]);
    let swapped = xml.replace("a.qcow2", "x.qcow2").replace("b.qcow2", "a.qcow2");
    let swapped = swapped.replace("x.qcow2", "b.qcow2");
    libvirt.virsh(&["define", &bench.file("swapped.xml", swapped.as_bytes())]);
    libvirt.virsh(&["start", "vm"]);
    check(2, 1, false);
    check(2, 1, true);

    // By the names of the files.
    libvirt.virsh(&["destroy", "vm", "--graceful"]);
    let aside = bench.arg("aside");
    for (from, to) in [(&a, &aside), (&b, &a), (&aside, &b)] {
        std::fs::rename(from, to).unwrap();
    }
    libvirt.virsh(&["start", "vm"]);
    check(1, 2, false);
    check(1, 2, true);
    bench.verify();
    let tag = ["backup", "vm/vda", &a, "--tag", "checkpoint=sapwood-1"];
    bench.fails(&tag, USAGE, &["checkpoint", "what backups say themselves"]);
}

/// A block copy moves a running domain's disk to another image; what is written from then on is in no bitmap of the old one.
#[test]
fn a_disk_that_was_copied_to_another_image_is_read_whole() {
    let mut bench = Bench::new("balanced");
    let mut libvirt = Libvirt::start(&mut bench);
    let new = |name: &str| new_image(&bench.path(name), "qcow2", SMALL_BYTES);
    let (a, b) = (new("a.qcow2"), new("b.qcow2"));
    libvirt.start_domain(&bench, &[("vda", "qcow2", &a), ("vdb", "qcow2", &b)]);
    libvirt.write("vda", 0, SMALL_BYTES, 1);
    back_up(&bench);
    libvirt.write("vda", 0, 4096, 2);
    let copy = bench.arg("copy.qcow2");
    let how = ["blockcopy", "vm", "vda", "--dest", &copy, "--format", "qcow2", "--transient-job"];
    libvirt.virsh(&[&how[..], &["--wait", "--pivot"]].concat());
    libvirt.write("vda", 4 << 20, 4096, 3);
    let mut wanted = vec![1; SMALL_BYTES];
    wanted[..4096].fill(2);
    wanted[4 << 20..][..4096].fill(3);
    let (moved, stayed, _) = back_up(&bench);
    assert!(moved["why"].as_str().unwrap().contains("another image"), "{moved}");
    assert_eq!(stayed["kind"], "changed");
    assert!(bench.restored("vm/vda@latest") == wanted);

    libvirt.write("vda", 0, 4096, 4);
    wanted[..4096].fill(4);
    let (moved, ..) = back_up(&bench);
    assert_eq!(moved, json!({ "kind": "changed", "bytes": SEGMENT, "why": null }));
    assert!(bench.restored("vm/vda@latest") == wanted);
    // The file of a running domain.
    bench.fails(
        &["backup", "vm/vda", &copy],
        REFUSED,
        &["is in use by process ", "(qemu-system-x86, since 2", "libvirt:DOMAIN"],
    );
}

#[test]
fn what_libvirt_does_not_have_is_said() {
    let mut bench = Bench::new("balanced");
    let _libvirt = Libvirt::start(&mut bench);
    bench.fails(&["backup", "vm", "libvirt:none"], FAILED, &["libvirt domain none"]);
    for source in ["libvirt:", "libvirt:--help"] {
        bench.fails(&["backup", "vm", source], USAGE, &["libvirt:DOMAIN"]);
    }
    bench.fails(&["backup", "vm/vda", "libvirt:none"], USAGE, &["vm/vda"]);
    bench.env.push(("LIBVIRT_DEFAULT_URI".into(), "qemu+unix:///system?socket=/nowhere".into()));
    bench.fails(&["backup", "vm", "libvirt:vm"], FAILED, &["libvirt domain vm", "/nowhere"]);
    bench.env.push(("PATH".into(), "/nowhere".into()));
    bench.fails(&["backup", "vm", "libvirt:vm"], FAILED, &["virsh", "not installed"]);
}

/// A loop over all machines needs no branch.
#[test]
fn a_domain_that_is_off_is_backed_up_from_its_images() {
    let mut bench = Bench::new("balanced");
    let content = random(DISK_BYTES, 6);
    let libvirt = machine(&mut bench, &content);
    let (whole, _, _) = back_up(&bench);
    assert_eq!(whole["kind"], "whole");
    libvirt.virsh(&["destroy", "vm", "--graceful"]);
    let (off, _, report) = back_up(&bench);
    assert_eq!((&off["kind"], &report["disks"][0]["consistency"]), (&json!("whole"), &json!("off")));
    assert_eq!(report["disks"][0]["changed_bytes"], 0, "the same disk under the same name: {report}");
    assert!(bench.restored("vm/vda") == content);
    let definition = bench.restored("vm/definition");
    assert!(String::from_utf8(definition).unwrap().contains("<name>vm</name>"));
    // All of one instant: it comes back as one machine.
    let restored = bench.json(&["restore", "vm", "--to", &bench.arg("restored")]);
    let formats: Vec<&str> =
        restored["disks"].as_array().unwrap().iter().map(|d| d["format"].as_str().unwrap()).collect();
    assert_eq!(formats, ["qcow2", "raw"]);

    // Somebody else writes to an image of a machine that is off.
    let mut writer = std::process::Command::new("qemu-io");
    writer
        .arg(bench.path("a.qcow2"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut writer = writer.spawn().unwrap();
    let mut prompt = [0];
    std::io::Read::read_exact(writer.stdout.as_mut().unwrap(), &mut prompt).unwrap();
    bench.fails(&["backup", "vm", "libvirt:vm"], REFUSED, &["vm/vda", "in use"]);
    drop(writer.stdin.take());
    writer.wait().unwrap();

    // Running again, and with a pattern: by its own name.
    libvirt.virsh(&["start", "vm"]);
    libvirt.write("vda", 0, 4096, 9);
    bench.fails(&["backup", "vm", "libvirt:v*"], USAGE, &["'*'"]);
    bench.fails(&["backup", "*", "libvirt:w*"], FAILED, &["libvirt:w*", "virsh list"]);
    let all = bench.json(&["backup", "*", "libvirt:*"]);
    assert_eq!(
        (&all["machines"][0]["machine"], all["machines"].as_array().unwrap().len()),
        (&json!("vm"), 1)
    );
    assert_eq!(all["machines"][0]["disks"][0]["disk"], "vm/vda");
    let mut content = content;
    content[..4096].fill(9);
    assert!(bench.restored("vm/vda") == content);

    // By a job.
    let config = format!(
        "store = '{}'\nstate_dir = '{}'\n[jobs.all]\nretain = {{ last = 1 }}\n[jobs.all.disks]\n'*' = 'libvirt:*'\n",
        bench.store.display(),
        bench.arg("state")
    );
    let ran = bench.json(&["--config", &bench.file("sapwood.toml", config.as_bytes()), "run"]);
    let disks = ran["jobs"][0]["disks"].as_array().unwrap().iter();
    let disks: Vec<&str> = disks.map(|d| d["disk"].as_str().unwrap()).collect();
    assert_eq!(disks, ["vm/vda", "vm/vdb", "vm/definition"], "{ran}");
    assert_eq!(bench.snapshots("vm/vda").len(), 1);

    // Its guest's memory is in a file: its images alone are not the machine.
    libvirt.virsh(&["managedsave", "vm"]);
    let uuid = libvirt.virsh(&["domuuid", "vm"]);
    for source in ["libvirt:vm".to_owned(), format!("libvirt:{}", uuid.trim())] {
        bench.fails(&["backup", "vm", &source], FAILED, &["managedsave", "start it"]);
    }
}

/// A machine of two disks is lost, and comes back with one command.
#[test]
fn a_machine_comes_back() {
    let mut bench = Bench::new("balanced");
    let content = random(DISK_BYTES, 5);
    let libvirt = machine(&mut bench, &content);
    libvirt.write("vdb", 4096, 8192, 7);
    back_up(&bench);
    // Of a later instant, perhaps of the same second: it is not wanted.
    libvirt.write("vda", 0, 4096, 1);
    let (_, _, second) = back_up(&bench);
    let instants: Vec<i64> = bench.json(&["snapshots", "vm/definition"])["snapshots"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["time"].as_i64().unwrap())
        .collect();
    assert_eq!(instants.len(), 2, "{second}");
    let dir = bench.arg("restored");
    // What it says is what makes room.
    let undefine = ["undefine", "vm", "--checkpoints-metadata", "--keep-nvram"];
    let said = ["libvirt has a domain vm", "virsh destroy vm", &undefine.join(" ")];
    bench.fails(&["restore", "vm", "--to", &dir, "--define"], REFUSED, &said);
    libvirt.virsh(&["destroy", "vm"]);
    libvirt.virsh(&undefine);
    for image in ["a.qcow2", "b.raw"] {
        std::fs::remove_file(bench.path(image)).unwrap();
    }
    bench.backup("vm/extra", &bench.file("extra", &[1; 5000]));

    let restored = bench.run(&["--json", "restore", "vm@latest~1", "--to", &dir, "--define"]);
    restored.expect_one_line(&["vm/extra", "left out"]);
    let restored = restored.json();
    assert_eq!((restored["time"].as_i64(), restored["defined"].as_bool()), (Some(instants[0]), Some(true)));
    let formats: Vec<&str> =
        restored["disks"].as_array().unwrap().iter().map(|d| d["format"].as_str().unwrap()).collect();
    assert_eq!(formats, ["qcow2", "raw"], "as the definition has them");
    let as_raw = bench.arg("as-raw");
    qemu_img(&["convert", "-O", "raw", &format!("{dir}/vm-vda.qcow2"), &as_raw]);
    assert!(std::fs::read(as_raw).unwrap() == content);
    let mut of_raw = vec![0; SMALL_BYTES];
    of_raw[4096..12288].fill(7);
    assert!(std::fs::read(format!("{dir}/vm-vdb.raw")).unwrap() == of_raw);
    let defined = libvirt.virsh(&["dumpxml", "vm", "--inactive"]);
    assert!(defined.contains(&format!("{dir}/vm-vda.qcow2")) && !defined.contains("/a.qcow2'"), "{defined}");
    libvirt.virsh(&["start", "vm"]);
    assert_eq!(libvirt.virsh(&["domstate", "vm"]).trim(), "running");
    // It is backed up again, as the machine that it was.
    libvirt.write("vda", 4096, 4096, 9);
    back_up(&bench);
    let mut content = content;
    content[4096..8192].fill(9);
    assert!(bench.restored("vm/vda") == content);

    bench.fails(&["restore", "vm", "--to", &dir], REFUSED, &["vm-vda.qcow2", "exists", "--force"]);
    bench.fails(&["restore", "vm/vda", "--to", &dir], USAGE, &["vm/vda", "machine"]);
    bench.fails(&["restore", "none", "--to", &dir], FAILED, &["none", "sapwood snapshots"]);
    // Without a disk of the instant there is no such machine.
    let oldest = bench.snapshots("vm/vdb")[0].clone();
    bench.done(&["delete", &format!("vm/vdb@{oldest}")]);
    let other = bench.arg("other");
    bench.fails(&["restore", "vm@latest~2", "--to", &other], FAILED, &["vm/vdb", "there is no snapshot of"]);
    bench.done(&["-q", "restore", "vm/vda", &bench.arg("one.raw")]);
    // By itself, a disk comes back in the format that the definition said, if nothing else says it.
    let by_itself = bench.json(&["restore", "vm/vda", &bench.arg("one")]);
    assert_eq!(by_itself["format"], "qcow2", "{by_itself}");
    let tags = bench.json(&["snapshots", "vm/definition"])["snapshots"][0]["tags"].clone();
    assert_eq!(tags["disks"], "vda,vdb", "{tags}");
}
