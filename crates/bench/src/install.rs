//! Installs from the distribution what experiments measure against.

use std::process::Command;

use anyhow::{bail, Context as _, Result};

use crate::run::is_installed;

/// Program, and the package that brings it.
const WANTED: [(&str, &str); 9] = [
    ("borg", "borgbackup"),
    ("restic", "restic"),
    ("casync", "casync"),
    ("zstd", "zstd"),
    ("qemu-img", "qemu-utils"),
    ("nbdcopy", "libnbd-bin"),
    ("fio", "fio"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("gnuplot", "gnuplot-nox"),
];

/// Installs the packages of the programs that are not there.
pub fn missing() -> Result<()> {
    let packages: Vec<&str> =
        WANTED.iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    eprintln!("installing {}", packages.join(" "));
    apt_get(&["update"])?;
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    apt_get(&arguments)
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["-q", "-o", "DPkg::Lock::Timeout=600"])
        .args(arguments)
        .output()
        .context("cannot start apt-get")?;
    if !output.status.success() {
        bail!("apt-get {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
