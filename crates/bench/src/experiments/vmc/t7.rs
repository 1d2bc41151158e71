//! `vmc-t7` (table 7, figure 7): the disks whose snapshots are all there when machines of a cluster have failed, by the
//! formulas of appendix A and by trials, with all chunks shared (VO) and as the VM-centric policy keeps them (VC).
//!
//! N1 and N2 are those of a VM-centric vault, No is that of a conventional one of the same disks. Since the disks are
//! smaller than the paper's, blocks are, too: by default they are in the same proportion.

mod trials;

use anyhow::Result;
use serde::Serialize;
use trials::{count, Counted};
use vault::{Availability, Cluster as Machines};

use super::sharing::{Block, Pair};
use super::{cluster, Set, Usual, VmcOptions};
use crate::context::Context;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, Bar, Table};
use crate::workload::ClusterShape;

const MACHINES: [u32; 2] = [100, 1000];
const FAILED: [u32; 4] = [3, 5, 10, 20];
const SHARED_REPLICAS: std::ops::RangeInclusive<u32> = 3..=9;
const TRIALS: u32 = 1000;

/// Table 7, in per cent: machines, failures, VO, VC.
const PUBLISHED: [(u32, u32, f64, f64); 8] = [
    (100, 3, 69.548605, 99.660194),
    (100, 5, 2.647527, 96.653343),
    (100, 10, 0.0, 66.246404),
    (100, 20, 0.0, 1.132713),
    (1000, 3, 99.964668, 99.999669),
    (1000, 5, 99.647243, 99.996688),
    (1000, 10, 95.848082, 99.96026),
    (1000, 20, 66.840855, 99.623054),
];

/// One case.
#[derive(Debug, Serialize)]
struct Case {
    block: Block,
    machines: u32,
    failed: u32,
    shared_replicas: u32,
    /// With all chunks shared; none in figure 7, which has no such line.
    oblivious: Option<f64>,
    oblivious_counted: Option<f64>,
    centric: f64,
    centric_counted: f64,
}

/// Blocks of a disk on average.
#[derive(Debug, Serialize)]
struct Blocks {
    block: Block,
    own: f64,
    popular: f64,
    oblivious: f64,
}

/// Runs the experiment. Trials are as many as it takes; there is nothing to run again.
pub fn run(context: &Context, options: &VmcOptions) -> Result<()> {
    let cluster = cluster(context, options, Usual::CLUSTER)?;
    let shape = cluster.shape();
    let mut pair = Pair::create(context, &cluster)?;
    for _ in 0..shape.disks {
        pair.add_disk()?;
    }
    let trials = if context.options.tiny { 20 } else { TRIALS };
    let scaled = Block::scaled(shape.data_bytes);
    let (mut blocks, mut table_7, mut figure_7) = (Vec::new(), Vec::new(), Vec::new());
    for block in [scaled, Block::Container] {
        let sharing = pair.sharing(block)?;
        let (own, popular, oblivious) = sharing.blocks();
        blocks.push(Blocks { block, own, popular, oblivious });
        eprintln!("{:?}", blocks.last());
        for machines in MACHINES {
            for failed in FAILED {
                let of = Machines { machines, ..Machines::default() };
                let by_formula = sharing.availability(of, failed)?;
                let counted = count(&sharing, of, failed, trials, context.options.seed);
                table_7.push(case(block, of, failed, (&by_formula, &counted), true));
            }
        }
    }
    let sharing = pair.sharing_as_kept(scaled)?;
    for shared_replicas in SHARED_REPLICAS {
        for failed in FAILED {
            let of = Machines { shared_replicas, ..Machines::default() };
            let by_formula = sharing.availability(of, failed)?;
            let counted = count(&sharing, of, failed, trials, context.options.seed);
            figure_7.push(case(scaled, of, failed, (&by_formula, &counted), false));
        }
    }
    plot(context, &figure_7)?;
    let measured = Measured { blocks, table_7, figure_7 };
    measured.save(context, Parameters { workload: shape, set: pair.set, trials, oblivious: OBLIVIOUS })
}

fn case(
    block: Block,
    of: Machines,
    failed: u32,
    (by_formula, counted): (&Availability, &Counted),
    with_oblivious: bool,
) -> Case {
    Case {
        block,
        machines: of.machines,
        failed,
        shared_replicas: of.shared_replicas,
        oblivious: with_oblivious.then_some(by_formula.oblivious),
        oblivious_counted: with_oblivious.then_some(counted.oblivious),
        centric: by_formula.centric,
        centric_counted: counted.centric,
    }
}

/// Figure 7: a line for each number of failures.
fn plot(context: &Context, cases: &[Case]) -> Result<()> {
    let line = |failed: u32| {
        let of_line = cases.iter().filter(|c| c.failed == failed);
        let points = of_line.map(|c| (f64::from(c.shared_replicas), 100.0 * c.centric)).collect();
        (format!("{failed} machines failed"), points)
    };
    let labels = Labels {
        title: "Availability by replicas of the popular set, 100 machines",
        x: "replicas of the popular set",
        y: "% of disks",
    };
    draw(context.out(), "vmc-f7", &labels, &Figure::Lines { series: FAILED.map(line).into() })
}

const OBLIVIOUS: &str = "policy conventional, with the chunker and the segments of vm-centric";

#[derive(Serialize)]
struct Parameters {
    workload: ClusterShape,
    set: Set,
    trials: u32,
    oblivious: &'static str,
}

#[derive(Serialize)]
struct Measured {
    blocks: Vec<Blocks>,
    table_7: Vec<Case>,
    figure_7: Vec<Case>,
}

impl Measured {
    fn save(&self, context: &Context, parameters: Parameters) -> Result<()> {
        let bars = self.bars();
        let text = format!(
            "{}\n% of disks of which nothing is lost: by formula, in trials.\n\n{}\n{}\n{}",
            self.blocks_table(),
            self.table_7(),
            self.table_of_figure_7(),
            bars_table(&bars)
        );
        #[derive(Serialize)]
        struct Results<'a> {
            bars: &'a [Bar],
            #[serde(flatten)]
            measured: &'a Measured,
        }
        context.save(1, parameters, Results { bars: &bars, measured: self }, &text)?;
        context.print(&text);
        Ok(())
    }

    /// The cases of the paper, in blocks of its proportion.
    fn bars(&self) -> Vec<Bar> {
        let block = self.blocks.first().map(|b| b.block);
        let mut bars = Vec::new();
        for (machines, failed, _, published) in PUBLISHED {
            let is_it = |c: &&Case| Some(c.block) == block && (c.machines, c.failed) == (machines, failed);
            let found = self.table_7.iter().find(is_it);
            let name = format!("p = {machines}, d = {failed}: VC - VO");
            bars.push(Bar::at_least(name, found.and_then(|c| Some(c.centric - c.oblivious?)), 0.0));
            let name = format!("p = {machines}, d = {failed}: VC (published {published} %)");
            bars.push(Bar::shown(name, found.map(|c| c.centric)));
        }
        let off = self.table_7.iter().chain(&self.figure_7).map(|c| (c.centric - c.centric_counted).abs());
        bars.push(Bar::at_most("VC: trials differ from the formula at most by", off.reduce(f64::max), 0.05));
        bars
    }

    fn blocks_table(&self) -> Table {
        let mut table = Table::new(["blocks of a disk", "N1", "N2", "No"]);
        for b in &self.blocks {
            let row = [b.own, b.popular, b.oblivious].map(|n| format!("{n:.1}"));
            table.row(std::iter::once(b.block.name()).chain(row));
        }
        table
    }

    fn table_7(&self) -> Table {
        let header =
            ["blocks", "p", "d", "VO", "in trials", "VC", "in trials", "VO published", "VC published"];
        let mut table = Table::new(header);
        let percent = |part: f64| format!("{:.4}", 100.0 * part);
        for c in &self.table_7 {
            let published = PUBLISHED.iter().find(|p| (p.0, p.1) == (c.machines, c.failed));
            table.row([
                c.block.name(),
                c.machines.to_string(),
                c.failed.to_string(),
                c.oblivious.map_or_else(String::new, percent),
                c.oblivious_counted.map_or_else(String::new, percent),
                percent(c.centric),
                percent(c.centric_counted),
                published.map_or_else(String::new, |p| p.2.to_string()),
                published.map_or_else(String::new, |p| p.3.to_string()),
            ]);
        }
        table
    }

    fn table_of_figure_7(&self) -> Table {
        let header = FAILED.map(|failed| format!("d = {failed}"));
        let mut table =
            Table::new(std::iter::once("VC, p = 100, replicas of the set".to_owned()).chain(header));
        for replicas in SHARED_REPLICAS {
            let of_row = self.figure_7.iter().filter(|c| c.shared_replicas == replicas);
            let cells = of_row.map(|c| format!("{:.4}, {:.4}", 100.0 * c.centric, 100.0 * c.centric_counted));
            table.row(std::iter::once(replicas.to_string()).chain(cells));
        }
        table
    }
}
