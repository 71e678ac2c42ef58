//! Steps of a training on a device, written once over a trait of the operations that a device must
//! have.
//!
//! The kernels (`kernels.cu`) are compiled by NVRTC on GPUs. Tests compile the same file for the host, and run
//! whole trainings on a simulated device that does its work late.

mod arguments;
mod kernels;
mod learner;
mod memory;
mod trial;

pub use kernels::TRAINING_KERNELS;
pub use learner::DeviceEngine;
pub use trial::{DeviceTrial, TrialComparison, check_device};

/// Changes whenever the same configuration and rows would give another model on a device.
pub const VERSION: u32 = 1;
