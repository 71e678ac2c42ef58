//! Moments of one numeric column per group.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayBuilder, ArrayRef, Float64Builder, UInt64Builder};
use arrow::datatypes::DataType;
use forebay_model::{
    AdmittedMemory, Analyzer, AnalyzerInput, Fault, Finding, MemoryRequest, Result, ScratchSpace,
    StateDecoder, StateEncoder, logical_type,
};
use serde_json::{Value, json};

use crate::group_keys::{KeyColumn, KeyTable};
use crate::moment_accumulator::MomentAccumulator;
use crate::numeric_column::NumericColumn;
use crate::slot_cache::SlotCache;
use crate::spill_map::SpillMap;
use crate::spill_runs::{KeyOrder, SpillValue};

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

/// Bytes of keys for which memory is requested at once, before there are as many.
const KEY_BYTES_ADMITTED: usize = 16 << 20;

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
        let (values, keys) = match input.columns.split_first() {
            Some((values, keys)) if keys.len() == self.keys.len() => (values, keys),
            _ => {
                return Err(Fault::internal(
                    "moments per key received the wrong number of columns",
                ));
            }
        };
        let mut columns = Vec::with_capacity(keys.len());
        for (key, logical) in keys.iter().zip(&self.keys) {
            columns.push(KeyColumn::of(key, &logical_type(logical))?);
        }
        let values = NumericColumn::doubles(values)?;
        let map = &mut state.0;
        let mut cache = SlotCache::of(&columns, values.len());
        for (row, &value) in values.values().iter().enumerate() {
            // A key without any other row must not appear: its slot is not made.
            if values.is_null(row) || value.is_nan() {
                continue;
            }
            let slot = cache.slot(row, map)?;
            map.update_slot(slot, |moment| moment.push(value));
        }
        map.spill_if_large()
    }

    fn merge(
        &self,
        state: &mut GroupedMomentsState,
        later_state: GroupedMomentsState,
    ) -> Result<()> {
        state.0.merge(later_state.0)
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
        let mut admitted = AdmittedMemory::default();
        let mut key_bytes = 0;
        let mut key_bytes_admitted = 0;
        state.0.for_each(|key, moment| {
            key_bytes += key.len();
            let has_long_keys = key_bytes > key_bytes_admitted;
            if has_long_keys || counts.len().is_multiple_of(ROWS_ADMITTED) {
                let rows = ROWS_ADMITTED;
                // Few keys do not tell the length of the others.
                let keys_max = key_bytes.max(KEY_BYTES_ADMITTED);
                let keys = (rows * key_bytes / (counts.len() + 1)).min(keys_max);
                key_bytes_admitted = key_bytes + keys;
                // Buffers double as they grow.
                let request = MemoryRequest {
                    now: 2 * (keys + rows * ROW_BYTES),
                    later: keys + rows * TABLE_ROW_BYTES,
                };
                admitted.renew(|| scratch.admit(request))?;
            }
            keys.push(key)?;
            counts.append_value(moment.count());
            let [_, mean, var] = moment.results();
            let row = [mean, var, moment.min(), moment.max()];
            for (column, number) in numbers.iter_mut().zip(row) {
                column.append_option(number);
            }
            Ok(())
        })?;
        // Frees the state before the columns are built: only one of them has to fit in memory.
        drop(state);
        let mut columns: Vec<(String, ArrayRef)> = Vec::new();
        for (index, key) in keys.finish()?.into_iter().enumerate() {
            columns.push((format!("key{}", index + 1), key));
        }
        columns.push(("count".into(), Arc::new(counts.finish())));
        for (name, mut column) in ["mean", "var", "min", "max"].into_iter().zip(numbers) {
            columns.push((name.into(), Arc::new(column.finish())));
        }
        let named = columns
            .iter()
            .map(|(name, column)| (name.as_str(), column.clone()));
        Finding::of(named)
    }

    fn size_bytes(&self, state: &GroupedMomentsState) -> usize {
        state.0.size_bytes()
    }
}
