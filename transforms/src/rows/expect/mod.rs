//! `expect`: what the rows of a step must be.

mod rule;

use std::fmt;

use arrow::datatypes::{Field, Schema};
use forebay_model::{Fault, Result};
use forebay_plan::{BindScope, ConfiguredTransform, ExpectationPolicy, MapOp, PlanOp, Transform};
use indexmap::IndexMap;
use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use self::rule::{BoundExpectation, ViolationColumn};
use crate::shared::bad_value;
use crate::time::LengthSpec;

/// Expects something of the rows at this place: of a source where it comes first, of a sink where it comes last. Rows
/// stay as they are.
///
/// Each item is one rule, with `policy` (`fail` or `warn`) and `at_most`, the share of rows that may violate it
/// (`0.1%`). Rules: `not_null` and `unique` (columns; NaN is a value), `range` (least and greatest value, or null for no
/// bound), `in_set` (values), `sql` (a condition on a row), `rows` (least and greatest number of rows), `fresh` (greatest
/// age of the last time of a column, at the time of the run or the end of its interval). A null violates `not_null` alone;
/// in `unique`, it is a value. NaN is above every range.
///
/// Rules are checked in the passes that learn, before anything is published. Where one with `policy: fail` does not hold,
/// nothing of the run is published (FB0216, exit 65). The fault names the rule, the number of rows and the ten most
/// frequent values that violate it. With `apply`, the rows of that run are checked.
///
/// State: counts; for `unique` all distinct keys with their counts, spilled beyond the budget.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(rename = "Expect")]
pub struct ExpectRows(pub Vec<RowExpectation>);

/// One rule, and what happens when it does not hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RowExpectation {
    /// Columns that have a value in every row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_null: Vec<String>,
    /// Columns whose values together come once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unique: Vec<String>,
    /// The least and the greatest value by column: numbers, dates or timestamps; null for no bound.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub range: IndexMap<String, [Option<ExpectedValue>; 2]>,
    /// The values that a column may have.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub in_set: IndexMap<String, Vec<ExpectedValue>>,
    /// A condition that holds for every row. Where it is null, it counts as held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "sql"))]
    pub sql: Option<String>,
    /// How many rows there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<ExpectedRows>,
    /// How old the last time of a column may be, such as `2d`.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub fresh: IndexMap<String, LengthSpec>,
    /// What happens when the rule does not hold.
    pub policy: FailurePolicy,
    /// The share of rows that may violate the rule, such as `0.1%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<ErrorBudget>,
}

/// What happens when a rule does not hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailurePolicy {
    /// Nothing of the run is published.
    #[default]
    Fail,
    /// The summary and an event tell of it.
    Warn,
}

/// A value of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ExpectedValue {
    /// True or false.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A text, a date or a timestamp.
    Text(String),
}

/// How many rows there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectedRows {
    /// At least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// At most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

/// A share of rows, from 0 to 1: a number, or a text such as `0.1%`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ErrorBudget(pub f64);

impl fmt::Display for ErrorBudget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}%", 100.0 * self.0)
    }
}

impl Serialize for ErrorBudget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for ErrorBudget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Share(f64),
            Text(String),
        }
        let share = match Written::deserialize(deserializer)? {
            Written::Share(share) => Some(share),
            Written::Text(text) => text
                .trim()
                .strip_suffix('%')
                .and_then(|number| number.trim().parse().ok())
                .map(|percent: f64| percent / 100.0),
        };
        share
            .filter(|share| (0.0..=1.0).contains(share))
            .map(ErrorBudget)
            .ok_or_else(|| serde::de::Error::custom("`at_most` is a share of rows: write 0.1% or 0.001"))
    }
}

impl JsonSchema for ErrorBudget {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ErrorBudget".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        json_schema!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 1 },
            { "type": "string", "pattern": r"^\s*[0-9]*\.?[0-9]+\s*%\s*$" }
        ] })
    }
}

impl From<FailurePolicy> for ExpectationPolicy {
    fn from(policy: FailurePolicy) -> Self {
        match policy {
            FailurePolicy::Fail => ExpectationPolicy::Fail,
            FailurePolicy::Warn => ExpectationPolicy::Warn,
        }
    }
}

impl ConfiguredTransform for ExpectRows {
    const NAME: &'static str = "expect";
}

impl Transform for ExpectRows {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if self.0.is_empty() {
            return Err(bad_value("no rule is listed").hint("write `- expect: [{ not_null: [qty] }]`"));
        }
        let mut faults = Vec::new();
        let mut bound = Vec::new();
        for rule in &self.0 {
            match rule.bind(scope) {
                Ok(rules) => bound.extend(rules),
                Err(fault) => faults.push(fault),
            }
        }
        if let Some(fault) = Fault::combine(faults) {
            return Err(fault);
        }
        // Columns that hold what violates each rule, the rules over them, and the columns as they were.
        let mut columns = Vec::new();
        let mut rules = Vec::new();
        for (number, BoundExpectation { column, mut asks, expectation }) in bound.into_iter().enumerate() {
            let hidden = format!("__expect_{number}");
            if let Some(ViolationColumn(sql)) = column {
                let compiled = scope.sql.expression(&sql, scope.schema)?;
                let field = Field::new(&hidden, compiled.field.data_type().clone(), true);
                let kernel = compiled.kernel;
                asks.iter_mut().for_each(|ask| ask.inputs = vec![hidden.clone()]);
                columns
                    .push(PlanOp::Map(MapOp::new(compiled.reads, [field], move |inputs, rows| kernel(inputs, rows))));
            }
            rules.push(PlanOp::Map(MapOp::expecting(asks, expectation)));
        }
        let own: &Schema = scope.schema;
        let kept = own.fields().iter().map(|field| (field.name().clone(), field.name().clone())).collect();
        Ok(columns.into_iter().chain(rules).chain([PlanOp::Project(kept)]).collect())
    }
}
