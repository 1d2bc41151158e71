//! PostgreSQL, used while the server of its file system is killed: what it said is committed is there, and its own checks
//! find nothing.

use super::{mounted, stop};
use crate::common::mounted::until;
use crate::common::{from_env, Bench};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{kill_process, Pid, Signal};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{chown, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// It refuses to run as root.
const USER: u32 = 65534;

/// What the transactions of pgbench keep equal.
const IS_WHOLE: &str =
    "SELECT (SELECT SUM(abalance) FROM pgbench_accounts) = (SELECT SUM(bbalance) FROM pgbench_branches)
    AND (SELECT SUM(tbalance) FROM pgbench_tellers) = (SELECT SUM(bbalance) FROM pgbench_branches)
    AND (SELECT COALESCE(SUM(delta), 0) FROM pgbench_history) = (SELECT SUM(bbalance) FROM pgbench_branches)";

/// An installed PostgreSQL.
struct Postgres {
    programs: PathBuf,
    socket: PathBuf,
    is_root: bool,
}

impl Postgres {
    /// The newest one, if there is any.
    fn find(bench: &Bench) -> Option<Self> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let programs =
            versions.map(|v| v.path().join("bin")).filter(|bin| bin.join("postgres").exists()).max()?;
        let socket = bench.path("run");
        std::fs::create_dir(&socket).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        let postgres = Postgres { programs, socket, is_root };
        postgres.own(&postgres.socket);
        Some(postgres)
    }

    /// Makes a directory its user's.
    fn own(&self, directory: &Path) {
        if self.is_root {
            chown(directory, Some(USER), Some(USER)).unwrap();
        }
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o700)).unwrap();
    }

    /// One of its programs, as its user.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = if self.is_root {
            let mut command = Command::new("setpriv");
            command.args([format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".into()]);
            command.arg(program);
            command
        } else {
            Command::new(program)
        };
        // The user has no home, and must be allowed to be where it runs.
        command
            .current_dir("/")
            .env("HOME", "/nonexistent")
            .env("PGHOST", &self.socket)
            .env("PGUSER", "test");
        command.env("PGDATABASE", "postgres").stdin(Stdio::null());
        command
    }

    fn done(&self, program: &str, args: &[&str]) -> String {
        let output = self.command(program).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {args:?}: {said}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn asked(&self, question: &str) -> String {
        self.done("psql", &["-XAtqc", question])
    }

    /// Starts it on its files. When this returns, it has replayed its log.
    fn start(&self, data: &Path) -> Server {
        let mut command = self.command("postgres");
        command.arg("-D").arg(data).arg("-k").arg(&self.socket);
        // Checkpoints now and then: they write, and remove, files of all tables.
        for setting in
            ["listen_addresses=", "checkpoint_timeout=30s", "max_wal_size=32MB", "shared_buffers=16MB"]
        {
            command.args(["-c", setting]);
        }
        let log = std::fs::File::create(self.socket.join("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let mut server = Server(command.spawn().unwrap());
        until("PostgreSQL", || {
            let ended = server.0.try_wait().unwrap();
            assert!(ended.is_none(), "{}", std::fs::read_to_string(self.socket.join("log")).unwrap());
            self.command("psql").args(["-XAtqc", "SELECT 1"]).output().unwrap().status.success()
        });
        server
    }
}

/// A server that runs. Dropped, it ends at once, without a checkpoint, and replays its log when it is started again.
struct Server(Child);

impl Server {
    fn end(&mut self, signal: Signal) -> ExitStatus {
        // Its processes have sessions of their own: it alone knows them all.
        kill_process(Pid::from_child(&self.0), signal).unwrap();
        self.0.wait().unwrap()
    }

    /// Ends it as an operator would.
    fn stop(mut self) {
        assert!(self.end(Signal::INT).success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.end(Signal::QUIT);
        }
    }
}

/// Commits numbers one by one, from `first` on, until the server is gone. Returns the last one that was committed.
fn commit(postgres: &Postgres, first: u64) -> std::thread::JoinHandle<u64> {
    let mut command = postgres.command("psql");
    let mut psql = command
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::spawn(move || {
        let (mut ask, mut said) = (psql.stdin.take().unwrap(), BufReader::new(psql.stdout.take().unwrap()));
        let mut line = String::new();
        let mut last = first - 1;
        loop {
            line.clear();
            let next = last + 1;
            // psql prints it when the transaction has ended.
            let asked = writeln!(ask, "INSERT INTO done VALUES ({next}) RETURNING number;");
            if asked.is_err() || said.read_line(&mut line).unwrap_or(0) == 0 {
                break;
            }
            assert_eq!(line.trim(), next.to_string());
            last = next;
        }
        let _ = psql.kill();
        let _ = psql.wait();
        last
    })
}

/// Kills the server of the file system at random while PostgreSQL uses it.
pub fn survives_kills() {
    let seed = from_env("SAPWOOD_SEED", 1);
    println!("SAPWOOD_SEED={seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let bench = Bench::bare();
    std::fs::set_permissions(bench.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let Some(postgres) = Postgres::find(&bench) else {
        testing::skip("PostgreSQL (postgresql)", "there is no /usr/lib/postgresql/*/bin/postgres");
        return;
    };
    // A cluster has a thousand files, and a pool room for them by its size.
    bench.done(&["pool", "create", &bench.arg("pool"), "--size", "4GiB"]);
    let mut served = mounted(&bench);
    let data = served.file("data");
    std::fs::create_dir(&data).unwrap();
    postgres.own(&data);
    let place = data.to_str().unwrap();
    postgres.done(
        "initdb",
        &["-D", place, "--auth=trust", "--data-checksums", "--encoding=UTF8", "--username=test"],
    );
    let mut server = postgres.start(&data);
    postgres.asked("CREATE TABLE done (number BIGINT PRIMARY KEY)");
    postgres.done("pgbench", &["--initialize", "--quiet", "--scale=1"]);
    let mut committed = 0;
    for kill in 0..from_env("SAPWOOD_KILLS", 4) {
        let mut load = postgres.command("pgbench");
        load.args(["--no-vacuum", "--client=4", "--time=600"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut load = load.spawn().unwrap();
        let numbers = commit(&postgres, committed + 1);
        std::thread::sleep(Duration::from_millis(dice.random_range(300..2000)));
        served.signal(Signal::KILL);
        drop(served);
        drop(server);
        let last = numbers.join().unwrap();
        let _ = load.kill();
        load.wait().unwrap();
        assert!(last > committed || kill > 0, "nothing was committed");
        served = mounted(&bench);
        server = postgres.start(&data);
        let found: u64 = postgres.asked("SELECT COALESCE(MAX(number), 0) FROM done").parse().unwrap();
        let count: u64 = postgres.asked("SELECT COUNT(*) FROM done").parse().unwrap();
        // One more may have been committed that nobody was told of.
        assert!(found == count && found >= last, "kill {kill}: {found}, {count} of {last} transactions");
        assert_eq!(postgres.asked(IS_WHOLE), "t", "kill {kill}");
        committed = found;
    }
    assert!(committed > 10, "{committed} transactions");
    postgres.done("pg_amcheck", &["--all", "--install-missing", "--heapallindexed"]);
    server.stop();
    postgres.done("pg_checksums", &["--check", "-D", place]);
    stop(served);
    bench.done(&["pool", "check", &bench.arg("pool"), "--data"]);
}
