//! The trainer: linear and logistic models and layers with relu, over numbers and embeddings.
//!
//! A batch is cut into slices of fixed size, whose gradients are added up in their order: the same
//! rows, configuration and seed give the same bits on any number of threads.
//!
//! `trainer` goes from step to step; what computes them is an `engine`: the host (`compute`, `gradient`, `adam`),
//! or a `device` with kernels of its own.

mod adam;
mod choose;
mod compute;
mod config;
mod device;
mod engine;
mod file;
mod gradient;
mod matrix;
mod metrics;
mod network;
mod place;
mod random;
mod rows;
mod state;
mod tensors;
mod trainer;

pub(crate) use config::of;
pub use config::{Decay, Loss, ModelKind, OnNonFinite, Train};
pub use device::{Accelerator, ColumnMajor, Compared, Matrix, Product, Trial, check as check_accelerator};
#[cfg(feature = "cuda")]
pub(crate) use device::{KERNELS, SOURCE};
pub use file::{Card, MODEL_FILE, Origin, Predictor};
pub use network::{Embedding, Shape};
pub use place::{Precision, TrainOn};
