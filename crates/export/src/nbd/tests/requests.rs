//! What requests do, and how they are answered.

use super::client::{contexts, Client};
use super::{Bench, SIZE};
use crate::memory_device::{Memory, BLOCK};
use format::nbd::*;
use std::collections::HashMap;
use std::io;

const MIB: u64 = 1 << 20;

#[test]
fn reads_of_any_length_are_what_the_device_holds() {
    let size = 40 * MIB + 17;
    let bench = Bench::of(Memory::new(size), 8);
    let bytes = bench.device.bytes();
    for (mut client, structured) in [(bench.client(), true), (bench.simple(), false)] {
        let most = PAYLOAD_BYTES_MAX;
        for (offset, len) in [
            (0, 1),
            (0, 512),
            (512, 512),
            (511, 3000),
            (4096, 32 << 10),
            (512, (32 << 10) + 1),
            (MIB - 1, (1 << 20) + 1),
            (0, most),
            (8 * MIB + 17, most),
            (size - 1, 1),
        ] {
            let reply = client.read(offset, len);
            let at = offset as usize..offset as usize + len as usize;
            assert_eq!(reply.error, 0, "{len} bytes at {offset}: {}", reply.text);
            assert!(reply.data == bytes[at], "{len} bytes at {offset}");
            let pieces = if structured { (len as usize).div_ceil(1 << 20) } else { 0 };
            assert_eq!(reply.chunks, pieces);
        }
        // Two bytes more than may be asked for, and the end.
        for (offset, len) in
            [(0, most + 1), (0, u32::MAX), (size, 1), (size - 1, 2), (u64::MAX, 1), (1 << 63, 1)]
        {
            assert_eq!(client.read(offset, len).error, EINVAL, "{len} bytes at {offset}");
        }
        let nothing = client.read(7, 0);
        assert_eq!((nothing.error, nothing.data.len()), (if structured { EINVAL } else { 0 }, 0));
        assert_eq!(client.read(0, 1).error, 0);
        client.leave();
    }
}

#[test]
fn what_changed_is_told_in_a_context_of_its_own() {
    let mut device = Memory::new(40 * MIB);
    device.changed_since_b0 = vec![2 * MIB..4 * MIB, 4 * MIB..6 * MIB, 38 * MIB..40 * MIB];
    let bench = Bench::of(device, 8);
    let client = |contexts: &[&str]| {
        let mut client = bench.raw();
        client.greet(true);
        client.structured();
        let agreed = client.set_contexts("disk", contexts);
        client.go("disk");
        (client, agreed)
    };
    let (b0, allocation) = ("qemu:dirty-bitmap:b0", "base:allocation");
    // What is not there, or cannot be compared, is not agreed on.
    let all = [b0, "qemu:dirty-bitmap:", "qemu:dirty-bitmap:lost", "qemu:dirty-bitmap:unlike", allocation];
    let (mut both, agreed) = client(&all);
    assert_eq!(agreed, [b0, allocation]);
    let mib = |n: u32| n << 20;
    let told = both.done(CMD_BLOCK_STATUS, 0, MIB, mib(39), &[]);
    assert_eq!(told.error, 0);
    assert_eq!(told.second, [(mib(39), 0)]);
    let dirty = STATE_DIRTY;
    let expected = [(mib(1), 0), (mib(2), dirty), (mib(2), dirty), (mib(32), 0), (mib(2), dirty)];
    assert_eq!(told.status, expected);
    let (mut alone, agreed) = client(&[b0]);
    assert_eq!(agreed, [b0]);
    for (at, len, flags, expected) in [
        (0, 4096, 0, &[(4096, 0)][..]),
        (3 * MIB, mib(1), 0, &[(mib(1), dirty)]),
        (3 * MIB, mib(5), 0, &[(mib(1), dirty), (mib(2), dirty), (mib(2), 0)]),
        (3 * MIB, mib(5), FLAG_REQ_ONE, &[(mib(1), dirty)]),
        (40 * MIB - 512, 512, 0, &[(512, dirty)]),
    ] {
        let told = alone.done(CMD_BLOCK_STATUS, flags, at, len, &[]);
        assert_eq!((told.error, &told.status[..]), (0, expected), "{len} bytes at {at}");
    }
    assert_eq!(alone.done(CMD_BLOCK_STATUS, 0, 39 * MIB, mib(2), &[]).error, EINVAL);
    // They are listed by their namespaces, too.
    let mut lists = bench.raw();
    lists.greet(true);
    lists.structured();
    for (asked, count) in [(&[][..], 4), (&["qemu:"], 3), (&["qemu:dirty-bitmap:"], 3), (&["base:", b0], 2)] {
        assert_eq!(
            lists.answers(OPT_LIST_META_CONTEXT, &contexts("disk", asked)).1.len(),
            count,
            "{asked:?}"
        );
    }
}

#[test]
fn what_is_to_be_read_soon_is_read() {
    let bench = Bench::of(Memory::new(8 * MIB), 8);
    for mut client in [bench.client(), bench.simple()] {
        for (offset, len, error) in
            [(0, 0, 0), (5, 3 << 20, 0), (8 * MIB - 1, 2, EINVAL), (u64::MAX, 1, EINVAL)]
        {
            let reply = client.done(CMD_CACHE, 0, offset, len, &[]);
            assert_eq!((reply.error, reply.data.len()), (error, 0), "{len} bytes at {offset}");
        }
        // All commands may have it.
        assert_eq!(client.done(CMD_CACHE, FLAG_FUA, 0, 1, &[]).error, 0);
        assert_eq!(client.done(CMD_READ, FLAG_FUA, 0, 1, &[]).error, 0);
        bench.device.bad_from.store(4 * MIB, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(client.done(CMD_CACHE, 0, 0, 8 << 20, &[]).error, EIO);
        bench.device.bad_from.store(u64::MAX, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(client.read(0, 1).error, 0);
    }
}

#[test]
fn data_in_one_piece_where_that_is_asked_for() {
    let bench = Bench::of(Memory::new(33 * MIB), 8);
    let mut client = bench.client();
    let bytes = bench.device.bytes();
    for len in [1, 65536, 1 << 20] {
        let reply = client.done(CMD_READ, FLAG_DF, 9, len, &[]);
        assert_eq!((reply.error, reply.chunks), (0, 1));
        assert!(reply.data == bytes[9..9 + len as usize]);
    }
    for (len, error) in
        [((1 << 20) + 1, EOVERFLOW), (PAYLOAD_BYTES_MAX, EOVERFLOW), (PAYLOAD_BYTES_MAX + 1, EINVAL)]
    {
        assert_eq!(client.done(CMD_READ, FLAG_DF, 9, len, &[]).error, error);
    }
    // An error in the midst: what came before it is right.
    bench.device.bad_from.store(2 * MIB, std::sync::atomic::Ordering::SeqCst);
    let reply = client.read(MIB / 2, 4 << 20);
    assert_eq!((reply.error, reply.text.as_str()), (EIO, "a bad sector"));
    assert!(reply.data == bytes[(MIB / 2) as usize..(MIB / 2 + MIB) as usize]);
    let reply = client.done(CMD_READ, FLAG_DF, 2 * MIB - 512, 1 << 20, &[]);
    assert_eq!((reply.error, reply.data.len()), (EIO, 0));
    assert_eq!(bench.errors().len(), 5);
    assert!(bench.errors()[3].contains("\"disk\": read, 4194304 bytes at offset 524288: a bad sector"));
}

/// A simple reply that has begun cannot say that it fails: the client must not take what is missing for data.
#[test]
fn a_long_simple_reply_that_fails_ends_the_connection() {
    let bench = Bench::of(Memory::new(33 * MIB), 8);
    let mut client = bench.simple();
    bench.device.bad_from.store(5 * MIB / 2, std::sync::atomic::Ordering::SeqCst);
    client.ask(CMD_READ, 0, 0, 4 << 20, &[]);
    let mut all = Vec::new();
    // The end may come as a reset.
    drop(client.socket.read_to_end(&mut all));
    assert!(all.len() <= 16 + (2 << 20), "{} bytes of a read that failed at 2.5 MiB", all.len());
    assert!(all[16..] == bench.device.bytes()[..all.len() - 16]);
    assert_eq!(bench.errors().len(), 1);
    // Where nothing was sent yet it is told.
    let mut client = bench.simple();
    assert_eq!(client.read(2 * MIB, 4 << 20).error, EIO);
    client.leave();
}

#[test]
fn blocks_are_told_with_and_without_the_wish_for_one() {
    let bench = Bench::new();
    for block in [1, 2, 5] {
        bench.device.punch(block);
    }
    let mut client = bench.client();
    assert_eq!(client.done(CMD_WRITE_ZEROES, FLAG_NO_HOLE, 2 * BLOCK, BLOCK as u32, &[]).error, 0);
    let (hole, zero) = (STATE_HOLE | STATE_ZERO, STATE_ZERO);
    let block = BLOCK as u32;
    let mut status = |flags, offset, len| client.done(CMD_BLOCK_STATUS, flags, offset, len, &[]).status;
    let all = vec![(block, 0), (block, hole), (block, zero), (2 * block, 0), (block, hole), (2 * block, 0)];
    assert_eq!(status(0, 0, 8 * block), all);
    assert_eq!(status(FLAG_REQ_ONE, 0, 8 * block), all[..1]);
    assert_eq!(status(FLAG_REQ_ONE, 3 * BLOCK, 8 * block), [(2 * block, 0)]);
    assert_eq!(status(0, BLOCK + 7, 1), [(1, hole)]);
    assert_eq!(status(0, SIZE - 100, 100), [(100, 0)]);
    assert_eq!(status(FLAG_REQ_ONE, 6 * BLOCK, (SIZE - 6 * BLOCK) as u32), [((SIZE - 6 * BLOCK) as u32, 0)]);
    for (offset, len) in [(0, 0), (SIZE, 1), (0, u32::MAX)] {
        assert_eq!(client.done(CMD_BLOCK_STATUS, 0, offset, len, &[]).error, EINVAL);
    }
    assert_eq!(client.done(CMD_BLOCK_STATUS, FLAG_DF, 0, 512, &[]).error, EINVAL);
    bench.device.silent.store(true, std::sync::atomic::Ordering::SeqCst);
    let reply = client.done(CMD_BLOCK_STATUS, 0, 0, 512, &[]);
    assert_eq!((reply.error, reply.text.as_str()), (EIO, "nothing is known of these blocks"));
    assert_eq!(bench.simple().done(CMD_BLOCK_STATUS, 0, 0, 512, &[]).error, EINVAL);
}

#[test]
fn a_disk_in_many_pieces_is_told_in_several_answers() {
    let blocks = 40_000;
    let bench = Bench::of(Memory::new(blocks * BLOCK), 2);
    (0..blocks).step_by(2).for_each(|b| bench.device.punch(b));
    let mut client = bench.client();
    let (mut at, mut answers) = (0, 0);
    while at < blocks * BLOCK {
        let reply = client.done(CMD_BLOCK_STATUS, 0, at, (blocks * BLOCK - at) as u32, &[]);
        assert!((1..=16 << 10).contains(&reply.status.len()));
        for (len, flags) in reply.status {
            let is_hole = at / BLOCK % 2 == 0;
            assert_eq!((u64::from(len), flags), (BLOCK, if is_hole { STATE_HOLE | STATE_ZERO } else { 0 }));
            at += u64::from(len);
        }
        answers += 1;
    }
    assert_eq!((at, answers), (blocks * BLOCK, 3));
}

#[test]
fn writes_are_seen_at_once_and_flushed_when_that_is_said() {
    let bench = Bench::of(Memory::new(33 * MIB + 5), 8);
    let mut plain = bench.device.bytes();
    for mut client in [bench.client(), bench.simple()] {
        let before = bench.device.flushes();
        for (at, len) in
            [(0, 1), (1, 4096), (33 * MIB + 4, 1), (777, 5 << 20), (MIB, PAYLOAD_BYTES_MAX as usize)]
        {
            let data: Vec<u8> = (0..len).map(|n| (n * 31 + len) as u8).collect();
            assert_eq!(client.write(at, &data).error, 0);
            plain[at as usize..at as usize + len].copy_from_slice(&data);
        }
        assert!(bench.device.bytes() == plain);
        assert_eq!(client.write(9, &[]).error, 0);
        assert_eq!(bench.device.flushes(), before);
        assert_eq!(client.done(CMD_WRITE, FLAG_FUA, 3, 2, b"ab").error, 0);
        assert_eq!(client.done(CMD_WRITE_ZEROES, FLAG_FUA | FLAG_NO_HOLE, 100, 50, &[]).error, 0);
        assert_eq!(client.done(CMD_TRIM, FLAG_FUA, 5000, 9000, &[]).error, 0);
        assert_eq!(bench.device.flushes(), before + 3);
        assert_eq!(client.done(CMD_FLUSH, 0, 0, 0, &[]).error, 0);
        assert_eq!(bench.device.flushes(), before + 4);
        for command in [CMD_WRITE_ZEROES, CMD_TRIM] {
            assert_eq!(client.done(command, 0, 8 * MIB, 12345, &[]).error, 0);
            assert_eq!(client.done(command, 0, 8, 0, &[]).error, 0);
        }
        plain[3..5].copy_from_slice(b"ab");
        plain[100..150].fill(0);
        plain[5000..14000].fill(0);
        plain[8 << 20..(8 << 20) + 12345].fill(0);
        assert!(bench.device.bytes() == plain);
        assert_eq!(bench.device.flushes(), before + 4);
        client.leave();
    }
}

#[test]
fn what_cannot_be_is_refused_and_the_client_goes_on() {
    let bench = Bench::new();
    let plain = bench.device.bytes();
    for mut client in [bench.client(), bench.simple()] {
        for (command, flags, offset, len, error) in [
            (CMD_WRITE, 0, SIZE, 1, ENOSPC),
            (CMD_WRITE, 0, SIZE - 1, 2, ENOSPC),
            (CMD_WRITE, 0, u64::MAX - 1, 4, ENOSPC),
            (CMD_WRITE, FLAG_DF, 0, 4, EINVAL),
            (CMD_WRITE_ZEROES, 0, SIZE - 1, 2, EINVAL),
            (CMD_WRITE_ZEROES, 1 << 4, 0, 2, EINVAL),
            (CMD_TRIM, 0, u64::MAX, 2, EINVAL),
            (CMD_TRIM, FLAG_NO_HOLE, 0, 2, EINVAL),
            (CMD_FLUSH, 0, 1, 0, EINVAL),
            (CMD_FLUSH, 0, 0, 1, EINVAL),
            (CMD_READ, FLAG_NO_HOLE, 0, 1, EINVAL),
            (CMD_CACHE, FLAG_REQ_ONE, 0, 1, EINVAL),
            (8, 0, 0, 1, EINVAL),
            (u16::MAX, u16::MAX, u64::MAX, u32::MAX, EINVAL),
        ] {
            let payload = if command == CMD_WRITE { vec![1; len as usize] } else { vec![] };
            let reply = client.done(command, flags, offset, len, &payload);
            assert_eq!(reply.error, error, "command {command}, flags {flags}, {len} bytes at {offset}");
        }
        assert_eq!(client.read(0, 4).data, plain[..4]);
    }
    assert!(bench.device.bytes() == plain);
    let bench = Bench::of(Memory::read_only(SIZE), 2);
    let mut client = bench.client();
    for (command, len) in [(CMD_WRITE, 512), (CMD_WRITE_ZEROES, 4096), (CMD_TRIM, 4096)] {
        let payload = if command == CMD_WRITE { vec![1; len as usize] } else { vec![] };
        let reply = client.done(command, 0, 0, len, &payload);
        assert_eq!((reply.error, reply.text.as_str()), (EPERM, "the export is read-only"));
    }
    assert_eq!(client.done(CMD_FLUSH, 0, 0, 0, &[]).error, 0);
    assert_eq!(client.read(0, 512).data, plain[..512]);
}

#[test]
fn errors_of_the_device_have_their_numbers_and_texts() {
    let bench = Bench::new();
    let long = format!("{}{}", "x".repeat(NAME_BYTES_MAX - 1), "é".repeat(100));
    let (mut client, mut simple) = (bench.client(), bench.simple());
    for (kind, number) in [
        (io::ErrorKind::StorageFull, ENOSPC),
        (io::ErrorKind::QuotaExceeded, ENOSPC),
        (io::ErrorKind::PermissionDenied, EPERM),
        (io::ErrorKind::ReadOnlyFilesystem, EPERM),
        (io::ErrorKind::InvalidInput, EINVAL),
        (io::ErrorKind::OutOfMemory, ENOMEM),
        (io::ErrorKind::Unsupported, ENOTSUP),
        (io::ErrorKind::TimedOut, EIO),
        (io::ErrorKind::Other, EIO),
    ] {
        let payload = [1; 512];
        for (command, data) in [
            (CMD_READ, &[][..]),
            (CMD_WRITE, &payload),
            (CMD_TRIM, &[]),
            (CMD_WRITE_ZEROES, &[]),
            (CMD_BLOCK_STATUS, &[]),
        ] {
            bench.device.fail(Some(io::Error::new(kind, long.clone())));
            let reply = client.done(command, 0, 0, 512, data);
            assert_eq!((reply.error, &*reply.text), (number, &long[..NAME_BYTES_MAX - 1]), "{kind:?}");
            bench.device.fail(Some(io::Error::new(kind, "so")));
            if command != CMD_BLOCK_STATUS {
                assert_eq!(simple.done(command, 0, 0, 512, data).error, number, "{kind:?}");
            }
            bench.device.fail(None);
        }
        bench.device.fail(Some(io::Error::new(kind, "so")));
        let reply = client.done(CMD_FLUSH, 0, 0, 0, &[]);
        assert_eq!((reply.error, reply.text.as_str()), (number, "so"));
        assert_eq!(client.done(CMD_FLUSH, 0, 0, 0, &[]).error, 0);
    }
    assert!(bench.errors().iter().any(|e| e == "export \"disk\": flush, 0 bytes at offset 0: so"));
}

/// A request that waits holds up no other one, and each reply has the cookie of its request.
#[test]
fn many_requests_at_once_are_answered_as_they_are_done() {
    let bench = Bench::new();
    let bytes = bench.device.bytes();
    for mut client in [bench.client(), bench.simple()] {
        bench.device.hold();
        let slow = client.ask(CMD_READ, 0, 0, 100, &[]);
        for round in 0..30u64 {
            // As many as the socket has room for, with their answers.
            let asked: HashMap<u64, (u64, u32)> = (1..20u64)
                .map(|n| (n * 7777 + round, (n * 131 + round * 17) as u32 % 5000 + 1))
                .map(|(offset, len)| (client.ask(CMD_READ, 0, offset, len, &[]), (offset, len)))
                .collect();
            for _ in 0..asked.len() {
                let (cookie, reply) = client.next_done();
                let (offset, len) = asked[&cookie];
                assert!(reply.data == bytes[offset as usize..offset as usize + len as usize]);
            }
        }
        assert_eq!(bench.device.waiting(), 1);
        bench.device.release();
        let (cookie, reply) = client.next_done();
        assert_eq!(cookie, slow);
        assert!(reply.data == bytes[..100]);
        client.leave();
    }
}

#[test]
fn what_one_client_has_written_every_other_one_reads() {
    let bench = Bench::of(Memory::new(MIB), 8);
    let mut clients: Vec<Client> =
        (0..6).map(|n| if n % 2 == 0 { bench.client() } else { bench.simple() }).collect();
    for n in 0..600u64 {
        let (writer, reader) = (n as usize % 6, (n as usize * 5 + 1) % 6);
        let (at, data) = (n * 1571 % (MIB - 64), [n as u8; 64]);
        assert_eq!(clients[writer].write(at, &data).error, 0);
        // Both the quick way and the other one.
        assert_eq!(clients[reader].read(at, 64).data, data);
        let from = at / 1024 * 1024;
        assert_eq!(clients[reader].read(from, (at + 64 - from) as u32).data[(at - from) as usize..], data);
    }
    assert_eq!(clients[3].done(CMD_FLUSH, 0, 0, 0, &[]).error, 0);
    assert_eq!(bench.device.flushes(), 1);
}
