//! Fused learning: analyzers read the rows on their way to a sink. A nightly run rewrites some spans and learns from
//! the same spans. Where the written columns need none of the pending findings, the rows are read and pass through
//! windows once for both. The states are committed under the ids by which the learning pass looks for them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;

use forebay_model::{AnyState, Input, Result};
use forebay_plan::{AskId, RowCounts, Scan, SinkWork, Want, asked_along};

use super::history::Part;
use super::lock;
use super::partials::Partials;
use super::shards::{Making, has_files};
use super::target::Target;
use super::write::{Made, Prepared, Write};
use crate::output::Shard;

/// At most one part in this many of the stored bytes may be new. Otherwise lanes are learned one after another, each
/// with all the memory, and shards are written afterwards.
const NEW_PART_MAX: u64 = 4;

/// Learns what it can of some lanes, then finalizes the lanes.
pub(crate) type LearnAlong<'a> = &'a mut dyn FnMut(&[&Partials<'_>], Answer<'_>) -> Result<()>;

/// Finalizes lanes once everything that can be fused was learned.
pub(crate) type Answer<'a> = &'a (dyn Fn(LearnedAlong) -> Result<()> + Sync);

/// Receives the written shards, complete and in order, while lanes are finalized.
pub(crate) type Link<'a> = &'a (dyn Fn(Vec<Shard>) -> Result<()> + Sync);

/// Lanes with pending analyzers, and the hooks that run when everything is learned and when everything is written.
pub(crate) type Asking<'a, 'l> = (&'l [&'a Partials<'a>], Answer<'a>, Link<'a>);

/// What was learned before the pass read anything itself.
#[derive(Default)]
pub(crate) struct LearnedAlong {
    /// The spans that were read, by their positions in the timeline.
    pub tasks: BTreeSet<usize>,
    /// The counts of their rows.
    pub counts: RowCounts,
}

/// Analyzers that read the rows on their way to a sink.
pub(crate) struct Along<'a> {
    /// Each with its lane and its index in that lane.
    questions: Vec<(&'a Partials<'a>, usize)>,
    /// By the first span of a work unit: which analyzers have no state for the unit.
    lacking: BTreeMap<usize, Vec<bool>>,
    /// The scan for the sink and the analyzers.
    scan: Scan,
    learned: Mutex<LearnedAlong>,
    answer: Answer<'a>,
    link: Link<'a>,
}

impl<'a> Along<'a> {
    /// The analyzers without a state for one of the units; `None` if there are none.
    fn new(
        write: &Write<'_>,
        work: &SinkWork,
        (lanes, answer, link): Asking<'a, '_>,
        parts: &[&Part],
    ) -> Result<Option<Along<'a>>> {
        let places = lanes.iter().flat_map(|lane| (0..lane.asks().len()).map(|index| (*lane, index)));
        let places: Vec<(&'a Partials<'a>, usize)> = places.collect();
        let mut lacking: BTreeMap<usize, Vec<bool>> = BTreeMap::new();
        for part in parts {
            for lane in lanes {
                lacking.entry(part.tasks.start).or_default().extend(lane.wanted(&part.tasks, false)?);
            }
        }
        let asks: Vec<AskId> = lanes.iter().flat_map(|lane| lane.asks()).copied().collect();
        let is_open = |place: &usize| lacking.values().any(|lacking| lacking[*place]);
        let open = (0..asks.len()).filter(is_open).map(|place| asks[place]);
        let Some(scan) = asked_along(&write.program.bound, work, open) else { return Ok(None) };
        let taps = scan.streams.iter().flat_map(|stream| &stream.taps);
        let taken: Vec<usize> = taps.filter_map(|(tap, _)| asks.iter().position(|ask| ask == tap)).collect();
        let questions = taken.iter().map(|place| places[*place]).collect();
        let of_taken = |lacking: Vec<bool>| taken.iter().map(|place| lacking[*place]).collect();
        let lacking = lacking.into_iter().map(|(start, lacking)| (start, of_taken(lacking))).collect();
        Ok(Some(Along { questions, lacking, scan, learned: Mutex::default(), answer, link }))
    }

    /// The operations of the sink's work and of the analyzers; `None` unless the windows are exactly the sink's own.
    fn prepare(&self, write: &Write<'_>, work: &SinkWork, alone: &Prepared) -> Result<Option<Prepared>> {
        let after = work.scans.first().and_then(|scan| scan.streams.first()).map_or(0, |own| own.stream.ops.len());
        let mut wants = vec![Want { after, columns: work.columns.clone(), part: work.part.clone() }];
        let bound = &write.program.bound;
        wants.extend(self.scan.streams.iter().flat_map(|stream| stream.wants(bound)));
        let chain = write.chain(&self.scan, &wants)?;
        let both = Prepared::new(vec![chain], wants.swap_remove(0))?;
        let windows = |prepared: &Prepared| {
            let windows = prepared.chains().iter().flat_map(|chain| chain.windows());
            windows.map(|window| (window.op, window.way, window.plan.clone())).collect::<Vec<_>>()
        };
        Ok((windows(&both) == windows(alone)).then_some(both))
    }

    /// For each analyzer, whether it has no state for a unit.
    pub fn lacking(&self, tasks: &Range<usize>) -> &[bool] {
        self.lacking.get(&tasks.start).map_or(&[], Vec::as_slice)
    }

    /// The states to update for a unit: a zero state for each analyzer that needs one.
    pub fn begin(&self, tasks: &Range<usize>) -> Result<Vec<Option<AnyState>>> {
        let begin = |((lane, index), lacks): (&(&Partials<'_>, usize), &bool)| match lacks {
            true => lane.zero(*index).map(Some),
            false => Ok(None),
        };
        self.questions.iter().zip(self.lacking(tasks)).map(begin).collect()
    }

    /// Updates the state of an analyzer with some rows.
    pub fn update(&self, states: &mut [Option<AnyState>], question: usize, input: &Input<'_>) -> Result<()> {
        let (lane, index) = self.questions[question];
        states[question].as_mut().map_or(Ok(()), |state| lane.update(index, state, input))
    }

    /// Commits the states of a unit.
    pub fn keep(&self, tasks: &Range<usize>, states: Vec<Option<AnyState>>, counts: RowCounts) -> Result<()> {
        for ((lane, index), mut state) in self.questions.iter().zip(states) {
            state.as_mut().map_or(Ok(()), |state| lane.keep(*index, tasks, state))?;
        }
        let mut learned = lock(&self.learned)?;
        learned.tasks.extend(tasks.clone());
        learned.counts.add(counts);
        Ok(())
    }

    /// Finalizes the lanes: all rows of all units were read.
    pub fn answer(&self) -> Result<()> {
        let learned = std::mem::take(&mut *lock(&self.learned)?);
        (self.answer)(learned)
    }

    /// Links the written shards. An output without files gets its schema file later.
    pub fn link(&self, shards: Vec<Shard>) -> Result<()> {
        if has_files(&shards) { (self.link)(shards) } else { Ok(()) }
    }
}

impl Write<'_> {
    /// Writes the new spans of a history and updates the analyzers of some lanes with the same rows. `None` if that
    /// would gain little; then no lane was finalized.
    pub fn run_along(
        &self,
        work: &SinkWork,
        prepared: &Prepared,
        target: &Target<'_>,
        asking: Asking<'_, '_>,
    ) -> Result<Option<Made>> {
        let sequence = self.sequence(&work.scans, prepared);
        let line = sequence.line()?;
        // Window state that depends on all rows before has to be checkpointed for each lane.
        if line.needs_all() || !self.known.is_history(self.program, &work.scans)? {
            return Ok(None);
        }
        let parts = self.parts(&sequence, &line, target)?;
        let todo: Vec<&Part> = parts.iter().filter(|part| part.known.is_none()).collect();
        let bytes: u64 = todo.iter().map(|part| line.history.bytes(part.tasks.clone())).sum();
        if bytes > line.history.bytes(0..line.tasks.len()) / NEW_PART_MAX {
            return Ok(None);
        }
        let Some(along) = Along::new(self, work, asking, &todo)? else { return Ok(None) };
        let Some(prepared) = &along.prepare(self, work, prepared)? else { return Ok(None) };
        let mut sequence = self.sequence(std::slice::from_ref(&along.scan), prepared);
        let staying = self.staying(&mut sequence, prepared, (&line, target), (&parts, Some(&along)))?;
        let (sequence, line, layout) = (&sequence, &line, &self.sink.layout());
        let making = Making { sequence, prepared, target, line, along: Some(&along), staying, layout };
        let made = self.in_shards(&making, parts)?;
        self.with_columns(made, prepared, target).map(Some)
    }
}
