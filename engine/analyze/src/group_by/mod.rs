//! One row per key, from mergeable states of the groups.
//!
//! Groups are numbered as their keys come, and all that is known of them lies in flat columns. Beyond the budget they are
//! written as runs in the order of keys, and merged at the end. Counts are integers and sums exact, so that the result
//! does not depend on how rows are divided.

mod accumulator;
mod accumulator_kind;
mod analyzer;
mod counts;
mod decimal_sums;
mod distinct_sketches;
mod extremes;
mod float_sums;
mod group_values;
mod integer_sums;
mod kept_groups;
mod key_field;
mod key_index;
mod key_quantiles;
mod lists;
mod ordered_bits;
mod packed_keys;
mod placed;
mod runs;
mod sorted_groups;
mod weight_sums;
mod weighted_sums;
mod window_sums;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::UInt64Type;
use forebay_model::{
    AdmittedMemory, Fault, GroupBy, GroupFunction, GroupKey, GroupResult, MemoryRequest, Result,
    ScratchSpace, SpillWriter,
};

use accumulator::{Accumulator, GroupedRows, LostResults, ValueColumn};
use accumulator_kind::AccumulatorKind;
pub use analyzer::GroupByAnalyzer;
use group_values::ValueQuestions;
use key_index::KeyIndex;
pub use key_quantiles::GroupedQuantiles;
use runs::{
    GroupRun, GroupRunWriter, MERGED_GROUPS_MAX, NewStates, RUN_BATCH_BYTES, RunMerge,
    merge_states, runs_max,
};
pub use sorted_groups::SortedGroups;

/// Groups that are merged at once.
const MERGE_GROUPS: usize = 8192;

/// The states of groups, in memory and in spilled runs.
pub struct GroupByState {
    spec: Arc<GroupBy>,
    scratch: Arc<dyn ScratchSpace>,
    index: KeyIndex,
    columns: Vec<AccumulatorColumn>,
    accumulators: Vec<Box<dyn Accumulator>>,
    /// For each result, the accumulator or the set of values that it is computed from.
    sources: Vec<ResultSource>,
    distinct: Vec<DistinctValues>,
    runs: Vec<GroupRun>,
    /// The position after the last row.
    end: u64,
    /// The groups of the rows of a batch; kept for its allocation.
    groups: Vec<u32>,
}

/// The kind of an accumulator and its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AccumulatorColumn {
    kind: AccumulatorKind,
    value: Option<usize>,
    /// The second column of a function: weights or times.
    other: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
enum ResultSource {
    Accumulator(usize),
    Distinct(usize),
}

/// A value column whose distinct values are kept, with the sums of their weights where it has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DistinctColumn {
    value: usize,
    weight: Option<usize>,
}

impl DistinctColumn {
    /// The column that a result is computed of, if its distinct values are kept.
    fn of(result: &GroupResult) -> Self {
        let weight = match result.function {
            GroupFunction::WeightedQuantile { weight, .. } => Some(weight),
            _ => None,
        };
        DistinctColumn {
            value: result.value,
            weight,
        }
    }
}

/// The distinct values of a column in each group, as groups of the keys and the value.
struct DistinctValues {
    column: DistinctColumn,
    questions: ValueQuestions,
    pairs: GroupByState,
}

impl DistinctValues {
    /// `total` is the accumulator that counts the values of a group, or sums their weights.
    fn new(
        column: DistinctColumn,
        total: Option<usize>,
        spec: &GroupBy,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<Self> {
        let mut questions = ValueQuestions::default();
        for result in &spec.results {
            if DistinctColumn::of(result) != column {
                continue;
            }
            match result.function {
                GroupFunction::Quantile { q } => {
                    questions.quantiles.push(q);
                    questions.count = total;
                }
                GroupFunction::WeightedQuantile { q, .. } => {
                    questions.weighted_quantiles.push(q);
                    questions.weight = total;
                }
                GroupFunction::TopK { k } => questions.top.push(k),
                _ => {}
            }
        }
        // The pairs of key and value are groups themselves, whose last key is the value.
        let mut keys = spec.keys.clone();
        keys.push(GroupKey {
            data_type: spec.values[column.value].clone(),
            bucket: None,
        });
        let mut values = Vec::new();
        let mut results = Vec::new();
        if let Some(weight) = column.weight {
            values.push(spec.values[weight].clone());
            results.push(GroupResult {
                function: GroupFunction::WeightSum,
                value: 0,
            });
        }
        if questions.needs_repeats() {
            results.push(GroupResult {
                function: GroupFunction::CountRows,
                value: 0,
            });
        }
        let pairs = Arc::new(GroupBy {
            keys,
            values,
            value_names: Vec::new(),
            results,
        });
        Ok(DistinctValues {
            column,
            questions,
            pairs: GroupByState::new(&pairs, scratch)?,
        })
    }

    /// Adds the pairs of a batch: the key columns and the rows that hold a value, and a weight where it has one.
    fn update(&mut self, keys: &[ArrayRef], rows: usize, columns: &[ValueColumn]) -> Result<()> {
        let value = &columns[self.column.value];
        let mut pairs = keys.to_vec();
        pairs.push(value.read.clone());
        let mut valid = value.valid.clone();
        if let Some(weight) = self.column.weight {
            let weights = &columns[weight];
            pairs.push(weights.read.clone());
            valid = NullBuffer::union(valid.as_ref(), weights.valid.as_ref());
        }
        let Some(valid) = valid else {
            return self.pairs.update(&pairs, rows, 0);
        };
        let valid = arrow::array::BooleanArray::new(valid.inner().clone(), None);
        for column in &mut pairs {
            *column = arrow::compute::filter(column, &valid)?;
        }
        self.pairs.update(&pairs, valid.true_count(), 0)
    }

    fn with_scratch(self, scratch: &Arc<dyn ScratchSpace>) -> Self {
        DistinctValues {
            pairs: self.pairs.with_scratch(scratch),
            ..self
        }
    }
}

/// The choice between states with the positions of rows and without them.
#[derive(Debug, Clone, Copy)]
enum RowPositions {
    Told,
    Dropped,
}

impl AccumulatorColumn {
    /// The accumulator that a result needs if it shares none.
    fn of(result: &GroupResult, spec: &GroupBy) -> Self {
        let value = (!result.function.is_of_rows()).then_some(result.value);
        AccumulatorColumn {
            kind: AccumulatorKind::of(result, &spec.values),
            value,
            other: result.function.other_column(),
        }
    }

    /// True if this accumulator also answers a function for which `wanted_column` was made.
    fn answers(&self, wanted_column: &AccumulatorColumn, function: GroupFunction) -> bool {
        if self == wanted_column {
            return true;
        }
        let is_broader = match wanted_column.kind {
            AccumulatorKind::Floats { .. } => {
                self.kind == AccumulatorKind::Floats { has_squares: true }
            }
            AccumulatorKind::Counts => {
                function == GroupFunction::Count && self.kind.counts_values()
            }
            _ => false,
        };
        is_broader && self.value == wanted_column.value
    }

    /// The sum of the weights of the values of a column.
    fn weights(value: usize, weight: usize) -> Self {
        AccumulatorColumn {
            kind: AccumulatorKind::WeightSums,
            value: Some(value),
            other: Some(weight),
        }
    }

    /// The number of values of a column.
    fn counts(value: usize) -> Self {
        AccumulatorColumn {
            kind: AccumulatorKind::Counts,
            value: Some(value),
            other: None,
        }
    }
}

/// The accumulators and the sets of distinct values that the results of a specification need.
struct StateNeeds {
    columns: Vec<AccumulatorColumn>,
    /// Value columns whose distinct values are kept.
    distinct: Vec<DistinctColumn>,
}

impl StateNeeds {
    fn of(spec: &GroupBy) -> StateNeeds {
        let mut needs = StateNeeds {
            columns: Vec::new(),
            distinct: Vec::new(),
        };
        // Accumulators that answer several functions come first: the others then need none of their own.
        let mut results: Vec<&GroupResult> = spec.results.iter().collect();
        results.sort_by_key(|result| breadth(AccumulatorColumn::of(result, spec).kind));
        for result in results {
            let column = AccumulatorColumn::of(result, spec);
            if column.kind != AccumulatorKind::Distinct {
                needs.add_column(column, result.function);
                continue;
            }
            let set = DistinctColumn::of(result);
            if !needs.distinct.contains(&set) {
                needs.distinct.push(set);
            }
            // A quantile needs the number of values, or the sum of their weights, before the first of them is read.
            if matches!(result.function, GroupFunction::Quantile { .. }) {
                let counts = AccumulatorColumn::counts(result.value);
                needs.add_column(counts, GroupFunction::Count);
            }
            if let Some(weight) = set.weight {
                let weights = AccumulatorColumn::weights(result.value, weight);
                needs.add_column(weights, GroupFunction::WeightSum);
            }
        }
        needs
    }

    fn add_column(&mut self, column: AccumulatorColumn, function: GroupFunction) {
        if self.position(&column, function).is_none() {
            self.columns.push(column);
        }
    }

    /// The first accumulator that answers a function of a column.
    fn position(&self, column: &AccumulatorColumn, function: GroupFunction) -> Option<usize> {
        self.columns
            .iter()
            .position(|candidate| candidate.answers(column, function))
    }

    /// The accumulator that counts the values of a column, or sums their weights.
    fn total_of(&self, set: DistinctColumn) -> Option<usize> {
        match set.weight {
            Some(weight) => {
                let weights = AccumulatorColumn::weights(set.value, weight);
                self.position(&weights, GroupFunction::WeightSum)
            }
            None => {
                let counts = AccumulatorColumn::counts(set.value);
                self.position(&counts, GroupFunction::Count)
            }
        }
    }

    fn source(&self, result: &GroupResult, spec: &GroupBy) -> ResultSource {
        let column = AccumulatorColumn::of(result, spec);
        if let Some(position) = self.position(&column, result.function) {
            return ResultSource::Accumulator(position);
        }
        let mut sets = self.distinct.iter();
        let set = sets.position(|set| *set == DistinctColumn::of(result));
        ResultSource::Distinct(set.unwrap_or(0))
    }
}

/// Takes a batch of keys and their states.
type TakeGroups<'t> = &'t mut dyn FnMut(BinaryArray, Vec<ArrayRef>) -> Result<()>;

/// One part in this many of the budget is filled before groups are spilled: runs are encoded, compressed and merged in the
/// rest.
const FILLED_SHARE: usize = 2;

/// A part of the budget.
struct ScratchShare {
    whole: Arc<dyn ScratchSpace>,
    parts: usize,
}

impl ScratchSpace for ScratchShare {
    fn budget_bytes(&self) -> usize {
        self.whole.budget_bytes() / self.parts
    }

    fn create(&self) -> Result<Box<dyn SpillWriter>> {
        self.whole.create()
    }

    fn admit(&self, request: MemoryRequest) -> Result<AdmittedMemory> {
        self.whole.admit(request)
    }
}

impl GroupByState {
    /// No rows.
    pub fn new(spec: &Arc<GroupBy>, scratch: &Arc<dyn ScratchSpace>) -> Result<Self> {
        let needs = StateNeeds::of(spec);
        let mut sources = Vec::with_capacity(spec.results.len());
        for result in &spec.results {
            sources.push(needs.source(result, spec));
        }
        // Each set of distinct values has as much of the budget as the groups.
        let scratch: Arc<dyn ScratchSpace> = Arc::new(ScratchShare {
            whole: scratch.clone(),
            parts: needs.distinct.len() + 1,
        });
        let mut distinct = Vec::with_capacity(needs.distinct.len());
        for set in &needs.distinct {
            let total = needs.total_of(*set);
            distinct.push(DistinctValues::new(*set, total, spec, &scratch)?);
        }
        let columns = needs.columns;
        let mut state = GroupByState {
            spec: spec.clone(),
            index: KeyIndex::new(&spec.keys)?,
            accumulators: build_all(&columns, spec)?,
            sources,
            distinct,
            columns,
            runs: Vec::new(),
            end: 0,
            groups: Vec::new(),
            scratch,
        };
        state.resize();
        Ok(state)
    }

    /// Accumulates a batch: the key columns, then the value columns. `first` is the position of its first row; rows are
    /// ordered by their positions.
    pub fn update(&mut self, columns: &[ArrayRef], rows: usize, first: u64) -> Result<()> {
        let (keys, values) = columns.split_at(self.spec.keys.len());
        // Rows are mapped to groups once; each accumulator then walks its column alone.
        self.index.find_groups(keys, rows, &mut self.groups)?;
        self.resize();
        let mut value_columns = Vec::with_capacity(values.len());
        for (column, data_type) in values.iter().zip(&self.spec.values) {
            value_columns.push(ValueColumn::of(column, data_type)?);
        }
        for (column, accumulator) in self.columns.iter().zip(&mut self.accumulators) {
            let updated = accumulator.update(&GroupedRows {
                groups: &self.groups,
                value: column.value.and_then(|index| value_columns.get(index)),
                other: column.other.and_then(|index| value_columns.get(index)),
                first,
            });
            let names = &self.spec.value_names;
            let name = column.other.and_then(|index| names.get(index));
            updated.map_err(|fault| match name {
                // The row holds no weight.
                Some(name) if fault.has_input_rows() => fault.column(name),
                _ => fault,
            })?;
        }
        self.end = self.end.max(first + rows as u64);
        for set in &mut self.distinct {
            set.update(keys, rows, &value_columns)?;
        }
        self.spill_if_large()
    }

    /// Merges the state of other rows, whose positions are of the same sequence.
    pub fn merge(&mut self, other: GroupByState) -> Result<()> {
        self.end = self.end.max(other.end);
        self.merge_shifted(other, 0)
    }

    /// Merges the state of rows that follow. Their positions begin with 0.
    fn merge_following(&mut self, other: GroupByState) -> Result<()> {
        let shift = self.end;
        self.end += other.end;
        self.merge_shifted(other, shift)
    }

    /// Merges the state of other rows, and adds a number to their positions.
    fn merge_shifted(&mut self, mut other: GroupByState, shift: u64) -> Result<()> {
        let other_sets = std::mem::take(&mut other.distinct);
        for (set, other_set) in self.distinct.iter_mut().zip(other_sets) {
            set.pairs.merge(other_set.pairs)?;
        }
        if self.can_merge_in_memory(&other) {
            let codes = self.index.adopt_codes(&other.index)?;
            let groups: Vec<u32> = (0..other.index.len() as u32).collect();
            for order in groups.chunks(other.groups_per_batch()) {
                self.index
                    .find_groups_of(&other.index, &codes, order, &mut self.groups)?;
                let columns = states_of(&other.accumulators, order, RowPositions::Told)?;
                let states = NewStates {
                    groups: &self.groups,
                    columns: &columns,
                    shift,
                };
                merge_states(&mut self.accumulators, self.index.len(), &states)?;
            }
            return self.spill_if_large();
        }
        // Both become runs, which are merged when they are read.
        self.spill()?;
        other.spill()?;
        for mut run in other.runs {
            run.shift += shift;
            self.runs.push(run);
        }
        self.compact_runs()
    }

    /// True if the groups of both states lie in memory, and there is room for all of them in one state.
    fn can_merge_in_memory(&self, other: &GroupByState) -> bool {
        // Without keys there is one group, which stays.
        if self.spec.keys.is_empty() {
            return true;
        }
        let bytes = self.group_bytes() + other.group_bytes();
        self.runs.is_empty() && other.runs.is_empty() && bytes <= self.scratch.budget_bytes()
    }

    /// The state with another budget.
    pub fn with_scratch(mut self, scratch: &Arc<dyn ScratchSpace>) -> Self {
        let parts = self.distinct.len() + 1;
        self.scratch = Arc::new(ScratchShare {
            whole: scratch.clone(),
            parts,
        });
        let mut distinct = Vec::with_capacity(self.distinct.len());
        for set in self.distinct {
            distinct.push(set.with_scratch(&self.scratch));
        }
        self.distinct = distinct;
        self
    }

    /// The groups in the order of their keys, nulls last.
    pub fn into_sorted(self) -> Result<SortedGroups> {
        SortedGroups::new(self)
    }

    /// Visits the results of all groups, in any order.
    pub fn for_each_unordered(
        mut self,
        mut visit: impl FnMut(&[ArrayRef]) -> Result<()>,
    ) -> Result<()> {
        if !self.runs.is_empty() || !self.distinct.is_empty() {
            let keys = self.spec.keys.len();
            let mut sorted = self.into_sorted()?;
            while let Some(columns) = sorted.next_columns()? {
                visit(&columns[keys..])?;
            }
            return Ok(());
        }
        let groups: Vec<u32> = (0..self.index.len() as u32).collect();
        // The keys are not asked for: their memory is free for the results.
        self.index.clear();
        for order in groups.chunks(MERGE_GROUPS) {
            visit(&self.results(&self.accumulators, order)?)?;
        }
        Ok(())
    }

    /// True if the keys are in memory, in the order of the first rows of their groups and with the values of these rows. Keys
    /// that are whole rows then need not be read again. The only result has to be the position of the first row.
    pub fn holds_first_rows(&self) -> Result<bool> {
        let functions = self.spec.results.iter().map(|result| result.function);
        let is_of_first_rows = functions.eq([GroupFunction::FirstRow]);
        if !is_of_first_rows || self.spec.keys.is_empty() {
            return Ok(false);
        }
        if !self.runs.is_empty() || !self.index.holds_rows() {
            return Ok(false);
        }
        let mut next_position = 0;
        let groups: Vec<u32> = (0..self.index.len() as u32).collect();
        for order in groups.chunks(MERGE_GROUPS) {
            for results in self.results(&self.accumulators, order)? {
                let positions = results
                    .as_primitive_opt::<UInt64Type>()
                    .ok_or_else(|| Fault::internal("groups without positions"))?;
                for position in positions.values() {
                    if *position < next_position {
                        return Ok(false);
                    }
                    next_position = position.saturating_add(1);
                }
            }
        }
        Ok(true)
    }

    /// Visits the key columns of all groups in memory, in the order in which their first rows came.
    pub fn for_each_key(&self, mut visit: impl FnMut(Vec<ArrayRef>) -> Result<()>) -> Result<()> {
        let decoder = self.index.decoder()?;
        let groups: Vec<u32> = (0..self.index.len() as u32).collect();
        for order in groups.chunks(MERGE_GROUPS) {
            visit(self.index.columns(&decoder, order)?)?;
        }
        Ok(())
    }

    /// Bytes of memory.
    pub fn size_bytes(&self) -> usize {
        let sets: usize = self.distinct.iter().map(|set| set.pairs.size_bytes()).sum();
        sets + self.group_bytes()
    }

    /// Bytes of memory without those of the distinct values.
    fn group_bytes(&self) -> usize {
        let sizes = self
            .accumulators
            .iter()
            .map(|accumulator| accumulator.bytes());
        let accumulators: usize = sizes.sum();
        accumulators + self.index.bytes() + self.groups.capacity() * size_of::<u32>()
    }

    /// Bytes of memory that the groups take until they are counted again: while they grow, or while they are read in order.
    fn bytes_needed(&self) -> usize {
        let bytes = self.group_bytes();
        // A flat column that is full is copied to one of twice its length.
        let growth_bytes = 2 * (bytes - self.index.segment_bytes());
        bytes + growth_bytes.max(self.index.sort_bytes())
    }

    fn resize(&mut self) {
        let groups = self.index.len();
        for accumulator in &mut self.accumulators {
            accumulator.resize(groups);
        }
    }

    /// The results of groups, of accumulators like this state's; those of distinct values are left out.
    fn results(
        &self,
        accumulators: &[Box<dyn Accumulator>],
        order: &[u32],
    ) -> Result<Vec<ArrayRef>> {
        let mut results = Vec::new();
        for (source, result) in self.sources.iter().zip(&self.spec.results) {
            if let ResultSource::Accumulator(index) = source {
                results.push(accumulators[*index].results(result.function, order)?);
            }
        }
        Ok(results)
    }

    /// Adds for each result the values that it does not show of groups.
    fn add_lost(
        &self,
        accumulators: &[Box<dyn Accumulator>],
        order: &[u32],
        lost: &mut [LostResults],
    ) {
        for (source, lost) in self.sources.iter().zip(lost) {
            if let ResultSource::Accumulator(index) = source {
                lost.add(accumulators[*index].lost(order));
            }
        }
    }

    fn fresh(&self) -> Result<Vec<Box<dyn Accumulator>>> {
        build_all(&self.columns, &self.spec)
    }

    fn spill_if_large(&mut self) -> Result<()> {
        if self.bytes_needed() > self.scratch.budget_bytes() / FILLED_SHARE {
            self.spill()?;
        }
        Ok(())
    }

    /// Writes all groups to a run and forgets them.
    fn spill(&mut self) -> Result<()> {
        // Without keys there is one group, which stays.
        if self.index.len() == 0 || self.spec.keys.is_empty() {
            return Ok(());
        }
        let mut writer = GroupRunWriter::new(&*self.scratch)?;
        self.for_each_held(RowPositions::Told, &mut |keys, states| {
            writer.push(keys, states)
        })?;
        self.runs.push(writer.finish()?);
        self.index.clear();
        self.accumulators = self.fresh()?;
        self.resize();
        self.compact_runs()
    }

    /// Groups whose states are made at once.
    fn groups_per_batch(&self) -> usize {
        let group_bytes = self.group_bytes() / self.index.len().max(1);
        (RUN_BATCH_BYTES / group_bytes.max(1)).clamp(1, MERGE_GROUPS)
    }

    /// Writes all groups and distinct values to runs.
    fn spill_all(&mut self) -> Result<()> {
        for set in &mut self.distinct {
            set.pairs.spill_all()?;
        }
        self.spill()
    }

    /// Passes the groups in memory to `take`, in batches in the order of keys.
    fn for_each_held(&self, positions: RowPositions, take: TakeGroups<'_>) -> Result<()> {
        let order = self.index.sorted_order();
        let decoder = self.index.decoder()?;
        for order in order.chunks(self.groups_per_batch()) {
            let keys = self.index.encoded(&decoder, order)?;
            let states = states_of(&self.accumulators, order, positions)?;
            take(keys, states)?;
        }
        Ok(())
    }

    /// Passes the groups of runs to `take`, merged, in batches in the order of keys.
    fn for_each_merged(
        &self,
        runs: &[GroupRun],
        positions: RowPositions,
        take: TakeGroups<'_>,
    ) -> Result<()> {
        let mut merge = RunMerge::open(runs, MERGED_GROUPS_MAX)?;
        loop {
            let mut merged = self.fresh()?;
            let keys = merge.next(&mut merged)?;
            let groups: Vec<u32> = (0..keys.len() as u32).collect();
            if groups.is_empty() {
                return Ok(());
            }
            take(keys, states_of(&merged, &groups, positions)?)?;
        }
    }

    /// Merges the smallest runs until few are left.
    fn compact_runs(&mut self) -> Result<()> {
        let runs_max = runs_max(self.scratch.budget_bytes());
        while self.runs.len() > runs_max {
            self.runs
                .sort_by_key(|run| std::cmp::Reverse(run.file.bytes()));
            let small = self.runs.split_off(runs_max / 2);
            // At most `runs_max` are open at once; of more, the larger ones wait for another round.
            let (waiting, merged) = small.split_at(small.len().saturating_sub(runs_max));
            self.runs.extend_from_slice(waiting);
            let mut writer = GroupRunWriter::new(&*self.scratch)?;
            self.for_each_merged(merged, RowPositions::Told, &mut |keys, states| {
                writer.push(keys, states)
            })?;
            self.runs.push(writer.finish()?);
        }
        Ok(())
    }
}

/// Rank in which accumulators are chosen: those that answer more functions come first.
fn breadth(kind: AccumulatorKind) -> u8 {
    match kind {
        AccumulatorKind::Floats { has_squares: true } => 0,
        AccumulatorKind::Counts => 2,
        _ => 1,
    }
}

fn build_all(columns: &[AccumulatorColumn], spec: &GroupBy) -> Result<Vec<Box<dyn Accumulator>>> {
    let mut accumulators = Vec::with_capacity(columns.len());
    for column in columns {
        let data_type = column.value.and_then(|value| spec.values.get(value));
        let data_type = data_type.unwrap_or(&arrow::datatypes::DataType::Null);
        accumulators.push(column.kind.build(data_type)?);
    }
    Ok(accumulators)
}

fn states_of(
    accumulators: &[Box<dyn Accumulator>],
    order: &[u32],
    positions: RowPositions,
) -> Result<Vec<ArrayRef>> {
    let mut states = Vec::new();
    for accumulator in accumulators {
        states.extend(match positions {
            RowPositions::Told => accumulator.states(order)?,
            RowPositions::Dropped => accumulator.placeless_states(order)?,
        });
    }
    Ok(states)
}
