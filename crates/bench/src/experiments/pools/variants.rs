//! `livedfs-variants` (LiveDFS 2011, table 1 and experiments A1 and A3): what spatial locality, prefetching and the journal do
//! for writes, by the model of a disk with a moving head.
//!
//! Each variant is a pool of its own, nearly empty and as large as a disk. Unique data is written in a row to a volume; then the
//! pool is opened anew and the same data is written to another volume, in a row, and to a third one in pieces in a random order.
//! Every 512 MiB there is a flush: about the 5 s after which a file system with a journal commits. The pool is closed at the end of
//! each, so what waits in memory counts.

use std::fs;
use std::sync::Arc;

use anyhow::Result;
use pool::{Options, Pool, Sharing};
use serde::Serialize;

use super::blocks::Blocks;
use super::device::MeteredDevice;
use super::moving_head::MovingHeadDevice;
use super::PoolsOptions;
use crate::context::Context;
use crate::files::{self, BLOCK_BYTES};
use crate::images::generate::Random;
use crate::layout::seek_model::Service;
use crate::results::report::{figure, mb_per_second, Table};
use crate::run::check_interrupted;

const REQUEST_BYTES: u64 = 1 << 20;
/// Pieces that are written in a random order.
const PIECE_BYTES: u64 = 64 << 10;
const FLUSH_EVERY: u64 = 512 << 20;
/// The pool, a sparse file.
const POOL_BYTES: u64 = 256 << 30;

/// A variant of table 1.
#[derive(Clone, Copy, Debug, Serialize)]
struct Variant {
    name: &'static str,
    locality: bool,
    prefetch: bool,
    journal: bool,
}

const VARIANTS: [Variant; 4] = [
    Variant { name: "J", locality: false, prefetch: false, journal: true },
    Variant { name: "S", locality: true, prefetch: false, journal: false },
    Variant { name: "SJ", locality: true, prefetch: false, journal: true },
    Variant { name: "all", locality: true, prefetch: true, journal: true },
];

const PHASES: [&str; 3] = ["unique", "duplicate, in a row", "duplicate, pieces of 64 KiB in a random order"];

/// What the disk did in one phase.
#[derive(Debug, Serialize)]
struct Phase {
    variant: Variant,
    phase: &'static str,
    written_bytes: u64,
    disk: Service,
}

/// Runs the experiment.
pub fn run(context: &Context, options: &PoolsOptions) -> Result<()> {
    let bytes = options.bytes(context, 4096, 16);
    context.require_free(bytes / 16 + (1 << 30))?;
    let blocks = Blocks::new(context.options.seed);
    let mut phases = Vec::new();
    for variant in VARIANTS {
        eprintln!("variant {}", variant.name);
        measure(context, variant, bytes, &blocks, &mut phases)?;
    }
    let mut headings = vec!["variant".to_owned()];
    headings.extend(PHASES.iter().flat_map(|phase| [format!("{phase}: MB/s"), "seeks".to_owned()]));
    let mut table = Table::new(headings);
    let of = |name: &str, phase: &str| phases.iter().find(|p| p.variant.name == name && p.phase == phase);
    for variant in VARIANTS {
        let mut row = vec![variant.name.to_owned()];
        for phase in PHASES {
            let found = of(variant.name, phase);
            row.push(figure(found.map(|p| mb_per_second(p.written_bytes, p.disk.seconds)), 0));
            row.push(figure(found.map(|p| p.disk.seeks as f64), 0));
        }
        table.row(row);
    }
    let mut effects = Table::new(["effect", "unique", "published", "duplicate, in a row", "random order"]);
    for (what, with, without, published) in [
        ("spatial locality: SJ / J", "SJ", "J", "1.37"),
        ("journal: SJ / S", "SJ", "S", "1.79"),
        ("prefetching: all / SJ", "all", "SJ", "1.18"),
    ] {
        let ratio = |phase: &str| {
            let seconds = |name| of(name, phase).map(|p| p.disk.seconds);
            figure(seconds(without).zip(seconds(with)).map(|(without, with)| without / with), 2)
        };
        effects.row([
            what.to_owned(),
            ratio(PHASES[0]),
            published.to_owned(),
            ratio(PHASES[1]),
            ratio(PHASES[2]),
        ]);
    }
    let text = format!("{} MiB.\n\n{table}\n{effects}", bytes >> 20);
    #[derive(Serialize)]
    struct Parameters {
        bytes: u64,
        pool_bytes: u64,
    }
    context.save(1, Parameters { bytes, pool_bytes: POOL_BYTES }, &phases, &text)?;
    context.print(&text);
    Ok(())
}

fn measure(
    context: &Context,
    variant: Variant,
    bytes: u64,
    blocks: &Blocks,
    phases: &mut Vec<Phase>,
) -> Result<()> {
    let home = files::fresh_dir(&context.space().join("pools"))?;
    let path = home.join("pool");
    MeteredDevice::create_pool(&path, POOL_BYTES)?;
    let mut random = Random::new(context.options.seed);
    for (n, phase) in PHASES.into_iter().enumerate() {
        let device = MeteredDevice::open(&path)?.0.forgetful();
        let (device, head) = MovingHeadDevice::new(device, variant.locality);
        let options = Options { prefetch: variant.prefetch, journal: variant.journal, ..Options::default() };
        let pool = Pool::open(Box::new(device), options)?;
        pool.settle();
        let volume = format!("v{n}");
        pool.create_volume(&volume, bytes, Sharing::Inline)?;
        head.lock().take();
        match n {
            2 => write(&pool, &volume, blocks, shuffled(bytes / PIECE_BYTES, &mut random), PIECE_BYTES)?,
            _ => write(&pool, &volume, blocks, 0..bytes / REQUEST_BYTES, REQUEST_BYTES)?,
        }
        // With the pages that wait in memory.
        pool.close()?;
        let disk = head.lock().take();
        phases.push(Phase { variant, phase, written_bytes: bytes, disk });
    }
    fs::remove_dir_all(&home)?;
    Ok(())
}

/// Writes the pieces of these numbers.
fn write(
    pool: &Arc<Pool>,
    volume: &str,
    blocks: &Blocks,
    pieces: impl IntoIterator<Item = u64>,
    piece_bytes: u64,
) -> Result<()> {
    let volume = pool.volume(volume)?;
    let mut buffer = vec![0; piece_bytes as usize];
    let mut written = 0;
    for n in pieces {
        check_interrupted()?;
        blocks.fill(n * piece_bytes / BLOCK_BYTES as u64, &mut buffer);
        volume.write_at(n * piece_bytes, &buffer)?;
        written += piece_bytes;
        if written % FLUSH_EVERY == 0 {
            volume.flush()?;
        }
    }
    volume.flush()?;
    Ok(())
}

/// The numbers below `count` in a random order.
fn shuffled(count: u64, random: &mut Random) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    for n in (1..numbers.len()).rev() {
        numbers.swap(n, random.below(n as u64 + 1) as usize);
    }
    numbers
}
