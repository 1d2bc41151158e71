//! `vmc-f9` (figure 9): blocks that a disk needs on average, of its own (N1) and popular ones (N2) as the VM-centric policy
//! keeps them, and with all chunks shared (No), as disks are added.

use anyhow::Result;
use serde::Serialize;

use super::sharing::{Block, Pair, PAPER_BLOCK_BYTES};
use super::{cluster, Set, Usual, VmcOptions};
use crate::context::Context;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, Bar, Table};
use crate::workload::ClusterShape;

/// Places on the x axis.
const STEPS: usize = 10;

/// Blocks of a disk on average.
#[derive(Clone, Copy, Debug, Serialize)]
struct Step {
    disks: usize,
    block: Block,
    own: f64,
    popular: f64,
    oblivious: f64,
}

/// Runs the experiment. Nothing in it varies between runs.
pub fn run(context: &Context, options: &VmcOptions) -> Result<()> {
    let cluster = cluster(context, options, Usual::CLUSTER)?;
    let shape = cluster.shape();
    let blocks = [Block::Container, Block::Bytes(PAPER_BLOCK_BYTES), Block::scaled(shape.data_bytes)];
    let mut pair = Pair::create(context, &cluster)?;
    let every = shape.disks.div_ceil(STEPS);
    let mut steps = Vec::new();
    for no in 1..=shape.disks {
        pair.add_disk()?;
        if no % every != 0 && no != shape.disks {
            continue;
        }
        for block in blocks {
            let (own, popular, oblivious) = pair.sharing(block)?.blocks();
            let step = Step { disks: pair.disks(), block, own, popular, oblivious };
            eprintln!("{step:?}");
            steps.push(step);
        }
    }
    for block in blocks {
        plot(context, &steps, block)?;
    }
    save(context, shape, pair.set, &steps, &blocks)
}

fn plot(context: &Context, steps: &[Step], block: Block) -> Result<()> {
    let line = |name: &str, value: fn(&Step) -> f64| {
        let of_block = steps.iter().filter(|step| step.block == block);
        (name.to_owned(), of_block.map(|step| (step.disks as f64, value(step))).collect())
    };
    let series = vec![
        line("blocks of its own", |s| s.own),
        line("blocks of popular chunks", |s| s.popular),
        line("blocks if all chunks are shared", |s| s.oblivious),
    ];
    let title = format!("Blocks of a disk ({})", block.name());
    let labels = Labels { title: &title, x: "disks", y: "blocks on average" };
    let suffix = match block {
        Block::Container => "containers",
        Block::Bytes(PAPER_BLOCK_BYTES) => "64m",
        Block::Bytes(_) => "scaled",
    };
    draw(context.out(), &format!("vmc-f9-{suffix}"), &labels, &Figure::Lines { series })
}

fn save(context: &Context, shape: ClusterShape, set: Set, steps: &[Step], blocks: &[Block]) -> Result<()> {
    let mut table = Table::new(["disks", "blocks of", "N1", "N2", "No", "No / N1"]);
    for s in steps {
        table.row([
            s.disks.to_string(),
            s.block.name(),
            format!("{:.2}", s.own),
            format!("{:.2}", s.popular),
            format!("{:.2}", s.oblivious),
            format!("{:.2}", s.oblivious / s.own),
        ]);
    }
    let mut bars = Vec::new();
    // Disks of this size have few blocks of 64 MiB, or one: those are shown only.
    for block in blocks.iter().filter(|block| **block != Block::Bytes(PAPER_BLOCK_BYTES)) {
        let last = steps.iter().rfind(|s| s.block == *block);
        let ratio = |value: fn(&Step) -> f64| last.map(|s| value(s) / s.oblivious.max(1e-9));
        let name = block.name();
        bars.push(Bar::at_most(format!("N1 / No, blocks of {name}"), ratio(|s| s.own), 1.0));
        bars.push(Bar::at_most(format!("(N1 + N2) / No, {name}"), ratio(|s| s.own + s.popular), 1.0));
    }
    let text = format!("{table}\n{}", bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters {
        workload: ClusterShape,
        set: Set,
        oblivious: &'static str,
        scaled: &'static str,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        steps: &'a [Step],
    }
    let parameters = Parameters {
        workload: shape,
        set,
        oblivious: "policy conventional, with the chunker and the segments of vm-centric",
        scaled: "blocks that stand to a disk as 64 MiB stand to the paper's 40 GB",
    };
    context.save(1, parameters, Results { bars: &bars, steps }, &text)?;
    context.print(&text);
    Ok(())
}
