//! Depth of SQL: the limit on nested expressions, and stacks that are large enough for it.
//!
//! The query engine walks expressions by recursion when it plans, simplifies and evaluates them. A chain such as
//! `a OR b OR c` is one level deeper for each operator.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::thread;

use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};
use forebay_model::{Fault, Result, codes};

use crate::sql_faults::shown;

/// Most levels of an expression. A filter that long was written by a program, and has a shorter form.
pub(crate) const EXPRESSION_LEVELS_MAX: usize = 500;

/// Levels up to which an expression is evaluated on the stack of the caller.
const SHALLOW_LEVELS: usize = 64;

/// SQL of this length in bytes cannot be deep enough to outgrow the stack of a thread.
const SHALLOW_TEXT_BYTES: usize = 256;

/// Stack for one level of planning, in bytes. The physical planner takes 10 KiB in an optimised program.
const LEVEL_STACK_BYTES: usize = if cfg!(debug_assertions) {
    128 << 10
} else {
    32 << 10
};

/// Stack for one level of a parsed text before its depth is checked, in bytes: it is walked and dropped.
const PARSED_LEVEL_STACK_BYTES: usize = 2 << 10;

/// Bytes of text that one level takes at least: an operand and an operator.
const LEVEL_TEXT_BYTES: usize = 2;

/// Runs `work`, which parses and plans SQL of `text_bytes` bytes, on a stack that it cannot outgrow.
pub(crate) fn with_planning_stack<T: Send>(
    text_bytes: usize,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    if text_bytes <= SHALLOW_TEXT_BYTES {
        return work();
    }
    let planned = EXPRESSION_LEVELS_MAX * LEVEL_STACK_BYTES;
    let parsed = text_bytes / LEVEL_TEXT_BYTES * PARSED_LEVEL_STACK_BYTES;
    with_stack(planned + parsed, work)
}

/// Runs `work`, which evaluates an expression of `levels` levels, on a stack that it cannot outgrow.
pub(crate) fn with_evaluation_stack<T: Send>(
    levels: usize,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    if is_shallow(levels) {
        return work();
    }
    with_stack(levels * LEVEL_STACK_BYTES, work)
}

/// True if an expression of `levels` levels can be walked on the stack of any thread.
pub(crate) fn is_shallow(levels: usize) -> bool {
    levels <= SHALLOW_LEVELS
}

/// Runs `work` on a thread of its own with a stack of `bytes`. The system maps only the pages that are touched.
fn with_stack<T: Send>(bytes: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let builder = thread::Builder::new().stack_size(bytes);
        let worker = builder.spawn_scoped(scope, work).map_err(|error| {
            let message = "a thread for a long SQL expression cannot be started";
            Fault::new(codes::MEMORY, message).cause(error)
        })?;
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Counts the levels of a parsed expression or query; more than [`EXPRESSION_LEVELS_MAX`] are a fault.
pub(crate) fn checked_levels(parsed: &impl Visit, text: &str) -> Result<usize> {
    let mut depth = DepthVisitor::default();
    // The visitor never breaks.
    let _ = parsed.visit(&mut depth);
    if depth.levels_max <= EXPRESSION_LEVELS_MAX {
        return Ok(depth.levels_max);
    }
    let message = format!(
        "`{}` nests {} levels deep; at most {EXPRESSION_LEVELS_MAX} are allowed",
        shown(text),
        depth.levels_max
    );
    Err(Fault::new(codes::EXPRESSION, message).hint(
        "each operator of a chain is a level: write `x IN (...)` for many `x = ... OR`, or join a table of the values",
    ))
}

/// Finds the deepest expression, set operations included.
#[derive(Default)]
struct DepthVisitor {
    levels: usize,
    levels_max: usize,
}

impl DepthVisitor {
    fn enter(&mut self, levels: usize) {
        self.levels += levels;
        self.levels_max = self.levels_max.max(self.levels);
    }

    fn leave(&mut self, levels: usize) {
        self.levels = self.levels.saturating_sub(levels);
    }
}

impl Visitor for DepthVisitor {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.enter(set_operations(query));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.leave(set_operations(query));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, _: &ast::Expr) -> ControlFlow<()> {
        self.enter(1);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &ast::Expr) -> ControlFlow<()> {
        self.leave(1);
        ControlFlow::Continue(())
    }
}

/// Length of the chain of `UNION`, `EXCEPT` and `INTERSECT` of a query.
fn set_operations(query: &ast::Query) -> usize {
    let mut body = query.body.as_ref();
    let mut operations = 0;
    while let ast::SetExpr::SetOperation { left, .. } = body {
        operations += 1;
        body = left;
    }
    operations
}
