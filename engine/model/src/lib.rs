//! Core types of Forebay: faults, ids, datasets, pipelines, analyzers and findings.
//!
//! This crate is pure: it has no async runtime, no query engine, no files and no clock. Its decisions can be tested
//! with plain values.

mod analyzer;
mod codec;
mod config_error;
mod data_split;
mod dataset;
mod duplicates;
mod fault;
mod finding;
mod group_by;
mod id;
mod interval;
mod limits;
mod numbers;
mod path_part;
mod pipeline;
mod plain_batch;
mod relative;
mod row_ledger;
mod rows;
mod scratch;
mod secrets;
mod strings;
mod take;
mod text_values;
mod time_cutoff;
mod trace_context;

pub use analyzer::{Analyzer, AnalyzerInput, AnyAnalyzer, AnyState};
pub use codec::{StateDecoder, StateEncoder};
pub use config_error::{ConfigError, ConfigResult};
pub use data_split::DataSplit;
pub use dataset::{
    BoundValue, ColumnExtent, Dataset, FileRange, LeftOutFile, LeftOutFiles, LeftOutReason, Span,
};
pub use duplicates::{DuplicateRows, SeriesCounts};
pub use fault::{
    Fault, FaultCode, FaultDomain, FaultSite, RelatedPlace, Result, RetryAdvice, SpecLocation,
    TextFragment, WireFault, catch_panic, catch_panic_at, codes, find_io_error, listing,
    nearest_word, suggestion,
};
pub use finding::Finding;
pub use group_by::{GroupBy, GroupFunction, GroupKey, GroupResult, TimeBucket, has_decimal_sums};
pub use id::{ContentId, IdBuilder, canonical_json};
pub use interval::Interval;
pub use limits::*;
pub use numbers::{canonical_keys, contains_floats, lerp, scaled_distance};
pub use path_part::{encode_folders_for_urls, encode_path_part};
pub use pipeline::{
    DegradationLevel, NodeInput, Pipeline, PipelineDeadline, PipelineFeed, PipelineNode,
    PipelineSink, PipelineSource, PredictionLabel, ReadinessCondition, RefitPolicy, Step,
};
pub use plain_batch::{batch_of_rows, plain_batch};
pub use relative::RelativePath;
pub use row_ledger::{ChangeKind, LedgerEntry, RowChange, RowLedger, RowSum};
pub use rows::{Chunk, RowKeys};
pub use scratch::{MemoryRequest, MemoryScratch, ScratchSpace, SpillFile, SpillWriter};
pub use secrets::hide_secrets;
pub use strings::{StringColumn, TextRef, is_unsized_vector, logical_type, type_label, type_words};
pub use take::{take_batch, take_rows};
pub use text_values::{NumberMarks, ReadTexts, TextRules, is_utc_name, plain_integers, shorten};
pub use time_cutoff::{TimeCutoff, tick_nanoseconds, ticks};
pub use trace_context::{NoTraceContext, TRACE_HEADER, TraceContext};
