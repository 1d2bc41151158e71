//! `lin-2.12` (Lin 2015, figures 2.12 and 2.13): packages of a distribution, unpacked, compressed by gzip and by `mzip`, and how
//! long they take over a slow link.
//!
//! The link is a pipe that lets so many bytes through a second (a token bucket, which holds `BURST`). A transfer ends when the
//! other end has the package as it was. What is compressed before counts from the first byte sent; what is compressed on
//! the way, from the start of the compressor.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use serde::Serialize;

use crate::context::Context;
use crate::files::require_equal;
use crate::images::generate::Random;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, figure, median, Bar, Table};
use crate::run::check_interrupted;

/// Bytes that the link takes at a time.
const PACKET_BYTES: usize = 1500;
/// What may be sent at once after a pause, as time: sleeping is not exact.
const BURST: Duration = Duration::from_millis(20);
/// Packages that gain most, as in the paper.
const BEST: usize = 5;

/// What is done of the experiment.
#[derive(clap::Args, Clone, Debug)]
pub struct PackagesOptions {
    /// The link's rate in Mbit/s
    #[arg(long, default_value_t = 3.0, value_name = "MBIT")]
    pub rate: f64,
    /// How many packages: the largest that are installed
    #[arg(long, default_value_t = 12, value_name = "N")]
    pub packages: usize,
    /// No package of more than so many MiB
    #[arg(long, default_value_t = 24, value_name = "MIB")]
    pub package_mib: u64,
}

/// How a package is sent. `$SAPWOOD` is the program.
struct Sending {
    name: &'static str,
    pack: &'static str,
    unpack: &'static str,
}

const WAYS: [Sending; 4] = [
    Sending { name: "plain", pack: "cat", unpack: "cat" },
    Sending { name: "gzip", pack: "gzip -6 -c", unpack: "gzip -dc" },
    Sending {
        name: "mzip gzip",
        pack: "\"$SAPWOOD\" -q mzip --with gzip --chunk cdc:2k",
        unpack: "\"$SAPWOOD\" -q munzip",
    },
    Sending {
        name: "mzip zstd 19",
        pack: "\"$SAPWOOD\" -q mzip --with zstd --level 19 --chunk cdc:2k",
        unpack: "\"$SAPWOOD\" -q munzip",
    },
];
/// Where the ways that are compared stand.
const PLAIN: usize = 0;
const GZIP: usize = 1;
const MZIP: usize = 2;

/// One package and one way.
#[derive(Debug, Default, Serialize)]
struct Sent {
    bytes: u64,
    /// Of each run.
    before_seconds: Vec<f64>,
    on_the_way_seconds: Vec<f64>,
}

/// One package.
#[derive(Debug, Serialize)]
struct Measured {
    package: String,
    tar_bytes: u64,
    /// In the order of the ways.
    sent: Vec<Sent>,
}

impl Measured {
    /// Of gzip's bytes.
    fn ratio(&self) -> f64 {
        self.sent[MZIP].bytes as f64 / self.sent[GZIP].bytes as f64
    }

    fn seconds(&self, way: usize, on_the_way: bool) -> f64 {
        let sent = &self.sent[way];
        let all = if on_the_way { &sent.on_the_way_seconds } else { &sent.before_seconds };
        median(all.iter().copied()).unwrap_or_default()
    }
}

/// Runs the experiment.
pub fn run(context: &Context, options: &PackagesOptions) -> Result<()> {
    let sapwood = context.sapwood()?;
    // Quick, where it is only to be seen that all of it works.
    let rate = if context.options.tiny { 50e6 } else { options.rate * 1e6 / 8.0 };
    ensure!(rate > 0.0, "--rate is more than 0");
    let mut all = Vec::new();
    for (package, tar) in packages(context, options)? {
        all.push(measure(context, &sapwood, rate, package, &tar)?);
        fs::remove_file(&tar)?;
    }
    ensure!(!all.is_empty(), "no package is installed that is short enough");
    let bars = bars(&all);
    let text = format!("{}\n{}", table(&all), bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters {
        bytes_per_second: f64,
        ways: Vec<(&'static str, &'static str)>,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        measured: &'a [Measured],
    }
    let parameters =
        Parameters { bytes_per_second: rate, ways: WAYS.iter().map(|way| (way.name, way.pack)).collect() };
    context.save(context.runs(), parameters, Results { bars: &bars, measured: &all }, &text)?;
    context.print(&text);
    draw_figure(context, &all)
}

/// Archives of packages, each beside its name.
fn packages(context: &Context, options: &PackagesOptions) -> Result<Vec<(String, PathBuf)>> {
    if context.options.tiny {
        return made(context);
    }
    let listed =
        output(Command::new("dpkg-query").args(["-W", "-f", "${Installed-Size} ${binary:Package}\n"]))?;
    let size_of =
        |line: &str| line.split_once(' ').and_then(|(kib, name)| Some((kib.parse().ok()?, name.to_owned())));
    let mut sizes: Vec<(u64, String)> = listed.lines().filter_map(size_of).collect();
    sizes.retain(|(kib, _)| kib >> 10 <= options.package_mib);
    sizes.sort_by(|a, b| b.cmp(a));
    let mut all = Vec::new();
    for (kib, package) in sizes.into_iter().take(options.packages) {
        context.require_free(4 * (kib << 10))?;
        let name = package.split(':').next().unwrap_or(&package).to_owned();
        let tar = context.space().join(format!("{name}.tar"));
        // What is listed, is there, and is no directory; the archive is alike each time.
        let files: String = output(Command::new("dpkg-query").args(["-L", &package]))?
            .lines()
            .filter(|path| Path::new(path).symlink_metadata().is_ok_and(|there| !there.is_dir()))
            .map(|path| format!("{path}\n"))
            .collect();
        let list = context.space().join("list");
        fs::write(&list, files)?;
        let mut command = Command::new("tar");
        command
            .args(["--no-recursion", "--owner=0", "--group=0", "-P", "-cf"])
            .arg(&tar)
            .arg("-T")
            .arg(&list);
        output(&mut command)?;
        all.push((name, tar));
    }
    Ok(all)
}

/// Two archives of a few versions of the same pages.
fn made(context: &Context) -> Result<Vec<(String, PathBuf)>> {
    let mut random = Random::new(context.options.seed);
    let mut page: Vec<u8> = (0..200_000).map(|_| random.below(40) as u8).collect();
    ["one", "two"]
        .into_iter()
        .map(|name| {
            let mut content = Vec::new();
            for _ in 0..3 {
                let at = random.below(page.len() as u64) as usize;
                page[at] ^= 0x80;
                content.extend_from_slice(&page);
            }
            let tar = context.space().join(format!("{name}.tar"));
            fs::write(&tar, content)?;
            Ok((name.to_owned(), tar))
        })
        .collect()
}

fn measure(context: &Context, sapwood: &Path, rate: f64, package: String, tar: &Path) -> Result<Measured> {
    let (packed, back) = (context.space().join("packed"), context.space().join("back"));
    let mut sent: Vec<Sent> = WAYS.iter().map(|_| Sent::default()).collect();
    for _ in 0..context.runs() {
        for (way, sent) in WAYS.iter().zip(&mut sent) {
            check_interrupted()?;
            let mut packer =
                start(sapwood, way.pack, File::open(tar)?.into(), File::create(&packed)?.into())?;
            end(&mut packer, way.pack)?;
            sent.bytes = fs::metadata(&packed)?.len();

            let begin = Instant::now();
            transfer(&mut File::open(&packed)?, sapwood, way, rate, &back)?;
            sent.before_seconds.push(begin.elapsed().as_secs_f64());
            require_equal(tar, &back)?;

            let begin = Instant::now();
            let mut packer = start(sapwood, way.pack, File::open(tar)?.into(), Stdio::piped())?;
            let mut output = packer.stdout.take().context("the compressor's output is a pipe")?;
            transfer(&mut output, sapwood, way, rate, &back)?;
            sent.on_the_way_seconds.push(begin.elapsed().as_secs_f64());
            end(&mut packer, way.pack)?;
            require_equal(tar, &back)?;
        }
    }
    let measured = Measured { package, tar_bytes: fs::metadata(tar)?.len(), sent };
    fs::remove_file(&packed)?;
    fs::remove_file(&back)?;
    Ok(measured)
}

/// Sends what comes over the link, and unpacks it into a file.
fn transfer(from: &mut dyn Read, sapwood: &Path, way: &Sending, rate: f64, to: &Path) -> Result<()> {
    let mut unpacker = start(sapwood, way.unpack, Stdio::piped(), File::create(to)?.into())?;
    let mut link =
        Link { to: unpacker.stdin.take().context("the other end is a pipe")?, rate, free_at: Instant::now() };
    let mut packet = [0; PACKET_BYTES];
    loop {
        let len = from.read(&mut packet)?;
        if len == 0 {
            break;
        }
        check_interrupted()?;
        link.send(&packet[..len])?;
    }
    drop(link);
    end(&mut unpacker, way.unpack)
}

/// A pipe with a rate.
struct Link<W> {
    to: W,
    /// Bytes a second.
    rate: f64,
    /// When what was sent has gone through.
    free_at: Instant,
}

impl<W: Write> Link<W> {
    /// Sends a packet: it arrives when all before it, and it, have gone through.
    fn send(&mut self, packet: &[u8]) -> std::io::Result<()> {
        let now = Instant::now();
        let free_at = now.checked_sub(BURST).map_or(self.free_at, |least| self.free_at.max(least));
        self.free_at = free_at + Duration::from_secs_f64(packet.len() as f64 / self.rate);
        std::thread::sleep(self.free_at.saturating_duration_since(now));
        self.to.write_all(packet)
    }
}

fn start(sapwood: &Path, line: &str, from: Stdio, to: Stdio) -> Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec {line}")]).env("SAPWOOD", sapwood).stdin(from).stdout(to);
    command.spawn().with_context(|| format!("cannot start {line}"))
}

fn end(child: &mut Child, line: &str) -> Result<()> {
    let status = child.wait()?;
    ensure!(status.success(), "{line} ended with {status}");
    Ok(())
}

/// What a program prints, which must succeed.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().with_context(|| program.clone())?;
    ensure!(done.status.success(), "{program} failed: {}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

fn table(all: &[Measured]) -> Table {
    let mut columns = vec!["package".to_owned(), "tar MB".into(), "mzip, of gzip's bytes".into()];
    columns.extend(WAYS.iter().map(|way| format!("{}: MB", way.name)));
    columns.extend(WAYS.iter().map(|way| format!("{}: s", way.name)));
    columns.extend(WAYS.iter().map(|way| format!("{}, on the way: s", way.name)));
    let mut table = Table::new(columns);
    for m in all {
        let mut row =
            vec![m.package.clone(), figure(Some(m.tar_bytes as f64 / 1e6), 1), figure(Some(m.ratio()), 3)];
        row.extend(m.sent.iter().map(|sent| figure(Some(sent.bytes as f64 / 1e6), 2)));
        row.extend((0..WAYS.len()).map(|way| figure(Some(m.seconds(way, false)), 1)));
        row.extend((0..WAYS.len()).map(|way| figure(Some(m.seconds(way, true)), 1)));
        table.row(row);
    }
    table
}

fn bars(all: &[Measured]) -> Vec<Bar> {
    let bytes = |way: usize| all.iter().map(|m| m.sent[way].bytes).sum::<u64>() as f64;
    let of_gzip = |those: &[&Measured], on_the_way: bool| {
        let seconds = |way: usize| those.iter().map(|m| m.seconds(way, on_the_way)).sum::<f64>();
        Some(seconds(MZIP) / seconds(GZIP))
    };
    let mut best: Vec<&Measured> = all.iter().collect();
    best.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let each = all.iter().map(|m| m.sent[GZIP].bytes as f64 / m.sent[MZIP].bytes as f64).sum::<f64>()
        / all.len() as f64;
    let every: Vec<&Measured> = all.iter().collect();
    let best = &best[..best.len().min(BEST)];
    vec![
        Bar::shown("gzip, of the plain bytes", Some(bytes(GZIP) / bytes(PLAIN))),
        Bar::at_most("mzip, of gzip's bytes, all together", Some(bytes(MZIP) / bytes(GZIP)), 0.85),
        Bar::at_least("mzip, of gzip's factor, mean of packages", Some(each), 1.32),
        Bar::at_most("mzip, of gzip's seconds, compressed before", of_gzip(&every, false), 0.87),
        Bar::at_most("mzip, of gzip's seconds, compressed on the way", of_gzip(&every, true), 0.95),
        Bar::at_most("the same of the best five, compressed before", of_gzip(best, false), 0.24),
        Bar::at_most("the same of the best five, compressed on the way", of_gzip(best, true), 0.31),
    ]
}

fn draw_figure(context: &Context, all: &[Measured]) -> Result<()> {
    let groups: Vec<String> = all.iter().map(|m| m.package.clone()).collect();
    let bars = |way: usize| all.iter().map(|m| Some(m.seconds(way, false))).collect();
    let series = WAYS.iter().enumerate().map(|(n, way)| (way.name.to_owned(), bars(n))).collect();
    let labels = Labels { title: "Packages over a slow link", x: "", y: "seconds" };
    draw(context.out(), "lin-2.12", &labels, &Figure::Bars { groups, series })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_its_rate() {
        let begin = Instant::now();
        let mut link = Link { to: Vec::new(), rate: 100_000.0, free_at: begin };
        for _ in 0..20 {
            link.send(&[7; 1000]).expect("memory takes it");
        }
        let seconds = begin.elapsed().as_secs_f64();
        assert_eq!(link.to.len(), 20_000);
        assert!((0.2..1.0).contains(&seconds), "{seconds}");
        // What was not used in a pause is lost, but for a little.
        std::thread::sleep(Duration::from_millis(200));
        let begin = Instant::now();
        link.send(&[7; 10_000]).expect("memory takes it");
        assert!(begin.elapsed() >= Duration::from_millis(100) - BURST);
    }
}
