//! Fused learning: analyzers read the rows that a pass writes to a sink. A daily run rewrites some
//! spans and learns from the same spans. Where the written columns need none of the pending
//! findings, the rows are read and pass through windows once for both. The states are committed
//! under the ids by which the learning pass looks them up.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use forebay_commit::Shard;
use forebay_model::{AnalyzerInput, AnyState, Result};
use forebay_plan::{AnalyzerId, ColumnScan, ColumnTap, RowCounts, SinkWork, fuse_learn_into_write};
use forebay_threads::lock;

use crate::fused_coverage::{FinalizeLanesFn, FusedCoverage};
use crate::incremental_learn::IncrementalLane;
use crate::span_index::WorkUnit;
use crate::write_pass::{PreparedChains, WritePass, has_files};

/// Receives the written shards, complete and in order, while lanes are finalized.
pub type LinkShardsFn<'a> = &'a (dyn Fn(Vec<Shard>) -> Result<()> + Sync);

/// Lanes with pending analyzers, and the hooks that run when everything is learned and when everything is written.
pub struct FusionRequest<'a, 'l> {
    pub lanes: &'l [&'a IncrementalLane<'a>],
    pub finalize: FinalizeLanesFn<'a>,
    pub link: LinkShardsFn<'a>,
}

/// Analyzers that read the rows that a pass writes to a sink.
pub struct FusedLearner<'a> {
    /// Each analyzer, as its lane and its index in that lane.
    questions: Vec<(&'a IncrementalLane<'a>, usize)>,
    /// For each analyzer, true if it has no state for the work unit, by the unit's first span.
    lacking: BTreeMap<usize, Vec<bool>>,
    /// The scan for the sink and the analyzers.
    pub(crate) scan: ColumnScan,
    learned: Mutex<FusedCoverage>,
    finalize: FinalizeLanesFn<'a>,
    link: LinkShardsFn<'a>,
}

impl<'a> FusedLearner<'a> {
    /// The analyzers without a state for one of the units; `None` if there are none.
    pub(crate) fn new(
        write: &WritePass<'_>,
        work: &SinkWork,
        request: &FusionRequest<'a, '_>,
        parts: &[&WorkUnit],
    ) -> Result<Option<FusedLearner<'a>>> {
        let lanes = request.lanes;
        let lane_indices = lanes
            .iter()
            .flat_map(|lane| (0..lane.asks().len()).map(|index| (*lane, index)));
        let lane_indices: Vec<(&'a IncrementalLane<'a>, usize)> = lane_indices.collect();
        let mut lacking: BTreeMap<usize, Vec<bool>> = BTreeMap::new();
        for part in parts {
            for lane in lanes {
                lacking
                    .entry(part.tasks.start)
                    .or_default()
                    .extend(lane.missing_states(&part.tasks, false)?);
            }
        }
        let analyzers: Vec<AnalyzerId> =
            lanes.iter().flat_map(|lane| lane.asks()).copied().collect();
        let is_open = |index: &usize| lacking.values().any(|lacking| lacking[*index]);
        let open = (0..analyzers.len())
            .filter(is_open)
            .map(|index| analyzers[index]);
        let Some(scan) = fuse_learn_into_write(&write.context.program.bound, work, open) else {
            return Ok(None);
        };
        let taps = scan.streams.iter().flat_map(|stream| &stream.taps);
        let tapped: Vec<usize> = taps
            .filter_map(|(tap, _)| analyzers.iter().position(|analyzer| analyzer == tap))
            .collect();
        let questions = tapped.iter().map(|index| lane_indices[*index]).collect();
        let of_taken = |lacking: Vec<bool>| tapped.iter().map(|index| lacking[*index]).collect();
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
    pub(crate) fn prepare(
        &self,
        write: &WritePass<'_>,
        work: &SinkWork,
        alone: &PreparedChains,
    ) -> Result<Option<PreparedChains>> {
        let op_count = work
            .scans
            .first()
            .and_then(|scan| scan.streams.first())
            .map_or(0, |stream_slice| stream_slice.stream.ops.len());
        let mut wants = vec![ColumnTap {
            after: op_count,
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
        let fused_chains = PreparedChains::new(vec![chain], wants.swap_remove(0))?;
        let windows = |prepared: &PreparedChains| {
            let windows = prepared.chains().iter().flat_map(|chain| chain.windows());
            windows
                .map(|window| (window.op, window.row_order, window.plan.clone()))
                .collect::<Vec<_>>()
        };
        Ok((windows(&fused_chains) == windows(alone)).then_some(fused_chains))
    }

    /// For each analyzer, true if it has no state for a unit.
    pub fn missing_states(&self, tasks: &Range<usize>) -> &[bool] {
        self.lacking.get(&tasks.start).map_or(&[], Vec::as_slice)
    }

    /// The states to update for a unit: a zero state for each analyzer that needs one.
    pub fn begin_states(&self, tasks: &Range<usize>) -> Result<Vec<Option<AnyState>>> {
        let begin = |((lane, index), lacks): (&(&IncrementalLane<'_>, usize), &bool)| {
            if *lacks {
                lane.zero(*index).map(Some)
            } else {
                Ok(None)
            }
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
        analyzer: usize,
        input: &AnalyzerInput<'_>,
    ) -> Result<()> {
        let (lane, index) = self.questions[analyzer];
        states[analyzer]
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
