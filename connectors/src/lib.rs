//! The formats and trainers that come with Forebay, by the names that specs give them.
//!
//! Each group of kinds is a crate beside this one: `formats`, `delta`, `device` and `train`. Here is the list of them
//! (`built_in.rs`), and the registry that a program adds its own kinds to.

mod built_in;
mod examples;
mod registry;

pub use built_in::{
    BuiltInConnectors, format_of_name, predictors, sink_formats, source_formats, trainers,
};
pub use examples::FORMAT_EXAMPLES;
pub use forebay_contract::{
    ConnectorConfig, ConnectorFormat, SinkFormat, SourceFormat, TrainerFormat,
};
pub use forebay_delta::{
    AddedTableColumns, DeltaMode, DeltaSink, DeltaSource, has_deleted_rows, has_delta_log,
    table_references,
};
pub use forebay_device::{
    Accelerator, CUDA_TEST_STATUS, ColumnMajorProduct, ComputeDevice, CudaLibrary, CudaReport,
    DeliveredBatch, DeviceKernels, DeviceMatrix, DeviceRing, DeviceStage, HostDevice,
    MatrixProduct, Precision, cuda_report, describe_cuda, run_stage,
};
#[cfg(feature = "cuda")]
pub use forebay_device::{
    CHECKSUM_KERNEL, ConsumerStream, CopyBenchmark, CopyRates, CudaDevice, DeliveryCheck,
    DeliveryReport, DeviceBatch, DeviceFeed, DeviceStats, LentPinnedMemory, PinnedMemory,
    add_python_prefix, checksum, with_saved_context,
};
pub use forebay_formats::{
    AddedColumnPolicy, ArrowCompression, ArrowSink, ArrowSource, ColumnType, ColumnTypes,
    CsvDialect, CsvFindings, CsvSink, CsvSource, Int96Unit, JsonSink, JsonSource, LocalTimePolicy,
    MissingColumnPolicy, OnReadError, ParquetCompression, ParquetSink, ParquetSource,
    PartitionPolicy, ReadErrorPolicy, RequestFormat, SameNamePolicy, SchemaPolicy, StrayQuotes,
    TextCompression, TextEncoding, TimeUnitPolicy, read_request, sniff_csv,
};
pub use forebay_train::{
    BoostedModel, BoostedModelKind, BoostingCard, BoostingConfig, BoostingLoss, ColumnFallback,
    DeviceTrial, EmbeddingTable, EnsembleCard, EnsembleWeights, ErrorSums, ForecastIntervals,
    ForecastStrategy, GroupFallbackKind, GroupModelCard, IntervalMethod, IntervalScale,
    LearningRateDecay, LossFunction, MODEL_FILE, MlflowTracking, ModelCard, ModelKind, ModelOrigin,
    ModelPart, ModelShape, OnNonFinite, Predictor, ReconcileConfig, ReconcileMethod, SeriesCard,
    SeriesIntervalCard, SeriesIntervals, SeriesMethod, SeriesModelConfig, SeriesModelKind,
    StepModels, ThetaVariant, TrainConfig, TrainingDevice, TrainingStart, TrialComparison,
    check_accelerator, lightgbm_model, onnx_model,
};
pub use registry::FormatRegistry;
