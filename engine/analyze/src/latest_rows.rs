//! The latest row of each key.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use forebay_model::{
    Analyzer, AnalyzerInput, ColumnClock, Fault, Finding, Result, ScratchSpace, StateDecoder,
    StateEncoder, codes, logical_type, nanoseconds_of_day, ticks,
};
use serde_json::{Value, json};

use crate::group_keys::{KeyColumn, KeyTable};
use crate::slot_cache::SlotCache;
use crate::spill_map::SpillMap;
use crate::spill_runs::{KeyOrder, SpillValue};

/// Most bytes of the values of a row: far below what a block of a run holds.
const VALUES_BYTES_MAX: usize = 32 << 10;

/// The latest time of each key, and the values of some columns at that time. The input columns are the keys, the time
/// and the values. Rows without a time are ignored; a null key is a key of its own. Of rows with equal times, the one
/// whose values are greater in byte order counts, so that the result does not depend on the order of rows.
///
/// The finding has one row per key, sorted by key, nulls first: `key1`, `key2`, ..., `time`, `value1`, ..., of the
/// given types, on request `month_day` and `time_of_day`, `rows`: how many rows of the key have its latest time, and
/// `previous`: the time before it, null where the key has one time alone.
/// The state spills; the finding has to fit in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatestRows {
    /// Types of the key columns; memory layouts do not matter.
    pub keys: Vec<DataType>,
    /// Type of the time column: dates, timestamps or integers.
    pub time: DataType,
    /// Types of the value columns.
    pub values: Vec<DataType>,
    /// Asks for `month_day`: the day of the month on which all rows of a key lie, or on the last day of shorter months;
    /// 31 where all lie on the last day of a month; null where they do neither.
    pub month_days: bool,
    /// Asks for `time_of_day`: that of all rows of a key, in nanoseconds since the midnight of the time's zone; null where
    /// they differ. A row may stand for a time that the clock skips.
    pub times_of_day: bool,
}

/// A row that is kept for each key.
trait KeptRow: SpillValue {
    fn latest(&self) -> &LatestRow;
    fn latest_mut(&mut self) -> &mut LatestRow;
    /// Notes that the key has a row at a time.
    fn note_time(&mut self, clock: Option<&ColumnClock>, time: i64);
    /// The day of the month of all rows of the key.
    fn month_day(&self) -> Option<i64>;
    /// The time of day of all rows of the key.
    fn time_of_day(&self) -> Option<i64> {
        None
    }
}

impl KeptRow for LatestRow {
    fn latest(&self) -> &LatestRow {
        self
    }

    fn latest_mut(&mut self) -> &mut LatestRow {
        self
    }

    fn note_time(&mut self, _: Option<&ColumnClock>, _: i64) {}

    fn month_day(&self) -> Option<i64> {
        None
    }
}

/// The latest row of a key, and the days of the month of all its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct LatestRowOfMonths {
    latest: LatestRow,
    /// The day of rows that are not at the end of their month: 0 without any, [`SEVERAL_DAYS`] where they differ.
    day: i64,
    /// The greatest day of rows that are at the end of their month; 0 without any.
    end: i64,
}

/// Rows lie on several days of the month.
const SEVERAL_DAYS: i64 = 32;

/// The last day of each month.
const MONTH_END: i64 = 31;

impl LatestRowOfMonths {
    fn add_days(&mut self, day: i64, end: i64) {
        if day != 0 && day != self.day {
            self.day = if self.day == 0 { day } else { SEVERAL_DAYS };
        }
        self.end = self.end.max(end);
    }
}

impl SpillValue for LatestRowOfMonths {
    fn merge_value(&mut self, other: &Self) {
        self.latest.merge_value(&other.latest);
        self.add_days(other.day, other.end);
    }

    fn write(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        self.latest.write(out)?;
        out.signed(self.day)?;
        out.signed(self.end)
    }

    fn read(input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(LatestRowOfMonths {
            latest: LatestRow::read(input)?,
            day: input.signed()?,
            end: input.signed()?,
        })
    }

    fn heap_bytes(&self) -> usize {
        self.latest.heap_bytes()
    }
}

impl KeptRow for LatestRowOfMonths {
    fn latest(&self) -> &LatestRow {
        &self.latest
    }

    fn latest_mut(&mut self) -> &mut LatestRow {
        &mut self.latest
    }

    fn note_time(&mut self, clock: Option<&ColumnClock>, time: i64) {
        match clock.and_then(|clock| clock.day_of_month(time)) {
            Some((day, days)) if day == days => self.add_days(0, i64::from(day)),
            Some((day, _)) => self.add_days(i64::from(day), 0),
            None => self.add_days(SEVERAL_DAYS, 0),
        }
    }

    fn month_day(&self) -> Option<i64> {
        match self.day {
            0 => Some(MONTH_END),
            SEVERAL_DAYS => None,
            day => (self.end <= day).then_some(day),
        }
    }
}

/// The latest row of a key, the days of the month of all its rows, and their time of day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct LatestRowOfDays {
    row: LatestRowOfMonths,
    times: TimesOfDay,
}

/// The times of day that all rows of a key may have, the greatest first: a row behind a time that the clock skips may
/// have two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TimesOfDay([i64; 2]);

/// Rows have no time of day in common.
const NO_TIME: i64 = -1;

/// There are no rows so far.
const ANY_TIME: i64 = -2;

impl Default for TimesOfDay {
    fn default() -> Self {
        TimesOfDay([ANY_TIME; 2])
    }
}

impl TimesOfDay {
    fn of(clock: Option<&ColumnClock>, time: i64) -> TimesOfDay {
        let Some(local) = clock.and_then(|clock| clock.local(time)) else {
            return TimesOfDay([NO_TIME; 2]);
        };
        let skipped = clock.and_then(|clock| clock.skipped_time(time));
        let skipped = skipped.map_or(NO_TIME, nanoseconds_of_day);
        TimesOfDay::ordered(nanoseconds_of_day(local), skipped)
    }

    fn ordered(first: i64, second: i64) -> TimesOfDay {
        TimesOfDay([first.max(second), first.min(second)])
    }

    fn is_any(self) -> bool {
        self.0[0] == ANY_TIME
    }

    /// The times of day that are in both.
    fn intersect(&mut self, other: TimesOfDay) {
        if self.is_any() {
            *self = other;
        } else if !other.is_any() {
            let common = self.0.map(|time| {
                if other.0.contains(&time) {
                    time
                } else {
                    NO_TIME
                }
            });
            *self = TimesOfDay::ordered(common[0], common[1]);
        }
    }

    /// The one time of day; of two, midnight, or that which the clock shows.
    fn chosen(self) -> Option<i64> {
        let chosen = if self.0.contains(&0) { 0 } else { self.0[0] };
        (chosen >= 0).then_some(chosen)
    }
}

impl SpillValue for LatestRowOfDays {
    fn merge_value(&mut self, other: &Self) {
        self.row.merge_value(&other.row);
        self.times.intersect(other.times);
    }

    fn write(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        self.row.write(out)?;
        out.signed(self.times.0[0])?;
        out.signed(self.times.0[1])
    }

    fn read(input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(LatestRowOfDays {
            row: LatestRowOfMonths::read(input)?,
            times: TimesOfDay([input.signed()?, input.signed()?]),
        })
    }

    fn heap_bytes(&self) -> usize {
        self.row.heap_bytes()
    }
}

impl KeptRow for LatestRowOfDays {
    fn latest(&self) -> &LatestRow {
        self.row.latest()
    }

    fn latest_mut(&mut self) -> &mut LatestRow {
        self.row.latest_mut()
    }

    fn note_time(&mut self, clock: Option<&ColumnClock>, time: i64) {
        self.row.note_time(clock, time);
        self.times.intersect(TimesOfDay::of(clock, time));
    }

    fn month_day(&self) -> Option<i64> {
        self.row.month_day()
    }

    fn time_of_day(&self) -> Option<i64> {
        self.times.chosen()
    }
}

/// The latest row of a key: its time in ticks, and its values in the encoding of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LatestRow {
    time: i64,
    /// The greatest of the earlier times of the key; the least integer without any.
    previous: i64,
    /// Rows of the key that have this time.
    rows: u64,
    values: Vec<u8>,
}

impl LatestRow {
    /// Notes a time that is not the latest one.
    fn note_previous(&mut self, time: i64) {
        self.previous = self.previous.max(time);
    }

    fn previous(&self) -> Option<i64> {
        (self.previous != i64::MIN).then_some(self.previous)
    }
}

impl Default for LatestRow {
    fn default() -> Self {
        LatestRow {
            time: i64::MIN,
            previous: i64::MIN,
            rows: 0,
            values: Vec::new(),
        }
    }
}

impl SpillValue for LatestRow {
    fn merge_value(&mut self, other: &Self) {
        if other.time > self.time {
            let time = self.time;
            self.clone_from(other);
            self.note_previous(time);
        } else if other.time < self.time {
            self.note_previous(other.time);
        } else {
            self.note_previous(other.previous);
            self.rows = self.rows.saturating_add(other.rows);
            if other.values > self.values {
                self.values.clone_from(&other.values);
            }
        }
    }

    fn write(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.signed(self.time)?;
        out.signed(self.previous)?;
        out.varint(self.rows)?;
        out.bytes(&self.values)
    }

    fn read(input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(LatestRow {
            time: input.signed()?,
            previous: input.signed()?,
            rows: input.varint()?,
            values: input.bytes(VALUES_BYTES_MAX)?,
        })
    }

    fn heap_bytes(&self) -> usize {
        self.values.capacity()
    }
}

/// State of [`LatestRows`]: about 100 bytes per key and the values, spilled beyond the budget.
pub struct LatestRowsState(LatestRowMap);

enum LatestRowMap {
    Rows(SpillMap<LatestRow>),
    RowsOfMonths(SpillMap<LatestRowOfMonths>),
    RowsOfDays(SpillMap<LatestRowOfDays>),
}

impl Analyzer for LatestRows {
    type State = LatestRowsState;

    fn kind(&self) -> &'static str {
        "latest_rows"
    }

    fn config(&self) -> Value {
        let names = |types: &[DataType]| {
            types
                .iter()
                .map(|data_type| logical_type(data_type).to_string())
                .collect::<Vec<String>>()
        };
        let mut config = json!({
            "keys": names(&self.keys),
            "time": logical_type(&self.time).to_string(),
            "values": names(&self.values),
            // States of earlier versions do not count the rows of the latest time, or lack the time before it.
            "rows": true,
            "previous": true,
        });
        if self.month_days {
            config["month_days"] = json!(true);
        }
        if self.times_of_day {
            config["times_of_day"] = json!(true);
        }
        config
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<LatestRowsState> {
        Ok(LatestRowsState(if self.times_of_day {
            LatestRowMap::RowsOfDays(SpillMap::new(scratch, KeyOrder::Bytes))
        } else if self.month_days {
            LatestRowMap::RowsOfMonths(SpillMap::new(scratch, KeyOrder::Bytes))
        } else {
            LatestRowMap::Rows(SpillMap::new(scratch, KeyOrder::Bytes))
        }))
    }

    fn update(&self, state: &mut LatestRowsState, input: &AnalyzerInput<'_>) -> Result<()> {
        match &mut state.0 {
            LatestRowMap::Rows(map) => self.update_map(map, input),
            LatestRowMap::RowsOfMonths(map) => self.update_map(map, input),
            LatestRowMap::RowsOfDays(map) => self.update_map(map, input),
        }
    }

    fn merge(&self, state: &mut LatestRowsState, later_state: LatestRowsState) -> Result<()> {
        match (&mut state.0, later_state.0) {
            (LatestRowMap::Rows(map), LatestRowMap::Rows(later_map)) => map.merge(later_map),
            (LatestRowMap::RowsOfMonths(map), LatestRowMap::RowsOfMonths(later_map)) => {
                map.merge(later_map)
            }
            (LatestRowMap::RowsOfDays(map), LatestRowMap::RowsOfDays(later_map)) => {
                map.merge(later_map)
            }
            _ => Err(Fault::internal("last rows with and without days of months")),
        }
    }

    fn encode(&self, state: &mut LatestRowsState, out: &mut dyn Write) -> Result<()> {
        match &mut state.0 {
            LatestRowMap::Rows(map) => map.encode(out),
            LatestRowMap::RowsOfMonths(map) => map.encode(out),
            LatestRowMap::RowsOfDays(map) => map.encode(out),
        }
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<LatestRowsState> {
        Ok(LatestRowsState(if self.times_of_day {
            LatestRowMap::RowsOfDays(SpillMap::decode(input, scratch, KeyOrder::Bytes)?)
        } else if self.month_days {
            LatestRowMap::RowsOfMonths(SpillMap::decode(input, scratch, KeyOrder::Bytes)?)
        } else {
            LatestRowMap::Rows(SpillMap::decode(input, scratch, KeyOrder::Bytes)?)
        }))
    }

    fn finish(&self, state: LatestRowsState) -> Result<Finding> {
        match state.0 {
            LatestRowMap::Rows(map) => self.finish_map(map),
            LatestRowMap::RowsOfMonths(map) => self.finish_map(map),
            LatestRowMap::RowsOfDays(map) => self.finish_map(map),
        }
    }

    fn size_bytes(&self, state: &LatestRowsState) -> usize {
        match &state.0 {
            LatestRowMap::Rows(map) => map.size_bytes(),
            LatestRowMap::RowsOfMonths(map) => map.size_bytes(),
            LatestRowMap::RowsOfDays(map) => map.size_bytes(),
        }
    }
}

impl LatestRows {
    fn update_map<R: KeptRow>(
        &self,
        map: &mut SpillMap<R>,
        input: &AnalyzerInput<'_>,
    ) -> Result<()> {
        let columns = input.columns;
        if columns.len() != self.keys.len() + 1 + self.values.len() {
            return Err(Fault::internal(
                "the latest rows received the wrong number of columns",
            ));
        }
        let (keys, other_columns) = columns.split_at(self.keys.len());
        let encoded = |columns: &[ArrayRef], types: &[DataType]| {
            let each = columns.iter().zip(types);
            each.map(|(column, data_type)| KeyColumn::of(column, &logical_type(data_type)))
                .collect::<Result<Vec<_>>>()
        };
        let keys = encoded(keys, &self.keys)?;
        let values = encoded(&other_columns[1..], &self.values)?;
        let times = ticks(&other_columns[0])?;
        let clock = ColumnClock::of(&self.time)?;
        let mut cache = SlotCache::of(&keys, input.rows);
        let mut row_values = Vec::new();
        for row in 0..input.rows {
            if times.is_null(row) {
                continue;
            }
            let slot = cache.slot(row, map)?;
            let time = times.value(row);
            let mut too_long = false;
            map.update_slot(slot, |series| {
                series.note_time(clock.as_ref(), time);
                let newest = series.latest_mut();
                if time < newest.time {
                    newest.note_previous(time);
                    return;
                }
                row_values.clear();
                values
                    .iter()
                    .for_each(|column| column.write(row, &mut row_values));
                too_long = row_values.len() > VALUES_BYTES_MAX;
                if time > newest.time {
                    let previous = newest.time;
                    newest.note_previous(previous);
                    newest.time = time;
                    newest.rows = 1;
                    newest.values.clone_from(&row_values);
                    return;
                }
                newest.rows = newest.rows.saturating_add(1);
                if row_values > newest.values {
                    newest.values.clone_from(&row_values);
                }
            });
            if too_long {
                let message = format!(
                    "the columns that are carried on hold more than {VALUES_BYTES_MAX} bytes in a \
                     row"
                );
                return Err(Fault::new(codes::LIMIT, message).hint("carry fewer columns on"));
            }
        }
        map.spill_if_large()
    }

    fn finish_map<R: KeptRow>(&self, mut map: SpillMap<R>) -> Result<Finding> {
        let types = |types: &[DataType]| types.iter().map(logical_type).collect::<Vec<_>>();
        let mut keys = KeyTable::new(&types(&self.keys));
        let mut values = KeyTable::new(&types(&self.values));
        let mut times = Vec::new();
        let mut rows = Vec::new();
        let mut previous_times = Vec::new();
        let mut month_days = Vec::new();
        let mut times_of_day = Vec::new();
        map.for_each(|key, series| {
            month_days.push(series.month_day());
            times_of_day.push(series.time_of_day());
            let row = series.latest();
            keys.push(key)?;
            values.push(&row.values)?;
            times.push(row.time);
            rows.push(row.rows);
            previous_times.push(row.previous());
            Ok(())
        })?;
        drop(map);
        let mut columns: Vec<(String, ArrayRef)> = Vec::new();
        let named = |columns: Vec<ArrayRef>, types: &[DataType], name: &str| {
            let each = columns.into_iter().zip(types).enumerate();
            each.map(|(at, (column, data_type))| {
                Ok((
                    format!("{name}{}", at + 1),
                    cast(&column, &logical_type(data_type))?,
                ))
            })
            .collect::<Result<Vec<_>>>()
        };
        columns.extend(named(keys.finish()?, &self.keys, "key")?);
        columns.push(("time".into(), Arc::new(Int64Array::from(times))));
        columns.extend(named(values.finish()?, &self.values, "value")?);
        if self.month_days {
            columns.push(("month_day".into(), Arc::new(Int64Array::from(month_days))));
        }
        if self.times_of_day {
            let times_of_day = Int64Array::from(times_of_day);
            columns.push(("time_of_day".into(), Arc::new(times_of_day)));
        }
        columns.push(("rows".into(), Arc::new(UInt64Array::from(rows))));
        let previous_times = Int64Array::from(previous_times);
        columns.push(("previous".into(), Arc::new(previous_times)));
        Finding::of(
            columns
                .iter()
                .map(|(name, column)| (name.as_str(), column.clone())),
        )
    }
}
