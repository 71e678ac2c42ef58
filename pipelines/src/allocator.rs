//! The memory allocator of the program and of the Python package. A Rust program has it where it declares a
//! static [`Allocator`] as its `#[global_allocator]`, and calls [`prepare`] first of all.

use std::alloc::{GlobalAlloc, Layout};
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_model::{Fault, Result, codes};
use mimalloc::MiMalloc;
use signal_hook::consts::SIGABRT;

/// The allocator, mimalloc's. Buffers of rows and pages come and go with every chunk; the C
/// library's allocator returns many of them to the system at once, and pays a page fault for every
/// 4 KiB again.
pub struct Allocator;

/// Bytes of the last request that the system refused; 0 before the first.
static REFUSED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Longest sentence about refused memory, in bytes.
const SENTENCE_BYTES_MAX: usize = 256;

impl Allocator {
    /// Keeps the size of a refused request. A caller may go on without the memory; one that cannot aborts the process.
    fn checked(memory: *mut u8, bytes: usize) -> *mut u8 {
        if memory.is_null() {
            REFUSED_BYTES.store(bytes, Ordering::Relaxed);
        }
        memory
    }
}

// SAFETY: each method passes its arguments to mimalloc and returns its result.
#[allow(unsafe_code, reason = "an allocator is unsafe to implement")]
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        let memory = unsafe { MiMalloc.alloc(layout) };
        Allocator::checked(memory, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        let memory = unsafe { MiMalloc.alloc_zeroed(layout) };
        Allocator::checked(memory, layout.size())
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { MiMalloc.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        let moved = unsafe { MiMalloc.realloc(memory, layout, bytes) };
        Allocator::checked(moved, bytes)
    }
}

/// Turns an abort for lack of memory into a message and an exit code. Outputs are published in one
/// step, so that a process that ends here leaves none half written.
pub(crate) fn name_refused_memory() -> Result<()> {
    // SAFETY: the action reads a number, writes to a descriptor and ends the process. It allocates nothing and takes no
    // lock.
    #[allow(unsafe_code, reason = "a signal handler is unsafe to register")]
    let registered =
        unsafe { signal_hook::low_level::register(SIGABRT, end_if_memory_was_refused) };
    registered
        .map(|_| ())
        .map_err(|error| Fault::new(codes::STORAGE, "a signal cannot be handled").cause(error))
}

fn end_if_memory_was_refused() {
    let bytes = REFUSED_BYTES.load(Ordering::Relaxed);
    if bytes == 0 {
        return;
    }
    let mut sentence = [0; SENTENCE_BYTES_MAX];
    let mut unwritten = &mut sentence[..];
    // A sentence that does not fit is cut.
    let _ = writeln!(
        unwritten,
        "\nerror[{}]: the system gave no memory for {bytes} bytes\nhint: lower --memory or \
         --threads, or raise the limit of the system (`ulimit -v`)",
        codes::MEMORY.name
    );
    let written = SENTENCE_BYTES_MAX - unwritten.len();
    // SAFETY: the descriptor is open, and is not closed here.
    #[allow(unsafe_code, reason = "standard error without its lock")]
    let mut stderr = ManuallyDrop::new(unsafe { File::from_raw_fd(2) });
    // The process ends in any case.
    let _ = stderr.write_all(&sentence[..written]);
    signal_hook::low_level::exit(i32::from(codes::MEMORY.exit_code()));
}

/// Milliseconds for which freed memory is kept for reuse: the next step of a run needs it. mimalloc
/// returns whole regions after ten times as long.
const PURGE_DELAY_MILLISECONDS: std::ffi::c_long = 10_000;

/// Number of mimalloc's option `mi_option_purge_delay`.
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

/// Returns cached memory to the system, and caches none from now on: the process is near its limit.
fn release_cached_memory() {
    // SAFETY: it may be called at any time, from any thread.
    #[allow(unsafe_code)]
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, 0);
        libmimalloc_sys::mi_collect(true);
    }
}
