//! Core types of Forebay: faults, ids, datasets, pipelines, analyzers and findings.
//!
//! This crate is pure: it has no async runtime, no query engine, no files and no clock. Its decisions can be tested
//! with plain values.

mod analyzer;
mod calendar_span;
mod codec;
mod column_bytes;
mod column_clock;
mod column_notes;
mod column_ticks;
mod config_error;
mod connector_settings;
mod data_split;
mod dataset;
mod day_rules;
mod debug_text;
mod duplicates;
mod duration;
mod encoded_rows;
mod fault;
mod finding;
mod finite;
mod group_by;
mod id;
mod interval;
mod key_sample;
mod limits;
mod name_index;
mod numbers;
mod path_part;
mod pipeline;
mod plain_batch;
mod relative;
mod row_ledger;
mod rows;
mod scratch;
mod secrets;
mod shown_times;
mod strings;
mod take;
mod text_values;
mod time_cutoff;
mod time_format;
mod time_length;
mod trace_context;
mod type_depth;
mod zone_names;

pub use analyzer::{Analyzer, AnalyzerInput, AnyAnalyzer, AnyState};
pub use calendar_span::{CalendarSpan, DAY_NANOSECONDS, month_nanoseconds};
pub use codec::{COUNT_MAX, StateDecoder, StateEncoder};
pub use column_bytes::{
    column_bytes, has_shared_values, has_text_length, long_value_bytes, longest_value_bytes,
    picked_text_bytes, picks_within, plain_bytes, shared_value_bytes, taken_bytes, text_length,
};
pub use column_clock::{CALENDAR_DAYS, ColumnClock, PlaceInMonth, nanoseconds_of_day};
pub use column_notes::{PARQUET_TYPES, lasting_notes, without_lasting_notes};
pub use column_ticks::{tick_nanoseconds, ticks};
pub use config_error::{ConfigError, ConfigResult};
pub use data_split::{DataSplit, last_length};
pub use dataset::{
    BoundValue, ColumnExtent, Dataset, FileContent, FileRange, LeftOutFile, LeftOutFiles,
    LeftOutReason, Span,
};
pub use day_rules::{DayRule, DayRules};
pub use debug_text::without_debug_text;
pub use duplicates::{DuplicateRows, SeriesCounts};
pub use duration::parse_duration;
pub use encoded_rows::decode_rows;
pub use fault::{
    Fault, FaultCode, FaultDomain, FaultSite, RelatedPlace, Result, RetryAdvice, SpecLocation,
    TextFragment, WireFault, catch_panic, catch_panic_at, codes, find_io_error, is_unusable_name,
    listing, nearest_word, suggestion,
};
pub use finding::Finding;
pub use finite::{count_not_finite, not_finite_rows};
pub use group_by::{GroupBy, GroupFunction, GroupKey, GroupResult, TimeBucket, has_decimal_sums};
pub use id::{ContentId, IdBuilder, canonical_json};
pub use interval::Interval;
pub use key_sample::KeySample;
pub use limits::*;
pub use name_index::{NameIndex, first_repeated};
pub use numbers::{canonical_keys, contains_floats, lerp, median, scaled_distance};
pub use path_part::{encode_folder_value, encode_folders_for_urls, encode_path_part};
pub use pipeline::{
    DegradationLevel, LateFacts, NodeInput, Pipeline, PipelineDeadline, PipelineFeed, PipelineNode,
    PipelineServing, PipelineSink, PipelineSource, PredictionLabel, ReadinessCondition,
    RefitPolicy, Step,
};
pub use plain_batch::{batch_of_rows, plain_batch};
pub use relative::RelativePath;
pub use row_ledger::{
    ChangeKind, EXAMPLES_MAX, LedgerEntry, RowChange, RowLedger, RowSum, UnfitValues, ValueExample,
};
pub use rows::{Chunk, RowKeys};
pub use scratch::{
    AdmittedMemory, MemoryRequest, MemoryScratch, ScratchSpace, SpillFile, SpillWriter,
};
pub use secrets::hide_secrets;
pub use shown_times::check_times_have_texts;
pub use strings::{
    StringColumn, TextRef, is_unsized_vector, logical_type, type_label, type_text_label, type_words,
};
pub use take::{look_up_rows, take_batch, take_rows};
pub use text_values::{NumberMarks, ReadTexts, TextRules, is_utc_name, plain_integers, shorten};
pub use time_cutoff::TimeCutoff;
pub use time_format::TimeFormat;
pub use time_length::{
    CIVIL_BUSINESS_DAYS_HINT, CalendarUnit, ExactUnit, LENGTH_HINT, TimeDistance, TimeLength,
    business_days_hint, civil_length_hint, length_hint,
};
pub use trace_context::{NoTraceContext, TRACE_HEADER, TraceContext};
pub use type_depth::check_type_levels;
pub use zone_names::{common_zone_name, common_zoned_type};
