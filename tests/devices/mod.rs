//! Feeds and trainings on devices: behind CUDA's driver, and simulated.

mod cuda_driver;
mod simulated_gpu;
mod trainings;
