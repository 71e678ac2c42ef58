//! Columns without a value in any row of the future that a step gives one: the model of a forecast sees no missing value,
//! and says nothing that it learned of them.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field};
use forebay_analyze::ColumnCounts;
use forebay_commit::Manifest;
use forebay_contract::{HORIZON_STEP, ModelPredictor};
use forebay_model::{Fault, IdBuilder, LedgerEntry, PipelineSink, Result, RowChange, codes};
use forebay_plan::{
    AnalyzerId, AnalyzerRequest, BoundAnalyzer, BoundOp, BoundPipeline, FutureFlow, MapOp,
    NullValue, OpStream, PlanOp, future_streams, hidden_nulls,
};
use forebay_storage::Event;
use serde_json::json;

use super::known_columns::shortened_all;
use super::missing_features::{MissingFeatures, missing_text};
use super::missing_values::missing_values;
use super::step::PredictTransform;
use crate::executor::RunExecutor;

/// Hidden column that is null where a column is missing.
const HAS_VALUE: &str = "__has_value";

/// Prefix of columns that steps write for themselves.
pub(super) const HELPER_PREFIX: &str = "__";

/// A column in front of an operation that writes values for its nulls.
struct HiddenColumn<'b> {
    name: String,
    op: &'b BoundOp,
    /// Number of operations of the rows of the future in front of it.
    position: usize,
    value: NullValue,
}

/// Rows of the future up to the operation that predicts.
struct FutureRows<'b> {
    bound: &'b BoundPipeline,
    future: &'b FutureFlow,
    stream: &'b OpStream,
    /// Number of operations in front of the prediction.
    end: usize,
}

/// Columns without a value, by the step that writes values for them.
type ColumnsByStep = BTreeMap<String, Vec<String>>;

impl RunExecutor<'_> {
    /// Refuses a forecast whose model predicts by what a step makes of a column that is missing in all rows of the future.
    /// The run warns of a column that the step fills, or that the forecast accepts. Columns that are known in advance are checked
    /// before.
    pub(super) fn check_hidden_features(
        &self,
        sink: &PipelineSink,
        manifest: &Manifest,
        future: &FutureFlow,
        model: &dyn ModelPredictor,
    ) -> Result<()> {
        let rows = manifest.rows;
        if rows == 0 || model.predicts_empty_rows() {
            return Ok(());
        }
        let mut filled = ColumnsByStep::new();
        let mut encoded = ColumnsByStep::new();
        for column in self.hidden_columns(sink, manifest, future, model)? {
            let by_step = match column.value {
                NullValue::Encoded => &mut encoded,
                NullValue::Filled | NullValue::Computed => &mut filled,
            };
            let columns = by_step.entry(column.op.label.clone()).or_default();
            columns.push(column.name);
        }
        for (step, columns) in &filled {
            let missing = missing_text(columns, rows, &sink.name);
            let message = format!("{missing}: the model takes what `{step}` writes in its place");
            self.session.watch.on_event(Event::Warning { message });
        }
        if encoded.is_empty() {
            return Ok(());
        }
        let is_accepted = self.accepts_missing_features(sink)?;
        let mut faults = Vec::new();
        for (step, columns) in &encoded {
            let missing = missing_text(columns, rows, &sink.name);
            if is_accepted {
                let message = format!("{missing}: the model takes what `{step}` makes of nulls");
                self.session.watch.on_event(Event::Warning { message });
            } else {
                faults.push(encoded_fault(&missing, step, columns));
            }
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    /// The columns that are missing in all rows of the future, and whose nulls a model does not see.
    fn hidden_columns<'b>(
        &'b self,
        sink: &PipelineSink,
        manifest: &Manifest,
        future: &'b FutureFlow,
        model: &dyn ModelPredictor,
    ) -> Result<Vec<HiddenColumn<'b>>> {
        let bound = &self.program.bound;
        let Some(stream) = future.rows.first() else {
            return Ok(Vec::new());
        };
        let prediction = format!("{}.{}", sink.from, PredictTransform::NAME);
        let mut ops = stream.ops.iter();
        let end = ops.position(|op| bound.ops[*op].label == prediction);
        let rows = FutureRows {
            bound,
            future,
            stream,
            end: end.unwrap_or(stream.ops.len()),
        };
        let counts = manifest.counts();
        let entries = counts.changes.entries();
        let missing = MissingFeatures::new(entries, manifest.rows, &prediction);
        let mut features = model.decisive_columns();
        features.retain(|name| name != HORIZON_STEP && !missing.unfilled.contains(name));
        let known_names = self.known_names();
        let mut hidden = Vec::new();
        let mut uncounted = Vec::new();
        for column in rows.hidden_columns(features) {
            if known_names.contains(&&column.name) || column.name.starts_with(HELPER_PREFIX) {
                continue;
            }
            // Series have their keys in rows of the future, too.
            if future.keys.contains(&column.name) {
                continue;
            }
            match rows.counted(&column, entries) {
                Some(count) if count == manifest.rows => hidden.push(column),
                Some(_) => {}
                None => uncounted.push(column),
            }
        }
        hidden.extend(self.missing_in_all_rows(&rows, uncounted)?);
        Ok(hidden)
    }

    /// Those columns that have no value in any row of the future.
    fn missing_in_all_rows<'b>(
        &self,
        rows: &FutureRows<'b>,
        columns: Vec<HiddenColumn<'b>>,
    ) -> Result<Vec<HiddenColumn<'b>>> {
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let mut bound = rows.bound.clone();
        let mut counted = BTreeMap::new();
        for column in columns {
            if let Some(analyzer) = rows.add_count(&mut bound, &column) {
                counted.insert(analyzer, column);
            }
        }
        if counted.is_empty() {
            return Ok(Vec::new());
        }
        let analyzers: BTreeSet<AnalyzerId> = counted.keys().copied().collect();
        let findings = self.learn_over(bound, analyzers)?;
        let mut missing = Vec::new();
        for (analyzer, column) in counted {
            let finding = findings.get(&analyzer);
            let finding = finding
                .ok_or_else(|| Fault::internal("a feature whose values nothing has counted"))?;
            let row_count = finding.number("rows")?.unwrap_or(0.0) as u64;
            let nulls = finding.number("nulls")?.unwrap_or(0.0) as u64;
            if row_count > 0 && nulls == row_count {
                missing.push(column);
            }
        }
        Ok(missing)
    }
}

impl<'b> FutureRows<'b> {
    /// The columns that features are computed of in the same row, and whose nulls do not show in them.
    fn hidden_columns(&self, features: Vec<String>) -> Vec<HiddenColumn<'b>> {
        let mut live: BTreeSet<String> = features.into_iter().collect();
        let mut hidden = BTreeMap::new();
        for position in (0..self.end).rev() {
            let op = &self.bound.ops[self.stream.ops[position]];
            match &op.op {
                PlanOp::Map(map) => {
                    if !map.writes.iter().any(|field| live.contains(field.name())) {
                        continue;
                    }
                    let nulls = hidden_nulls(self.bound, self.stream, position);
                    if let Some(nulls) = nulls.filter(|_| !writes_helpers_only(map)) {
                        // A step may read a column once for each column that it writes.
                        for name in nulls.columns {
                            let column = HiddenColumn {
                                name: name.clone(),
                                op,
                                position,
                                value: nulls.value,
                            };
                            hidden.insert((op.label.as_str(), name), column);
                        }
                    }
                    for field in &map.writes {
                        live.remove(field.name());
                    }
                    live.extend(map.reads.iter().cloned());
                }
                PlanOp::Project(columns) => {
                    live = live
                        .into_iter()
                        .map(|name| name_before(columns, name))
                        .collect();
                }
                // Windows and joins look at other rows.
                op => live.retain(|name| !op.is_written(name)),
            }
        }
        hidden.into_values().collect()
    }

    /// The number of rows of the future in which a step has filled a column, where the ledger has no other rows.
    fn counted(&self, column: &HiddenColumn<'_>, entries: &[LedgerEntry]) -> Option<u64> {
        let PlanOp::Map(map) = &column.op.op else {
            return None;
        };
        let mut counts = map.value_counts.iter();
        if !counts.any(|count| count.change == RowChange::Imputed) {
            return None;
        }
        // A window behind the step lets it fill rows of the history, too.
        let mut ops_behind = self.stream.ops[column.position..self.end].iter();
        if ops_behind.any(|op| self.bound.ops[*op].op.is_over_series()) {
            return None;
        }
        let mut filled = 0;
        for entry in entries {
            let is_written = entry
                .column
                .as_ref()
                .is_some_and(|name| map.is_written(name));
            if is_written && entry.change == RowChange::Imputed && entry.step == column.op.label {
                filled += entry.count;
            }
        }
        Some(filled)
    }

    /// Adds an analyzer that counts the rows of the future in which a column is missing; `None` where that is not worth
    /// reading the history.
    fn add_count(
        &self,
        bound: &mut BoundPipeline,
        column: &HiddenColumn<'_>,
    ) -> Option<AnalyzerId> {
        let behind = self.stream.ops.len() - column.position;
        let rows = FutureFlow {
            history: shortened_all(&self.future.history, behind),
            rows: shortened_all(&self.future.rows, behind),
            ..self.future.clone()
        };
        let (mut streams, part) = future_streams(bound, &rows, slice::from_ref(&column.name));
        // Expressions say themselves what nulls become, and many features are expressions of windows.
        if part.is_some() && column.value == NullValue::Computed {
            return None;
        }
        let written = Field::new(HAS_VALUE, DataType::Boolean, true);
        let marks = MapOp::new([&column.name], [written], mark_values);
        let mut identity = IdBuilder::new("values of a feature");
        identity.json(&json!(column.name));
        let op = bound.ops.len();
        bound.ops.push(BoundOp {
            label: column.op.label.clone(),
            identity: identity.finish(),
            op: PlanOp::Map(marks),
            asks: Vec::new(),
            at: column.op.at.clone(),
        });
        for stream in &mut streams {
            stream.ops.push(op);
        }
        let analyzer = bound.asks.len();
        bound.asks.push(BoundAnalyzer {
            op: 0,
            ask: AnalyzerRequest::new(ColumnCounts, [HAS_VALUE]).per_run(),
            streams,
            part,
            carried: None,
            held: None,
        });
        Some(analyzer)
    }
}

/// True for an operation of whose columns a model sees none, such as the number of a fold.
fn writes_helpers_only(map: &MapOp) -> bool {
    let mut writes = map.writes.iter();
    writes.all(|field| field.name().starts_with(HELPER_PREFIX))
}

/// The name of a column in front of a projection.
pub(super) fn name_before(columns: &[(String, String)], name: String) -> String {
    match columns.iter().find(|(_, to)| *to == name) {
        Some((from, _)) => from.clone(),
        None => name,
    }
}

/// True where a column has a value, and null where it is missing.
fn mark_values(columns: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>> {
    let mut marks = Vec::with_capacity(columns.len());
    for column in columns {
        let all_rows = BooleanArray::from(vec![true; rows]);
        marks.push(nullif(&all_rows, &missing_values(column)?)?);
    }
    Ok(marks)
}

fn encoded_fault(missing: &str, step: &str, columns: &[String]) -> Fault {
    let message = format!("{missing}, and its model learned from what `{step}` makes of it");
    let fault = Fault::new(codes::BAD_ROW, message);
    let fault = match columns {
        [only] => fault.column(only),
        _ => fault,
    };
    fault.hint(
        "give it values in rows of the future: by `carry` of `future_rows`, by a join, or by a \
         lag of at least the horizon whose source reaches to the end of the history; or drop it, \
         or accept it: `missing: accept` under `predict`",
    )
}
