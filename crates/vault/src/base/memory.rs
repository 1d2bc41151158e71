//! Gives memory back to the system.

/// What may stay with the allocator once it is freed, in bytes: it is used again. Most objects are far smaller.
pub(crate) const KEPT_BYTES: usize = 8 << 20;

/// Gives memory that was freed back to the system.
///
/// glibc keeps what is freed for the thread that had allocated it: where threads decode a large object one after the
/// other, each keeps as much. Other allocators give it back by themselves.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number and touches no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
