//! The latest row of each key.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, Result, ScratchSpace, StateDecoder, StateEncoder,
    codes, logical_type,
};
use serde_json::{Value, json};

use crate::group_keys::{KeyColumn, KeyTable};
use crate::grouped_moments::SlotCache;
use crate::spill_map::SpillMap;
use crate::spill_runs::{KeyOrder, SpillValue};

/// Most bytes of the values of a row: far below what a block of a run holds.
const VALUES_BYTES_MAX: usize = 32 << 10;

/// The latest time of each key, and the values of some columns at that time. The input columns are the keys, the time
/// and the values. Rows without a time are ignored; a null key is a key of its own. Of rows with equal times, the one
/// whose values are greater in byte order counts, so that the result does not depend on the order of rows.
///
/// The finding has one row per key, sorted by key, nulls first: `key1`, `key2`, ..., `time`, `value1`, ..., of the
/// given types. The state spills; the finding has to fit in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatestRows {
    /// Types of the key columns; memory layouts do not matter.
    pub keys: Vec<DataType>,
    /// Type of the time column: dates, timestamps or integers.
    pub time: DataType,
    /// Types of the value columns.
    pub values: Vec<DataType>,
}

/// The latest row of a key: its time in ticks, and its values in the encoding of keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LatestRow {
    time: i64,
    values: Vec<u8>,
}

impl Default for LatestRow {
    fn default() -> Self {
        LatestRow {
            time: i64::MIN,
            values: Vec::new(),
        }
    }
}

impl SpillValue for LatestRow {
    fn merge_value(&mut self, other: &Self) {
        if *other > *self {
            self.clone_from(other);
        }
    }

    fn write(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.signed(self.time)?;
        out.bytes(&self.values)
    }

    fn read(input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(LatestRow {
            time: input.signed()?,
            values: input.bytes(VALUES_BYTES_MAX)?,
        })
    }

    fn heap_bytes(&self) -> usize {
        self.values.capacity()
    }
}

/// State of [`LatestRows`]: about 100 bytes per key and the values, spilled beyond the budget.
pub struct LatestRowsState(SpillMap<LatestRow>);

impl Analyzer for LatestRows {
    type State = LatestRowsState;

    fn kind(&self) -> &'static str {
        "latest_rows"
    }

    fn config(&self) -> Value {
        let names = |types: &[DataType]| {
            types
                .iter()
                .map(|own| logical_type(own).to_string())
                .collect::<Vec<String>>()
        };
        json!({ "keys": names(&self.keys), "time": logical_type(&self.time).to_string(), "values": names(&self.values) })
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<LatestRowsState> {
        Ok(LatestRowsState(SpillMap::new(scratch, KeyOrder::Bytes)))
    }

    fn update(&self, state: &mut LatestRowsState, input: &AnalyzerInput<'_>) -> Result<()> {
        let columns = input.columns;
        if columns.len() != self.keys.len() + 1 + self.values.len() {
            return Err(Fault::internal(
                "the latest rows received the wrong number of columns",
            ));
        }
        let (keys, rest) = columns.split_at(self.keys.len());
        let encoded = |columns: &[ArrayRef], types: &[DataType]| {
            let each = columns.iter().zip(types);
            each.map(|(column, own)| KeyColumn::of(column, &logical_type(own)))
                .collect::<Result<Vec<_>>>()
        };
        let (keys, values) = (
            encoded(keys, &self.keys)?,
            encoded(&rest[1..], &self.values)?,
        );
        let times = ticks(&rest[0])?;
        let map = &mut state.0;
        let mut cache = SlotCache::default();
        let (mut key, mut row_values) = (Vec::new(), Vec::new());
        for row in 0..input.rows {
            if times.is_null(row) {
                continue;
            }
            let slot = cache.slot(&keys, row, map, &mut key)?;
            let time = times.value(row);
            let mut too_long = false;
            map.update_slot(slot, |held| {
                if time < held.time {
                    return;
                }
                row_values.clear();
                values
                    .iter()
                    .for_each(|column| column.write(row, &mut row_values));
                too_long = row_values.len() > VALUES_BYTES_MAX;
                if time > held.time || row_values > held.values {
                    held.time = time;
                    held.values.clone_from(&row_values);
                }
            });
            if too_long {
                let message = format!(
                    "the columns that are carried on hold more than {VALUES_BYTES_MAX} bytes in a row"
                );
                return Err(Fault::new(codes::LIMIT, message).hint("carry fewer columns on"));
            }
        }
        map.spill_if_large()
    }

    fn merge(&self, state: &mut LatestRowsState, later: LatestRowsState) -> Result<()> {
        state.0.merge(later.0)
    }

    fn encode(&self, state: &mut LatestRowsState, out: &mut dyn Write) -> Result<()> {
        state.0.encode(out)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<LatestRowsState> {
        Ok(LatestRowsState(SpillMap::decode(
            input,
            scratch,
            KeyOrder::Bytes,
        )?))
    }

    fn finish(&self, mut state: LatestRowsState) -> Result<Finding> {
        let types = |types: &[DataType]| types.iter().map(logical_type).collect::<Vec<_>>();
        let (mut keys, mut values) = (
            KeyTable::new(&types(&self.keys)),
            KeyTable::new(&types(&self.values)),
        );
        let mut times = Vec::new();
        state.0.for_each(|key, row| {
            keys.push(key)?;
            values.push(&row.values)?;
            times.push(row.time);
            Ok(())
        })?;
        drop(state);
        let mut columns: Vec<(String, ArrayRef)> = Vec::new();
        let named = |columns: Vec<ArrayRef>, types: &[DataType], name: &str| {
            let each = columns.into_iter().zip(types).enumerate();
            each.map(|(at, (column, own))| {
                Ok((
                    format!("{name}{}", at + 1),
                    cast(&column, &logical_type(own))?,
                ))
            })
            .collect::<Result<Vec<_>>>()
        };
        columns.extend(named(keys.finish()?, &self.keys, "key")?);
        columns.push(("time".into(), Arc::new(Int64Array::from(times))));
        columns.extend(named(values.finish()?, &self.values, "value")?);
        Finding::of(
            columns
                .iter()
                .map(|(name, column)| (name.as_str(), column.clone())),
        )
    }

    fn size_bytes(&self, state: &LatestRowsState) -> usize {
        state.0.size_bytes()
    }
}

/// Times as ticks of their own type.
fn ticks(times: &ArrayRef) -> Result<Int64Array> {
    let narrow = matches!(times.data_type(), DataType::Date32 | DataType::Time32(_));
    let times = if narrow {
        &cast(times, &DataType::Int32)?
    } else {
        times
    };
    Ok(cast(times, &DataType::Int64)?
        .as_primitive::<Int64Type>()
        .clone())
}
