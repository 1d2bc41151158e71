//! `run`, `status`, `config check`: jobs of a configuration file.

mod config;
mod due;
mod run;
mod status;
mod stops;

use crate::common::{random, Bench, Child, Ended};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// A vault, a configuration file and a directory for states.
struct Jobs {
    bench: Bench,
}

impl Jobs {
    /// With these lines below `store` and `state_dir`; `DIR` in them is the directory beside the vault, in
    /// which the disks `a.raw` and `b.raw` are.
    fn new(config: &str) -> Jobs {
        let jobs = Jobs { bench: Bench::new("balanced") };
        for (name, seed) in [("a.raw", 1), ("b.raw", 2)] {
            jobs.bench.file(name, &random(300_000, seed));
        }
        jobs.configure(config);
        jobs
    }

    /// Replaces the configuration.
    fn configure(&self, config: &str) {
        let dir = self.bench.dir.path().to_str().unwrap();
        let text = format!("store = \"DIR/vault\"\nstate_dir = \"DIR/state\"\n{config}");
        self.bench.file("sapwood.toml", text.replace("DIR", dir).as_bytes());
    }

    /// The binary with this configuration and no other word about the vault.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.bench.command(args);
        command.env_remove("SAPWOOD_STORE").env("SAPWOOD_CONFIG", self.bench.path("sapwood.toml"));
        command
    }

    fn start(&self, args: &[&str]) -> Child {
        Child::start(self.command(args), &args.join(" "))
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.start(args).wait()
    }

    /// Runs it, and it must succeed without a word on standard error. Returns standard output.
    fn done(&self, args: &[&str]) -> String {
        let ended = self.run(args);
        ended.expect_done();
        String::from_utf8(ended.stdout).unwrap()
    }

    /// The object that `--json` gives, whatever the exit code.
    fn json(&self, args: &[&str]) -> Value {
        self.run(&[&["--json"], args].concat()).json()
    }

    fn state_file(&self, job: &str) -> PathBuf {
        self.bench.path("state").join(format!("{job}.json"))
    }

    /// The state of a job.
    fn state(&self, job: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.state_file(job)).unwrap()).unwrap()
    }

    /// Changes the state of a job.
    fn change_state(&self, job: &str, change: impl FnOnce(&mut Value)) {
        let mut state = self.state(job);
        change(&mut state);
        std::fs::write(self.state_file(job), state.to_string()).unwrap();
    }

    /// A text that a command wrote to a file beside the vault.
    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.bench.path(name)).unwrap_or_default()
    }

    /// Waits until a command has made a file.
    fn wait_for(&self, name: &str) {
        let start = Instant::now();
        while !self.bench.path(name).exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "{name} is not made");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A job of two disks.
const TWO_DISKS: &str = r#"
[jobs.web]
schedule = "daily 02:30"
disks = { "web01/vda" = "DIR/a.raw", "web01/vdb" = "DIR/b.raw" }
"#;

/// Seconds since 1970.
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_secs().try_into().unwrap()
}
