//! Batches on devices: a ring of slots there, filled from the feed's slots, with events between copies
//! and computation. CUDA is one such device; ordinary memory is another.

#[cfg(feature = "cuda")]
mod cuda;
mod device;
mod host;
mod ring;

#[cfg(feature = "cuda")]
pub use cuda::{CHECKSUM_KERNEL, Cuda, PinnedMemory, checksum};
pub use device::Device;
pub use host::HostDevice;
pub use ring::{Delivered, Ring, Stage, run_stage};

/// What was found of CUDA on this machine, for people. Nothing of it is needed.
pub fn found_cuda() -> String {
    #[cfg(feature = "cuda")]
    return cuda::found();
    #[cfg(not(feature = "cuda"))]
    "not part of this program".to_owned()
}
