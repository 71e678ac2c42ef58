//! `future_rows`: rows beyond the last time of every series.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, UInt32Array, UInt64Array,
    new_null_array,
};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use forebay_analyze::LatestRows;
use forebay_model::{Fault, Finding, Result, codes};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, FutureRowsOp, FutureSeries,
    GatherBy, GatherOp, HORIZON_STEP, KNOWN_UNTIL, PlanOp, RowBatches, Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{bad_value, finding_at};
use crate::time::{LengthSpec, time_column};

/// Rows per batch.
const BATCH_ROWS: usize = 8192;

/// Most steps of a series: far more than any model predicts.
const STEPS_MAX: i64 = 1 << 20;

/// Adds rows of the future: for each series, one row for each step of `every` up to `horizon` after the last known
/// time. They are what a model predicts.
///
/// In: a time column and key columns. Out: the same columns. A row of the future has its time, the keys of its series,
/// and the columns listed under `carry` as they were in the last row of the series; all other columns are null, the
/// target among them. Put the step first, behind filters: steps after it treat rows of the future like all others.
/// Columns that are known in advance come from them: `date_parts`, `derive`, and `join` or `as_of_join` with a table
/// of plans. Windows that end at least the horizon before their row (`gap`, `lag`) see known values alone, so that
/// features of a row of the future have the same bits as those that are computed once its time has come.
///
/// The rows go their own way. Statistics, splits, trainings, feeds and sinks read the known rows alone; a sink with
/// `split: future` and a `predict` sink get the rows of the future, ordered by time and then by keys. So no output of
/// the known rows changes because of them. `aggregate`, `dedupe` and SQL end them. With intervals, they begin at the end
/// of the interval.
///
/// State: the last row of each series, some 100 bytes and the carried columns, spilled while it is made; the rows are
/// written to the state directory. Rows without a time do not count. Of rows with equal times, the one whose carried
/// values are greater counts.
///
/// ```yaml
/// - future_rows: { horizon: 7d, every: 1d, carry: [category] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn future_rows(horizon, every), example = r#"future_rows("28d", "1d").carry(["category"])"#)]
pub struct FutureRows {
    /// How far the last row lies after the last known time: a length of time, such as `28d`.
    pub horizon: LengthSpec,
    /// The distance between rows of a series: a length of time, such as `1d`.
    pub every: LengthSpec,
    /// Columns whose last values are carried on: what does not change in a series.
    #[serde(default)]
    pub carry: ColumnSelector,
    /// Where the rows of a series begin.
    #[serde(default)]
    pub after: FutureStart,
    /// Leaves out series whose last row lies further before the last time of the data, such as `90d`. They are counted
    /// in the summary. Without it, all series go on.
    #[serde(default)]
    pub active_within: Option<LengthSpec>,
    /// The event-time column, where the source does not declare it.
    #[serde(default)]
    pub time: Option<String>,
    /// The columns that tell series apart, where the source does not declare them.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
}

/// Where the rows of a series begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FutureStart {
    /// After the last time of the data: every series gets rows for the same times, also one that had no row lately.
    #[default]
    Data,
    /// After the last time of the series: for series that do not share a calendar.
    Series,
}

impl ConfiguredTransform for FutureRows {
    const NAME: &'static str = "future_rows";
}

impl Transform for FutureRows {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let time = time_column(scope, FutureRows::NAME, &self.time)?;
        let Some(keys) = self.keys.as_ref().or(scope.series.keys.as_ref()) else {
            return Err(Fault::new(
                codes::MISSING_FIELD,
                "`future_rows` needs the columns that tell series apart",
            )
            .hint("declare `keys` at the source or here; `keys: []` makes all rows one series"));
        };
        let (horizon, every) = (self.horizon.ticks(&time)?, self.every.ticks(&time)?);
        if every <= 0 || horizon < every || horizon % every != 0 {
            return Err(bad_value(format!(
                "`horizon: {}` is not a multiple of `every: {}`",
                self.horizon, self.every
            ))
            .hint("give a horizon of whole steps, such as `horizon: 28d, every: 1d`"));
        }
        if horizon / every > STEPS_MAX {
            return Err(bad_value(format!(
                "{} steps are more than {STEPS_MAX}",
                horizon / every
            )));
        }
        let carried: Vec<&Field> = if self.carry.0.is_empty() {
            Vec::new()
        } else {
            scope.columns(&self.carry)?
        };
        let carried: Vec<&Field> = carried
            .into_iter()
            .filter(|field| *field.name() != time.name && !keys.contains(field.name()))
            .collect();
        let keyed = keys
            .iter()
            .map(|key| scope.field(key))
            .collect::<Result<Vec<_>>>()?;
        if let Some(field) = keyed
            .iter()
            .chain(&carried)
            .find(|field| field.data_type().is_nested())
        {
            let message = format!(
                "`{}` is {}, which cannot be carried on",
                field.name(),
                field.data_type()
            );
            return Err(Fault::new(codes::COLUMN_TYPE, message).column(field.name()));
        }
        let types = |fields: &[&Field]| {
            fields
                .iter()
                .map(|field| field.data_type().clone())
                .collect::<Vec<_>>()
        };
        let latest = LatestRows {
            keys: types(&keyed),
            time: time.data_type.clone(),
            values: types(&carried),
        };
        let names = keyed.iter().map(|field| field.name()).chain([&time.name]);
        let inputs: Vec<String> = names
            .chain(carried.iter().map(|field| field.name()))
            .cloned()
            .collect();
        let fields = scope
            .schema
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true));
        let hidden = [
            Field::new(KNOWN_UNTIL, time.data_type.clone(), true),
            Field::new(HORIZON_STEP, DataType::UInt32, true),
        ];
        let schema: SchemaRef = Arc::new(Schema::new(fields.chain(hidden).collect::<Vec<_>>()));
        let active_within = self
            .active_within
            .map(|within| within.ticks(&time))
            .transpose()?;
        let plan = Arc::new(SeriesEnds {
            start: self.after,
            horizon,
            every,
            active_within,
        });
        let (counted, columns, made) = (plan.clone(), inputs.clone(), schema.clone());
        let future = FutureRowsOp {
            latest: AnalyzerRequest::new(latest, inputs).per_run(),
            keys: keys.clone(),
            horizon: time.behind(horizon),
            time: time.name.clone(),
            steps: (horizon / every) as u64,
            count: Arc::new(move |latest| counted.count(latest)),
            rows: Arc::new(move |findings| {
                let latest = finding_at(findings, 0)?;
                Ok(Box::new(SeriesSteps::new(&plan, latest, &columns, &made)?) as RowBatches)
            }),
        };
        let (others, lower) = (Vec::new(), GatherBy::Future(future));
        Ok(vec![PlanOp::Gather(GatherOp {
            others,
            alone: true,
            schema,
            lower,
            query: None,
        })])
    }
}

/// Which series go on, and how far, in ticks of the time column.
struct SeriesEnds {
    start: FutureStart,
    horizon: i64,
    every: i64,
    active_within: Option<i64>,
}

impl SeriesEnds {
    fn times(latest: &Finding) -> Result<&Int64Array> {
        let times = latest.column("time")?.as_primitive_opt::<Int64Type>();
        times.ok_or_else(|| Fault::internal("last rows of series without times"))
    }

    /// The last time of the data, and whether a series that ends at some time goes on.
    fn activity(&self, times: &Int64Array) -> (Option<i64>, impl Fn(i64) -> bool) {
        let last = times.values().iter().max().copied();
        let from = last
            .zip(self.active_within)
            .map_or(i64::MIN, |(last, within)| last.saturating_sub(within));
        (last, move |time: i64| time >= from)
    }

    fn count(&self, latest: &Finding) -> Result<FutureSeries> {
        let times = SeriesEnds::times(latest)?;
        let (known_until, is_active) = self.activity(times);
        let active = times
            .values()
            .iter()
            .filter(|time| is_active(**time))
            .count() as u64;
        Ok(FutureSeries {
            active,
            ended: times.len() as u64 - active,
            known_until,
        })
    }
}

/// A row to make: its time first, then the place of its series, so that the least comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct NextRow {
    time: i64,
    series: u32,
    step: u32,
}

/// Makes the rows in order of time, then of series. Holds one entry per series.
struct SeriesSteps {
    open: BinaryHeap<Reverse<NextRow>>,
    every: i64,
    steps: u32,
    /// The columns of the last rows by name; the time is replaced.
    latest: Vec<(String, ArrayRef)>,
    time: String,
    schema: SchemaRef,
}

impl SeriesSteps {
    /// `columns` names those of the finding: keys, time, carried columns.
    fn new(
        ends: &SeriesEnds,
        latest: &Finding,
        columns: &[String],
        schema: &SchemaRef,
    ) -> Result<SeriesSteps> {
        let times = SeriesEnds::times(latest)?;
        let (last, is_active) = ends.activity(times);
        let (every, steps) = (ends.every, (ends.horizon / ends.every) as u32);
        let mut open = Vec::with_capacity(times.len());
        for (series, own) in times
            .values()
            .iter()
            .enumerate()
            .filter(|(_, own)| is_active(**own))
        {
            let known_until = if ends.start == FutureStart::Data {
                last.unwrap_or(*own)
            } else {
                *own
            };
            let series = u32::try_from(series)
                .map_err(|_| Fault::new(codes::LIMIT, "more than 2^32 series"))?;
            if known_until.checked_add(ends.horizon).is_none() {
                return Err(Fault::new(
                    codes::LIMIT,
                    "rows of the future lie beyond the last time that can be told",
                ));
            }
            open.push(Reverse(NextRow {
                time: known_until + every,
                series,
                step: 1,
            }));
        }
        let found = latest.table().columns().iter().cloned();
        let place = latest.table().schema_ref().index_of("time")?;
        let time = columns
            .get(place)
            .ok_or_else(|| Fault::internal("last rows of series without a time"))?
            .clone();
        let latest = columns.iter().cloned().zip(found).collect();
        Ok(SeriesSteps {
            open: BinaryHeap::from(open),
            every,
            steps,
            latest,
            time,
            schema: schema.clone(),
        })
    }

    fn batch(&self, rows: &[NextRow]) -> Result<RecordBatch> {
        let series: UInt32Array = rows.iter().map(|row| row.series).collect();
        let ticks = |of: &dyn Fn(&NextRow) -> i64, data_type: &DataType| {
            of_ticks(rows.iter().map(of), data_type)
        };
        let columns = self.schema.fields().iter().map(|field| {
            let (name, data_type) = (field.name(), field.data_type());
            if *name == self.time {
                return ticks(&|row| row.time, data_type);
            }
            match name.as_str() {
                KNOWN_UNTIL => ticks(
                    &|row| row.time - i64::from(row.step) * self.every,
                    data_type,
                ),
                HORIZON_STEP => Ok(Arc::new(
                    rows.iter().map(|row| row.step).collect::<UInt32Array>(),
                ) as ArrayRef),
                name => match self.latest.iter().find(|(known, _)| known == name) {
                    Some((_, column)) => Ok(cast(&take(column, &series, None)?, data_type)?),
                    None => Ok(new_null_array(data_type, rows.len())),
                },
            }
        });
        Ok(RecordBatch::try_new(
            self.schema.clone(),
            columns.collect::<Result<Vec<_>>>()?,
        )?)
    }
}

impl Iterator for SeriesSteps {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        let mut rows = Vec::new();
        while rows.len() < BATCH_ROWS
            && let Some(Reverse(row)) = self.open.pop()
        {
            rows.push(row);
            if row.step < self.steps {
                self.open.push(Reverse(NextRow {
                    time: row.time + self.every,
                    step: row.step + 1,
                    ..row
                }));
            }
        }
        (!rows.is_empty()).then(|| self.batch(&rows))
    }
}

/// Ticks as a column of times.
fn of_ticks(ticks: impl Iterator<Item = i64>, data_type: &DataType) -> Result<ArrayRef> {
    let ticks: ArrayRef = match data_type {
        // Arrow casts dates from and to 32 bits only.
        DataType::Date32 => Arc::new(
            ticks
                .map(|tick| i32::try_from(tick).ok())
                .collect::<Int32Array>(),
        ),
        DataType::UInt32 => Arc::new(
            ticks
                .map(|tick| u64::try_from(tick).ok())
                .collect::<UInt64Array>(),
        ),
        _ => Arc::new(ticks.collect::<Int64Array>()),
    };
    let times = cast(&ticks, data_type)?;
    if times.null_count() > 0 {
        return Err(Fault::new(
            codes::LIMIT,
            "rows of the future lie beyond the last time that can be told",
        ));
    }
    Ok(times)
}
