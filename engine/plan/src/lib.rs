//! The compiler: from a pipeline and the schemas of its sources to a program of passes.
//!
//! Pure: it reads no files and starts no threads. `bind` resolves names and types. `program` arranges the analyzers
//! by level into the fewest passes. `chain` compiles operations and findings for execution over batches.

mod along;
mod asked;
mod bind;
mod canonical;
mod carry;
mod chain;
mod columns;
mod explain;
mod leakage;
mod lineage;
mod nan;
mod op;
mod program;
mod query;
mod reach;
mod registry;
mod shape;
mod slice;
mod split;
mod sql;
mod sql_text;
mod together;
mod transform;
mod way;

pub use along::fuse_learn_into_write;
pub use asked::analyzer_identities;
pub use bind::{BaseDataset, BaseId, BoundAnalyzer, BoundOp, BoundPipeline, NodeFlow, OpStream, bind};
pub use canonical::canonical_key;
pub use carry::{Carry, PrecomputedOutputs, WindowBudget, WindowRowOrder};
pub use chain::{ChainContext, ChainPath, ChainWindow, ColumnTap, OpChain, RowCounts};
pub use columns::{ColumnSelector, unknown_column};
pub use explain::{ExplainPass, ExplainProgram, ExplainRead, ExplainState, ExplainTraining, ExplainWindow, PassReuse};
pub use lineage::{ColumnOrigin, origins};
pub use op::{
    AnalyzerRequest, AsOf, ColumnKernel, ExpandKernel, ExpandOp, ExpandedRows, FilterOp, GatherBy, GatherOp,
    LowerGather, LowerMap, LoweredMap, MapOp, MatchDirection, PlanOp, WindowOp,
};
pub use program::{
    AnalyzerId, AnalyzerLane, ColumnScan, IsKnown, LearnWork, OpId, Pass, PassWork, Program, ScanStream, SinkWork,
    compile,
};
pub use query::refuse_writing;
pub use reach::column_reaches;
pub use registry::{ConfigParseResult, ConfiguredTransform, TransformKind, TransformRegistry};
pub use shape::{config_without_path, operation_id};
pub use slice::{pruning_conditions, slice_for_columns};
pub use split::{PART_PREFIX, part_column, part_name};
pub use sql::{CompiledExpression, SqlCompiler};
pub use sql_text::{SqlPiece, SqlValue, sql_text};
pub use together::{SharedSort, find_shared_sort};
pub use transform::{BindScope, SeriesColumns, Transform};
pub use way::{RowOrderChoice, base_column, choose_row_order, span_extents};
