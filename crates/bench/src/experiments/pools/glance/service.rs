//! Glance itself, with its images in a directory: no Keystone, SQLite, on the loopback. Where it is not installed, plain
//! copies to the directory and back stand for it.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};

use crate::run::{self, check_interrupted, succeed};

/// Its directory in a file system.
pub const IMAGES: &str = "images";

/// How long Glance may take until it answers.
const START_TIME: Duration = Duration::from_secs(120);

/// What images are uploaded to.
pub struct Service {
    images: PathBuf,
    /// Glance, and where it answers.
    glance: Option<(Child, String)>,
}

impl Service {
    /// Whether Debian's Glance is installed, and a client for it.
    pub fn is_installed() -> bool {
        ["glance-api", "glance-manage", "curl"].into_iter().all(run::is_installed)
    }

    /// Starts Glance with its images in a directory, and what else it has in `home`.
    pub fn start(home: &Path, images: &Path) -> Result<Self> {
        let mut service = Service { images: images.to_owned(), glance: None };
        if !Self::is_installed() {
            return Ok(service);
        }
        for directory in ["staging", "lock"] {
            fs::create_dir_all(home.join(directory))?;
        }
        // Free now; nobody else takes it in the second until Glance listens there.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let settings = home.join("glance-api.conf");
        fs::write(&settings, settings_of(home, images, port))?;
        succeed(Command::new("glance-manage").arg("--config-file").arg(&settings).arg("db_sync"))?;
        let log = fs::File::create(home.join("glance.out"))?;
        let child = Command::new("glance-api")
            .arg("--config-file")
            .arg(&settings)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start glance-api")?;
        let (child, url) = service.glance.insert((child, format!("http://127.0.0.1:{port}/v2/images")));
        let start = Instant::now();
        while succeed(Command::new("curl").args(["-fsS", "-o", "/dev/null"]).arg(&*url)).is_err() {
            check_interrupted()?;
            if let Some(status) = child.try_wait()? {
                let said = fs::read_to_string(home.join("glance.out")).unwrap_or_default();
                bail!("glance-api ended before it answered: {status}: {said}");
            }
            if start.elapsed() > START_TIME {
                bail!("glance-api does not answer at {url}");
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(service)
    }

    /// Processor time of Glance so far.
    pub fn cpu_seconds(&self) -> f64 {
        self.glance.as_ref().map_or(0.0, |(glance, _)| run::cpu_seconds(glance.id()))
    }

    /// Inserts an image. Returns what it is called from then on.
    pub fn upload(&self, name: &str, image: &Path) -> Result<String> {
        let Some((_, url)) = &self.glance else {
            let id = name.replace('/', "-");
            succeed(Command::new("cp").args(["--sparse=always"]).arg(image).arg(self.images.join(&id)))?;
            return Ok(id);
        };
        let about = format!(r#"{{"name": "{name}", "disk_format": "raw", "container_format": "bare"}}"#);
        let made = Command::new("curl")
            .args(["-fsS", "-H", "Content-Type: application/json", "-d", &about])
            .arg(url)
            .stdin(Stdio::null())
            .output()
            .context("cannot start curl")?;
        let made: serde_json::Value = serde_json::from_slice(&made.stdout)
            .with_context(|| format!("Glance: {}", String::from_utf8_lossy(&made.stderr)))?;
        let id = made["id"].as_str().context("Glance made an image without an id")?.to_owned();
        succeed(
            Command::new("curl")
                .args(["-fsS", "-H", "Content-Type: application/octet-stream", "-T"])
                .arg(image)
                .arg(format!("{url}/{id}/file")),
        )?;
        Ok(id)
    }

    /// What fetches an image into a file.
    pub fn download(&self, id: &str, target: &Path) -> Command {
        match &self.glance {
            Some((_, url)) => {
                let mut curl = Command::new("curl");
                curl.args(["-fsS", "-o"]).arg(target).arg(format!("{url}/{id}/file"));
                curl
            }
            None => {
                let mut copy = Command::new("cp");
                copy.args(["--sparse=never", "--reflink=never"]).arg(self.images.join(id)).arg(target);
                copy
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some((mut glance, _)) = self.glance.take() {
            if let Some(pid) = rustix::process::Pid::from_raw(glance.id() as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let _ = glance.wait();
        }
    }
}

fn settings_of(home: &Path, images: &Path, port: u16) -> String {
    let (home, images) = (home.display(), images.display());
    format!(
        "[DEFAULT]
bind_host = 127.0.0.1
bind_port = {port}
workers = 0
log_file = {home}/log
enabled_backends = fs:file
node_staging_uri = file://{home}/staging
transport_url = fake://
[database]
connection = sqlite:///{home}/glance.sqlite
[glance_store]
default_backend = fs
[fs]
filesystem_store_datadir = {images}
[os_glance_tasks_store]
filesystem_store_datadir = {home}/staging
[os_glance_staging_store]
filesystem_store_datadir = {home}/staging
[oslo_concurrency]
lock_path = {home}/lock
[paste_deploy]
config_file = /etc/glance/glance-api-paste.ini
"
    )
}
