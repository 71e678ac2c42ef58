//! Learning from what is written. A night writes some days anew, and asks about them: where what it writes needs no
//! answer, its rows are read, and go through windows, once for both. States that are learned so are kept under the
//! names by which the learning pass looks for them.

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

/// One part in so many of a history may be new for it: else lanes are learned one after the other, each with all
/// the memory, and shards written after them.
const NEW_PART_MAX: u64 = 4;

/// Learns what it can of some lanes, and has them answer.
pub(crate) type LearnAlong<'a> = &'a mut dyn FnMut(&[&Partials<'_>], Answer<'_>) -> Result<()>;

/// Has lanes answer when what could be learned is learned.
pub(crate) type Answer<'a> = &'a (dyn Fn(LearnedAlong) -> Result<()> + Sync);

/// Takes what is written, whole and in order, while lanes answer.
pub(crate) type Link<'a> = &'a (dyn Fn(Vec<Shard>) -> Result<()> + Sync);

/// Lanes that ask, and what comes when all is learned and when all is written.
pub(crate) type Asking<'a, 'l> = (&'l [&'a Partials<'a>], Answer<'a>, Link<'a>);

/// What was learned before the pass read anything itself.
#[derive(Default)]
pub(crate) struct LearnedAlong {
    /// The tasks that were read.
    pub tasks: BTreeSet<usize>,
    /// What became of their rows.
    pub counts: RowCounts,
}

/// Questions that are asked of rows on their way to a sink.
pub(crate) struct Along<'a> {
    /// Each with its lane, and its place there.
    questions: Vec<(&'a Partials<'a>, usize)>,
    /// By the first task of a part: which of them lack an answer for it.
    lacking: BTreeMap<usize, Vec<bool>>,
    /// What is read.
    scan: Scan,
    learned: Mutex<LearnedAlong>,
    answer: Answer<'a>,
    link: Link<'a>,
}

impl<'a> Along<'a> {
    /// Those that lack an answer for one of the parts; `None` where there are none.
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

    /// The operations of the sink's work and of the questions, where the windows are the sink's own.
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

    /// Of each question, whether it lacks an answer for a part.
    pub fn lacking(&self, tasks: &Range<usize>) -> &[bool] {
        self.lacking.get(&tasks.start).map_or(&[], Vec::as_slice)
    }

    /// What is known of a part before its rows come: nothing, or enough.
    pub fn begin(&self, tasks: &Range<usize>) -> Result<Vec<Option<AnyState>>> {
        let begin = |((lane, index), lacks): (&(&Partials<'_>, usize), &bool)| match lacks {
            true => lane.zero(*index).map(Some),
            false => Ok(None),
        };
        self.questions.iter().zip(self.lacking(tasks)).map(begin).collect()
    }

    /// Tells a question of some rows.
    pub fn update(&self, states: &mut [Option<AnyState>], question: usize, input: &Input<'_>) -> Result<()> {
        let (lane, index) = self.questions[question];
        states[question].as_mut().map_or(Ok(()), |state| lane.update(index, state, input))
    }

    /// Keeps what was learned of a part.
    pub fn keep(&self, tasks: &Range<usize>, states: Vec<Option<AnyState>>, counts: RowCounts) -> Result<()> {
        for ((lane, index), mut state) in self.questions.iter().zip(states) {
            state.as_mut().map_or(Ok(()), |state| lane.keep(*index, tasks, state))?;
        }
        let mut learned = lock(&self.learned)?;
        learned.tasks.extend(tasks.clone());
        learned.counts.add(counts);
        Ok(())
    }

    /// Has lanes answer: the rows of all parts have come.
    pub fn answer(&self) -> Result<()> {
        let learned = std::mem::take(&mut *lock(&self.learned)?);
        (self.answer)(learned)
    }

    /// Links what is written. What has no files yet gets one when all is made.
    pub fn link(&self, shards: Vec<Shard>) -> Result<()> {
        if has_files(&shards) { (self.link)(shards) } else { Ok(()) }
    }
}

impl Write<'_> {
    /// Writes what is new of a history, and learns from it what lanes ask for; `None` where there is little to be had by
    /// that: then nobody has answered.
    pub fn run_along(
        &self,
        work: &SinkWork,
        prepared: &Prepared,
        target: &Target<'_>,
        asking: Asking<'_, '_>,
    ) -> Result<Option<Made>> {
        let sequence = self.sequence(&work.scans, prepared);
        let line = sequence.line()?;
        // Who may need all rows before them has to be kept what windows remember, for each lane.
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
