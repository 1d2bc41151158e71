//! `livedfs-b2` (LiveDFS 2011, experiment B2, figure 11): how long inserting images into Glance takes, with its directory on
//! a pool's mount, and on ext4.
//!
//! Each run begins with two empty disks. Each image is read once before, then uploaded, and the file system is synced; both
//! times count. The first image of a distribution brings most of its blocks, the others share them.

use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

use super::service::{Service, IMAGES};
use crate::context::Context;
use crate::files;
use crate::images::{Disk, GeneratedShape};
use crate::mounted::{DiskOptions, Kind, Mounted};
use crate::results::report::{bars_table, figure, median, Bar, Table};
use crate::run::check_interrupted;

/// One image inserted.
#[derive(Clone, Debug, Serialize)]
struct Insert {
    run: usize,
    store: Kind,
    suite: String,
    image: String,
    bytes: u64,
    /// From the request to Glance's last answer.
    upload_seconds: f64,
    /// The sync behind it.
    sync_seconds: f64,
    /// Processor time of Glance.
    glance_cpu_seconds: f64,
    /// Processor time of the pool's server, of which ext4 has none; what the kernel does for either is not in it.
    server_cpu_seconds: f64,
}

impl Insert {
    fn seconds(&self) -> f64 {
        self.upload_seconds + self.sync_seconds
    }
}

/// Runs the experiment.
pub fn run(context: &Context, disk: DiskOptions) -> Result<()> {
    let tiny = GeneratedShape { suites: 2, disks: 2, versions: 1, size_bytes: 16 << 20 };
    let mut images = context.images("livedfs", tiny)?;
    images.truncate(None, Some(1));
    if !Service::is_installed() && !context.options.tiny {
        anyhow::bail!("Glance is not installed; tools/install-packages glance does that");
    }
    let data: u64 = images.disks.iter().map(|disk| disk.versions[0].size_bytes).sum();
    context.require_free(data)?;
    let mut inserts = Vec::new();
    for run in 0..context.runs() {
        for kind in Kind::in_turn(run) {
            eprintln!("run {}: {kind:?}", run + 1);
            insert_all(context, (run, kind), (data, disk), &images.disks, &mut inserts)?;
        }
    }
    report(context, &images.name, disk, &inserts)
}

fn insert_all(
    context: &Context,
    (run, kind): (usize, Kind),
    (bytes, disk): (u64, DiskOptions),
    disks: &[Disk],
    inserts: &mut Vec<Insert>,
) -> Result<()> {
    let mut store = Mounted::create(context, kind, &context.space().join("store"), bytes, disk)?;
    store.mount()?;
    let images = store.directory(IMAGES)?;
    let home = files::fresh_dir(&context.space().join("glance"))?;
    let service = Service::start(&home, &images)?;
    for source in disks {
        check_interrupted()?;
        let image = &source.versions[0];
        files::make_warm(&image.path)?;
        let cpu = || (service.cpu_seconds(), store.server_seconds());
        let (before, start) = (cpu(), Instant::now());
        let id = service.upload(&source.name, &image.path)?;
        let upload_seconds = start.elapsed().as_secs_f64();
        store.sync()?;
        let sync_seconds = start.elapsed().as_secs_f64() - upload_seconds;
        let after = cpu();
        inserts.push(Insert {
            run,
            store: kind,
            suite: source.suite.clone(),
            image: source.name.clone(),
            bytes: image.size_bytes,
            upload_seconds,
            sync_seconds,
            glance_cpu_seconds: after.0 - before.0,
            server_cpu_seconds: after.1 - before.1,
        });
        files::require_equal(&image.path, &images.join(id))?;
    }
    Ok(())
}

/// Medians of the ratios of pairs: the same image, the same run.
fn ratio(inserts: &[Insert], suite: Option<&str>, value: fn(&Insert) -> f64) -> Option<f64> {
    let of = |kind| {
        inserts.iter().filter(move |i| i.store == kind && suite.is_none_or(|suite| i.suite == suite)).cloned()
    };
    let pair = |pool: Insert| {
        let ext4 = of(Kind::Ext4).find(|i| (i.run, &i.image) == (pool.run, &pool.image))?;
        Some(value(&pool) / value(&ext4).max(1e-9))
    };
    median(of(Kind::Pool).filter_map(pair))
}

fn report(context: &Context, images: &str, disk: DiskOptions, inserts: &[Insert]) -> Result<()> {
    let mut suites: Vec<&str> = Vec::new();
    for insert in inserts {
        if !suites.contains(&insert.suite.as_str()) {
            suites.push(&insert.suite);
        }
    }
    let mut table = Table::new(["distribution", "pool, s", "of it sync", "ext4, s", "of it sync", "ratio"]);
    for suite in suites.iter().map(|suite| Some(*suite)).chain([None]) {
        let mean = |kind: Kind, value: fn(&Insert) -> f64| {
            let of = |i: &&Insert| i.store == kind && suite.is_none_or(|suite| i.suite == suite);
            let values: Vec<f64> = inserts.iter().filter(of).map(value).collect();
            Some(values.iter().sum::<f64>() / values.len().max(1) as f64)
        };
        let sync: fn(&Insert) -> f64 = |i| i.sync_seconds;
        table.row([
            suite.unwrap_or("all").to_owned(),
            figure(mean(Kind::Pool, Insert::seconds), 2),
            figure(mean(Kind::Pool, sync), 2),
            figure(mean(Kind::Ext4, Insert::seconds), 2),
            figure(mean(Kind::Ext4, sync), 2),
            figure(ratio(inserts, suite, Insert::seconds), 2),
        ]);
    }
    let cpu = |kind: Kind| {
        let of = inserts.iter().filter(|i| i.store == kind);
        median(of.map(|i| i.glance_cpu_seconds + i.server_cpu_seconds))
    };
    let bars = [
        Bar::at_most("insert with sync, times ext4", ratio(inserts, None, Insert::seconds), 1.0),
        Bar::shown("insert without sync, times ext4", ratio(inserts, None, |i| i.upload_seconds)),
        Bar::shown("processor time of Glance and server, pool, s", cpu(Kind::Pool)),
        Bar::shown("processor time of Glance, ext4, s", cpu(Kind::Ext4)),
    ];
    let through =
        if Service::is_installed() { "Glance" } else { "plain copies, because Glance is not installed" };
    let disk = disk.words();
    let text = format!(
        "Seconds for an image, means of {} runs, through {through}; {disk}.\n\n{table}\n{}",
        context.runs(),
        bars_table(&bars)
    );
    #[derive(Serialize)]
    struct Parameters<'a> {
        images: &'a str,
        through: &'a str,
        disk: &'a str,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        inserts: &'a [Insert],
    }
    let parameters = Parameters { images, through, disk: &disk };
    context.save(context.runs(), parameters, Results { bars: &bars, inserts }, &text)?;
    context.print(&text);
    Ok(())
}
