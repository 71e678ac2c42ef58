//! Operations of `expect`.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::{is_not_null, nullif};
use arrow::datatypes::Field;
use forebay_model::{Fault, Result, RowChange};
use forebay_plan::{
    BindScope, ExpectationPolicy, FilterOp, MapOp, PlanOp, StepChange, Transform, VIOLATION_PREFIX,
};
use serde_json::Value;

use super::rule::{BoundExpectation, PassingRows};
use super::{ExpectRows, FailurePolicy, RowExpectation};
use crate::rows::filter::{first_scored, scored_rows};
use crate::shared::bad_value;

/// The rules for each of their columns, or all that is wrong with them.
pub(super) fn bind_rules(
    rules: &[RowExpectation],
    scope: &BindScope<'_>,
) -> Result<Vec<BoundExpectation>> {
    let mut bound = Vec::new();
    let mut faults = Vec::new();
    for rule in rules {
        match rule.bind(scope) {
            Ok(rules) => bound.extend(rules),
            Err(fault) => faults.push(fault),
        }
    }
    Fault::combine(faults).map_or(Ok(bound), Err)
}

/// Computes a hidden column with the values that violate a rule: null where none does, or where one of `earlier_columns`
/// has a value, since the row violates an earlier rule.
pub(super) fn violation_column(
    name: &str,
    sql: &str,
    earlier_columns: &[String],
    scope: &BindScope<'_>,
) -> Result<MapOp> {
    let compiled = scope.sql.expression(sql, scope.schema)?;
    let field = Field::new(name, compiled.field.data_type().clone(), true);
    let kernel = compiled.kernel;
    let read_count = compiled.reads.len();
    let reads: Vec<String> = compiled
        .reads
        .into_iter()
        .chain(earlier_columns.iter().cloned())
        .collect();
    let computed = move |inputs: &[ArrayRef], rows| {
        let (inputs, earlier_columns) = inputs.split_at(read_count);
        let violations = kernel(inputs, rows)?.into_iter().map(|column| {
            earlier_columns.iter().try_fold(column, |column, earlier| {
                Ok::<_, Fault>(nullif(&column, &is_not_null(earlier)?)?)
            })
        });
        violations.collect()
    };
    Ok(MapOp::new(reads, [field], computed))
}

/// Computes the violations of rows before those that are scored, of a hidden column with the violations of all rows.
/// `None` for rows that do not tell their time, which are all scored.
fn violations_of_history(
    violations: &Field,
    history_until: &str,
    scope: &BindScope<'_>,
) -> Result<Option<MapOp>> {
    let Some(time) = &scope.series.time else {
        return Ok(None);
    };
    let first = first_scored(history_until, scope.field(time)?)?;
    let of_history = violations
        .clone()
        .with_name(format!("{}_of_history", violations.name()));
    let computed = move |inputs: &[ArrayRef], _: usize| {
        let [violations, times] = inputs else {
            return Err(Fault::internal(
                "violations without the times of their rows",
            ));
        };
        Ok(vec![nullif(violations, &scored_rows(first, times)?)?])
    };
    let reads = [violations.name(), time];
    Ok(Some(MapOp::new(reads, [of_history], computed)))
}

/// Keeps rows by whether one of some columns has a value. Kept rows have a value in each column of `valued`.
pub(super) fn keep_by_violation(
    columns: &[String],
    violating: bool,
    valued: Vec<String>,
) -> PlanOp {
    let kernel = move |inputs: &[ArrayRef], rows: usize| {
        let mut mask = BooleanArray::from(vec![false; rows]);
        for column in inputs {
            mask = arrow::compute::or(&mask, &is_not_null(column)?)?;
        }
        let mask = if violating {
            mask
        } else {
            arrow::compute::not(&mask)?
        };
        Ok(vec![Arc::new(mask) as ArrayRef])
    };
    PlanOp::Keep(FilterOp {
        reads: columns.to_vec(),
        kernel: Arc::new(kernel),
        condition: None,
        // Rules are about known rows.
        learning: !violating,
        reason: if violating {
            RowChange::Filtered
        } else {
            RowChange::Quarantined
        },
        valued,
    })
}

impl ExpectRows {
    /// Columns whose rows without a value are taken out.
    fn columns_made_whole(&self) -> Vec<String> {
        let mut columns = Vec::new();
        for rule in &self.0 {
            if rule.policy == FailurePolicy::Quarantine && rule.of_labels.is_empty() {
                columns.extend(rule.not_null.iter().cloned());
            }
        }
        columns
    }
}

/// The operations of an `expect`.
#[derive(Default)]
struct ExpectOps {
    ops: Vec<PlanOp>,
    /// Number of hidden columns.
    columns: usize,
    /// Hidden columns with the violations for which rows are taken out.
    taken_out: Vec<String>,
}

impl ExpectOps {
    /// Adds the columns that hold what violates each rule, then the rules over them.
    fn add_rules(&mut self, rules: Vec<BoundExpectation>, scope: &BindScope<'_>) -> Result<()> {
        let mut judged = Vec::new();
        for mut rule in rules {
            let hidden = format!("{VIOLATION_PREFIX}{}", self.columns);
            self.columns += 1;
            if let Some(sql) = &rule.column {
                for ask in &mut rule.asks {
                    ask.inputs = vec![hidden.clone()];
                }
                let violations = violation_column(&hidden, sql, &self.taken_out, scope)?;
                self.add_violations(violations, &rule, scope)?;
            }
            judged.push(PlanOp::Map(MapOp::expecting(rule.asks, rule.expectation)));
        }
        self.ops.append(&mut judged);
        Ok(())
    }

    /// Adds the column that holds what violates a rule.
    fn add_violations(
        &mut self,
        violations: MapOp,
        rule: &BoundExpectation,
        scope: &BindScope<'_>,
    ) -> Result<()> {
        let columns = violations.writes.clone();
        self.ops.push(PlanOp::Map(violations));
        if rule.expectation.policy != ExpectationPolicy::Quarantine {
            return Ok(());
        }
        for column in &columns {
            match &rule.passing {
                PassingRows::None => self.taken_out.push(column.name().clone()),
                PassingRows::All => {}
                PassingRows::From(time) => {
                    if let Some(of_history) = violations_of_history(column, time, scope)? {
                        let names = of_history.writes.iter().map(|field| field.name().clone());
                        self.taken_out.extend(names);
                        self.ops.push(PlanOp::Map(of_history));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Transform for ExpectRows {
    fn change(&self, config: &mut Value, change: &StepChange<'_>) {
        let items = config.as_array_mut().into_iter().flatten();
        for (item, rule) in items.zip(&self.0) {
            match change {
                StepChange::PassRules { rules, from }
                    if rule.policy == FailurePolicy::Quarantine =>
                {
                    item["of_labels"] = rules.iter().map(String::as_str).collect();
                    item["history_until"] = Value::from(*from);
                }
                StepChange::WarnOnly if rule.policy == FailurePolicy::Fail => {
                    item["policy"] = Value::from("warn");
                }
                _ => {}
            }
        }
    }

    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if self.0.is_empty() {
            return Err(
                bad_value("no rule is listed").hint("write `- expect: [{ not_null: [qty] }]`")
            );
        }
        let takes_out =
            |bound: &BoundExpectation| bound.expectation.policy == ExpectationPolicy::Quarantine;
        let (first, then): (Vec<_>, Vec<_>) =
            bind_rules(&self.0, scope)?.into_iter().partition(takes_out);
        // Rows are taken out between the rules that say so and the others.
        let mut built = ExpectOps::default();
        let takes_rows_out = !first.is_empty();
        built.add_rules(first, scope)?;
        if takes_rows_out {
            let columns = std::mem::take(&mut built.taken_out);
            let valued = self.columns_made_whole();
            built.ops.push(keep_by_violation(&columns, false, valued));
        }
        built.add_rules(then, scope)?;
        let mut ops = built.ops;
        ops.push(PlanOp::keep_columns(
            scope.schema.fields().iter().map(|field| field.name()),
        ));
        Ok(ops)
    }
}
