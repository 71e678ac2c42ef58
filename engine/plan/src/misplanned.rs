//! Parts of queries that the query engine plans otherwise than SQL says: they are refused.
//!
//! - `INTERSECT ALL` and `EXCEPT ALL` keep or drop each row whose values are on the other side, however many rows there
//!   are on both.
//! - In `RIGHT JOIN` and `FULL JOIN` with `USING` or `NATURAL`, the common column has the values of the left side
//!   alone: it is null in rows that only the right side has.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};
use forebay_model::{Fault, Result, codes};

use crate::sql_faults::shown;

/// A part of a query that is refused.
enum MisplannedPart {
    CountedSet(ast::SetOperator),
    MergedKeys,
}

/// Refuses a query that the engine plans otherwise than SQL says.
pub(crate) fn refuse_misplanned(parsed: &ast::Query, query: &str) -> Result<()> {
    let ControlFlow::Break(part) = parsed.visit(&mut MisplannedVisitor) else {
        return Ok(());
    };
    let query = shown(query);
    let fault = |message: String| Fault::new(codes::EXPRESSION, message);
    Err(match part {
        MisplannedPart::CountedSet(operator) => fault(format!("`{query}` uses `{operator} ALL`"))
            .fragment(operator.to_string(), 0)
            .hint(format!(
                "number equal rows on both sides by `row_number() OVER (PARTITION BY ...)`, and \
                 write `{operator}` without ALL"
            )),
        MisplannedPart::MergedKeys => fault(format!(
            "`{query}` joins rows of the right side without a match by `USING` or `NATURAL`"
        ))
        .hint("write `ON a.k = b.k`, and `COALESCE(a.k, b.k) AS k` for the key"),
    })
}

struct MisplannedVisitor;

impl Visitor for MisplannedVisitor {
    type Break = MisplannedPart;

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<MisplannedPart> {
        match counted_set(&query.body) {
            Some(operator) => ControlFlow::Break(MisplannedPart::CountedSet(operator)),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &ast::Select) -> ControlFlow<MisplannedPart> {
        if select.from.iter().any(has_merged_keys) {
            ControlFlow::Break(MisplannedPart::MergedKeys)
        } else {
            ControlFlow::Continue(())
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &ast::TableFactor) -> ControlFlow<MisplannedPart> {
        match factor {
            ast::TableFactor::NestedJoin {
                table_with_joins, ..
            } if has_merged_keys(table_with_joins) => {
                ControlFlow::Break(MisplannedPart::MergedKeys)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// The first set operation of a query's body that counts equal rows; `UNION ALL` counts none.
fn counted_set(body: &ast::SetExpr) -> Option<ast::SetOperator> {
    let ast::SetExpr::SetOperation {
        op,
        set_quantifier,
        left,
        right,
    } = body
    else {
        // Queries in parentheses are visited by themselves.
        return None;
    };
    let is_all = matches!(
        set_quantifier,
        ast::SetQuantifier::All | ast::SetQuantifier::AllByName
    );
    if is_all && *op != ast::SetOperator::Union {
        return Some(*op);
    }
    counted_set(left).or_else(|| counted_set(right))
}

/// True for joins that keep rows of the right side alone, with columns that both sides share.
fn has_merged_keys(table: &ast::TableWithJoins) -> bool {
    table.joins.iter().any(|join| {
        matches!(
            &join.join_operator,
            ast::JoinOperator::Right(constraint)
            | ast::JoinOperator::RightOuter(constraint)
            | ast::JoinOperator::FullOuter(constraint)
                if matches!(
                    constraint,
                    ast::JoinConstraint::Using(_) | ast::JoinConstraint::Natural
                )
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::SqlCompiler;

    /// The fault of a query over two tables of a number each.
    fn refusal(query: &str) -> Option<Fault> {
        let schema = Arc::new(Schema::new(vec![Field::new("i", DataType::Int64, true)]));
        let tables = ["a", "b"].map(|name| (name.to_owned(), schema.clone()));
        SqlCompiler::default()
            .query(query, &BTreeMap::from(tables))
            .err()
    }

    #[test]
    fn sets_that_count_equal_rows_are_refused() {
        for (query, operator) in [
            ("SELECT i FROM a EXCEPT ALL SELECT i FROM b", "EXCEPT ALL"),
            (
                "SELECT i FROM a INTERSECT ALL SELECT i FROM b",
                "INTERSECT ALL",
            ),
            (
                "SELECT i FROM a UNION ALL (SELECT i FROM a INTERSECT ALL SELECT i FROM b)",
                "INTERSECT ALL",
            ),
            (
                "WITH c AS (SELECT i FROM a EXCEPT ALL SELECT i FROM b) SELECT i FROM c",
                "EXCEPT ALL",
            ),
        ] {
            let fault = refusal(query).unwrap();
            assert_eq!(fault.code(), codes::EXPRESSION, "{query}");
            assert!(fault.message().contains(operator), "{query}: {fault}");
        }
        for query in [
            "SELECT i FROM a UNION ALL SELECT i FROM b",
            "SELECT i FROM a EXCEPT SELECT i FROM b",
        ] {
            assert!(refusal(query).is_none(), "{query}");
        }
    }

    #[test]
    fn joins_that_lose_keys_of_the_right_side_are_refused() {
        for query in [
            "SELECT i FROM a FULL JOIN b USING (i)",
            "SELECT * FROM a RIGHT JOIN b USING (i)",
            "SELECT i FROM a NATURAL FULL OUTER JOIN b",
            "SELECT 1 AS n FROM a WHERE i IN (SELECT i FROM a NATURAL RIGHT JOIN b)",
            "SELECT x.i FROM a AS x CROSS JOIN (a FULL JOIN b USING (i))",
        ] {
            let fault = refusal(query).unwrap();
            assert_eq!(fault.code(), codes::EXPRESSION, "{query}");
            assert!(fault.message().contains("USING"), "{query}: {fault}");
        }
        for query in [
            "SELECT i FROM a LEFT JOIN b USING (i)",
            "SELECT i FROM a JOIN b USING (i)",
            "SELECT COALESCE(a.i, b.i) AS i FROM a FULL JOIN b ON a.i = b.i",
        ] {
            assert!(refusal(query).is_none(), "{query}");
        }
    }
}
