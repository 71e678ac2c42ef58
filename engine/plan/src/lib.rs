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
mod column_selector;
mod column_units;
mod expectation;
mod explain;
mod expression_depth;
mod fuse;
mod future;
mod join_faults;
mod label_horizon;
mod leakage;
mod lineage;
mod nan_comparison;
mod op;
mod operation_id;
mod plan_size;
mod program;
mod query;
mod refit;
mod registry;
mod row_order;
mod shared_reads;
mod shared_sort;
mod slice;
mod split;
mod sql;
mod sql_faults;
mod sql_text;
mod step_columns;
mod transform;
mod upstream;
mod window_order;

pub use analyzer_identity::analyzer_identities;
pub use bind::{PartialBinding, bind, bind_all};
pub use bound_pipeline::{
    BaseDataset, BaseId, BoundAnalyzer, BoundOp, BoundPipeline, NodeFlow, OpStream,
};
pub use canonical_floats::canonical_key;
pub use carried::CarriedFinding;
pub use carry::{Carry, PrecomputedOutputs, WindowBudget, WindowRowOrder};
pub use chain::{ChainContext, ChainWindow, ColumnTap, OpChain, RowCounts};
pub use column_selector::{ColumnSelector, unknown_column};
pub use column_units::{UnitMismatch, changed_by, unit_mismatch};
pub use expectation::{
    DriftBaseline, DriftRule, Expectation, ExpectationJudge, ExpectationOutcome, ExpectationPolicy,
    JudgeContext, JudgeFindings, ViolatingRow, ViolatingValue,
};
pub use explain::{
    ExplainJoin, ExplainPass, ExplainProgram, ExplainRead, ExplainState, ExplainTraining,
    ExplainWindow, PassReuse,
};
pub use fuse::fuse_learn_into_write;
pub use future::{FUTURE_PART, FutureFlow, HORIZON_STEP, KNOWN_UNTIL, source_column};
pub use join_faults::{duplicate_key_fault, key_text, met_twice_fault};
pub use label_horizon::check_horizon;
pub use leakage::{check_label_names, label_in_features, training_input_name};
pub use lineage::{ColumnOrigin, origins};
pub use op::{
    AnalyzerRequest, AsOf, ColumnKernel, CombineFindings, CountSeries, ExpandKernel, ExpandOp,
    ExpandedRows, FilterOp, FutureRowsOp, FutureSeries, GatherBy, GatherOp, GroupByOp, JoinBy,
    JoinChecks, JoinOp, LowerGather, LowerMap, LowerRows, LoweredMap, MapOp, MatchDirection,
    PlanOp, PredictionFeedback, RowBatches, RowMark, WindowOp,
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
pub use slice::{pruning_conditions, slice_for_columns};
pub use split::{PART_PREFIX, part_column, part_name, split_operation};
pub use sql::{CompiledExpression, SqlCompiler};
pub use sql_text::{SqlPiece, SqlValue, sql_literal, sql_name, sql_text};
pub use step_columns::{
    StepColumns, StepStrategy, check_recursive, check_recursive_label, step_columns,
};
pub use transform::{BindScope, HeldRows, SeriesColumns, Transform};
pub use upstream::{NeededColumns, all_columns, upstream_analyzers};
pub use window_order::query_plan;
