//! `paulo-6.2` (Paulo 2009, table 6.2): bonnie++ in a mounted pool, and in ext4 on a loop device.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{ensure, Context as _, Result};

use super::report::{report, Measured};
use crate::context::Context;
use crate::experiments::pools::PoolsOptions;
use crate::files;
use crate::mounted::{self, DiskOptions, Kind, Mounted};
use crate::run::is_installed;

const POOL: &str = "pool";
const EXT4: &str = "ext4";

/// Runs the experiment.
pub fn run(context: &Context, options: &PoolsOptions, disk: DiskOptions) -> Result<()> {
    ensure!(is_installed("bonnie++"), "bonnie++ is not installed: it is in the package bonnie++");
    let bytes = options.bytes(context, 4096, 16);
    context.require_free(3 * bytes)?;
    let mut measured = Vec::new();
    for run in 0..context.runs() {
        eprintln!("run {}", run + 1);
        let home = files::fresh_dir(&context.space().join("mounts"))?;
        for kind in mounted::comparable(run)? {
            let mut side = Mounted::create(context, kind, &home, bytes, disk)?;
            side.make_cold(context, 2 * bytes + (1 << 30))?;
            measured.push(measure(context, run, &mut side, bytes)?);
        }
        fs::remove_dir_all(&home)?;
    }
    report(context, bytes, &disk.words(), (&[POOL, EXT4], EXT4), &measured)
}

fn measure(context: &Context, run: usize, side: &mut Mounted, bytes: u64) -> Result<Measured> {
    let mut command = Command::new("bonnie++");
    let chars = if context.options.tiny { 1 } else { 64 };
    command.arg("-d").arg(side.place()).args(super::arguments(bytes, chars));
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    let output = command.stdin(Stdio::null()).output().context("cannot start bonnie++")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "bonnie++: {}: {}", output.status, said.trim());
    side.unmount()?;
    let name = if side.kind == Kind::Pool { POOL } else { EXT4 };
    Measured::new(run, name, String::from_utf8_lossy(&output.stdout).trim(), side.stored_bytes()?)
}
