//! Interpreter of merge plans: loads, merges and commits the states of runs, here or on workers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;

use forebay_cluster::{StateSource, TaskKind, TaskOutcome, TaskSpec, bad_request};
use forebay_commit::{
    MERGES_MIN, SHARES, SHARES_AT_ONCE, merge_pairwise, shares_bytes_min, sources_per_merge,
};
use forebay_model::{AnyState, Result, SeriesCounts};
use forebay_storage::failpoint;
use forebay_threads::{lock, parallel_map};

use super::IncrementalLane;
use super::divided_units::PieceStates;
use super::merge_plan::{
    MergePlan, RunTree, WorkerMergeFacts, WorkerMergePlan, collect_stored, count_sources,
};
use super::units::RemoteDisposition;
use crate::cluster_handle::RemoteExecutor;
use crate::learn_pass::{LearnPass, LearnResult, fixed_bytes};

impl IncrementalLane<'_> {
    /// Merges large states on workers, with a task for each share.
    pub(super) fn merge_shares_on_workers(
        &self,
        plan: &MergePlan,
        divided: &BTreeSet<usize>,
        workers: &RemoteExecutor<'_>,
    ) -> Result<()> {
        let mut tasks = Vec::new();
        for analyzer in divided {
            for share in 0..SHARES {
                tasks.push(TaskSpec {
                    cost: 1,
                    after: None,
                    what: TaskKind::Merge {
                        question: *analyzer,
                        share,
                        pieces: plan.sources.clone(),
                    },
                });
            }
        }
        self.run_merges(tasks, workers)?;
        for analyzer in divided {
            for run in plan.merged_runs(*analyzer) {
                let id = self.state_id(*analyzer, &run);
                let store = self.learn.store;
                store.mark_shares_complete(id, self.learn.scratch)?;
            }
        }
        Ok(())
    }

    fn run_merges(&self, tasks: Vec<TaskSpec>, workers: &RemoteExecutor<'_>) -> Result<()> {
        let state = self.learn.context.state;
        let done = workers.run_tasks(&workers.stage_context(state), tasks, state, &mut |_| Ok(()));
        done.map_err(|failure| failure.fault)
    }

    /// Merges runs of large states on workers: states that cannot be divided, and those that were
    /// not divided because of the number of units. Returns the merge that the coordinator still has
    /// to do.
    pub(super) fn merge_runs_on_workers(
        &self,
        plan: MergePlan,
        disposition: &mut RemoteDisposition,
        workers: &RemoteExecutor<'_>,
    ) -> Result<MergePlan> {
        let done = disposition.divided.union(&disposition.answered);
        let without: BTreeSet<usize> = done.copied().collect();
        let analyzers = (0..self.shapes.len()).filter(|index| !without.contains(index));
        let state_bytes: usize = analyzers
            .filter_map(|index| fixed_bytes(self.analyzer(index)))
            .sum();
        let WorkerMergePlan { plan, runs } = plan.for_workers(&WorkerMergeFacts {
            is_history: self.is_history,
            analyzers: self.shapes.len(),
            state_bytes: state_bytes as u64,
            has_large: !disposition.large.is_empty(),
            sources_per_merge: sources_per_merge(),
            merges_min: MERGES_MIN,
            bytes_min: shares_bytes_min(),
        });
        if runs.is_empty() {
            return Ok(plan);
        }
        let divide = std::mem::take(&mut disposition.large);
        let tasks = runs.iter().map(|run| TaskSpec {
            cost: count_sources(run) as u64,
            after: None,
            what: TaskKind::MergeRuns {
                source: run.clone(),
                without: without.clone(),
                divide: divide.clone(),
            },
        });
        self.run_merges(tasks.collect(), workers)?;
        self.learn.store.refresh()?;
        let plan = plan.with_committed_runs(&runs);
        self.merge_shares_on_workers(&plan, &divide, workers)?;
        disposition.divided.extend(divide);
        Ok(plan)
    }

    /// Merges the states of a source's runs and commits the state of each run, on a worker. If a
    /// committed state is corrupt, the state of the run is not written, which the coordinator
    /// detects.
    pub(super) fn run_merge_of_runs(
        &self,
        source: &StateSource,
        without: &BTreeSet<usize>,
        divide: &BTreeSet<usize>,
        span_count: usize,
    ) -> Result<TaskOutcome> {
        if !source.is_within(span_count, self.shapes.len()) {
            return Err(bad_request());
        }
        failpoint::step("merge", "runs of states");
        self.learn.store.refresh()?;
        let analyzers: Vec<usize> = (0..self.shapes.len())
            .filter(|index| !without.contains(index))
            .collect();
        let mut runs = Vec::new();
        collect_stored(source, &mut runs);
        self.fetch_states(&runs, &analyzers)?;
        for index in analyzers {
            match source {
                StateSource::Merged {
                    tasks,
                    kept: kept_by_analyzer,
                    of,
                } if divide.contains(&index) && !kept_by_analyzer[index] => {
                    self.commit_in_shares(index, tasks, of)?;
                }
                source => drop(self.merged_state(index, std::slice::from_ref(source), None)?),
            }
        }
        self.learn.store.flush()?;
        Ok(TaskOutcome::Done(SeriesCounts::default()))
    }

    /// Fetches the states of some runs at once: single requests would wait for each other.
    fn fetch_states(&self, runs: &[Range<usize>], analyzers: &[usize]) -> Result<()> {
        let ids = runs
            .iter()
            .flat_map(|run| analyzers.iter().map(|index| self.state_id(*index, run)));
        self.learn.store.fetch_partials(ids)
    }

    /// Merges a share of an analyzer's state over all spans, on a worker. If a committed state is
    /// corrupt, nothing is written, which the coordinator detects.
    pub(super) fn run_merge_of_share(
        &self,
        index: usize,
        share: usize,
        sources: &[StateSource],
        span_count: usize,
    ) -> Result<TaskOutcome> {
        let are_within = sources
            .iter()
            .all(|source| source.is_within(span_count, self.shapes.len()));
        if index >= self.shapes.len() || !are_within {
            return Err(bad_request());
        }
        failpoint::step("merge", "a share of states");
        let learn = self.learn;
        let analyzer = self.analyzer(index);
        let Some(mut state) = self.merged_state(index, sources, Some(share))? else {
            return Ok(TaskOutcome::Done(SeriesCounts::default()));
        };
        // The share of a run of all spans is committed already, and is not merged and encoded
        // again.
        if !is_merged_run(sources) {
            let id = self.state_id(index, &(0..span_count));
            let name = share.to_string();
            let mut encode = |out: &mut dyn std::io::Write| analyzer.encode(&mut state, out);
            learn
                .store
                .put_shared(id, &name, learn.scratch, &mut encode)?;
        }
        Ok(TaskOutcome::Done(SeriesCounts::default()))
    }

    /// The state of an analyzer that workers merged; `None` if a share is missing.
    fn load_merged_shares(
        &self,
        index: usize,
        sources: &[StateSource],
        tasks: usize,
    ) -> Result<Option<AnyState>> {
        if is_merged_run(sources) {
            return self.stored_state(index, &(0..tasks), None);
        }
        let learn = self.learn;
        let analyzer = self.analyzer(index);
        let scratch = &self.run.scratches[index];
        let id = self.state_id(index, &(0..tasks));
        lock(&learn.context.state.shared)?.push(id);
        let read = |share: usize| {
            learn.store.get_shared(id, &share.to_string(), |input| {
                analyzer.decode_large(input, scratch)
            })
        };
        merge_pairwise(analyzer, (0..SHARES).map(read))
    }

    /// Merges the states of all sources, with a thread for each analyzer, and answers with the
    /// findings; false if a committed state is corrupt.
    pub(super) fn conclude_merged(
        &self,
        tree: &RunTree,
        plan: &MergePlan,
        span_count: usize,
        disposition: &RemoteDisposition,
        answers: &Mutex<LearnResult>,
    ) -> Result<bool> {
        self.fetch_states(&plan.stored_runs(), &tree.analyzers)?;
        // States that may be large first, so that threads finish together.
        let mut order = tree.analyzers.clone();
        order.sort_by_key(|index| fixed_bytes(self.analyzer(*index)).is_some());
        let learns_groups = self.learn.states.is_some();
        let done = parallel_map(self.turns.count(), order.len(), &|position| {
            // With workers, several lanes merge concurrently.
            let _turn = (!learns_groups).then(|| self.turns.acquire());
            self.conclude_analyzer(order[position], plan, span_count, disposition, answers)
        })?;
        Ok(done.into_iter().all(|whole| whole))
    }

    fn conclude_analyzer(
        &self,
        index: usize,
        plan: &MergePlan,
        span_count: usize,
        disposition: &RemoteDisposition,
        answers: &Mutex<LearnResult>,
    ) -> Result<bool> {
        let learn = self.learn;
        let analyzer_id = self.run.lane.asks[index];
        if disposition.answered.contains(&index) {
            learn.hear(analyzer_id, &self.run.scratches[index], answers)?;
            return Ok(true);
        }
        let state = if disposition.divided.contains(&index) {
            self.load_merged_shares(index, &plan.sources, span_count)
        } else if learn.states.is_some() {
            self.state_merged_by_threads(index, &plan.sources)
        } else {
            self.merged_state(index, &plan.sources, None)
        };
        let Some(state) = state.map_err(|fault| learn.place(fault, analyzer_id))? else {
            return Ok(false);
        };
        learn.conclude(analyzer_id, state, !self.is_history, answers)?;
        Ok(true)
    }

    /// Merges the states of a lane of groups, some of which were not committed; false if a committed one is corrupt.
    pub(super) fn conclude_unkept(
        &self,
        plan: &MergePlan,
        unkept: Vec<PieceStates>,
        answers: &Mutex<LearnResult>,
    ) -> Result<bool> {
        let mut runs = plan.lowest_runs();
        runs.retain(|run| !unkept.iter().any(|states| states.overlaps(run)));
        let all_analyzers: Vec<usize> = (0..self.shapes.len()).collect();
        self.fetch_states(&runs, &all_analyzers)?;
        let committed = runs.into_iter().map(|tasks| PieceStates {
            tasks,
            states: BTreeMap::new(),
        });
        let mut pieces: Vec<PieceStates> = committed.chain(unkept).collect();
        pieces.sort_by_key(|states| states.tasks.start);
        for (index, analyzer_id) in self.run.lane.asks.iter().enumerate() {
            let states = pieces
                .iter_mut()
                .map(|piece| match piece.states.remove(&index) {
                    Some(state) => Ok(Some(state)),
                    None => self.stored_state(index, &piece.tasks, None),
                });
            let Some(state) = merge_pairwise(self.analyzer(index), states)? else {
                return Ok(false);
            };
            let learn = self.learn;
            learn.conclude(*analyzer_id, state, !self.is_history, answers)?;
        }
        Ok(true)
    }

    /// The state of the only analyzer of a lane over consecutive sources; threads merge neighbours
    /// in parallel.
    fn state_merged_by_threads(
        &self,
        index: usize,
        sources: &[StateSource],
    ) -> Result<Option<AnyState>> {
        let parts = self.turns.count().min(sources.len()).max(1);
        let start = |part: usize| part * sources.len() / parts;
        let merged = parallel_map(parts, parts, &|part| {
            let _turn = self.turns.acquire();
            self.merged_state(index, &sources[start(part)..start(part + 1)], None)
        })?;
        merge_pairwise(self.analyzer(index), merged.into_iter().map(Ok))
    }

    /// Merges the sources of a run of spans and commits the state.
    fn commit_merged_run(
        &self,
        index: usize,
        tasks: &Range<usize>,
        sources: &[StateSource],
        share: Option<usize>,
    ) -> Result<Option<AnyState>> {
        let LearnPass { store, scratch, .. } = *self.learn;
        let analyzer = self.analyzer(index);
        let Some(mut state) = self.merged_state(index, sources, share)? else {
            return Ok(None);
        };
        let id = self.state_id(index, tasks);
        match share {
            Some(share) => store.put_partial_share(id, share, analyzer, &mut state, scratch)?,
            None => store.put_partial(id, analyzer, &mut state, scratch, self.is_history)?,
        }
        Ok(Some(state))
    }

    /// Merges the sources of a run of spans and commits the state in shares.
    fn commit_in_shares(
        &self,
        index: usize,
        tasks: &Range<usize>,
        sources: &[StateSource],
    ) -> Result<()> {
        let LearnPass { store, scratch, .. } = *self.learn;
        let Some(mut state) = self.merged_state(index, sources, None)? else {
            return Ok(());
        };
        let id = self.state_id(index, tasks);
        store.put_partial_shares(id, self.analyzer(index), &mut state, scratch)?;
        Ok(())
    }

    /// The state of an analyzer over consecutive sources, or one share of it; `None` if one of them is corrupt.
    fn merged_state(
        &self,
        index: usize,
        sources: &[StateSource],
        share: Option<usize>,
    ) -> Result<Option<AnyState>> {
        let analyzer = self.analyzer(index);
        // A share is small, so that the request that fetches it takes the time.
        let at_once = if share.is_some() { SHARES_AT_ONCE } else { 1 };
        let mut merged: Option<AnyState> = None;
        for group in sources.chunk_by(|previous, next| is_stored(previous) && is_stored(next)) {
            for group in group.chunks(at_once) {
                let states = parallel_map(group.len(), group.len(), &|position| {
                    self.source_state(index, &group[position], share)
                })?;
                for state in states {
                    let Some(state) = state else { return Ok(None) };
                    match &mut merged {
                        None => merged = Some(state),
                        Some(merged) => analyzer.merge(merged, state)?,
                    }
                }
            }
        }
        match merged {
            Some(merged) => Ok(Some(merged)),
            None => self.zero(index).map(Some),
        }
    }

    /// The state of an analyzer over a source, or one share of it; `None` if it is corrupt.
    fn source_state(
        &self,
        index: usize,
        source: &StateSource,
        share: Option<usize>,
    ) -> Result<Option<AnyState>> {
        match source {
            StateSource::Kept(tasks) | StateSource::Read(tasks) => {
                self.stored_state(index, tasks, share)
            }
            StateSource::Merged {
                tasks,
                kept: kept_by_analyzer,
                of,
            } => {
                if kept_by_analyzer[index]
                    && let Some(state) = self.stored_state(index, tasks, share)?
                {
                    return Ok(Some(state));
                }
                self.commit_merged_run(index, tasks, of, share)
            }
        }
    }

    fn stored_state(
        &self,
        index: usize,
        tasks: &Range<usize>,
        share: Option<usize>,
    ) -> Result<Option<AnyState>> {
        let store = self.learn.store;
        let analyzer = self.analyzer(index);
        let scratch = &self.run.scratches[index];
        let id = self.state_id(index, tasks);
        match share {
            Some(share) => store.get_partial_share(id, share, analyzer, scratch),
            None => store.get_partial(id, analyzer, scratch),
        }
    }
}

/// True if the sources are one run of all spans. Its state is merged of others and committed.
fn is_merged_run(sources: &[StateSource]) -> bool {
    matches!(sources, [StateSource::Merged { .. }])
}

fn is_stored(source: &StateSource) -> bool {
    !matches!(source, StateSource::Merged { .. })
}
