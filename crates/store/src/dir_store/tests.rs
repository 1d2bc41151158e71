//! What the conformance suite cannot reach: failing devices, full ones, poor file systems, other processes.

use std::io::ErrorKind;

use rustix::io::Errno;

use super::*;
use crate::sim_fs::{Lack, SimFs, SimOp};
use crate::SimStore;

fn simulated() -> (SimFs, SimStore) {
    let fs = SimFs::new(1);
    (fs.clone(), SimStore::create_on(fs).unwrap())
}

fn io_error(errno: Errno) -> i32 {
    errno.raw_os_error()
}

#[test]
fn a_writer_is_poisoned_by_a_failed_write() {
    let (fs, store) = simulated();
    let mut writer = store.writer("a").unwrap();
    fs.fail_next(SimOp::Write, io_error(Errno::IO));
    assert!(matches!(writer.append(&[1; 1 << 20]), Err(StoreError::Io { op: "write", .. })));
    assert!(fs.file_names("tmp").is_empty(), "its space is given back at once");
    assert!(matches!(writer.append(b"x"), Err(StoreError::Poisoned { .. })));
    assert!(matches!(writer.append(&[1; 1 << 20]), Err(StoreError::Poisoned { .. })));
    assert!(matches!(writer.finish(), Err(StoreError::Poisoned { object }) if object == "a"));
    store.put("a", &[b"x"]).unwrap();
}

#[test]
fn a_failed_sync_of_a_file_leaves_the_name_free() {
    let (fs, store) = simulated();
    for kind in ["put", "swap", "hold"] {
        fs.fail_next(SimOp::Sync, io_error(Errno::IO));
        let result = match kind {
            "put" => store.put("a", &[b"x"]),
            "swap" => store.swap("a", None, b"x").map(drop),
            _ => store.lease("a", b"x").map(drop),
        };
        assert!(matches!(result, Err(StoreError::Io { .. })), "{kind}");
        assert!(matches!(store.len("a"), Err(StoreError::NotFound { .. })));
        assert!(fs.file_names("tmp").is_empty());
    }
    store.put("a", &[b"x"]).unwrap();
}

#[test]
fn a_failed_sync_of_a_directory_poisons_the_store() {
    for kind in ["put", "swap", "hold", "delete"] {
        let (fs, store) = simulated();
        store.put("a/there", &[b"x"]).unwrap();
        let mut hold = store.lease("a/held", b"x").unwrap();
        let mut writer = store.writer("a/written").unwrap();
        fs.fail_next(SimOp::SyncDir, io_error(Errno::IO));
        let result = match kind {
            "put" => store.put("a/new", &[b"x"]),
            "swap" => store.swap("a/new", None, b"x").map(drop),
            "hold" => store.lease("a/new", b"x").map(drop),
            _ => store.delete("a/there").map(drop),
        };
        assert!(matches!(result, Err(StoreError::Io { .. })), "{kind}");
        if kind != "swap" {
            assert!(matches!(store.len("a/new"), Err(StoreError::NotFound { .. })), "{kind}");
        }
        let poisoned =
            |result: Result<()>| assert!(matches!(result, Err(StoreError::Poisoned { .. })), "{kind}");
        poisoned(store.put("b", &[b"x"]));
        poisoned(store.writer("b").map(drop));
        poisoned(store.swap("b", None, b"x").map(drop));
        poisoned(store.lease("b", b"x").map(drop));
        poisoned(store.delete("b").map(drop));
        poisoned(store.punch("a/there", &[(0, 1)]));
        poisoned(hold.replace(b"y"));
        poisoned(writer.append(b"x").and_then(|()| writer.finish()));
        assert_eq!(store.read("a/held", 10).unwrap(), b"x");
        assert!(store.load("a/none").unwrap().is_none(), "{kind}");
        // Another handle asks the device again.
        SimStore::open_on(fs).unwrap().put("b", &[b"x"]).unwrap();
    }
}

#[test]
fn a_full_device_is_said_and_left_clean() {
    let (fs, store) = simulated();
    store.put("kept", &[&[1; 10_000]]).unwrap();
    let mut hold = store.lease("held", b"x").unwrap();
    let mut writer = store.writer("written").unwrap();
    fs.set_capacity(fs.used_bytes() + 80_000);
    let free = store.free().unwrap().unwrap();
    let full = |result: Result<()>| match result {
        Err(StoreError::Full { location, .. }) => assert_eq!(location, "simulated disk"),
        other => panic!("must be full, but: {other:?}"),
    };
    full(store.put("a", &[&[1; 200_000]]));
    full(store.swap("a", None, &[1; 200_000]).map(drop));
    full(store.lease("a", &[1; 200_000]).map(drop));
    full(hold.replace(&[1; 200_000]));
    full(writer.append(&[1; 300_000]));
    assert!(fs.file_names("tmp").is_empty());
    assert_eq!(store.free().unwrap().unwrap(), free);
    assert!(hold.is_valid());
    assert_eq!(store.read("held", 10).unwrap(), b"x");
    // There is room for less.
    store.put("a", &[&[1; 50_000]]).unwrap();
    assert!(store.delete("kept").unwrap());
    // EDQUOT is as full.
    fs.fail_next(SimOp::Write, io_error(Errno::DQUOT));
    full(store.put("b", &[b"x"]));
}

#[test]
fn poor_file_systems_are_refused() {
    for (lack, said) in [(Lack::Locks, "no working locks"), (Lack::RenameNew, "hard links")] {
        let (fs, store) = simulated();
        store.put("a", &[b"x"]).unwrap();
        fs.lack(lack);
        let store = SimStore::open_on(fs.clone()).unwrap();
        assert_eq!(store.read("a", 1).unwrap(), b"x");
        for changed in
            [store.put("b", &[b"x"]), store.lease("b", b"x").map(drop), store.delete("a").map(drop)]
        {
            match changed {
                Err(StoreError::Unsuitable { why, .. }) => assert!(why.contains(said), "{why}"),
                other => panic!("{lack:?}: {other:?}"),
            }
        }
        assert_eq!(store.read("a", 1).unwrap(), b"x");
        assert!(fs.file_names("tmp").is_empty());
    }
}

/// Opening wrote two files to find out about locks: nothing could be read of a store on a read-only mount.
#[test]
fn what_cannot_be_written_can_be_read() {
    let (fs, store) = simulated();
    store.put("a", &[b"x"]).unwrap();
    store.swap("m", None, b"y").unwrap();
    fs.lack(Lack::Writing);
    let ops = fs.op_count();
    let store = SimStore::open_on(fs.process()).unwrap();
    assert_eq!(fs.op_count(), ops, "opening changes nothing");
    assert_eq!(store.read("a", 1).unwrap(), b"x");
    assert_eq!(store.load("m").unwrap().unwrap().0, b"y");
    assert!(store.load("none").unwrap().is_none());
    assert!(!store.is_leased("a").unwrap());
    let mut listed = 0;
    let mut count = |_| {
        listed += 1;
        Ok(())
    };
    store.list("", &mut count).unwrap();
    assert_eq!(listed, 2);
    let store = store.using(Reserve::Whole);
    for changed in [
        store.put("b", &[b"x"]),
        store.swap("b", None, b"x").map(drop),
        store.lease("b", b"x").map(drop),
        store.delete("a").map(drop),
        store.sweep().map(drop),
    ] {
        assert!(matches!(changed, Err(StoreError::Unwritable { why, .. }) if why.contains("read-only")));
    }
}

/// Two hosts whose locks knew nothing of each other lost every snapshot, without a word.
#[test]
fn what_other_hosts_may_see_is_only_read() {
    let (fs, store) = simulated();
    store.put("a", &[b"x"]).unwrap();
    fs.set_shared_type("nfs4");
    let refused = |fs: SimFs, said: &str| {
        let store = SimStore::open_on(fs.clone()).unwrap();
        let files = fs.op_count();
        for result in [
            store.put("b", &[b"y"]),
            store.writer("b").map(drop),
            store.swap("b", None, b"y").map(drop),
            store.lease("b", b"y").map(drop),
            store.punch("a", &[(0, 1)]),
            store.delete("a").map(drop),
            store.sweep().map(drop),
        ] {
            match result {
                Err(StoreError::Unwritable { why, .. }) => assert!(why.contains(said), "{why}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(fs.op_count(), files, "nothing was changed");
        assert_eq!(store.read("a", 1).unwrap(), b"x");
        assert!(!store.is_leased("a").unwrap() && store.len("a").unwrap() == 1);
    };
    refused(fs.process(), "other hosts may see its file system (nfs4)");
    assert!(matches!(SimStore::create_on(fs.process()), Err(StoreError::Unwritable { .. })));
    // One host has said that it alone writes.
    let mine = SimStore::create_on_one_host(fs.process_on(1)).unwrap();
    mine.put("mine", &[b"y"]).unwrap();
    SimStore::open_on(fs.process_on(1)).unwrap().put("mine-too", &[b"y"]).unwrap();
    refused(fs.process_on(2), "only host");
    // Now another one has.
    SimStore::create_on_one_host(fs.process_on(2)).unwrap().put("theirs", &[b"y"]).unwrap();
    refused(fs.process_on(1), "only host");
}

#[test]
fn a_store_is_not_made_where_other_hosts_may_see_it() {
    let fs = SimFs::new(1);
    fs.set_shared_type("fuse.sshfs");
    assert!(matches!(SimStore::create_on(fs.process()), Err(StoreError::Unwritable { .. })));
    assert!(fs.file_names("").is_empty(), "a refusal leaves nothing");
    SimStore::create_on_one_host(fs.process()).unwrap().put("a", &[b"x"]).unwrap();
    SimStore::create_on(fs.process()).unwrap().put("b", &[b"x"]).unwrap();
}

/// Stopped at every step, the record is that of one host or of the other.
#[test]
fn a_record_of_the_one_host_is_whole() {
    for seed in 0..30 {
        for stop in 1.. {
            let fs = SimFs::new(seed);
            SimStore::create_on_one_host(fs.process_on(1)).unwrap();
            fs.set_shared_type("nfs4");
            fs.stop_after(stop);
            let done = SimStore::create_on_one_host(fs.process_on(2)).is_ok();
            let reached = fs.is_stopped();
            let fs = fs.crash();
            let may = |host| SimStore::open_on(fs.process_on(host)).unwrap().put("a", &[b"x"]).is_ok();
            if may(2) {
                assert!(!may(1));
            } else {
                assert!(!done && may(1), "seed {seed} stop {stop}");
            }
            if !reached {
                break;
            }
        }
    }
}

/// A process that is stopped keeps its locks: waiting for them ends.
#[test]
fn waiting_for_a_lock_ends() {
    let fs = SimFs::new(1);
    let options = StoreOptions { lock_wait: Duration::from_millis(20), ..StoreOptions::default() };
    SimStore::create_on(fs.process()).unwrap().swap("a", None, b"x").unwrap();
    let stopped = fs.process();
    let file = stopped.open(&format!("locks/{:02x}", locks::number_of("a")), Access::Create).unwrap();
    assert!(stopped.lock(&file, Lock::Exclusive, false).unwrap());
    let store = SimStore::open_fs(fs.process(), &options).unwrap();
    let (bytes, tag) = store.load("a").unwrap().unwrap();
    assert_eq!(bytes, b"x");
    for result in [store.swap("a", Some(tag), b"y").map(drop), store.delete("a").map(drop)] {
        match result {
            Err(StoreError::Locked { object, holder, .. }) => {
                assert_eq!((object.as_str(), holder.as_str()), ("a", "another simulated process"));
            }
            other => panic!("{other:?}"),
        }
    }
    // Threads that queue behind one that waits do not each wait as long again.
    drop(file);
    store.swap("a", Some(tag), b"y").unwrap();
}

#[test]
fn a_file_system_without_holes_says_so() {
    let (fs, store) = simulated();
    store.put("a", &[&[7; 1000]]).unwrap();
    fs.lack(Lack::Punch);
    assert!(
        matches!(store.punch("a", &[(0, 512)]), Err(StoreError::Unsuitable { why, .. }) if why.contains("holes"))
    );
    assert_eq!(store.read("a", 1000).unwrap(), [7; 1000]);
}

#[test]
fn a_mount_that_turned_read_only_says_so() {
    let (fs, store) = simulated();
    store.put("a", &[b"x"]).unwrap();
    fs.lack(Lack::Writing);
    for result in
        [store.put("b", &[b"x"]), store.swap("b", None, b"x").map(drop), store.delete("a").map(drop)]
    {
        assert!(matches!(result, Err(StoreError::Unwritable { why, .. }) if why.contains("read-only")));
    }
    assert_eq!(store.read("a", 1).unwrap(), b"x");
}

#[test]
fn a_sweep_takes_only_what_is_dead() {
    let (fs, store) = simulated();
    let other = SimStore::open_on(fs.process()).unwrap();
    let mut dead = other.writer("dead").unwrap();
    dead.append(&[1; 1 << 20]).unwrap();
    let mut alive = store.writer("alive").unwrap();
    alive.append(&[2; 1 << 20]).unwrap();
    assert_eq!(store.sweep().unwrap(), 0);
    other.file_system().kill();
    assert_eq!(store.sweep().unwrap(), 1 << 20);
    assert!(dead.finish().is_err());
    alive.finish().unwrap();
    assert_eq!(store.len("alive").unwrap(), 1 << 20);
}

#[test]
fn a_sweep_removes_empty_directories() {
    let (fs, store) = simulated();
    store.put("disks/a/containers/1", &[b"x"]).unwrap();
    store.put("disks/b/containers/1", &[b"x"]).unwrap();
    assert!(store.delete("disks/a/containers/1").unwrap());
    store.sweep().unwrap();
    assert_eq!(fs.file_names("objects/disks"), ["b"]);
    // The names above a directory that was durable once are not.
    store.put("disks/a/containers/1", &[b"x"]).unwrap();
    let store = SimStore::open_on(fs.crash()).unwrap();
    assert_eq!(store.read("disks/a/containers/1", 1).unwrap(), b"x");
}

#[test]
fn a_directory_made_again_by_another_process_is_made_durable() {
    for seed in 0..50 {
        let fs = SimFs::new(seed);
        let one = SimStore::create_on(fs.clone()).unwrap();
        one.put("d/a", &[b"x"]).unwrap();
        assert!(one.delete("d/a").unwrap());
        fs.remove_dir("objects/d").unwrap();
        fs.process().make_dir("objects/d").unwrap();
        one.put("d/b", &[b"x"]).unwrap();
        let store = SimStore::open_on(fs.crash()).unwrap();
        assert_eq!(store.read("d/b", 1).unwrap(), b"x", "seed {seed}");
    }
}

#[test]
fn a_removal_is_durable_even_if_its_directory_went() {
    for seed in 0..50 {
        let fs = SimFs::new(seed);
        let store = SimStore::create_on(fs.clone()).unwrap();
        store.put("d/e/a", &[b"x"]).unwrap();
        let other = fs.process();
        other.unlink("objects/d/e/a").unwrap();
        other.remove_dir("objects/d/e").unwrap();
        assert!(!store.delete("d/e/a").unwrap());
        let store = SimStore::open_on(fs.crash()).unwrap();
        assert!(matches!(store.len("d/e/a"), Err(StoreError::NotFound { .. })), "seed {seed}");
    }
}

#[test]
fn existence_that_was_told_stays() {
    for seed in 0..200 {
        let fs = SimFs::new(seed);
        let store = SimStore::create_on(fs.clone()).unwrap();
        fs.stop_after(5 + seed % 12);
        let put = store.put("d/a", &[b"x"]);
        let fs = fs.restart();
        let store = SimStore::open_on(fs.clone()).unwrap();
        let again = store.writer("d/a").and_then(|writer| writer.finish());
        let told = put.is_ok() || matches!(again, Ok(()) | Err(StoreError::AlreadyExists { .. }));
        assert!(told);
        let found = SimStore::open_on(fs.crash()).unwrap().len("d/a");
        assert!(found.is_ok(), "seed {seed}: {found:?}");
    }
}

#[test]
fn lock_files_removed_by_hand_are_made_again() {
    let (fs, one) = simulated();
    let two = SimStore::open_on(fs.process()).unwrap();
    let mut tag = one.swap("a", None, b"0").unwrap();
    for i in 0..10 {
        for name in fs.file_names("locks") {
            fs.unlink(&format!("locks/{name}")).unwrap();
        }
        // Both open the new file, or one of them would be alone with the old one.
        let held = one.tree.lock("a").unwrap();
        let other = two.clone();
        let waiting = std::thread::spawn(move || other.swap("a", Some(tag), format!("{i}").as_bytes()));
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(!waiting.is_finished());
        drop(held);
        tag = waiting.join().unwrap().unwrap();
    }
}

#[test]
fn an_object_is_held_at_every_moment_of_its_replacement() {
    let (_, store) = simulated();
    let mut hold = store.lease("a", b"x").unwrap();
    std::thread::scope(|scope| {
        let replacing = scope.spawn(move || {
            for _ in 0..5000 {
                hold.replace(b"y").unwrap();
            }
            hold
        });
        while !replacing.is_finished() {
            assert!(store.is_leased("a").unwrap());
        }
        replacing.join().unwrap();
    });
    assert!(!store.is_leased("a").unwrap());
}

#[test]
fn a_deletion_waits_for_a_swap() {
    let (_, store) = simulated();
    store.swap("a", None, b"x").unwrap();
    let lock = store.tree.lock("a").unwrap();
    let other = store.clone();
    let waiting = std::thread::spawn(move || other.delete("a"));
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(store.load("a").unwrap().is_some());
    drop(lock);
    assert!(waiting.join().unwrap().unwrap());
}

#[test]
fn an_absence_that_was_loaded_stays() {
    for seed in 0..50 {
        let fs = SimFs::new(seed);
        let store = SimStore::create_on(fs.clone()).unwrap();
        store.swap("d/a", None, b"x").unwrap();
        // Another process deletes it and dies before its sync.
        fs.process().unlink("objects/d/a").unwrap();
        assert!(store.load("d/a").unwrap().is_none());
        let store = SimStore::open_on(fs.crash()).unwrap();
        assert!(store.load("d/a").unwrap().is_none(), "seed {seed}");
    }
}

#[test]
fn a_replaceable_object_has_a_longest_length() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::create(dir.path()).unwrap();
    store.swap("a", None, b"x").unwrap();
    let file = std::fs::File::options().write(true).open(dir.path().join("objects/a")).unwrap();
    file.set_len(REPLACEABLE_BYTES_MAX + 1).unwrap();
    assert!(matches!(store.load("a"), Err(StoreError::TooLong { .. })));
    assert!(matches!(store.swap("a", None, b"y"), Err(StoreError::TooLong { .. })));
}

#[test]
fn a_swap_settles_what_another_object_left_in_its_lock_file() {
    let number = locks::number_of("a/m");
    let neighbour = (0..).map(|i| format!("b{i}/m")).find(|name| locks::number_of(name) == number).unwrap();
    for seed in 0..50 {
        let fs = SimFs::new(seed);
        let store = SimStore::create_on(fs.clone()).unwrap();
        let tag = store.swap("a/m", None, b"old").unwrap();
        let dying = SimStore::open_on(fs.process()).unwrap();
        fs.fail_next(SimOp::SyncDir, io_error(Errno::IO));
        assert!(dying.swap("a/m", Some(tag), b"new").is_err());
        dying.file_system().kill();
        store.swap(&neighbour, None, b"x").unwrap();
        assert_eq!(store.load("a/m").unwrap().unwrap().0, b"new");
        let store = SimStore::open_on(fs.crash()).unwrap();
        assert_eq!(store.load("a/m").unwrap().unwrap().0, b"new", "seed {seed}");
    }
}

#[test]
fn a_lock_file_torn_by_a_crash_is_no_obstacle() {
    let (fs, store) = simulated();
    let tag = store.swap("a", None, b"one").unwrap();
    for name in fs.file_names("locks") {
        let file = fs.open(&format!("locks/{name}"), Access::Write).unwrap();
        crate::file_system::write_full(&fs, &file, &[0xff; 3000], 0).unwrap();
    }
    let store = SimStore::open_on(fs.process()).unwrap();
    let (_, loaded) = store.load("a").unwrap().unwrap();
    assert_eq!(loaded, tag);
    store.swap("a", Some(tag), b"two").unwrap();
    assert!(!store.tree.locks.is_unsettled(&fs, "a").unwrap());
}

#[test]
fn removed_objects_do_not_stay_open() {
    let fs = SimFs::new(1);
    let reader = SimStore::create_on(fs.clone()).unwrap();
    let other = SimStore::open_on(fs.process()).unwrap();
    fs.set_capacity(10 << 20);
    let empty = reader.free().unwrap();
    for i in 0..100 {
        reader.put(&format!("{i}"), &[&[1; 10_000]]).unwrap();
        reader.read_at(&format!("{i}"), 0, &mut [0]).unwrap();
    }
    for i in 0..100 {
        assert!(other.delete(&format!("{i}")).unwrap());
    }
    assert_eq!(reader.free().unwrap(), empty);
    reader.put("own", &[&[1; 10_000]]).unwrap();
    reader.read_at("own", 0, &mut [0]).unwrap();
    assert!(reader.delete("own").unwrap());
    assert_eq!(fs.free().unwrap(), empty, "its own deletions give space back at once");
}

#[test]
fn a_file_opened_before_a_removal_is_not_kept_after_it() {
    let (fs, store) = simulated();
    store.put("a", &[b"x"]).unwrap();
    fs.set_capacity(fs.used_bytes() + (1 << 20));
    let full = fs.free().unwrap();
    let file = Arc::new(store.open_object("a", Access::Read).unwrap().0);
    assert!(store.delete("a").unwrap());
    store.tree.descriptors.insert(&fs, "a", &file);
    drop(file);
    assert!(fs.free().unwrap() > full);
}

/// Lets a simulated disk have no byte and no inode left.
fn fill(fs: &SimFs) {
    fs.set_capacity(fs.used_bytes());
    fs.set_inodes(fs.used_inodes());
}

fn make_room(fs: &SimFs) {
    fs.set_capacity(u64::MAX);
    fs.set_inodes(usize::MAX);
}

fn is_full<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(StoreError::Full { .. })), "{result:?}");
}

/// Every change makes a file first: on a full disk nothing could be held, and so nothing deleted or read.
#[test]
fn the_reserve_serves_every_change_on_a_full_disk() {
    let (fs, store) = simulated();
    let whole = fs.file_names("reserve");
    assert!(whole.len() > 40);
    let tag = store.swap("m", None, b"old").unwrap();
    store.put("old", &[&[7; 5000]]).unwrap();
    fill(&fs);
    is_full(store.put("a", &[b"x"]));
    is_full(store.swap("m", Some(tag), b"new"));
    is_full(store.lease("held", b"x").map(drop));
    assert_eq!(fs.file_names("reserve"), whole, "who may not use it does not");
    let store = SimStore::open_on(fs.process()).unwrap().using(Reserve::Whole);
    let long = vec![3; 300_000];
    // In directories that are there, and in new ones.
    store.put("a", &[b"x", b"y"]).unwrap();
    fill(&fs);
    store.put("d/e/b", &[&long]).unwrap();
    fill(&fs);
    store.swap("m", Some(tag), &long).unwrap();
    fill(&fs);
    store.swap("n/m", None, b"new").unwrap();
    fill(&fs);
    let mut held = store.lease("s/held", b"x").unwrap();
    fill(&fs);
    held.replace(b"y").unwrap();
    fill(&fs);
    let mut writer = store.writer("d/written").unwrap();
    for piece in 0..5u8 {
        writer.append(&[piece; 200_000]).unwrap();
        fill(&fs);
    }
    writer.finish().unwrap();
    fill(&fs);
    store.punch("old", &[(512, 1024)]).unwrap();
    assert!(store.delete("old").unwrap());
    assert_eq!(store.read("a", 10).unwrap(), b"xy");
    assert!(store.read("d/e/b", 1 << 20).unwrap() == long);
    assert!(store.load("m").unwrap().unwrap().0 == long);
    let written = store.read("d/written", 1 << 20).unwrap();
    assert!(
        written.len() == 1_000_000 && (0..5).all(|n| written[n * 200_000..][..200_000] == [n as u8; 200_000])
    );
    assert!(store.is_leased("s/held").unwrap());
    assert!(fs.file_names("tmp").is_empty());
    assert!(fs.file_names("reserve").len() < whole.len());
    // It is complete again as soon as there is room.
    store.fill_reserve().unwrap();
    assert!(fs.file_names("reserve").len() < whole.len());
    make_room(&fs);
    store.fill_reserve().unwrap();
    assert_eq!(fs.file_names("reserve"), whole);
}

/// XFS frees removed files in the background. On a busy machine a deletion used up the reserve, file after file, could not
/// make it complete again, and the next one failed for lack of space.
#[test]
fn space_that_is_free_late_is_waited_for() {
    let (fs, store) = simulated();
    let whole = fs.file_names("reserve");
    let mut tag = store.swap("m", None, b"0").unwrap();
    store.put("old", &[&vec![7; 10 << 20]]).unwrap();
    fill(&fs);
    fs.free_late(Duration::from_millis(300));
    is_full(store.put("a", &[b"x"]));
    assert_eq!(fs.paused(), Duration::ZERO, "who may not use the reserve does not wait");
    let deletion = store.using(Reserve::Whole);
    for n in 0..200u8 {
        tag = deletion.swap("m", Some(tag), &[n]).unwrap();
        if n % 20 == 0 {
            deletion.put(&format!("d/{n}/a"), &[b"x"]).unwrap();
            assert!(deletion.delete(&format!("d/{n}/a")).unwrap());
            deletion.sweep().unwrap();
        }
    }
    assert!(deletion.delete("old").unwrap());
    deletion.fill_reserve().unwrap();
    assert_eq!(fs.file_names("reserve"), whole);
    assert!(fs.file_names("tmp").is_empty());
}

#[test]
fn waiting_in_vain_for_space_ends() {
    let (fs, store) = simulated();
    fill(&fs);
    let deletion = store.using(Reserve::Whole);
    let puts = (0..100).take_while(|n| deletion.put(&format!("a{n}"), &[b"x"]).is_ok()).count();
    assert!(puts > 40 && fs.file_names("reserve").is_empty());
    for n in 0..20 {
        is_full(deletion.put(&format!("b{n}"), &[b"x"]));
        fs.set_capacity(fs.used_bytes());
    }
    assert!(fs.paused() <= Duration::from_secs(3), "{:?}", fs.paused());
    assert!(fs.file_names("tmp").is_empty());
}

#[test]
fn readers_leave_a_part_of_the_reserve_to_deletions() {
    let (fs, store) = simulated();
    let whole = fs.file_names("reserve").len();
    let (reader, deletion) = (store.using(Reserve::Part), store.using(Reserve::Whole));
    let mut holds = Vec::new();
    loop {
        fill(&fs);
        match reader.lease(&format!("readers/{}", holds.len()), b"x") {
            Ok(hold) => holds.push(hold),
            Err(StoreError::Full { .. }) => break,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(holds.len() >= 10);
    let left = fs.file_names("reserve").len();
    assert!(left * 2 >= whole, "{left} of {whole}");
    fill(&fs);
    deletion.put("a", &[b"x"]).unwrap();
}

/// The reserve of a store that was made before there was one is made by the first to write.
#[test]
fn a_store_without_a_reserve_gets_one() {
    let (fs, store) = simulated();
    store.swap("a", None, b"x").unwrap();
    let whole = (fs.file_names("reserve"), fs.file_names("locks"));
    for dir in ["reserve", "locks"] {
        fs.file_names(dir).iter().for_each(|name| fs.unlink(&format!("{dir}/{name}")).unwrap());
        fs.remove_dir(dir).unwrap();
    }
    fs.make_dir("locks").unwrap();
    let store = SimStore::open_on(fs.process()).unwrap();
    assert_eq!(store.load("a").unwrap().unwrap().0, b"x");
    assert!(fs.file_names("").iter().all(|name| name != "reserve"));
    store.put("b", &[b"x"]).unwrap();
    assert_eq!((fs.file_names("reserve"), fs.file_names("locks")), whole);
    // One that is cut off, or too short after a power cut, is made again.
    fs.unlink("reserve/65536-07").unwrap();
    fs.open("reserve/65536-07", Access::CreateNew).unwrap();
    SimStore::open_on(fs.process()).unwrap().put("c", &[b"x"]).unwrap();
    assert_eq!(fs.stat("reserve/65536-07").unwrap().allocated, 65536);
}

/// A manifest grows to megabytes: the reserve has files for the next one.
#[test]
fn the_reserve_grows_with_what_is_replaced() {
    let (fs, store) = simulated();
    let mut bytes = vec![1; 5_000_000];
    let mut tag = store.swap("m", None, &bytes).unwrap();
    store.fill_reserve().unwrap();
    let long = fs.file_names("reserve").iter().filter(|name| name.starts_with("8388608-")).count();
    assert_eq!(long, 4);
    let store = SimStore::open_on(fs.process()).unwrap().using(Reserve::Whole);
    for n in 2..6 {
        fill(&fs);
        bytes.fill(n);
        tag = store.swap("m", Some(tag), &bytes).unwrap();
        assert!(store.load("m").unwrap().unwrap().0 == bytes);
    }
}

mod local {
    //! What only a real directory shows.

    use super::*;
    use std::os::unix::fs::symlink;

    fn unsuitable(result: Result<LocalStore>) -> String {
        match result {
            Err(StoreError::Unsuitable { why, .. }) => why,
            other => panic!("must be unsuitable, but: {other:?}"),
        }
    }

    #[test]
    fn a_directory_is_known_as_a_store_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/store");
        assert!(unsuitable(LocalStore::open(&path)).contains("no such directory"));
        LocalStore::create(&path).unwrap().put("a", &[b"x"]).unwrap();
        assert_eq!(LocalStore::create(&path).unwrap().read("a", 1).unwrap(), b"x");
        assert!(unsuitable(LocalStore::open(dir.path())).contains("no store"));
        assert!(unsuitable(LocalStore::create(dir.path())).contains("not empty"));
        std::fs::write(path.join("sapwood-store"), "sapwood store 2\n").unwrap();
        assert!(unsuitable(LocalStore::open(&path)).contains("\"sapwood store 2\""));
        assert!(unsuitable(LocalStore::create(&path)).contains("newer version"));
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(unsuitable(LocalStore::open(&file)).contains("not a directory"));
        assert!(unsuitable(LocalStore::create(&file)).contains("not a directory"));
    }

    #[test]
    fn strange_files_are_objects_that_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::create(dir.path()).unwrap();
        store.put("d/a", &[b"x"]).unwrap();
        let objects = dir.path().join("objects/d");
        symlink("a", objects.join("link")).unwrap();
        symlink("/etc", objects.join("dir")).unwrap();
        std::fs::write(objects.join(".hidden"), "x").unwrap();
        std::fs::write(objects.join("with space"), "x").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, objects.join("pipe"), 0o600.into()).unwrap();
        drop(std::os::unix::net::UnixListener::bind(objects.join("socket")).unwrap());
        let mut seen = Vec::new();
        store
            .list("", &mut |entry| {
                seen.push(entry.name);
                Ok(())
            })
            .unwrap();
        seen.sort();
        assert_eq!(seen, ["d/a", "d/dir", "d/link", "d/pipe", "d/socket"]);
        for name in ["d/link", "d/dir", "d/pipe", "d/socket"] {
            let unreadable = |e| matches!(e, StoreError::Unreadable { object, .. } if object == name);
            assert!(store.read(name, 10).is_err_and(unreadable), "{name}");
            assert!(store.read_at(name, 0, &mut [0]).is_err_and(unreadable), "{name}");
            assert!(store.map(name, 10).is_err_and(unreadable), "{name}");
            assert!(store.len(name).is_err_and(unreadable), "{name}");
            assert!(store.allocated(name).is_err_and(unreadable), "{name}");
            assert!(store.load(name).is_err_and(unreadable), "{name}");
            assert!(store.punch(name, &[(0, 1)]).is_err_and(unreadable), "{name}");
            assert!(store.swap(name, None, b"y").is_err_and(unreadable), "{name}");
            assert!(matches!(store.put(name, &[b"y"]), Err(StoreError::AlreadyExists { .. })), "{name}");
            assert!(!store.is_leased(name).unwrap(), "{name}");
            store.will_read(name, 0, 1);
            assert!(store.delete(name).unwrap(), "{name}");
        }
        assert!(std::path::Path::new("/etc/passwd").exists(), "what links lead to stays");
        assert!(store.put("d/a/b", &[b"y"]).is_err());
        assert_eq!(store.read("d/a", 1).unwrap(), b"x");
    }

    #[test]
    fn a_store_may_be_moved_while_it_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::create(dir.path().join("here")).unwrap();
        std::fs::rename(dir.path().join("here"), dir.path().join("there")).unwrap();
        store.put("a", &[b"x"]).unwrap();
        assert_eq!(LocalStore::open(dir.path().join("there")).unwrap().read("a", 1).unwrap(), b"x");
    }

    #[test]
    fn hard_links_do_where_rename_cannot() {
        let dir = tempfile::tempdir().unwrap();
        let fs = RealFs::open(dir.path()).unwrap();
        for name in ["a", "b"] {
            fs.open(name, Access::CreateNew).unwrap();
        }
        assert_eq!(fs.link_new("a", "b").unwrap_err().kind(), ErrorKind::AlreadyExists);
        fs.link_new("a", "c").unwrap();
        assert_eq!(fs.stat("a").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs.stat("c").unwrap().links, 1);
    }

    #[test]
    fn young_empty_directories_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::create(dir.path()).unwrap();
        store.put("d/a", &[b"x"]).unwrap();
        assert!(store.delete("d/a").unwrap());
        store.sweep().unwrap();
        let emptied = dir.path().join("objects/d");
        assert!(emptied.exists());
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
        std::fs::File::open(&emptied).unwrap().set_modified(old).unwrap();
        store.sweep().unwrap();
        assert!(!emptied.exists());
        store.put("d/a", &[b"x"]).unwrap();
    }

    #[test]
    fn readers_and_sweepers_and_writers_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::create(dir.path()).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        assert_eq!(store.sweep().unwrap(), 0);
                    }
                });
            }
            for i in 0..300 {
                store.put(&format!("d/{i}"), &[&[1; 5000]]).unwrap();
                let mut part = [0; 10];
                store.read_at(&format!("d/{i}"), 4990, &mut part).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}

/// A listing told objects twice, and collection took the second of the two for an orphan.
#[test]
fn a_listing_tells_no_object_twice_although_others_are_removed_meanwhile() {
    // Of some lengths, all that one call of the system tells stays, and all that the next one would tell goes.
    for (parent, lengths) in [("/dev/shm", 1..40), ("/tmp", 15..16)] {
        for left in lengths.filter(|_| Path::new(parent).is_dir()) {
            let dir = tempfile::tempdir_in(parent).unwrap();
            let store = LocalStore::create(dir.path()).unwrap();
            let names: Vec<String> = (0..50).map(|n| format!("recipes/00000073.{n:016x}.root")).collect();
            names.iter().for_each(|name| store.put(name, &[b"x"]).unwrap());
            let (go, stay) = names.split_at(names.len() - left);
            let mut told = Vec::new();
            store
                .list("recipes/", &mut |e| {
                    if told.is_empty() {
                        for name in go {
                            store.delete(name)?;
                        }
                    }
                    told.push(e.name);
                    Ok(())
                })
                .unwrap();
            told.sort();
            let all = told.len();
            told.dedup();
            assert_eq!(told.len(), all, "told twice in {parent:?}, {left} left");
            assert!(stay.iter().all(|name| told.contains(name)), "not told in {parent:?}, {left} left");
        }
    }
}
