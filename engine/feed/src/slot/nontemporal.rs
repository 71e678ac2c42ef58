//! Access to memory beyond the processor's caches: early prefetches, and writes past the caches.

/// Prefetches memory that is read soon, without waiting for it.
#[inline]
pub(crate) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it only gives a hint, about memory that is there.
        #[allow(unsafe_code)]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// Copies a slice that is not read soon to one of the same length. The processor need not fetch what is
/// overwritten, and its caches keep their content. [`store_fence`] comes before other threads read it.
#[inline]
pub(crate) fn copy_nontemporal(from: &[u8], to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if from.len() == to.len()
        && to.len().is_multiple_of(16)
        && to.as_ptr().addr().is_multiple_of(16)
    {
        use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
        for (from, to) in from.chunks_exact(16).zip(to.chunks_exact_mut(16)) {
            // SAFETY: both have 16 bytes, and `to` is aligned to as many.
            #[allow(unsafe_code)]
            unsafe {
                _mm_stream_si128(
                    to.as_mut_ptr().cast(),
                    _mm_loadu_si128(from.as_ptr().cast()),
                );
            }
        }
        return;
    }
    to.copy_from_slice(from);
}

/// Orders earlier writes past the caches before everything that this thread writes from now on.
#[inline]
pub(crate) fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it only orders writes.
    #[allow(unsafe_code)]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
