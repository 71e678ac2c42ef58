//! One row per key, from mergeable states of the groups.
//!
//! Groups are numbered as their keys come, and all that is known of them lies in flat columns. Beyond the budget they are
//! written as runs in the order of keys, and merged at the end. Counts are integers and sums exact, so that the result
//! does not depend on how rows are divided.

mod accumulator;
mod analyzer;
mod decimal_sums;
mod distinct_sketches;
mod extremes;
mod float_sums;
mod integer_sums;
mod kept_groups;
mod key_field;
mod key_index;
mod lists;
mod ordered_bits;
mod packed_keys;
mod placed;
mod runs;
mod sorted_groups;
mod value_reader;
mod weighted_sums;
mod window_sums;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray};
use forebay_model::{
    GroupBy, GroupFunction, GroupKey, GroupResult, Result, ScratchSpace, SpillWriter,
};

use accumulator::{Accumulator, AccumulatorKind, GroupedRows, ValueColumn};
pub use analyzer::GroupByAnalyzer;
use key_index::KeyIndex;
use runs::{
    GroupRun, GroupRunWriter, MERGED_GROUPS_MAX, NewStates, RUN_BATCH_BYTES, RUNS_MAX, RunMerge,
    merge_states,
};
pub use sorted_groups::SortedGroups;
use value_reader::ValueQuestions;

/// One part in this many of the budget is filled before groups are spilled: sorting and growing take the rest.
const FILLED_SHARE: usize = 3;

/// Groups that are merged at once.
const MERGE_GROUPS: usize = 8192;

/// What is known of the groups of rows, in memory and in spilled runs.
pub struct GroupByState {
    spec: Arc<GroupBy>,
    scratch: Arc<dyn ScratchSpace>,
    index: KeyIndex,
    columns: Vec<AccumulatorColumn>,
    accumulators: Vec<Box<dyn Accumulator>>,
    /// For each result, the accumulator or the set of values that tells it.
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

/// The distinct values of a column in each group, as groups of the keys and the value.
struct DistinctValues {
    value: usize,
    asked: ValueQuestions,
    pairs: GroupByState,
}

impl DistinctValues {
    fn with_scratch(self, scratch: &Arc<dyn ScratchSpace>) -> Self {
        DistinctValues {
            pairs: self.pairs.with_scratch(scratch),
            ..self
        }
    }
}

/// Whether states tell the positions of rows.
#[derive(Debug, Clone, Copy)]
enum RowPositions {
    Told,
    Dropped,
}

impl AccumulatorColumn {
    /// The number of values of a column.
    fn counts(value: usize) -> Self {
        AccumulatorColumn {
            kind: AccumulatorKind::Counts,
            value: Some(value),
            other: None,
        }
    }
}

/// Takes a batch of keys and their states.
type TakeGroups<'t> = &'t mut dyn FnMut(BinaryArray, Vec<ArrayRef>) -> Result<()>;

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

    fn admit(&self, more: forebay_model::MemoryRequest) -> Result<()> {
        self.whole.admit(more)
    }
}

impl GroupByState {
    /// No rows.
    pub fn new(spec: &Arc<GroupBy>, scratch: &Arc<dyn ScratchSpace>) -> Result<Self> {
        let mut columns: Vec<AccumulatorColumn> = Vec::new();
        let mut distinct: Vec<usize> = Vec::new();
        let column = |result: &GroupResult| {
            let kind = AccumulatorKind::of(result, &spec.values);
            let value = (!result.function.is_of_rows()).then_some(result.value);
            AccumulatorColumn {
                kind,
                value,
                other: result.function.other_column(),
            }
        };
        let mut asked: Vec<&GroupResult> = spec.results.iter().collect();
        asked.sort_by_key(|result| breadth(column(result).kind));
        for result in asked {
            let own = column(result);
            if own.kind == AccumulatorKind::Distinct {
                if !distinct.contains(&result.value) {
                    distinct.push(result.value);
                }
                let counts = AccumulatorColumn::counts(result.value);
                let is_known =
                    |known: &AccumulatorColumn| tells(known, &counts, GroupFunction::Count);
                if matches!(result.function, GroupFunction::Quantile { .. })
                    && !columns.iter().any(is_known)
                {
                    columns.push(counts);
                }
            } else if !columns
                .iter()
                .any(|known| tells(known, &own, result.function))
            {
                columns.push(own);
            }
        }
        let source = |result: &GroupResult| {
            let own = column(result);
            let place = columns
                .iter()
                .position(|known| tells(known, &own, result.function));
            let set = distinct.iter().position(|value| *value == result.value);
            match place {
                Some(place) => ResultSource::Accumulator(place),
                None => ResultSource::Distinct(set.unwrap_or(0)),
            }
        };
        let sources = spec.results.iter().map(source).collect();
        let parts = distinct.len() + 1;
        let scratch: Arc<dyn ScratchSpace> = Arc::new(ScratchShare {
            whole: scratch.clone(),
            parts,
        });
        let distinct = distinct.into_iter().map(|value| {
            let data_type = spec.values[value].clone();
            let keys = spec
                .keys
                .iter()
                .cloned()
                .chain([GroupKey {
                    data_type,
                    bucket: None,
                }])
                .collect();
            let counts = AccumulatorColumn::counts(value);
            let count = columns
                .iter()
                .position(|known| tells(known, &counts, GroupFunction::Count));
            let mut asked = ValueQuestions::default();
            for result in spec.results.iter().filter(|result| result.value == value) {
                match result.function {
                    GroupFunction::Quantile { q } => {
                        asked.quantiles.push(q);
                        asked.count = count;
                    }
                    GroupFunction::TopK { k } => asked.top.push(k),
                    _ => {}
                }
            }
            let rows = GroupResult {
                function: GroupFunction::CountRows,
                value: 0,
            };
            let results = if asked.needs_repeats() {
                vec![rows]
            } else {
                Vec::new()
            };
            let pairs = GroupBy {
                keys,
                values: Vec::new(),
                results,
            };
            Ok(DistinctValues {
                value,
                asked,
                pairs: GroupByState::new(&Arc::new(pairs), &scratch)?,
            })
        });
        let distinct = distinct.collect::<Result<Vec<_>>>()?;
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

    /// Accumulates a batch: the key columns, then the value columns. `first` is the position of its first row; positions
    /// tell the order of all rows.
    pub fn update(&mut self, columns: &[ArrayRef], rows: usize, first: u64) -> Result<()> {
        let (keys, values) = columns.split_at(self.spec.keys.len());
        self.index.find_groups(keys, rows, &mut self.groups)?;
        self.resize();
        let values = values
            .iter()
            .zip(&self.spec.values)
            .map(|(column, data_type)| ValueColumn::of(column, data_type));
        let values = values.collect::<Result<Vec<_>>>()?;
        let values = &values;
        for (column, accumulator) in self.columns.iter().zip(&mut self.accumulators) {
            let of = |place: Option<usize>| place.and_then(|place| values.get(place));
            let (value, other) = (of(column.value), of(column.other));
            accumulator.update(&GroupedRows {
                groups: &self.groups,
                value,
                other,
                first,
            })?;
        }
        self.end = self.end.max(first + rows as u64);
        for set in &mut self.distinct {
            let value = &values[set.value];
            let mut pairs = keys.to_vec();
            pairs.push(value.read.clone());
            let mut rows = rows;
            if let Some(valid) = &value.valid {
                let valid = arrow::array::BooleanArray::new(valid.inner().clone(), None);
                for column in &mut pairs {
                    *column = arrow::compute::filter(column, &valid)?;
                }
                rows = valid.true_count();
            }
            set.pairs.update(&pairs, rows, 0)?;
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
        for (set, other) in self
            .distinct
            .iter_mut()
            .zip(std::mem::take(&mut other.distinct))
        {
            set.pairs.merge(other.pairs)?;
        }
        if self.runs.is_empty() && other.runs.is_empty() {
            let decoder = other.index.decoder()?;
            let all: Vec<u32> = (0..other.index.len() as u32).collect();
            for order in all.chunks(other.groups_per_batch()) {
                let keys = other.index.columns(&decoder, order)?;
                self.index
                    .find_groups(&keys, order.len(), &mut self.groups)?;
                let columns = all_states(&other.accumulators, order, RowPositions::Told)?;
                let states = NewStates {
                    groups: &self.groups,
                    columns: &columns,
                    shift,
                };
                merge_states(&mut self.accumulators, self.index.len(), &states)?;
            }
            return self.spill_if_large();
        }
        self.spill()?;
        other.spill()?;
        self.runs.extend(other.runs.into_iter().map(|run| GroupRun {
            shift: run.shift + shift,
            ..run
        }));
        self.compact_runs()
    }

    /// The state with another budget.
    pub fn with_scratch(mut self, scratch: &Arc<dyn ScratchSpace>) -> Self {
        let parts = self.distinct.len() + 1;
        self.scratch = Arc::new(ScratchShare {
            whole: scratch.clone(),
            parts,
        });
        self.distinct = self
            .distinct
            .into_iter()
            .map(|set| set.with_scratch(&self.scratch))
            .collect();
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
        let all: Vec<u32> = (0..self.index.len() as u32).collect();
        self.index.clear();
        for order in all.chunks(MERGE_GROUPS) {
            visit(&self.results(&self.accumulators, order)?)?;
        }
        Ok(())
    }

    /// Bytes of memory.
    pub fn size_bytes(&self) -> usize {
        let sets: usize = self.distinct.iter().map(|set| set.pairs.size_bytes()).sum();
        sets + self.own_bytes()
    }

    fn own_bytes(&self) -> usize {
        let accumulators: usize = self
            .accumulators
            .iter()
            .map(|accumulator| accumulator.bytes())
            .sum();
        accumulators + self.index.bytes() + self.groups.capacity() * size_of::<u32>()
    }

    fn resize(&mut self) {
        let groups = self.index.len();
        self.accumulators
            .iter_mut()
            .for_each(|accumulator| accumulator.resize(groups));
    }

    /// The results of groups, of accumulators like this state's; those of distinct values are left out.
    fn results(
        &self,
        accumulators: &[Box<dyn Accumulator>],
        order: &[u32],
    ) -> Result<Vec<ArrayRef>> {
        let each = self.sources.iter().zip(&self.spec.results);
        let each = each.filter_map(|(source, result)| match source {
            ResultSource::Accumulator(place) => {
                Some(accumulators[*place].results(result.function, order))
            }
            ResultSource::Distinct(_) => None,
        });
        each.collect()
    }

    fn fresh(&self) -> Result<Vec<Box<dyn Accumulator>>> {
        build_all(&self.columns, &self.spec)
    }

    fn spill_if_large(&mut self) -> Result<()> {
        if self.own_bytes() > self.scratch.budget_bytes() / FILLED_SHARE {
            self.spill()
        } else {
            Ok(())
        }
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
        let group_bytes = self.own_bytes() / self.index.len().max(1);
        (RUN_BATCH_BYTES / group_bytes.max(1)).clamp(1, MERGE_GROUPS)
    }

    /// Writes all groups and distinct values to runs.
    fn spill_all(&mut self) -> Result<()> {
        self.distinct
            .iter_mut()
            .try_for_each(|set| set.pairs.spill_all())?;
        self.spill()
    }

    /// Passes the groups in memory to `take`, in batches in the order of keys.
    fn for_each_held(&self, positions: RowPositions, take: TakeGroups<'_>) -> Result<()> {
        let (order, decoder) = (self.index.sorted_order()?, self.index.decoder()?);
        order.chunks(self.groups_per_batch()).try_for_each(|order| {
            take(
                self.index.encoded(&decoder, order)?,
                all_states(&self.accumulators, order, positions)?,
            )
        })
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
            let all: Vec<u32> = (0..keys.len() as u32).collect();
            if all.is_empty() {
                return Ok(());
            }
            take(keys, all_states(&merged, &all, positions)?)?;
        }
    }

    /// Merges the smallest runs until few are left.
    fn compact_runs(&mut self) -> Result<()> {
        while self.runs.len() > RUNS_MAX {
            self.runs
                .sort_by_key(|run| std::cmp::Reverse(run.file.bytes()));
            let small = self.runs.split_off(RUNS_MAX / 2);
            let merged = &small[small.len().saturating_sub(RUNS_MAX)..];
            self.runs
                .extend_from_slice(&small[..small.len().saturating_sub(RUNS_MAX)]);
            let mut writer = GroupRunWriter::new(&*self.scratch)?;
            self.for_each_merged(merged, RowPositions::Told, &mut |keys, states| {
                writer.push(keys, states)
            })?;
            self.runs.push(writer.finish()?);
        }
        Ok(())
    }
}

/// How early accumulators are chosen: those that tell more come first.
fn breadth(kind: AccumulatorKind) -> u8 {
    match kind {
        AccumulatorKind::Floats { has_squares: true } => 0,
        AccumulatorKind::Counts => 2,
        _ => 1,
    }
}

/// Whether an accumulator for something else tells what is asked of its column, too.
fn tells(known: &AccumulatorColumn, asked: &AccumulatorColumn, function: GroupFunction) -> bool {
    let more = match asked.kind {
        AccumulatorKind::Floats { .. } => {
            known.kind == AccumulatorKind::Floats { has_squares: true }
        }
        AccumulatorKind::Counts => function == GroupFunction::Count && known.kind.counts_values(),
        _ => false,
    };
    known == asked || more && known.value == asked.value
}

fn build_all(columns: &[AccumulatorColumn], spec: &GroupBy) -> Result<Vec<Box<dyn Accumulator>>> {
    let each = columns.iter().map(|column| {
        let data_type = column.value.and_then(|value| spec.values.get(value));
        column
            .kind
            .build(data_type.unwrap_or(&arrow::datatypes::DataType::Null))
    });
    each.collect()
}

fn all_states(
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
