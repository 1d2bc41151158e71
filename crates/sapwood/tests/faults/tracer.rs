//! Runs a program under `ptrace` and lets one of its system calls fail, or do less than it was asked for.

use super::calls::{self, Call};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// No run under the tracer takes longer; one that does hangs.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// What happens to a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not carried out, and returns this error number.
    Error(i32),
    /// A read or write is carried out for half of the bytes.
    Short,
    /// The program is killed instead.
    Kill,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Error(no) => write!(f, "{:?}", nix::errno::Errno::from_raw(*no)),
            Fault::Short => f.write_str("half of it"),
            Fault::Kill => f.write_str("SIGKILL"),
        }
    }
}

/// A traced run.
pub struct Run {
    pub status: ExitStatus,
    pub stderr: String,
    /// The calls that a fault could have met, in their order.
    pub calls: Vec<Call>,
    /// The call that the fault met.
    pub hit: Option<Call>,
}

/// Runs `command` to its end. `fault` meets the call of that number, counted from 0 from the start of `main` on, or the
/// first one after it that can have this fault: threads make their calls in another order each time.
pub fn run(mut command: Command, fault: Option<(usize, Fault)>) -> Run {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: between fork and exec only what is async-signal-safe may be called: this is one system call.
    unsafe { command.pre_exec(|| Ok(ptrace::traceme()?)) };
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stderr.take().unwrap();
    let stderr = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    });
    let main = Pid::from_raw(child.id() as i32);
    let mut tracer =
        Tracer { main, fault, calls: Vec::new(), hit: None, begun: false, threads: HashMap::new() };
    let status = tracer.follow();
    // The tracer has seen its end: nothing is left to wait for.
    let _ = child.wait();
    Run {
        status,
        stderr: String::from_utf8_lossy(&stderr.join().unwrap()).into_owned(),
        calls: tracer.calls,
        hit: tracer.hit,
    }
}

struct Tracer {
    main: Pid,
    fault: Option<(usize, Fault)>,
    calls: Vec<Call>,
    hit: Option<Call>,
    /// Whether the loader is done: what it reads is not the program's doing.
    begun: bool,
    /// What a thread's running call is to return, where a fault has met it.
    threads: HashMap<Pid, Pending>,
}

/// What is left to do when a call returns.
enum Pending {
    /// The call was entered, and no fault met it.
    Nothing,
    /// It returns this error number.
    Fail(i32),
    /// Its third argument is to be put back: programs rely on registers that calls do not change.
    PutBack(u64),
    /// Its first one.
    PutBackFirst(u64),
}

impl Tracer {
    /// Until the program has ended.
    fn follow(&mut self) -> ExitStatus {
        let start = Instant::now();
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD | WaitPidFlag::WNOHANG;
        let mut first = true;
        loop {
            let status = match waitpid(None, Some(flags)) {
                Ok(WaitStatus::StillAlive) => {
                    assert!(start.elapsed() < TIME_LIMIT, "hangs; hit {:?}", self.hit);
                    std::thread::yield_now();
                    continue;
                }
                Ok(status) => status,
                Err(e) => panic!("waiting for the traced program: {e}"),
            };
            let (pid, signal) = match status {
                WaitStatus::Exited(pid, code) if pid == self.main => return ExitStatus::from_raw(code << 8),
                WaitStatus::Signaled(pid, signal, _) if pid == self.main => {
                    return ExitStatus::from_raw(signal as i32)
                }
                WaitStatus::PtraceSyscall(pid) => {
                    self.at_call(pid);
                    (pid, None)
                }
                // The stop after exec.
                WaitStatus::Stopped(pid, Signal::SIGTRAP) if first => {
                    first = false;
                    let options = Options::PTRACE_O_TRACESYSGOOD
                        | Options::PTRACE_O_TRACECLONE
                        | Options::PTRACE_O_TRACEFORK
                        | Options::PTRACE_O_TRACEVFORK
                        | Options::PTRACE_O_EXITKILL;
                    ptrace::setoptions(pid, options).unwrap();
                    (pid, None)
                }
                // A new thread begins with a stop.
                WaitStatus::Stopped(pid, Signal::SIGSTOP) => (pid, None),
                WaitStatus::Stopped(pid, signal) => (pid, Some(signal)),
                WaitStatus::PtraceEvent(pid, ..) => (pid, None),
                _ => continue,
            };
            // It may have been killed meanwhile.
            let _ = ptrace::syscall(pid, signal);
        }
    }

    /// A thread enters a call, or returns from it.
    fn at_call(&mut self, pid: Pid) {
        let Ok(mut registers) = ptrace::getregs(pid) else { return };
        match self.threads.remove(&pid) {
            Some(Pending::Nothing) => return,
            Some(Pending::Fail(no)) => registers.rax = -i64::from(no) as u64,
            Some(Pending::PutBack(bytes)) => registers.rdx = bytes,
            Some(Pending::PutBackFirst(at)) => registers.rdi = at,
            None => {
                let pending = self.at_entry(pid, &mut registers);
                let changed = !matches!(pending, Pending::Nothing);
                self.threads.insert(pid, pending);
                if !changed {
                    return;
                }
            }
        }
        let _ = ptrace::setregs(pid, registers);
    }

    fn at_entry(&mut self, pid: Pid, registers: &mut libc::user_regs_struct) -> Pending {
        let number = registers.orig_rax as i64;
        if number == libc::SYS_sigaltstack {
            // The first thing that Rust's runtime does.
            self.begun = true;
        }
        let Some(call) = calls::meant(pid, registers).filter(|_| self.begun) else { return Pending::Nothing };
        let no = self.calls.len();
        self.calls.push(call.clone());
        let fault = match self.fault {
            Some((at, fault)) if at <= no && self.hit.is_none() && call.can_have(fault) => fault,
            _ => return Pending::Nothing,
        };
        self.hit = Some(call.clone());
        match fault {
            Fault::Kill => {
                let _ = nix::sys::signal::kill(self.main, Signal::SIGKILL);
                Pending::Nothing
            }
            Fault::Error(_) if call.tells_end_of_heap() => {
                // Asked for nothing, it leaves the end where it is, and returns that.
                let at = registers.rdi;
                registers.rdi = 0;
                Pending::PutBackFirst(at)
            }
            Fault::Error(no) => {
                // No call has this number: the kernel does nothing.
                registers.orig_rax = u64::MAX;
                Pending::Fail(no)
            }
            Fault::Short if call.transfers() && registers.rdx > 1 => {
                let bytes = registers.rdx;
                registers.rdx /= 2;
                Pending::PutBack(bytes)
            }
            Fault::Short => Pending::Nothing,
        }
    }
}
