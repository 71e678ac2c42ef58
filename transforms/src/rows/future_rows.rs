//! `future_rows`: rows beyond the last time of every series.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, UInt32Array, UInt64Array,
    new_null_array,
};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt64Type};
use arrow::util::display::array_value_to_string;
use forebay_analyze::LatestRows;
use forebay_contract::HORIZON_STEP;
use forebay_model::{
    CalendarSpan, ColumnClock, Fault, Finding, Result, codes, text_length, type_words,
};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, FutureRowsFacts, FutureRowsOp,
    FutureSeries, GatherBy, GatherOp, KNOWN_UNTIL, PlanOp, RepeatedEnd, RowBatches, StepFacts,
    Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{bad_value, finding_at};
use crate::time::{LengthSpec, StepBack, TimeColumn, duplicate_policy, time_column};

/// Rows per batch.
const BATCH_ROWS: usize = 8192;

/// Bytes of the texts of a batch after which no row is added: the texts of a series are in each of its rows.
const BATCH_TEXT_BYTES: usize = 16 << 20;

/// Series with several rows at their end that a message names.
const REPEATED_ENDS_MAX: usize = 3;

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
/// They are kept apart from the known rows. Statistics, splits, trainings, feeds and sinks read the known rows alone;
/// a sink with `split: future` and a `predict` sink get the rows of the future, ordered by time and then by keys. So
/// no output of the known rows changes because of them. `aggregate`, `dedupe` and SQL end them. In a run of an
/// interval, they begin at the end of the interval.
///
/// State: the last row of each series, some 100 bytes and the carried columns, spilled while it is made; the rows are
/// written to the state directory. Rows without a time do not count. A series with several rows at its last time lacks
/// a key: `FB0212`, unless the source declares `duplicates: warn` or `allow`. Then the one whose carried values are
/// greater counts.
///
/// ```yaml
/// - future_rows: { horizon: 7d, every: 1d, carry: [category] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn future_rows(horizon, every),
    example = r#"future_rows("28d", "1d").carry(["category"])"#
)]
pub struct FutureRows {
    /// How far the last row lies after the last known time: a length of time, such as `28d` or `3mo`.
    pub horizon: LengthSpec,
    /// The distance between rows of a series: a length of time, such as `1d`. Months (`1mo`, `1q`, `1y`) keep the day of
    /// the month that the rows of a series have, or its end.
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

/// Text of a length of time; `None` for a number of rows.
fn time_text(length: &LengthSpec) -> Option<String> {
    match length {
        LengthSpec::Rows(_) => None,
        LengthSpec::Time(_) | LengthSpec::Steps(_) | LengthSpec::Unreadable(_) => {
            Some(length.to_string())
        }
    }
}

impl ConfiguredTransform for FutureRows {
    const NAME: &'static str = "future_rows";
}

impl Transform for FutureRows {
    fn facts(&self) -> StepFacts {
        StepFacts {
            future_rows: Some(FutureRowsFacts {
                horizon: time_text(&self.horizon),
                every: time_text(&self.every),
                time: self.time.clone(),
                keys: self.keys.clone(),
            }),
            ..StepFacts::default()
        }
    }

    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let time = time_column(scope, FutureRows::NAME, &self.time)?;
        let keys = self.series_keys(scope)?;
        let every = self.every.distance(&time)?;
        let horizon = self.horizon.distance(&time)?;
        let steps = self.steps(&time)?;
        let carried_fields = self.carried_fields(scope, &time, keys)?;
        let mut key_fields = Vec::with_capacity(keys.len());
        for key in keys {
            key_fields.push(scope.field(key)?);
        }
        for field in key_fields.iter().chain(&carried_fields) {
            refuse_nested(field)?;
        }
        let clock = ColumnClock::of(&time.data_type)?;
        let latest = LatestRows {
            keys: types_of(&key_fields),
            time: time.data_type.clone(),
            values: types_of(&carried_fields),
            month_days: every.span().months > 0,
            times_of_day: every.span().is_calendar()
                && clock.is_some_and(|clock| !clock.has_even_days()),
        };
        let mut inputs = keys.clone();
        inputs.push(time.name.clone());
        inputs.extend(carried_fields.iter().map(|field| field.name().clone()));
        let schema = future_schema(scope.schema, &time);
        let mut active_within = None;
        if let Some(within) = self.active_within {
            active_within = Some(time.steps_back(within.distance(&time)?)?);
        }
        let ends = Arc::new(SeriesEnds {
            start: self.after,
            clock,
            every: every.span(),
            steps,
            active_within,
            keys: keys.len(),
        });
        let counted_ends = ends.clone();
        let columns = inputs.clone();
        let row_schema = schema.clone();
        let chosen_ends = ends.clone();
        let chosen_columns = inputs.clone();
        let chosen_schema = schema.clone();
        let future = FutureRowsOp {
            latest: AnalyzerRequest::new(latest, inputs).per_run(),
            keys: keys.clone(),
            horizon: time.behind(horizon),
            time: time.name.clone(),
            steps: steps as u64,
            duplicates: duplicate_policy(scope, &time.name, keys, true),
            count: Arc::new(move |latest| counted_ends.count(latest)),
            rows: Arc::new(move |findings| {
                let latest = finding_at(findings, 0)?;
                let all_series = 0..latest.rows();
                let rows = SeriesSteps::new(&ends, latest, all_series, &columns, &row_schema)?;
                Ok(Box::new(rows) as RowBatches)
            }),
            rows_of_series: Arc::new(move |latest: &Finding, series: &[u32]| {
                let chosen = series.iter().map(|series| *series as usize);
                let rows = SeriesSteps::new(
                    &chosen_ends,
                    latest,
                    chosen,
                    &chosen_columns,
                    &chosen_schema,
                )?;
                Ok(Box::new(rows) as RowBatches)
            }),
        };
        Ok(vec![gathered(future, schema)])
    }
}

impl FutureRows {
    fn series_keys<'a>(&'a self, scope: &BindScope<'a>) -> Result<&'a Vec<String>> {
        let Some(keys) = self.keys.as_ref().or(scope.series.keys.as_ref()) else {
            let message = "`future_rows` needs the columns that tell series apart";
            let hint = "declare `keys` at the source or here; `keys: []` makes all rows one series";
            return Err(Fault::new(codes::MISSING_FIELD, message).hint(hint));
        };
        Ok(keys)
    }

    /// The rows of each series.
    fn steps(&self, time: &TimeColumn) -> Result<i64> {
        let mut periods = None;
        if self.every.distance(time)?.is_positive() {
            periods = self.horizon.periods_of(self.every, time)?;
        }
        let Some((steps @ 1.., true)) = periods else {
            return Err(bad_value(format!(
                "`horizon: {}` is not a multiple of `every: {}`",
                self.horizon, self.every
            ))
            .hint("give a horizon of whole steps, such as `horizon: 28d, every: 1d`"));
        };
        if steps > STEPS_MAX {
            let message = format!("{steps} steps are more than {STEPS_MAX}");
            return Err(bad_value(message));
        }
        Ok(steps)
    }

    /// The columns whose last values are carried on, without the time and the keys.
    fn carried_fields<'a>(
        &self,
        scope: &BindScope<'a>,
        time: &TimeColumn,
        keys: &[String],
    ) -> Result<Vec<&'a Field>> {
        if self.carry.0.is_empty() {
            return Ok(Vec::new());
        }
        let mut fields = scope.columns(&self.carry)?;
        fields.retain(|field| *field.name() != time.name && !keys.contains(field.name()));
        Ok(fields)
    }
}

fn gathered(future: FutureRowsOp, schema: SchemaRef) -> PlanOp {
    PlanOp::Gather(GatherOp {
        others: Vec::new(),
        alone: true,
        schema,
        lower: GatherBy::Future(future),
        query: None,
    })
}

fn refuse_nested(field: &Field) -> Result<()> {
    if !field.data_type().is_nested() {
        return Ok(());
    }
    let message = format!(
        "`{}` is {}, which cannot be carried on",
        field.name(),
        type_words(field.data_type())
    );
    Err(Fault::new(codes::COLUMN_TYPE, message).column(field.name()))
}

fn types_of(fields: &[&Field]) -> Vec<DataType> {
    fields
        .iter()
        .map(|field| field.data_type().clone())
        .collect()
}

/// The columns of the known rows, followed by the hidden ones.
fn future_schema(schema: &Schema, time: &TimeColumn) -> SchemaRef {
    let mut fields = Vec::new();
    for field in schema.fields() {
        fields.push(field.as_ref().clone().with_nullable(true));
    }
    fields.push(Field::new(KNOWN_UNTIL, time.data_type.clone(), true));
    fields.push(Field::new(HORIZON_STEP, DataType::UInt32, true));
    Arc::new(Schema::new(fields))
}

/// Which series go on, and how far.
struct SeriesEnds {
    start: FutureStart,
    /// The clock of the time column; `None` for integers.
    clock: Option<ColumnClock>,
    every: CalendarSpan,
    steps: i64,
    active_within: Option<StepBack>,
    /// Number of key columns.
    keys: usize,
}

impl SeriesEnds {
    fn times(latest: &Finding) -> Result<&Int64Array> {
        let times = latest.column("time")?.as_primitive_opt::<Int64Type>();
        times.ok_or_else(|| Fault::internal("last rows of series without times"))
    }

    /// The last time of the data, and the first time at which a series may end that goes on.
    fn activity(&self, latest: &Finding) -> Result<Activity> {
        let times = SeriesEnds::times(latest)?;
        let times_of_day = SeriesEnds::times_of_day(latest)?;
        let time_of_day = times_of_day.as_ref().and_then(common_value);
        let last = times.values().iter().max().copied();
        let first_end = match (last, self.active_within) {
            (Some(last), Some(within)) => within.before_at(last, time_of_day),
            _ => i64::MIN,
        };
        Ok(Activity { last, first_end })
    }

    /// The day of the month of each series, where steps are of months.
    fn month_days(&self, latest: &Finding) -> Result<Option<Int64Array>> {
        if self.every.months == 0 {
            return Ok(None);
        }
        let days = latest.column("month_day")?.as_primitive_opt::<Int64Type>();
        let days = days.ok_or_else(|| Fault::internal("days of months that are no numbers"))?;
        Ok(Some(days.clone()))
    }

    /// The time of day of each series; `None` where that makes no difference.
    fn times_of_day(latest: &Finding) -> Result<Option<Int64Array>> {
        if latest.table().column_by_name("time_of_day").is_none() {
            return Ok(None);
        }
        let times = latest
            .column("time_of_day")?
            .as_primitive_opt::<Int64Type>();
        let times = times.ok_or_else(|| Fault::internal("times of day that are no numbers"))?;
        Ok(Some(times.clone()))
    }

    /// The time of a step after the last known time. Each is counted from there: steps of months from step to step
    /// would lose the day of the month, and steps of days the time of day where the clock skips it.
    fn time_of_step(&self, start: &KnownEnd, step: u32) -> Result<i64> {
        let span = self.every.times(i64::from(step));
        let time = match &self.clock {
            Some(clock) => {
                clock.continued(start.known_until, span, start.month_day, start.time_of_day)
            }
            None => start.known_until.checked_add(span.ticks),
        };
        time.ok_or_else(|| {
            Fault::new(
                codes::LIMIT,
                "rows of the future lie beyond the last time that can be told",
            )
        })
    }

    /// The row behind another of its series. A date that the clock skips has none.
    fn following(&self, row: &NextRow) -> Result<Option<NextRow>> {
        for step in row.step + 1..=self.steps as u32 {
            let time = self.time_of_step(&row.start, step)?;
            if time > row.time {
                return Ok(Some(NextRow { time, step, ..*row }));
            }
        }
        Ok(None)
    }

    fn count(&self, latest: &Finding) -> Result<FutureSeries> {
        let times = SeriesEnds::times(latest)?;
        let activity = self.activity(latest)?;
        let ends = times.values().iter();
        let active = ends.filter(|time| activity.includes(**time)).count() as u64;
        let mut behind = 0;
        let mut last_behind: Option<i64> = None;
        for time in times.values().iter().copied() {
            let is_behind = activity.includes(time) && Some(time) < activity.last;
            if is_behind && self.start == FutureStart::Data {
                behind += 1;
                last_behind = last_behind.max(Some(time));
            }
        }
        let mut duplicates = 0;
        let mut repeated_ends = Vec::new();
        for (series, rows) in SeriesEnds::rows_at_end(latest)?.values().iter().enumerate() {
            duplicates += rows.saturating_sub(1);
            if *rows > 1 && repeated_ends.len() < REPEATED_ENDS_MAX {
                repeated_ends.push(RepeatedEnd {
                    keys: self.key_texts(latest, series)?,
                    time: times.value(series),
                    rows: *rows,
                });
            }
        }
        let mut paired = 0;
        let mut sparse = 0;
        let mut sparse_end = None;
        let previous_times = SeriesEnds::previous_times(latest)?;
        let month_days = self.month_days(latest)?;
        for (series, time) in times.values().iter().copied().enumerate() {
            if previous_times.is_null(series) || !activity.includes(time) {
                continue;
            }
            let previous = previous_times.value(series);
            paired += 1;
            let month_day = month_days.as_ref().and_then(|days| value_at(days, series));
            let month_day = month_day.and_then(|day| u32::try_from(day).ok());
            if self.is_sparse(previous, time, month_day) {
                sparse += 1;
                sparse_end = sparse_end.or(Some([previous, time]));
            }
        }
        Ok(FutureSeries {
            active,
            ended: times.len() as u64 - active,
            known_until: activity.last,
            behind,
            last_behind,
            duplicates,
            repeated_ends,
            paired,
            sparse,
            sparse_end,
        })
    }

    /// True if two times of a series are further apart than a step. The series may lie on a later day of the month than
    /// the first of them, which is then the last day of a shorter one.
    fn is_sparse(&self, previous: i64, time: i64, month_day: Option<u32>) -> bool {
        let next = match &self.clock {
            Some(clock) => clock.continued(previous, self.every, month_day, None),
            None => previous.checked_add(self.every.ticks),
        };
        next.is_some_and(|next| next < time)
    }

    /// The time before the last one of each series.
    fn previous_times(latest: &Finding) -> Result<&Int64Array> {
        let times = latest.column("previous")?.as_primitive_opt::<Int64Type>();
        times.ok_or_else(|| Fault::internal("last rows of series without the time before"))
    }

    /// The rows that each series has at its last time.
    fn rows_at_end(latest: &Finding) -> Result<&UInt64Array> {
        let rows = latest.column("rows")?.as_primitive_opt::<UInt64Type>();
        rows.ok_or_else(|| Fault::internal("last rows of series without their number"))
    }

    /// The keys of a series as text.
    fn key_texts(&self, latest: &Finding, series: usize) -> Result<Vec<String>> {
        let mut texts = Vec::with_capacity(self.keys);
        for key in 1..=self.keys {
            let column = latest.column(&format!("key{key}"))?;
            let text = if column.is_null(series) {
                "null".to_owned()
            } else {
                array_value_to_string(column, series)?
            };
            texts.push(text);
        }
        Ok(texts)
    }
}

/// The series that go on.
struct Activity {
    /// The last time of the data.
    last: Option<i64>,
    /// Series that end earlier do not go on.
    first_end: i64,
}

impl Activity {
    fn includes(&self, end: i64) -> bool {
        end >= self.first_end
    }
}

/// A row to make: its time first, then the place of its series, so that the least comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct NextRow {
    time: i64,
    series: u32,
    step: u32,
    start: KnownEnd,
}

/// The end of the known rows of a series, from which all steps are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct KnownEnd {
    /// The last known time.
    known_until: i64,
    /// The day of the month of all rows of the series, where steps are of months.
    month_day: Option<u32>,
    /// The time of day of all rows of the series, where the clock may skip it.
    time_of_day: Option<i64>,
}

/// Makes the rows in order of time, then of series. Holds one entry per series.
struct SeriesSteps {
    open: BinaryHeap<Reverse<NextRow>>,
    ends: Arc<SeriesEnds>,
    /// The columns of the last rows by name; the time is replaced.
    latest: Vec<(String, ArrayRef)>,
    time: String,
    schema: SchemaRef,
}

impl SeriesSteps {
    /// The rows of some series, by their rows in the finding. `columns` names those of the finding: keys, time, carried
    /// columns.
    fn new(
        ends: &Arc<SeriesEnds>,
        latest: &Finding,
        chosen_series: impl Iterator<Item = usize>,
        columns: &[String],
        schema: &SchemaRef,
    ) -> Result<SeriesSteps> {
        let times = SeriesEnds::times(latest)?;
        let activity = ends.activity(latest)?;
        let mut open = Vec::new();
        let times_of_day = SeriesEnds::times_of_day(latest)?;
        let common_time = times_of_day.as_ref().and_then(common_value);
        let month_days = ends.month_days(latest)?;
        let common_day = match &month_days {
            Some(days) if ends.start == FutureStart::Data && !days.is_empty() => {
                Some(common_month_day(days)?)
            }
            _ => None,
        };
        for series in chosen_series {
            let last_time = times.value(series);
            if !activity.includes(last_time) {
                continue;
            }
            let known_until = if ends.start == FutureStart::Data {
                activity.last.unwrap_or(last_time)
            } else {
                last_time
            };
            let series = u32::try_from(series)
                .map_err(|_| Fault::new(codes::LIMIT, "more than 2^32 series"))?;
            let month_day = match (&month_days, common_day) {
                (None, _) => None,
                (Some(_), Some(day)) => Some(day),
                (Some(days), None) => Some(month_day_of(days, series as usize)?),
            };
            let time_of_day = match &times_of_day {
                _ if ends.start == FutureStart::Data => common_time,
                Some(times) => value_at(times, series as usize),
                None => None,
            };
            let start = KnownEnd {
                known_until,
                month_day,
                time_of_day,
            };
            ends.time_of_step(&start, ends.steps as u32)?;
            open.push(Reverse(NextRow {
                time: ends.time_of_step(&start, 1)?,
                series,
                step: 1,
                start,
            }));
        }
        let latest_columns = latest.table().columns().iter().cloned();
        let time_index = latest.table().schema_ref().index_of("time")?;
        let time = columns
            .get(time_index)
            .ok_or_else(|| Fault::internal("last rows of series without a time"))?
            .clone();
        let latest = columns.iter().cloned().zip(latest_columns).collect();
        Ok(SeriesSteps {
            open: BinaryHeap::from(open),
            ends: ends.clone(),
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
            let name = field.name();
            let data_type = field.data_type();
            if *name == self.time {
                return ticks(&|row| row.time, data_type);
            }
            match name.as_str() {
                KNOWN_UNTIL => ticks(&|row| row.start.known_until, data_type),
                HORIZON_STEP => Ok(Arc::new(
                    rows.iter().map(|row| row.step).collect::<UInt32Array>(),
                ) as ArrayRef),
                name => match self
                    .latest
                    .iter()
                    .find(|(latest_name, _)| latest_name == name)
                {
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
        let mut text_bytes = 0;
        while rows.len() < BATCH_ROWS
            && text_bytes < BATCH_TEXT_BYTES
            && let Some(Reverse(row)) = self.open.pop()
        {
            for (_, column) in &self.latest {
                text_bytes += text_length(column, row.series as usize);
            }
            rows.push(row);
            match self.ends.following(&row) {
                Ok(following) => self.open.extend(following.map(Reverse)),
                Err(fault) => return Some(Err(fault)),
            }
        }
        (!rows.is_empty()).then(|| self.batch(&rows))
    }
}

fn value_at(values: &Int64Array, at: usize) -> Option<i64> {
    values.is_valid(at).then(|| values.value(at))
}

/// The value that all series have.
fn common_value(values: &Int64Array) -> Option<i64> {
    let mut others = values.iter();
    let first = others.next()?;
    first.filter(|_| others.all(|value| value == first))
}

/// The day of the month of a series.
fn month_day_of(days: &Int64Array, series: usize) -> Result<u32> {
    let day = value_at(days, series);
    day.and_then(|day| u32::try_from(day).ok()).ok_or_else(|| {
        let message = "the rows of a series lie on different days of the month, so steps of \
                       months have no day";
        Fault::new(codes::BAD_VALUE, message).hint(
            "make one row of each month first (`aggregate: { every: 1mo }`), or count steps in \
             days",
        )
    })
}

/// The day of the month of all series.
fn common_month_day(days: &Int64Array) -> Result<u32> {
    let first = month_day_of(days, 0)?;
    for series in 1..days.len() {
        if month_day_of(days, series)? != first {
            let message = "the rows of different series lie on different days of the month";
            return Err(Fault::new(codes::BAD_VALUE, message)
                .hint("let each go on from its own last time: `after: series`"));
        }
    }
    Ok(first)
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
