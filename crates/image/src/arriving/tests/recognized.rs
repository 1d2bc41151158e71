//! A live restore that goes on trusts nothing it finds: damaged maps, other targets, older copies of either.

use super::*;
use crate::arriving::layout::{set_bytes, DISPLACED_AT, STATE_AT, SUMS_AT};

/// The map as docs/format/arriving.md describes it.
#[test]
fn the_format_is_what_its_description_says() {
    let (target, map) = (Recorder::new(), Recorder::new());
    let size = 5 * BLOCK_BYTES;
    let disk = create(&target, &map, size);
    disk.fetch(0..2 * BLOCK_BYTES).unwrap();
    disk.flush().unwrap();
    disk.write_at(4 * BLOCK_BYTES, &[7; 4096]).unwrap();
    let bytes = map.bytes();
    assert_eq!(bytes.len(), 4 * 4096);
    let zeros_but = |range: Range<usize>, parts: &[(usize, &[u8])]| {
        let mut expected = vec![0; range.len()];
        for (at, part) in parts {
            expected[at - range.start..at - range.start + part.len()].copy_from_slice(part);
        }
        assert!(bytes[range.clone()] == expected, "{range:?}: {:?}", &bytes[range.start..range.start + 80]);
    };
    let sum = |of: &[&[u8]]| crc32c::crc32c(&of.concat()).to_le_bytes();
    let (number, id) = (|n: u64| n.to_le_bytes(), [9; 16]);
    let header = sum(&[&bytes[..4092]]);
    zeros_but(
        0..4096,
        &[
            (0, b"SAPARRIV\x02\0\0\0\0\x10\0\0"),
            (16, &number(size)),
            (24, &id),
            (40, &[1, 0, 0, 0, OF.len() as u8, 0, 0, 0]),
            (56, &number(12)),
            (64, &number(34)),
            (72, OF),
            (4092, &header),
        ],
    );
    let state = sum(&[&id, &bytes[4096..4604]]);
    zeros_but(
        4096..4608,
        &[(4096, &[1; 16]), (4112, &number(1)), (4128, &number(2)), (4136, &number(56)), (4604, &state)],
    );
    let displaced = [7; 512];
    let (old, new) = (sum(&[&id, &[0; 512]]), sum(&[&id, &[7; 512]]));
    let sums = sum(&[&id, &bytes[4608..5116]]);
    zeros_but(4608..8192, &[(4608, &old), (4612, &new), (5116, &sums), (5120, &displaced)]);
    let first = sum(&[&id, &number(1), &number(0), &bytes[8192..8700]]);
    zeros_but(8192..12288, &[(8192, &[0b10011]), (8700, &first)]);
    let durable = sum(&[&id, &number(2), &number(0), &bytes[12288..12796]]);
    zeros_but(12288..16384, &[(12288, &[0b00011]), (12796, &durable)]);

    let mark = &target.bytes()[size as usize - 512..];
    assert_eq!(mark[..24], [&b"SAPMARK\0"[..], &id].concat());
    assert_eq!(mark[24..36], [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!((&mark[36..508], &mark[508..]), (&[0; 472][..], &sum(&[&mark[..508]])[..]));

    let (target, map) = (Recorder::new(), Recorder::new());
    drop(create_on(device(), &target, &map, size, base(size)));
    let bytes = map.bytes();
    assert_eq!(bytes[40..72], [&[3, 0, 0, 0, 18, 0, 0, 0, 17][..], &[0; 23]].concat());
    assert_eq!(bytes[72 + OF.len()..][..18], *b"serial=1\nsize=99\n\0");
    assert_eq!(bytes[4136..4152], [number(7), number(3)].concat());
}

/// 5 of 40 flipped bits of a map made a restore that went on silently wrong: blocks that a guest had written arrived
/// again, others never did.
#[test]
fn no_flipped_bit_of_a_map_makes_a_disk_wrong() {
    let size = 65 * BLOCK_BYTES + 512;
    for (boot, is_whole) in [(1, false), (2, false), (2, true)] {
        let (target, map) = (Recorder::new(), Recorder::new());
        let disk = create(&target, &map, size);
        for block in [0, 3, 64, 65] {
            disk.write_at(block * BLOCK_BYTES, &[block as u8 | 1; 512]).unwrap();
        }
        disk.fetch(10 * BLOCK_BYTES..20 * BLOCK_BYTES).unwrap();
        disk.flush().unwrap();
        disk.fetch(30 * BLOCK_BYTES..31 * BLOCK_BYTES).unwrap();
        disk.flush().unwrap();
        if is_whole {
            disk.fetch(0..size).unwrap();
            disk.complete().unwrap();
        }
        let plain = whole(&disk);
        drop(disk);
        let (good, content) = (map.bytes(), target.bytes());
        let (mut refused, mut harmless) = (0, 0);
        for bit in 0..good.len() * 8 {
            // Behind what a sector begins with, every 97th: a sector is checked as a whole.
            if bit % 4096 > 200 && bit % 4096 < 4064 && bit % 97 != 0 {
                continue;
            }
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let left = Recorder::holding(content.clone());
            match reopen_on(FILE, left.clone(), Recorder::holding(bad), size, boot) {
                Ok(disk) => {
                    harmless += 1;
                    disk.fetch(0..size).unwrap();
                    disk.complete().unwrap();
                    assert!(left.bytes() == plain, "bit {bit} of {}, run {boot}", good.len() * 8);
                }
                Err(ImageError::Refused { why, .. }) => {
                    refused += 1;
                    assert!(why.contains("begin anew"), "bit {bit}: {why}");
                    assert!(left.bytes() == content, "bit {bit}: refused, and written");
                }
                Err(ImageError::Corrupt { .. }) => assert!(bit < 64, "bit {bit}"),
                Err(e) => panic!("bit {bit}: {e}"),
            }
        }
        assert!(refused > 500 && harmless > 100, "{refused} {harmless}");
    }
}

/// A sector of bits was lost, or is one of another place or time: nothing that has arrived may be forgotten.
#[test]
fn a_sector_of_bits_that_is_lost_or_misplaced_is_found() {
    let size = 3 * 63 * 64 * BLOCK_BYTES;
    let (target, map) = (Recorder::new(), Recorder::new());
    let disk = create(&target, &map, size);
    let at = |sector: u64| sector * 63 * 64 * BLOCK_BYTES;
    disk.write_at(at(0), &[1; 4096]).unwrap();
    disk.write_at(at(1), &[1; 4096]).unwrap();
    disk.flush().unwrap();
    let before = map.bytes();
    disk.write_at(at(1) + BLOCK_BYTES, &[1; 4096]).unwrap();
    disk.write_at(at(2), &[1; 4096]).unwrap();
    disk.flush().unwrap();
    disk.flush().unwrap();
    disk.write_at(at(0) + BLOCK_BYTES, &[1; 4096]).unwrap();
    disk.flush().unwrap();
    drop(disk);
    let good = map.bytes();
    for (boot, set) in [(1, BITS_AT), (2, BITS_AT + set_bytes(size))] {
        let sector = |n: u64| (set + n * 512) as usize..(set + n * 512 + 512) as usize;
        let lost = vec![0; 512];
        let cases = [(1, &lost[..]), (2, &lost), (1, &before[sector(1)]), (0, &good[sector(2)])];
        for (n, (which, bytes)) in cases.into_iter().enumerate() {
            let mut bad = good.clone();
            bad[sector(which)].copy_from_slice(bytes);
            let e = reopen_on(FILE, target.clone(), Recorder::holding(bad), size, boot).err();
            let e = e.unwrap_or_else(|| panic!("run {boot}, case {n}: nothing is found")).to_string();
            assert!(e.contains("is damaged") && e.contains("begin anew"), "run {boot}, case {n}: {e}");
        }
        reopen(target.clone(), Recorder::holding(good.clone()), size, boot);
    }
}

/// Another disk under the name of the device: a quarter of the blocks were the other disk's, whose rest was destroyed.
/// When nothing at all had arrived nothing could tell it, nor where the other one was a restore of the same snapshot.
#[test]
fn a_device_is_known_by_its_mark() {
    let size = 40 * BLOCK_BYTES;
    for arrived in [0, 1, 40] {
        let (target, map) = (Recorder::new(), Recorder::new());
        let disk = create_on(device(), &target, &map, size, base(size));
        disk.fetch(0..arrived * BLOCK_BYTES).unwrap();
        if arrived > 0 {
            disk.flush().unwrap();
        }
        drop(disk);
        let content = target.bytes();
        let mut unmarked = content.clone();
        unmarked[size as usize - 512..][..512].fill(0);
        let (twin, twin_map) = (Recorder::new(), Recorder::new());
        twin.set_len(size).unwrap();
        let known = device();
        let new = NewMap {
            file: Arc::new(twin_map),
            name: "m".into(),
            id: MapId([8; 16]),
            known,
            boot: BootId::of_test(1),
        };
        let disk =
            ArrivingDisk::begin("twin", Box::new(twin.clone()), false, new, &options(size), base(size))
                .unwrap();
        disk.fetch(0..arrived * BLOCK_BYTES).unwrap();
        drop(disk);
        for (boot, other) in [vec![0; size as usize], vec![0xaa; size as usize], unmarked, twin.bytes()]
            .into_iter()
            .flat_map(|other| [(1, other.clone()), (2, other)])
        {
            let left = Recorder::holding(other.clone());
            let again = Recorder::holding(map.bytes());
            let e = reopen_on(device(), left.clone(), again.clone(), size, boot).err().unwrap();
            assert!(matches!(e, ImageError::Refused { .. }), "{e}");
            assert!(e.to_string().contains("not the device"), "{e}");
            assert!(left.bytes() == other && again.bytes() == map.bytes(), "refused, and written");
        }
        // Elsewhere in the system, under another number; another serial number; the right one.
        let moved = (device().0, Attachment { device: 9, sequence: 4 });
        drop(reopen_on(moved, target.clone(), Recorder::holding(map.bytes()), size, 1).unwrap());
        let copy = (TargetId::Device { facts: "serial=2\nsize=99\n".into() }, device().1);
        let e = reopen_on(copy, target.clone(), Recorder::holding(map.bytes()), size, 1).err().unwrap();
        assert!(e.to_string().contains("its serial is \"2\", and was \"1\""), "{e}");
        for boot in [1, 2] {
            let disk =
                reopen_on(device(), target.clone(), Recorder::holding(map.bytes()), size, boot).unwrap();
            assert_eq!(disk.arrived_bytes(), arrived * BLOCK_BYTES);
        }
    }
}

/// All of it had arrived, and the device has no mark any more: its names have to do, or that it was never detached.
#[test]
fn a_whole_device_is_known_by_its_name() {
    let size = 40 * BLOCK_BYTES;
    let nameless = (TargetId::Device { facts: "size=99\n".into() }, device().1);
    for (known, is_named) in [(device(), true), (nameless, false)] {
        let (target, map) = (Recorder::new(), Recorder::new());
        let disk = create_on(known.clone(), &target, &map, size, base(size));
        disk.fetch(0..size).unwrap();
        disk.complete().unwrap();
        drop(disk);
        let again = |boot, attachment| {
            let map = Recorder::holding(map.bytes());
            reopen_on((known.0.clone(), attachment), target.clone(), map, size, boot)
        };
        assert!(again(1, known.1).is_ok(), "killed");
        let other = Attachment { sequence: 4, ..known.1 };
        for (boot, attachment) in [(1, other), (2, known.1)] {
            match again(boot, attachment) {
                Ok(disk) => assert!(is_named && disk.arrived_bytes() == size),
                Err(e) => assert!(!is_named && e.to_string().contains("use the device as it is"), "{e}"),
            }
        }
        let other = TargetId::Device { facts: "serial=other\nsize=98\n".into() };
        let e = reopen_on((other, known.1), target.clone(), map.clone(), size, 1).err().unwrap();
        assert!(e.to_string().contains("is not the device"), "{e}");
    }
}

/// A file that was copied or made by another has another inode; one without a mark is on the same file system, too.
#[test]
fn a_file_is_known_by_its_inode_and_its_mark() {
    let size = 40 * BLOCK_BYTES;
    let elsewhere = (FILE.0, Attachment { device: 57, sequence: 0 });
    let copied = (TargetId::File { inode: 13, born: 34 }, FILE.1);
    let replaced = (TargetId::File { inode: 12, born: 35 }, FILE.1);
    for steps in 0..3 {
        let (target, map) = (Recorder::new(), Recorder::new());
        let disk = create(&target, &map, size);
        disk.fetch(0..size).unwrap();
        if steps > 0 {
            disk.flush().unwrap();
        }
        if steps > 1 {
            disk.complete().unwrap();
        }
        drop(disk);
        let mut unmarked = target.bytes();
        unmarked[size as usize - 512..].fill(0);
        for (known, content, boot, said) in [
            (FILE, target.bytes(), 1, None),
            (FILE, target.bytes(), 2, None),
            (copied.clone(), target.bytes(), 2, Some("its inode is 13, and was 12")),
            (replaced.clone(), target.bytes(), 1, Some("made at another time")),
            (elsewhere.clone(), target.bytes(), 2, None),
            (elsewhere.clone(), target.bytes(), 1, (steps == 2).then_some("another file system")),
            (
                elsewhere.clone(),
                unmarked.clone(),
                1,
                Some(if steps == 1 { "mark" } else { "another file system" }),
            ),
            (FILE, unmarked.clone(), 1, (steps == 1).then_some("does not hold the mark")),
        ] {
            let (left, map) = (Recorder::holding(content.clone()), Recorder::holding(map.bytes()));
            match (reopen_on(known, left.clone(), map, size, boot), said) {
                (Ok(_), None) => {}
                (Err(e), Some(said)) => {
                    assert!(e.to_string().contains(said) && left.bytes() == content, "{steps}: {e}");
                }
                (done, said) => panic!("{steps}: {:?} instead of {said:?}", done.err()),
            }
        }
    }
}

/// The map, or the target, was put back from a copy: what was written since was lost, with exit 0.
#[test]
fn older_copies_are_refused() {
    let size = 40 * BLOCK_BYTES;
    for known in [FILE, device()] {
        let (target, map) = (Recorder::new(), Recorder::new());
        let disk = create_on(known.clone(), &target, &map, size, base(size));
        let mut copies = Vec::new();
        for block in 0..3 {
            disk.write_at(block * BLOCK_BYTES, &[1; 4096]).unwrap();
            disk.flush().unwrap();
            copies.push((target.bytes(), map.bytes()));
        }
        drop(disk);
        for boot in [1, 2] {
            for (n, (old_target, old_map)) in copies.iter().enumerate() {
                let open = |target: &[u8], map: &[u8]| {
                    let [target, map] = [target, map].map(|bytes| Recorder::holding(bytes.to_vec()));
                    reopen_on(known.clone(), target, map, size, boot).map(|disk| disk.arrived_bytes())
                };
                assert!(open(old_target, old_map).is_ok(), "both are of one time");
                let (target, map) = (open(old_target, &map.bytes()), open(&target.bytes(), old_map));
                if n == 2 {
                    assert!(target.is_ok() && map.is_ok());
                    continue;
                }
                let (target, map) = (target.err().unwrap().to_string(), map.err().unwrap().to_string());
                assert!(target.contains("an older copy of the "), "{target}");
                assert!(map.contains("which is an older copy"), "{map}");
            }
        }
    }
}

/// Cut off from power while it is made or completed: each time it is made anew, goes on, or is whole, on both kinds.
#[test]
fn a_power_cut_at_the_beginning_or_the_end_refuses_nobody() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let size = 9 * BLOCK_BYTES + 1024;
    for known in [FILE, device()] {
        let (target, map) = {
            let target = Recorder::new();
            (target.clone(), target.another())
        };
        let is_device = matches!(known.0, TargetId::Device { .. });
        target.set_len(size).unwrap();
        target.sync().unwrap();
        let begun = target.operations();
        let disk = create_on(known.clone(), &target, &map, size, base(size));
        let made = target.operations();
        disk.fetch(0..size).unwrap();
        disk.flush().unwrap();
        let arrived = target.operations();
        disk.complete().unwrap();
        let plain: Vec<u8> = (0..size).map(base_byte).collect();
        assert!(target.bytes() == plain);
        for cut in begun..=target.operations() {
            for _ in 0..20 {
                let [t, m]: [Vec<u8>; 2] = target.after_cut(cut, &mut rng).try_into().unwrap();
                let (t, m) = (Recorder::holding(t), Recorder::holding(m));
                let is_begun = SavedMap::is_begun(&m, "map", size).unwrap();
                assert!(is_begun || cut < made, "cut at {cut}");
                if !is_begun {
                    continue;
                }
                let disk = reopen_on(known.clone(), t.clone(), m, size, 2);
                let disk = disk.unwrap_or_else(|e| panic!("device {is_device}, cut at {cut}: {e}"));
                assert!(cut < arrived || disk.arrived_bytes() == size);
                disk.fetch(0..size).unwrap();
                assert!(whole(&disk) == plain);
                disk.complete().unwrap();
                assert!(t.bytes() == plain, "device {is_device}, cut at {cut}");
            }
        }
    }
}

/// The sector whose place the mark has is the guest's all the same: read, written and zeroed in every way across them.
#[test]
fn nobody_sees_the_mark() {
    for size in [512, 1000, 4096, 5 * BLOCK_BYTES + 513] {
        let (target, map) = (Recorder::new(), Recorder::new());
        let mut disk = create_on(device(), &target, &map, size, base(size));
        let mut plain: Vec<u8> = (0..size).map(base_byte).collect();
        let mut rng = StdRng::seed_from_u64(size);
        let at = size / 512 * 512 - 512;
        for n in 0..400 {
            let from = (at + 512).saturating_sub(rng.random_range(1..900));
            let to = (from + rng.random_range(1..900)).min(size);
            let range = from as usize..to as usize;
            match rng.random_range(0..4) {
                0 => {
                    let mut found = vec![0; range.len()];
                    disk.read_at(from, &mut found).unwrap();
                    assert!(found == plain[range], "size {size}, step {n}");
                }
                1 => {
                    disk.zero(from..to).unwrap();
                    plain[range].fill(0);
                }
                _ => {
                    rng.fill(&mut plain[range.clone()]);
                    disk.write_at(from, &plain[range]).unwrap();
                }
            }
            if n % 20 == 0 {
                disk.flush().unwrap();
            }
            if n % 50 == 10 {
                assert_eq!(target.bytes()[at as usize..][..8], *b"SAPMARK\0");
                disk = reopen_on(device(), target.clone(), map.clone(), size, 1).unwrap();
            }
        }
        disk.fetch(0..size).unwrap();
        disk.complete().unwrap();
        disk.write_at(at, &[5; 64]).unwrap();
        plain[at as usize..][..64].fill(5);
        assert!(target.bytes() == plain && whole(&disk) == plain);
    }
}

/// The parts of a map count only for the disk that they were written for: a damaged state or piece counts for none.
#[test]
fn the_parts_of_a_map_are_bound_to_it() {
    let size = 10 * BLOCK_BYTES;
    let map_of = |id: u8| {
        let (target, map) = (Recorder::new(), Recorder::new());
        target.set_len(size).unwrap();
        let new = NewMap {
            file: Arc::new(map.clone()),
            name: "m".into(),
            id: MapId([id; 16]),
            known: FILE,
            boot: BootId::of_test(1),
        };
        let disk = ArrivingDisk::begin("t", Box::new(target.clone()), true, new, &options(size), base(size))
            .unwrap();
        disk.fetch(0..size).unwrap();
        disk.write_at(size - 512, &[id; 512]).unwrap();
        disk.flush().unwrap();
        (target, map.bytes())
    };
    let ((target, mine), (_, other)) = (map_of(1), map_of(2));
    for part in [STATE_AT, SUMS_AT, DISPLACED_AT, BITS_AT] {
        let mut mixed = mine.clone();
        let range = part as usize..part as usize + 512;
        mixed[range.clone()].copy_from_slice(&other[range]);
        let e = reopen_on(FILE, target.clone(), Recorder::holding(mixed), size, 1).err().unwrap();
        assert!(e.to_string().contains("is damaged"), "{part}: {e}");
    }
}
