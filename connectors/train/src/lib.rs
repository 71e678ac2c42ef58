//! Trainers: linear and logistic models and layers with relu, over numbers and embeddings; boosted
//! trees (`boosting`); models of single series (`series`).
//!
//! A batch is cut into slices of fixed size, whose gradients are added up in their order: the same
//! rows, configuration and seed give the same bits on any number of threads.
//!
//! `trainer` runs the steps, which an `engine` computes: the host (`compute`, `gradient`, `adam`),
//! or a `device` with kernels of its own.

mod adam;
mod boosting;
mod choose;
mod class_errors;
mod class_loss;
mod class_metrics;
mod class_rows;
mod classes;
mod compute;
mod config;
mod constants;
mod device;
mod engine;
mod export;
mod file;
mod format;
mod gradient;
mod group_names;
mod matrix;
mod metrics;
mod model_input;
mod network;
mod network_training;
mod only_epoch;
mod parallel;
mod place;
mod predict;
mod random;
mod refit;
mod row_changes;
mod rows;
mod scale;
mod series;
mod start;
mod state;
mod tensors;
mod tracking;
mod trainer;

pub use boosting::{
    BoostedModel, BoostedModelKind, BoostingCard, BoostingConfig, BoostingLoss, ColumnFallback,
    ErrorSums, ForecastIntervals, ForecastStrategy, GroupFallbackKind, GroupModelCard,
    IntervalMethod, IntervalScale, StepModels,
};
pub use config::{
    LearningRateDecay, LossFunction, ModelKind, OnNonFinite, TrainConfig, TrainingStart,
};
pub use device::{
    DeviceTrial, TRAINING_KERNELS, TrialComparison, check_device as check_accelerator,
};
pub use export::{ModelPart, lightgbm_model, onnx_model};
pub use file::{MODEL_FILE, ModelCard, ModelOrigin, Predictor};
pub use format::{FORMAT, trainer};
pub use network::{EmbeddingTable, ModelShape};
pub use place::TrainingDevice;
pub use predict::read_predictor;
pub use series::{
    EnsembleCard, EnsembleWeights, ReconcileConfig, ReconcileMethod, SeriesCard,
    SeriesIntervalCard, SeriesIntervals, SeriesMethod, SeriesModelConfig, SeriesModelKind,
    ThetaVariant,
};
pub use tracking::MlflowTracking;
