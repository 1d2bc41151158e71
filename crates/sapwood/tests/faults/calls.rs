//! Which system calls faults are for.

use super::tracer::Fault;
use nix::unistd::Pid;
use std::fmt;

/// A system call that a fault can meet.
#[derive(Clone, Debug)]
pub struct Call {
    number: i64,
    /// Of a call that names a file: its name.
    path: Option<String>,
    /// Whether it is about memory of the program itself.
    is_memory: bool,
}

/// Calls that are left alone: those that cannot fail so, and those by which threads and signals of the runtime work.
const LEFT_ALONE: &[i64] = &[
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_geteuid,
    libc::SYS_restart_syscall,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_execve,
    libc::SYS_tgkill,
    libc::SYS_prctl,
    libc::SYS_arch_prctl,
    // Of the program itself.
    libc::SYS_prlimit64,
];

const NAMES: &[(i64, &str)] = &[
    (libc::SYS_read, "read"),
    (libc::SYS_pread64, "pread"),
    (libc::SYS_write, "write"),
    (libc::SYS_pwrite64, "pwrite"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_close, "close"),
    (libc::SYS_statx, "statx"),
    (libc::SYS_newfstatat, "newfstatat"),
    (libc::SYS_fstat, "fstat"),
    (libc::SYS_statfs, "statfs"),
    (libc::SYS_fstatfs, "fstatfs"),
    (libc::SYS_lseek, "lseek"),
    (libc::SYS_getdents64, "getdents"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_sync_file_range, "sync_file_range"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_fallocate, "fallocate"),
    (libc::SYS_fadvise64, "fadvise"),
    (libc::SYS_renameat, "renameat"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_linkat, "linkat"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_mkdirat, "mkdirat"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_fchmod, "fchmod"),
    (libc::SYS_brk, "brk"),
    (libc::SYS_madvise, "madvise"),
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_munmap, "munmap"),
    (libc::SYS_mprotect, "mprotect"),
    (libc::SYS_mremap, "mremap"),
    (libc::SYS_clone3, "clone3"),
    (libc::SYS_clone, "clone"),
    (libc::SYS_getrandom, "getrandom"),
    (libc::SYS_ioprio_set, "ioprio_set"),
    (libc::SYS_poll, "poll"),
];

/// The call that a thread is about to make, if faults are for it.
pub fn meant(pid: Pid, registers: &libc::user_regs_struct) -> Option<Call> {
    let number = registers.orig_rax as i64;
    // Where the heap ends can always be asked.
    let asks_only = number == libc::SYS_brk && registers.rdi == 0;
    if LEFT_ALONE.contains(&number) || asks_only {
        return None;
    }
    let path = match number {
        libc::SYS_openat
        | libc::SYS_statx
        | libc::SYS_newfstatat
        | libc::SYS_unlinkat
        | libc::SYS_mkdirat
        | libc::SYS_renameat
        | libc::SYS_renameat2
        | libc::SYS_linkat => Some(registers.rsi),
        _ => None,
    };
    let is_memory = match number {
        libc::SYS_brk | libc::SYS_madvise | libc::SYS_mprotect | libc::SYS_mremap | libc::SYS_munmap => true,
        libc::SYS_mmap => registers.r10 as i32 & libc::MAP_ANONYMOUS != 0,
        _ => false,
    };
    Some(Call { number, path: path.map(|at| text(pid, at)), is_memory })
}

/// The text at an address of the program's.
fn text(pid: Pid, at: u64) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < 256 {
        let Ok(word) = nix::sys::ptrace::read(pid, (at + bytes.len() as u64) as *mut _) else { break };
        let word = word.to_ne_bytes();
        match word.iter().position(|b| *b == 0) {
            Some(end) => {
                bytes.extend(&word[..end]);
                break;
            }
            None => bytes.extend(word),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Call {
    /// The system's number for it.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// Its name, where it is known.
    pub fn name(&self) -> Option<&'static str> {
        NAMES.iter().find(|(number, _)| *number == self.number).map(|(_, name)| *name)
    }

    /// What can befall it. No call has errors that the kernel would never give it: programs may rely on that.
    pub fn faults(&self) -> Vec<Fault> {
        let errors: &[i32] = match self.number {
            libc::SYS_getrandom => &[libc::EINTR],
            libc::SYS_clone | libc::SYS_clone3 => &[libc::ENOMEM, libc::EAGAIN],
            _ if self.is_memory => &[libc::ENOMEM],
            _ => &[libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::EINTR, libc::ENOMEM],
        };
        let mut faults: Vec<Fault> = errors.iter().copied().map(Fault::Error).collect();
        if self.transfers() {
            faults.push(Fault::Short);
        }
        faults
    }

    /// Whether this can befall it.
    pub fn can_have(&self, fault: Fault) -> bool {
        fault == Fault::Kill || self.faults().contains(&fault)
    }

    /// Whether it says that it failed by the end of the heap that it returns, and by no error.
    pub fn tells_end_of_heap(&self) -> bool {
        self.number == libc::SYS_brk
    }

    /// Whether it reads or writes as many bytes as its third argument says.
    pub fn transfers(&self) -> bool {
        [libc::SYS_read, libc::SYS_pread64, libc::SYS_write, libc::SYS_pwrite64].contains(&self.number)
    }

    /// Whether it changes files or makes changes durable.
    pub fn changes_files(&self) -> bool {
        const CHANGES: [i64; 9] = [
            libc::SYS_fsync,
            libc::SYS_fdatasync,
            libc::SYS_ftruncate,
            libc::SYS_fallocate,
            libc::SYS_renameat,
            libc::SYS_renameat2,
            libc::SYS_linkat,
            libc::SYS_unlinkat,
            libc::SYS_mkdirat,
        ];
        CHANGES.contains(&self.number)
    }

    /// Whether it is about memory of the program itself: the C library and Rust's runtime end a program that gets none.
    pub fn is_memory(&self) -> bool {
        self.is_memory
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name)?,
            None => write!(f, "call {}", self.number)?,
        }
        match &self.path {
            Some(path) => write!(f, "({path:?})"),
            None => Ok(()),
        }
    }
}
