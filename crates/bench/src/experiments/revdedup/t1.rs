//! `revdedup-t1` (table 1): writing and reading unique data, against plain files of the same size in the same run.
//!
//! The paper fingerprints before it measures. Here fingerprinting belongs to the backup; what it takes alone, on all
//! cores, stands beside it.

use std::fs;
use std::sync::Arc;

use anyhow::Result;
use serde::Serialize;

use super::{RevdedupOptions, Setting};
use crate::context::Context;
use crate::images::generate::Random;
use crate::layout::raw;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, figure, mb_per_second, median, Bar, Table};
use crate::run::check_interrupted;
use crate::vaults::in_process::LocalVault;
use crate::workload::MemoryDisk;

const SEGMENTS_MIB: [u32; 4] = [4, 8, 16, 32];
const DISK: &str = "unique/vda";

/// One measurement, of a setting or of plain files.
#[derive(Debug, Serialize)]
struct Step {
    run: usize,
    setting: String,
    write_seconds: f64,
    read_seconds: f64,
    /// Fingerprinting of the same data, alone.
    hash_seconds: f64,
}

/// Runs the experiment.
pub fn run(context: &Context, options: &RevdedupOptions) -> Result<()> {
    let bytes = if context.options.tiny { 32 << 20 } else { 2 << 30 };
    // One vault or file at a time, and the one being removed.
    context.require_free(2 * bytes as u64)?;
    let data = Arc::new(random_bytes(bytes, context.options.seed));
    let segments = options.segments_mib(context, &SEGMENTS_MIB);
    let settings = options.wanted(segments.into_iter().map(Setting::reverse).collect());
    let mut steps = Vec::new();
    for run in 0..context.runs() {
        for turn in 0..=settings.len() {
            check_interrupted()?;
            let step = match (run + turn) % (settings.len() + 1) {
                0 => measure_raw(context, run, &data)?,
                n => measure(context, run, &settings[n - 1], &data)?,
            };
            eprintln!(
                "run {run} {:16} write {:.2} s, read {:.2} s",
                step.setting, step.write_seconds, step.read_seconds
            );
            steps.push(step);
        }
    }
    report(context, bytes as u64, &settings, &steps)
}

fn random_bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed ^ 0x01d_da7a);
    let mut bytes = vec![0; length];
    for word in bytes.chunks_mut(8) {
        word.copy_from_slice(&random.bits().to_le_bytes()[..word.len()]);
    }
    bytes
}

const RAW: &str = "raw";

fn measure_raw(context: &Context, run: usize, data: &[u8]) -> Result<Step> {
    let path = context.space().join("raw");
    let write_seconds = raw::write(&path, data)?;
    context.make_cold(&path)?;
    let read_seconds = raw::read(&path)?;
    fs::remove_file(&path)?;
    Ok(Step { run, setting: RAW.into(), write_seconds, read_seconds, hash_seconds: raw::hash(data)? })
}

fn measure(context: &Context, run: usize, setting: &Setting, data: &Arc<Vec<u8>>) -> Result<Step> {
    let vault = LocalVault::create(&context.space().join("vault"), setting.policy, setting.codec)?;
    let source = Box::new(MemoryDisk(Arc::clone(data)));
    let (snapshot, cost) = vault.backup_source(DISK, source)?;
    context.make_cold(vault.dir())?;
    let read_seconds = vault.read(DISK, &snapshot)?;
    vault.remove()?;
    let hash_seconds = raw::hash(data)?;
    Ok(Step { run, setting: setting.name.clone(), write_seconds: cost.seconds, read_seconds, hash_seconds })
}

fn report(context: &Context, bytes: u64, settings: &[Setting], steps: &[Step]) -> Result<()> {
    let of = |setting: &str, run: usize| steps.iter().find(|s| s.setting == setting && s.run == run);
    // Times of plain files over times of the setting, within each run.
    let ratio = |setting: &str, value: fn(&Step) -> f64| {
        let ratios =
            (0..context.runs()).filter_map(|run| Some(value(of(RAW, run)?) / value(of(setting, run)?)));
        median(ratios)
    };
    let without_hash = |setting: &str| {
        let ratios = (0..context.runs()).filter_map(|run| {
            let step = of(setting, run)?;
            let rest = step.write_seconds - step.hash_seconds;
            (rest > 0.0).then_some(of(RAW, run)?.write_seconds / rest)
        });
        median(ratios)
    };
    let mut bars = Vec::new();
    for name in settings.iter().map(|s| s.name.as_str()) {
        bars.push(Bar::at_least(format!("{name}: write, times raw"), ratio(name, |s| s.write_seconds), 0.90));
        bars.push(Bar::shown(
            format!("{name}: write less the time of fingerprinting alone, times raw"),
            without_hash(name),
        ));
        bars.push(Bar::at_least(format!("{name}: read, times raw"), ratio(name, |s| s.read_seconds), 0.97));
    }
    let names: Vec<&str> = std::iter::once(RAW).chain(settings.iter().map(|s| s.name.as_str())).collect();
    let rate = |setting: &str, value: fn(&Step) -> f64| {
        median(steps.iter().filter(|s| s.setting == setting).map(|s| mb_per_second(bytes, value(s))))
    };
    let mut table = Table::new(["setting", "write MB/s", "read MB/s", "fingerprinting alone MB/s"]);
    for name in &names {
        table.row([
            (*name).to_owned(),
            figure(rate(name, |s| s.write_seconds), 0),
            figure(rate(name, |s| s.read_seconds), 0),
            figure(rate(name, |s| s.hash_seconds), 0),
        ]);
    }
    let series = |name: &str, value: fn(&Step) -> f64| {
        (name.to_owned(), names.iter().map(|setting| rate(setting, value)).collect())
    };
    let groups = names.iter().map(|name| (*name).to_owned()).collect();
    let series = vec![series("write", |s| s.write_seconds), series("read", |s| s.read_seconds)];
    let labels = Labels { title: "Unique data", x: "", y: "MB/s" };
    draw(context.out(), "revdedup-t1", &labels, &Figure::Bars { groups, series })?;
    let text = format!("{table}\n{}", bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters {
        data_bytes: u64,
        write: &'static str,
        read: &'static str,
    }
    let parameters = Parameters {
        data_bytes: bytes,
        write: "random bytes in memory to a vault, or to a plain file with fsync",
        read: "cold cache; restore that forgets what it read, or plain reads of 4 MiB",
    };
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        steps: &'a [Step],
    }
    context.save(context.runs(), parameters, Results { bars: &bars, steps }, &text)?;
    context.print(&text);
    Ok(())
}
