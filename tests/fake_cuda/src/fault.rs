//! Faults of a device, injected by `FAKE_CUDA_FAULT`:
//!
//! - `launch:N`: the `N`th kernel fails while it runs. As on a real device, calls report it from then on.
//! - `lost:N`: the device is gone at the `N`th call that queues work.
//! - `old`: the driver cannot load what the compiler made.
//! - `init`: the driver does not start.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::report;

/// `CUresult`.
pub type CudaStatus = u32;

pub const SUCCESS: CudaStatus = 0;
pub const INVALID_VALUE: CudaStatus = 1;
pub const OUT_OF_MEMORY: CudaStatus = 2;
pub const SYSTEM_DRIVER_MISMATCH: CudaStatus = 803;
pub const INVALID_DEVICE: CudaStatus = 101;
pub const INVALID_IMAGE: CudaStatus = 200;
pub const UNSUPPORTED_PTX_VERSION: CudaStatus = 222;
pub const INVALID_HANDLE: CudaStatus = 400;
pub const NOT_FOUND: CudaStatus = 500;
pub const NOT_READY: CudaStatus = 600;
pub const LAUNCH_FAILED: CudaStatus = 719;
pub const DEVICE_LOST: CudaStatus = 46;

/// The error that broke the device; 0 while it works.
static STICKY: AtomicU32 = AtomicU32::new(SUCCESS);
static CALLS: AtomicU64 = AtomicU64::new(0);

fn injected() -> &'static (String, u64) {
    static FAULT: OnceLock<(String, u64)> = OnceLock::new();
    FAULT.get_or_init(|| {
        let text = std::env::var("FAKE_CUDA_FAULT").unwrap_or_default();
        let (kind, number) = text.split_once(':').unwrap_or((&text, "0"));
        (kind.to_owned(), number.parse().unwrap_or(0))
    })
}

/// Whether a fault without a number is injected.
pub fn is_injected(kind: &str) -> bool {
    injected().0 == kind
}

/// The error that broke the device, if any.
pub fn sticky_error() -> CudaStatus {
    STICKY.load(Ordering::SeqCst)
}

/// Breaks the device.
pub fn break_device(status: CudaStatus) {
    let _ = STICKY.compare_exchange(SUCCESS, status, Ordering::SeqCst, Ordering::SeqCst);
}

/// Counts a call that queues work; it fails if the device is broken.
pub fn count_call() -> CudaStatus {
    report::count("call");
    let (kind, number) = injected();
    if kind == "lost" && CALLS.fetch_add(1, Ordering::SeqCst) + 1 == *number {
        break_device(DEVICE_LOST);
    }
    sticky_error()
}

/// Whether the kernel of this number fails.
pub fn kernel_fails(nth: u64) -> bool {
    let (kind, number) = injected();
    kind == "launch" && nth == *number
}
