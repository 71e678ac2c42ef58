//! Refuses expressions that need other rows than their own.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr;
use forebay_model::{Fault, Result, codes};

/// Fails if an expression calls an aggregate or a function of a window, or has a query inside.
pub(crate) fn refuse_other_rows(expression: &Expr) -> Result<()> {
    let mut refused = None;
    let walked = expression.apply(|part| {
        refused = other_rows_fault(part);
        if refused.is_some() {
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    if let Err(error) = walked {
        return Err(Fault::internal("an expression cannot be walked").cause(error));
    }
    refused.map_or(Ok(()), Err)
}

fn other_rows_fault(part: &Expr) -> Option<Fault> {
    match part {
        Expr::AggregateFunction(call) => {
            let name = call.func.name();
            let message =
                format!("`{name}` is computed over several rows, and an expression sees one row");
            let fault = Fault::new(codes::EXPRESSION, message).fragment(name, 0);
            Some(fault.hint(
                "`aggregate` makes one row of each group; `rolling`, `expanding` and `pooled` \
                 compute statistics beside each row; a step with `sql:` takes any query",
            ))
        }
        Expr::WindowFunction(call) => {
            let name = call.fun.name();
            let message = format!("`{name}` looks at other rows, and an expression sees one row");
            let fault = Fault::new(codes::EXPRESSION, message).fragment(name, 0);
            Some(fault.hint(
                "`lag`, `rolling`, `expanding` and `pooled` look at other rows; a step with `sql:` \
                 takes any query",
            ))
        }
        Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) => Some(subquery_fault()),
        _ => None,
    }
}

/// Fault for a query inside an expression.
pub(crate) fn subquery_fault() -> Fault {
    let message = "a query inside an expression reads other rows, and an expression sees one row";
    let fault = Fault::new(codes::EXPRESSION, message);
    fault.hint("`join` brings columns of another table; a step with `sql:` takes any query")
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};

    use crate::SqlCompiler;

    #[test]
    fn expressions_over_other_rows_are_refused_in_words_of_specs() {
        let schema = Schema::new(vec![Field::new("sales", DataType::Float64, true)]);
        let compiler = SqlCompiler::default();
        for (text, message, hint) in [
            (
                "avg(sales)",
                "`avg` is computed over several rows",
                "`aggregate`",
            ),
            (
                "sales - max(sales)",
                "`max` is computed over several rows",
                "`aggregate`",
            ),
            (
                "lag(sales) OVER (ORDER BY sales)",
                "`lag` looks at other rows",
                "`lag`",
            ),
            (
                "(SELECT max(x) FROM others)",
                "a query inside an expression",
                "`join`",
            ),
            (
                "sum(sales) OVER ()",
                "`sum` looks at other rows",
                "`rolling`",
            ),
        ] {
            let fault = compiler.expression(text, &schema).err().unwrap();
            assert!(
                fault.message().contains(message),
                "{text}: {}",
                fault.message()
            );
            assert!(fault.hint_text().unwrap().contains(hint), "{text}");
        }
        assert!(compiler.expression("abs(sales)", &schema).is_ok());
    }
}
