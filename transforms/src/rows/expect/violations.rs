//! `violations`: the rows that violate rules.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use forebay_model::{Fault, Pipeline, PipelineNode, Result, SpecLocation, Step, codes};
use forebay_plan::{BindScope, ConfiguredTransform, ExpectationJudge, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bind::{bind_rules, keep_by_violation, violation_column};
use super::{FailurePolicy, RowExpectation};
use crate::shared::bad_value;

/// Columns that are added.
const RULE: &str = "violated_rule";
const VALUE: &str = "violating_value";

/// Keeps the rows that violate one of the rules, and adds `violated_rule` and `violating_value` (texts): the first of the
/// rules, in their order, that the row violates, and its value there. Rules are those of `expect` that tell of single rows:
/// `not_null`, `range`, `in_set` and `sql`.
///
/// A sink with `quarantined: true` reads such a step of its own.
///
/// ```yaml
/// - violations: [{ not_null: [price] }]
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(transparent)]
#[setters(fn violations(rules), example = r#"violations([RowExpectation::not_null(["price"])])"#)]
pub struct Violations(pub Vec<RowExpectation>);

impl ConfiguredTransform for Violations {
    const NAME: &'static str = "violations";
}

impl Transform for Violations {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let mut ops = Vec::new();
        let mut hidden = Vec::new();
        let mut names = Vec::new();
        for (number, bound) in bind_rules(&self.0, scope)?.into_iter().enumerate() {
            let is_of_rows = matches!(bound.expectation.judge, ExpectationJudge::Rows(_));
            let Some(sql) = bound.column.filter(|_| is_of_rows) else {
                let message = format!(
                    "`{}` does not tell which rows violate it",
                    bound.expectation.name
                );
                return Err(bad_value(message).hint("use not_null, range, in_set or sql"));
            };
            let name = format!("__violation_{number}");
            ops.push(PlanOp::Map(violation_column(&name, &sql, &[], scope)?));
            hidden.push(name);
            names.push(bound.expectation.name);
        }
        if hidden.is_empty() {
            return Err(
                bad_value("no rule is listed").hint("write `- violations: [{ not_null: [qty] }]`")
            );
        }
        let schema: &Schema = scope.schema;
        if let Some(taken) = [RULE, VALUE]
            .into_iter()
            .find(|name| schema.field_with_name(name).is_ok())
        {
            let fault = Fault::new(
                codes::DUPLICATE,
                format!("there is a column `{taken}` already"),
            )
            .column(taken);
            return Err(fault.hint("rename it before this step"));
        }
        let added = [RULE, VALUE].map(|name| Field::new(name, DataType::Utf8, false));
        let kernel = move |inputs: &[ArrayRef], rows: usize| first_violations(&names, inputs, rows);
        ops.push(keep_by_violation(&hidden, true, Vec::new()));
        ops.push(PlanOp::Map(MapOp::new(hidden, added, kernel)));
        let columns = schema.fields().iter().map(|field| field.name().as_str());
        ops.push(PlanOp::keep_columns(columns.chain([RULE, VALUE])));
        Ok(ops)
    }
}

/// The rule and the value of the first column with a value, for each row.
fn first_violations(rules: &[String], columns: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>> {
    let columns: Vec<ArrayRef> = columns
        .iter()
        .map(|column| cast(column, &DataType::Utf8))
        .collect::<Result<_, _>>()?;
    let columns: Vec<&StringArray> = columns.iter().map(|column| column.as_string()).collect();
    let mut violated_rules = StringBuilder::new();
    let mut values = StringBuilder::new();
    for row in 0..rows {
        let mut row_columns = columns.iter();
        match row_columns.position(|column| column.is_valid(row)) {
            Some(rule) => {
                violated_rules.append_value(&rules[rule]);
                values.append_value(columns[rule].value(row));
            }
            None => {
                violated_rules.append_value("");
                values.append_value("");
            }
        }
    }
    Ok(vec![
        Arc::new(violated_rules.finish()),
        Arc::new(values.finish()),
    ])
}

/// The rules by which a step takes out rows, without what happens to them.
fn quarantine_rules(step: &Step) -> Vec<RowExpectation> {
    if step.kind != super::ExpectRows::NAME {
        return Vec::new();
    }
    let rules: Vec<RowExpectation> =
        serde_json::from_value(step.config.clone()).unwrap_or_default();
    let taking_out = rules
        .into_iter()
        .filter(|rule| rule.policy == FailurePolicy::Quarantine);
    taking_out
        .map(|rule| RowExpectation {
            policy: FailurePolicy::default(),
            at_most: None,
            ..rule
        })
        .collect()
}

/// Adds a step with the rows that the `expect` of another one takes out, and gives its name.
pub fn add_quarantined_step(
    pipeline: &mut Pipeline,
    step: &str,
    at: Option<&SpecLocation>,
) -> Result<String> {
    let name = format!("{step}.quarantined");
    if pipeline.nodes.iter().any(|node| node.name == name) {
        return Ok(name);
    }
    let missing = |message: String| {
        let fault = Fault::new(codes::BAD_VALUE, message).at(at);
        fault.hint(
            "`quarantined: true` writes the rows that an `expect` of the step takes out by \
             `policy: quarantine`",
        )
    };
    let Some(node) = pipeline.nodes.iter().find(|node| node.name == step) else {
        return Err(missing(format!(
            "`{step}` is not a step, so it has no quarantined rows"
        )));
    };
    let rules = node.steps.iter().map(quarantine_rules).enumerate();
    let mut quarantining = rules.filter(|(_, rules)| !rules.is_empty());
    let (index, rules) = match (quarantining.next(), quarantining.next()) {
        (Some(only), None) => only,
        (None, _) => {
            return Err(missing(format!(
                "no rule of `{step}` has `policy: quarantine`"
            )));
        }
        (Some(_), Some(_)) => {
            return Err(missing(format!(
                "`{step}` takes out rows at several places: write their rules in one `expect`"
            )));
        }
    };
    let config = serde_json::to_value(Violations(rules))
        .map_err(|error| Fault::internal("the rules of a step").cause(error))?;
    let violations = Step {
        kind: Violations::NAME.to_owned(),
        config,
        at: node.steps[index].at.clone(),
    };
    let mut steps = node.steps[..index].to_vec();
    steps.push(violations);
    let quarantined = PipelineNode {
        name: name.clone(),
        steps,
        ..node.clone()
    };
    pipeline.nodes.push(quarantined);
    Ok(name)
}
