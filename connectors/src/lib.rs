//! Connectors: where spans come from and where output goes.
//!
//! Each format has a folder, with its configuration in `config.rs`; `files` holds what all of
//! them share. A source gives a [`forebay_model::Dataset`] from metadata alone and reads spans on
//! the threads of the run; a sink encodes and knows nothing of commits.

mod arrow;
mod csv;
mod delta;
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
use forebay_run::{ConnectorRegistry, ModelPredictor, PredictConfig, ReadModelFile, Trainer};
use forebay_storage::{Sink, Source};
use serde_json::Value;

pub use crate::arrow::{ArrowCompression, ArrowSink, ArrowSource};
pub use crate::csv::{CsvDialect, CsvSink, CsvSource, SameNamePolicy, sniff_csv};
pub use crate::delta::{
    AddedTableColumns, DeltaMode, DeltaSink, DeltaSource, has_deleted_rows, has_delta_log,
    table_references,
};
pub use crate::parquet::{ParquetCompression, ParquetSink, ParquetSource};
#[cfg(feature = "cuda")]
pub use feed::{
    CHECKSUM_KERNEL, ConsumerStream, CopyBenchmark, CopyRates, CudaDevice, DeliveryCheck,
    DeliveryReport, DeviceBatch, DeviceFeed, DeviceStats, LentPinnedMemory, PinnedMemory,
    add_python_prefix, checksum, with_saved_context,
};
pub use feed::{
    CUDA_TEST_STATUS, ComputeDevice, CudaLibrary, CudaReport, DeliveredBatch, DeviceRing,
    DeviceStage, HostDevice, cuda_report, describe_cuda, run_stage,
};
pub use files::{
    AddedColumnPolicy, ColumnType, ColumnTypes, MissingColumnPolicy, PartitionPolicy, SchemaPolicy,
    TextEncoding,
};
pub use format::ConnectorFormat;
pub use json::JsonSource;
pub use named::{SinkFormat, SourceFormat, TrainerFormat};
pub use train::{
    Accelerator, BoostedModel, BoostedModelKind, BoostingCard, BoostingConfig, BoostingLoss,
    ColumnFallback, ColumnMajorProduct, DeviceMatrix, DeviceTrial, EmbeddingTable, ErrorSums,
    ForecastStrategy, GroupFallbackKind, GroupModelCard, LearningRateDecay, LossFunction,
    MODEL_FILE, MatrixProduct, MlflowTracking, ModelCard, ModelKind, ModelOrigin, ModelShape,
    OnNonFinite, Precision, Predictor, StepModels, TrainConfig, TrainingDevice, TrainingStart,
    TrialComparison, check_accelerator,
};

use format::{
    SinkConfig, SourceConfig, canonical, format as entry, parse_config, unknown_format_fault,
};

/// The formats that can be read.
pub fn source_formats() -> &'static [ConnectorFormat] {
    const FORMATS: &[ConnectorFormat] = &[
        entry::<ParquetSource>("parquet"),
        entry::<DeltaSource>("delta"),
        entry::<ArrowSource>("arrow"),
        entry::<CsvSource>("csv"),
        entry::<JsonSource>("json"),
    ];
    FORMATS
}

/// The formats that can be written.
pub fn sink_formats() -> &'static [ConnectorFormat] {
    const FORMATS: &[ConnectorFormat] = &[
        entry::<ParquetSink>("parquet"),
        entry::<DeltaSink>("delta"),
        entry::<ArrowSink>("arrow"),
        entry::<CsvSink>("csv"),
    ];
    FORMATS
}

/// What sinks can train.
pub fn trainers() -> &'static [ConnectorFormat] {
    const TRAINERS: &[ConnectorFormat] = &[train::FORMAT];
    TRAINERS
}

/// What predicts with the models of a run.
pub fn predictors() -> &'static [ConnectorFormat] {
    const PREDICTORS: &[ConnectorFormat] = &[entry::<PredictConfig>("predict")];
    PREDICTORS
}

/// The connectors that come with Forebay.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltInConnectors;

impl BuiltInConnectors {
    /// A source's configuration with all defaults filled in.
    pub fn canonical_source(&self, format: &str, config: Value) -> Result<Value> {
        canonical("source", source_formats(), format, config)
    }
}

/// The format of a file by the ending of its name.
pub fn format_of_name(name: &str) -> Option<&'static str> {
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    let ending = name.rsplit_once('.')?.1;
    Some(match ending {
        "parquet" => "parquet",
        "arrow" | "arrows" | "ipc" | "feather" => "arrow",
        "csv" | "tsv" => "csv",
        "json" | "jsonl" | "ndjson" => "json",
        _ => return None,
    })
}

impl ConnectorRegistry for BuiltInConnectors {
    fn format_of_name(&self, name: &str) -> Option<&'static str> {
        format_of_name(name)
    }

    fn canonical(&self, format: &str, config: Value) -> Result<Value> {
        canonical("sink", sink_formats(), format, config)
    }

    fn source(&self, format: &str, config: &Value) -> Result<Arc<dyn Source>> {
        match format {
            "parquet" => Ok(parse_config::<ParquetSource>(format, config)?.source()),
            "delta" => Ok(parse_config::<DeltaSource>(format, config)?.source()),
            "arrow" => Ok(parse_config::<ArrowSource>(format, config)?.source()),
            "csv" => Ok(parse_config::<CsvSource>(format, config)?.source()),
            "json" => Ok(parse_config::<JsonSource>(format, config)?.source()),
            _ => Err(unknown_format_fault("source", format, source_formats())),
        }
    }

    fn sink(&self, format: &str, config: &Value) -> Result<Arc<dyn Sink>> {
        match format {
            "parquet" => Ok(parse_config::<ParquetSink>(format, config)?.sink()),
            "delta" => Ok(parse_config::<DeltaSink>(format, config)?.sink()),
            "arrow" => Ok(parse_config::<ArrowSink>(format, config)?.sink()),
            "csv" => Ok(parse_config::<CsvSink>(format, config)?.sink()),
            _ => Err(unknown_format_fault("sink", format, sink_formats())),
        }
    }

    fn predictor(&self, files: ReadModelFile<'_>) -> Result<Arc<dyn ModelPredictor>> {
        train::read_predictor(files)
    }

    fn trainer(&self, format: &str, config: &Value) -> Result<Arc<dyn Trainer>> {
        match format {
            "train" => train::trainer(format, config),
            _ => Err(unknown_format_fault("trainer", format, trainers())),
        }
    }
}
