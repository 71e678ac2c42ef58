//! Connectors: where spans come from and where output goes.
//!
//! Each format has a folder, with its configuration in `config.rs`; `files` holds what all of
//! them share. A source gives a [`forebay_model::Dataset`] from metadata alone and reads spans on
//! the threads of the run; a sink encodes and knows nothing of commits.

mod arrow;
mod csv;
mod feed;
mod files;
mod format;
mod guard;
mod json;
mod named;
mod parquet;
mod train;

use std::sync::Arc;

use forebay_model::Result;
use forebay_run::{Connectors, Trainer};
use forebay_storage::{Sink, Source};
use serde_json::Value;

pub use crate::arrow::{Arrow, ArrowCompression, ArrowSink};
pub use crate::csv::Csv;
pub use crate::parquet::{Compression, Parquet, ParquetSink};
#[cfg(feature = "cuda")]
pub use feed::{
    Arrived, CHECKSUM_KERNEL, ConsumerStream, Copies, CopyRates, Cuda, Deliveries, DeviceBatch, DeviceFeed,
    DeviceStats, LentPinnedMemory, PinnedMemory, checksum, keeping_context,
};
pub use feed::{
    CUDA_TRIED, CudaLibrary, CudaReport, Delivered, Device, HostDevice, Ring, Stage, cuda_report, found_cuda, run_stage,
};
pub use files::{Added, ColumnType, ColumnTypes, Missing, Partitions, SchemaPolicy};
pub use format::{Format, Read};
pub use json::Json;
pub use named::{SinkFormat, SourceFormat, TrainerFormat};
pub use train::{
    Accelerator, Card, ColumnMajor, Compared, Decay, Embedding, Loss, MODEL_FILE, Matrix, ModelKind, OnNonFinite,
    Origin, Precision, Predictor, Product, Shape, Train, TrainOn, Trial, check_accelerator,
};

use format::{SinkConfig, SourceConfig, canonical, configured, format as entry, unknown};

/// The formats that can be read.
pub fn source_formats() -> &'static [Format] {
    const FORMATS: &[Format] =
        &[entry::<Parquet>("parquet"), entry::<Arrow>("arrow"), entry::<Csv>("csv"), entry::<Json>("json")];
    FORMATS
}

/// The formats that can be written.
pub fn sink_formats() -> &'static [Format] {
    const FORMATS: &[Format] = &[entry::<ParquetSink>("parquet"), entry::<ArrowSink>("arrow")];
    FORMATS
}

/// What sinks can train.
pub fn trainers() -> &'static [Format] {
    const TRAINERS: &[Format] = &[entry::<Train>("train")];
    TRAINERS
}

/// The connectors that come with Forebay.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltIn;

impl BuiltIn {
    /// A source's configuration with all defaults filled in.
    pub fn canonical_source(&self, format: &str, config: Value) -> Result<Value> {
        canonical("source", source_formats(), format, config)
    }
}

impl Connectors for BuiltIn {
    fn canonical(&self, format: &str, config: Value) -> Result<Value> {
        canonical("sink", sink_formats(), format, config)
    }

    fn source(&self, format: &str, config: &Value) -> Result<Arc<dyn Source>> {
        match format {
            "parquet" => Ok(configured::<Parquet>(format, config)?.source()),
            "arrow" => Ok(configured::<Arrow>(format, config)?.source()),
            "csv" => Ok(configured::<Csv>(format, config)?.source()),
            "json" => Ok(configured::<Json>(format, config)?.source()),
            _ => Err(unknown("source", format, source_formats())),
        }
    }

    fn sink(&self, format: &str, config: &Value) -> Result<Arc<dyn Sink>> {
        match format {
            "parquet" => Ok(configured::<ParquetSink>(format, config)?.sink()),
            "arrow" => Ok(configured::<ArrowSink>(format, config)?.sink()),
            _ => Err(unknown("sink", format, sink_formats())),
        }
    }

    fn trainer(&self, format: &str, config: &Value) -> Result<Arc<dyn Trainer>> {
        match format {
            "train" => Ok(train::of(configured::<Train>(format, config)?)),
            _ => Err(unknown("trainer", format, trainers())),
        }
    }
}
