//! Some series of a published forecast with the end of their history, for people to look at.
//!
//! The forecast alone determines the choice: series with large predictions, and series by the hash
//! of their keys, which are the same in every run. Memory is bounded by their number.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type};
use arrow::row::{RowConverter, Rows, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{Column, DataFusionError, ScalarValue};
use datafusion::prelude::{Expr, lit};
use forebay_commit::{Manifest, output_root};
use forebay_model::{
    ColumnClock, Fault, NodeInput, Pipeline, PipelineNode, PipelineSink, Result, Step,
    logical_type, ticks,
};
use forebay_plan::{BoundPipeline, sql_literal, sql_name};
use forebay_storage::{IgnoreEvents, ScratchDir};
use serde::Serialize;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::forecast_files::{ForecastFiles, is_text_format};
use super::layout::ForecastLayout;
use super::{
    ForecastPlan, PredictTransform, check_label_units, future_of, horizon_span, step_of_future,
    training_of,
};
use crate::leak_check::time_text;
use crate::report::ForecastReport;
use crate::session::Session;
use crate::step_rows::RowsRequest;
use crate::text_types::declared_type;

/// Series with the largest predictions.
const LARGEST: usize = 3;

/// Series by the hash of their keys.
const BY_HASH: usize = 3;

/// Series with the largest predictions of the first step, among which are those with the largest of all steps.
const CANDIDATES: usize = 32;

/// Steps of a forecast that are shown.
const STEPS_MAX: usize = 400;

/// Length of the history, in horizons.
const HISTORY_HORIZONS: u64 = 4;

/// Bounds of that, in steps of the forecast.
const HISTORY_STEPS_MIN: u64 = 28;
const HISTORY_STEPS_MAX: u64 = 200;

/// Rows of the history of a series that are shown: there may be several of one time.
const HISTORY_ROWS_MAX: usize = 400;

/// Some series of a forecast.
#[derive(Debug, Clone)]
pub struct ForecastExamples {
    /// The column of times.
    pub time: Field,
    /// The column of the point forecast.
    pub prediction: String,
    /// The columns of its lowest and highest quantile, where there are several.
    pub band: Option<[String; 2]>,
    /// The largest one first.
    pub series: Vec<SeriesExample>,
    /// The column of the history.
    pub label: Option<String>,
    /// Reason why there is no history; `None` if there is one.
    pub without_history: Option<String>,
}

/// A series of a forecast, and the end of its history, in order of time.
#[derive(Debug, Clone)]
pub struct SeriesExample {
    /// Values of the columns that identify the series.
    pub keys: Vec<SeriesKey>,
    /// Known values of the label.
    pub history: Vec<SeriesPoint>,
    /// Predicted values.
    pub forecast: Vec<ForecastPoint>,
}

/// A key of a series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeriesKey {
    /// The column.
    pub name: String,
    /// Value of the key column.
    pub value: Option<String>,
}

/// A known value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeriesPoint {
    /// The time, in ticks of the column of times.
    pub tick: i64,
    /// The value.
    pub value: f64,
}

/// A predicted value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForecastPoint {
    /// The time, in ticks of the column of times.
    pub tick: i64,
    /// The point forecast.
    pub value: f64,
    /// The lowest and the highest quantile.
    pub band: Option<[f64; 2]>,
}

impl ForecastExamples {
    /// A time as people write it.
    pub fn time_text(&self, tick: i64) -> String {
        time_text(tick, &self.time).unwrap_or_else(|_| tick.to_string())
    }
}

impl ForecastLayout {
    /// Layout of a planned forecast.
    pub(super) fn of(plan: &ForecastPlan, bound: &BoundPipeline) -> Result<ForecastLayout> {
        let missing = || Fault::internal("a forecast without its step");
        let node = plan.pipeline.nodes.last().ok_or_else(missing)?;
        let NodeInput::From(from) = &node.input else {
            return Err(missing());
        };
        let future = future_of(bound, from)?;
        let step = node.steps.last().ok_or_else(missing)?;
        let step: PredictTransform = serde_json::from_value(step.config.clone())
            .map_err(|error| Fault::internal("a step that predicts").cause(error))?;
        let mut quantiles = step.prediction_columns(&plan.model);
        let prediction = quantiles.remove(0);
        let field = |name: &String| -> Result<Field> {
            let field = future.source.field_with_name(name)?;
            Ok(Field::new(name, logical_type(field.data_type()), true))
        };
        let time = field(&future.time)?;
        Ok(ForecastLayout {
            keys: future.keys.iter().map(field).collect::<Result<_>>()?,
            horizon: horizon_span(future, &time),
            time,
            steps: future.steps,
            prediction,
            quantiles,
            other_units: check_label_units(&plan.pipeline, bound, from)
                .err()
                .map(|fault| fault.message().to_owned()),
        })
    }

    /// The time so many lengths of the forecast before another.
    fn before(&self, time: i64, horizons: i64) -> Result<i64> {
        let span = self.horizon.times(horizons);
        let earlier = match ColumnClock::of(self.time.data_type())? {
            Some(clock) => clock.earlier(time, span),
            None => time.checked_sub(span.ticks),
        };
        // A history that begins before all times is left out.
        Ok(earlier.unwrap_or(time))
    }

    /// The columns of a forecast that are read: keys, the time, the point forecast, and the ends of the band.
    fn columns(&self) -> Vec<String> {
        let keys = self
            .keys
            .iter()
            .chain([&self.time])
            .map(|field| field.name().clone());
        keys.chain([self.prediction.clone()])
            .chain(self.band().into_iter().flatten())
            .collect()
    }

    fn band(&self) -> Option<[String; 2]> {
        match self.quantiles.as_slice() {
            [low, .., high] => Some([low.clone(), high.clone()]),
            _ => None,
        }
    }

    /// Types of the columns as text files declare them.
    fn declared_types(&self) -> Option<Value> {
        let mut types = serde_json::Map::new();
        for field in self.keys.iter().chain([&self.time]) {
            let name = declared_type(field.data_type())?;
            types.insert(field.name().clone(), name.into());
        }
        let predictions = std::iter::once(&self.prediction).chain(&self.quantiles);
        types.extend(predictions.map(|name| (name.clone(), "float32".into())));
        Some(Value::Object(types))
    }
}

/// The rows of a batch of a forecast.
struct ForecastRows {
    keys: Vec<ArrayRef>,
    /// The keys as bytes, by row.
    rows: Rows,
    ticks: Int64Array,
    prediction: Float64Array,
    band: Option<[Float64Array; 2]>,
}

impl ForecastRows {
    /// A batch with the columns of a layout.
    fn of(
        batch: &RecordBatch,
        layout: &ForecastLayout,
        converter: &RowConverter,
    ) -> Result<ForecastRows> {
        let (keys, value_columns) = batch.columns().split_at(layout.keys.len());
        let keys = keys
            .iter()
            .zip(&layout.keys)
            .map(|(column, field)| Ok(cast(column, field.data_type())?));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let number = |column: &ArrayRef| {
            Ok::<_, Fault>(cast(column, &DataType::Float64)?.as_primitive().clone())
        };
        let band = match value_columns {
            [_, _, low, high] => Some([number(low)?, number(high)?]),
            _ => None,
        };
        // A forecast of one series has no keys, and its rows have bytes all the same.
        let constant = new_null_array(&DataType::Null, batch.num_rows());
        let columns: Vec<ArrayRef> = keys.iter().cloned().chain([constant]).collect();
        Ok(ForecastRows {
            rows: converter.convert_columns(&columns)?,
            keys,
            ticks: ticks(&cast(&value_columns[0], layout.time.data_type())?)?,
            prediction: number(&value_columns[1])?,
            band,
        })
    }

    fn point(&self, row: usize) -> ForecastPoint {
        let band = self
            .band
            .as_ref()
            .map(|[low, high]| [low.value(row), high.value(row)]);
        ForecastPoint {
            tick: self.ticks.value(row),
            value: self.prediction.value(row),
            band,
        }
    }
}

/// A series that may be shown.
struct Candidate {
    keys: Vec<ScalarValue>,
    points: Vec<ForecastPoint>,
}

impl Candidate {
    /// Sum of the forecast.
    fn total(&self) -> f64 {
        self.points.iter().map(|point| point.value).sum()
    }

    fn example(self, layout: &ForecastLayout) -> Result<SeriesExample> {
        let mut keys = Vec::with_capacity(self.keys.len());
        for (field, value) in layout.keys.iter().zip(&self.keys) {
            keys.push(SeriesKey {
                name: field.name().clone(),
                value: value_text(&value.to_array().map_err(unreadable)?, 0)?,
            });
        }
        Ok(SeriesExample {
            keys,
            history: Vec::new(),
            forecast: self.points,
        })
    }
}

/// The series with the smallest ranks, by rank and then by the bytes of their keys.
struct SmallestRanks {
    most: usize,
    series: BTreeMap<(u64, Vec<u8>), Vec<ScalarValue>>,
}

impl SmallestRanks {
    fn new(most: usize) -> SmallestRanks {
        SmallestRanks {
            most,
            series: BTreeMap::new(),
        }
    }

    fn offer(&mut self, rank: u64, rows: &ForecastRows, row: usize) -> Result<()> {
        let key = rows.rows.row(row);
        let is_full = self.series.len() == self.most;
        let last = self
            .series
            .last_key_value()
            .map(|((rank, key), _)| (*rank, key.as_slice()));
        if is_full && last.is_some_and(|last| last <= (rank, key.as_ref())) {
            return Ok(());
        }
        let keys = rows
            .keys
            .iter()
            .map(|column| ScalarValue::try_from_array(column, row).map_err(unreadable));
        self.series
            .insert((rank, key.as_ref().to_vec()), keys.collect::<Result<_>>()?);
        if is_full {
            self.series.pop_last();
        }
        Ok(())
    }
}

/// Smaller for larger values.
pub(crate) fn descending(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 0 {
        !(bits | 1 << 63)
    } else {
        bits
    }
}

impl Session {
    /// Name of the label that a sink's forecast predicts.
    fn predicted_label(&self, pipeline: &Pipeline, sink: &PipelineSink) -> Result<Option<String>> {
        if let Some(label) = &pipeline.label {
            return Ok(Some(label.column.clone()));
        }
        let config = self.predict_config(sink)?;
        let Some(training) = training_of(pipeline, &config) else {
            return Ok(None);
        };
        let label = self.trainer(training)?.feed().label;
        Ok(label.map(|label| label.column().to_owned()))
    }

    /// Some series of a forecast that a run of the pipeline has published.
    pub fn forecast_examples(
        &self,
        pipeline: &Pipeline,
        forecast: &ForecastReport,
    ) -> Result<ForecastExamples> {
        let sink = pipeline
            .predictions
            .iter()
            .find(|sink| sink.name == forecast.sink);
        let sink = sink.ok_or_else(|| Fault::internal("a forecast without a sink"))?;
        let layout = &forecast.layout;
        let mut series = self.forecast_series(sink, layout)?;
        let mut label = self.predicted_label(pipeline, sink)?;
        if layout.other_units.is_some() {
            label = None;
        }
        let mut without_history = layout.other_units.clone();
        if let Some(label) = &label
            && let Err(fault) = self.add_history(pipeline, sink, layout, label, &mut series)
        {
            without_history = Some(fault.message().to_owned());
        }
        let time = layout.time.clone();
        let prediction = layout.prediction.clone();
        let band = layout.band();
        Ok(ForecastExamples {
            time,
            prediction,
            band,
            series,
            label,
            without_history,
        })
    }

    /// The series that are shown, with their forecasts.
    fn forecast_series(
        &self,
        sink: &PipelineSink,
        layout: &ForecastLayout,
    ) -> Result<Vec<SeriesExample>> {
        let config = self.predict_config(sink)?;
        let out = output_root(&self.io, &config.path)?;
        let Some(manifest) = Manifest::read(&self.io, &out)? else {
            return Ok(Vec::new());
        };
        let format = config.format.name();
        let types = if is_text_format(format) {
            layout.declared_types()
        } else {
            None
        };
        let files = ForecastFiles {
            session: self,
            out: &out,
            manifest: &manifest,
            format,
            types,
        };
        let columns = layout.columns();
        let fields = layout
            .keys
            .iter()
            .map(Field::data_type)
            .chain([&DataType::Null]);
        let converter =
            RowConverter::new(fields.map(|kind| SortField::new(kind.clone())).collect())?;

        // Rows come in order of time: those of the first time are one for each series.
        let mut largest = SmallestRanks::new(CANDIDATES);
        let mut by_hash = SmallestRanks::new(BY_HASH + LARGEST);
        let mut first = None;
        files.read(&columns, &[], &mut |batch| {
            let rows = ForecastRows::of(batch, layout, &converter)?;
            for row in 0..batch.num_rows() {
                if *first.get_or_insert(rows.ticks.value(row)) != rows.ticks.value(row) {
                    return Ok(ControlFlow::Break(()));
                }
                largest.offer(descending(rows.prediction.value(row)), &rows, row)?;
                by_hash.offer(xxh3_64(rows.rows.row(row).as_ref()), &rows, row)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;

        let mut candidates: HashMap<Vec<u8>, Candidate> = HashMap::new();
        let hashed: Vec<Vec<u8>> = by_hash.series.keys().map(|(_, key)| key.clone()).collect();
        for ((_, key), keys) in largest.series.into_iter().chain(by_hash.series) {
            candidates.entry(key).or_insert(Candidate {
                keys,
                points: Vec::new(),
            });
        }
        let conditions = candidates
            .values()
            .filter_map(|candidate| is_series(&layout.keys, &candidate.keys));
        let pruning: Vec<Expr> = conditions.reduce(Expr::or).into_iter().collect();
        files.read(&columns, &pruning, &mut |batch| {
            let rows = ForecastRows::of(batch, layout, &converter)?;
            for row in 0..batch.num_rows() {
                if let Some(candidate) = candidates.get_mut(rows.rows.row(row).as_ref())
                    && candidate.points.len() < STEPS_MAX
                {
                    candidate.points.push(rows.point(row));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;

        let total = |key: &Vec<u8>| candidates[key].total();
        let mut order: Vec<Vec<u8>> = candidates.keys().cloned().collect();
        order.sort_by(|a, b| total(b).total_cmp(&total(a)).then_with(|| a.cmp(b)));
        order.truncate(LARGEST);
        let others = hashed
            .into_iter()
            .filter(|key| !order.contains(key))
            .take(BY_HASH)
            .collect::<Vec<_>>();
        order.extend(others);
        let mut examples = Vec::new();
        for key in order {
            if let Some(candidate) = candidates.remove(&key) {
                examples.push(candidate.example(layout)?);
            }
        }
        Ok(examples)
    }

    /// Adds the history of the series before the first predicted time, from the rows before
    /// `future_rows`.
    fn add_history(
        &self,
        pipeline: &Pipeline,
        sink: &PipelineSink,
        layout: &ForecastLayout,
        label: &str,
        series: &mut [SeriesExample],
    ) -> Result<()> {
        let Some(first) = series
            .iter()
            .filter_map(|series| series.forecast.first())
            .map(|point| point.tick)
            .min()
        else {
            return Ok(());
        };
        let steps = (layout.steps * HISTORY_HORIZONS).clamp(HISTORY_STEPS_MIN, HISTORY_STEPS_MAX);
        let horizons = steps.div_ceil(layout.steps.max(1));
        let from = layout.before(first, horizons as i64)?;
        let (node, position) = step_of_future(pipeline, &sink.from)?;
        let mut history_pipeline = pipeline.clone();
        history_pipeline.name = format!("{}.history", pipeline.name);
        let mut name = format!("{}_history", sink.name);
        while history_pipeline.node(&name).is_some() || history_pipeline.source(&name).is_some() {
            name.push('_');
        }
        let columns = layout
            .keys
            .iter()
            .chain([&layout.time])
            .map(|field| field.name().as_str());
        let mut columns: Vec<&str> = columns.collect();
        // A label may be a key or the time.
        columns.retain(|column| *column != label);
        columns.push(label);
        let step = |kind: &str, config: Value| Step {
            kind: kind.to_owned(),
            config,
            at: node.at.clone(),
        };
        let mut steps = node.steps[..position].to_vec();
        steps.push(step(
            "filter",
            json!(layout.condition(series, from, first)?),
        ));
        steps.push(step("select", json!(columns)));
        history_pipeline.nodes.push(PipelineNode {
            name: name.clone(),
            steps,
            optional: false,
            ..node.clone()
        });
        let quiet = self.with_listener(Arc::new(IgnoreEvents));
        let scratch = ScratchDir::new(Some(&self.state()?), quiet.watch.clone())?;
        let request = RowsRequest {
            step: &name,
            condition: None,
            connectors: self.connectors.clone(),
            artifact: None,
            enforces_rules: false,
            uses_state: true,
        };
        for batch in quiet.compute_rows(&history_pipeline, request, scratch)? {
            layout.read_history(&batch?, label, series)?;
        }
        for series in series {
            series.history.sort_by_key(|point| point.tick);
        }
        Ok(())
    }
}

impl ForecastLayout {
    /// Rows of the series in a range of time, as SQL.
    fn condition(&self, series: &[SeriesExample], from: i64, until: i64) -> Result<String> {
        let time = sql_name(self.time.name());
        let from = self.time_literal(from)?;
        let until = self.time_literal(until)?;
        let mut condition = format!("{time} >= {from} AND {time} < {until}");
        if !self.keys.is_empty() {
            let conditions: Vec<String> = series
                .iter()
                .map(|series| self.series_condition(series))
                .collect();
            condition += &format!(" AND ({})", conditions.join(" OR "));
        }
        Ok(condition)
    }

    fn time_literal(&self, tick: i64) -> Result<String> {
        let text = time_text(tick, &self.time)?;
        Ok(sql_value(&text, self.time.data_type()))
    }

    /// The condition that selects the rows of a series by its keys.
    fn series_condition(&self, series: &SeriesExample) -> String {
        let mut conditions = Vec::new();
        for (field, key) in self.keys.iter().zip(&series.keys) {
            let name = sql_name(&key.name);
            conditions.push(match &key.value {
                Some(value) => format!("{name} = {}", sql_value(value, field.data_type())),
                None => format!("{name} IS NULL"),
            });
        }
        format!("({})", conditions.join(" AND "))
    }

    fn read_history(
        &self,
        batch: &RecordBatch,
        label: &str,
        series: &mut [SeriesExample],
    ) -> Result<()> {
        let column = |name: &str| {
            batch
                .column_by_name(name)
                .ok_or_else(|| Fault::internal(format!("a history without `{name}`")))
        };
        let values = cast(column(label)?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let ticks = ticks(&cast(column(self.time.name())?, self.time.data_type())?)?;
        let keys = self
            .keys
            .iter()
            .map(|field| Ok(cast(column(field.name())?, field.data_type())?));
        let keys = keys.collect::<Result<Vec<ArrayRef>>>()?;
        for row in (0..batch.num_rows()).filter(|row| values.is_valid(*row) && ticks.is_valid(*row))
        {
            let texts = keys
                .iter()
                .map(|column| value_text(column, row))
                .collect::<Result<Vec<_>>>()?;
            let is_own = |series: &&mut SeriesExample| {
                series.keys.iter().map(|key| &key.value).eq(texts.iter())
            };
            let point = SeriesPoint {
                tick: ticks.value(row),
                value: values.value(row),
            };
            if let Some(series) = series
                .iter_mut()
                .find(is_own)
                .filter(|series| series.history.len() < HISTORY_ROWS_MAX)
                && point.value.is_finite()
            {
                series.history.push(point);
            }
        }
        Ok(())
    }
}

/// A value of a key as text; `None` for null.
fn value_text(column: &ArrayRef, row: usize) -> Result<Option<String>> {
    let text = ArrayFormatter::try_new(column, &FormatOptions::default())?;
    Ok(column.is_valid(row).then(|| text.value(row).to_string()))
}

fn unreadable(error: DataFusionError) -> Fault {
    Fault::internal("a key of a forecast").cause(error)
}

/// A value as a literal of SQL.
fn sql_value(text: &str, data_type: &DataType) -> String {
    if data_type.is_numeric() || *data_type == DataType::Boolean {
        text.to_owned()
    } else {
        sql_literal(text, data_type)
    }
}

/// Condition that selects the rows of a series; `None` if there is only one series.
fn is_series(keys: &[Field], values: &[ScalarValue]) -> Option<Expr> {
    let is_key = |(field, value): (&Field, &ScalarValue)| {
        let column = Expr::Column(Column::from_name(field.name().clone()));
        if value.is_null() {
            column.is_null()
        } else {
            column.eq(lit(value.clone()))
        }
    };
    keys.iter().zip(values).map(is_key).reduce(Expr::and)
}
