//! Talks to libvirt through `virsh`, which finds the daemon of any version and applies the user's rights.

use anyhow::{bail, Context as _, Result};
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What takes longer is given up: a guest may be frozen meanwhile. Freezing flushes the guest's caches.
const PATIENCE: Duration = Duration::from_secs(60);

/// Talks about one domain. The connection is virsh's default, or what `LIBVIRT_DEFAULT_URI` says.
pub struct Virsh {
    domain: String,
    /// What virsh is told: a name of digits alone would be another domain's number.
    id: OnceLock<String>,
}

impl Virsh {
    pub fn new(domain: &str) -> Self {
        Virsh { domain: domain.into(), id: OnceLock::new() }
    }

    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// A command about the domain, with more arguments. Returns what it printed.
    pub fn of_domain(&self, command: &str, more: &[&str]) -> Result<String> {
        let of_domain = || -> Result<String> {
            let mut args = vec![command, "--domain", self.id()?];
            args.extend(more);
            self.run(&args)
        };
        of_domain().with_context(|| format!("libvirt domain {}", self.domain))
    }

    /// What tells virsh the domain: the UUID of the one that has this name, where virsh would look for a number first.
    fn id(&self) -> Result<&str> {
        if let Some(id) = self.id.get() {
            return Ok(id);
        }
        let mut id = self.domain.clone();
        if id.bytes().all(|b| b.is_ascii_digit()) {
            let list = self.run(&["list", "--all", "--uuid", "--name"])?;
            let named = list.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
            let uuid = named.filter(|(_, name)| name.trim() == self.domain).map(|(uuid, _)| uuid).next();
            id = uuid.map_or(id, str::to_owned);
        }
        Ok(self.id.get_or_init(|| id))
    }

    /// Whether its guest's memory is in a file, to go on from there.
    pub fn is_saved(&self) -> Result<bool> {
        let told = self.of_domain("dominfo", &[])?;
        let saved = told.lines().find_map(|line| line.strip_prefix("Managed save:"));
        Ok(saved.is_some_and(|is| is.trim() == "yes"))
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

    /// The names of all domains, running or not.
    pub fn names(&self) -> Result<Vec<String>> {
        let list = self.run(&["list", "--all", "--name"])?;
        Ok(list.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// Makes libvirt know the domain of a file.
    pub fn define(file: &Path) -> Result<()> {
        let path = file.to_str().with_context(|| format!("{}: is not UTF-8", file.display()))?;
        Virsh::new("").run(&["define", "--file", path]).map(drop)
    }

    fn run(&self, args: &[&str]) -> Result<String> {
        let mut virsh = Command::new("virsh");
        // A group of its own: a Ctrl-C is for us to carry out, in order.
        virsh.arg("--quiet").args(args).env("LC_ALL", "C").process_group(0);
        virsh.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = virsh.spawn().map_err(|e| match e.kind() {
            ErrorKind::NotFound => anyhow::anyhow!("virsh: is not installed (Debian: libvirt-clients)"),
            _ => anyhow::Error::new(e).context("virsh: cannot be started"),
        })?;
        let (stdout, stderr) = (drain(child.stdout.take())?, drain(child.stderr.take())?);
        let status = wait(&mut child)?;
        let text = |drained: std::thread::JoinHandle<Vec<u8>>| drained.join().unwrap_or_default();
        let (stdout, stderr) = (text(stdout), text(stderr));
        let Some(status) = status else {
            bail!("virsh {}: libvirt does not answer within {} s", args[0], PATIENCE.as_secs());
        };
        if !status.success() {
            let said = String::from_utf8_lossy(&stderr);
            let lines = said.lines().map(|l| l.trim_start_matches("error: ").trim());
            let why: Vec<&str> = lines.filter(|l| !l.is_empty()).collect();
            bail!("virsh {}: {}", args[0], if why.is_empty() { "failed".into() } else { why.join("; ") });
        }
        String::from_utf8(stdout)
            .with_context(|| format!("virsh {}: printed something other than text", args[0]))
    }
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> io::Result<JoinHandle<Vec<u8>>> {
    thread::Builder::new().name("virsh".into()).spawn(move || {
        let mut bytes = Vec::new();
        // What was read until it broke is what there is.
        let _ = pipe.map(|mut p| p.read_to_end(&mut bytes));
        bytes
    })
}

/// Waits for its end. `None`: it took too long, and was killed.
fn wait(child: &mut Child) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
