//! Forebay turns a large history (Parquet, Arrow, CSV, JSON; on local disk or S3) into the batches
//! that a model trains on: in as few passes as possible, in bounded memory, with the same bits
//! however the data is cut.
//!
//! This crate is the public interface: pipelines from YAML ([`spec`]) or from Rust
//! ([`PipelineBuilder`]), their runs ([`Forebay`]), and artifacts applied to rows
//! ([`ServingModel`]).

pub mod allocator;
mod backfill;
mod builder;
pub mod cli;
mod cycles;
mod exit_codes;
mod forebay;
#[cfg(test)]
mod forecast_law;
mod infer_expectations;
mod metrics;
mod observe;
mod page;
mod predict;
pub mod present;
mod propose;
mod replace_file;
mod serve;
#[cfg(test)]
mod serving_law;
pub mod settings;
pub mod spec;
mod split_problems;
pub mod step_test;
mod ui;
mod visible;

pub use backfill::{Backfill, BackfillPlan, IntervalOutcome};
pub use builder::{LabelHandle, PipelineBuilder, SinkHandle, SourceHandle, StepHandle};
pub use forebay::Forebay;
pub use forebay_analyze as analyze;
pub use forebay_connectors as connectors;
/// The sum of an output's rows, with the steps that removed and added some.
pub use forebay_contract::OutputSum;
pub use forebay_feed as feed;
pub use forebay_model as model;
pub use forebay_plan as plan;
/// ```no_run
/// use forebay::prelude::*;
///
/// let artifact = Forebay::new().artifact(".forebay/artifacts/1c291ca3d5f0")?;
/// for learned in &artifact.findings {
///     println!("{} of {}", learned.analyzer, learned.columns.join(", "));
/// }
/// # Ok::<(), Fault>(())
/// ```
pub use forebay_run::Artifact;
/// ```no_run
/// use forebay::prelude::*;
/// use forebay::run::BacktestOptions;
/// use forebay::BacktestReport;
///
/// fn tell(report: &BacktestReport) {
///     for forecaster in report.forecasts.iter().flat_map(|forecast| &forecast.forecasters) {
///         println!("{}: wMAPE {:?}", forecaster.forecaster, forecaster.overall.wmape);
///     }
/// }
///
/// # fn backtest(pipeline: &Pipeline, options: &BacktestOptions) -> Result<()> {
/// // The same pipeline at each origin.
/// tell(&Forebay::new().session()?.backtest(pipeline, options, &|_| Ok(pipeline.clone()))?);
/// # Ok(())
/// # }
/// ```
pub use forebay_run::BacktestReport;
/// ```no_run
/// use forebay::prelude::*;
///
/// let forebay = Forebay::new();
/// let pipeline = forebay.read_spec("demand.yaml", [("as_of", "2016-05-22")])?;
/// let profile = forebay.session()?.profile(&pipeline, "features", Some("train"))?;
/// for column in &profile.columns {
///     println!("{}: {} nulls of {}", column.name, column.nulls, column.rows);
/// }
/// # Ok::<(), Fault>(())
/// ```
pub use forebay_run::DatasetProfile;
/// ```no_run
/// use forebay::DriftMeasures;
/// use forebay::prelude::*;
///
/// # fn tell(report: &RunReport) {
/// for DriftMeasures { column, against, js, .. } in report.expectations.iter().flat_map(|rule| rule.drift.as_deref()) {
///     println!("{column} against {against}: {js:?}");
/// }
/// # }
/// ```
pub use forebay_run::DriftMeasures;
/// ```no_run
/// use forebay::prelude::*;
/// use forebay::run::{DriftOptions, compare_profiles};
///
/// let forebay = Forebay::new();
/// let pipeline = forebay.read_spec("demand.yaml", [("as_of", "2016-05-22")])?;
/// let part = |part| forebay.session()?.profile(&pipeline, "features", Some(part));
/// let report = compare_profiles(&part("train")?, &part("validation")?, &DriftOptions::default());
/// for column in report.columns.iter().filter(|column| !column.reasons.is_empty()) {
///     println!("{}: {}", column.name, column.reasons.join(", "));
/// }
/// # Ok::<(), Fault>(())
/// ```
pub use forebay_run::DriftReport;
/// ```no_run
/// use forebay::ExpectationReport;
/// use forebay::prelude::*;
///
/// fn broken(report: &RunReport) -> Vec<&ExpectationReport> {
///     report.expectations.iter().filter(|rule| !rule.holds).collect()
/// }
///
/// # fn tell(report: &RunReport) {
/// for rule in broken(report) {
///     println!("{} of {}: {} of {} rows", rule.rule, rule.step, rule.violations, rule.rows);
/// }
/// # }
/// ```
pub use forebay_run::ExpectationReport;
/// ```
/// use forebay::prelude::*;
///
/// let feed = FeedConfig::default().from("features").split("train").label("qty").batch_rows(4096);
/// assert_eq!(feed.rows_per_batch(), 4096);
/// ```
pub use forebay_run::FeedConfig;
/// ```no_run
/// use forebay::ForecastReport;
///
/// fn tell(forecast: &ForecastReport) {
///     let ForecastReport { sink, series, steps, path, .. } = forecast;
///     println!("{sink}: {series} series, {steps} steps each, in {path}");
/// }
/// ```
pub use forebay_run::ForecastReport;
/// ```no_run
/// use arrow::array::RecordBatch;
/// use forebay::InverseColumns;
/// use forebay::prelude::*;
///
/// fn prices(inverse: &InverseColumns, features: &RecordBatch) -> Result<RecordBatch> {
///     inverse.apply(features)
/// }
///
/// let forebay = Forebay::new();
/// let artifact = forebay.artifact(".forebay/artifacts/1c291ca3d5f0")?;
/// let inverse = forebay.inverse(&artifact, Some("features"), &["price".to_owned()])?;
/// # let _ = (prices as fn(&InverseColumns, &RecordBatch) -> Result<RecordBatch>, inverse);
/// # Ok::<(), Fault>(())
/// ```
pub use forebay_run::InverseColumns;
/// ```no_run
/// use forebay::InverseRequest;
/// use forebay::prelude::*;
///
/// let session = Forebay::new().session()?;
/// let artifact = Forebay::new().artifact(".forebay/artifacts/1c291ca3d5f0")?;
/// let request = InverseRequest {
///     path: "out/features".to_owned(),
///     output: "out/prices".to_owned(),
///     format: "parquet".to_owned(),
///     node: "features".to_owned(),
///     columns: vec!["price".to_owned()],
/// };
/// println!("{}", session.apply_inverse(&artifact, &request)?);
/// # Ok::<(), Fault>(())
/// ```
pub use forebay_run::InverseRequest;
/// ```no_run
/// use forebay::ModelReport;
///
/// fn last_loss(model: &ModelReport) -> Option<f64> {
///     model.learned.epochs.last().map(|epoch| epoch.loss)
/// }
/// ```
pub use forebay_run::ModelReport;
/// ```no_run
/// use forebay::OutputReport;
///
/// fn origins(output: &OutputReport, column: &str) -> Vec<String> {
///     let column = output.columns.iter().find(|known| known.name == column);
///     let from = column.iter().flat_map(|column| &column.from);
///     from.map(|origin| format!("{}.{}", origin.source, origin.column)).collect()
/// }
/// ```
pub use forebay_run::OutputReport;
/// ```no_run
/// use forebay::prelude::*;
///
/// fn rows_that_were_read(report: &RunReport) -> u64 {
///     report.passes.iter().filter(|pass| !pass.reused).map(|pass| pass.rows_in).sum()
/// }
/// ```
pub use forebay_run::PassReport;
/// ```
/// use forebay::prelude::*;
///
/// let options = PreviewOptions::default().step("features").rows(5).condition("qty > 10");
/// assert_eq!(options.sample_rows, 100_000);
/// ```
pub use forebay_run::PreviewOptions;
/// ```no_run
/// use forebay::prelude::*;
/// use futures::StreamExt;
///
/// async fn count(pipeline: &Pipeline) -> Result<usize> {
///     let (mut rows, mut batches) = (0, Forebay::new().stream(pipeline, "features")?);
///     while let Some(batch) = batches.next().await {
///         rows += batch?.num_rows();
///     }
///     Ok(rows)
/// }
/// ```
pub use forebay_run::RowStream;
/// ```no_run
/// use forebay::prelude::*;
///
/// fn tell(report: &RunReport) {
///     for output in &report.outputs {
///         println!("{}: {} rows in {}", output.sink, output.rows, output.data);
///     }
/// }
/// ```
pub use forebay_run::RunReport;
/// ```
/// use forebay::RunSample;
///
/// assert_eq!("1%".parse(), Ok(RunSample::Share(0.01)));
/// ```
pub use forebay_run::RunSample;
/// ```no_run
/// use forebay::prelude::*;
///
/// let forebay = Forebay::new();
/// let model = forebay.model(&forebay.artifact(".forebay/artifacts/1c291ca3d5f0")?, Some("features"))?;
/// let row = serde_json::json!({ "price": 4.5 });
/// let features = row.as_object().map(|row| model.apply_row(row)).transpose()?;
/// # let _ = features;
/// # Ok::<(), Fault>(())
/// ```
pub use forebay_run::ServingModel;
/// ```no_run
/// use forebay::prelude::*;
/// use forebay::run::{DeadlineSpec, Interval};
///
/// let forebay = Forebay::new();
/// let pipeline = forebay.read_spec("demand.yaml", [("as_of", "2016-05-22")])?;
/// let session = forebay.session()?.with_deadline(&DeadlineSpec::parse("06:30")?)?;
/// session.run_interval(&pipeline, &Interval { from: "2016-05-21".into(), to: "2016-05-22".into() })?;
/// # Ok::<(), Fault>(())
/// ```
pub use forebay_run::Session;
pub use forebay_run::SessionOptions;
/// ```no_run
/// use forebay::prelude::*;
///
/// # let pipeline = PipelineBuilder::new("demand").build()?;
/// let rows = Forebay::new().rows(&pipeline, "features")?;
/// println!("{:?}", rows.schema());
/// let counted: Result<usize> = rows.map(|batch| Ok(batch?.num_rows())).sum();
/// # counted?;
/// # Ok::<(), Fault>(())
/// ```
pub use forebay_run::StepRows;
/// ```no_run
/// use forebay::prelude::*;
///
/// async fn two(first: Pipeline, second: Pipeline) -> Result<()> {
///     let forebay = Forebay::new();
///     let (first, second) = (forebay.run_async(first)?, forebay.run_async(second)?);
///     first.await?;
///     second.await?;
///     Ok(())
/// }
/// ```
pub use forebay_run::Task;
pub use forebay_run::{AppendReport, ColumnFit, StateSummary};
pub use forebay_setters::Setters;
/// ```
/// use forebay::Event;
///
/// fn line(event: &Event) -> Option<String> {
///     match event {
///         Event::PassStarted { number, total, label, .. } => Some(format!("pass {number} of {total}: {label}")),
///         Event::Warning { message } => Some(message.clone()),
///         _ => None,
///     }
/// }
///
/// let event = Event::Warning { message: "late".to_owned() };
/// assert_eq!(line(&event).as_deref(), Some("late"));
/// // As `forebay run --json` prints it.
/// assert_eq!(serde_json::to_string(&event)?, r#"{"event":"warning","message":"late"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub use forebay_storage::Event;
/// ```
/// use std::sync::Arc;
///
/// use forebay::prelude::*;
/// use forebay::{Event, EventListener};
///
/// struct Warnings;
///
/// impl EventListener for Warnings {
///     fn on_event(&self, event: Event) {
///         if let Event::Warning { message } = event {
///             eprintln!("{message}");
///         }
///     }
/// }
///
/// let forebay = Forebay::new().with_listener(Arc::new(Warnings));
/// # let _ = forebay;
/// ```
pub use forebay_storage::EventListener;
/// ```
/// use std::sync::Arc;
///
/// use forebay::{Forebay, IgnoreEvents};
///
/// let silent = Forebay::new().with_listener(Arc::new(IgnoreEvents));
/// # let _ = silent;
/// ```
pub use forebay_storage::IgnoreEvents;
pub use forebay_transforms as transforms;
pub use predict::{ForecastForm, ScoringRequest, TrainedModel};
pub use visible::{VisibleDataset, VisibleFile};

/// Sessions, storage, and the traits of connectors.
pub mod run {
    pub use forebay_contract::{
        BaselineReport, CategoryNumbers, ChunkIterator, ColumnImportance, ConnectorRegistry,
        EncodedBatch, EncodedPiece, EnsembleCombination, FeatureFacts, FeedOrigin, FeedSource,
        FileLayout, FileWriter, ForecastEnsemble, ForecastExpectation, ForecastFormat,
        ForecastReconcile, GroupFallback, GroupTrainingReport, HORIZON_STEP, KeptTexts, KeyNumbers,
        LabelKind, MissingKnown, ModelClasses, ModelPredictor, NaiveBaseline, NumberByKeys,
        NumberExpr, OutputSum, PartContext, PartIndicators, PortableColumn, PortableMap,
        PortableStep, PortableSteps, PredictConfig, PredictedRows, Predictions, ReadModelFile,
        RowRuns, ScanRequest, Sink, Source, StepColumns, StepStrategy, TakePartFn, TargetChain,
        TargetFunction, TargetStage, TextBuckets, TextIds, Trainer, TrainingContext,
        TrainingOutput, TrainingReport, TrainingStartReport, WarmStart, WayBack, class_column,
        is_pattern, literal_path, parse_refit, plain_path, prediction_fields, quantile_column,
    };
    pub use forebay_run::*;
    pub use forebay_storage::{
        AttemptOrigin, CacheStats, CancellationToken, EpochReport, Event, EventListener,
        IgnoreEvents, MemoryBudget, MetadataCache, RangeFetch, StorageClient, StorageLocation,
        VersionedObject, machine_bytes, resident_bytes, set_release_hook, time_disk_wait,
    };
}

/// Crates and types that transforms, analyzers and connectors of another crate are written with: one
/// dependency on Forebay brings them in the versions that it uses.
///
/// ```
/// use std::sync::Arc;
///
/// use forebay::extend::arrow::array::{ArrayRef, BooleanArray};
/// use forebay::extend::arrow::datatypes::{DataType, Field};
/// use forebay::extend::schemars::JsonSchema;
/// use forebay::extend::serde::{Deserialize, Serialize};
/// use forebay::extend::{BindScope, MapOp, PlanOp};
/// use forebay::prelude::*;
///
/// /// Tells which values of a column are null. Out: `boolean`.
/// #[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, Setters)]
/// // Derived code names its crate.
/// #[serde(crate = "forebay::extend::serde", deny_unknown_fields)]
/// #[schemars(crate = "forebay::extend::schemars")]
/// #[setters(fn nulls(column))]
/// pub struct Nulls {
///     /// The column.
///     pub column: String,
/// }
///
/// impl ConfiguredTransform for Nulls {
///     const NAME: &'static str = "nulls";
/// }
///
/// impl Transform for Nulls {
///     fn bind(&self, _: &BindScope<'_>) -> Result<Vec<PlanOp>> {
///         let output = Field::new(format!("{}_null", self.column), DataType::Boolean, false);
///         Ok(vec![PlanOp::Map(MapOp::new([&self.column], [output], |inputs, _| {
///             let nulls = (0..inputs[0].len()).map(|row| Some(inputs[0].is_null(row)));
///             Ok(vec![Arc::new(nulls.collect::<BooleanArray>()) as ArrayRef])
///         }))])
///     }
/// }
///
/// let forebay = Forebay::new().with_transform::<Nulls>();
/// # let _ = (forebay, nulls("price"));
/// ```
pub mod extend {
    pub use arrow;
    pub use forebay_connectors::{
        BuiltInConnectors, ComputeDevice, DeliveredBatch, DeviceStage, HostDevice, run_stage,
    };
    pub use forebay_contract::{Sink, Source};
    pub use forebay_model::{
        Analyzer, AnalyzerInput, Finding, ScratchSpace, StateDecoder, StateEncoder, StringColumn,
        codes,
    };
    pub use forebay_plan::{AnalyzerRequest, BindScope, LoweredMap, MapOp, PlanOp};
    pub use schemars;
    pub use serde;
    pub use serde_json;
}

/// Imports for most programs. Each name is listed: a new name of Forebay comes here on purpose.
pub mod prelude {
    pub use crate::TrainedModel;
    pub use crate::{
        Artifact, Backfill, FeedConfig, Forebay, ForecastForm, IgnoreEvents, PipelineBuilder,
        PreviewOptions, RunReport, ScoringRequest, ServingModel, Session, SessionOptions, Setters,
    };
    pub use forebay_connectors::{
        AddedColumnPolicy, AddedTableColumns, ArrowCompression, ArrowSink, ArrowSource,
        BoostingConfig, BoostingLoss, ColumnFallback, ColumnType, ColumnTypes, ConnectorConfig,
        CsvDialect, CsvSink, CsvSource, DeltaMode, DeltaSink, DeltaSource, ForecastIntervals,
        ForecastStrategy, GroupFallbackKind, Int96Unit, IntervalMethod, IntervalScale, JsonSink,
        JsonSource, LearningRateDecay, LossFunction, MissingColumnPolicy, MlflowTracking,
        ModelKind, ModelPart, OnNonFinite, OnReadError, ParquetCompression, ParquetSink,
        ParquetSource, PartitionPolicy, Precision, ReadErrorPolicy, SameNamePolicy, SchemaPolicy,
        SeriesModelConfig, SeriesModelKind, SinkFormat, SourceFormat, StrayQuotes, TextCompression,
        TextEncoding, TimeUnitPolicy, TrainConfig, TrainerFormat, TrainingDevice,
    };
    pub use forebay_contract::{
        EnsembleCombination, ForecastEnsemble, ForecastFormat, ForecastReconcile, PredictConfig,
    };
    pub use forebay_model::{
        DataSplit, DayRule, DayRules, DuplicateRows, Fault, LateFacts, Pipeline, Result,
    };
    pub use forebay_plan::{ColumnSelector, ConfiguredTransform, Transform};
    pub use forebay_transforms::{
        AccentPolicy, Aggregate, AggregateByTime, AggregateExpression, AggregateList,
        AggregateQuantile, AggregateTopK, AggregateWeightedMean, AggregateWeightedQuantile,
        ApplyBuckets, AsOfDirection, AsOfJoin, AutoWord, BagOfTokens, BinStrategy, BoundCenter,
        BoxCoxExponent, BoxCoxFit, BucketHash, Bucketize, CalendarFact, CalendarFeatures,
        CalendarPart, CastColumns, CategoryFrequency, Clip, ClosedWindow, ColumnScore,
        CommandFunction, ConditionalFilter, ConstantValue, CrossFit, DateParts, DayOfWeek, Dedupe,
        DedupeKeep, DeriveColumns, DifferenceLengths, DistanceUnit, DropColumns, EndTail,
        EventTable, EwmStatistic, EwmWindow, ExpandingWindow, ExpectRows, ExpectedChange,
        ExpectedDrift, ExpectedRange, ExpectedRows, ExpectedValue, Explode, FailurePolicy,
        FeatureCross, FeatureNaming, FillForward, FilterRows, FilterScope, FloatType,
        ForecastFeature, ForecastFeatureModel, FourierTerms, FrameKind, FrequencyEncoding,
        FunctionBy, FutureRows, FutureStart, GAndH, GapCompletion, GapFill, GapPolicy, Geohash,
        GroupRare, HalfLife, HashBucket, HolidayDate, IdType, Impute, ImputeStrategy,
        IndexShrinkage, Interpolate, Join, JoinCardinality, JoinKind, JoinStrategy, KBins,
        KeepBest, KnnImpute, KnotStrategy, LagTolerance, LengthSpec, LetterCase, ListOverflow,
        ListStatistic, ListStatistics, Log1p, LookAhead, MaxAbs, MeanSpread, MinMax, MinPeriods,
        MissingIndicator, MultiHot, NeighborWeights, NgramUnit, Ngrams, NormalQuantiles, Normalize,
        NormalizeText, OnCastError, OneHot, OneHotLayout, OrdinalEncoder, OtherRun, PctChange,
        PlaceColumns, PlaceDistance, PolynomialProducts, PooledWindow, PowerMethod, PowerTransform,
        PrincipalComponents, ProfileColumns, PunctuationPolicy, PythonEstimator, PythonFunction,
        QuantileRanks, RenameColumns, RobustScale, RobustSpread, RollingWindow, RowExpectation,
        RowSample, SeasonalIndex, SeasonalLength, SeasonalPeriod, SeasonalRolling, SelectColumns,
        SeriesDiff, SeriesLag, SeriesPeriod, SeriesScale, SeriesStatistic, SeriesWord, Share,
        SplineBasis, Standardize, TailCenter, TailSide, TargetEncoding, TargetOperation,
        TargetSmoothing, TargetStatistic, TargetTransform, TfIdf, TimeAggregate, TokenCounts,
        TokenNorm, TokenOrder, TypeName, UnicodeForm, UnknownPolicy, VectorNorm, Violations,
        VocabularyEncoder, Winsorize, ZeroRange, ZeroVariance, agg, aggregate, apply_buckets,
        as_of_join, bag_of_tokens, bucketize, calendar, cast, clip, command, cross, date_parts,
        dedupe, derive, diff, distance, drift, drop_columns, estimator, ewm, expanding, expect,
        explode, fill_forward, filter, forecast_feature, frequency_encoding, future_rows, g_and_h,
        geohash, group_rare, hash_bucket, impute, interpolate, join, k_bins, keep_best, knn_impute,
        lag, list_statistics, log1p, max_abs, min_max, missing_indicator, multi_hot, ngrams,
        normal_quantiles, normalize, normalize_text, one_hot, ordinal, pca, pct_change, polynomial,
        pooled, power, profile, python, quantiles, rename, robust_scale, rolling, sample,
        seasonal_index, seasonal_rolling, select, shrinkage, spline, standardize, target,
        target_encoding, tf_idf, violations, vocabulary, winsorize,
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_prelude_names_each_transform() {
        let (_, prelude) = include_str!("lib.rs")
            .split_once("pub mod prelude {")
            .unwrap();
        let words: Vec<&str> = prelude
            .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .collect();
        for kind in forebay_transforms::registry().kinds() {
            let function = match kind.name {
                "drop" => "drop_columns",
                name => name,
            };
            assert!(
                words.contains(&function),
                "{function} is not in the prelude"
            );
        }
    }
}
