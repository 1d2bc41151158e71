//! A process of the binary: ended by its id, and never left running.

use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;
use std::fmt;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// No run of the binary in a test takes longer.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// A running process. Dropped, it is killed.
pub struct Child {
    what: String,
    process: std::process::Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    waited_for: bool,
}

/// What became of it.
pub struct Ended {
    pub what: String,
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
    /// The most memory it ever had, in bytes.
    pub peak_bytes: u64,
    /// Processor time that it took.
    pub cpu: Duration,
}

fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

impl Child {
    /// Starts it; `what` is what failures call it. Output that is not directed elsewhere is kept.
    pub fn start(mut command: Command, what: &str) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::start_as_is(command, what)
    }

    /// Starts it with the output as the command says.
    pub fn start_as_is(mut command: Command, what: &str) -> Child {
        let mut process = command.spawn().unwrap_or_else(|e| panic!("{what}: {e}"));
        let stdout = process.stdout.take().map(drain);
        let stderr = process.stderr.take().map(drain);
        Child { what: what.to_string(), process, stdout, stderr, waited_for: false }
    }

    /// Starts it, and keeps what `read` makes of its standard output, which is closed then.
    pub fn start_with_reader(
        mut command: Command,
        what: &str,
        read: impl FnOnce(&mut ChildStdout) -> Vec<u8> + Send + 'static,
    ) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|e| panic!("{what}: {e}"));
        let stdout = process.stdout.take().map(|mut pipe| std::thread::spawn(move || read(&mut pipe)));
        let stderr = process.stderr.take().map(drain);
        Child { what: what.to_string(), process, stdout, stderr, waited_for: false }
    }

    /// Its standard input, where that is a pipe.
    pub fn stdin(&mut self) -> ChildStdin {
        self.process.stdin.take().unwrap()
    }

    /// Sends it a signal. It may have ended: its id stays its own until it is waited for.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.process), signal);
    }

    /// Its id, which is its own until it is waited for.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Whether it has ended. It can still be waited for.
    pub fn has_ended(&self) -> bool {
        // SAFETY: all zeros is a value of this plain struct, and the pointer is to a local.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            libc::waitid(libc::P_PID, self.process.id(), &mut info, flags) == 0 && info.si_pid() != 0
        }
    }

    /// Whether a signal that it was sent waits to be taken.
    pub fn has_pending(&self, signal: Signal) -> bool {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let pending = pending.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
        pending >> (signal.as_raw() - 1) & 1 == 1
    }

    /// Whether all of its threads wait for something.
    pub fn is_asleep(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.id()));
        threads.into_iter().flatten().flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('S'))
        })
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ended {
        let start = Instant::now();
        let (status, peak_bytes, cpu) = loop {
            if let Some(ended) = wait4(&self.process) {
                break ended;
            }
            assert!(start.elapsed() < TIME_LIMIT, "{}: still runs after {TIME_LIMIT:?}", self.what);
            std::thread::sleep(Duration::from_millis(1));
        };
        let read = |h: Option<JoinHandle<Vec<u8>>>| h.map(|h| h.join().unwrap()).unwrap_or_default();
        let stdout = read(self.stdout.take());
        let stderr = String::from_utf8_lossy(&read(self.stderr.take())).into_owned();
        self.waited_for = true;
        Ended { what: std::mem::take(&mut self.what), status, stdout, stderr, peak_bytes, cpu }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.waited_for {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// Status, peak memory and processor time of a process that has ended; `None` while it runs.
fn wait4(process: &std::process::Child) -> Option<(ExitStatus, u64, Duration)> {
    let pid = process.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: all zeros is a value of this plain struct, and both pointers are to locals.
    let (got, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(pid, &mut status, libc::WNOHANG, &mut usage), usage)
    };
    assert!(got >= 0, "wait4: {}", std::io::Error::last_os_error());
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    let cpu = time(usage.ru_utime) + time(usage.ru_stime);
    (got == pid).then(|| (ExitStatus::from_raw(status), usage.ru_maxrss as u64 * 1024, cpu))
}

impl Ended {
    /// Its exit code; `None` where a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Its output as the one JSON object that it must be.
    pub fn json(&self) -> Value {
        let text = std::str::from_utf8(&self.stdout).unwrap();
        let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{self}: no JSON: {e}"));
        assert!(value.is_object() && text.ends_with('\n') && text.lines().count() == 1, "{self}");
        value
    }

    /// It succeeded without a word on standard error, but for how far it is, which it says every ten seconds.
    pub fn expect_done(&self) {
        let is_progress = |line: &str| line.contains(" of ") && line.ends_with("B/s");
        assert!(self.code() == Some(0) && self.stderr.lines().all(is_progress), "{self}");
    }

    /// It failed with `code` and one line on standard error that says all of `said`.
    pub fn expect_failure(&self, code: i32, said: &[&str]) {
        assert_eq!(self.code(), Some(code), "{self}");
        self.expect_one_line(said);
    }

    /// Standard error is one line that says all of `said`.
    pub fn expect_one_line(&self, said: &[&str]) {
        assert!(self.stderr.starts_with("sapwood: ") && self.stderr.ends_with('\n'), "{self}");
        assert_eq!(self.stderr.lines().count(), 1, "{self}");
        for s in said {
            assert!(self.stderr.contains(s), "{self}: does not say {s:?}");
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let out = String::from_utf8_lossy(&self.stdout[..self.stdout.len().min(2000)]);
        write!(f, "`{}`: {}; stdout {out:?}, stderr {:?}", self.what, self.status, self.stderr)
    }
}
