//! `filter`: keeps the rows for which a condition is true.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::compute::or_kleene;
use arrow::datatypes::Field;
use forebay_model::{Fault, Result, RowChange, TimeCutoff, ticks};
use forebay_plan::{
    BindScope, ColumnKernel, ConfiguredTransform, FilterOp, LearningFilter, PlanOp, StepChange,
    StepFacts, Transform,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Keeps the rows for which a SQL condition is true; false and null remove the row.
///
/// Columns stay as they are. Learns nothing, holds nothing. NaN compares as in SQL: it equals
/// itself and is above all numbers; -0.0 equals 0.0. Removed rows are counted as `filtered`.
///
/// A condition about the label is for learning alone: `filter: { sql: "qty IS NOT NULL", when: learning }`.
/// `run`, `fit` and feeds apply it. Rows that are scored have no label yet: `apply`, `predict`, rows of the
/// future and loaded artifacts keep them. Rows that are only history are filtered there, too, so that windows
/// see what they saw in the run.
///
/// ```yaml
/// - filter: "qty IS NOT NULL"
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FilterRows {
    /// The condition, for all rows.
    Condition(#[schemars(extend("format" = "sql"))] String),
    /// The condition, and the rows that it is for.
    Rows(ConditionalFilter),
}

/// A condition, and the rows that it is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConditionalFilter {
    /// The condition.
    #[schemars(extend("format" = "sql"))]
    pub sql: String,
    /// The rows that it is for.
    #[serde(default)]
    pub when: FilterScope,
    /// The time from which on rows are scored, and pass. Set where an artifact is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub history_until: Option<String>,
}

/// The rows that a filter is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FilterScope {
    /// All rows.
    #[default]
    Always,
    /// Rows to learn from; rows that are scored pass.
    Learning,
}

/// Keeps the rows for which a SQL condition is true.
///
/// ```
/// use forebay_transforms::{FilterScope, filter};
///
/// let sold = filter("qty IS NOT NULL").when(FilterScope::Learning);
/// # let _ = sold;
/// ```
pub fn filter(condition: impl Into<String>) -> FilterRows {
    FilterRows::Condition(condition.into())
}

impl FilterRows {
    /// Sets the rows that it is for.
    pub fn when(self, when: FilterScope) -> FilterRows {
        let (sql, history_until) = match self {
            FilterRows::Condition(sql) => (sql, None),
            FilterRows::Rows(filter) => (filter.sql, filter.history_until),
        };
        FilterRows::Rows(ConditionalFilter {
            sql,
            when,
            history_until,
        })
    }

    fn is_for_learning(&self) -> bool {
        match self {
            FilterRows::Condition(_) => false,
            FilterRows::Rows(filter) => filter.when == FilterScope::Learning,
        }
    }
}

impl ConfiguredTransform for FilterRows {
    const NAME: &'static str = "filter";
}

impl Transform for FilterRows {
    fn facts(&self) -> StepFacts {
        StepFacts {
            learning_filter: self.is_for_learning().then_some(LearningFilter::RowsOnly),
            ..StepFacts::default()
        }
    }

    fn change(&self, config: &mut Value, change: &StepChange<'_>) {
        let StepChange::PassScoredRows { from } = change else {
            return;
        };
        if !self.is_for_learning() {
            return;
        }
        match from {
            Some(from) => config["history_until"] = Value::from(*from),
            None => config["sql"] = Value::from("TRUE"),
        }
    }

    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let (sql, learning, history_until) = match self {
            FilterRows::Condition(sql) => (sql, false, None),
            FilterRows::Rows(filter) => (
                &filter.sql,
                filter.when == FilterScope::Learning,
                filter.history_until.as_deref(),
            ),
        };
        let condition = scope.sql.condition(sql, scope.schema)?;
        let Some(until) = history_until else {
            return Ok(vec![PlanOp::Keep(FilterOp {
                reads: condition.reads,
                kernel: condition.kernel,
                condition: condition.logical,
                learning,
                reason: RowChange::Filtered,
                valued: Vec::new(),
            })]);
        };
        // Rows that do not tell their time may be scored.
        let Some(time) = &scope.series.time else {
            return Ok(Vec::new());
        };
        let first_scored = first_scored(until, scope.field(time)?)?;
        let reads = std::iter::once(time.clone()).chain(condition.reads);
        Ok(vec![PlanOp::Keep(FilterOp {
            reads: reads.collect(),
            kernel: passing_from(first_scored, condition.kernel),
            // The condition must not prune row groups with rows that are scored.
            condition: None,
            learning,
            reason: RowChange::Filtered,
            valued: Vec::new(),
        })])
    }
}

/// The first tick of rows that are scored.
pub(super) fn first_scored(history_until: &str, time: &Field) -> Result<i64> {
    let last_known = TimeCutoff::before(history_until).last_tick(time)?;
    Ok(last_known.saturating_add(1))
}

/// Marks the rows from a time on. Rows without a time are not among them.
pub(super) fn scored_rows(first: i64, time: &ArrayRef) -> Result<BooleanArray> {
    let is_scored = |tick: Option<i64>| Some(tick.is_some_and(|tick| tick >= first));
    Ok(ticks(time)?.iter().map(is_scored).collect())
}

/// Keeps rows from a time on, and those before it for which a condition is true. The time is the first input.
pub(super) fn passing_from(first: i64, condition: ColumnKernel) -> ColumnKernel {
    Arc::new(move |inputs: &[ArrayRef], rows: usize| {
        let Some((time, inputs)) = inputs.split_first() else {
            return Err(Fault::internal("a filter without the time of its rows"));
        };
        let scored = scored_rows(first, time)?;
        let holds = condition(inputs, rows)?;
        let keeps = match holds.first().and_then(|holds| holds.as_boolean_opt()) {
            Some(holds) => or_kleene(holds, &scored)?,
            None => scored,
        };
        Ok(vec![Arc::new(keeps) as ArrayRef])
    })
}
