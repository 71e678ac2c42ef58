//! The compiler: from a pipeline and the schemas of its sources to a program of passes.
//!
//! Pure: it reads no files and starts no threads. `bind` resolves names and types. `program` arranges the analyzers
//! by level into the fewest passes. `chain` compiles operations and findings for execution over batches.

mod analyzer_identity;
mod between_ticks;
mod bind;
mod bind_faults;
mod bound_pipeline;
mod bounded_functions;
mod calendar_moves;
mod called_casts;
mod canonical_floats;
mod carried;
mod carry;
mod chain;
mod checked_casts;
mod checked_integers;
mod checked_times;
mod column_age;
#[cfg(test)]
mod column_results;
mod column_selector;
mod column_units;
mod constant_times;
mod copied_operands;
mod cut_texts;
mod data_age;
mod date_hours;
mod date_numbers;
mod day_counts;
mod day_times;
mod evaluation;
mod exact_lengths;
mod expectation;
mod explain;
mod expression_depth;
mod feature_columns;
mod feature_facts;
mod formatted_texts;
mod framed_times;
mod function_guard;
mod fuse;
mod future;
mod gather_columns;
mod guarded_functions;
mod hidden_columns;
mod hidden_nulls;
mod history;
mod id_origins;
mod interval_texts;
mod join_faults;
mod joined_texts;
mod kernel_memory;
mod label_horizon;
mod lanes;
mod leakage;
mod learn_check;
mod lineage;
mod list_elements;
mod local_times;
mod misplanned;
mod nan_comparison;
mod night_cost;
mod nulls;
mod op;
mod op_list;
mod operation_id;
mod other_rows;
mod parse_retries;
mod pass;
mod passed_columns;
mod plan_size;
mod portable;
mod program;
mod pushed_filters;
mod query;
mod query_age;
mod refit;
mod registry;
mod row_order;
mod series_columns;
mod shared_reads;
mod shared_sort;
mod slice;
mod split;
mod split_check;
mod sql;
mod sql_faults;
mod sql_names;
mod sql_text;
mod step_columns;
mod stop_check;
mod strict_casts;
mod time_literals;
mod time_shift;
mod transform;
mod tried_casts;
mod tried_values;
mod uncounted_casts;
mod upstream;
mod window_order;
mod zone_clocks;

pub use analyzer_identity::analyzer_identities;
pub use bind::{PartialBinding, bind, bind_all};
pub use bind_faults::section_location;
pub use bound_pipeline::{
    AnalyzerId, BaseDataset, BaseId, BoundAnalyzer, BoundOp, BoundPipeline, CarriedFinding,
    FutureFlow, NodeFlow, OpStream,
};
pub use canonical_floats::canonical_key;
pub use carried::FindingLedger;
pub use carry::{
    Carry, PrecomputedByOp, PrecomputedOutputs, StoredSeries, TakenOutputs, WindowBudget,
    WindowRowOrder,
};
pub use chain::{ChainContext, ChainWindow, ColumnTap, JoinsMet, OpChain, RowCounts};
pub use column_selector::{ColumnSelector, unknown_column};
pub use column_units::{UnitMismatch, changed_by, computed_by, unit_mismatch};
pub use expectation::{
    DriftBaseline, DriftRule, Expectation, ExpectationJudge, ExpectationOutcome, ExpectationPolicy,
    JudgeContext, JudgeFindings, VIOLATION_PREFIX, ViolatingRow, ViolatingValue,
};
pub use explain::{
    ExplainJoin, ExplainPass, ExplainProgram, ExplainRead, ExplainState, ExplainTraining,
    ExplainWindow, PassReuse,
};
pub use feature_columns::{id_columns, is_ids, is_number, taken_columns};
pub use feature_facts::{FeedFacts, ReaderFacts};
pub use fuse::fuse_learn_into_write;
pub use future::{FUTURE_PART, future_streams};
pub use gather_columns::leaf_columns;
pub use hidden_columns::{FUTURE_ROW, KNOWN_UNTIL, request_column, source_column};
pub use hidden_nulls::{HiddenNulls, NullValue, hidden_nulls};
pub use history::{HistoryBuckets, SourceHistory, needed_history};
pub use id_origins::{ID_STEPS, scaled_ids, unordered_ids};
pub use join_faults::{duplicate_key_fault, key_text, met_twice_fault};
pub use kernel_memory::{
    ADMITTED_BYTES_MIN, AdmitBytes, GrowingOutput, admit_output, settle_output,
};
pub use label_horizon::check_horizon;
pub use lanes::analyzer_scans;
pub use leakage::{
    KnownAhead, check_label_names, known_ahead, label_in_features, row_extent, training_input_name,
};
pub use learn_check::{step_kind, unfitted_steps, windows_of_one_part};
pub use lineage::{ColumnLineage, ColumnOrigin};
pub use night_cost::ExplainRewrite;
pub use nulls::{NullOrigin, null_origin};
pub use op::{
    AnalyzerRequest, AsOf, ColumnKernel, CombineFindings, ComputedNulls, CountSeries, DescribeMap,
    ExpandKernel, ExpandOp, ExpandedRows, FilterOp, FutureRowsOp, FutureSeries, GatherBy, GatherOp,
    GroupByOp, JoinBy, JoinChecks, JoinOp, LowerGather, LowerMap, LowerRows, LoweredMap, MapOp,
    MatchDirection, MetRows, MovedTime, PlanOp, PredictionFeedback, QueryPlan, RepeatedEnd,
    RowBatches, RowMark, RowsOfSeries, SeriesOp, ValueCount, WindowDivision, WindowOp,
    WrittenNulls,
};
pub use op_list::{OpId, OpList};
pub use operation_id::{join_id, operation_id, ops_before_join};
pub use pass::{
    AnalyzerLane, ColumnScan, LearnWork, Pass, PassWork, ScanStream, SinkWork, needed_ops,
};
pub use portable::portable_steps;
pub use program::{IsKnown, Program, compile, compile_analyzers};
pub use query::{INTEGER_SUM, refuse_writing};
pub use refit::StepRefit;
pub use registry::{ConfiguredTransform, TransformKind, TransformRegistry};
pub use row_order::{JoinedExtents, RowOrderChoice, base_column, choose_row_order, span_extents};
pub use series_columns::SeriesColumns;
pub use shared_sort::{SharedSort, find_shared_sort};
pub use slice::{StreamIndex, live_columns, pruning_conditions, slice_for_columns};
pub use split::{PART_PREFIX, part_column, part_name, split_operation};
pub use split_check::{SplitCheck, check_split};
pub use sql::{CompiledExpression, SqlCompiler};
pub use sql_names::{FOREIGN_FUNCTIONS, ForeignFunction, sql_functions};
pub use sql_text::{SqlPiece, SqlValue, sql_literal, sql_name, sql_text};
pub use step_columns::{FEED_FORMAT, check_recursive, check_recursive_label, step_columns};
pub use stop_check::{CheckStop, check_stop, with_stop_check};
pub use time_shift::{TimeShift, cast_shift};
pub use transform::{
    BindScope, FutureRowsFacts, HeldRows, LearningFilter, StepChange, StepFacts, Transform,
};
pub use tried_casts::TriedCasts;
pub use uncounted_casts::uncounted_casts;
pub use upstream::{NeededColumns, all_columns, upstream_analyzers};
pub use window_order::query_plan;
