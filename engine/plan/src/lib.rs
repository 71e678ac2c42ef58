//! The compiler: from a pipeline and the schemas of its sources to a program of passes.
//!
//! Pure: it reads no files and starts no threads. `bind` resolves names and types. `program` arranges the analyzers
//! by level into the fewest passes. `chain` compiles operations and findings for execution over batches.

mod analyzer_identity;
mod bind;
mod bind_faults;
mod bound_pipeline;
mod bounded_functions;
mod canonical_floats;
mod carried;
mod carry;
mod chain;
mod column_age;
mod column_selector;
mod column_units;
mod expectation;
mod explain;
mod expression_depth;
mod feature_columns;
mod fuse;
mod future;
mod gather_columns;
mod history;
mod join_faults;
mod label_horizon;
mod leakage;
mod learn_check;
mod lineage;
mod nan_comparison;
mod nulls;
mod op;
mod operation_id;
mod plan_size;
mod program;
mod query;
mod query_age;
mod refit;
mod registry;
mod row_order;
mod shared_reads;
mod shared_sort;
mod slice;
mod split;
mod split_check;
mod sql;
mod sql_faults;
mod sql_text;
mod step_columns;
mod time_shift;
mod transform;
mod upstream;
mod window_order;

pub use analyzer_identity::analyzer_identities;
pub use bind::{PartialBinding, bind, bind_all};
pub use bound_pipeline::{
    BaseDataset, BaseId, BoundAnalyzer, BoundOp, BoundPipeline, NodeFlow, OpStream,
};
pub use canonical_floats::canonical_key;
pub use carried::{CarriedFinding, FindingLedger};
pub use carry::{Carry, PrecomputedOutputs, WindowBudget, WindowRowOrder};
pub use chain::{ChainContext, ChainWindow, ColumnTap, JoinsMet, OpChain, RowCounts};
pub use column_selector::{ColumnSelector, unknown_column};
pub use column_units::{UnitMismatch, changed_by, computed_by, unit_mismatch};
pub use expectation::{
    DriftBaseline, DriftRule, Expectation, ExpectationJudge, ExpectationOutcome, ExpectationPolicy,
    JudgeContext, JudgeFindings, ViolatingRow, ViolatingValue,
};
pub use explain::{
    ExplainJoin, ExplainPass, ExplainProgram, ExplainRead, ExplainState, ExplainTraining,
    ExplainWindow, PassReuse,
};
pub use feature_columns::{id_columns, is_ids, is_number, taken_columns};
pub use fuse::fuse_learn_into_write;
pub use future::{
    FUTURE_PART, FUTURE_ROW, FutureFlow, HORIZON_STEP, KNOWN_UNTIL, future_streams, source_column,
};
pub use history::{SourceHistory, needed_history};
pub use join_faults::{duplicate_key_fault, key_text, met_twice_fault};
pub use label_horizon::check_horizon;
pub use leakage::{
    check_label_names, known_ahead, label_in_features, row_extent, training_input_name,
};
pub use learn_check::{ID_STEPS, scaled_ids, step_kind, unfitted_steps};
pub use lineage::{ColumnOrigin, origins};
pub use nulls::{NullOrigin, null_origin};
pub use op::{
    AnalyzerRequest, AsOf, ColumnKernel, CombineFindings, CountSeries, ExpandKernel, ExpandOp,
    ExpandedRows, FilterOp, FutureRowsOp, FutureSeries, GatherBy, GatherOp, GroupByOp, JoinBy,
    JoinChecks, JoinOp, LowerGather, LowerMap, LowerRows, LoweredMap, MapOp, MatchDirection,
    MetRows, MovedTime, PlanOp, PredictionFeedback, QueryPlan, RowBatches, RowMark, ValueCount,
    WindowOp, WrittenNulls,
};
pub use operation_id::{
    config_without, config_without_path, join_id, operation_id, ops_before_join,
};
pub use program::{
    AnalyzerId, AnalyzerLane, ColumnScan, IsKnown, LearnWork, OpId, Pass, PassWork, Program,
    ScanStream, SinkWork, analyzer_scans, compile, compile_analyzers, needed_ops,
};
pub use query::refuse_writing;
pub use refit::StepRefit;
pub use registry::{ConfiguredTransform, TransformKind, TransformRegistry};
pub use row_order::{JoinedExtents, RowOrderChoice, base_column, choose_row_order, span_extents};
pub use shared_sort::{SharedSort, find_shared_sort};
pub use slice::{live_columns, pruning_conditions, slice_for_columns};
pub use split::{PART_PREFIX, part_column, part_name, split_operation};
pub use split_check::{SplitCheck, check_split};
pub use sql::{CompiledExpression, SqlCompiler};
pub use sql_text::{SqlPiece, SqlValue, sql_literal, sql_name, sql_text};
pub use step_columns::{
    StepColumns, StepStrategy, check_recursive, check_recursive_label, step_columns,
};
pub use time_shift::{TimeShift, cast_shift};
pub use transform::{BindScope, HeldRows, SeriesColumns, Transform};
pub use upstream::{NeededColumns, all_columns, upstream_analyzers};
pub use window_order::query_plan;
