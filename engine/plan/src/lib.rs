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

pub use along::asked_along;
pub use asked::asked;
pub use bind::{Base, BaseId, Bound, BoundAsk, BoundOp, Flow, Stream, bind};
pub use canonical::canonical_key;
pub use carry::{Budget, Carry, Given, Way};
pub use chain::{Chain, ChainWindow, RowCounts, Told, Track, Want};
pub use columns::{Columns, unknown_column};
pub use explain::{Explain, ExplainPass, ExplainRead, ExplainState, ExplainTraining, ExplainWindow, Standing};
pub use lineage::{Origin, origins};
pub use op::{
    AsOf, Ask, Direction, Expand, ExpandKernel, Expanded, Gather, GatherBy, Keep, Kernel, Lower, LowerGather, Lowered,
    Map, Op, Window,
};
pub use program::{
    AskId, IsKnown, Lane, LearnWork, OpId, Pass, PassWork, Program, Scan, ScanStream, SinkWork, compile,
};
pub use query::refuse_writing;
pub use reach::reaches;
pub use registry::{Configured, Read, Registry, TransformKind};
pub use shape::{shape, without_place};
pub use slice::{needed, pruning};
pub use split::{PART_PREFIX, part_column, part_name};
pub use sql::{Expression, Sql};
pub use sql_text::{SqlPiece, SqlValue, sql_text};
pub use together::{Together, sorted_together};
pub use transform::{Scope, Series, Transform};
pub use way::{Choice, base_column, choose_way, span_extents};
