//! Quantiles of one numeric column per key, exactly.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, new_empty_array};
use arrow::compute::concat;
use arrow::datatypes::DataType;
use forebay_model::{
    AdmittedMemory, Analyzer, AnalyzerInput, Fault, Finding, GroupBy, GroupFunction, GroupKey,
    GroupResult, MemoryRequest, Result, ScratchSpace, logical_type,
};
use serde_json::{Value, json};

use super::{GroupByAnalyzer, GroupByState};
use crate::numeric_column::NumericColumn;

/// Exact quantiles per key, interpolated linearly between the two nearest values. The input columns are the value,
/// followed by the key columns.
///
/// With weights, whose column comes behind the value, a quantile is the first value with which at least its share of the
/// weight is passed. Rows without a weight and weights of 0 are ignored; a number that is no weight is a fault.
///
/// Nulls and NaN are ignored, infinities count; a null key is a key of its own. The state is the distinct values of each
/// key, spilled beyond the budget.
///
/// The finding has one row per key: `key1`, `key2`, ... and `quantile1`, `quantile2`, ... (Float64, null for a key without
/// values), in the order of the probabilities. It has to fit in memory, which is checked as it is built.
#[derive(Debug, Clone)]
pub struct GroupedQuantiles {
    keys: Vec<DataType>,
    has_weights: bool,
    probabilities: usize,
    groups: GroupByAnalyzer,
}

impl GroupedQuantiles {
    /// Quantiles of some probabilities in [0, 1] for keys of these types; memory layouts do not matter.
    pub fn new(keys: &[DataType], probabilities: &[f64]) -> Result<GroupedQuantiles> {
        let functions = probabilities
            .iter()
            .map(|q| GroupFunction::Quantile { q: *q });
        GroupedQuantiles::of_functions(keys, functions.collect(), None)
    }

    /// Quantiles of values with weights; `weight` is the name of their column, for faults.
    pub fn weighted(
        keys: &[DataType],
        weight: &str,
        probabilities: &[f64],
    ) -> Result<GroupedQuantiles> {
        // The value comes first.
        let weight_index = 1;
        let functions = probabilities
            .iter()
            .map(|q| GroupFunction::WeightedQuantile {
                q: *q,
                weight: weight_index,
            });
        GroupedQuantiles::of_functions(keys, functions.collect(), Some(weight))
    }

    fn of_functions(
        keys: &[DataType],
        functions: Vec<GroupFunction>,
        weight: Option<&str>,
    ) -> Result<GroupedQuantiles> {
        let keys: Vec<DataType> = keys.iter().map(logical_type).collect();
        let mut group_keys = Vec::with_capacity(keys.len());
        for key in &keys {
            group_keys.push(GroupKey {
                data_type: key.clone(),
                bucket: None,
            });
        }
        let probabilities = functions.len();
        let mut results = Vec::with_capacity(probabilities);
        for function in functions {
            results.push(GroupResult { function, value: 0 });
        }
        let mut values = vec![DataType::Float64];
        let mut value_names = Vec::new();
        if let Some(weight) = weight {
            values.push(DataType::Float64);
            // The value has no name here: faults are of weights.
            value_names.extend([String::new(), weight.to_owned()]);
        }
        let spec = Arc::new(GroupBy {
            value_names,
            keys: group_keys,
            values,
            results,
        });
        let groups = GroupByAnalyzer::new(&spec);
        Ok(GroupedQuantiles {
            keys,
            has_weights: weight.is_some(),
            probabilities,
            groups: groups.ok_or_else(|| Fault::internal("quantiles are no positions"))?,
        })
    }
}

impl Analyzer for GroupedQuantiles {
    type State = GroupByState;

    fn kind(&self) -> &'static str {
        "key_quantiles"
    }

    fn version(&self) -> u32 {
        Analyzer::version(&self.groups)
    }

    fn config(&self) -> Value {
        json!({ "groups": Analyzer::config(&self.groups) })
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<GroupByState> {
        Analyzer::zero(&self.groups, scratch)
    }

    fn update(&self, state: &mut GroupByState, input: &AnalyzerInput<'_>) -> Result<()> {
        let numbers_count = 1 + usize::from(self.has_weights);
        if input.columns.len() != numbers_count + self.keys.len() {
            return Err(Fault::internal(
                "quantiles per key received the wrong number of columns",
            ));
        }
        let (numbers, keys) = input.columns.split_at(numbers_count);
        let mut columns = keys.to_vec();
        for number in numbers {
            columns.push(Arc::new(NumericColumn::doubles(number)?));
        }
        let groups_input = AnalyzerInput {
            columns: &columns,
            rows: input.rows,
            keys: input.keys,
        };
        Analyzer::update(&self.groups, state, &groups_input)
    }

    fn merge(&self, state: &mut GroupByState, later_state: GroupByState) -> Result<()> {
        Analyzer::merge(&self.groups, state, later_state)
    }

    fn encode(&self, state: &mut GroupByState, out: &mut dyn Write) -> Result<()> {
        Analyzer::encode(&self.groups, state, out)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<GroupByState> {
        Analyzer::decode(&self.groups, input, scratch)
    }

    fn decode_large(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<GroupByState> {
        Analyzer::decode_large(&self.groups, input, scratch)
    }

    fn spill(&self, state: &mut GroupByState) -> Result<()> {
        Analyzer::spill(&self.groups, state)
    }

    fn finish(&self, state: GroupByState) -> Result<Finding> {
        let scratch = state.scratch.clone();
        let mut groups = state.into_sorted()?;
        let mut parts: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.keys.len() + self.probabilities];
        let mut admitted = AdmittedMemory::default();
        while let Some(columns) = groups.next_columns()? {
            let bytes: usize = columns
                .iter()
                .map(|column| column.get_array_memory_size())
                .sum();
            // The parts are concatenated, and the transform's index holds the keys again.
            let request = MemoryRequest {
                now: 2 * bytes,
                later: bytes,
            };
            admitted.renew(|| scratch.admit(request))?;
            for (part, column) in parts.iter_mut().zip(columns) {
                part.push(column);
            }
        }
        let mut columns: Vec<(String, ArrayRef)> = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let name = match index.checked_sub(self.keys.len()) {
                Some(quantile) => format!("quantile{}", quantile + 1),
                None => format!("key{}", index + 1),
            };
            let arrays: Vec<&dyn Array> = part.iter().map(|column| column.as_ref()).collect();
            if arrays.is_empty() {
                // No group at all. Rows look for their keys nonetheless, in columns of the same types.
                let data_type = self.keys.get(index).unwrap_or(&DataType::Float64);
                columns.push((name, new_empty_array(data_type)));
                continue;
            }
            columns.push((name, concat(&arrays)?));
        }
        let named = columns
            .iter()
            .map(|(name, column)| (name.as_str(), column.clone()));
        Finding::of(named)
    }

    fn size_bytes(&self, state: &GroupByState) -> usize {
        Analyzer::size_bytes(&self.groups, state)
    }

    fn size_bytes_max(&self, budget_bytes: usize) -> usize {
        Analyzer::size_bytes_max(&self.groups, budget_bytes)
    }
}
