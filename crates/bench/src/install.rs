//! Installs what experiments measure against: from the distribution, and from the registry of Rust's packages what it
//! does not have.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{bail, Context as _, Result};

use crate::images;
use crate::run::is_installed;

/// Program, and the package that brings it.
const WANTED: [(&str, &str); 14] = [
    ("borg", "borgbackup"),
    ("restic", "restic"),
    ("casync", "casync"),
    ("zstd", "zstd"),
    ("7z", "p7zip-full"),
    ("lrzip", "lrzip"),
    ("rzip", "rzip"),
    ("zpaq", "zpaq"),
    ("qemu-img", "qemu-utils"),
    ("nbdcopy", "libnbd-bin"),
    ("fio", "fio"),
    ("bonnie++", "bonnie++"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("gnuplot", "gnuplot-nox"),
];

/// Program, package and version of what cargo builds; it stays in the user's cache.
const BUILT: [(&str, &str, &str); 1] = [("rustic", "rustic-rs", "0.11.4")];

/// Installs the packages of the programs that are not there.
pub fn missing() -> Result<()> {
    let packages: Vec<&str> =
        WANTED.iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect();
    if !packages.is_empty() {
        eprintln!("installing {}", packages.join(" "));
        apt_get(&["update"])?;
        let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
        arguments.extend(packages);
        apt_get(&arguments)?;
    }
    for (program, package, version) in BUILT {
        if self::program(program).is_none() {
            eprintln!("building {package} {version}");
            let root = cache()?;
            let mut cargo = Command::new("cargo");
            cargo.args(["install", "--locked", "--version", version, "--root"]).arg(&root).arg(package);
            finish(cargo)?;
        }
    }
    Ok(())
}

/// Where a program is that cargo built, or that the system has.
pub fn program(name: &str) -> Option<PathBuf> {
    if is_installed(name) {
        return Some(name.into());
    }
    Some(cache().ok()?.join("bin").join(name)).filter(|path| path.is_file())
}

/// The directory of programs that cargo built.
fn cache() -> Result<PathBuf> {
    Ok(images::cache()?.join("programs"))
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive")
        .args(["-q", "-o", "DPkg::Lock::Timeout=600"])
        .args(arguments);
    finish(apt)
}

/// Runs a command that must succeed.
fn finish(mut command: Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name} {}: {}", arguments.join(" "), said.trim());
    }
    Ok(())
}
