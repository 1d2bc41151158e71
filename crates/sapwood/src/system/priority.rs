//! Working beside others: a limited rate, and the processor and the disk only when nobody else wants them.

use rustix::process::setpriority_process;

/// Who the system schedules last.
const LAST: i32 = 19;

/// Takes the lowest priority, of the processor and of the disk, for this process and its threads to come. Best effort:
/// a system that does not allow it schedules as before.
pub fn give_way() {
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
