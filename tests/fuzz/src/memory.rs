//! An allocator that counts what each thread holds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts. A test program declares a static of it as its `#[global_allocator]`.
pub struct CountingAllocator;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Counts from 0 again.
pub(crate) fn reset() {
    HELD.set(0);
    PEAK.set(0);
}

/// The most bytes that this thread has allocated and not freed since [`reset`].
pub(crate) fn peak() -> usize {
    PEAK.get()
}

/// Also counts what cannot be had: the request is what is judged.
fn count_allocated(bytes: usize) {
    let held = HELD.get().saturating_add(bytes);
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

/// Frees of what was allocated before [`reset`], or by other threads, count as nothing.
fn count_freed(bytes: usize) {
    HELD.set(HELD.get().saturating_sub(bytes));
}

// SAFETY: every call goes to the system's allocator as it came; counters of a thread need no allocation.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_freed(layout.size());
        count_allocated(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count_freed(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}
