//! Depth of SQL: the limit on nested expressions, and stacks that are large enough for it.
//!
//! The query engine walks expressions by recursion when it plans, simplifies and evaluates them. A chain such as
//! `a OR b OR c` is one level deeper for each operator.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::thread;

use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};
use forebay_model::{Fault, Result, codes};

use crate::parse_retries::refuse_retried_parses;
use crate::sql_faults::shown;

/// Most levels of an expression. A filter that long was written by a program, and has a shorter form.
pub(crate) const EXPRESSION_LEVELS_MAX: usize = 500;

/// Most operators in a chain that planning turns into nested calls: joined texts and lists, and shifts. The engine forms
/// the names of all calls below a call whenever it asks for its type, so that the time grows with the third power.
const CALL_OPERATORS_MAX: usize = 100;

/// Levels up to which an expression is evaluated on the stack of the caller.
const SHALLOW_LEVELS: usize = 64;

/// SQL of this length in bytes cannot be deep enough to outgrow the stack of a thread.
const SHALLOW_TEXT_BYTES: usize = 32;

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

/// Runs `work`, which parses and plans some SQL, on a stack that it cannot outgrow.
pub(crate) fn with_planning_stack<T: Send>(
    text: &str,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    refuse_retried_parses(text)?;
    if text.len() <= SHALLOW_TEXT_BYTES {
        return work();
    }
    let levels = written_type_levels(text);
    if levels > EXPRESSION_LEVELS_MAX {
        return Err(depth_fault(text, levels));
    }
    let planned = EXPRESSION_LEVELS_MAX * LEVEL_STACK_BYTES;
    let parsed = text.len() / LEVEL_TEXT_BYTES * PARSED_LEVEL_STACK_BYTES;
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
        let worker = builder
            .spawn_scoped(scope, work)
            .map_err(Fault::refused_thread)?;
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Counts the levels of a parsed expression or query; more than [`EXPRESSION_LEVELS_MAX`] are a fault.
pub(crate) fn checked_levels(parsed: &impl Visit, text: &str) -> Result<usize> {
    let mut depth = DepthVisitor::default();
    // The visitor never breaks.
    let _ = parsed.visit(&mut depth);
    if depth.call_operators_max > CALL_OPERATORS_MAX {
        return Err(chain_fault(text, depth.call_operators_max));
    }
    if depth.levels_max <= EXPRESSION_LEVELS_MAX {
        return Ok(depth.levels_max);
    }
    Err(depth_fault(text, depth.levels_max))
}

fn chain_fault(text: &str, operators: usize) -> Fault {
    let message = format!(
        "`{}` chains {operators} of the operators `||`, `<<` and `>>`; at most \
         {CALL_OPERATORS_MAX} are allowed",
        shown(text)
    );
    Fault::new(codes::EXPRESSION, message).hint(
        "one call `concat(a, b, ...)` joins many texts, and `array_concat(a, b, ...)` many lists; \
         else compute a part in a step before",
    )
}

fn depth_fault(text: &str, levels: usize) -> Fault {
    let message = format!(
        "`{}` nests {levels} levels deep; at most {EXPRESSION_LEVELS_MAX} are allowed",
        shown(text)
    );
    Fault::new(codes::EXPRESSION, message).hint(
        "each operator of a chain is a level: write `x IN (...)` for many `x = ... OR`, or join \
         a table of the values",
    )
}

/// Levels of nested types such as `ARRAY<STRUCT<a ARRAY<INT>>>`, by the text alone: the parser of types has no limit of its
/// own.
fn written_type_levels(text: &str) -> usize {
    const NESTED: [&str; 3] = ["ARRAY", "STRUCT", "MAP"];
    let mut levels: usize = 0;
    let mut levels_max = 0;
    let mut word_start = 0;
    for (position, letter) in text.char_indices() {
        if letter.is_alphanumeric() || letter == '_' {
            continue;
        }
        let word = &text[word_start..position];
        word_start = position + letter.len_utf8();
        match letter {
            '<' if NESTED.iter().any(|name| word.eq_ignore_ascii_case(name)) => levels += 1,
            '>' => levels = levels.saturating_sub(1),
            _ => {}
        }
        levels_max = levels_max.max(levels);
    }
    levels_max
}

/// Finds the deepest expression, set operations included.
#[derive(Default)]
struct DepthVisitor {
    levels: usize,
    levels_max: usize,
    call_operators: usize,
    call_operators_max: usize,
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

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        self.enter(1 + type_levels(expression));
        if is_call_operator(expression) {
            self.call_operators += 1;
            self.call_operators_max = self.call_operators_max.max(self.call_operators);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        self.leave(1 + type_levels(expression));
        if is_call_operator(expression) {
            self.call_operators = self.call_operators.saturating_sub(1);
        }
        ControlFlow::Continue(())
    }
}

/// True for an operator that planning turns into the call of a function.
fn is_call_operator(expression: &ast::Expr) -> bool {
    let ast::Expr::BinaryOp { op, .. } = expression else {
        return false;
    };
    use ast::BinaryOperator as Operator;
    matches!(
        op,
        Operator::StringConcat | Operator::PGBitwiseShiftLeft | Operator::PGBitwiseShiftRight
    )
}

/// Levels of nested types of a cast: an array of arrays has two.
fn type_levels(expression: &ast::Expr) -> usize {
    let cast_to = match expression {
        ast::Expr::Cast { data_type, .. } => data_type,
        ast::Expr::TypedString(constant) => &constant.data_type,
        _ => return 0,
    };
    let mut levels_max = 0;
    let mut open = vec![(0, cast_to)];
    while let Some((levels, data_type)) = open.pop() {
        levels_max = levels_max.max(levels);
        for inner in inner_types(data_type) {
            open.push((levels + 1, inner));
        }
    }
    levels_max
}

/// The types in a nested type.
fn inner_types(data_type: &ast::DataType) -> Vec<&ast::DataType> {
    use ast::ArrayElemTypeDef as Element;
    match data_type {
        ast::DataType::Array(
            Element::AngleBracket(inner)
            | Element::SquareBracket(inner, _)
            | Element::Parenthesis(inner),
        )
        | ast::DataType::Nullable(inner)
        | ast::DataType::LowCardinality(inner) => vec![inner.as_ref()],
        ast::DataType::Map(keys, values) => vec![keys.as_ref(), values.as_ref()],
        ast::DataType::Struct(fields, _) | ast::DataType::Tuple(fields) => {
            fields.iter().map(|field| &field.field_type).collect()
        }
        ast::DataType::Union(fields) => fields.iter().map(|field| &field.field_type).collect(),
        ast::DataType::Nested(columns) => columns.iter().map(|column| &column.data_type).collect(),
        _ => Vec::new(),
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
