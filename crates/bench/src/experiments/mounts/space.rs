//! `livedfs-b1` (LiveDFS 2011, experiment B1, figure 10): the space that images
//! of several distributions take, by distribution and all together.
//!
//! As in the paper, savings are given without zero blocks (against the blocks
//! that hold data) and with them (against the disks' length). The paper does not
//! compress, so beside what vaults take stands a census: what one copy of each
//! distinct 4 KiB block takes, without compression and metadata. The file system
//! of a pool, where the paper has its images, does not compress either.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use chunk::{ChunkSpec, Fingerprint, Piece};
use serde::Serialize;

use crate::context::Context;
use crate::files::{self, DataRanges, BLOCK_BYTES, READ_BYTES};
use crate::images::{Disk, GeneratedShape, Image};
use crate::mounted::{DiskOptions, Kind, Mounted};
use crate::peers::{snapshot, Vault};
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, Bar, Table};
use crate::run::{self, Cost};

/// A vault measured: its name in tables, policy, codec.
const VAULTS: [(&str, &str, Option<&str>); 3] = [
    ("conventional, not compressed", "conventional", Some("none")),
    ("conventional", "conventional", None),
    ("balanced", "balanced", None),
];

/// The pool's file system, in which images are files. It stores beside vaults, without compression.
const POOL: &str = "pool";

/// The names of all stores, in the order of their columns.
fn stores() -> impl Iterator<Item = &'static str> {
    VAULTS.iter().map(|(name, ..)| *name).chain([POOL])
}

/// One image stored in one store.
#[derive(Debug, Serialize)]
struct Step {
    store: &'static str,
    group: String,
    image: String,
    /// Bytes that the store takes after it.
    stored_bytes: u64,
    #[serde(flatten)]
    cost: Cost,
}

/// What a group of images takes.
#[derive(Debug, Serialize)]
struct Group {
    name: String,
    images: usize,
    raw_bytes: u64,
    nonzero_bytes: u64,
    /// Distinct 4 KiB blocks that hold data.
    distinct_bytes: u64,
    /// Bytes that each of [`stores`] takes.
    stored_bytes: Vec<u64>,
    /// The sums after each image.
    #[serde(skip)]
    growth: Vec<Growth>,
}

/// Sums over the first images of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    nonzero_bytes: u64,
    distinct_bytes: u64,
}

impl Group {
    fn saved_without_zeros(&self, stored: u64) -> f64 {
        1.0 - stored as f64 / self.nonzero_bytes.max(1) as f64
    }

    fn saved_with_zeros(&self, stored: u64) -> f64 {
        1.0 - stored as f64 / self.raw_bytes.max(1) as f64
    }
}

/// Runs the experiment. Sizes do not vary between runs: everything is stored once.
pub fn run(context: &Context) -> Result<()> {
    let tiny = GeneratedShape { suites: 2, disks: 2, versions: 1, size_bytes: 16 << 20 };
    let mut images = context.images("livedfs", tiny)?;
    images.truncate(None, Some(1));
    let mut suites: Vec<&str> = Vec::new();
    for disk in &images.disks {
        if !suites.contains(&disk.suite.as_str()) {
            suites.push(&disk.suite);
        }
    }
    let (mut groups, mut steps) = (Vec::new(), Vec::new());
    for suite in suites {
        let disks: Vec<&Disk> = images.disks.iter().filter(|disk| disk.suite == suite).collect();
        groups.push(measure(context, suite, &disks, &mut steps)?);
    }
    let disks: Vec<&Disk> = images.disks.iter().collect();
    let all = measure(context, "all", &disks, &mut steps)?;
    draw_cumulative(context, &all, &steps)?;
    draw_by_group(context, &groups)?;
    let bars = bars(&all);
    groups.push(all);
    let text =
        format!("MB; % saved without zero blocks / with them.\n\n{}\n{}", table(&groups), bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters<'a> {
        images: &'a str,
        stores: Vec<&'a str>,
        stored: &'a str,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        groups: &'a [Group],
        steps: &'a [Step],
    }
    let parameters = Parameters {
        images: &images.name,
        stores: stores().collect(),
        stored: "allocated bytes of a vault that holds this group alone; of a pool, blocks in use",
    };
    context.save(1, parameters, Results { bars: &bars, groups: &groups, steps: &steps }, &text)?;
    context.print(&text);
    Ok(())
}

fn measure(context: &Context, name: &str, disks: &[&Disk], steps: &mut Vec<Step>) -> Result<Group> {
    eprintln!("{name}: {} images", disks.len());
    let mut stored_bytes = Vec::new();
    for (vault_name, policy, codec) in VAULTS {
        let home = files::fresh_dir(&context.space().join("vaults"))?;
        let codec = codec.map(str::to_owned);
        let vault = Vault::new(&context.sapwood()?, home.join("vault"), policy, codec);
        vault.init()?;
        for (i, disk) in disks.iter().enumerate() {
            let image = &disk.versions[0];
            context.require_free(2 * files::Space::of(&image.path)?.allocated_bytes)?;
            let backup = vault
                .backup(&disk.name, &image.path)
                .with_context(|| format!("{vault_name}: backup of {}", disk.name))?;
            steps.push(Step {
                store: vault_name,
                group: name.to_owned(),
                image: disk.name.clone(),
                stored_bytes: vault.stored()?.allocated_bytes,
                cost: backup.cost,
            });
            if i + 1 == disks.len() {
                let target = home.join("restored.raw");
                vault.restore(&format!("{}@{}", disk.name, snapshot(&backup)?), &target)?;
                files::require_equal(&image.path, &target)?;
            }
        }
        stored_bytes.push(vault.stored()?.allocated_bytes);
        std::fs::remove_dir_all(home)?;
    }
    stored_bytes.push(store_in_pool(context, name, disks, steps)?);
    let growth = census(disks)?;
    let sums = growth.last().copied().unwrap_or_default();
    Ok(Group {
        name: name.to_owned(),
        images: disks.len(),
        raw_bytes: disks.iter().map(|disk| disk.versions[0].size_bytes).sum(),
        nonzero_bytes: sums.nonzero_bytes,
        distinct_bytes: sums.distinct_bytes,
        stored_bytes,
        growth,
    })
}

/// Copies images into the file system of a pool. Returns the bytes that it takes then.
fn store_in_pool(context: &Context, group: &str, disks: &[&Disk], steps: &mut Vec<Step>) -> Result<u64> {
    let raw_bytes: u64 = disks.iter().map(|disk| disk.versions[0].size_bytes).sum();
    let home = files::fresh_dir(&context.space().join("pools"))?;
    let mut pool = Mounted::create(context, Kind::Pool, &home, raw_bytes, DiskOptions::default())?;
    pool.mount()?;
    let before = used_bytes(&pool.place())?;
    let mut stored_bytes = 0;
    for disk in disks {
        let (image, copy) = (&disk.versions[0].path, pool.place().join(disk.name.replace('/', "-")));
        context.require_free(2 * files::Space::of(image)?.allocated_bytes)?;
        let mut cp = Command::new("cp");
        let copied = run::run(cp.arg("--sparse=always").arg(image).arg(&copy), &pool.place())?;
        files::require_equal(image, &copy)?;
        stored_bytes = used_bytes(&pool.place())? - before;
        let (image, group) = (disk.name.clone(), group.to_owned());
        steps.push(Step { store: POOL, group, image, stored_bytes, cost: copied.cost });
    }
    drop(pool);
    std::fs::remove_dir_all(home)?;
    Ok(stored_bytes)
}

/// Bytes that are in use in the file system of a path.
fn used_bytes(path: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok((stat.f_blocks - stat.f_bfree) * stat.f_frsize)
}

/// Counts blocks, and distinct ones, over the images in order.
fn census(disks: &[&Disk]) -> Result<Vec<Growth>> {
    let mut seen = HashSet::new();
    let mut sums = Growth::default();
    let count = |disk: &&Disk| {
        count_blocks(&disk.versions[0], &mut seen, &mut sums)?;
        Ok(sums)
    };
    disks.iter().map(count).collect()
}

/// Half a fingerprint tells blocks apart well enough to count them.
type Seen = HashSet<[u8; 16]>;

fn count_blocks(image: &Image, seen: &mut Seen, sums: &mut Growth) -> Result<()> {
    const BLOCKS: ChunkSpec = ChunkSpec::Fixed { bytes: BLOCK_BYTES as u32 };
    let file = File::open(&image.path)?;
    let mut buffer = vec![0; READ_BYTES];
    let (mut pieces, mut fingerprints) = (Vec::new(), Vec::new());
    let mut done = 0;
    for (start, end) in DataRanges::new(&file)? {
        let start = done.max(start - start % BLOCK_BYTES as u64);
        let end = end.next_multiple_of(BLOCK_BYTES as u64).min(image.size_bytes);
        done = end;
        files::for_each_read(&file, start, end, &mut buffer, |_, bytes| {
            pieces.clear();
            fingerprints.clear();
            chunk::cut(bytes, BLOCKS, &mut pieces);
            chunk::fingerprint_pieces(bytes, &pieces, &mut fingerprints);
            let data = pieces.iter().filter(|piece| matches!(piece, Piece::Data { .. }));
            for (piece, fingerprint) in data.zip(&fingerprints) {
                sums.nonzero_bytes += u64::from(piece.bytes());
                if seen.insert(half(fingerprint)) {
                    sums.distinct_bytes += u64::from(piece.bytes());
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn half(fingerprint: &Fingerprint) -> [u8; 16] {
    std::array::from_fn(|i| fingerprint.0[i])
}

fn bars(all: &Group) -> Vec<Bar> {
    let mut bars = vec![
        Bar::shown(
            "saved by 4 KiB blocks alone, without zero blocks",
            Some(all.saved_without_zeros(all.distinct_bytes)),
        ),
        Bar::shown("the same, with zero blocks", Some(all.saved_with_zeros(all.distinct_bytes))),
    ];
    for (name, &stored) in stores().zip(&all.stored_bytes) {
        let without = Some(all.saved_without_zeros(stored));
        let with = Some(all.saved_with_zeros(stored));
        bars.push(Bar::at_least(format!("{name}: saved without zero blocks"), without, 0.40));
        bars.push(Bar::at_least(format!("{name}: saved with zero blocks"), with, 0.75));
    }
    bars
}

fn table(groups: &[Group]) -> Table {
    let mut header = vec!["distribution", "images", "raw", "without zero blocks", "distinct 4 KiB"];
    header.extend(stores());
    let mut table = Table::new(header);
    for group in groups {
        let stored = |bytes: u64| {
            format!(
                "{:.1} ({:.1} / {:.1} %)",
                bytes as f64 / 1e6,
                100.0 * group.saved_without_zeros(bytes),
                100.0 * group.saved_with_zeros(bytes)
            )
        };
        let mut row = vec![
            group.name.clone(),
            group.images.to_string(),
            format!("{:.1}", group.raw_bytes as f64 / 1e6),
            format!("{:.1}", group.nonzero_bytes as f64 / 1e6),
            stored(group.distinct_bytes),
        ];
        row.extend(group.stored_bytes.iter().map(|&bytes| stored(bytes)));
        table.row(row);
    }
    table
}

/// Figure 10(a): space against the number of images stored.
fn draw_cumulative(context: &Context, all: &Group, steps: &[Step]) -> Result<()> {
    let line = |values: Vec<u64>| -> Vec<(f64, f64)> {
        values.iter().zip(1..).map(|(&bytes, i)| (f64::from(i), bytes as f64 / 1e6)).collect()
    };
    let of_census = |value: fn(&Growth) -> u64| line(all.growth.iter().map(value).collect());
    let mut series = vec![
        ("without zero blocks".to_owned(), of_census(|g| g.nonzero_bytes)),
        ("distinct 4 KiB blocks".to_owned(), of_census(|g| g.distinct_bytes)),
    ];
    for name in stores() {
        let of_store = steps.iter().filter(|step| step.group == all.name && step.store == name);
        series.push((name.to_owned(), line(of_store.map(|step| step.stored_bytes).collect())));
    }
    let labels = Labels { title: "Space of all images", x: "images", y: "MB" };
    draw(context.out(), "livedfs-b1-cumulative", &labels, &Figure::Lines { series })
}

/// Figure 10(b): average space of an image by distribution.
fn draw_by_group(context: &Context, groups: &[Group]) -> Result<()> {
    let bars = |name: &str, value: &dyn Fn(&Group) -> u64| {
        let average = |group: &Group| Some(value(group) as f64 / 1e6 / group.images as f64);
        (name.to_owned(), groups.iter().map(average).collect())
    };
    let mut series = vec![
        bars("without zero blocks", &|group| group.nonzero_bytes),
        bars("distinct 4 KiB blocks", &|group| group.distinct_bytes),
    ];
    for (i, name) in stores().enumerate() {
        series.push(bars(name, &move |group| group.stored_bytes[i]));
    }
    let figure = Figure::Bars { groups: groups.iter().map(|group| group.name.clone()).collect(), series };
    let labels = Labels { title: "Average space of an image", x: "distribution", y: "MB" };
    draw(context.out(), "livedfs-b1-distributions", &labels, &figure)
}
