//! The memory allocator of the program and of the Python package. A Rust program has it where it declares a
//! static [`Allocator`] as its `#[global_allocator]`, and calls [`prepare`] first of all.

/// The allocator, mimalloc's. Buffers of rows and pages come and go with every chunk; the C library's
/// allocator gives many of them back to the system at once, and pays a page fault for every 4 KiB anew.
pub use mimalloc::MiMalloc as Allocator;

/// For how many milliseconds freed memory is kept for use again: the next step of a run needs it. mimalloc gives whole
/// regions back after ten times as long.
const PURGE_DELAY_MILLISECONDS: std::ffi::c_long = 10_000;

/// Which of mimalloc's options that is: `mi_option_purge_delay`.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Sets the allocator up. Without it, it keeps freed memory for ten milliseconds, less than a chunk takes.
pub fn prepare() {
    // SAFETY: the option exists, and setting it changes a number that mimalloc reads when it frees.
    #[allow(unsafe_code)]
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, PURGE_DELAY_MILLISECONDS);
    }
    forebay_storage::set_release_hook(release_cached_memory);
}

/// Gives back what is kept, and keeps nothing from now on: the process is near its limit.
fn release_cached_memory() {
    // SAFETY: it may be called at any time, from any thread.
    #[allow(unsafe_code)]
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, 0);
        libmimalloc_sys::mi_collect(true);
    }
}
