//! Shape of series in time: their number, lengths and gaps.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array, UInt64Array};
use arrow::datatypes::DataType;
use forebay_model::{
    Analyzer, AnalyzerInput, ColumnClock, Fault, Finding, Result, ScratchSpace, StateDecoder,
    StateEncoder, codes, logical_type, ticks,
};
use serde_json::{Value, json};

use crate::group_keys::KeyColumn;
use crate::month_steps::{MonthSteps, common_divisor};
use crate::numeric_column::NumericColumn;
use crate::slot_cache::SlotCache;
use crate::spill_map::SpillMap;
use crate::spill_runs::{KeyOrder, SpillValue};

/// A series is intermittent where as many periods lie between its demands on average (Syntetos, Boylan and Croston, "On
/// the categorization of demand patterns", 2005).
const INTERMITTENT_PERIODS: f64 = 1.32;

const NANOSECONDS_PER_SECOND: i128 = 1_000_000_000;

/// Measures series. The input columns are the time (dates, times or integers), the value whose demand is looked at if
/// there is one, and the key columns.
///
/// Rows without a time are ignored. The period is a number of months where all times of each series lie whole months
/// apart, else the greatest distance that divides all distances between times of the same series. Periods of a series
/// without a row are gaps; a demand is a value that is not null, NaN or 0, or, without a
/// value column, a row.
///
/// The finding has one row: `series`, `rows`, `rows_min`, `rows_max` (rows of a series), `periods` (from the first to the
/// last time of each series), `gaps`, `series_with_gaps`, `intermittent` (series with 1.32 periods a demand and more)
/// (UInt64), `first`, `last`, and `period` (Int64; null without rows, and `period` also where no series has two times),
/// `period_months` and `span_months` (Int64; the months of a period and from the first time to the last, null where a
/// period is no number of months). The state spills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesShape {
    /// Types of the key columns; memory layouts do not matter.
    pub keys: Vec<DataType>,
    /// True if the columns include a value.
    pub has_value: bool,
    /// True if times are those of the clocks in the zone of their column, by which all days are equally long. Times are in
    /// ticks of such clocks in the finding, too.
    pub in_local_time: bool,
}

/// State of [`SeriesShape`]: about 150 bytes per series, spilled beyond the budget.
pub struct SeriesShapeState(SpillMap<SeriesExtent>);

/// Rows and times of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SeriesExtent {
    rows: u64,
    first: i64,
    last: i64,
    /// The greatest distance that divides all distances between its times; 0 where all times are equal.
    step: u64,
    demands: u64,
    months: MonthSteps,
}

/// The period of all series; 0 where no series has two times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SeriesPeriod {
    Ticks(u64),
    Months(u64),
}

impl SeriesExtent {
    /// Adds a row. `clock` tells the month of its time, where it has one.
    fn push(&mut self, time: i64, is_demand: bool, clock: Option<(&ColumnClock, i64)>) {
        let mut months = MonthSteps::default();
        // Most series are soon known not to have months.
        if !self.months.is_uneven() {
            months.push(clock.and_then(|(clock, instant)| clock.place_in_month(instant)));
        }
        let row = SeriesExtent {
            rows: 1,
            first: time,
            last: time,
            step: 0,
            demands: u64::from(is_demand),
            months,
        };
        self.merge_value(&row);
    }

    fn span(&self) -> u64 {
        self.last.abs_diff(self.first)
    }

    /// Periods from the first to the last time.
    fn periods(&self, period: &SeriesPeriod) -> u64 {
        let (span, length) = match period {
            SeriesPeriod::Ticks(ticks) => (self.span(), *ticks),
            SeriesPeriod::Months(months) => (self.months.span(), *months),
        };
        // Without a period all times are equal.
        let steps = span.checked_div(length).unwrap_or(0);
        steps.saturating_add(1)
    }
}

impl SpillValue for SeriesExtent {
    fn merge_value(&mut self, other: &Self) {
        if self.rows == 0 || other.rows == 0 {
            if self.rows == 0 {
                *self = *other;
            }
            return;
        }
        let distance = self.first.abs_diff(other.first);
        // Most rows change nothing.
        if distance != 0 && (self.step == 0 || !distance.is_multiple_of(self.step)) {
            self.step = common_divisor(self.step, distance);
        }
        if other.step != 0 {
            self.step = common_divisor(self.step, other.step);
        }
        self.rows += other.rows;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.demands += other.demands;
        self.months.merge(&other.months);
    }

    fn write(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.rows)?;
        out.signed(self.first)?;
        out.varint(self.span())?;
        out.varint(self.step)?;
        out.varint(self.demands)?;
        self.months.write(out)
    }

    fn read(input: &mut StateDecoder<'_>) -> Result<Self> {
        let rows = input.count()?;
        let first = input.signed()?;
        let span = input.varint()?;
        let Some(last) = first.checked_add_unsigned(span) else {
            return Err(Fault::new(
                codes::CORRUPT,
                "a state holds a series that ends after all time",
            ));
        };
        Ok(SeriesExtent {
            rows,
            first,
            last,
            step: input.varint()?,
            demands: input.count()?,
            months: MonthSteps::read(input)?,
        })
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}

/// Times as ticks of a clock in the zone of their column.
fn local_ticks(instants: &Int64Array, clock: &ColumnClock) -> Int64Array {
    let tick = clock.tick();
    let local = |time: i64| {
        let second = i128::from(time)
            .checked_mul(tick)?
            .div_euclid(NANOSECONDS_PER_SECOND);
        let offset_seconds = i128::from(clock.calendar_time(time)?.and_utc().timestamp()) - second;
        let offset = i64::try_from(offset_seconds * NANOSECONDS_PER_SECOND / tick).ok()?;
        time.checked_add(offset)
    };
    instants.iter().map(|time| time.and_then(local)).collect()
}

/// A row is a demand if its value is neither null, NaN nor 0; without a value column each row is one.
fn is_demand(values: Option<&Float64Array>, row: usize) -> bool {
    let Some(values) = values else {
        return true;
    };
    let value = values.value(row);
    values.is_valid(row) && !value.is_nan() && value != 0.0
}

fn wrong_columns() -> Fault {
    Fault::internal("an analyzer of series received the wrong number of columns")
}

fn count_column(value: u64) -> ArrayRef {
    Arc::new(UInt64Array::from(vec![value]))
}

fn tick_column(value: Option<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(vec![value]))
}

impl Analyzer for SeriesShape {
    type State = SeriesShapeState;

    fn kind(&self) -> &'static str {
        if self.in_local_time {
            "local_series_shape"
        } else {
            "series_shape"
        }
    }

    fn version(&self) -> u32 {
        2
    }

    fn config(&self) -> Value {
        let types: Vec<String> = self
            .keys
            .iter()
            .map(|key| logical_type(key).to_string())
            .collect();
        json!({ "keys": types, "value": self.has_value })
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<SeriesShapeState> {
        Ok(SeriesShapeState(SpillMap::new(scratch, KeyOrder::Bytes)))
    }

    fn update(&self, state: &mut SeriesShapeState, input: &AnalyzerInput<'_>) -> Result<()> {
        let (time, others) = input.columns.split_first().ok_or_else(wrong_columns)?;
        let (value, keys) = others
            .split_at_checked(usize::from(self.has_value))
            .ok_or_else(wrong_columns)?;
        if keys.len() != self.keys.len() {
            return Err(wrong_columns());
        }
        let mut columns = Vec::with_capacity(keys.len());
        for (key, logical) in keys.iter().zip(&self.keys) {
            columns.push(KeyColumn::of(key, &logical_type(logical))?);
        }
        let instants = ticks(time)?;
        let clock = ColumnClock::of(&logical_type(time.data_type()))?;
        let times = match &clock {
            Some(clock) if self.in_local_time => local_ticks(&instants, clock),
            _ => instants.clone(),
        };
        // Without local time, days of a zone whose clock changes have no months.
        let clock = clock.filter(|clock| self.in_local_time || clock.has_even_days());
        let values = value.first().map(NumericColumn::doubles).transpose()?;
        // Rows of one series often follow each other: the cache finds their slot without a search.
        let map = &mut state.0;
        let mut cache = SlotCache::of(&columns, input.rows);
        for row in 0..input.rows {
            if times.is_null(row) {
                continue;
            }
            let time = times.value(row);
            let is_demand = is_demand(values.as_ref(), row);
            let slot = cache.slot(row, map)?;
            let clock = clock.as_ref().map(|clock| (clock, instants.value(row)));
            map.update_slot(slot, |extent| extent.push(time, is_demand, clock));
        }
        map.spill_if_large()
    }

    fn merge(&self, state: &mut SeriesShapeState, later_state: SeriesShapeState) -> Result<()> {
        state.0.merge(later_state.0)
    }

    fn encode(&self, state: &mut SeriesShapeState, out: &mut dyn Write) -> Result<()> {
        state.0.encode(out)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<SeriesShapeState> {
        Ok(SeriesShapeState(SpillMap::decode(
            input,
            scratch,
            KeyOrder::Bytes,
        )?))
    }

    fn finish(&self, mut state: SeriesShapeState) -> Result<Finding> {
        let mut whole = SeriesExtent::default();
        let mut series = 0u64;
        let mut period_ticks = 0;
        let mut period_months = Some(0);
        let mut months_range: Option<(i64, i64)> = None;
        let mut rows_min = u64::MAX;
        let mut rows_max = 0;
        state.0.for_each(|_, extent| {
            series += 1;
            period_ticks = common_divisor(period_ticks, extent.step);
            period_months = period_months
                .zip(extent.months.months())
                .map(|(period, step)| common_divisor(period, step));
            if let Some((first, last)) = extent.months.range() {
                let (earliest, latest) = months_range.unwrap_or((first, last));
                months_range = Some((earliest.min(first), latest.max(last)));
            }
            rows_min = rows_min.min(extent.rows);
            rows_max = rows_max.max(extent.rows);
            whole.merge_value(extent);
            Ok(())
        })?;
        let period = match period_months {
            Some(months) if months > 0 => SeriesPeriod::Months(months),
            _ => SeriesPeriod::Ticks(period_ticks),
        };
        let mut periods = 0u64;
        let mut gaps = 0u64;
        let mut series_with_gaps = 0u64;
        let mut intermittent = 0u64;
        // Gaps need the period of all series.
        state.0.for_each(|_, extent| {
            let series_periods = extent.periods(&period);
            let missing = series_periods.saturating_sub(extent.rows);
            periods = periods.saturating_add(series_periods);
            gaps = gaps.saturating_add(missing);
            series_with_gaps += u64::from(missing > 0);
            let periods_min = INTERMITTENT_PERIODS * extent.demands as f64;
            intermittent += u64::from(series_periods as f64 >= periods_min);
            Ok(())
        })?;
        let mut first = None;
        let mut last = None;
        if series > 0 {
            first = Some(whole.first);
            last = Some(whole.last);
        }
        let period_ticks = i64::try_from(period_ticks).ok().filter(|ticks| *ticks > 0);
        let mut period_months = None;
        let mut span_months = None;
        if let SeriesPeriod::Months(months) = period {
            period_months = i64::try_from(months).ok();
            span_months = months_range.map(|(first, last)| last - first);
        }
        Finding::of([
            ("series", count_column(series)),
            ("rows", count_column(whole.rows)),
            ("rows_min", count_column(rows_min.min(rows_max))),
            ("rows_max", count_column(rows_max)),
            ("periods", count_column(periods)),
            ("gaps", count_column(gaps)),
            ("series_with_gaps", count_column(series_with_gaps)),
            ("intermittent", count_column(intermittent)),
            ("first", tick_column(first)),
            ("last", tick_column(last)),
            ("period", tick_column(period_ticks)),
            ("period_months", tick_column(period_months)),
            ("span_months", tick_column(span_months)),
        ])
    }

    fn size_bytes(&self, state: &SeriesShapeState) -> usize {
        state.0.size_bytes()
    }
}
