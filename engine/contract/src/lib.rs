//! The contract between the engine and what is plugged into it: connectors, trainers and models.
//!
//! Traits and plain types alone. Connectors and trainers build beside the plan and the execution of passes, which
//! know them by these traits.

mod connector;
mod connector_format;
mod connector_registry;
mod feature_facts;
mod feed_source;
mod label_kind;
mod learned_on_folds;
mod model_classes;
mod model_predictor;
mod output_sum;
mod part_context;
mod portable_map;
mod portable_steps;
mod predict_config;
mod predictions;
mod reconcile_config;
mod refit_policy;
mod step_columns;
mod table_log;
mod target;
mod trainer;
mod training_report;

pub use connector::{
    ChunkIterator, EncodedBatch, EncodedPiece, FileLayout, FileWriter, RowRuns, ScanRequest, Sink,
    Source, SourceWrapper, literal_path, plain_path, total_rows,
};
pub use connector_format::{
    ConnectorConfig, ConnectorFormat, SinkFormat, SourceFormat, TrainerFormat, parse_config,
};
pub use connector_registry::ConnectorRegistry;
pub use feature_facts::{FeatureFacts, StepStrategy, batch_facts, is_pattern};
pub use feed_source::{FeedOrigin, FeedSource};
pub use label_kind::LabelKind;
pub use learned_on_folds::{FOLD_ERRORS, FOLD_WEIGHTS, LearnedOnFolds};
pub use model_classes::{ModelClasses, class_column};
pub use model_predictor::{
    ModelPredictor, ReconciledForecasts, ReconciledRows, prediction_fields, quantile_column,
};
pub use output_sum::OutputSum;
pub use part_context::PartContext;
pub use portable_map::{
    CategoryNumbers, KeptTexts, KeyNumbers, NumberByKeys, NumberExpr, PartIndicators, PortableMap,
    TextBuckets, TextIds, WayBack,
};
pub use portable_steps::{PortableColumn, PortableStep, PortableSteps};
pub use predict_config::{
    EnsembleCombination, ForecastEnsemble, ForecastExpectation, ForecastFormat, MissingKnown,
    PredictConfig, PredictedRows,
};
pub use predictions::Predictions;
pub use reconcile_config::ForecastReconcile;
pub use refit_policy::parse_refit;
pub use step_columns::{HORIZON_STEP, StepColumns};
pub use table_log::{CopiedRows, TableCommit, TableFile, TableLog, TableScope};
pub use target::{
    TARGET_PREFIX, TargetChain, TargetFunction, TargetStage, parameter_columns, row_parameters,
};
pub use trainer::{
    ReadModelFile, TakePartFn, Trainer, TrainingContext, TrainingOutput, TrainingServices,
    WarmStart,
};
pub use training_report::{
    BaselineReport, ColumnImportance, GroupFallback, GroupTrainingReport, NaiveBaseline,
    TrainingReport, TrainingStartReport,
};
