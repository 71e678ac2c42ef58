//! Fused learning: analyzers read the rows on their way to a sink. A nightly run rewrites some spans and learns from
//! the same spans. Where the written columns need none of the pending findings, the rows are read and pass through
//! windows once for both. The states are committed under the ids by which the learning pass looks for them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;

use forebay_commit::Shard;
use forebay_model::{AnalyzerInput, AnyState, Result};
use forebay_plan::{AnalyzerId, ColumnScan, ColumnTap, RowCounts, SinkWork, fuse_learn_into_write};
use forebay_threads::lock;

use crate::incremental_learn::IncrementalLane;
use crate::shard_writer::{ShardContext, has_files};
use crate::span_index::WorkUnit;
use crate::write_pass::{PreparedChains, WritePass, WriteResult};
use crate::write_target::WriteTarget;

/// At most one part in this many of the stored bytes may be new. Otherwise lanes are learned one after another, each
/// with all the memory, and shards are written afterwards.
const NEW_PART_MAX: u64 = 4;

/// Learns what it can of some lanes, then finalizes the lanes.
pub type FusedLearnFn<'a> =
    &'a mut dyn FnMut(&[&IncrementalLane<'_>], FinalizeLanesFn<'_>) -> Result<()>;

/// Finalizes lanes once everything that can be fused was learned.
pub type FinalizeLanesFn<'a> = &'a (dyn Fn(FusedCoverage) -> Result<()> + Sync);

/// Receives the written shards, complete and in order, while lanes are finalized.
pub type LinkShardsFn<'a> = &'a (dyn Fn(Vec<Shard>) -> Result<()> + Sync);

/// Lanes with pending analyzers, and the hooks that run when everything is learned and when everything is written.
pub struct FusionRequest<'a, 'l> {
    pub lanes: &'l [&'a IncrementalLane<'a>],
    pub finalize: FinalizeLanesFn<'a>,
    pub link: LinkShardsFn<'a>,
}

/// What was learned before the pass read anything itself.
#[derive(Default)]
pub struct FusedCoverage {
    /// The spans that were read, by their positions in the timeline.
    pub tasks: BTreeSet<usize>,
    /// The counts of their rows.
    pub counts: RowCounts,
}

/// Analyzers that read the rows on their way to a sink.
pub struct FusedLearner<'a> {
    /// Each with its lane and its index in that lane.
    questions: Vec<(&'a IncrementalLane<'a>, usize)>,
    /// By the first span of a work unit: which analyzers have no state for the unit.
    lacking: BTreeMap<usize, Vec<bool>>,
    /// The scan for the sink and the analyzers.
    scan: ColumnScan,
    learned: Mutex<FusedCoverage>,
    finalize: FinalizeLanesFn<'a>,
    link: LinkShardsFn<'a>,
}

impl<'a> FusedLearner<'a> {
    /// The analyzers without a state for one of the units; `None` if there are none.
    fn new(
        write: &WritePass<'_>,
        work: &SinkWork,
        request: &FusionRequest<'a, '_>,
        parts: &[&WorkUnit],
    ) -> Result<Option<FusedLearner<'a>>> {
        let lanes = request.lanes;
        let places = lanes
            .iter()
            .flat_map(|lane| (0..lane.asks().len()).map(|index| (*lane, index)));
        let places: Vec<(&'a IncrementalLane<'a>, usize)> = places.collect();
        let mut lacking: BTreeMap<usize, Vec<bool>> = BTreeMap::new();
        for part in parts {
            for lane in lanes {
                lacking
                    .entry(part.tasks.start)
                    .or_default()
                    .extend(lane.missing_states(&part.tasks, false)?);
            }
        }
        let asks: Vec<AnalyzerId> = lanes.iter().flat_map(|lane| lane.asks()).copied().collect();
        let is_open = |place: &usize| lacking.values().any(|lacking| lacking[*place]);
        let open = (0..asks.len()).filter(is_open).map(|place| asks[place]);
        let Some(scan) = fuse_learn_into_write(&write.context.program.bound, work, open) else {
            return Ok(None);
        };
        let taps = scan.streams.iter().flat_map(|stream| &stream.taps);
        let taken: Vec<usize> = taps
            .filter_map(|(tap, _)| asks.iter().position(|ask| ask == tap))
            .collect();
        let questions = taken.iter().map(|place| places[*place]).collect();
        let of_taken = |lacking: Vec<bool>| taken.iter().map(|place| lacking[*place]).collect();
        let lacking = lacking
            .into_iter()
            .map(|(start, lacking)| (start, of_taken(lacking)))
            .collect();
        Ok(Some(FusedLearner {
            questions,
            lacking,
            scan,
            learned: Mutex::default(),
            finalize: request.finalize,
            link: request.link,
        }))
    }

    /// The operations of the sink's work and of the analyzers; `None` unless the windows are exactly the sink's own.
    fn prepare(
        &self,
        write: &WritePass<'_>,
        work: &SinkWork,
        alone: &PreparedChains,
    ) -> Result<Option<PreparedChains>> {
        let after = work
            .scans
            .first()
            .and_then(|scan| scan.streams.first())
            .map_or(0, |own| own.stream.ops.len());
        let mut wants = vec![ColumnTap {
            after,
            columns: work.columns.clone(),
            part: work.part.clone(),
            marks_unfound: true,
        }];
        let bound = &write.context.program.bound;
        wants.extend(
            self.scan
                .streams
                .iter()
                .flat_map(|stream| stream.column_taps(bound)),
        );
        let chain = write.chain(&self.scan, &wants)?;
        let both = PreparedChains::new(vec![chain], wants.swap_remove(0))?;
        let windows = |prepared: &PreparedChains| {
            let windows = prepared.chains().iter().flat_map(|chain| chain.windows());
            windows
                .map(|window| (window.op, window.row_order, window.plan.clone()))
                .collect::<Vec<_>>()
        };
        Ok((windows(&both) == windows(alone)).then_some(both))
    }

    /// For each analyzer, whether it has no state for a unit.
    pub fn missing_states(&self, tasks: &Range<usize>) -> &[bool] {
        self.lacking.get(&tasks.start).map_or(&[], Vec::as_slice)
    }

    /// The states to update for a unit: a zero state for each analyzer that needs one.
    pub fn begin_states(&self, tasks: &Range<usize>) -> Result<Vec<Option<AnyState>>> {
        let begin = |((lane, index), lacks): (&(&IncrementalLane<'_>, usize), &bool)| match lacks {
            true => lane.zero(*index).map(Some),
            false => Ok(None),
        };
        self.questions
            .iter()
            .zip(self.missing_states(tasks))
            .map(begin)
            .collect()
    }

    /// Updates the state of an analyzer with some rows.
    pub fn update(
        &self,
        states: &mut [Option<AnyState>],
        question: usize,
        input: &AnalyzerInput<'_>,
    ) -> Result<()> {
        let (lane, index) = self.questions[question];
        states[question]
            .as_mut()
            .map_or(Ok(()), |state| lane.update(index, state, input))
    }

    /// Commits the states of a unit.
    pub fn commit_states(
        &self,
        tasks: &Range<usize>,
        states: Vec<Option<AnyState>>,
        counts: &RowCounts,
    ) -> Result<()> {
        for ((lane, index), mut state) in self.questions.iter().zip(states) {
            state
                .as_mut()
                .map_or(Ok(()), |state| lane.put_unit_state(*index, tasks, state))?;
        }
        // The rows were read once for all lanes.
        self.questions
            .first()
            .map_or(Ok(()), |(lane, _)| lane.commit_unit(tasks))?;
        let mut learned = lock(&self.learned)?;
        learned.tasks.extend(tasks.clone());
        learned.counts.add(counts);
        Ok(())
    }

    /// Finalizes the lanes: all rows of all units were read.
    pub fn finalize_lanes(&self) -> Result<()> {
        let learned = std::mem::take(&mut *lock(&self.learned)?);
        (self.finalize)(learned)
    }

    /// Links the written shards. An output without files gets its schema file later.
    pub fn link_shards(&self, shards: Vec<Shard>) -> Result<()> {
        if has_files(&shards) {
            (self.link)(shards)
        } else {
            Ok(())
        }
    }
}

impl WritePass<'_> {
    /// Writes the new spans of a history and updates the analyzers of some lanes with the same rows. `None` if that
    /// would gain little; then no lane was finalized.
    pub fn write_and_learn(
        &self,
        work: &SinkWork,
        prepared: &PreparedChains,
        target: &WriteTarget<'_>,
        request: &FusionRequest<'_, '_>,
    ) -> Result<Option<WriteResult>> {
        let sequence = self.ordered_scan(&work.scans, prepared);
        let line = sequence.timeline()?;
        // Window state that depends on all rows before has to be checkpointed for each lane.
        if line.needs_all() || !self.context.is_history(&work.scans)? {
            return Ok(None);
        }
        let parts = self.work_units(&sequence, &line, target)?;
        let todo: Vec<&WorkUnit> = parts.iter().filter(|part| part.known.is_none()).collect();
        let bytes: u64 = todo
            .iter()
            .map(|part| line.history.bytes(part.tasks.clone()))
            .sum();
        if bytes > line.history.bytes(0..line.tasks.len()) / NEW_PART_MAX {
            return Ok(None);
        }
        let Some(along) = FusedLearner::new(self, work, request, &todo)? else {
            return Ok(None);
        };
        let Some(prepared) = &along.prepare(self, work, prepared)? else {
            return Ok(None);
        };
        let sequence = self.ordered_scan(std::slice::from_ref(&along.scan), prepared);
        let (sequence, line, layout) = (&sequence, &line, &self.sink.layout());
        let making = ShardContext {
            sequence,
            prepared,
            target,
            line,
            along: Some(&along),
            layout,
        };
        let made = self.write_shards(&making, parts)?;
        self.with_schema_file(made, prepared, target).map(Some)
    }
}
