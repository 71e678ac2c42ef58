//! Bound on the filters of a query.
//!
//! The optimizer computes a filter as near to the tables as it can: it puts the expressions of the
//! columns that the filter reads in the place of their names, query by query. A column that each of
//! ten WITH tables reads three times from the one before becomes 3^10 columns.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan};
use forebay_model::{Fault, Result, codes};

use crate::sql_faults::{query_fault, shown};

/// Most columns, constants and operators of a filter that reads the columns of tables alone.
const FILTER_PARTS_MAX: u64 = 50_000;

/// Fails if a filter of a query would be too large to be computed from the columns of the tables.
pub(crate) fn refuse_growing_filters(plan: &LogicalPlan, query: &str) -> Result<()> {
    let mut sizes = ColumnSizes::default();
    let mut parts_max = 0;
    let visited = plan.apply_with_subqueries(|node| {
        parts_max = sizes.filter_parts(node)?.max(parts_max);
        Ok(TreeNodeRecursion::Continue)
    });
    visited.map_err(|error| query_fault(query, &error))?;
    if parts_max <= FILTER_PARTS_MAX {
        return Ok(());
    }
    let message = format!(
        "a filter of the query `{}` has {parts_max} parts once the expressions of its columns \
         stand in the place of their names; at most {FILTER_PARTS_MAX} are allowed",
        shown(query)
    );
    Err(Fault::new(codes::EXPRESSION, message).hint(
        "make a step of the subquery or WITH table that the filter reads: a step is computed \
         before",
    ))
}

/// Parts of the expressions that columns stand for. Each plan is measured once.
#[derive(Default)]
struct ColumnSizes {
    by_plan: HashMap<*const LogicalPlan, Arc<[u64]>>,
}

impl ColumnSizes {
    /// Parts of the filter of an operator; 0 if it has none.
    fn filter_parts(&mut self, node: &LogicalPlan) -> Result<u64, DataFusionError> {
        match node {
            LogicalPlan::Filter(filter) => {
                let input = self.columns(&filter.input)?;
                expanded_parts(&filter.predicate, &[input])
            }
            LogicalPlan::Join(join) => {
                let Some(condition) = &join.filter else {
                    return Ok(0);
                };
                let left_columns = self.columns(&join.left)?;
                let right_columns = self.columns(&join.right)?;
                expanded_parts(condition, &[left_columns, right_columns])
            }
            _ => Ok(0),
        }
    }

    fn columns<'a>(&mut self, plan: &'a LogicalPlan) -> Result<InputColumns<'a>, DataFusionError> {
        Ok(InputColumns {
            schema: plan.schema(),
            parts: self.of(plan)?,
        })
    }

    /// Parts of each column of a plan.
    fn of(&mut self, plan: &LogicalPlan) -> Result<Arc<[u64]>, DataFusionError> {
        let address = std::ptr::from_ref(plan);
        if let Some(sizes) = self.by_plan.get(&address) {
            return Ok(sizes.clone());
        }
        let mut sizes = self.measured(plan)?;
        // Columns that an operator adds are computed there: filters of them stay above it.
        sizes.resize(plan.schema().fields().len(), 1);
        let sizes: Arc<[u64]> = sizes.into();
        self.by_plan.insert(address, sizes.clone());
        Ok(sizes)
    }

    fn measured(&mut self, plan: &LogicalPlan) -> Result<Vec<u64>, DataFusionError> {
        match plan {
            LogicalPlan::Projection(projection) => {
                let input = self.columns(&projection.input)?;
                expressions_parts(&projection.expr, input)
            }
            LogicalPlan::Aggregate(aggregate) => {
                if matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]) {
                    return Ok(Vec::new());
                }
                let input = self.columns(&aggregate.input)?;
                expressions_parts(&aggregate.group_expr, input)
            }
            LogicalPlan::Union(union) => {
                let mut sizes: Vec<u64> = Vec::new();
                for input in &union.inputs {
                    let columns = self.of(input)?;
                    sizes.resize(sizes.len().max(columns.len()), 1);
                    for (size, column) in sizes.iter_mut().zip(columns.iter()) {
                        *size = (*size).max(*column);
                    }
                }
                Ok(sizes)
            }
            LogicalPlan::Join(join) => {
                // A join that keeps the columns of one side has no more fields than it.
                let left_sizes = self.of(&join.left)?;
                let right_sizes = self.of(&join.right)?;
                let fields = join.schema.fields().len();
                if fields == right_sizes.len() && fields != left_sizes.len() {
                    return Ok(right_sizes.to_vec());
                }
                Ok([left_sizes.as_ref(), right_sizes.as_ref()].concat())
            }
            LogicalPlan::Window(window) => Ok(self.of(&window.input)?.to_vec()),
            LogicalPlan::Filter(filter) => Ok(self.of(&filter.input)?.to_vec()),
            LogicalPlan::Sort(sort) => Ok(self.of(&sort.input)?.to_vec()),
            LogicalPlan::SubqueryAlias(alias) => Ok(self.of(&alias.input)?.to_vec()),
            LogicalPlan::Distinct(Distinct::All(input)) => Ok(self.of(input)?.to_vec()),
            _ => Ok(Vec::new()),
        }
    }
}

/// The columns of an input of an operator.
struct InputColumns<'a> {
    schema: &'a DFSchema,
    parts: Arc<[u64]>,
}

fn expressions_parts(
    expressions: &[Expr],
    input: InputColumns<'_>,
) -> Result<Vec<u64>, DataFusionError> {
    let inputs = [input];
    let parts = expressions
        .iter()
        .map(|expression| expanded_parts(expression, &inputs));
    parts.collect()
}

/// Parts of an expression with the expressions of its columns in their place.
fn expanded_parts(expression: &Expr, inputs: &[InputColumns<'_>]) -> Result<u64, DataFusionError> {
    let mut parts: u64 = 0;
    expression.apply(|part| {
        let size = match part {
            Expr::Column(column) => column_parts(column, inputs),
            Expr::Alias(_) => 0,
            _ => 1,
        };
        parts = parts.saturating_add(size);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(parts)
}

/// Parts of a column of one of the inputs; 1 for a column of an outer query.
fn column_parts(column: &Column, inputs: &[InputColumns<'_>]) -> u64 {
    for input in inputs {
        let position = input.schema.maybe_index_of_column(column);
        if let Some(parts) = position.and_then(|position| input.parts.get(position)) {
            return *parts;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::SqlCompiler;

    fn compiled(query: &str) -> Result<()> {
        let table = Schema::new(vec![Field::new("i", DataType::Int64, true)]);
        let tables = BTreeMap::from([("a".to_owned(), Arc::new(table))]);
        SqlCompiler::default().query(query, &tables).map(drop)
    }

    /// A query over `levels` WITH tables, each of which computes `i` from that of the one before.
    fn chain(levels: usize, value: &str, last: &str) -> String {
        let mut query = "WITH t0 AS (SELECT i FROM a)".to_owned();
        for level in 1..=levels {
            let before = level - 1;
            query.push_str(&format!(
                ", t{level} AS (SELECT {value} AS i FROM t{before})"
            ));
        }
        query + &last.replace("{}", &format!("t{levels}"))
    }

    #[test]
    fn filters_that_grow_with_each_table_are_refused() {
        let case = "CASE WHEN i > 2 THEN i ELSE -i END";
        for (value, last) in [
            (case, " SELECT * FROM {} WHERE i > 3"),
            (
                case,
                " SELECT i, count(*) AS c FROM {} GROUP BY i HAVING i > 3",
            ),
            (case, " SELECT x.i FROM a x JOIN {} y ON x.i < y.i"),
            (
                case,
                " SELECT i FROM a WHERE i IN (SELECT i FROM {} WHERE i > 3)",
            ),
            (
                case,
                " SELECT i FROM (SELECT i FROM {} UNION ALL SELECT i FROM a) WHERE i > 3",
            ),
            (
                "i + i",
                " SELECT * FROM (SELECT DISTINCT i FROM {}) WHERE i > 3",
            ),
        ] {
            let fault = compiled(&chain(24, value, last)).err();
            let fault = fault.unwrap_or_else(|| panic!("{last}"));
            assert_eq!(fault.code(), codes::EXPRESSION, "{last}");
            assert!(fault.message().contains("a filter of the query"), "{fault}");
            compiled(&chain(5, value, last)).unwrap();
        }
    }

    /// Columns that are read once, or that a filter cannot pass, do not grow.
    #[test]
    fn long_chains_of_tables_are_filtered() {
        for (value, last) in [
            ("i + 1", " SELECT * FROM {} WHERE i > 3"),
            ("i + i", " SELECT * FROM {}"),
            (
                "i + i",
                " SELECT * FROM (SELECT max(i) AS i FROM {}) WHERE i > 3",
            ),
            (
                "i + i",
                " SELECT * FROM (SELECT i FROM {} ORDER BY i LIMIT 9) WHERE i > 3",
            ),
        ] {
            compiled(&chain(24, value, last)).unwrap();
        }
    }
}
