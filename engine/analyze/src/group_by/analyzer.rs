//! The groups of rows as an analyzer, so that states of spans are kept and merged like all others.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, UInt32Array};
use arrow::compute::take_arrays;
use forebay_model::{Analyzer, AnalyzerInput, Fault, Finding, GroupBy, GroupFunction, Result, ScratchSpace, codes};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::GroupByState;
use super::runs::{GroupBatch, merge_states, read_groups, write_groups, write_groups_end};

/// Computes one row per key.
///
/// Its state is read with [`GroupByState::into_sorted`]: there may be more groups than fit in memory, so that it has no
/// finding. Functions of the positions of rows are not possible: a position in a span says nothing about other spans.
#[derive(Debug, Clone)]
pub struct GroupByAnalyzer {
    spec: Arc<GroupBy>,
}

impl GroupByAnalyzer {
    /// `None` if a result depends on the positions of rows.
    pub fn new(spec: &Arc<GroupBy>) -> Option<GroupByAnalyzer> {
        let is_positional = |function| {
            use GroupFunction::{First, FirstRow, Last, LastRow};
            matches!(function, First | FirstRow | Last | LastRow)
        };
        let possible = !spec.results.iter().any(|result| is_positional(result.function));
        possible.then(|| GroupByAnalyzer { spec: spec.clone() })
    }
}

fn function_text(function: GroupFunction) -> String {
    match function {
        GroupFunction::CountRows => "count_rows".to_owned(),
        GroupFunction::FirstRow => "first_row".to_owned(),
        GroupFunction::LastRow => "last_row".to_owned(),
        GroupFunction::Count => "count".to_owned(),
        GroupFunction::Sum => "sum".to_owned(),
        GroupFunction::Mean => "mean".to_owned(),
        GroupFunction::Min => "min".to_owned(),
        GroupFunction::Max => "max".to_owned(),
        GroupFunction::Var { ddof } => format!("var {ddof}"),
        GroupFunction::Std { ddof } => format!("std {ddof}"),
        GroupFunction::First => "first".to_owned(),
        GroupFunction::Last => "last".to_owned(),
        GroupFunction::NUnique => "n_unique".to_owned(),
        GroupFunction::Quantile { q } => format!("quantile {q}"),
    }
}

impl Analyzer for GroupByAnalyzer {
    type State = GroupByState;

    fn kind(&self) -> &'static str {
        "group_by"
    }

    fn config(&self) -> Value {
        let bucket = |key: &forebay_model::GroupKey| {
            key.bucket.map(|bucket| [bucket.length.to_string(), bucket.origin.to_string()])
        };
        let keys = self.spec.keys.iter().map(|key| json!([key.data_type.to_string(), bucket(key)]));
        let values = self.spec.values.iter().map(ToString::to_string);
        let results = self.spec.results.iter().map(|result| json!([function_text(result.function), result.value]));
        json!({
            "keys": keys.collect::<Vec<_>>(),
            "values": values.collect::<Vec<_>>(),
            "results": results.collect::<Vec<_>>(),
        })
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<GroupByState> {
        GroupByState::new(&self.spec, scratch)
    }

    fn update(&self, state: &mut GroupByState, input: &AnalyzerInput<'_>) -> Result<()> {
        let inputs = self.spec.keys.len() + self.spec.values.len();
        let columns = input.columns.get(..inputs);
        let columns = columns.ok_or_else(|| Fault::internal("groups received the wrong number of columns"))?;
        state.update(columns, input.rows, 0)
    }

    fn merge(&self, state: &mut GroupByState, later: GroupByState) -> Result<()> {
        state.merge(later)
    }

    fn encode(&self, state: &mut GroupByState, out: &mut dyn Write) -> Result<()> {
        state.encode(&mut [out])
    }

    fn decode(&self, input: &mut dyn Read, scratch: &Arc<dyn ScratchSpace>) -> Result<GroupByState> {
        let mut state = GroupByState::new(&self.spec, scratch)?;
        state.decode(input)?;
        Ok(state)
    }

    fn divisible_bytes(&self, state: &GroupByState) -> Option<u64> {
        // Pairs of keys and values would have to be divided by the key alone.
        let can_divide = state.distinct.is_empty() && !self.spec.keys.is_empty();
        let spilled: u64 = state.runs.iter().map(|run| run.bytes()).sum();
        can_divide.then(|| spilled + state.own_bytes() as u64)
    }

    fn encode_shares(&self, state: &mut GroupByState, shares: &mut [&mut dyn Write]) -> Result<()> {
        state.encode(shares)
    }

    fn finish(&self, _: GroupByState) -> Result<Finding> {
        Err(Fault::internal("groups have no finding"))
    }

    fn size_bytes(&self, state: &GroupByState) -> usize {
        state.size_bytes()
    }

    fn size_bytes_max(&self, budget_bytes: usize) -> usize {
        budget_bytes
    }
}

impl GroupByState {
    /// Writes all groups, each to the share of its key: batches of keys in their order, with their states. Then the same
    /// of distinct values.
    fn encode(&mut self, shares: &mut [&mut dyn Write]) -> Result<()> {
        if self.runs.is_empty() {
            self.for_each_held(&mut |keys, states| write_to_shares(shares, keys, states))?;
        } else {
            self.spill()?;
            self.for_each_merged(&self.runs, &mut |keys, states| write_to_shares(shares, keys, states))?;
        }
        shares.iter_mut().try_for_each(|share| write_groups_end(share))?;
        self.distinct.iter_mut().try_for_each(|set| set.pairs.encode(shares))
    }

    /// Adds the groups that [`GroupByState::encode`] wrote to one share.
    fn decode(&mut self, input: &mut dyn Read) -> Result<()> {
        while let Some(GroupBatch { keys, states, .. }) = read_groups(input)? {
            let columns = self.index.decode(&keys)?;
            self.index.find_groups(&columns, keys.len(), &mut self.groups)?;
            merge_states(&mut self.accumulators, self.index.len(), &self.groups, &states)?;
            self.spill_if_large()?;
        }
        self.resize();
        self.distinct.iter_mut().try_for_each(|set| set.pairs.decode(input))
    }
}

fn write_to_shares(shares: &mut [&mut dyn Write], keys: BinaryArray, states: Vec<ArrayRef>) -> Result<()> {
    if let [only] = shares {
        return write_groups(only, keys, states);
    }
    let count = shares.len() as u64;
    let mut rows: Vec<Vec<u32>> = vec![Vec::new(); shares.len()];
    for (row, key) in keys.iter().enumerate() {
        rows[(xxh3_64(key.unwrap_or_default()) % count) as usize].push(row as u32);
    }
    let columns: Vec<ArrayRef> = std::iter::once(Arc::new(keys) as ArrayRef).chain(states).collect();
    for (share, rows) in shares.iter_mut().zip(rows).filter(|(_, rows)| !rows.is_empty()) {
        let taken = take_arrays(&columns, &UInt32Array::from(rows), None)?;
        let (keys, states) = taken.split_first().ok_or_else(|| Fault::internal("groups without keys"))?;
        let keys = keys.as_binary_opt::<i32>().ok_or_else(|| Fault::new(codes::CORRUPT, "keys are no bytes"))?;
        write_groups(share, keys.clone(), states.to_vec())?;
    }
    Ok(())
}
