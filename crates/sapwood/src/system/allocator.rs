//! The allocator: that of the C library with glibc, mimalloc in static binaries.
//!
//! glibc takes large buffers from the system and gives them back when they are freed. After the first of them it keeps
//! those of that size for later ones, up to 32 MiB, for each thread, and what still lies behind such a hole keeps it from
//! the system. A restore into a pipe whose buffers would fit into 182 MiB took 257 so, and takes 200 with a fixed limit.
//!
//! musl's own allocator has one lock for all threads, and gives memory back to the system as soon as it is freed: a backup
//! had ten times the page faults. mimalloc gives back what was free for a second, which is too late for commands that
//! promise how much memory they take.

pub use of_library::{give_back, keep_little, set_up};

#[cfg(target_env = "gnu")]
mod of_library {
    /// Larger buffers are the system's again as soon as they are freed, in bytes. Groups of chunks, which threads need again
    /// and again, are smaller.
    const LARGE_BYTES: i32 = 8 << 20;
    /// The same for commands that promise how much memory they take.
    const LARGE_BYTES_OF_PROMISE: i32 = 1 << 20;

    /// Has large buffers given back to the system when they are freed.
    pub fn set_up() {
        give_back_from(LARGE_BYTES);
    }

    /// Has nearly all that is freed given back to the system.
    pub fn keep_little() {
        give_back_from(LARGE_BYTES_OF_PROMISE);
    }

    /// Gives what is free back now.
    pub fn give_back() {
        // SAFETY: takes a number and touches no memory that is in use.
        unsafe {
            libc::malloc_trim(0);
        }
    }

    fn give_back_from(bytes: i32) {
        // SAFETY: each takes two numbers, and touches no memory that is in use.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, bytes);
            // As glibc would set it by itself. What is free at the end of its memory is used again below that.
            libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * bytes);
        }
    }
}

#[cfg(not(target_env = "gnu"))]
mod of_library {
    use std::ffi::{c_int, c_long};

    #[global_allocator]
    static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

    /// `mi_option_purge_delay`: how long memory that was freed is kept, in milliseconds.
    const PURGE_DELAY: c_int = 15;
    /// Long enough for what is needed again at once.
    const DELAY_MS: c_long = 20;

    /// Has what is freed given back to the system soon.
    pub fn set_up() {
        keep_for(DELAY_MS);
    }

    /// Has it given back at once.
    pub fn keep_little() {
        keep_for(0);
    }

    /// Gives what is free back now.
    pub fn give_back() {
        // SAFETY: touches no memory that is in use.
        unsafe { libmimalloc_sys::mi_collect(true) };
    }

    fn keep_for(milliseconds: c_long) {
        // SAFETY: sets a number that mimalloc reads, and touches no memory that is in use.
        unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, milliseconds) };
    }
}
