//! Learning of work units: reads of rows, alone or in pieces, and commits of their states.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use forebay_commit::{SHARES, shares_bytes_min, sources_per_merge};
use forebay_model::{AnyState, KeySample, Result, catch_panic};
use forebay_plan::{Carry, RowCounts};
use serde::{Deserialize, Serialize};

use super::IncrementalLane;
use super::divided_units::{DividedUnit, DividedUnits, PieceStates, WaitingPieces};
use super::merge_plan::RunTree;
use crate::chunk_source::SpanRef;
use crate::learn_pass::LaneStates;
use crate::ordered_scan::{CheckpointHook, OrderedScan};
use crate::range_bytes::range_bytes_min;
use crate::span_index::{SpanIndex, WorkUnit};

/// The most bytes of groups, for each row of a run, that are kept: reading a group again costs about as much as reading
/// ten rows, and a group has about a hundred bytes.
const KEPT_BYTES_PER_ROW_MAX: u64 = 10;

/// The bytes of groups, for each row of a piece, beyond which few groups have several rows: such groups are merged from
/// the scratch space, since merging them in memory would hardly make them fewer.
const MERGED_BYTES_PER_ROW_MAX: u64 = 50;

/// Shares of all units that the coordinator merges at once, at most: those of eight units.
const SHARES_MERGED_MAX: usize = 8 * SHARES;

/// Memory of a state for each share that the coordinator merges, at least. With less, the state
/// merges runs into fewer ones first, which workers do faster.
const SHARE_MEMORY_BYTES: usize = 1 << 20;

/// Pieces of units for each thread: threads that end at different times wait for a piece at most.
const PIECES_PER_THREAD: usize = 4;

/// Work units whose rows are learned.
pub(super) struct UnitTasks<'a> {
    /// The spans of the whole history.
    pub tasks: &'a [SpanRef],
    /// Number of units.
    pub parts: usize,
    /// True if no unit has a committed state.
    pub all_missing: bool,
}

/// The outcome of a work unit.
#[derive(Serialize, Deserialize)]
pub(super) struct UnitOutcome {
    pub counts: RowCounts,
    pub how: RemoteDisposition,
}

/// Disposition of some analyzers' results on a worker; the states of the others are committed
/// whole.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct RemoteDisposition {
    /// Analyzers whose states were stored in shares because they are large.
    pub divided: BTreeSet<usize>,
    /// Samples of the keys of divided states, with their analyzers: one for each unit, if the
    /// analyzer takes samples.
    pub key_samples: Vec<(usize, KeySample)>,
    /// Analyzers with large states and too many units for shares: runs of their states are merged
    /// first.
    pub large: BTreeSet<usize>,
    /// Analyzers whose findings the worker committed, because it had read all rows.
    pub answered: BTreeSet<usize>,
}

impl RemoteDisposition {
    /// Disposition of a lane, from those of its units. Large states come from workers in shares, or need merging there;
    /// some lanes were finished by a worker: decisions/shared-findings.md.
    pub fn of_units<'o>(outcomes: impl Iterator<Item = &'o UnitOutcome>) -> RemoteDisposition {
        let mut disposition = RemoteDisposition::default();
        for outcome in outcomes {
            disposition.divided.extend(&outcome.how.divided);
            disposition
                .key_samples
                .extend_from_slice(&outcome.how.key_samples);
            disposition.large.extend(&outcome.how.large);
            disposition.answered.extend(&outcome.how.answered);
        }
        disposition
    }

    /// Leaves the shares of states with few keys in common to the coordinator, which decodes each
    /// group in any case: workers would encode and decode it once more, and make the groups hardly
    /// fewer. `units` is the number of states that each analyzer's state is merged of, and
    /// `budget_bytes` the memory of an analyzer's state on the coordinator.
    pub fn leave_distinct_shares(&mut self, units: usize, budget_bytes: impl Fn(usize) -> usize) {
        let shares = units.saturating_mul(SHARES);
        if shares > SHARES_MERGED_MAX {
            return;
        }
        let key_samples = &self.key_samples;
        self.divided.retain(|analyzer| {
            let mut samples = Vec::new();
            for (sampled_analyzer, sample) in key_samples {
                if sampled_analyzer == analyzer {
                    samples.push(sample);
                }
            }
            let is_left = samples.len() == units
                && shares * SHARE_MEMORY_BYTES <= budget_bytes(*analyzer)
                && KeySample::are_mostly_distinct(&samples);
            !is_left
        });
    }
}

impl IncrementalLane<'_> {
    /// True if threads of this process may read units in pieces. Units of groups are few and long.
    /// Their states fill a part of the memory that they get, so that states that wait for their
    /// neighbours have room.
    pub(super) fn divides_units(&self, sequence: &OrderedScan<'_>) -> bool {
        let learn = self.learn;
        let has_groups = learn.states.is_some()
            || self
                .run
                .lane
                .asks
                .iter()
                .any(|analyzer| learn.is_along(*analyzer));
        has_groups && learn.cluster.is_none() && !learn.on_worker && !sequence.is_ordered()
    }

    /// Divides overlapping units into pieces, each of which lies inside or outside of a unit. There
    /// are so many that all threads stay busy to the end.
    pub(super) fn divide_units(
        &self,
        history: &SpanIndex,
        units: &[DividedUnit],
    ) -> Vec<Range<usize>> {
        let covered: BTreeSet<usize> = units.iter().flat_map(|unit| unit.tasks.clone()).collect();
        let ends: BTreeSet<usize> = units
            .iter()
            .flat_map(|unit| [unit.tasks.start, unit.tasks.end])
            .collect();
        let total_bytes: u64 = covered
            .iter()
            .map(|task| history.bytes(*task..task + 1))
            .sum();
        let target =
            (total_bytes / (self.turns.count() * PIECES_PER_THREAD) as u64).max(range_bytes_min());
        let mut pieces: Vec<Range<usize>> = Vec::new();
        for task in covered {
            let goes_on = |last: &&mut Range<usize>| {
                last.end == task && !ends.contains(&task) && history.bytes((*last).clone()) < target
            };
            match pieces.last_mut().filter(goes_on) {
                Some(last) => last.end = task + 1,
                None => pieces.push(task..task + 1),
            }
        }
        pieces
    }

    pub(super) fn divided_unit(
        &self,
        tree: &RunTree,
        tasks: &Range<usize>,
        all_missing: bool,
    ) -> Result<DividedUnit> {
        let mut wanted_states = self.missing_states(tasks, all_missing)?;
        let others = wanted_states
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| !tree.analyzers.contains(index));
        others.for_each(|(_, is_wanted)| *is_wanted = false);
        Ok(DividedUnit {
            tasks: tasks.clone(),
            wanted: wanted_states,
            waiting: WaitingPieces::default(),
        })
    }

    /// Reads the rows of a piece of some units. The thread that makes a unit whole commits its states. `None` if the pass
    /// was stopped.
    pub(super) fn learn_piece(
        &self,
        divided: &DividedUnits<'_>,
        spans: &[SpanRef],
        piece: &WorkUnit,
        carry: &mut Carry,
        stop: &AtomicBool,
    ) -> Result<Option<UnitOutcome>> {
        let units: Vec<&DividedUnit> = divided
            .units
            .iter()
            .filter(|unit| unit.holds(&piece.tasks))
            .collect();
        let wanted_states: Vec<bool> = (0..self.shapes.len())
            .map(|index| units.iter().any(|unit| unit.wanted[index]))
            .collect();
        let mut counts = RowCounts::default();
        let Some(states) = self.read_spans(spans, &wanted_states, &mut counts, carry, stop)? else {
            return Ok(None);
        };
        let mut states: BTreeMap<usize, AnyState> = states.into_iter().enumerate().collect();
        for unit in units {
            let wanted_states = unit
                .wanted
                .iter()
                .enumerate()
                .filter(|(_, is_wanted)| **is_wanted);
            let wanted_states = wanted_states
                .filter_map(|(index, _)| states.remove_entry(&index))
                .collect();
            let mut piece_states = PieceStates {
                tasks: piece.tasks.clone(),
                states: wanted_states,
            };
            self.spill_large(&mut piece_states)?;
            if let Some(unkept) = self.add_piece(unit, piece_states)? {
                self.join_neighbours(divided.unkept, unkept)?;
            }
        }
        Ok(Some(UnitOutcome {
            counts,
            how: RemoteDisposition::default(),
        }))
    }

    /// Merges a piece with those that were read before, and commits the states of the unit if it is
    /// whole. Returns states that are too large for that.
    fn add_piece(
        &self,
        unit: &DividedUnit,
        piece_states: PieceStates,
    ) -> Result<Option<PieceStates>> {
        self.join_neighbours(&unit.waiting, piece_states)?;
        let Some(whole_unit) = unit.waiting.take(&unit.tasks)? else {
            return Ok(None);
        };
        if !self.are_kept(&whole_unit) {
            return Ok(Some(whole_unit));
        }
        for (index, mut state) in whole_unit.states {
            self.put_unit_state(index, &unit.tasks, &mut state)?;
        }
        self.commit_unit(&unit.tasks)?;
        Ok(None)
    }

    /// Merges a piece with those of its neighbours that wait.
    fn join_neighbours(
        &self,
        waiting: &WaitingPieces,
        mut piece_states: PieceStates,
    ) -> Result<()> {
        while let Some([earlier, second]) = waiting.neighbour_of(piece_states)? {
            piece_states = self.merge_pieces(earlier, second)?;
            self.learn.context.memory.check()?;
        }
        Ok(())
    }

    /// True if the states of a unit are committed. States of groups are not if reading them again
    /// would take longer than reading the rows again; those of a read that others share are, since
    /// their own pass has no other way to get them.
    fn are_kept(&self, unit: &PieceStates) -> bool {
        self.learn.states.is_none()
            || unit.states.iter().all(|(index, state)| {
                self.bytes_per_row(*index, &unit.tasks, state) <= KEPT_BYTES_PER_ROW_MAX
            })
    }

    /// Moves groups to the scratch space that merging would hardly make fewer.
    fn spill_large(&self, piece: &mut PieceStates) -> Result<()> {
        for (index, state) in &mut piece.states {
            if self.bytes_per_row(*index, &piece.tasks, state) > MERGED_BYTES_PER_ROW_MAX {
                let spilled = self.analyzer(*index).spill(state);
                spilled.map_err(|fault| self.learn.place(fault, self.run.lane.asks[*index]))?;
            }
        }
        Ok(())
    }

    /// Bytes of an analyzer's state for each row of some spans; 0 if the state does not report its
    /// size.
    fn bytes_per_row(&self, index: usize, tasks: &Range<usize>, state: &AnyState) -> u64 {
        let bytes = self.analyzer(index).divisible_bytes(state).unwrap_or(0);
        bytes / self.seen[index].rows(tasks.clone()).max(1)
    }

    fn merge_pieces(
        &self,
        mut earlier: PieceStates,
        mut second: PieceStates,
    ) -> Result<PieceStates> {
        for (index, state) in &mut earlier.states {
            if let Some(second_state) = second.states.remove(index) {
                let merge = || self.analyzer(*index).merge(state, second_state);
                catch_panic(merge)
                    .map_err(|fault| self.learn.place(fault, self.run.lane.asks[*index]))?;
            }
        }
        Ok(PieceStates {
            tasks: earlier.tasks.start..second.tasks.end,
            states: earlier.states,
        })
    }

    /// The states of the requested analyzers over the rows of some spans; `None` if the pass was
    /// stopped.
    fn read_spans(
        &self,
        spans: &[SpanRef],
        wanted_states: &[bool],
        counts: &mut RowCounts,
        carry: &mut Carry,
        stop: &AtomicBool,
    ) -> Result<Option<Vec<AnyState>>> {
        let mut states = self.learn.zero(self.run)?;
        for spans in spans.chunk_by(|task, next| task.scan == next.scan) {
            let into = LaneStates {
                states: &mut states,
                wants: &|index| wanted_states[index],
                counts,
            };
            if !self.learn.spans(self.run, spans, carry, stop, into)? {
                return Ok(None);
            }
        }
        Ok(Some(states))
    }

    /// Reads the rows of a unit and commits its states; `None` if the pass was stopped.
    pub(super) fn learn_unit(
        &self,
        units: &UnitTasks<'_>,
        part: &WorkUnit,
        carry: &mut Carry,
        checkpoint_hook: CheckpointHook<'_>,
        stop: &AtomicBool,
    ) -> Result<Option<UnitOutcome>> {
        let learn = self.learn;
        let tasks = units.tasks;
        let wanted_states = self.missing_states(&part.tasks, units.all_missing)?;
        let mut counts = RowCounts::default();
        let spans = &tasks[part.tasks.clone()];
        let Some(states) = self.read_spans(spans, &wanted_states, &mut counts, carry, stop)? else {
            return Ok(None);
        };
        checkpoint_hook(carry)?;
        let is_large = |bytes: u64| bytes.saturating_mul(units.parts as u64) >= shares_bytes_min();
        let are_findings = learn.states.is_none();
        let is_all = are_findings && !self.is_history && part.tasks.len() == tasks.len();
        let mut how = RemoteDisposition::default();
        let learned = self.state_ids(&part.tasks).enumerate().zip(states);
        for ((index, id), mut state) in learned.filter(|((index, _), _)| wanted_states[*index]) {
            let analyzer = self.analyzer(index);
            let analyzer_id = self.run.lane.asks[index];
            if learn.on_worker && is_all {
                learn.find(analyzer_id, state, true)?;
                how.answered.insert(index);
                continue;
            }
            let is_large =
                learn.on_worker && analyzer.divisible_bytes(&state).is_some_and(is_large);
            // Shares of many units would be very many small files.
            if is_large && units.parts <= sources_per_merge() {
                let put = learn
                    .store
                    .put_partial_shares(id, analyzer, &mut state, learn.scratch);
                let sample = put.map_err(|fault| learn.place(fault, analyzer_id))?;
                how.key_samples.extend(sample.map(|sample| (index, sample)));
                how.divided.insert(index);
                continue;
            }
            if is_large {
                how.large.insert(index);
            }
            self.put_unit_state(index, &part.tasks, &mut state)?;
        }
        self.commit_unit(&part.tasks)?;
        Ok(Some(UnitOutcome { counts, how }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET_BYTES: usize = 1 << 30;

    /// States of analyzer 1 with the keys of these ranges, and states of analyzer 0 without
    /// samples.
    fn disposition_of(states: &[Range<u64>]) -> RemoteDisposition {
        let mut disposition = RemoteDisposition::default();
        disposition.divided.extend([0, 1]);
        for keys in states {
            let mut sample = KeySample::default();
            keys.clone().for_each(|key| sample.add(key));
            disposition.key_samples.push((1, sample));
        }
        disposition
    }

    /// The analyzers whose shares workers merge.
    fn merged_by_workers(states: &[Range<u64>], units: usize, budget_bytes: usize) -> Vec<usize> {
        let mut disposition = disposition_of(states);
        disposition.leave_distinct_shares(units, |_| budget_bytes);
        disposition.divided.into_iter().collect()
    }

    #[test]
    fn shares_with_few_keys_in_common_are_left_to_the_coordinator() {
        assert_eq!(merged_by_workers(&[0..50, 50..100], 2, BUDGET_BYTES), [0]);
    }

    #[test]
    fn workers_merge_equal_keys() {
        assert_eq!(merged_by_workers(&[0..50, 0..50], 2, BUDGET_BYTES), [0, 1]);
    }

    #[test]
    fn workers_merge_states_of_which_some_were_not_sampled() {
        assert_eq!(
            merged_by_workers(&[0..50, 50..100], 3, BUDGET_BYTES),
            [0, 1]
        );
    }

    #[test]
    fn workers_merge_shares_that_the_coordinator_has_no_memory_for() {
        assert_eq!(merged_by_workers(&[0..50, 50..100], 2, 1 << 20), [0, 1]);
    }

    #[test]
    fn workers_merge_the_shares_of_many_states() {
        let states: Vec<Range<u64>> = (0..9).map(|state| state * 50..state * 50 + 50).collect();
        assert_eq!(merged_by_workers(&states, 9, BUDGET_BYTES), [0, 1]);
    }
}
