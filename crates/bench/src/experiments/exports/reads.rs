//! `exports-reads`: reading a snapshot over NBD, against qemu-nbd over the raw image and against a restore.
//!
//! Random reads are of a warm cache, on both sides: all of the disk was read once. Sequential ones are of a server that
//! was just started, so that every group is decompressed; the vault is in the page cache.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::server::Server;
use crate::context::Context;
use crate::files;
use crate::images::{Disk, GeneratedShape};
use crate::peers::{snapshot, Vault};
use crate::results::report::{bars_table, figure, mb_per_second, median, Bar, Table};
use crate::run::run as run_program;

/// Reads under way at once.
const DEPTHS: [u32; 2] = [1, 16];

#[derive(Debug, Serialize)]
struct Random {
    run: usize,
    disk: String,
    server: &'static str,
    depth: u32,
    reads_per_second: f64,
}

#[derive(Debug, Serialize)]
struct Sequential {
    run: usize,
    disk: String,
    what: &'static str,
    /// Bytes that are not holes.
    bytes: u64,
    seconds: f64,
}

#[derive(Default, Serialize)]
struct Measured {
    random: Vec<Random>,
    sequential: Vec<Sequential>,
}

const SAPWOOD: &str = "sapwood nbd";
const QEMU: &str = "qemu-nbd";
const COPY: &str = "sapwood nbd, nbdcopy";
const QEMU_COPY: &str = "qemu-nbd, nbdcopy";
const RESTORE: &str = "sapwood restore";

/// Runs the experiment.
pub fn run(context: &Context) -> Result<()> {
    let tiny = GeneratedShape { suites: 1, disks: 1, versions: 2, size_bytes: 32 << 20 };
    let images = context.images("full", tiny)?;
    let mut measured = Measured::default();
    for disk in &images.disks {
        measure(context, disk, &mut measured)?;
    }
    let iops = |server: &str, depth: u32| {
        let of = measured.random.iter().filter(|r| r.server == server && r.depth == depth);
        median(of.map(|r| r.reads_per_second))
    };
    let rate = |what: &str| {
        let of = measured.sequential.iter().filter(|s| s.what == what);
        median(of.map(|s| mb_per_second(s.bytes, s.seconds)))
    };
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let mut bars: Vec<Bar> = DEPTHS
        .iter()
        .map(|&depth| {
            let what = format!("random 4 KiB reads, {depth} at once, times qemu-nbd over the raw file");
            Bar::at_least(what, ratio(iops(SAPWOOD, depth), iops(QEMU, depth)), 0.5)
        })
        .collect();
    let copied = ratio(rate(COPY), rate(RESTORE));
    bars.push(Bar::at_least("copying the disk over NBD, times a restore to a file", copied, 1.0));
    bars.push(Bar::shown("the same, times qemu-nbd over the raw file", ratio(rate(COPY), rate(QEMU_COPY))));
    let mut table = Table::new(["server", "reads/s, 1 at once", "16 at once"]);
    for server in [SAPWOOD, QEMU] {
        table.row([server.to_owned(), figure(iops(server, 1), 0), figure(iops(server, 16), 0)]);
    }
    let mut copies = Table::new(["copied", "MB/s of what is no hole"]);
    for what in [COPY, QEMU_COPY, RESTORE] {
        copies.row([what.to_owned(), figure(rate(what), 0)]);
    }
    let text = format!("{table}\n{copies}\n{}", bars_table(&bars));
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        measured: &'a Measured,
    }
    context.save(context.runs(), &images.name, Results { bars: &bars, measured: &measured }, &text)?;
    context.print(&text);
    Ok(())
}

fn measure(context: &Context, disk: &Disk, measured: &mut Measured) -> Result<()> {
    let home = files::fresh_dir(&context.space().join("exports"))?;
    let vault_path = home.join("vault");
    let vault = Vault::new(&context.sapwood()?, vault_path.clone(), "balanced", None);
    vault.init()?;
    let mut newest = String::new();
    for image in &disk.versions {
        newest = snapshot(&vault.backup(&disk.name, &image.path)?)?;
    }
    let image = disk.versions.last().context("a disk without versions")?;
    let bytes = files::Space::of(&image.path)?.allocated_bytes;
    context.require_free(2 * bytes)?;
    let named = format!("{}@{newest}", disk.name);
    let socket = home.join("socket");
    let sapwood = || Server::sapwood(&context.sapwood()?, &vault_path, &named, &["--cache=6G"], &socket);
    let seconds = if context.options.tiny { 1 } else { 10 };
    for run in 0..context.runs() {
        let mut add = |what, seconds| {
            measured.sequential.push(Sequential { run, disk: disk.name.clone(), what, bytes, seconds });
        };
        for turn in 0..2 {
            let server = match (run + turn) % 2 {
                0 => {
                    let server = sapwood()?;
                    add(COPY, copy(&server, &home)?);
                    (SAPWOOD, server)
                }
                _ => {
                    files::make_warm(&image.path)?;
                    let server = Server::qemu(&image.path, &socket)?;
                    add(QEMU_COPY, copy(&server, &home)?);
                    (QEMU, server)
                }
            };
            for depth in DEPTHS {
                let reads_per_second = random(&server.1, depth, seconds, image.size_bytes, &home)?;
                let disk = disk.name.clone();
                measured.random.push(Random { run, disk, server: server.0, depth, reads_per_second });
            }
        }
        let target = home.join("restored.raw");
        add(RESTORE, vault.restore(&named, &target)?.cost.durable_seconds());
        fs::remove_file(&target)?;
    }
    fs::remove_dir_all(home)?;
    Ok(())
}

/// Seconds in which all of the disk is read.
fn copy(server: &Server, home: &Path) -> Result<f64> {
    let finished = run_program(Command::new("nbdcopy").arg(server.uri()).arg("null:"), home)?;
    Ok(finished.cost.wall_seconds)
}

fn random(server: &Server, depth: u32, seconds: u32, size: u64, home: &Path) -> Result<f64> {
    let mut fio = Command::new("fio");
    fio.args(["--name=random", "--ioengine=nbd", "--rw=randread", "--bs=4k", "--time_based", "--readonly"]);
    fio.args([format!("--uri={}", server.uri()), format!("--iodepth={depth}"), format!("--size={size}")]);
    fio.args([format!("--runtime={seconds}"), "--output-format=json".into()]);
    let finished = run_program(fio.current_dir(home), home)?;
    // fio says things before its JSON where it is in the mood.
    let text = String::from_utf8_lossy(&finished.stdout);
    let json: serde_json::Value = serde_json::from_str(text.get(text.find('{').unwrap_or(0)..).unwrap_or(""))
        .context("fio printed no JSON")?;
    json["jobs"][0]["read"]["iops"].as_f64().with_context(|| format!("no reads in what fio printed: {text}"))
}
