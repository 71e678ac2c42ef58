//! Columns that end early and that a step fills: a forecast takes what the step writes as if the
//! column went on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, ScalarValue};
use datafusion::prelude::{Expr, lit};
use forebay_analyze::{ColumnCounts, ColumnMoments};
use forebay_commit::Manifest;
use forebay_contract::{HORIZON_STEP, ModelPredictor};
use forebay_model::{
    CalendarSpan, ColumnClock, Fault, Finding, IdBuilder, PipelineSink, Result, RowChange, ticks,
};
use forebay_plan::{
    AnalyzerId, AnalyzerRequest, BaseDataset, BoundAnalyzer, BoundOp, BoundPipeline, FilterOp,
    FutureFlow, MapOp, OpId, OpStream, PlanOp, hidden_nulls, slice_for_columns, source_column,
};
use forebay_storage::Event;
use forebay_window::{SeriesFrame, WindowFunction};
use serde_json::{Value, json};

use super::hidden_features::{HELPER_PREFIX, name_before};
use super::known_columns::last_written;
use super::missing_values::missing_values;
use super::step::PredictTransform;
use crate::executor::RunExecutor;
use crate::leak_check::{time_text, times};

/// Prefix of hidden columns about filled ones. Steps neither see nor drop columns that begin like
/// those of rows of the future.
const VALUE_PREFIX: &str = "__future_value_";

/// Hidden column that is null in rows behind the last value of a column.
const UNTIL_LAST: &str = "__future_until_last";

/// Hidden column that is null in rows without a value of a column.
const HAS_VALUE: &str = "__future_has_value";

/// Hidden column that is null in rows of the future that a value reaches.
const COVERED: &str = "__future_covered";

/// Lengths of the future that are read of the end of a history. A column without a value there is
/// read as a whole.
const TAIL_FUTURES: i64 = 4;

/// A column in front of a step that fills it.
#[derive(Clone)]
struct FilledColumn<'b> {
    name: String,
    op: &'b BoundOp,
    /// Number of operations of the rows of the future in front of the step.
    position: usize,
    /// Distance from a row to the oldest value that a feature is computed of.
    back: CalendarSpan,
}

/// The rows of a forecast, and those that they continue.
struct ForecastRows<'a, 'r> {
    run: &'a RunExecutor<'r>,
    sink: &'a PipelineSink,
    future: &'a FutureFlow,
    history: &'a OpStream,
    rows: &'a OpStream,
    /// The column of event times.
    time: &'a Field,
}

impl RunExecutor<'_> {
    /// Warns of columns that have no value near the end of the history, where a step fills them and
    /// features of the forecast are computed of nothing else. Columns whose values come and go are
    /// not told.
    pub(super) fn report_covered_columns(
        &self,
        sink: &PipelineSink,
        manifest: &Manifest,
        future: &FutureFlow,
        model: &dyn ModelPredictor,
    ) -> Result<()> {
        if manifest.rows == 0 || model.predicts_empty_rows() {
            return Ok(());
        }
        // Behind a union, operations lie at other places of each stream.
        let [history] = future.history.as_slice() else {
            return Ok(());
        };
        let [rows] = future.rows.as_slice() else {
            return Ok(());
        };
        let forecast = ForecastRows {
            run: self,
            sink,
            future,
            history,
            rows,
            time: future.source.field_with_name(&future.time)?,
        };
        let columns = forecast.filled_columns(model);
        if columns.is_empty() || !forecast.has_time_of_source() {
            return Ok(());
        }
        for message in forecast.warnings(&columns)? {
            self.session.watch.on_event(Event::Warning { message });
        }
        Ok(())
    }
}

impl<'a> ForecastRows<'a, '_> {
    /// Number of operations of the history in front of those that rows of the future have, too.
    fn operations_before(&self) -> usize {
        self.history.ops.len().saturating_sub(self.rows.ops.len())
    }

    /// True if the event times of the history are those of its source, by which row groups are
    /// skipped.
    fn has_time_of_source(&self) -> bool {
        let bound = &self.run.program.bound;
        // The rows of a query would be computed again.
        if !matches!(bound.bases[self.history.base], BaseDataset::Source(_)) {
            return false;
        }
        let earlier_rows = OpStream {
            base: self.history.base,
            ops: self.history.ops.first(self.operations_before()),
        };
        last_written(bound, &earlier_rows, &self.future.time) == Some(0)
    }

    /// The columns that steps fill and that features are computed of, each with the least distance
    /// from a row.
    fn filled_columns(&self, model: &dyn ModelPredictor) -> Vec<FilledColumn<'a>> {
        let bound = &self.run.program.bound;
        let prediction = format!("{}.{}", self.sink.from, PredictTransform::NAME);
        let mut ops = self.rows.ops.iter();
        let end = ops.position(|op| bound.ops[*op].label == prediction);
        let mut features = model.decisive_columns();
        features.retain(|name| name != HORIZON_STEP);
        let end = end.unwrap_or(self.rows.ops.len());
        let mut filled = filled_before(bound, self.rows, end, features);
        filled.retain(|column| {
            !column.name.starts_with(HELPER_PREFIX)
                && !self.future.keys.contains(&column.name)
                && !self.is_fed_back(&column.name)
                && !self.is_computed_of_series(column)
        });
        filled
    }

    /// True for a column that predictions fill.
    fn is_fed_back(&self, name: &str) -> bool {
        let mut ops = self.rows.ops.iter();
        ops.any(|op| match &self.run.program.bound.ops[*op].op {
            PlanOp::Map(map) => map
                .feedback
                .as_ref()
                .is_some_and(|feedback| feedback.label == name),
            _ => false,
        })
    }

    /// True for a column of windows or of joins that are sorted: its nulls may be those of the
    /// start of a series, and its values would be computed again.
    fn is_computed_of_series(&self, column: &FilledColumn<'_>) -> bool {
        let earlier_rows = OpStream {
            base: self.rows.base,
            ops: self.rows.ops.first(column.position),
        };
        is_of_series(&self.run.program.bound, &earlier_rows, &[&column.name])
    }

    fn warnings(&self, columns: &[FilledColumn<'a>]) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        let Some((first, last)) = self.future_range(columns)? else {
            return Ok(warnings);
        };
        let clock = ColumnClock::of(self.time.data_type())?;
        let nearest = nearest_columns(columns, clock.as_ref(), last);
        let Some(oldest) = nearest.iter().map(|(_, needed)| *needed).min() else {
            return Ok(warnings);
        };
        let future_length = last.saturating_sub(first).saturating_add(1);
        let tail = oldest.saturating_sub(future_length.saturating_mul(TAIL_FUTURES));
        let of_tail = self.last_values(&nearest, Some(tail))?;
        for ((column, needed), last_value) in nearest.iter().zip(of_tail) {
            if last_value.is_some_and(|time| time >= *needed) {
                continue;
            }
            let mut last_value = last_value;
            let mut from = Some(tail);
            if last_value.is_none() {
                from = None;
                let whole = [(column.clone(), *needed)];
                last_value = self.last_values(&whole, from)?.into_iter().flatten().next();
            }
            warnings.extend(self.warning(column, last_value, from)?);
        }
        Ok(warnings)
    }

    /// The first and the last time of the rows of the future.
    fn future_range(&self, columns: &[FilledColumn<'a>]) -> Result<Option<(i64, i64)>> {
        let mut learning = CoverLearning::new(self);
        let markers: Markers = columns
            .iter()
            .map(|column| (column.position, Vec::new()))
            .collect();
        let rows = learning.marked(self.rows, 0, &markers);
        let request = AnalyzerRequest::new(ColumnMoments, [source_column(&self.future.time)]);
        let analyzer = learning.ask(request, vec![rows]);
        let findings = learning.learn()?;
        let range = finding(&findings, analyzer)?;
        let first = range.number("min")?;
        let last = range.number("max")?;
        Ok(first
            .zip(last)
            .map(|(first, last)| (first as i64, last as i64)))
    }

    /// The last times at which columns have a value, of the history from a time on and of the
    /// future.
    fn last_values(
        &self,
        columns: &[(FilledColumn<'a>, i64)],
        from: Option<i64>,
    ) -> Result<Vec<Option<i64>>> {
        let mut learning = CoverLearning::new(self);
        let mut markers = Markers::new();
        for (index, (column, _)) in columns.iter().enumerate() {
            let written = Field::new(
                format!("{VALUE_PREFIX}{index}"),
                self.time.data_type().clone(),
                true,
            );
            let reads = [column.name.clone(), source_column(&self.future.time)];
            let map = MapOp::new(reads, [written], value_times);
            let facts = json!(["time of a value", column.name, index]);
            let op = learning.add_op(facts, PlanOp::Map(map));
            markers.entry(column.position).or_default().push(op);
        }
        let streams = learning.streams(&markers, from)?;
        let mut analyzers = Vec::with_capacity(columns.len());
        for index in 0..columns.len() {
            let value_time = format!("{VALUE_PREFIX}{index}");
            let request = AnalyzerRequest::new(ColumnMoments, [value_time]);
            analyzers.push(learning.ask(request, streams.clone()));
        }
        let findings = learning.learn()?;
        let mut last_values = Vec::with_capacity(columns.len());
        for analyzer in analyzers {
            let last = finding(&findings, analyzer)?.number("max")?;
            last_values.push(last.map(|time| time as i64));
        }
        Ok(last_values)
    }

    /// The warning of a column, unless its values come and go, or reach all rows of the future.
    fn warning(
        &self,
        column: &FilledColumn<'a>,
        last_value: Option<i64>,
        from: Option<i64>,
    ) -> Result<Option<String>> {
        let cover = self.cover(column, last_value, from)?;
        let comes_and_goes = cover.valued_rows < cover.past_rows - cover.valued_rows;
        if cover.covered_rows == 0 || comes_and_goes {
            return Ok(None);
        }
        if cover.covered_rows == cover.future_rows && self.is_told_of_rows(column) {
            return Ok(None);
        }
        let ends = match last_value {
            Some(time) => format!(
                "has its last value at {} in front of `{}`",
                time_text(time, self.time)?,
                column.op.label
            ),
            None => format!("has a value at no time in front of `{}`", column.op.label),
        };
        Ok(Some(format!(
            "`{}` {ends}, which fills it: {} of {} rows of the future in sink `{}` take nothing of \
             it but what the step writes",
            column.name, cover.covered_rows, cover.future_rows, self.sink.name
        )))
    }

    /// True if the run has warned of a column already, since it is missing in all rows of the
    /// future.
    fn is_told_of_rows(&self, column: &FilledColumn<'_>) -> bool {
        column.back == CalendarSpan::default()
            && !self.run.known_names().contains(&&column.name)
            && hidden_nulls(&self.run.program.bound, self.rows, column.position).is_some()
    }

    /// Counts the rows around the last value of a column.
    fn cover(
        &self,
        column: &FilledColumn<'a>,
        last_value: Option<i64>,
        from: Option<i64>,
    ) -> Result<Cover> {
        let mut learning = CoverLearning::new(self);
        let until_last = Field::new(UNTIL_LAST, DataType::Boolean, true);
        let has_value = Field::new(HAS_VALUE, DataType::Boolean, true);
        let covered = Field::new(COVERED, DataType::Boolean, true);
        let reads = [column.name.clone(), source_column(&self.future.time)];
        let time_type = self.time.data_type().clone();
        let back = column.back;
        let map = MapOp::new(reads, [until_last, has_value, covered], move |inputs, _| {
            let [values, times] = inputs else {
                return Err(Fault::internal("a filled column without its time"));
            };
            mark_cover(values, times, &time_type, back, last_value)
        });
        let facts = json!(["cover of a column", column.name, back, last_value]);
        let op = learning.add_op(facts, PlanOp::Map(map));
        let markers = Markers::from([(column.position, vec![op])]);
        let all_rows = learning.streams(&markers, from)?;
        let future_rows = vec![learning.marked(self.rows, 0, &markers)];
        let past = learning.ask_count(UNTIL_LAST, all_rows.clone());
        let valued = learning.ask_count(HAS_VALUE, all_rows);
        let covered = learning.ask_count(COVERED, future_rows);
        let findings = learning.learn()?;
        let covered = finding(&findings, covered)?;
        Ok(Cover {
            past_rows: counted(finding(&findings, past)?)?,
            valued_rows: counted(finding(&findings, valued)?)?,
            covered_rows: counted(covered)?,
            future_rows: covered.number("rows")?.unwrap_or(0.0) as u64,
        })
    }
}

/// Rows around the last value of a column.
struct Cover {
    /// Rows up to the last value.
    past_rows: u64,
    /// Those of them with a value.
    valued_rows: u64,
    /// Rows of the future that no value reaches.
    covered_rows: u64,
    future_rows: u64,
}

/// Added operations, by the number of operations of the rows of the future in front of them.
type Markers = BTreeMap<usize, Vec<OpId>>;

/// A program that learns facts about filled columns only.
struct CoverLearning<'f, 'a, 'r> {
    forecast: &'f ForecastRows<'a, 'r>,
    bound: BoundPipeline,
    analyzers: BTreeSet<AnalyzerId>,
}

impl<'f, 'a, 'r> CoverLearning<'f, 'a, 'r> {
    fn new(forecast: &'f ForecastRows<'a, 'r>) -> CoverLearning<'f, 'a, 'r> {
        CoverLearning {
            forecast,
            bound: forecast.run.program.bound.clone(),
            analyzers: BTreeSet::new(),
        }
    }

    /// Adds an operation that `facts` tell apart.
    fn add_op(&mut self, facts: Value, op: PlanOp) -> OpId {
        let mut identity = IdBuilder::new("filled column");
        identity.json(&facts);
        let id = self.bound.ops.len();
        self.bound.ops.push(BoundOp {
            label: format!("{}.filled", self.forecast.sink.from),
            identity: identity.finish(),
            op,
            asks: Vec::new(),
            at: self.forecast.sink.at.clone(),
        });
        id
    }

    /// The streams of the history, from a time on, and of the future, with operations between the
    /// others.
    fn streams(&mut self, markers: &Markers, from: Option<i64>) -> Result<Vec<OpStream>> {
        let forecast = self.forecast;
        let mut history = self.marked(forecast.history, forecast.operations_before(), markers);
        if let Some(from) = from {
            let filter = later_rows(forecast.time, from)?;
            let facts = json!(["rows from a time on", forecast.time.name(), from]);
            let mut ops = vec![self.add_op(facts, PlanOp::Keep(filter))];
            ops.extend(history.ops.iter());
            history.ops = ops.into();
        }
        let rows = self.marked(forecast.rows, 0, markers);
        Ok(vec![history, rows])
    }

    /// A stream up to the last marker. Filters by windows are left out, which would be computed
    /// again for them.
    fn marked(&self, stream: &OpStream, skipped: usize, markers: &Markers) -> OpStream {
        let last = markers.keys().next_back().copied().unwrap_or(0) + skipped;
        let mut ops: Vec<OpId> = Vec::with_capacity(last + 1);
        for (index, op) in stream.ops.iter().enumerate() {
            let position = index.checked_sub(skipped);
            if let Some(added) = position.and_then(|position| markers.get(&position)) {
                ops.extend(added);
            }
            if index >= last {
                break;
            }
            if let PlanOp::Keep(keep) = &self.bound.ops[*op].op {
                let stream_before = OpStream {
                    base: stream.base,
                    ops: stream.ops.first(index),
                };
                let reads: Vec<&String> = keep.reads.iter().collect();
                if is_of_series(&self.bound, &stream_before, &reads) {
                    continue;
                }
            }
            ops.push(*op);
        }
        OpStream {
            base: stream.base,
            ops: ops.into(),
        }
    }

    fn ask_count(&mut self, column: &str, streams: Vec<OpStream>) -> AnalyzerId {
        self.ask(AnalyzerRequest::new(ColumnCounts, [column]), streams)
    }

    fn ask(&mut self, request: AnalyzerRequest, streams: Vec<OpStream>) -> AnalyzerId {
        let id = self.bound.asks.len();
        self.bound.asks.push(BoundAnalyzer {
            op: 0,
            ask: request.per_run(),
            streams,
            part: None,
            carried: None,
            held: None,
        });
        self.analyzers.insert(id);
        id
    }

    fn learn(self) -> Result<BTreeMap<AnalyzerId, Arc<Finding>>> {
        self.forecast.run.learn_over(self.bound, self.analyzers)
    }
}

fn finding(
    findings: &BTreeMap<AnalyzerId, Arc<Finding>>,
    analyzer: AnalyzerId,
) -> Result<&Arc<Finding>> {
    let finding = findings.get(&analyzer);
    finding.ok_or_else(|| Fault::internal("a filled column that nothing looked at"))
}

/// The number of rows with a value.
fn counted(counts: &Finding) -> Result<u64> {
    let rows = counts.number("rows")?.unwrap_or(0.0) as u64;
    let nulls = counts.number("nulls")?.unwrap_or(0.0) as u64;
    Ok(rows.saturating_sub(nulls))
}

/// True if windows, joins that are sorted or functions of series compute one of these columns.
fn is_of_series(bound: &BoundPipeline, stream: &OpStream, columns: &[&String]) -> bool {
    let columns: Vec<&str> = columns.iter().map(|column| column.as_str()).collect();
    let (needed_ops, _) = slice_for_columns(bound, stream, &columns);
    let mut needed_ops = needed_ops.iter();
    needed_ops.any(|index| bound.ops[stream.ops[*index]].op.is_over_series())
}

/// The columns that steps of a stream fill and that features are computed of. A column comes once
/// for each distance.
fn filled_before<'b>(
    bound: &'b BoundPipeline,
    stream: &OpStream,
    end: usize,
    features: Vec<String>,
) -> Vec<FilledColumn<'b>> {
    let mut live: BTreeMap<String, BTreeSet<CalendarSpan>> = BTreeMap::new();
    for feature in features {
        live.insert(feature, BTreeSet::from([CalendarSpan::default()]));
    }
    let mut filled = Vec::new();
    for position in (0..end).rev() {
        let op = &bound.ops[stream.ops[position]];
        match &op.op {
            PlanOp::Map(map) => {
                let mut backs = BTreeSet::new();
                for field in &map.writes {
                    backs.extend(live.remove(field.name()).unwrap_or_default());
                }
                if backs.is_empty() {
                    continue;
                }
                for back in &backs {
                    filled.extend(filled_name(map).map(|name| FilledColumn {
                        name: name.clone(),
                        op,
                        position,
                        back: *back,
                    }));
                }
                for name in &map.reads {
                    live.entry(name.clone()).or_default().extend(&backs);
                }
            }
            PlanOp::Window(window) => {
                let mut reads: Vec<(&String, CalendarSpan)> = Vec::new();
                for (function, field) in window.plan.functions.iter().zip(&window.writes) {
                    let backs = live.remove(field.name()).unwrap_or_default();
                    let reach = reach_back(&function.compute).filter(|_| !window.backward);
                    let Some((column, reach)) = window.reads.get(function.input).zip(reach) else {
                        continue;
                    };
                    reads.extend(backs.into_iter().map(|back| (column, back.plus(reach))));
                }
                for (column, back) in reads {
                    live.entry(column.clone()).or_default().insert(back);
                }
            }
            PlanOp::Project(columns) => {
                let mut renamed: BTreeMap<String, BTreeSet<CalendarSpan>> = BTreeMap::new();
                for (name, backs) in live {
                    let name = name_before(columns, name);
                    renamed.entry(name).or_default().extend(backs);
                }
                live = renamed;
            }
            // Joins and functions of series look at other rows.
            op => live.retain(|name, _| !op.is_written(name)),
        }
    }
    filled
}

/// The column whose missing values an operation counts as filled.
fn filled_name(map: &MapOp) -> Option<&String> {
    let mut counts = map.value_counts.iter();
    let count = counts.find(|count| count.change == RowChange::Imputed)?;
    map.reads.get(count.before)
}

/// Distance from a row to the oldest value that a function takes; `None` for one that takes values
/// of any age, or of a number of rows.
fn reach_back(function: &WindowFunction) -> Option<CalendarSpan> {
    match function {
        WindowFunction::Lag { by, .. } => by.span(),
        // They take the value of the row itself.
        WindowFunction::Diff { .. } | WindowFunction::PctChange { .. } => {
            Some(CalendarSpan::default())
        }
        WindowFunction::Window {
            frame: SeriesFrame::Rolling { over, gap, .. },
            ..
        } => Some(gap.span()?.plus(over.span()?)),
        _ => None,
    }
}

/// Each column of a step once, with the latest time whose value a row at `last` takes.
fn nearest_columns<'b>(
    columns: &[FilledColumn<'b>],
    clock: Option<&ColumnClock>,
    last: i64,
) -> Vec<(FilledColumn<'b>, i64)> {
    let mut nearest: BTreeMap<(usize, &str), (FilledColumn<'b>, i64)> = BTreeMap::new();
    for column in columns {
        let Some(needed) = earlier(clock, last, column.back) else {
            continue;
        };
        let key = (column.position, column.name.as_str());
        let is_nearer = nearest.get(&key).is_none_or(|(_, other)| *other < needed);
        if is_nearer {
            nearest.insert(key, (column.clone(), needed));
        }
    }
    nearest.into_values().collect()
}

/// The time a distance before another; `None` beyond the calendar.
fn earlier(clock: Option<&ColumnClock>, time: i64, back: CalendarSpan) -> Option<i64> {
    match clock {
        Some(clock) => clock.earlier(time, back),
        None => time.checked_sub(back.ticks),
    }
}

/// Keeps the rows of a source from a time on.
fn later_rows(time: &Field, from: i64) -> Result<FilterOp> {
    let bounds = times(vec![from], time.data_type())?;
    let bound = ScalarValue::try_from_array(&bounds, 0)
        .map_err(|error| Fault::internal("a time that is no literal").cause(error))?;
    let column = Expr::Column(Column::from_name(time.name()));
    Ok(FilterOp {
        reads: vec![time.name().clone()],
        kernel: Arc::new(move |inputs, _| {
            let mut masks: Vec<ArrayRef> = Vec::with_capacity(inputs.len());
            for column in inputs {
                let is_later = ticks(column)?
                    .iter()
                    .map(|tick| tick.map(|tick| tick >= from))
                    .collect::<BooleanArray>();
                masks.push(Arc::new(is_later));
            }
            Ok(masks)
        }),
        condition: Some(column.gt_eq(lit(bound))),
        learning: false,
        reason: RowChange::OutsideInterval,
        valued: Vec::new(),
    })
}

/// The times of the rows in which a column has a value.
fn value_times(inputs: &[ArrayRef], _rows: usize) -> Result<Vec<ArrayRef>> {
    match inputs {
        [column, times] => Ok(vec![nullif(times, &missing_values(column)?)?]),
        _ => Err(Fault::internal("a filled column without its time")),
    }
}

/// Marks the rows up to the last value, those of them with a value, and the rows that no value
/// reaches.
fn mark_cover(
    values: &ArrayRef,
    times: &ArrayRef,
    time_type: &DataType,
    back: CalendarSpan,
    last_value: Option<i64>,
) -> Result<Vec<ArrayRef>> {
    let clock = ColumnClock::of(time_type)?;
    let missing = missing_values(values)?;
    let row_times: Int64Array = ticks(times)?;
    let mut until_last = Vec::with_capacity(row_times.len());
    let mut has_value = Vec::with_capacity(row_times.len());
    let mut covered = Vec::with_capacity(row_times.len());
    for (time, is_missing) in row_times.iter().zip(&missing) {
        let is_past = is_reached(time, last_value);
        let is_valued = is_past && is_missing == Some(false);
        let oldest = time.and_then(|time| earlier(clock.as_ref(), time, back));
        let is_covered = oldest.is_some() && !is_reached(oldest, last_value);
        until_last.push(is_past.then_some(true));
        has_value.push(is_valued.then_some(true));
        covered.push(is_covered.then_some(true));
    }
    Ok(vec![
        Arc::new(BooleanArray::from(until_last)),
        Arc::new(BooleanArray::from(has_value)),
        Arc::new(BooleanArray::from(covered)),
    ])
}

/// True for a time up to the last value. Findings hold times as floats: both are compared as such.
fn is_reached(time: Option<i64>, last_value: Option<i64>) -> bool {
    let times = time.zip(last_value);
    times.is_some_and(|(time, last)| time as f64 <= last as f64)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Date32Array, Float64Array};

    use super::*;

    #[test]
    fn rows_behind_the_last_value_are_covered() {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![
            Some(1.0),
            None,
            Some(f64::NAN),
            Some(2.0),
            None,
            None,
        ]));
        let times: ArrayRef = Arc::new(Date32Array::from(vec![10, 11, 12, 13, 14, 15]));
        for (back, last_value, expected) in [
            (CalendarSpan::default(), Some(13), [4, 2, 2]),
            (CalendarSpan::days(1), Some(13), [4, 2, 1]),
            (CalendarSpan::ticks(2), Some(13), [4, 2, 0]),
            (CalendarSpan::default(), None, [0, 0, 6]),
        ] {
            let marks = mark_cover(&values, &times, &DataType::Date32, back, last_value).unwrap();
            let counts: Vec<usize> = marks
                .iter()
                .map(|mark| mark.len() - mark.null_count())
                .collect();
            assert_eq!(counts, expected, "{back:?} {last_value:?}");
        }
    }

    #[test]
    fn the_nearest_distance_of_a_column_counts() {
        assert_eq!(earlier(None, 20, CalendarSpan::ticks(7)), Some(13));
        assert_eq!(earlier(None, i64::MIN, CalendarSpan::ticks(1)), None);
        let clock = ColumnClock::of(&DataType::Date32).unwrap();
        assert_eq!(earlier(clock.as_ref(), 20, CalendarSpan::days(7)), Some(13));
    }
}
