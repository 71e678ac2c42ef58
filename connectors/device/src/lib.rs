//! Batches on devices: a ring of slots there, filled from the feed's slots, with events between copies
//! and computation. CUDA is one such device; ordinary memory is another.

mod accelerator;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
mod host;
mod precision;
mod ring;

pub use accelerator::{
    Accelerator, ColumnMajorProduct, DeviceKernels, DeviceMatrix, MatrixProduct,
};
#[cfg(feature = "cuda")]
pub use cuda::{
    CHECKSUM_KERNEL, ConsumerStream, CopyBenchmark, CopyRates, CudaDevice, DeliveryCheck,
    DeliveryReport, DeviceBatch, DeviceFeed, DeviceStats, LentPinnedMemory, PinnedMemory,
    add_python_prefix, checksum, with_saved_context,
};
pub use device::ComputeDevice;
pub use host::HostDevice;
pub use precision::Precision;
pub use ring::{DeliveredBatch, DeviceRing, DeviceStage, run_stage};

/// Hardware on which the CUDA code was tested. Change it with the table of the guide.
pub const CUDA_TEST_STATUS: &str = "copies, checksums and trainings on NVIDIA H100 and H200, \
                                    batches for PyTorch on H200, with CUDA 13.0 \
                                    (benches/gpu/run); kernels compiled for sm_75 to sm_100";

/// Description of CUDA on this machine, for people. No function depends on it.
pub fn describe_cuda() -> String {
    #[cfg(feature = "cuda")]
    return cuda::describe_devices();
    #[cfg(not(feature = "cuda"))]
    "not part of this program".to_owned()
}

/// State of CUDA on this machine.
#[derive(Debug, Clone)]
pub struct CudaReport {
    /// The driver, NVRTC and cuBLAS; none where CUDA is not part of this program.
    pub libraries: Vec<CudaLibrary>,
    /// Devices, or the reason why there are none.
    pub devices: String,
}

/// A library of CUDA.
#[derive(Debug, Clone)]
pub struct CudaLibrary {
    /// Name of the library.
    pub name: &'static str,
    /// Version and file, or the problem.
    pub found: String,
    /// Remedy, if something is wrong.
    pub remedy: Option<String>,
}

/// State of each library of CUDA with its file and version, and the command that installs a missing
/// one.
pub fn cuda_report() -> CudaReport {
    #[cfg(feature = "cuda")]
    return cuda::report();
    #[cfg(not(feature = "cuda"))]
    CudaReport {
        libraries: Vec::new(),
        devices: describe_cuda(),
    }
}
