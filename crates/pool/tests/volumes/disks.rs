//! Disks and files are one thing: files as devices, volumes as files, copies of either that take no time, and the space that
//! each takes.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

use crate::common::{assert_whole, make, open, BLOCK};
use export::files::{Allocate, Caching, Change, Files, New, Rename, SetAttribute, Stat};
use export::{BlockDevice, NodeId};
use pool::{FileSystem, Pool, PoolError, Sharing};
use rustix::io::Errno;
use store::SimFs;

const BLOCKS: u64 = 8000;
const FILE: u32 = 0o100_644;
const MIB: u64 = 1 << 20;

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn system(fs: &SimFs) -> (Arc<Pool>, Arc<FileSystem>) {
    let pool = open(fs, BLOCKS).unwrap();
    let system = FileSystem::open(Arc::clone(&pool), 1, 2).unwrap();
    (pool, Arc::new(system))
}

fn fresh(number: u64) -> (SimFs, Arc<Pool>, Arc<FileSystem>) {
    let fs = SimFs::new(number);
    make(&fs, BLOCKS, 256);
    let (pool, system) = system(&fs);
    (fs, pool, system)
}

/// So many blocks that nothing else has; `kind` tells them from others.
fn blocks(kind: u64, count: usize) -> Vec<u8> {
    let mut data = vec![0; count * BLOCK];
    for (n, word) in data.chunks_exact_mut(8).enumerate() {
        let value = (kind << 40 | n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        word.copy_from_slice(&value.to_le_bytes());
    }
    data
}

fn new_file(files: &FileSystem, label: &str, data: &[u8]) -> Stat {
    let new = New { mode: FILE, user: 7, group: 8, device: 0, target: b"" };
    let made = files.make(NodeId::ROOT, name(label), &new).unwrap();
    if !data.is_empty() {
        files.write(made.id, 0, data).unwrap();
    }
    files.stat(made.id).unwrap()
}

fn read_all(files: &dyn Files, id: NodeId) -> Vec<u8> {
    let mut data = vec![0; files.stat(id).unwrap().size as usize];
    assert_eq!(files.read(id, 0, &mut data).unwrap(), data.len());
    data
}

fn device_content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut data = vec![0; device.size() as usize];
    device.read_at(0, &mut data).unwrap();
    data
}

#[track_caller]
fn refuses<T>(result: io::Result<T>, errno: Errno) {
    assert_eq!(result.err().and_then(|e| e.raw_os_error()), Some(errno.raw_os_error()));
}

#[track_caller]
fn refused<T>(result: pool::Result<T>, words: &str) {
    match result.err() {
        Some(PoolError::Refused(why)) => assert!(why.contains(words), "{why}"),
        other => panic!("not refused, but {other:?}"),
    }
}

fn volumes(files: &FileSystem) -> NodeId {
    files.lookup(NodeId::ROOT, name(".volumes")).unwrap().id
}

fn resize(files: &FileSystem, id: NodeId, size: u64) -> io::Result<Stat> {
    files.change(id, &Change { size: Some(size), ..Change::default() })
}

/// `du`: blocks that the file has, whether others have them as well; no holes, no zeros.
#[test]
fn files_tell_the_space_that_they_take() {
    let (fs, pool, files) = fresh(1);
    let block = BLOCK as u64;
    let stored = |id: NodeId| files.stat(id).unwrap().stored / block;
    let file = new_file(&files, "a", &blocks(1, 700));
    assert_eq!(stored(file.id), 700);
    // Far behind the end, a hole between, and a part of a block.
    files.write(file.id, 5 * MIB, &blocks(2, 3)[..2 * BLOCK + 1]).unwrap();
    assert_eq!(stored(file.id), 703);
    // The same again changes nothing, zeros take nothing, and blocks that are there already count.
    files.write(file.id, 0, &blocks(3, 10)).unwrap();
    files.write(file.id, 10 * block, &vec![0; 10 * BLOCK]).unwrap();
    files.write(file.id, 6 * MIB, &blocks(1, 4)).unwrap();
    assert_eq!(stored(file.id), 703 - 10 + 4);
    files.allocate(file.id, 0..600 * block, Allocate::Punch).unwrap();
    assert_eq!(stored(file.id), 703 - 10 + 4 - 590);
    let copy = new_file(&files, "copy", &[]);
    files.copy((file.id, 0), (copy.id, 0), 1 << 40).unwrap();
    assert_eq!(stored(copy.id), stored(file.id));
    // A whole leaf that the copy has as well, and parts of others.
    files.allocate(copy.id, 0..4 * MIB, Allocate::Punch).unwrap();
    assert_eq!((stored(copy.id), stored(file.id)), (7, 107));
    resize(&files, file.id, 601 * block).unwrap();
    assert_eq!(stored(file.id), 1);
    let again = files.lookup(NodeId::ROOT, name("a")).unwrap();
    assert_eq!(again.stored, block);
    pool.create_volume("v", 40 * MIB, Sharing::Inline).unwrap();
    pool.volume("v").unwrap().write_at(30 * MIB, &blocks(9, 5)).unwrap();
    let volume = files.lookup(volumes(&files), name("v")).unwrap();
    assert_eq!((volume.size, volume.stored), (40 * MIB, 5 * block));
    pool.resize("v", 20 * MIB).unwrap();
    pool.resize("v", 60 * MIB).unwrap();
    let volume = files.lookup(volumes(&files), name("v")).unwrap();
    assert_eq!((volume.size, volume.stored), (60 * MIB, 0));
    files.sync().unwrap();
    // The check compares what each slot says with its map.
    assert_whole(&pool);
    drop((files, pool));
    let (pool, files) = system(&fs.crash());
    let found = files.lookup(NodeId::ROOT, name("copy")).unwrap();
    assert_eq!(found.stored, 7 * block);
    assert_whole(&pool);
}

#[test]
fn a_file_is_served_as_a_device() {
    let (fs, pool, files) = fresh(2);
    let data = blocks(1, 600);
    let file = new_file(&files, "disk.raw", &data);
    let path = name("disk.raw");
    // Not while somebody has it open: the kernel may have changes.
    files.open(file.id, false).unwrap();
    refused(files.attach(path), "is open on the mount");
    files.close(file.id, false);
    let device = files.attach(name("/disk.raw")).unwrap();
    assert_eq!((device.size(), device.is_writable()), (data.len() as u64, true));
    assert!(device_content(&device) == data);
    // A second client of the same server may come.
    let second = files.attach(path).unwrap();
    device.write_at(4096, &blocks(2, 2)).unwrap();
    second.zero(0..4096, true).unwrap();
    device.flush().unwrap();
    let mut expected = data.clone();
    expected[..BLOCK].fill(0);
    expected[BLOCK..3 * BLOCK].copy_from_slice(&blocks(2, 2));
    assert!(device_content(&second) == expected && read_all(&*files, file.id) == expected);
    assert_eq!(files.stat(file.id).unwrap().stored, 599 * BLOCK as u64);
    // As a file it can be read, past all caches, and not be written.
    assert_eq!(files.open(file.id, false).unwrap(), Caching::Never);
    files.close(file.id, false);
    assert!(files.may_change(file.id));
    refuses(files.open(file.id, true), Errno::BUSY);
    refuses(resize(&files, file.id, 512), Errno::BUSY);
    // It may be renamed, and copied, and what was flushed is there after a kill.
    files.rename((NodeId::ROOT, path), (NodeId::ROOT, name("other.raw")), Rename::Replace).unwrap();
    let copy = new_file(&files, "copy", &[]);
    files.copy((file.id, 0), (copy.id, 0), u64::MAX).unwrap();
    assert!(read_all(&*files, copy.id) == expected);
    files.sync().unwrap();
    second.write_at(0, &blocks(3, 1)).unwrap();
    second.flush().unwrap();
    drop((device, second, files, pool));
    expected[..BLOCK].copy_from_slice(&blocks(3, 1));
    let (pool, files) = system(&fs.crash());
    let file = files.lookup(NodeId::ROOT, name("other.raw")).unwrap();
    assert!(read_all(&*files, file.id) == expected);
    assert_eq!(files.open(file.id, true).unwrap(), Caching::Keep);
    files.close(file.id, true);
    assert_whole(&pool);
}

/// A file of which nothing was written has no volume before it is a device.
#[test]
fn an_empty_disk_is_filled_through_its_device() {
    let (fs, pool, files) = fresh(3);
    let file = new_file(&files, "disk", &[]);
    refused(files.attach(name("disk")), "multiple of 512");
    resize(&files, file.id, 3 * MIB + 5).unwrap();
    refused(files.attach(name("disk")), "multiple of 512");
    resize(&files, file.id, 3 * MIB).unwrap();
    let device = files.attach(name("disk")).unwrap();
    device.write_at(3 * MIB - 4096, &blocks(1, 1)).unwrap();
    // Only the device is flushed, not the file system.
    device.flush().unwrap();
    drop((device, files, pool));
    let (pool, files) = system(&fs.crash());
    let file = files.lookup(NodeId::ROOT, name("disk")).unwrap();
    let content = read_all(&*files, file.id);
    assert!(content[3 * MIB as usize - BLOCK..] == blocks(1, 1));
    assert!(content[..3 * MIB as usize - BLOCK].iter().all(|b| *b == 0));
    refused(files.attach(name("none")), "No such file");
    refused(files.attach(name("")), "is not a regular file");
    refused(files.attach(name("disk/x")), "Not a directory");
    refused(files.attach(name(".volumes/v")), "No such file");
    assert_whole(&pool);
}

#[test]
fn a_removed_file_stays_until_its_device_is_gone() {
    let (_fs, pool, files) = fresh(4);
    let free = pool.stats().free_bytes;
    let data = blocks(1, 300);
    let file = new_file(&files, "disk", &data);
    let device = files.attach(name("disk")).unwrap();
    files.unlink(NodeId::ROOT, name("disk")).unwrap();
    files.forget(file.id, 1);
    files.sync().unwrap();
    pool.settle();
    device.write_at(0, &blocks(2, 1)).unwrap();
    let mut expected = data;
    expected[..BLOCK].copy_from_slice(&blocks(2, 1));
    assert!(device_content(&device) == expected);
    assert!(pool.stats().free_bytes + 300 * BLOCK as u64 <= free);
    drop(device);
    files.sync().unwrap();
    pool.settle();
    assert!(pool.stats().free_bytes + 30 * BLOCK as u64 >= free);
    assert_whole(&pool);
}

#[test]
fn volumes_are_files_in_a_directory_that_nobody_meets() {
    let (_fs, pool, files) = fresh(5);
    pool.create_volume("web/01", MIB, Sharing::Inline).unwrap();
    pool.create_volume("db", 2 * MIB, Sharing::Off).unwrap();
    pool.volume("db").unwrap().write_at(0, &blocks(1, 4)).unwrap();
    pool.snapshot("db", "monday").unwrap();
    let file = new_file(&files, "a", b"x");
    let root = NodeId::ROOT;
    let directory = volumes(&files);
    let names = |id| -> Vec<String> {
        let mut names: Vec<_> =
            files.list(id).unwrap().0.into_iter().map(|n| n.name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(root), ["a"], "it is not listed");
    assert_eq!(names(directory), ["db", "db@monday", "web%2F01"]);
    assert_eq!(files.list(directory).unwrap().1, root);
    let stat = |label| files.lookup(directory, name(label)).unwrap();
    assert_eq!(
        (stat("web%2F01").size, stat("web%2F01").mode, stat("db@monday").mode),
        (MIB, 0o100_600, 0o100_400)
    );
    for wrong in ["web/01", "none", "web%2f01", "#names", "db@", "%2F"] {
        refuses(files.lookup(directory, name(wrong)), Errno::NOENT);
    }
    // Nobody can make, move or remove what is there, nor put something in its place.
    let new = New { mode: FILE, user: 7, group: 8, device: 0, target: b"" };
    refuses(files.make(directory, name("new"), &new), Errno::PERM);
    refuses(files.make(root, name(".volumes"), &new), Errno::EXIST);
    refuses(files.unlink(directory, name("db")), Errno::PERM);
    refuses(files.remove_directory(root, name(".volumes")), Errno::BUSY);
    refuses(files.link(stat("db").id, root, name("db")), Errno::PERM);
    refuses(files.link(file.id, root, name(".volumes")), Errno::EXIST);
    refuses(files.rename((root, name("a")), (root, name(".volumes")), Rename::Replace), Errno::BUSY);
    refuses(files.rename((directory, name("db")), (root, name("db")), Rename::Replace), Errno::PERM);
    refuses(files.set_attribute(stat("db").id, name("user.x"), b"", SetAttribute::Any), Errno::PERM);
    refuses(files.attribute(stat("db").id, name("user.x")), Errno::NODATA);
    refuses(resize(&files, stat("db").id, 5), Errno::PERM);
    resize(&files, stat("db").id, 2 * MIB).unwrap();
    // Read and written as the disk that it is.
    let db = stat("db").id;
    assert_eq!(files.open(db, true).unwrap(), Caching::Never);
    files.write(db, 2 * MIB - 4096, &blocks(2, 1)).unwrap();
    refuses(files.write(db, 2 * MIB - 4095, &blocks(2, 1)), Errno::NOSPC);
    let mut expected = blocks(1, 512);
    expected[4 * BLOCK..].fill(0);
    expected[511 * BLOCK..].copy_from_slice(&blocks(2, 1));
    assert!(read_all(&*files, db) == expected);
    assert_eq!(files.seek(db, 0, true).unwrap(), 4 * BLOCK as u64);
    assert_eq!(files.seek(db, 4 * BLOCK as u64, false).unwrap(), 511 * BLOCK as u64);
    files.allocate(db, 0..4096, Allocate::Punch).unwrap();
    refuses(files.allocate(db, 0..3 * MIB, Allocate::Extend), Errno::NOSPC);
    // One way of writing at a time.
    refused(pool.attach("db"), "is open for writing as a file");
    refused(pool.delete("db@monday").and(pool.delete("db")), "in use");
    files.close(db, true);
    let device = pool.attach("db").unwrap();
    refuses(files.open(db, true), Errno::BUSY);
    assert_eq!(files.open(db, false).unwrap(), Caching::Never);
    device.write_at(0, &blocks(3, 1)).unwrap();
    let mut block = vec![0; BLOCK];
    files.read(db, 0, &mut block).unwrap();
    assert!(block == blocks(3, 1));
    drop(device);
    refused(pool.delete("db"), "in use");
    files.close(db, false);
    pool.delete("db").unwrap();
    refuses(files.lookup(directory, name("db")), Errno::NOENT);
    refuses(files.stat(db), Errno::STALE);
    assert_whole(&pool);
}

/// Snapshots cannot be written, whatever the caller may do.
#[test]
fn a_snapshot_is_a_file_that_is_only_read() {
    let (_fs, pool, files) = fresh(6);
    pool.create_volume("v", MIB, Sharing::Inline).unwrap();
    pool.volume("v").unwrap().write_at(0, &blocks(1, 256)).unwrap();
    pool.snapshot("v", "s").unwrap();
    pool.volume("v").unwrap().write_at(0, &blocks(2, 256)).unwrap();
    let snapshot = files.lookup(volumes(&files), name("v@s")).unwrap();
    refuses(files.open(snapshot.id, true), Errno::ROFS);
    files.open(snapshot.id, false).unwrap();
    assert!(read_all(&*files, snapshot.id) == blocks(1, 256));
    // Clients of a server may read it as well.
    assert!(device_content(&pool.attach("v@s").unwrap()) == blocks(1, 256));
    files.close(snapshot.id, false);
}

#[test]
fn volumes_become_files_and_files_volumes_in_no_time() {
    let (fs, pool, files) = fresh(7);
    let data = blocks(1, 600);
    pool.create_volume("v", data.len() as u64, Sharing::Inline).unwrap();
    pool.volume("v").unwrap().write_at(0, &data).unwrap();
    pool.snapshot("v", "s").unwrap();
    let free = pool.stats().free_bytes;
    // A volume, copied as `cp` does it.
    let copy = new_file(&files, "copy", &[]);
    let volume = files.lookup(volumes(&files), name("v")).unwrap();
    files.open(volume.id, false).unwrap();
    assert_eq!(files.copy((volume.id, 0), (copy.id, 0), 1 << 31).unwrap(), data.len() as u64);
    files.close(volume.id, false);
    // By commands: a snapshot and a volume to files, a file to a file and to a volume.
    files.clone_from_volume("v@s", name("of-snapshot")).unwrap();
    files.clone_from_volume("v", name("/of-volume")).unwrap();
    files.clone_file(name("of-volume"), name("of-file")).unwrap();
    files.clone_to_volume(name("copy"), "w").unwrap();
    assert!(free - pool.stats().free_bytes < 60 * BLOCK as u64, "clones take no space");
    files.write(copy.id, 0, &blocks(2, 1)).unwrap();
    pool.volume("w").unwrap().write_at(BLOCK as u64, &blocks(3, 1)).unwrap();
    refused(files.clone_to_volume(name("copy"), "w"), "already");
    let e = files.clone_to_volume(name("copy"), "w@x").map(drop).unwrap_err();
    assert!(matches!(&e, PoolError::Invalid(why) if why.contains("a name has")), "{e}");
    refused(files.clone_from_volume("v", name("copy")), "File exists");
    refused(files.clone_from_volume("v", name(".volumes")), "File exists");
    refused(files.clone_from_volume("v", name(".volumes/x")), "No such file");
    refused(files.clone_from_volume("v", name("none/x")), "No such file");
    refused(files.clone_from_volume("v", name("/")), "Invalid argument");
    files.open(copy.id, true).unwrap();
    refused(files.clone_to_volume(name("copy"), "x"), "open for writing");
    refused(files.clone_file(name("copy"), name("x")), "open for writing");
    files.close(copy.id, true);
    files.sync().unwrap();
    assert_whole(&pool);
    drop((files, pool));
    let (pool, files) = system(&fs.crash());
    let content = |label| read_all(&*files, files.lookup(NodeId::ROOT, name(label)).unwrap().id);
    for label in ["of-snapshot", "of-volume", "of-file"] {
        assert!(content(label) == data, "{label}");
    }
    assert!(content("copy")[BLOCK..] == data[BLOCK..] && content("copy")[..BLOCK] == blocks(2, 1));
    let w = device_content(&pool.attach("w").unwrap());
    assert!(
        w[..BLOCK] == data[..BLOCK]
            && w[BLOCK..2 * BLOCK] == blocks(3, 1)
            && w[2 * BLOCK..] == data[2 * BLOCK..]
    );
    // Who made them owns them, and they are files as others are.
    let made = files.lookup(NodeId::ROOT, name("of-volume")).unwrap();
    assert_eq!((made.mode, made.user, made.group, made.links), (0o100_600, 1, 2, 1));
    files.write(made.id, 10 * MIB, b"the end").unwrap();
    assert_eq!(files.stat(made.id).unwrap().size, 10 * MIB + 7);
    pool.delete("v@s").unwrap();
    pool.delete("v").unwrap();
    pool.settle();
    assert!(content("of-file") == data);
    assert_whole(&pool);
}

/// A volume that was a file shows nothing of what the file had behind its end, however large it becomes.
#[test]
fn a_volume_made_of_a_file_ends_where_the_file_does() {
    let (_fs, pool, files) = fresh(8);
    let file = new_file(&files, "a", &blocks(1, 100));
    resize(&files, file.id, 512 * 3).unwrap();
    let longer = new_file(&files, "longer", &blocks(2, 1));
    resize(&files, longer.id, 3 << 30).unwrap();
    files.clone_to_volume(name("a"), "v").unwrap();
    files.clone_to_volume(name("longer"), "w").unwrap();
    pool.resize("v", MIB).unwrap();
    let v = device_content(&pool.attach("v").unwrap());
    assert!(v[..1536] == blocks(1, 1)[..1536] && v[1536..].iter().all(|b| *b == 0));
    let w = pool.attach("w").unwrap();
    assert_eq!(w.size(), 3 << 30);
    w.write_at((3 << 30) - 4096, &blocks(3, 1)).unwrap();
    let mut block = vec![0; BLOCK];
    w.read_at(0, &mut block).unwrap();
    assert!(block == blocks(2, 1));
    assert_whole(&pool);
}

/// `cp` copies the data between holes piece by piece: no block is read, and nothing is there that was not copied.
#[test]
fn copies_in_pieces_take_no_space() {
    let (fs, pool, files) = fresh(9);
    let source = new_file(&files, "source", &blocks(1, 300));
    files.write(source.id, 8 * MIB, &blocks(2, 300)).unwrap();
    files.write(source.id, 12 * MIB, &blocks(3, 300)).unwrap();
    resize(&files, source.id, 20 * MIB).unwrap();
    let expected = read_all(&*files, source.id);
    let free = pool.stats().free_bytes;
    let copy = new_file(&files, "copy", &[]);
    files.open(copy.id, true).unwrap();
    let (mut at, mut copied) = (0, 0);
    while let Ok(data) = files.seek(source.id, at, false) {
        let end = files.seek(source.id, data, true).unwrap();
        at = data;
        while at < end {
            // The kernel cuts requests anywhere.
            let bytes = files.copy((source.id, at), (copy.id, at), (end - at).min(777_777)).unwrap();
            at += bytes;
            copied += bytes;
        }
    }
    assert_eq!(copied, 900 * BLOCK as u64);
    assert_eq!(files.stat(copy.id).unwrap().size, 12 * MIB + 300 * BLOCK as u64);
    resize(&files, copy.id, 20 * MIB).unwrap();
    files.close(copy.id, true);
    assert!(read_all(&*files, copy.id) == expected);
    assert_eq!(files.stat(copy.id).unwrap().stored, 900 * BLOCK as u64);
    files.sync().unwrap();
    assert!(free - pool.stats().free_bytes < 50 * BLOCK as u64);

    // The beginning only: the rest is not there when the copy grows, and takes no space when the source is gone.
    let head = new_file(&files, "head", &[]);
    files.open(head.id, true).unwrap();
    files.copy((source.id, 0), (head.id, 0), 5000).unwrap();
    assert_eq!(files.stat(head.id).unwrap().size, 5000);
    // Nothing is passed over that the source has.
    refuses(files.copy((source.id, 9000), (head.id, 9000), 5000), Errno::XDEV);
    // Nor copied to another place, nor over what is there.
    refuses(files.copy((source.id, 0), (head.id, 5000), 100), Errno::XDEV);
    refuses(files.copy((head.id, 0), (head.id, 0), 100), Errno::XDEV);
    let other = new_file(&files, "other", b"other");
    refuses(files.copy((source.id, 0), (other.id, 0), 5000), Errno::XDEV);
    files.sync().unwrap();
    let second = new_file(&files, "second", &[]);
    files.open(second.id, true).unwrap();
    files.copy((source.id, 0), (second.id, 0), MIB).unwrap();
    files.sync().unwrap();
    resize(&files, head.id, 10 * MIB).unwrap();
    let content = read_all(&*files, head.id);
    assert!(content[..5000] == expected[..5000] && content[5000..].iter().all(|b| *b == 0));
    files.close(head.id, true);
    assert_eq!(files.stat(head.id).unwrap().stored, 2 * BLOCK as u64);
    // Killed while the other one is open: its rest goes when the file system is opened again.
    drop((files, pool));
    let (pool, files) = system(&fs.crash());
    let second = files.lookup(NodeId::ROOT, name("second")).unwrap();
    assert_eq!((second.size, second.stored), (MIB, MIB));
    assert!(read_all(&*files, second.id) == expected[..MIB as usize]);
    assert_whole(&pool);
}
