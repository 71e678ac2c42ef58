//! The trainer: linear and logistic models and layers with relu, over numbers and embeddings.
//!
//! A batch is cut into slices of fixed size, whose gradients are added up in their order: the same
//! rows, configuration and seed give the same bits on any number of threads.

mod adam;
mod compute;
mod config;
mod file;
mod gradient;
mod matrix;
mod metrics;
mod network;
mod random;
mod rows;
mod state;
mod tensors;
mod trainer;

pub(crate) use config::of;
pub use config::{Decay, Loss, ModelKind, OnNonFinite, Train};
pub use file::{Card, MODEL_FILE, Origin, Predictor};
pub use network::{Embedding, Shape};
