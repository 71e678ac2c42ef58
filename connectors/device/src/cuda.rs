//! CUDA, if a driver is found at run time. No library of CUDA is linked.
//!
//! All of it runs in tests against a driver with CUDA's semantics (`tests/fake_cuda`): copies and kernels late and on
//! threads of their own; `benches/gpu/run` and `pipelines/python/tests/test_gpu.py` run it on a GPU. `pinned.rs` states
//! which event is recorded where, and what waits for it.

mod accelerator;
mod compile;
mod device_feed;
mod libraries;
mod measure;
mod pinned;
mod report;
mod wheels;

use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaModule, CudaSlice, CudaStream, CudaViewMut,
    DriverError, LaunchConfig, PushKernelArg, result, sys,
};
use cudarc::nvrtc::Ptx;
use forebay_feed::SlotMemory;
use forebay_model::{Fault, Result, codes};

pub use device_feed::{ConsumerStream, DeviceBatch, DeviceFeed, DeviceStats};
pub use libraries::add_python_prefix;
pub use measure::{CopyBenchmark, CopyRates, DeliveryCheck, DeliveryReport};
pub use pinned::{LentPinnedMemory, PinnedMemory};
pub(super) use report::report;

use super::device::ComputeDevice;
use compile::GpuArchitecture;
use libraries::LibraryStatus;

/// A CUDA device with a stream for copies and one for computation.
pub struct CudaDevice {
    context: Arc<CudaContext>,
    copies: Arc<CudaStream>,
    compute: Arc<CudaStream>,
}

/// Hint for a device that fails while it is used.
const DEVICE_HINT: &str = "look at the GPU with `nvidia-smi`; the same command goes on from the \
                           last checkpoint, or leave `device` out";

/// Converts an error of the driver to a fault. The text comes from the driver, so it must be
/// loaded.
fn driver_fault(action: &str) -> impl Fn(DriverError) -> Fault + '_ {
    move |error| {
        let code = match error.0 {
            sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY => codes::MEMORY,
            _ => codes::STORAGE,
        };
        let hint = match code {
            codes::MEMORY => {
                "lower `batch_rows` or the model's widths, or free memory of the GPU \
                 (`nvidia-smi` shows it)"
            }
            _ => DEVICE_HINT,
        };
        Fault::new(code, format!("the GPU's driver failed to {action}"))
            .cause(error)
            .hint(hint)
    }
}

/// Description of the driver and its devices.
pub(super) fn describe_devices() -> String {
    match libraries::driver_status() {
        LibraryStatus::Found => {}
        LibraryStatus::Absent => return "no driver found".to_owned(),
        LibraryStatus::Lacks(symbol) => {
            return format!("a driver that lacks `{symbol}`: install a newer one");
        }
    }
    match device_names() {
        Ok(names) if names.is_empty() => "a driver, but no device".to_owned(),
        Ok(names) => names.join(", "),
        Err(error) => format!("a driver that does not work: {error}"),
    }
}

fn device_names() -> Result<Vec<String>, DriverError> {
    result::init()?;
    let name = |number| {
        let device = result::device::get(number)?;
        result::device::get_name(device)
    };
    (0..result::device::get_count()?).map(name).collect()
}

impl CudaDevice {
    /// A device by its number; `None` where there is no driver or no such device.
    pub fn open(number: usize) -> Result<Option<CudaDevice>> {
        if libraries::driver_status() != LibraryStatus::Found || result::init().is_err() {
            return Ok(None);
        }
        let count = CudaContext::device_count().map_err(driver_fault("count its devices"))?;
        if number >= count.max(0) as usize {
            return Ok(None);
        }
        with_saved_context(|| CudaDevice::new(number)).map(Some)
    }

    fn new(number: usize) -> Result<CudaDevice> {
        let context = CudaContext::new(number).map_err(driver_fault("open the device"))?;
        let stream = || context.new_stream().map_err(driver_fault("make a stream"));
        let copies = stream()?;
        let compute = stream()?;
        #[allow(unsafe_code, reason = "from here on, events are ours")]
        // SAFETY: `pinned.rs` states the protocol of our own events, for the host and between the two streams.
        unsafe {
            context.disable_event_tracking();
        }
        Ok(CudaDevice {
            context,
            copies,
            compute,
        })
    }

    /// Name of the device.
    pub fn name(&self) -> Result<String> {
        self.context
            .name()
            .map_err(driver_fault("tell the device's name"))
    }

    /// The device's context, for kernels and libraries.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// The stream that a stage computes on.
    pub fn compute(&self) -> &Arc<CudaStream> {
        &self.compute
    }

    /// The stream of copies.
    pub fn copies(&self) -> &Arc<CudaStream> {
        &self.copies
    }

    /// Allocator of a feed's slots, from which the device copies asynchronously.
    pub fn pinned(&self) -> PinnedMemory {
        PinnedMemory(self.context.clone())
    }

    /// Allocator of a feed's slots, for consumers that copy them to the device themselves.
    pub fn lent_pinned(&self) -> LentPinnedMemory {
        LentPinnedMemory(self.context.clone())
    }

    /// The architecture that kernels are compiled for.
    fn architecture(&self) -> Result<GpuArchitecture> {
        let (major, minor) = self
            .context
            .compute_capability()
            .map_err(driver_fault("tell what the device can do"))?;
        Ok(GpuArchitecture { major, minor })
    }

    /// Kernels, compiled for the device; needs the library NVRTC.
    fn compile_module(&self, source: &'static str, defines: &[&str]) -> Result<Arc<CudaModule>> {
        let code = compile::cubin(source, defines, self.architecture()?)?;
        self.context
            .load_module(Ptx::from_binary(code))
            .map_err(|error| {
                driver_fault("load the kernels")(error)
                    .hint("install a newer driver, or leave `device` out of the spec")
            })
    }

    /// A kernel from its source in CUDA C; needs the library NVRTC.
    pub fn kernel(&self, source: &'static str, name: &str) -> Result<CudaFunction> {
        self.compile_module(source, &[])?
            .load_function(name)
            .map_err(driver_fault("find a kernel"))
    }

    /// Adds the checksum of some bytes to `sum`, on the stream for computation.
    pub fn add_checksum(
        &self,
        kernel: &CudaFunction,
        bytes: &CudaSlice<u8>,
        sum: &mut CudaViewMut<'_, u64>,
    ) -> Result<()> {
        let words = (bytes.len() / 4) as u64;
        let shape = LaunchConfig {
            grid_dim: (256, 1, 1),
            block_dim: (256, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = self.compute.launch_builder(kernel);
        launch.arg(bytes).arg(&words).arg(sum);
        #[allow(unsafe_code, reason = "arguments of kernels have no types")]
        // SAFETY: the arguments are those of CHECKSUM_KERNEL, and the words lie within the bytes.
        unsafe { launch.launch(shape) }
            .map(drop)
            .map_err(driver_fault("start a kernel"))
    }
}

/// Does work that may change the calling thread's context, which other libraries count on, and sets it back. A device
/// must have been opened.
pub fn with_saved_context<T>(work: impl FnOnce() -> T) -> T {
    struct ContextGuard(sys::CUcontext);
    impl Drop for ContextGuard {
        fn drop(&mut self) {
            #[allow(unsafe_code, reason = "the driver's interface")]
            // SAFETY: the context was this thread's before; null is none.
            let _ = unsafe { result::ctx::set_current(self.0) };
        }
    }
    let previous = result::ctx::get_current();
    let _previous = previous
        .ok()
        .map(|context| ContextGuard(context.unwrap_or(std::ptr::null_mut())));
    work()
}

impl ComputeDevice for CudaDevice {
    type Memory = CudaSlice<u8>;
    type Event = CudaEvent;

    fn memory(&self, bytes: usize) -> Result<CudaSlice<u8>> {
        let memory = self
            .copies
            .alloc_zeros(bytes)
            .map_err(driver_fault("allocate a slot"))?;
        self.copies
            .synchronize()
            .map_err(driver_fault("allocate a slot"))?;
        Ok(memory)
    }

    fn event(&self) -> Result<CudaEvent> {
        self.context
            .new_event(None)
            .map_err(driver_fault("make an event"))
    }

    fn copies_wait(&self, event: &CudaEvent) -> Result<()> {
        self.copies
            .wait(event)
            .map_err(driver_fault("wait for an event"))
    }

    fn copy(&self, from: &dyn SlotMemory, to: &mut CudaSlice<u8>) -> Result<()> {
        let copied = match pinned::as_pinned(from) {
            Some(pinned) => pinned.copy_to(&self.copies, to),
            // No event marks the end of a copy from memory of another allocator.
            None => self
                .copies
                .memcpy_htod(from.bytes(), to)
                .and_then(|()| self.copies.synchronize()),
        };
        copied.map_err(driver_fault("copy a batch"))
    }

    fn record_copied(&self, event: &mut CudaEvent) -> Result<()> {
        event
            .record(&self.copies)
            .map_err(driver_fault("record an event"))
    }

    fn compute_waits(&self, event: &CudaEvent) -> Result<()> {
        self.compute
            .wait(event)
            .map_err(driver_fault("wait for an event"))
    }

    fn record_computed(&self, event: &mut CudaEvent) -> Result<()> {
        event
            .record(&self.compute)
            .map_err(driver_fault("record an event"))
    }

    fn finish(&self) -> Result<()> {
        self.copies
            .synchronize()
            .map_err(driver_fault("finish its copies"))?;
        self.compute
            .synchronize()
            .map_err(driver_fault("finish its work"))
    }
}

/// A checksum over 32-bit words and their positions, to verify that all bytes have arrived.
pub const CHECKSUM_KERNEL: &str = r#"
extern "C" __global__ void checksum(
    const unsigned int* words, unsigned long long count, unsigned long long* sum
) {
    unsigned long long mine = 0;
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long first = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    for (unsigned long long at = first; at < count; at += step) {
        unsigned long long mixed = ((at << 32) ^ words[at]) * 0x9e3779b97f4a7c15ull;
        mine += (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9ull;
    }
    atomicAdd(sum, mine);
}
"#;

/// The checksum of `CHECKSUM_KERNEL`, computed on the host.
pub fn checksum(bytes: &[u8]) -> u64 {
    let words = bytes
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    words.zip(0_u64..).fold(0, |sum, (word, at)| {
        let mixed = ((at << 32) ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum.wrapping_add((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_needed_of_cuda() {
        // With a driver or without one, this neither panics nor fails.
        assert!(!describe_devices().is_empty());
        assert!(CudaDevice::open(usize::MAX).is_ok_and(|device| device.is_none()));
    }
}
