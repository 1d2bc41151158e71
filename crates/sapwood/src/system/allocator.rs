//! The allocator of the C library.
//!
//! glibc takes large buffers from the system and gives them back when they are freed. After the first of them it keeps
//! those of that size for later ones, up to 32 MiB, for each thread, and what still lies behind such a hole keeps it from
//! the system. A restore into a pipe whose buffers would fit into 182 MiB took 257 so, and takes 200 with a fixed limit.
//! Other libraries give memory back by themselves.

/// Larger buffers are the system's again as soon as they are freed, in bytes. Groups of chunks, which threads need again
/// and again, are smaller.
const LARGE_BYTES: i32 = 8 << 20;
/// The same for commands that promise how much memory they take.
const LARGE_BYTES_OF_PROMISE: i32 = 1 << 20;

/// Has large buffers given back to the system when they are freed.
pub fn give_back_large_buffers() {
    give_back_from(LARGE_BYTES);
}

/// Has nearly all that is freed given back to the system.
pub fn give_back_buffers() {
    give_back_from(LARGE_BYTES_OF_PROMISE);
}

fn give_back_from(bytes: i32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: each takes two numbers, and touches no memory that is in use.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, bytes);
        // As glibc would set it by itself. What is free at the end of its memory is used again below that.
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * bytes);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}
