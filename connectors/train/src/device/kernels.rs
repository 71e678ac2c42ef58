//! The kernels of trainings.

use forebay_device::DeviceKernels;

use super::arguments::KERNELS;

/// The kernels of trainings.
pub const TRAINING_KERNELS: DeviceKernels = DeviceKernels {
    source: concat!(include_str!("prelude.cu"), include_str!("kernels.cu")),
    names: KERNELS,
};
