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
    use mimalloc::MiMalloc;
    use std::alloc::{GlobalAlloc, Layout};
    use std::ffi::{c_int, c_long, c_void};
    use std::ptr::null_mut;

    #[global_allocator]
    static ALLOCATOR: Allocator = Allocator;

    /// Buffers of at least so many bytes are mappings of their own, as with glibc: they are zero without being written, grow
    /// without being copied, and are the system's again as soon as they are freed. mimalloc writes zeros into what it has
    /// used before: a mount took 64 MiB for buffers of requests that nobody sends.
    const LARGE_BYTES: usize = 8 << 20;
    /// What a mapping is aligned to at least.
    const PAGE_BYTES: usize = 4096;

    /// mimalloc, but for large buffers.
    struct Allocator;

    fn is_large(bytes: usize, align: usize) -> bool {
        bytes >= LARGE_BYTES && align <= PAGE_BYTES
    }

    fn or_null(mapping: *mut c_void) -> *mut u8 {
        if mapping == libc::MAP_FAILED {
            null_mut()
        } else {
            mapping.cast()
        }
    }

    // SAFETY: what is large by its layout is mapped here and unmapped here, with the same size; everything else is mimalloc's,
    // which keeps the contract. A new mapping is zero, overlaps nothing, is aligned to a page, and none of these functions
    // unwinds.
    unsafe impl GlobalAlloc for Allocator {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if is_large(layout.size(), layout.align()) {
                return map(layout.size());
            }
            // SAFETY: the caller's promises are those that it asks for.
            unsafe { MiMalloc.alloc(layout) }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            if is_large(layout.size(), layout.align()) {
                return map(layout.size());
            }
            // SAFETY: as above.
            unsafe { MiMalloc.alloc_zeroed(layout) }
        }

        unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
            if is_large(layout.size(), layout.align()) {
                // SAFETY: `alloc` or `realloc` has mapped so many bytes there, and nobody uses them any more.
                unsafe { libc::munmap(ptr.cast(), layout.size()) };
            } else {
                // SAFETY: as above.
                unsafe { MiMalloc.dealloc(ptr, layout) }
            }
        }

        unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            match (is_large(layout.size(), layout.align()), is_large(size, layout.align())) {
                // SAFETY: as above.
                (false, false) => unsafe { MiMalloc.realloc(ptr, layout, size) },
                // SAFETY: the mapping is ours and has the layout's size; the caller uses the one that is returned.
                (true, true) => {
                    or_null(unsafe { libc::mremap(ptr.cast(), layout.size(), size, libc::MREMAP_MAYMOVE) })
                }
                // SAFETY: the new size, rounded up to the alignment, does not overflow, says the caller. Both buffers have
                // the bytes that are copied, and are apart.
                _ => unsafe {
                    let new = Layout::from_size_align_unchecked(size, layout.align());
                    let moved = self.alloc(new);
                    if !moved.is_null() {
                        moved.copy_from_nonoverlapping(ptr, layout.size().min(size));
                        self.dealloc(ptr, layout);
                    }
                    moved
                },
            }
        }
    }

    /// New memory of zeros, or null.
    fn map(bytes: usize) -> *mut u8 {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at a place that the system chooses touches no memory that is in use.
        or_null(unsafe { libc::mmap(null_mut(), bytes, access, how, -1, 0) })
    }

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
