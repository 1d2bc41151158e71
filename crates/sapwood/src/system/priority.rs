//! Sets idle CPU and I/O priority.

use rustix::process::setpriority_process;

/// The lowest CPU priority.
const LAST: i32 = 19;

/// Runs this thread, and those that it starts from now on, at idle CPU and I/O priority. Best effort: a system that does
/// not allow it schedules as before.
pub fn run_at_idle_priority() {
    let _ = setpriority_process(None, LAST);
    idle_disk();
}

/// The idle class of I/O (ioprio_set(2)), which schedulers with classes respect.
fn idle_disk() {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_IDLE: libc::c_int = 3;
    const CLASS_SHIFT: libc::c_int = 13;
    // SAFETY: the call takes three integers and touches no memory of ours; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE << CLASS_SHIFT) };
}
