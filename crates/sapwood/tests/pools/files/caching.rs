//! Rules about what was written and is not yet on its way: the kernel keeps it, and knows lengths and times meanwhile.

use super::{options, MIB};
use memmap2::MmapMut;
use rustix::fs::{
    copy_file_range, fallocate, seek, utimensat, AtFlags, FallocateFlags, OFlags, SeekFrom, Timespec,
    Timestamps, CWD,
};
use rustix::io::{pread, pwrite, Errno};
use rustix::process::Pid;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const KIB: u64 = 1024;

fn map(file: &File) -> MmapMut {
    // SAFETY: nobody shortens the file while it is mapped.
    unsafe { MmapMut::map_mut(file) }.unwrap()
}

/// A program finds data that was just written where a hole was, also if another one wrote it.
pub fn holes(dir: &Path) {
    let path = dir.join("just-written");
    let file = options().open(&path).unwrap();
    file.set_len(MIB as u64).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
    file.write_all_at(&[1; 4096], 512 * KIB).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(512 * KIB));
    assert_eq!(seek(&file, SeekFrom::Hole(512 * KIB)), Ok(516 * KIB));
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(0));
    assert_eq!(seek(&file, SeekFrom::Data(516 * KIB)), Err(Errno::NXIO));
    // Behind the end that was before.
    file.write_all_at(&[2; 4096], 2048 * KIB).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(516 * KIB)), Ok(2048 * KIB));
    assert_eq!(seek(&file, SeekFrom::Hole(2048 * KIB)), Ok(2052 * KIB));
    // Through memory, and asked by another who only reads.
    let mut memory = map(&file);
    memory[800 * KIB as usize] = 3;
    let reader = File::open(&path).unwrap();
    assert_eq!(seek(&reader, SeekFrom::Data(516 * KIB)), Ok(800 * KIB));
    drop((memory, file));
    assert_eq!(seek(&reader, SeekFrom::Data(516 * KIB)), Ok(800 * KIB));
    // A hole that is made in what was just written is one.
    let file = options().open(dir.join("punched")).unwrap();
    file.write_all_at(&vec![4; MIB], 0).unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 64 * KIB, 64 * KIB).unwrap();
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(64 * KIB));
    assert_eq!(seek(&file, SeekFrom::Data(64 * KIB)), Ok(128 * KIB));
}

/// Lengths change while what was written before is kept.
pub fn lengths(dir: &Path) {
    let path = dir.join("lengths");
    let file = options().open(&path).unwrap();
    file.write_all_at(&[1; 12_000], 0).unwrap();
    file.set_len(5000).unwrap();
    file.set_len(9000).unwrap();
    file.write_all_at(&[2; 10], 20_000).unwrap();
    let mut expected = [[1; 5000].as_slice(), &[0; 15_000], &[2; 10]].concat();
    assert!(std::fs::read(&path).unwrap() == expected);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 4000, 2000).unwrap();
    expected[4000..6000].fill(0);
    fallocate(&file, FallocateFlags::empty(), 0, 30_000).unwrap();
    expected.resize(30_000, 0);
    assert!(std::fs::read(&path).unwrap() == expected);
    assert_eq!(path.metadata().unwrap().len(), 30_000);
    // Emptied, and written again, without a close.
    file.set_len(0).unwrap();
    file.write_all_at(b"again", 3).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"\0\0\0again");
    // Two who append, and one who shortens.
    let append = || OpenOptions::new().append(true).open(&path).unwrap();
    let (mut one, mut two) = (append(), append());
    one.write_all(&[5; 6000]).unwrap();
    two.write_all(&[6; 6000]).unwrap();
    file.set_len(9008).unwrap();
    one.write_all(&[7; 10]).unwrap();
    let expected = [b"\0\0\0again".as_slice(), &[5; 6000], &[6; 3000], &[7; 10]].concat();
    assert!(std::fs::read(&path).unwrap() == expected);
    // What is behind the end of a page in memory does not come back.
    file.set_len(4096 + 10).unwrap();
    let mut memory = map(&file);
    memory[4096..4096 + 10].fill(8);
    drop(memory);
    file.set_len(8192).unwrap();
    let all = std::fs::read(&path).unwrap();
    assert!(all[4096..4106].iter().all(|b| *b == 8) && all[4106..].iter().all(|b| *b == 0));
}

/// A copy has what its source had when it was made, also if it was just written.
pub fn copies(dir: &Path) {
    let data: Vec<u8> = (0..2 * MIB + 77).map(|n| (n / 5 % 251) as u8 ^ (n >> 12) as u8).collect();
    let copy = |from: &File, to: &File, bytes: usize| {
        let (mut read, mut written) = (0, 0);
        while read < bytes as u64 {
            let left = bytes - read as usize;
            assert!(copy_file_range(from, Some(&mut read), to, Some(&mut written), left).unwrap() > 0);
        }
    };
    let source = options().open(dir.join("copied")).unwrap();
    source.write_all_at(&data, 0).unwrap();
    let target = options().open(dir.join("copy")).unwrap();
    copy(&source, &target, data.len());
    source.write_all_at(b"other", MIB as u64).unwrap();
    assert!(std::fs::read(dir.join("copy")).unwrap() == data);
    // Over what was just written, and is longer.
    let target = options().open(dir.join("longer")).unwrap();
    target.write_all_at(&vec![9; 3 * MIB], 0).unwrap();
    let source = options().open(dir.join("copy")).unwrap();
    copy(&source, &target, data.len());
    let all = std::fs::read(dir.join("longer")).unwrap();
    assert!(all[..data.len()] == data && all[data.len()..].iter().all(|b| *b == 9) && all.len() == 3 * MIB);
    // From where nothing was written yet.
    let sparse = options().open(dir.join("sparse-source")).unwrap();
    sparse.write_all_at(b"far", 3 * MIB as u64).unwrap();
    let target = options().open(dir.join("zeros")).unwrap();
    copy(&sparse, &target, MIB);
    assert!(std::fs::read(dir.join("zeros")).unwrap() == vec![0; MIB]);
    // Where only the last page was just written.
    let target = options().open(dir.join("end")).unwrap();
    target.write_all_at(b"end", 4 * MIB as u64).unwrap();
    copy(&source, &target, data.len());
    let all = std::fs::read(dir.join("end")).unwrap();
    assert!(all[..data.len()] == data && all[4 * MIB..] == *b"end");
}

/// Past the kernel's cache and through it.
pub fn direct(dir: &Path) {
    let path = dir.join("both-ways");
    let direct = options().custom_flags(OFlags::DIRECT.bits() as i32).open(&path).unwrap();
    let cached = options().open(&path).unwrap();
    let mut space = vec![0; 3 * 4096];
    let start = space.as_ptr().align_offset(4096);
    let block = &mut space[start..start + 4096];
    cached.write_all_at(&[1; 3 * 4096], 0).unwrap();
    assert_eq!(pread(&direct, &mut *block, 4096), Ok(4096));
    assert!(block.iter().all(|b| *b == 1));
    block.fill(2);
    assert_eq!(pwrite(&direct, block, 4096), Ok(4096));
    assert_eq!(pwrite(&direct, block, 5 * 4096), Ok(4096));
    let blocks: Vec<u8> = [1, 2, 1, 0, 0, 2].iter().flat_map(|b| [*b; 4096]).collect();
    assert!(std::fs::read(&path).unwrap() == blocks);
    let mut memory = map(&cached);
    assert!(memory[..] == blocks[..]);
    memory[4096..4096 + 5].copy_from_slice(b"mappe");
    memory.flush().unwrap();
    assert_eq!(pread(&direct, &mut *block, 4096), Ok(4096));
    assert_eq!(&block[..6], b"mappe\x02");
}

/// Times are those of the writes, and those that are set stay.
pub fn times(dir: &Path) {
    let path = dir.join("times");
    let file = options().open(&path).unwrap();
    let at = |file: &File| {
        let facts = file.metadata().unwrap();
        ((facts.mtime(), facts.mtime_nsec()), (facts.ctime(), facts.ctime_nsec()))
    };
    let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
    let made = at(&file);
    pause();
    file.write_all_at(b"x", 0).unwrap();
    let written = at(&file);
    assert!(written.0 > made.0 && written.1 > made.1, "{made:?} {written:?}");
    pause();
    // That it reaches the disk is no change.
    file.sync_all().unwrap();
    assert_eq!(at(&file), written);
    file.write_all_at(b"y", 0).unwrap();
    let time = Timespec { tv_sec: 1_000_000, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    pause();
    file.sync_all().unwrap();
    assert_eq!(at(&file).0, (1_000_000, 123_456_789));
    assert!(at(&file).1 > written.1);
    // Through memory.
    let mut memory = map(&file);
    memory[0] = b'z';
    memory.flush().unwrap();
    drop(memory);
    assert!(at(&file).0 > written.0);
}

/// Who writes a program that runs as another user takes that right from it, unless it is root.
pub fn privileges(dir: &Path) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let path = dir.join("program");
    let mode = || path.metadata().unwrap().mode() & 0o7777;
    let allow = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    let mut file = options().open(&path).unwrap();
    file.write_all(b"#!/bin/sh").unwrap();
    allow(0o6757);
    file.write_all(b"\n").unwrap();
    file.set_len(3).unwrap();
    assert_eq!(mode(), 0o6757);
    let stranger = |out: File| {
        let mut command = Command::new("echo");
        assert!(command
            .arg("x")
            .uid(65_534)
            .gid(65_534)
            .stdout(Stdio::from(out))
            .status()
            .unwrap()
            .success());
    };
    stranger(OpenOptions::new().append(true).open(&path).unwrap());
    assert_eq!(mode(), 0o757);
    // Without the right to run it as a group, the bit says something else: who is of the group leaves it.
    allow(0o6747);
    file.write_all(b"\n").unwrap();
    assert_eq!(mode(), 0o6747);
    stranger(OpenOptions::new().append(true).open(&path).unwrap());
    assert_eq!(mode(), 0o747);
    allow(0o6757);
    std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
    assert_eq!(mode(), 0o757);
    assert!(std::fs::read(&path).unwrap().starts_with(b"#!/x\n"));
}

/// Small writes do not ask the server for anything, each: 20,000 of one byte took 20,000 requests.
pub fn small_writes_ask_nothing(dir: &Path, server: Pid) {
    let requests = || {
        // Each request is one read of the server's.
        let io = std::fs::read_to_string(format!("/proc/{}/io", server.as_raw_nonzero())).unwrap();
        let line = io.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    let mut file = File::create(dir.join("small")).unwrap();
    let before = requests();
    for n in 0..20_000_u32 {
        file.write_all(&[n as u8]).unwrap();
    }
    let made = requests() - before;
    assert!(made < 2000, "{made} requests");
    drop(file);
    let all = std::fs::read(dir.join("small")).unwrap();
    assert!(all.len() == 20_000 && (0..20_000_u32).zip(all).all(|(n, byte)| n as u8 == byte));
}
