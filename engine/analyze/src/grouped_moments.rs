//! Moments of one numeric column per group.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayBuilder, ArrayRef, Float64Builder, UInt64Builder};
use arrow::datatypes::DataType;
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, MemoryRequest, Result, ScratchSpace, StateDecoder,
    StateEncoder, codes, logical_type,
};
use serde_json::{Value, json};

use crate::group_keys::{KeyColumn, KeyTable};
use crate::moment_accumulator::MomentAccumulator;
use crate::numeric_column::NumericColumn;
use crate::spill_map::SpillMap;
use crate::spill_runs::{KEY_BYTES_MAX, KeyOrder, SpillValue};

/// Lines of the cache from rows to slots; a batch rarely has more recurring keys.
const CACHE_LINES: usize = 4096;

/// Exact moments per key. The input columns are the value, followed by the key columns.
///
/// Sums, means and variances are those of `ColumnMoments`, of the values as doubles (integers above 2^53 are
/// rounded first). Rows whose value is null or NaN are ignored, and so are keys without any other row; a null key
/// is a key of its own.
///
/// The finding has one row per key, sorted by key, nulls first: `key1`, `key2`, ... (of the given types; text for
/// types that are not integers, booleans, dates or times), `count` (UInt64), `mean`, `var` (ddof 0), `min`, `max`
/// (Float64). The state spills; the finding has to fit in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupedMoments {
    /// Types of the key columns; memory layouts do not matter.
    pub keys: Vec<DataType>,
}

/// Rows of the finding for which memory is requested at once.
const ROWS_ADMITTED: usize = 1 << 14;

/// Bytes of a row of the finding without its keys: a count and four numbers.
const ROW_BYTES: usize = 40;

/// Bytes of a row of the tables that transforms make of the finding, without its keys: a cell of seven numbers, and its
/// number and end in the index of groups.
const TABLE_ROW_BYTES: usize = 80;

impl SpillValue for MomentAccumulator {
    fn merge_value(&mut self, other: &Self) {
        self.merge(other);
    }

    fn write(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        self.encode(out)
    }

    fn read(input: &mut StateDecoder<'_>) -> Result<Self> {
        MomentAccumulator::decode(input)
    }

    fn heap_bytes(&self) -> usize {
        MomentAccumulator::heap_bytes(self)
    }
}

/// State of `GroupedMoments`: about 300 bytes per key, spilled beyond the budget.
pub struct GroupedMomentsState(SpillMap<MomentAccumulator>);

impl Analyzer for GroupedMoments {
    type State = GroupedMomentsState;

    fn kind(&self) -> &'static str {
        "key_moments"
    }

    fn config(&self) -> Value {
        let types: Vec<String> = self
            .keys
            .iter()
            .map(|key| logical_type(key).to_string())
            .collect();
        json!({ "keys": types })
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<GroupedMomentsState> {
        Ok(GroupedMomentsState(SpillMap::new(scratch, KeyOrder::Bytes)))
    }

    fn update(&self, state: &mut GroupedMomentsState, input: &AnalyzerInput<'_>) -> Result<()> {
        let Some((values, keys)) = input
            .columns
            .split_first()
            .filter(|(_, keys)| keys.len() == self.keys.len())
        else {
            return Err(Fault::internal(
                "moments per key received the wrong number of columns",
            ));
        };
        let columns = keys
            .iter()
            .zip(&self.keys)
            .map(|(key, logical)| KeyColumn::of(key, &logical_type(logical)));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let values = NumericColumn::doubles(values)?;
        let tally = &mut state.0;
        let mut cache = SlotCache::default();
        let mut key = Vec::new();
        for (row, &value) in values.values().iter().enumerate() {
            if values.is_null(row) || value.is_nan() {
                continue;
            }
            let slot = cache.slot(&columns, row, tally, &mut key)?;
            tally.update_slot(slot, |moment| moment.push(value));
        }
        tally.spill_if_large()
    }

    fn merge(&self, state: &mut GroupedMomentsState, later: GroupedMomentsState) -> Result<()> {
        state.0.merge(later.0)
    }

    fn encode(&self, state: &mut GroupedMomentsState, out: &mut dyn Write) -> Result<()> {
        state.0.encode(out)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<GroupedMomentsState> {
        Ok(GroupedMomentsState(SpillMap::decode(
            input,
            scratch,
            KeyOrder::Bytes,
        )?))
    }

    fn finish(&self, mut state: GroupedMomentsState) -> Result<Finding> {
        let types: Vec<DataType> = self.keys.iter().map(logical_type).collect();
        let mut keys = KeyTable::new(&types);
        let mut counts = UInt64Builder::new();
        let mut numbers: [Float64Builder; 4] = Default::default();
        let scratch = state.0.scratch();
        let mut key_bytes = 0;
        state.0.for_each(|key, moment| {
            key_bytes += key.len();
            if counts.len().is_multiple_of(ROWS_ADMITTED) {
                let rows = ROWS_ADMITTED;
                let keys = rows * key_bytes / (counts.len() + 1);
                // Buffers double as they grow.
                let now = 2 * (keys + rows * ROW_BYTES);
                scratch.admit(MemoryRequest {
                    now,
                    later: keys + rows * TABLE_ROW_BYTES,
                })?;
            }
            keys.push(key)?;
            counts.append_value(moment.count());
            let [_, mean, var] = moment.clone().results();
            let row = [mean, var, moment.min(), moment.max()];
            numbers
                .iter_mut()
                .zip(row)
                .for_each(|(column, number)| column.append_option(number));
            Ok(())
        })?;
        drop(state);
        let mut columns: Vec<(String, ArrayRef)> = Vec::new();
        columns.extend(
            keys.finish()?
                .into_iter()
                .enumerate()
                .map(|(i, key)| (format!("key{}", i + 1), key)),
        );
        columns.push(("count".into(), Arc::new(counts.finish())));
        for (name, mut column) in ["mean", "var", "min", "max"].into_iter().zip(numbers) {
            columns.push((name.into(), Arc::new(column.finish())));
        }
        Finding::of(
            columns
                .iter()
                .map(|(name, column)| (name.as_str(), column.clone())),
        )
    }

    fn size_bytes(&self, state: &GroupedMomentsState) -> usize {
        state.0.size_bytes()
    }
}

/// Refuses keys that are too long.
pub(crate) fn check_key(bytes: usize) -> Result<()> {
    match bytes <= KEY_BYTES_MAX {
        true => Ok(()),
        false => Err(Fault::new(
            codes::LIMIT,
            format!("a key of {bytes} bytes is too long"),
        )),
    }
}

/// A direct-mapped cache from the keys of a batch's rows to their slots.
pub(crate) struct SlotCache {
    lines: Vec<Option<(u32, u32)>>,
    spills: u64,
}

impl Default for SlotCache {
    fn default() -> Self {
        SlotCache {
            lines: vec![None; CACHE_LINES],
            spills: 0,
        }
    }
}

impl SlotCache {
    pub(crate) fn slot<V: SpillValue>(
        &mut self,
        columns: &[KeyColumn],
        row: usize,
        tally: &mut SpillMap<V>,
        key: &mut Vec<u8>,
    ) -> Result<usize> {
        if self.spills != tally.spills() {
            self.lines.fill(None);
            self.spills = tally.spills();
        }
        let hash = columns.iter().fold(0u64, |hash, column| {
            (hash.rotate_left(29) ^ column.hash(row)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        let line = (hash >> 52) as usize % CACHE_LINES;
        if let Some((seen, slot)) = self.lines[line]
            && columns
                .iter()
                .all(|column| column.rows_equal(seen as usize, row))
        {
            return Ok(slot as usize);
        }
        key.clear();
        columns.iter().for_each(|column| column.write(row, key));
        check_key(key.len())?;
        let slot = tally.slot(key)?;
        if self.spills == tally.spills() {
            self.lines[line] = Some((row as u32, slot as u32));
        }
        Ok(slot)
    }
}
