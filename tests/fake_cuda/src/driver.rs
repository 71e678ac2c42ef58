//! The driver's entry points.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::compiler::{HostKernel, KernelModule};
use crate::event::FakeEvent;
use crate::fault::{
    CudaStatus, INVALID_DEVICE, INVALID_HANDLE, INVALID_IMAGE, INVALID_VALUE, LAUNCH_FAILED,
    NOT_FOUND, NOT_READY, SUCCESS, SYSTEM_DRIVER_MISMATCH, UNSUPPORTED_PTX_VERSION,
};
use crate::memory::{DEVICE, PINNED, device_limit};
use crate::stream::{FakeStream, StreamWork};
use crate::{fault, number, report, stream};

/// Attributes that are asked for: memory pools, and the compute capability.
const MEMORY_POOLS: c_int = 115;
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;

thread_local! {
    static CURRENT: Cell<*mut c_void> = const { Cell::new(ptr::null_mut()) };
}

static CONTEXTS: AtomicU64 = AtomicU64::new(0);
static KERNELS: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> CudaStatus {
    if fault::is_injected("init") {
        SYSTEM_DRIVER_MISMATCH
    } else {
        SUCCESS
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CudaStatus {
    unsafe { *version = 13000 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(
    status: CudaStatus,
    text: *mut *const c_char,
) -> CudaStatus {
    let said = match status {
        fault::OUT_OF_MEMORY => c"out of memory",
        fault::LAUNCH_FAILED => c"unspecified launch failure",
        fault::DEVICE_LOST => c"the device is unavailable",
        UNSUPPORTED_PTX_VERSION => c"the provided code was compiled with an unsupported toolchain",
        _ => c"an error of the fake driver",
    };
    unsafe { *text = said.as_ptr() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(
    _status: CudaStatus,
    text: *mut *const c_char,
) -> CudaStatus {
    unsafe { *text = c"CUDA_ERROR".as_ptr() };
    SUCCESS
}

fn devices() -> c_int {
    number("FAKE_CUDA_DEVICES", 1) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CudaStatus {
    unsafe { *count = devices() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, number: c_int) -> CudaStatus {
    if !(0..devices()).contains(&number) {
        return INVALID_DEVICE;
    }
    unsafe { *device = number };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(
    name: *mut c_char,
    bytes: c_int,
    device: c_int,
) -> CudaStatus {
    let text = format!("Fake GPU {device}\0");
    let length = text.len().min(bytes as usize);
    unsafe { ptr::copy_nonoverlapping(text.as_ptr().cast(), name, length) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    _device: c_int,
) -> CudaStatus {
    let found = match attribute {
        MEMORY_POOLS => 1,
        CAPABILITY_MAJOR => 9,
        CAPABILITY_MINOR => 0,
        _ => return INVALID_VALUE,
    };
    unsafe { *value = found };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut *mut c_void,
    device: c_int,
) -> CudaStatus {
    CONTEXTS.fetch_add(1, Ordering::SeqCst);
    unsafe { *context = (device as usize + 1) as *mut c_void };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> CudaStatus {
    if CONTEXTS.fetch_sub(1, Ordering::SeqCst) == 1 {
        report::write_counts();
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> CudaStatus {
    unsafe { *context = CURRENT.get() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> CudaStatus {
    CURRENT.set(context);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> CudaStatus {
    report::count("synchronize_context");
    stream::synchronize_all();
    fault::sticky_error()
}

// ---- streams and events ----

/// The stream of a handle: 0 and 1 are the default stream, 2 is that of the calling thread. There is one of either in a
/// process, and neither waits for other streams: those of the tests are made as non-blocking.
unsafe fn stream_of<'a>(handle: *mut FakeStream) -> &'a FakeStream {
    static LEGACY: OnceLock<FakeStream> = OnceLock::new();
    static PER_THREAD: OnceLock<FakeStream> = OnceLock::new();
    match handle as usize {
        0 | 1 => LEGACY.get_or_init(FakeStream::default),
        2 => PER_THREAD.get_or_init(FakeStream::default),
        _ => unsafe { &*handle },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(
    stream: *mut *mut FakeStream,
    _flags: c_uint,
) -> CudaStatus {
    unsafe { *stream = Box::into_raw(Box::default()) };
    fault::sticky_error()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: *mut FakeStream) -> CudaStatus {
    if stream.is_null() {
        return INVALID_HANDLE;
    }
    drop(unsafe { Box::from_raw(stream) });
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: *mut FakeStream) -> CudaStatus {
    unsafe { stream_of(stream) }.synchronize();
    fault::sticky_error()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut *const FakeEvent, _flags: c_uint) -> CudaStatus {
    unsafe { *event = Arc::into_raw(Arc::default()) };
    fault::sticky_error()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: *const FakeEvent) -> CudaStatus {
    drop(unsafe { Arc::from_raw(event) });
    SUCCESS
}

unsafe fn clone_event(event: *const FakeEvent) -> Arc<FakeEvent> {
    unsafe {
        Arc::increment_strong_count(event);
        Arc::from_raw(event)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(
    event: *const FakeEvent,
    stream: *mut FakeStream,
) -> CudaStatus {
    report::count("record");
    let event = unsafe { clone_event(event) };
    let record = event.record();
    unsafe { stream_of(stream) }.push(StreamWork::Record(event, record));
    fault::count_call()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(
    stream: *mut FakeStream,
    event: *const FakeEvent,
    _flags: c_uint,
) -> CudaStatus {
    let event = unsafe { clone_event(event) };
    let record = event.last();
    unsafe { stream_of(stream) }.push(StreamWork::Wait(event, record));
    fault::count_call()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(event: *const FakeEvent) -> CudaStatus {
    report::count("synchronize");
    let event = unsafe { &*event };
    let record = event.last();
    if record == 0 {
        report::count("synchronize_unrecorded");
    }
    event.wait(record);
    fault::sticky_error()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: *const FakeEvent) -> CudaStatus {
    let event = unsafe { &*event };
    if event.is_reached(event.last()) {
        fault::sticky_error()
    } else {
        NOT_READY
    }
}

// ---- memory ----

unsafe fn store_allocation(pointer: *mut u64, found: Result<u64, CudaStatus>) -> CudaStatus {
    match found {
        Ok(start) => {
            unsafe { *pointer = start };
            fault::count_call()
        }
        Err(status) => status,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(pointer: *mut u64, bytes: usize) -> CudaStatus {
    unsafe { store_allocation(pointer, DEVICE.allocate(bytes, device_limit())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(
    pointer: *mut u64,
    bytes: usize,
    _stream: *mut FakeStream,
) -> CudaStatus {
    unsafe { store_allocation(pointer, DEVICE.allocate(bytes, device_limit())) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(start: u64) -> CudaStatus {
    DEVICE.free(start)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(start: u64, stream: *mut FakeStream) -> CudaStatus {
    let stream = unsafe { stream_of(stream) };
    stream.check_free();
    stream.synchronize();
    DEVICE.free(start)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    pointer: *mut u64,
    bytes: usize,
    _flags: c_uint,
) -> CudaStatus {
    unsafe { store_allocation(pointer, PINNED.allocate(bytes, u64::MAX)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(start: u64) -> CudaStatus {
    PINNED.free(start)
}

/// A sum over bytes, to see that they are the same later.
fn host_checksum(start: u64, bytes: usize) -> u64 {
    // SAFETY: the bytes lie in page-locked memory, which is freed after the copies from it. They may change while they
    // are read if the program is wrong, which is what is looked for; a torn read is then one more difference.
    let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, bytes) };
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: u64,
    bytes: usize,
    stream: *mut FakeStream,
) -> CudaStatus {
    if !DEVICE.holds(to, bytes) {
        return INVALID_VALUE;
    }
    let stream = unsafe { stream_of(stream) };
    if PINNED.holds(from, bytes) {
        report::count("copy_to_device_pinned");
        let queued = host_checksum(from, bytes);
        let copy = move || {
            if !PINNED.holds(from, bytes) || !DEVICE.holds(to, bytes) {
                return report::violation("memory was freed while a copy to the device was queued");
            }
            if host_checksum(from, bytes) != queued {
                report::violation("a host buffer changed while a copy from it was queued");
            }
            // SAFETY: both lie in live allocations.
            unsafe { ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
        };
        stream.push(StreamWork::Do(Box::new(copy)));
    } else {
        report::count("copy_to_device_pageable");
        // The real driver waits for the stream, and takes the bytes over before it returns.
        stream.synchronize();
        let taken = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) }.to_vec();
        let copy = move || {
            if !DEVICE.holds(to, taken.len()) {
                return report::violation("memory was freed while a copy to the device was queued");
            }
            // SAFETY: it lies in a live allocation.
            unsafe { ptr::copy_nonoverlapping(taken.as_ptr(), to as *mut u8, taken.len()) };
        };
        stream.push(StreamWork::Do(Box::new(copy)));
    }
    fault::count_call()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: u64,
    from: u64,
    bytes: usize,
    stream: *mut FakeStream,
) -> CudaStatus {
    if !DEVICE.holds(from, bytes) {
        return INVALID_VALUE;
    }
    let stream = unsafe { stream_of(stream) };
    let pinned = PINNED.holds(to, bytes);
    report::count(if pinned {
        "copy_to_host_pinned"
    } else {
        "copy_to_host_pageable"
    });
    let copy = move || {
        if (pinned && !PINNED.holds(to, bytes)) || !DEVICE.holds(from, bytes) {
            return report::violation("memory was freed while a copy to the host was queued");
        }
        // SAFETY: both lie in live allocations, or the caller of a synchronous copy waits.
        unsafe { ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
    };
    stream.push(StreamWork::Do(Box::new(copy)));
    if !pinned {
        stream.synchronize();
    }
    fault::count_call()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(
    to: u64,
    value: u8,
    bytes: usize,
    stream: *mut FakeStream,
) -> CudaStatus {
    if !DEVICE.holds(to, bytes) {
        return INVALID_VALUE;
    }
    let set = move || {
        // SAFETY: checked when it was queued; frees are stream-ordered.
        unsafe { (to as *mut u8).write_bytes(value, bytes) };
    };
    unsafe { stream_of(stream) }.push(StreamWork::Compute(Box::new(set)));
    fault::count_call()
}

// ---- kernels ----

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(
    module: *mut *mut KernelModule,
    image: *const c_char,
) -> CudaStatus {
    if fault::is_injected("old") {
        return UNSUPPORTED_PTX_VERSION;
    }
    let Some(loaded) = KernelModule::load(unsafe { CStr::from_ptr(image) }) else {
        return INVALID_IMAGE;
    };
    unsafe { *module = Box::into_raw(Box::new(loaded)) };
    fault::sticky_error()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: *mut KernelModule) -> CudaStatus {
    drop(unsafe { Box::from_raw(module) });
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *const HostKernel,
    module: *mut KernelModule,
    name: *const c_char,
) -> CudaStatus {
    let Some(kernel) = unsafe { &mut *module }.kernel(unsafe { CStr::from_ptr(name) }) else {
        return NOT_FOUND;
    };
    unsafe { *function = kernel };
    SUCCESS
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "CUDA's interface")]
pub unsafe extern "C" fn cuLaunchKernel(
    function: *const HostKernel,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    _shared: c_uint,
    stream: *mut FakeStream,
    arguments: *const *const c_void,
    _extra: *mut *mut c_void,
) -> CudaStatus {
    if grid_x == 0 || block_x == 0 || block_x > 1024 || [grid_y, grid_z, block_y, block_z] != [1; 4]
    {
        return INVALID_VALUE;
    }
    report::count("launch");
    let nth = KERNELS.fetch_add(1, Ordering::SeqCst) + 1;
    // Arguments are copied before the call returns.
    let run = unsafe { (*function).prepare(arguments, grid_x, block_x, nth) };
    let work = move || {
        if fault::kernel_fails(nth) {
            fault::break_device(LAUNCH_FAILED)
        } else {
            run()
        }
    };
    unsafe { stream_of(stream) }.push(StreamWork::Compute(Box::new(work)));
    fault::count_call()
}
