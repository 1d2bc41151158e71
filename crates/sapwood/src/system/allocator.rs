//! The allocator of the C library.

/// Larger buffers are the system's again as soon as they are freed.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: i32 = 1 << 20;

/// Has large buffers given back to the system when they are freed, for commands that promise how much memory they take.
///
/// glibc otherwise keeps what threads have freed, up to twice their largest buffer for each. Other libraries give it back by
/// themselves.
pub fn give_back_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes two numbers, and touches no memory that is in use.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
    }
}
