//! `exports-boot`: the time from the command to a login, from the raw image and from a snapshot of it.
//!
//! QEMU emulates the processor where it cannot have one: the boot is then longer than on hardware, and what reading adds
//! to it is a smaller part. The time until the guest's first read is therefore told as well.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use serde::Serialize;

use crate::context::Context;
use crate::files;
use crate::images::GeneratedShape;
use crate::peers::{snapshot, Vault};
use crate::results::report::{bars_table, figure, median, Bar, Table};
use crate::run::check_interrupted;

/// How long a guest may take.
const BOOT_TIME: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Disk {
    /// The raw image, its changes thrown away.
    Raw,
    Scratch,
    Overlay,
    /// While it is restored.
    Live,
}

impl Disk {
    const ALL: [Disk; 4] = [Disk::Raw, Disk::Scratch, Disk::Overlay, Disk::Live];

    fn name(self) -> &'static str {
        match self {
            Disk::Raw => "raw file",
            Disk::Scratch => "nbd --scratch",
            Disk::Overlay => "nbd --overlay",
            Disk::Live => "restore --live",
        }
    }
}

#[derive(Debug, Serialize)]
struct Boot {
    run: usize,
    disk: Disk,
    /// From the command to the login.
    seconds: f64,
    /// From the command to the first line of the guest's firmware or system.
    first_word_seconds: f64,
}

/// Runs the experiment.
pub fn run(context: &Context) -> Result<()> {
    let tiny = GeneratedShape { suites: 1, disks: 1, versions: 1, size_bytes: 16 << 20 };
    let images = context.images("small", tiny)?;
    let image = images.disks.first().and_then(|d| d.versions.last()).context("no image")?;
    let home = files::fresh_dir(&context.space().join("boot"))?;
    let sapwood = context.sapwood()?;
    let vault_path = home.join("vault");
    let vault = Vault::new(&sapwood, vault_path.clone(), "balanced", None);
    vault.init()?;
    let named = format!("web01/vda@{}", snapshot(&vault.backup("web01/vda", &image.path)?)?);
    // Nothing boots from a generated disk, and the firmware says so.
    let marker = if context.options.tiny { "No bootable device" } else { "login:" };
    let mut boots = Vec::new();
    for run in 0..context.runs() {
        for turn in 0..Disk::ALL.len() {
            let disk = Disk::ALL[(run + turn) % Disk::ALL.len()];
            files::make_warm(&image.path)?;
            let mut command = Command::new(&sapwood);
            command.args(["--quiet", "--store"]).arg(&vault_path);
            let overlay = home.join("overlay.qcow2");
            let target = home.join("target.raw");
            match disk {
                Disk::Raw => command = Command::new("qemu-system-x86_64"),
                Disk::Scratch => {
                    command.args(["nbd", &named]).arg(format!("--scratch={}", home.display()));
                }
                Disk::Overlay => {
                    command.args(["nbd", &named, "--overlay"]).arg(&overlay);
                }
                Disk::Live => {
                    command.args(["restore", &named]).arg(&target).arg("--live");
                }
            }
            match disk {
                Disk::Raw => {
                    machine(&mut command, &format!("file={},format=raw,snapshot=on", image.path.display()))
                }
                _ => {
                    // The shell puts the address in.
                    let mut inner = Command::new("qemu-system-x86_64");
                    machine(&mut inner, "file=$NBD_URI,format=raw");
                    let words: Vec<_> =
                        inner.get_args().map(|a| format!("\"{}\"", a.to_string_lossy())).collect();
                    command
                        .args(["--", "sh", "-c"])
                        .arg(format!("exec qemu-system-x86_64 {}", words.join(" ")));
                }
            }
            let (first_word_seconds, seconds) = boot(&mut command, marker, &home)?;
            boots.push(Boot { run, disk, seconds, first_word_seconds });
            for left in [&overlay, &target] {
                let _ = fs::remove_file(left);
            }
            for suffix in [".sapwood-arriving", ".sapwood-map"] {
                let _ = fs::remove_file(home.join(format!("target.raw{suffix}")));
            }
        }
    }
    fs::remove_dir_all(&home)?;
    report(context, &boots)
}

fn report(context: &Context, boots: &[Boot]) -> Result<()> {
    let of = |disk: Disk, value: fn(&Boot) -> f64| median(boots.iter().filter(|b| b.disk == disk).map(value));
    let mut table = Table::new(["disk", "s to the first word", "s to the login"]);
    let mut bars = Vec::new();
    for disk in Disk::ALL {
        let first = of(disk, |b| b.first_word_seconds);
        table.row([disk.name().to_owned(), figure(first, 2), figure(of(disk, |b| b.seconds), 1)]);
        if disk == Disk::Raw {
            continue;
        }
        let times = of(disk, |b| b.seconds).zip(of(Disk::Raw, |b| b.seconds)).map(|(a, b)| a / b);
        bars.push(Bar::at_most(
            format!("{}: time to the login, times the raw file", disk.name()),
            times,
            1.2,
        ));
    }
    let text = format!("{table}\n{}", bars_table(&bars));
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        boots: &'a [Boot],
    }
    context.save(context.runs(), "emulated processor", Results { bars: &bars, boots }, &text)?;
    context.print(&text);
    Ok(())
}

fn machine(command: &mut Command, drive: &str) {
    command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "768", "-nographic"]);
    command.args(["-monitor", "none", "-serial", "stdio", "-nic", "none", "-no-reboot", "-drive"]);
    command.arg(format!("{drive},if=virtio"));
}

/// Seconds until the guest says something, and until it says `marker`. Ends the machine then.
fn boot(command: &mut Command, marker: &str, home: &Path) -> Result<(f64, f64)> {
    let start = Instant::now();
    let child = command
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    let mut guest = Guest(child);
    let mut console = guest.0.stdout.take().context("a guest without a console")?;
    let (said, hears) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = console.read(&mut buffer) {
            if said.send((start.elapsed(), buffer[..len].to_vec())).is_err() {
                break;
            }
        }
    });
    let (mut first, mut all) = (None, String::new());
    while start.elapsed() < BOOT_TIME {
        check_interrupted()?;
        match hears.recv_timeout(Duration::from_millis(500)) {
            Ok((at, bytes)) => {
                first.get_or_insert(at);
                all.push_str(&String::from_utf8_lossy(&bytes));
                if all.contains(marker) {
                    return Ok((first.unwrap_or(at).as_secs_f64(), at.as_secs_f64()));
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let end = all.len().saturating_sub(500);
    bail!("the guest did not come to {marker:?}; it said: {}", all.get(end..).unwrap_or(&all))
}

/// A machine, or what serves its disk and runs it: asked to end, and waited for.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}
