//! How series lie in time: how many there are, how long, with which gaps.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
    codes, logical_type,
};
use serde_json::{Value, json};

use crate::group_keys::KeyColumn;
use crate::grouped_moments::SlotCache;
use crate::numeric_column::NumericColumn;
use crate::spill_map::SpillMap;
use crate::spill_runs::{KeyOrder, SpillValue};

/// A series is intermittent where as many periods lie between its demands on average (Syntetos, Boylan and Croston, "On
/// the categorization of demand patterns", 2005).
const INTERMITTENT_PERIODS: f64 = 1.32;

/// Measures series. The input columns are the time (dates, times or integers), the value whose demand is looked at if
/// there is one, and the key columns.
///
/// Rows without a time are ignored. The period is the greatest distance that divides all distances between times of the
/// same series. Periods of a series without a row are gaps; a demand is a value that is not null, NaN or 0, or, without a
/// value column, a row.
///
/// The finding has one row: `series`, `rows`, `rows_min`, `rows_max` (rows of a series), `periods` (from the first to the
/// last time of each series), `gaps`, `series_with_gaps`, `intermittent` (series with 1.32 periods a demand and more)
/// (UInt64), `first`, `last`, and `period` (Int64; null without rows, and `period` also where no series has two times).
/// The state spills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesShape {
    /// Types of the key columns; memory layouts do not matter.
    pub keys: Vec<DataType>,
    /// Whether there is a value column.
    pub has_value: bool,
}

/// State of [`SeriesShape`]: about 100 bytes per series, spilled beyond the budget.
pub struct SeriesShapeState(SpillMap<SeriesExtent>);

/// What is known of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SeriesExtent {
    rows: u64,
    first: i64,
    last: i64,
    /// The greatest distance that divides all distances between its times; 0 where all times are equal.
    step: u64,
    demands: u64,
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl SeriesExtent {
    fn push(&mut self, time: i64, is_demand: bool) {
        let row = SeriesExtent {
            rows: 1,
            first: time,
            last: time,
            step: 0,
            demands: u64::from(is_demand),
        };
        self.merge_value(&row);
    }

    fn span(&self) -> u64 {
        self.last.abs_diff(self.first)
    }

    /// Periods from the first to the last time.
    fn periods(&self, period: u64) -> u64 {
        self.span()
            .checked_div(period)
            .unwrap_or(0)
            .saturating_add(1)
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
    }

    fn write(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.rows)?;
        out.signed(self.first)?;
        out.varint(self.span())?;
        out.varint(self.step)?;
        out.varint(self.demands)
    }

    fn read(input: &mut StateDecoder<'_>) -> Result<Self> {
        let (rows, first, span) = (input.varint()?, input.signed()?, input.varint()?);
        let last = first.checked_add_unsigned(span);
        let last = last.ok_or_else(|| {
            Fault::new(
                codes::CORRUPT,
                "a state holds a series that ends after all time",
            )
        })?;
        Ok(SeriesExtent {
            rows,
            first,
            last,
            step: input.varint()?,
            demands: input.varint()?,
        })
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}

/// Times as ticks of their own unit.
fn ticks(column: &ArrayRef) -> Result<Int64Array> {
    let column = match column.data_type() {
        // Arrow casts these to `Int32` only.
        DataType::Date32 | DataType::Time32(_) => &cast(column, &DataType::Int32)?,
        _ => column,
    };
    Ok(cast(column, &DataType::Int64)?
        .as_primitive::<Int64Type>()
        .clone())
}

impl Analyzer for SeriesShape {
    type State = SeriesShapeState;

    fn kind(&self) -> &'static str {
        "series_shape"
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
        let wrong =
            || Fault::internal("an analyzer of series received the wrong number of columns");
        let (time, others) = input.columns.split_first().ok_or_else(wrong)?;
        let (value, keys) = others
            .split_at_checked(usize::from(self.has_value))
            .ok_or_else(wrong)?;
        if keys.len() != self.keys.len() {
            return Err(wrong());
        }
        let columns = keys
            .iter()
            .zip(&self.keys)
            .map(|(key, logical)| KeyColumn::of(key, &logical_type(logical)));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let (times, value) = (
            ticks(time)?,
            value.first().map(NumericColumn::doubles).transpose()?,
        );
        let is_demand = |row: usize| match &value {
            None => true,
            Some(value) => {
                value.is_valid(row) && !value.value(row).is_nan() && value.value(row) != 0.0
            }
        };
        let (mut cache, mut key) = (SlotCache::default(), Vec::new());
        for row in (0..input.rows).filter(|row| times.is_valid(*row)) {
            let slot = cache.slot(&columns, row, &mut state.0, &mut key)?;
            state
                .0
                .update_slot(slot, |extent| extent.push(times.value(row), is_demand(row)));
        }
        state.0.spill_if_large()
    }

    fn merge(&self, state: &mut SeriesShapeState, later: SeriesShapeState) -> Result<()> {
        state.0.merge(later.0)
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
        let (mut series, mut period, mut rows_min, mut rows_max) = (0u64, 0, u64::MAX, 0);
        state.0.for_each(|_, extent| {
            series += 1;
            period = common_divisor(period, extent.step);
            rows_min = rows_min.min(extent.rows);
            rows_max = rows_max.max(extent.rows);
            whole.merge_value(extent);
            Ok(())
        })?;
        let (mut periods, mut gaps, mut series_with_gaps, mut intermittent) =
            (0u64, 0u64, 0u64, 0u64);
        // Gaps need the period of all series.
        state.0.for_each(|_, extent| {
            let own = extent.periods(period);
            let missing = own.saturating_sub(extent.rows);
            periods = periods.saturating_add(own);
            gaps = gaps.saturating_add(missing);
            series_with_gaps += u64::from(missing > 0);
            intermittent += u64::from(own as f64 >= INTERMITTENT_PERIODS * extent.demands as f64);
            Ok(())
        })?;
        let count = |value: u64| Arc::new(UInt64Array::from(vec![value])) as ArrayRef;
        let tick = |value: Option<i64>| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
        let there = |value: i64| (series > 0).then_some(value);
        Finding::of([
            ("series", count(series)),
            ("rows", count(whole.rows)),
            ("rows_min", count(rows_min.min(rows_max))),
            ("rows_max", count(rows_max)),
            ("periods", count(periods)),
            ("gaps", count(gaps)),
            ("series_with_gaps", count(series_with_gaps)),
            ("intermittent", count(intermittent)),
            ("first", tick(there(whole.first))),
            ("last", tick(there(whole.last))),
            (
                "period",
                tick(i64::try_from(period).ok().filter(|period| *period > 0)),
            ),
        ])
    }

    fn size_bytes(&self, state: &SeriesShapeState) -> usize {
        state.0.size_bytes()
    }
}
