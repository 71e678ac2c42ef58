//! CUDA, where a driver is found when the program runs. Nothing of it is linked.
//!
//! What is here has been compiled, and its order of copies and events is tested with a simulated device
//! (`connectors/tests/it/ring.rs`); it has not been run on a GPU yet: `examples/cuda_feed.rs` is for that.

mod accelerator;

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PinnedHostSlice,
    PushKernelArg, result, sys,
};
use cudarc::nvrtc;
use forebay_feed::{SlotAllocator, SlotMemory};
use forebay_model::{Fault, Result, codes};

use super::device::Device;

/// A CUDA device with a stream for copies and one for computation.
pub struct Cuda {
    context: Arc<CudaContext>,
    copies: Arc<CudaStream>,
    compute: Arc<CudaStream>,
}

/// Slots in page-locked memory, from which the device copies by itself.
pub struct PinnedMemory(Arc<CudaContext>);

struct PinnedSlot {
    slice: PinnedHostSlice<u8>,
    /// To read without waiting: copies only read as well.
    start: *const u8,
}

/// What the driver answered. Its words come from the driver, so it must be there.
fn failed(what: &str) -> impl Fn(DriverError) -> Fault + '_ {
    move |error| {
        let code = match error.0 {
            sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY => codes::MEMORY,
            _ => codes::STORAGE,
        };
        Fault::new(code, format!("the GPU's driver failed to {what}")).cause(error)
    }
}

#[allow(unsafe_code, reason = "looking for a library runs its initialisation")]
fn has_driver() -> bool {
    // SAFETY: libcuda is the driver's own library, which every CUDA program loads.
    unsafe { sys::is_culib_present() }
}

/// What a driver and its devices say of themselves.
pub(super) fn found() -> String {
    if !has_driver() {
        // Nobody needs one who does not ask for it.
        return "no driver found".to_owned();
    }
    let devices = || -> Result<Vec<String>, DriverError> {
        result::init()?;
        let each =
            (0..result::device::get_count()?).map(|number| result::device::get_name(result::device::get(number)?));
        each.collect()
    };
    match devices() {
        Ok(names) if names.is_empty() => "a driver, but no device".to_owned(),
        Ok(names) => names.join(", "),
        Err(error) => format!("a driver that does not work: {error}"),
    }
}

impl Cuda {
    /// A device by its number; `None` where there is no driver or no such device.
    pub fn open(number: usize) -> Result<Option<Cuda>> {
        if !has_driver() || result::init().is_err() {
            return Ok(None);
        }
        let count = CudaContext::device_count().map_err(failed("count its devices"))?;
        if number >= count.max(0) as usize {
            return Ok(None);
        }
        let context = CudaContext::new(number).map_err(failed("open the device"))?;
        let stream = || context.new_stream().map_err(failed("make a stream"));
        let (copies, compute) = (stream()?, stream()?);
        #[allow(unsafe_code, reason = "from here on, events are ours")]
        // SAFETY: slices are used on two streams only, and `Ring` puts events between these.
        unsafe {
            context.disable_event_tracking();
        }
        Ok(Some(Cuda { context, copies, compute }))
    }

    /// What the device is called.
    pub fn name(&self) -> Result<String> {
        self.context.name().map_err(failed("tell the device's name"))
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

    /// Where a feed gets its slots, so that the device copies them by itself.
    pub fn pinned(&self) -> PinnedMemory {
        PinnedMemory(self.context.clone())
    }

    /// A kernel from its source in CUDA C; needs the library NVRTC.
    pub fn kernel(&self, source: &str, name: &str) -> Result<CudaFunction> {
        let ptx = nvrtc::compile_ptx(source)
            .map_err(|error| Fault::internal(format!("the kernel `{name}` cannot be compiled")).cause(error))?;
        let module = self.context.load_module(ptx).map_err(failed("load a kernel"))?;
        module.load_function(name).map_err(failed("find a kernel"))
    }

    /// Adds the checksum of some bytes to `sum`, on the stream for computation.
    pub fn add_checksum(&self, kernel: &CudaFunction, bytes: &CudaSlice<u8>, sum: &mut CudaSlice<u64>) -> Result<()> {
        let words = (bytes.len() / 4) as u64;
        let shape = LaunchConfig { grid_dim: (256, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.compute.launch_builder(kernel);
        launch.arg(bytes).arg(&words).arg(sum);
        #[allow(unsafe_code, reason = "arguments of kernels have no types")]
        // SAFETY: the arguments are those of CHECKSUM_KERNEL, and the words lie within the bytes.
        unsafe { launch.launch(shape) }.map(drop).map_err(failed("start a kernel"))
    }
}

impl Device for Cuda {
    type Memory = CudaSlice<u8>;
    type Event = CudaEvent;

    fn memory(&self, bytes: usize) -> Result<CudaSlice<u8>> {
        let memory = self.copies.alloc_zeros(bytes).map_err(failed("allocate a slot"))?;
        self.copies.synchronize().map_err(failed("allocate a slot"))?;
        Ok(memory)
    }

    fn event(&self) -> Result<CudaEvent> {
        self.context.new_event(None).map_err(failed("make an event"))
    }

    fn copies_wait(&self, event: &CudaEvent) -> Result<()> {
        self.copies.wait(event).map_err(failed("wait for an event"))
    }

    fn copy(&self, from: &dyn SlotMemory, to: &mut CudaSlice<u8>) -> Result<()> {
        let any: &dyn Any = from;
        let copied = match any.downcast_ref::<PinnedSlot>() {
            // Records the slice's own event, for which `bytes_mut` waits.
            Some(pinned) => self.copies.memcpy_htod(&pinned.slice, to),
            // Ordinary memory is taken over before the call comes back.
            None => self.copies.memcpy_htod(from.bytes(), to),
        };
        copied.map_err(failed("copy a batch"))
    }

    fn record_copied(&self, event: &mut CudaEvent) -> Result<()> {
        event.record(&self.copies).map_err(failed("record an event"))
    }

    fn compute_waits(&self, event: &CudaEvent) -> Result<()> {
        self.compute.wait(event).map_err(failed("wait for an event"))
    }

    fn record_computed(&self, event: &mut CudaEvent) -> Result<()> {
        event.record(&self.compute).map_err(failed("record an event"))
    }

    fn finish(&self) -> Result<()> {
        self.copies.synchronize().map_err(failed("finish its copies"))?;
        self.compute.synchronize().map_err(failed("finish its work"))
    }
}

impl SlotAllocator for PinnedMemory {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn SlotMemory>> {
        let fault = failed("lock memory");
        #[allow(unsafe_code, reason = "the memory is not set")]
        // SAFETY: all of it is written before anybody reads it: two lines below. Pages are aligned enough.
        let slice = unsafe { self.0.alloc_pinned_with_flags::<u8>(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let mut slice = slice.map_err(&fault)?;
        slice.as_mut_slice().map_err(&fault)?.fill(0);
        let start = slice.as_ptr().map_err(&fault)?;
        Ok(Box::new(PinnedSlot { slice, start }))
    }
}

#[allow(unsafe_code, reason = "a pointer into memory that the slot owns")]
// SAFETY: the pointer is that of the slice, which may go from thread to thread, and lives as long.
unsafe impl Send for PinnedSlot {}

#[allow(unsafe_code, reason = "a pointer into memory that the slot owns")]
// SAFETY: through a shared slot, the memory is only read, by threads and by the device.
unsafe impl Sync for PinnedSlot {}

impl SlotMemory for PinnedSlot {
    fn bytes(&self) -> &[u8] {
        #[allow(unsafe_code, reason = "the safe way would wait for copies, which only read as well")]
        // SAFETY: so many bytes lie there, written before, and nobody writes while `self` is shared.
        unsafe {
            std::slice::from_raw_parts(self.start, self.slice.len())
        }
    }

    fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.slice.as_mut_slice().map_err(failed("finish a copy"))
    }
}

/// A checksum over 32-bit words and their places, to tell that all bytes have arrived.
pub const CHECKSUM_KERNEL: &str = r#"
extern "C" __global__ void checksum(
    const unsigned int* words, unsigned long long count, unsigned long long* sum
) {
    unsigned long long mine = 0;
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; at < count; at += step) {
        unsigned long long mixed = ((at << 32) ^ words[at]) * 0x9e3779b97f4a7c15ull;
        mine += (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9ull;
    }
    atomicAdd(sum, mine);
}
"#;

/// The same on the host.
pub fn checksum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    words.zip(0_u64..).fold(0, |sum, (word, at)| {
        let mixed = ((at << 32) ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum.wrapping_add((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn nothing_is_needed_of_cuda() {
        // With a driver or without one, this neither panics nor fails.
        assert!(!found().is_empty());
        assert!(Cuda::open(usize::MAX).is_ok_and(|device| device.is_none()));
    }

    /// Whether kernels can be compiled here; says so where not.
    pub(in crate::feed::cuda) fn compiler_is_found() -> bool {
        #[allow(unsafe_code, reason = "looking for a library runs its initialisation")]
        // SAFETY: NVRTC is a compiler that comes with CUDA.
        let found = unsafe { nvrtc::sys::is_culib_present() };
        if !found {
            let _ = writeln!(std::io::stderr(), "skipped: no NVRTC at hand");
        }
        found
    }

    #[test]
    fn kernels_compile_where_the_compiler_is_found() {
        if !compiler_is_found() {
            return;
        }
        let ptx = nvrtc::compile_ptx(CHECKSUM_KERNEL).unwrap();
        assert!(ptx.to_src().contains(".entry checksum"));
    }
}
