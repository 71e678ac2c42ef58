//! Days since and until events that another step or source lists.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use forebay_analyze::LatestRows;
use forebay_model::{Fault, Finding, Result, type_words};
use forebay_plan::{AnalyzerRequest, BindScope, LoweredMap, MapOp, PlanOp, unknown_column};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::days::days_of;
use crate::shared::{bad_value, finding_at};

/// A table of events: one row for each day of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventTable {
    /// The step or source.
    pub with: String,
    /// Its column of dates or timestamps.
    pub date: String,
    /// Its column with the kind of each event.
    pub kind: String,
    /// The kinds that get columns.
    pub kinds: Vec<String>,
}

impl EventTable {
    /// The operations for a column: two columns for each kind.
    pub(super) fn ops(&self, scope: &BindScope<'_>, field: &Field) -> Result<Vec<PlanOp>> {
        if self.kinds.is_empty() {
            return Err(bad_value("`kinds` is empty")
                .hint("list the kinds of events that get columns, as they stand in the table"));
        }
        let table = (scope.other)(&self.with)?;
        let of_table = |name: &String| {
            table
                .field_with_name(name)
                .map_err(|_| unknown_column(name, &table))
        };
        let date = of_table(&self.date)?.data_type().clone();
        let kind = of_table(&self.kind)?.data_type().clone();
        if !matches!(
            date,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)
        ) {
            return Err(bad_value(format!(
                "`{}` of `{}` is {}, not a date or timestamp",
                self.date,
                self.with,
                type_words(&date)
            )));
        }
        let mut ops = Vec::new();
        for event in &self.kinds {
            let names = ["since", "until"]
                .map(|direction| format!("{}_days_{direction}_{event}", field.name()));
            let writes = names.map(|name| Field::new(name, DataType::Int32, true));
            let analyzer = LatestRows {
                keys: vec![kind.clone(), date.clone()],
                time: date.clone(),
                values: Vec::new(),
                month_days: false,
                times_of_day: false,
            };
            let inputs = [&self.kind, &self.date, &self.date].map(String::clone);
            let request = AnalyzerRequest::new(analyzer, inputs).read_from(&self.with);
            let kind = event.clone();
            let map = MapOp::fitted([field.name()], writes, [request], move |findings| {
                let events = days_of_events(finding_at(findings, 0)?, &kind)?;
                Ok(LoweredMap::new(move |columns, _| {
                    let Some(column) = columns.first() else {
                        return Err(Fault::internal("events of no column"));
                    };
                    Ok(distances(&events, &days_of(column)?))
                }))
            });
            ops.push(PlanOp::Map(map));
        }
        Ok(ops)
    }
}

/// The days of the events of a kind.
fn days_of_events(finding: &Finding, kind: &str) -> Result<BTreeSet<i32>> {
    let kinds = cast(finding.column("key1")?, &DataType::Utf8)?;
    let kinds = kinds.as_string::<i32>();
    let days = days_of(finding.column("key2")?)?;
    let mut events = BTreeSet::new();
    for (row, day) in days.into_iter().enumerate() {
        if let Some(day) = day.filter(|_| kinds.is_valid(row) && kinds.value(row) == kind) {
            events.insert(day);
        }
    }
    Ok(events)
}

/// Days since the last event and until the next one; null where there is none.
fn distances(events: &BTreeSet<i32>, days: &[Option<i32>]) -> Vec<ArrayRef> {
    let mut since = Vec::with_capacity(days.len());
    let mut until = Vec::with_capacity(days.len());
    for day in days {
        let days_since = day.and_then(|day| {
            let event = events.range(..=day).next_back()?;
            Some(day - event)
        });
        let days_until = day.and_then(|day| {
            let event = events.range(day..).next()?;
            Some(event - day)
        });
        since.push(days_since);
        until.push(days_until);
    }
    let since: ArrayRef = Arc::new(Int32Array::from(since));
    let until: ArrayRef = Arc::new(Int32Array::from(until));
    vec![since, until]
}
