//! Connectors: sources of spans and sinks of output.
//!
//! Each format has a folder, with its configuration in `config.rs`; `files` holds what all of them
//! share. A source creates a [`forebay_model::Dataset`] from metadata alone and reads spans on the
//! threads of the run; a sink encodes and is independent of commits.

mod arrow;
mod built_in;
mod csv;
mod delta;
mod examples;
mod feed;
mod files;
mod format;
mod guard;
mod json;
mod parquet;
mod registry;
mod requests;
mod train;

pub use crate::arrow::{ArrowCompression, ArrowSink, ArrowSource};
pub use crate::built_in::{
    BuiltInConnectors, format_of_name, predictors, sink_formats, source_formats, trainers,
};
pub use crate::csv::{
    CsvDialect, CsvFindings, CsvSink, CsvSource, SameNamePolicy, StrayQuotes, sniff_csv,
};
pub use crate::delta::{
    AddedTableColumns, DeltaMode, DeltaSink, DeltaSource, has_deleted_rows, has_delta_log,
    table_references,
};
pub use crate::examples::FORMAT_EXAMPLES;
pub use crate::parquet::{Int96Unit, ParquetCompression, ParquetSink, ParquetSource};
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
    AddedColumnPolicy, ColumnType, ColumnTypes, LocalTimePolicy, MissingColumnPolicy, OnReadError,
    PartitionPolicy, ReadErrorPolicy, SchemaPolicy, TextCompression, TextEncoding, TimeUnitPolicy,
};
pub use format::{ConnectorConfig, ConnectorFormat, SinkFormat, SourceFormat, TrainerFormat};
pub use json::{JsonSink, JsonSource};
pub use registry::FormatRegistry;
pub use requests::{RequestFormat, read_request};
pub use train::{
    Accelerator, BoostedModel, BoostedModelKind, BoostingCard, BoostingConfig, BoostingLoss,
    ColumnFallback, ColumnMajorProduct, DeviceMatrix, DeviceTrial, EmbeddingTable, EnsembleCard,
    EnsembleWeights, ErrorSums, ForecastIntervals, ForecastStrategy, GroupFallbackKind,
    GroupModelCard, IntervalMethod, IntervalScale, LearningRateDecay, LossFunction, MODEL_FILE,
    MatrixProduct, MlflowTracking, ModelCard, ModelKind, ModelOrigin, ModelPart, ModelShape,
    OnNonFinite, Precision, Predictor, ReconcileConfig, ReconcileMethod, SeriesCard,
    SeriesIntervalCard, SeriesIntervals, SeriesMethod, SeriesModelConfig, SeriesModelKind,
    StepModels, ThetaVariant, TrainConfig, TrainingDevice, TrainingStart, TrialComparison,
    check_accelerator, lightgbm_model, onnx_model,
};
