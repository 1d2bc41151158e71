//! libvirt, through its own program: it finds the daemon, whatever its version, and the user's rights with it.

use anyhow::{bail, Context as _, Result};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Talks about one domain. The connection is virsh's default, or what `LIBVIRT_DEFAULT_URI` says.
pub struct Virsh {
    domain: String,
}

impl Virsh {
    pub fn new(domain: &str) -> Self {
        Virsh { domain: domain.into() }
    }

    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// A command about the domain, with more arguments. Returns what it printed.
    pub fn of_domain(&self, command: &str, more: &[&str]) -> Result<String> {
        let mut args = vec![command, "--domain", &self.domain];
        args.extend(more);
        self.run(&args).with_context(|| format!("libvirt domain {}", self.domain))
    }

    /// The version of QEMU that libvirt runs: major and minor.
    pub fn qemu_version(&self) -> Result<(u64, u64)> {
        let all = self.run(&["version"])?;
        let line = all.lines().find_map(|line| line.split_once("hypervisor: QEMU "));
        let mut numbers = line.iter().flat_map(|(_, version)| version.split('.')).map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
            _ => bail!("libvirt: virsh version does not tell the version of QEMU"),
        }
    }

    fn run(&self, args: &[&str]) -> Result<String> {
        let mut virsh = Command::new("virsh");
        // A group of its own: a Ctrl-C is for us to carry out, in order.
        virsh.arg("--quiet").args(args).env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
        let done = virsh.output().map_err(|e| match e.kind() {
            ErrorKind::NotFound => anyhow::anyhow!("virsh: is not installed (Debian: libvirt-clients)"),
            _ => anyhow::Error::new(e).context("virsh: cannot be started"),
        })?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            let lines = said.lines().map(|l| l.trim_start_matches("error: ").trim());
            let why: Vec<&str> = lines.filter(|l| !l.is_empty()).collect();
            bail!("virsh {}: {}", args[0], if why.is_empty() { "failed".into() } else { why.join("; ") });
        }
        String::from_utf8(done.stdout).with_context(|| format!("virsh {}: printed what is no text", args[0]))
    }
}
