//! Disks of a running QEMU that is written to all the while: each snapshot is the disk at one point in time.

use crate::common::qemu::Machine;
use crate::common::{from_env, qemu_img, Bench};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::SeedableRng;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const BLOCK: usize = 4096;
const BLOCKS: usize = 6000;

/// One writer, block after block in random order, a byte of its own in each round. A snapshot must hold a beginning of
/// this sequence and nothing else: the first `n` writes, where `n` is between what was written when the backup began and
/// what was written when it was done. Rounds go by the bitmap, whose blocks were written while it began.
#[test]
fn snapshots_are_of_one_point_in_time() {
    let seed = from_env("SAPWOOD_SEED", 5);
    println!("SAPWOOD_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let bench = Bench::new("balanced");
    let image = bench.arg("disk.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &image, &(BLOCKS * BLOCK).to_string()]);
    let mut vm = Machine::start_without_device(&bench, &image, "qcow2");
    let disk = vm.shown_as(&bench.path("shown"));
    let source = format!("qmp:{}#d0", bench.arg("qmp.sock"));
    // For each block, the bytes that it may hold: what was written last.
    let mut before = vec![0u8; BLOCKS];
    let mut order: Vec<usize> = (0..BLOCKS).collect();
    let (mut in_the_middle, mut told) = (0, 0);
    let rounds = from_env("SAPWOOD_ROUNDS", 16);
    for round in 1..=rounds {
        order.shuffle(&mut rng);
        let byte = (round % 255 + 1) as u8;
        let (written, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (first, last) = std::thread::scope(|scope| {
            scope.spawn(|| {
                for block in &order {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    disk.write_all_at(&[byte; BLOCK], (block * BLOCK) as u64).unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                }
            });
            while written.load(Ordering::SeqCst) < 20 {
                std::thread::yield_now();
            }
            let first = written.load(Ordering::SeqCst);
            let report = bench.json(&["backup", "vm/vda", &source]);
            told += u64::from(report["scan"]["kind"] == "changed");
            let last = written.load(Ordering::SeqCst) + 1;
            stop.store(true, Ordering::SeqCst);
            (first, last)
        });
        let snapshot = bench.restored("vm/vda@latest");
        let whole = |block: usize, byte: u8| snapshot[block * BLOCK..][..BLOCK].iter().all(|b| *b == byte);
        let n = order.iter().take_while(|b| whole(**b, byte)).count();
        assert!((first..=last).contains(&n), "round {round}: {n} writes, of {first} to {last}");
        for (nth, block) in order.iter().enumerate().skip(n) {
            let old = before[*block];
            assert!(
                whole(*block, old),
                "round {round}: write {nth} is in the snapshot although write {n} is not"
            );
        }
        in_the_middle += usize::from(n < last - 1);
        for block in &order[..written.load(Ordering::SeqCst)] {
            before[*block] = byte;
        }
    }
    println!(
        "{told} of {rounds} backups went by a bitmap, {in_the_middle} had writes after the point in time"
    );
    assert!(told >= rounds - 1 && in_the_middle > 0);
    drop(disk);
    drop(vm);
    // QEMU was killed, and has left its mount.
    let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(bench.path("shown")).status();
}
