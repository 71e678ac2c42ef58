//! Bound on the copies that planning makes of the operands of an expression.
//!
//! `x BETWEEN a AND b` becomes `x >= a AND x <= b`, and `coalesce(x, y)` becomes
//! `CASE WHEN x IS NOT NULL THEN x ELSE y END`. The type of a cast is computed from its operand twice.
//! Each of them that stands in the operand of another doubles the work: `n` of them take `2^n` times
//! the time and memory of one.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};
use forebay_model::{Fault, Result, codes};

use crate::sql_faults::shown;

/// Most doublings of one operand.
const DOUBLINGS_MAX: usize = 14;

/// Doublings of a call that is compared: `date_part('year', x) = 2020` becomes a range of `x`, and
/// either side may be cast.
const COMPARED_CALL_DOUBLINGS: usize = 2;

/// Functions that become a `CASE` with two copies of each argument but the last.
const COPYING_FUNCTIONS: [&str; 3] = ["coalesce", "ifnull", "nvl"];

/// Refuses an expression or query whose planning would copy an operand too often.
pub(crate) fn refuse_many_copies(parsed: &impl Visit, text: &str) -> Result<()> {
    let mut copies = CopyVisitor::default();
    // The visitor never breaks.
    let _ = parsed.visit(&mut copies);
    let levels = copies.doublings_max;
    if levels <= DOUBLINGS_MAX {
        return Ok(());
    }
    let message = format!(
        "`{}` nests casts, ranges, comparisons of calls and functions such as `coalesce` in each \
         other: planning would double an operand {levels} times, and at most {DOUBLINGS_MAX} are \
         allowed",
        shown(text)
    );
    let hint = "compute the inner ones in a step before: a step is planned on its own";
    Err(Fault::new(codes::EXPRESSION, message).hint(hint))
}

/// Finds the operand that is copied most often.
#[derive(Default)]
struct CopyVisitor {
    /// Doublings of operands by their address: their parent has been visited, and they have not.
    operands: HashMap<*const ast::Expr, usize>,
    doublings: usize,
    doublings_max: usize,
}

impl Visitor for CopyVisitor {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        let address = std::ptr::from_ref(expression);
        self.doublings += self.operands.get(&address).copied().unwrap_or(0);
        self.doublings_max = self.doublings_max.max(self.doublings);
        for copied in copied_operands(expression) {
            let operand = std::ptr::from_ref(copied.operand);
            self.operands.insert(operand, copied.doublings);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        let address = std::ptr::from_ref(expression);
        let doublings = self.operands.remove(&address).unwrap_or(0);
        self.doublings = self.doublings.saturating_sub(doublings);
        ControlFlow::Continue(())
    }
}

/// An operand that planning copies.
struct CopiedOperand<'a> {
    operand: &'a ast::Expr,
    doublings: usize,
}

fn doubled(operand: &ast::Expr) -> CopiedOperand<'_> {
    CopiedOperand {
        operand,
        doublings: 1,
    }
}

/// The operands that planning copies once or more.
fn copied_operands(expression: &ast::Expr) -> Vec<CopiedOperand<'_>> {
    match expression {
        ast::Expr::Between { expr, .. } | ast::Expr::Cast { expr, .. } => vec![doubled(expr)],
        ast::Expr::InList { expr, .. } => compared_calls(&[expr.as_ref()]),
        ast::Expr::IsDistinctFrom(left, right) | ast::Expr::IsNotDistinctFrom(left, right) => {
            compared_calls(&[left.as_ref(), right.as_ref()])
        }
        ast::Expr::BinaryOp { left, op, right } if is_comparison(op) => {
            compared_calls(&[left.as_ref(), right.as_ref()])
        }
        ast::Expr::Function(call) if is_copying(&call.name) => copied_arguments(&call.args),
        _ => Vec::new(),
    }
}

fn is_comparison(operator: &ast::BinaryOperator) -> bool {
    use ast::BinaryOperator as Operator;
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
    )
}

/// The operands of a comparison that are calls.
fn compared_calls<'a>(operands: &[&'a ast::Expr]) -> Vec<CopiedOperand<'a>> {
    let mut calls = Vec::new();
    for &operand in operands {
        if is_call(operand) {
            calls.push(CopiedOperand {
                operand,
                doublings: COMPARED_CALL_DOUBLINGS,
            });
        }
    }
    calls
}

fn is_call(operand: &ast::Expr) -> bool {
    let mut operand = operand;
    while let ast::Expr::Nested(inner) = operand {
        operand = inner;
    }
    matches!(
        operand,
        ast::Expr::Function(_)
            | ast::Expr::Extract { .. }
            | ast::Expr::Ceil { .. }
            | ast::Expr::Floor { .. }
    )
}

fn is_copying(name: &ast::ObjectName) -> bool {
    let name = name.to_string();
    COPYING_FUNCTIONS
        .iter()
        .any(|copying| name.eq_ignore_ascii_case(copying))
}

/// All arguments of a call but the last.
fn copied_arguments(arguments: &ast::FunctionArguments) -> Vec<CopiedOperand<'_>> {
    let ast::FunctionArguments::List(list) = arguments else {
        return Vec::new();
    };
    let Some((_, copied)) = list.args.split_last() else {
        return Vec::new();
    };
    let mut operands = Vec::new();
    for argument in copied {
        if let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(operand)) = argument {
            operands.push(doubled(operand));
        }
    }
    operands
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use arrow::datatypes::{DataType, Field, Schema, TimeUnit};

    use super::*;
    use crate::SqlCompiler;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("b", DataType::Boolean, true),
            Field::new("i", DataType::Int64, true),
            Field::new("d", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        ])
    }

    /// An expression around `column` with `start` before and `end` after it, again and again.
    fn nested(levels: usize, start: &str, column: &str, end: &str) -> String {
        format!("{}{column}{}", start.repeat(levels), end.repeat(levels))
    }

    #[test]
    fn operands_that_would_be_copied_without_end_are_refused_at_once() {
        let compiler = SqlCompiler::default();
        for (start, column, end) in [
            ("(", "b", " BETWEEN false AND true)"),
            ("(", "b", " NOT BETWEEN false AND true)"),
            ("coalesce(", "i", ", 3)"),
            ("ifnull(", "i", ", 3)"),
            ("NVL(", "i", ", 3)"),
            ("(", "i", " > 2)::int"),
            ("(", "i", " % 3 IN (1, 2, 3))::int"),
            ("to_timestamp((date_part('year', ", "d", ") = 2020)::int)"),
        ] {
            let text = nested(15, start, column, end);
            let begun = Instant::now();
            let fault = compiler.expression(&text, &schema()).err();
            assert_eq!(
                fault.map(|fault| fault.code()),
                Some(codes::EXPRESSION),
                "{text}"
            );
            assert!(begun.elapsed() < Duration::from_secs(5), "{text}");
            let plain = nested(3, start, column, end);
            assert!(compiler.expression(&plain, &schema()).is_ok(), "{plain}");
        }
    }

    /// Operands that stand beside each other are copied once each.
    #[test]
    fn long_chains_are_no_nests() {
        let compiler = SqlCompiler::default();
        for part in [
            "i BETWEEN 1 AND 5",
            "coalesce(i, 3) = 4",
            "CAST(i AS DOUBLE) > 2.0",
            "date_part('year', d) = 2020",
        ] {
            let text = vec![part; 40].join(" AND ");
            assert!(compiler.expression(&text, &schema()).is_ok(), "{text}");
        }
        let inner = (0..30).fold("i".to_owned(), |inner, value| {
            format!("coalesce(i + {value}, {inner})")
        });
        assert!(compiler.expression(&inner, &schema()).is_ok());
    }

    #[test]
    fn queries_are_bounded_as_expressions_are() {
        let compiler = SqlCompiler::default();
        let tables = [("a".to_owned(), std::sync::Arc::new(schema()))].into();
        let text = nested(20, "coalesce(", "i", ", 3)");
        let query = format!("SELECT {text} AS z FROM a");
        let fault = compiler.query(&query, &tables).err();
        assert_eq!(fault.map(|fault| fault.code()), Some(codes::EXPRESSION));
    }
}
