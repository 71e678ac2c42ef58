//! The groups of rows as an analyzer, so that states of spans are kept and merged like all others.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::Array;
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, GroupBy, GroupFunction, GroupResult, KeySample,
    Result, ScratchSpace, TimeBucket, has_decimal_sums,
};
use serde_json::{Value, json};

use super::kept_groups::KeptGroupsWriter;
use super::runs::{GroupBatch, GroupRun, NewStates, copy_groups, merge_states, read_groups};
use super::{GroupByState, RowPositions};

/// The position after the rows of a state that was read: values have the positions 0 to the greatest limit of a list.
const KEPT_END: u64 = 1 << 20;

/// Computes one row per key.
///
/// Its state is read with [`GroupByState::into_sorted`]: there may be more groups than fit in memory, so that it has no
/// finding. Positions of rows are no results: a position in a span says nothing about other spans. Functions of the
/// order of rows are possible, since states are merged in span order; a written state holds no positions.
#[derive(Debug, Clone)]
pub struct GroupByAnalyzer {
    spec: Arc<GroupBy>,
}

impl GroupByAnalyzer {
    /// `None` if a result is the position of a row.
    pub fn new(spec: &Arc<GroupBy>) -> Option<GroupByAnalyzer> {
        for result in &spec.results {
            if matches!(
                result.function,
                GroupFunction::FirstRow | GroupFunction::LastRow
            ) {
                return None;
            }
        }
        Some(GroupByAnalyzer { spec: spec.clone() })
    }

    /// A result's function, and everything else that its state depends on.
    fn result_text(&self, result: &GroupResult) -> String {
        let text = function_text(result.function);
        let is_sum = matches!(result.function, GroupFunction::Sum | GroupFunction::Mean);
        let values = self.spec.values.get(result.value);
        if is_sum && values.is_some_and(has_decimal_sums) {
            return format!("{text} of decimals");
        }
        text
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
        // The precision of the sketch: another one has other states.
        GroupFunction::ApproxNUnique => "approx_n_unique 12 26".to_owned(),
        GroupFunction::Quantile { q } => format!("quantile {q}"),
        GroupFunction::WeightedMean { weight } => format!("weighted_mean {weight}"),
        GroupFunction::WeightedQuantile { q, weight } => format!("weighted_quantile {q} {weight}"),
        GroupFunction::WeightSum => "weight_sum".to_owned(),
        GroupFunction::FirstBy { time } => format!("first_by {time}"),
        GroupFunction::LastBy { time } => format!("last_by {time}"),
        GroupFunction::TopK { k } => format!("top_k {k}"),
        // `truncate` changes no state: the number of all values is held in any case.
        GroupFunction::List { limit, .. } => format!("list {limit}"),
    }
}

impl Analyzer for GroupByAnalyzer {
    type State = GroupByState;

    fn kind(&self) -> &'static str {
        "group_by"
    }

    fn version(&self) -> u32 {
        2
    }

    fn config(&self) -> Value {
        let bucket = |key: &forebay_model::GroupKey| {
            key.bucket.map(|bucket| match bucket {
                TimeBucket::Even { length, origin } => {
                    json!([length.to_string(), origin.to_string()])
                }
                TimeBucket::Calendar { span, first_day } => json!([span, first_day]),
            })
        };
        let keys = self
            .spec
            .keys
            .iter()
            .map(|key| json!([key.data_type.to_string(), bucket(key)]));
        let values = self.spec.values.iter().map(ToString::to_string);
        let results = self
            .spec
            .results
            .iter()
            .map(|result| json!([self.result_text(result), result.value]));
        json!({
            "keys": keys.collect::<Vec<_>>(),
            "values": values.collect::<Vec<_>>(),
            "results": results.collect::<Vec<_>>(),
        })
    }

    fn order_free(&self) -> bool {
        !self.spec.is_of_row_order()
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<GroupByState> {
        GroupByState::new(&self.spec, scratch)
    }

    fn update(&self, state: &mut GroupByState, input: &AnalyzerInput<'_>) -> Result<()> {
        let inputs = self.spec.keys.len() + self.spec.values.len();
        let Some(columns) = input.columns.get(..inputs) else {
            return Err(Fault::internal(
                "groups received the wrong number of columns",
            ));
        };
        state.update(columns, input.rows, state.end)
    }

    fn merge(&self, state: &mut GroupByState, later_state: GroupByState) -> Result<()> {
        state.merge_following(later_state)
    }

    fn encode(&self, state: &mut GroupByState, out: &mut dyn Write) -> Result<()> {
        state.encode(&mut [out])?;
        Ok(())
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<GroupByState> {
        let mut state = GroupByState::new(&self.spec, scratch)?;
        state.decode(input)?;
        Ok(state)
    }

    fn decode_large(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<GroupByState> {
        let mut state = GroupByState::new(&self.spec, scratch)?;
        state.decode_to_run(input)?;
        Ok(state)
    }

    fn divisible_bytes(&self, state: &GroupByState) -> Option<u64> {
        // Pairs of keys and values would have to be divided by the key alone.
        let can_divide = state.distinct.is_empty() && !self.spec.keys.is_empty();
        let spilled: u64 = state.runs.iter().map(|run| run.file.bytes()).sum();
        can_divide.then(|| spilled + state.group_bytes() as u64)
    }

    fn encode_shares(
        &self,
        state: &mut GroupByState,
        shares: &mut [&mut dyn Write],
    ) -> Result<Option<KeySample>> {
        Ok(Some(state.encode(shares)?))
    }

    fn spill(&self, state: &mut GroupByState) -> Result<()> {
        state.spill_all()
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
    /// Writes all groups with the positions of their rows, each to the share of its key.
    pub fn encode_placed(&mut self, shares: &mut [&mut dyn Write]) -> Result<()> {
        self.encode_groups(RowPositions::Told, shares)?;
        Ok(())
    }

    /// Adds the groups of a share that [`GroupByState::encode_placed`] wrote. The positions of all
    /// states are of one sequence. A share is in the order of its keys, so that it is taken as a
    /// run.
    pub fn add_placed(&mut self, input: &mut dyn Read) -> Result<()> {
        self.decode_to_run(input)?;
        self.compact_runs()
    }

    /// Writes all groups, each to the share of its key: batches of keys in their order, with their states. Then the same
    /// of distinct values. Returns a sample of the keys, which is empty for a single share.
    fn encode(&mut self, shares: &mut [&mut dyn Write]) -> Result<KeySample> {
        let sample = self.encode_groups(RowPositions::Dropped, shares)?;
        for set in &mut self.distinct {
            set.pairs.encode(shares)?;
        }
        Ok(sample)
    }

    /// Writes all groups, each to the share of its key. Returns a sample of the keys.
    fn encode_groups(
        &mut self,
        positions: RowPositions,
        shares: &mut [&mut dyn Write],
    ) -> Result<KeySample> {
        let mut writer = KeptGroupsWriter::new(shares);
        if self.runs.is_empty() {
            self.for_each_held(positions, &mut |keys, states| writer.push(keys, states))?;
        } else {
            self.spill()?;
            self.for_each_merged(&self.runs, positions, &mut |keys, states| {
                writer.push(keys, states)
            })?;
        }
        writer.finish()
    }

    /// Adds the groups that [`GroupByState::encode`] wrote to one share.
    fn decode(&mut self, input: &mut dyn Read) -> Result<()> {
        while let Some(GroupBatch { keys, states, .. }) = read_groups(input, u64::MAX)? {
            let columns = self.index.decode(&keys)?;
            self.index
                .find_groups(&columns, keys.len(), &mut self.groups)?;
            let states = NewStates {
                groups: &self.groups,
                columns: &states,
                shift: 0,
            };
            merge_states(&mut self.accumulators, self.index.len(), &states)?;
            self.spill_if_large()?;
        }
        self.end = self.end.max(KEPT_END);
        self.resize();
        for set in &mut self.distinct {
            set.pairs.decode(input)?;
        }
        Ok(())
    }

    /// Takes the groups that [`GroupByState::encode`] wrote to one share as a run, since they are in order already. The
    /// state must have no others.
    fn decode_to_run(&mut self, input: &mut dyn Read) -> Result<()> {
        // Without keys there is one group, which stays in memory.
        if self.spec.keys.is_empty() {
            return self.decode(input);
        }
        let mut run = self.scratch.create()?;
        if copy_groups(input, &mut run)? {
            self.runs.push(GroupRun {
                file: run.finish()?,
                shift: 0,
            });
        }
        self.end = self.end.max(KEPT_END);
        for set in &mut self.distinct {
            set.pairs.decode_to_run(input)?;
        }
        Ok(())
    }
}
