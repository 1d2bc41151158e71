//! The boundary search compiled for AVX2, which has the 32-bit multiplication that plain x86-64
//! lacks: more than twice as fast (`examples/boundaries.rs`). The code and so the boundaries are the same.

use super::window;

/// As [`first_below`](super::first_below); `None` where this processor has no AVX2.
pub(super) fn first_below(data: &[u8], from: usize, to: usize, threshold: u32) -> Option<Option<usize>> {
    if !std::arch::is_x86_feature_detected!("avx2") {
        return None;
    }
    // SAFETY: the function is safe code whose one requirement, AVX2, was just detected.
    Some(unsafe { first_below_avx2(data, from, to, threshold) })
}

#[target_feature(enable = "avx2")]
unsafe fn first_below_avx2(data: &[u8], from: usize, to: usize, threshold: u32) -> Option<usize> {
    window::first_below(data, from, to, threshold)
}
