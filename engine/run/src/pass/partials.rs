//! Incremental learning from a history: the states of runs of spans are committed, so that unchanged runs are merged
//! and not read again.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use forebay_model::{AnyAnalyzer, AnyState, Id, IdBuilder, Input, Result, caught};
use forebay_plan::{AskId, Carry, ChainWindow, Lane, PassWork, RowCounts, Way, shape};
use forebay_storage::Event;
use forebay_threads::Turns;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::along::LearnedAlong;
use super::away::{Away, Ended, Errands};
use super::history::{History, Part};
use super::learn::{Answers, LaneRun, Learn, fixed_bytes};
use super::order::{Line, Seal, Sequence, Task};
use super::{lock, on_threads};
use crate::commit::{SHARES, divided_bytes_min, merged_in_pairs};
use crate::workers::{Errand, What, Work, strange};

/// A lane whose states are committed by runs of spans.
pub(crate) struct Partials<'a> {
    learn: &'a Learn<'a>,
    run: &'a LaneRun<'a>,
    /// As many permits as there is memory for the lane's states; each merging thread takes one.
    turns: &'a Turns,
    /// For each analyzer, the id of the operations on the rows of a span.
    shapes: Vec<Id>,
    /// The span index of each analyzer. Other analyzers of the lane may reach further back, and may be finished already
    /// when a run resumes.
    seen: Vec<Arc<History>>,
    is_history: bool,
}

/// The outcome of a work unit.
#[derive(Serialize, Deserialize)]
struct Made {
    counts: RowCounts,
    how: Left,
}

/// How a worker left the results of some analyzers; the states of the others are committed whole.
#[derive(Default, Serialize, Deserialize)]
struct Left {
    /// Analyzers whose states were so large that they were stored in shares.
    divided: BTreeSet<usize>,
    /// Analyzers whose findings the worker committed, because it had read all rows.
    answered: BTreeSet<usize>,
}

/// The source of the state of a run of spans.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Piece {
    /// An earlier run committed it.
    Kept(Range<usize>),
    /// The rows of the run are read.
    Read(Range<usize>),
    /// It is merged of others, in order; `kept` marks the analyzers whose merged state is committed.
    Merged { tasks: Range<usize>, kept: Vec<bool>, of: Vec<Piece> },
}

impl Piece {
    /// Whether its ranges and analyzers are within these counts: the value comes from the network.
    fn is_within(&self, tasks: usize, questions: usize) -> bool {
        let among = |range: &Range<usize>| range.start <= range.end && range.end <= tasks;
        match self {
            Piece::Kept(range) | Piece::Read(range) => among(range),
            Piece::Merged { tasks: range, kept, of } => {
                among(range) && kept.len() >= questions && of.iter().all(|piece| piece.is_within(tasks, questions))
            }
        }
    }
}

impl<'a> Partials<'a> {
    /// `None` for a lane that is no history, or whose rows do not depend on its own spans alone.
    pub fn new(learn: &'a Learn<'a>, run: &'a LaneRun<'a>, turns: &'a Turns) -> Result<Option<Self>> {
        let chains = || run.scans.iter().flat_map(|(_, chains)| chains).map(|(chain, _)| chain);
        let mut ways = chains().flat_map(|chain| chain.windows()).map(|window| window.way);
        let is_history = learn.known.is_history(learn.program, &run.lane.scans)?;
        let divides = match learn.crewed.is_some() || learn.on_worker {
            true => ways.all(|way| way != Way::Sorted),
            false => is_history && ways.all(|way| way == Way::Time),
        };
        if !divides {
            return Ok(None);
        }
        let mut shapes = Vec::new();
        for ask in &run.lane.asks {
            match shape_of(learn, *ask)? {
                Some(shape) => shapes.push(shape),
                None => return Ok(None),
            }
        }
        let seen = seen(learn, run)?;
        Ok(Some(Partials { learn, run, turns, shapes, seen, is_history }))
    }

    /// The runs of spans that states are made of. A dataset that is no history is divided for workers alone.
    fn tree(&self, history: &History) -> Vec<Vec<Range<usize>>> {
        if self.is_history {
            return history.tree();
        }
        let (learn, lane) = (self.learn, self.run.lane);
        vec![history.runs(learn.lane_bytes(lane), learn.need(lane).0 as u64)]
    }

    /// The id of what the lane does with the rows of each span.
    fn name(&self) -> Id {
        let mut lane = IdBuilder::new("lane");
        self.shapes.iter().for_each(|shape| {
            lane.id(*shape);
        });
        lane.finish()
    }

    /// Runs a task of a worker.
    pub fn perform(&self, what: &What, errands: &dyn Errands) -> Result<Ended> {
        let (sequence, name) = (self.sequence(), self.name());
        let line = sequence.line()?;
        if let What::Merge { question, share, pieces } = what {
            return self.merge_share(*question, *share, pieces, line.tasks.len());
        }
        let kept_in = (self.learn.store, self.learn.scratch);
        let parts = self.tree(&line.history).first().map_or(1, Vec::len);
        let work = |part: &Part, carry: &mut Carry, stop: &AtomicBool, seal: Seal<'_>| {
            self.read(&line.tasks, part, (carry, seal), (true, parts), stop)
        };
        sequence.perform(&line, (name, name), kept_in, (what, errands), work, (0, &Ok))
    }

    fn sequence(&self) -> Sequence<'a> {
        sequence(self.learn, self.run)
    }

    /// The id of an analyzer's state over some spans.
    fn id(&self, index: usize, tasks: &Range<usize>) -> Id {
        self.seen[index].id(self.shapes[index], tasks.clone())
    }

    /// The ids of all analyzers' states over some spans.
    fn ids(&self, tasks: &Range<usize>) -> impl Iterator<Item = Id> {
        (0..self.shapes.len()).map(move |index| self.id(index, tasks))
    }

    /// The lane's analyzers, in order.
    pub fn asks(&self) -> &'a [AskId] {
        &self.run.lane.asks
    }

    /// An analyzer's state over no rows.
    pub fn zero(&self, index: usize) -> Result<AnyState> {
        self.analyzer(index).zero(&self.run.scratches[index])
    }

    /// Updates an analyzer's state with some rows.
    pub fn update(&self, index: usize, state: &mut AnyState, input: &Input<'_>) -> Result<()> {
        let updated = caught(|| self.analyzer(index).update(state, input));
        updated.map_err(|fault| self.learn.place(fault, self.run.lane.asks[index]))
    }

    /// Commits an analyzer's state over some spans of a history.
    pub fn keep(&self, index: usize, tasks: &Range<usize>, state: &mut AnyState) -> Result<()> {
        let id = self.id(index, tasks);
        let kept_in = (self.learn.scratch, self.is_history);
        let put = self.learn.store.put_partial(id, self.analyzer(index), state, kept_in);
        put.map_err(|fault| self.learn.place(fault, self.run.lane.asks[index]))
    }

    /// How many spans have to be read, and of how many.
    pub fn to_read(&self) -> Result<(usize, usize)> {
        let line = self.sequence().line()?;
        let mut todo = Vec::new();
        self.pieces(&self.tree(&line.history))?.iter().for_each(|piece| reads(piece, &mut todo));
        Ok((todo.iter().map(Range::len).sum(), line.tasks.len()))
    }

    /// Learns the lane. `along` holds what the pass has learned already.
    pub fn run(&self, answers: &Mutex<Answers>, along: &LearnedAlong) -> Result<()> {
        let sequence = self.sequence();
        let line = sequence.line()?;
        // A committed state may turn out to be corrupt; it is then removed, and the next attempt reads the rows.
        while !self.attempt(&sequence, &line, answers, along)? {}
        Ok(())
    }

    /// Returns false if a committed state cannot be read.
    fn attempt(
        &self,
        sequence: &Sequence<'_>,
        line: &Line,
        answers: &Mutex<Answers>,
        along: &LearnedAlong,
    ) -> Result<bool> {
        let Line { tasks, history, .. } = line;
        let tree = self.tree(history);
        let pieces = self.pieces(&tree)?;
        let mut todo = Vec::new();
        pieces.iter().for_each(|piece| reads(piece, &mut todo));
        let lane = self.name();
        let is_first = todo.iter().map(Range::len).sum::<usize>() == tasks.len();
        let all = history.bytes(0..tasks.len()).max(1);
        let share = self.learn.lane_bytes(self.run.lane) as f64 / all as f64;
        let part_bytes: u64 = todo.iter().map(|tasks| history.bytes(tasks.clone())).sum();
        let told = |bytes: u64| (bytes as f64 * share) as u64;
        self.learn.watch.event(Event::PassReads { bytes: told(part_bytes), of: told(all) });
        let part = |tasks: Range<usize>| Part::new(tasks.clone(), history.id(lane, tasks));
        let todo: Vec<Part> = todo.into_iter().map(part).collect();
        let kept_in = (self.learn.store, self.learn.scratch);
        let place = |pass: usize| match &self.learn.program.passes.get(pass)?.work {
            PassWork::Learn(work) => work.lanes.iter().position(|lane| lane.asks == self.run.lane.asks),
            _ => None,
        };
        let away = self.learn.crewed.and_then(|crewed| {
            let work = Work::Learn { pass: crewed.pass, lane: place(crewed.pass)? };
            Some(Away { share, ..crewed.away(work, self.learn.watch) })
        });
        let by = (self.turns.count(), away.as_ref());
        let done = sequence.each_part(line, lane, kept_in, &todo, by, |part, carry, stop, seal| {
            self.read(tasks, part, (carry, seal), (is_first, todo.len()), stop)
        })?;
        let mut left = Left::default();
        for made in done.parts.values() {
            let made: &Made = made;
            left.divided.extend(&made.how.divided);
            left.answered.extend(&made.how.answered);
        }
        if let Some(away) = &away {
            self.merge_away(&pieces, &left.divided, away)?;
        }
        if !self.merge_all((&pieces, tasks.len()), &left, answers)? {
            return Ok(false);
        }
        // The ids of the states of all runs are retained for later runs; a dataset that is no history has none.
        let runs = tree.iter().flatten().filter(|_| self.is_history);
        let named: Vec<Id> = runs.flat_map(|run| self.ids(run)).collect();
        let read_here = todo.iter().flat_map(|part| part.tasks.clone());
        let read: BTreeSet<usize> = read_here.chain(along.tasks.iter().copied()).collect();
        let read: u64 = read.into_iter().map(|task| history.rows(task..task + 1)).sum();
        let kept = history.rows(0..tasks.len()) - read;
        // Rows that were read twice count once.
        let mut sum = if todo.is_empty() { along.counts } else { RowCounts::default() };
        done.parts.into_values().for_each(|made| sum.add(made.counts));
        sum.input = kept + read;
        let mut answers = lock(answers)?;
        answers.count(sum, kept);
        answers.kept.carries.extend(done.carry);
        answers.kept.partials.extend(named);
        Ok(true)
    }

    /// The sources of the state of all rows.
    fn pieces(&self, tree: &[Vec<Range<usize>>]) -> Result<Vec<Piece>> {
        let top = tree.last().into_iter().flatten();
        top.map(|run| self.piece(tree, tree.len() - 1, run)).collect()
    }

    /// For which analyzers a run of spans has to be read. A changed span changes the window outputs of the spans after
    /// it, and no other results of those spans.
    pub fn wanted(&self, tasks: &Range<usize>, all: bool) -> Result<Vec<bool>> {
        if all {
            return Ok(vec![true; self.shapes.len()]);
        }
        Ok(self.kept(tasks)?.into_iter().map(|kept| !kept).collect())
    }

    /// For which analyzers the state of a run of spans is committed.
    fn kept(&self, tasks: &Range<usize>) -> Result<Vec<bool>> {
        self.learn.store.has_partials(self.ids(tasks))
    }

    fn is_kept(&self, tasks: &Range<usize>) -> Result<bool> {
        Ok(self.kept(tasks)?.into_iter().all(|kept| kept))
    }

    /// The source of the state of a run at a level of the tree.
    fn piece(&self, tree: &[Vec<Range<usize>>], level: usize, run: &Range<usize>) -> Result<Piece> {
        let kept = self.kept(run)?;
        if kept.iter().all(|kept| *kept) {
            return Ok(Piece::Kept(run.clone()));
        }
        let Some(below) = level.checked_sub(1) else {
            if !self.is_history {
                return Ok(Piece::Read(run.clone()));
            }
            // The run may have been shorter in an earlier run.
            for end in (run.start + 1..run.end).rev() {
                if self.is_kept(&(run.start..end))? {
                    // A killed run may have committed the rest.
                    let rest = end..run.end;
                    let rest = if self.is_kept(&rest)? { Piece::Kept(rest) } else { Piece::Read(rest) };
                    return Ok(Piece::Merged { tasks: run.clone(), kept, of: vec![Piece::Kept(run.start..end), rest] });
                }
            }
            return Ok(Piece::Read(run.clone()));
        };
        let runs = tree[below].iter().filter(|part| run.start <= part.start && part.end <= run.end);
        let mut of = runs.map(|part| self.piece(tree, below, part)).collect::<Result<Vec<_>>>()?;
        // A run with a single child has the child's id and state.
        Ok(if of.len() == 1 { of.remove(0) } else { Piece::Merged { tasks: run.clone(), kept, of } })
    }

    /// Reads the rows of a unit, one of `parts`, and commits its states; `None` if the pass was stopped. With `all`, no
    /// unit has a committed state.
    fn read(
        &self,
        tasks: &[Task],
        part: &Part,
        (carry, seal): (&mut Carry, Seal<'_>),
        (all, parts): (bool, usize),
        stop: &AtomicBool,
    ) -> Result<Option<Made>> {
        let learn = self.learn;
        let wanted = self.wanted(&part.tasks, all)?;
        let mut states = learn.zero(self.run)?;
        let mut counts = RowCounts::default();
        for tasks in tasks[part.tasks.clone()].chunk_by(|task, next| task.scan == next.scan) {
            let asked = (&mut states[..], &(|place| wanted[place]) as &dyn Fn(usize) -> bool);
            if !learn.spans(self.run, tasks, (carry, stop), asked, &mut counts)? {
                return Ok(None);
            }
        }
        seal(carry)?;
        let is_large = |bytes: u64| bytes.saturating_mul(parts as u64) >= divided_bytes_min();
        let is_all = !self.is_history && part.tasks.len() == tasks.len();
        let mut how = Left::default();
        let learned = self.ids(&part.tasks).enumerate().zip(states);
        for ((index, id), mut state) in learned.filter(|((index, _), _)| wanted[*index]) {
            let (analyzer, ask) = (self.analyzer(index), self.run.lane.asks[index]);
            if learn.on_worker && is_all {
                learn.find(ask, (state, true))?;
                how.answered.insert(index);
            } else if learn.on_worker && analyzer.divisible_bytes(&state).is_some_and(is_large) {
                let put = learn.store.put_divided(id, analyzer, &mut state, learn.scratch);
                put.map_err(|fault| learn.place(fault, ask))?;
                how.divided.insert(index);
            } else {
                self.keep(index, &part.tasks, &mut state)?;
            }
        }
        Ok(Some(Made { counts, how }))
    }

    fn analyzer(&self, index: usize) -> &'a dyn AnyAnalyzer {
        self.learn.program.bound.asks[self.run.lane.asks[index]].ask.analyzer.as_ref()
    }

    /// Merges large states on workers, with a task for each share.
    fn merge_away(&self, pieces: &[Piece], divided: &BTreeSet<usize>, away: &Away<'_>) -> Result<()> {
        let learn = self.learn;
        let shares = divided.iter().flat_map(|question| (0..SHARES).map(|share| (*question, share)));
        let errands = shares.map(|(question, share)| Errand {
            cost: 1,
            after: None,
            what: What::Merge { question, share, pieces: pieces.to_vec() },
        });
        let errands: Vec<Errand> = errands.collect();
        let done = away.have_done(&away.common(learn.known), errands, learn.known, &mut |_| Ok(()));
        done.map_err(|failure| failure.fault)?;
        for question in divided {
            let mut merged = Vec::new();
            pieces.iter().for_each(|piece| merges(piece, *question, &mut merged));
            merged.iter().try_for_each(|tasks| learn.store.seal_shares(self.id(*question, tasks), learn.scratch))?;
        }
        Ok(())
    }

    /// Merges a share of an analyzer's state over all spans, on a worker. If a committed state is corrupt, nothing is
    /// written: the coordinator notices.
    fn merge_share(&self, index: usize, share: usize, pieces: &[Piece], tasks: usize) -> Result<Ended> {
        if index >= self.shapes.len() || !pieces.iter().all(|piece| piece.is_within(tasks, self.shapes.len())) {
            return Err(strange());
        }
        let (learn, analyzer) = (self.learn, self.analyzer(index));
        if let Some(mut state) = self.merge(index, pieces, Some(share))? {
            let id = self.id(index, &(0..tasks));
            learn
                .store
                .put_exchanged(id, &share.to_string(), learn.scratch, &mut |out| analyzer.encode(&mut state, out))?;
        }
        Ok(Ended::Done(0))
    }

    /// The state of an analyzer that workers merged; `None` if a share is missing.
    fn merged_away(&self, index: usize, tasks: usize) -> Result<Option<AnyState>> {
        let (learn, analyzer, scratch) = (self.learn, self.analyzer(index), &self.run.scratches[index]);
        let id = self.id(index, &(0..tasks));
        lock(&learn.known.shared)?.push(id);
        let read =
            |share: usize| learn.store.get_exchanged(id, &share.to_string(), |input| analyzer.decode(input, scratch));
        merged_in_pairs(analyzer, (0..SHARES).map(read))
    }

    /// Merges the states of all sources, with a thread for each analyzer.
    fn merge_all(&self, (pieces, tasks): (&[Piece], usize), left: &Left, answers: &Mutex<Answers>) -> Result<bool> {
        let asks = &self.run.lane.asks;
        // States that may be large first, so that threads finish together.
        let mut order: Vec<usize> = (0..asks.len()).collect();
        order.sort_by_key(|index| fixed_bytes(self.analyzer(*index)).is_some());
        let done = on_threads(self.turns.count(), asks.len(), &|place| {
            let index = order[place];
            // With workers, several lanes merge concurrently.
            let _turn = self.turns.take();
            if left.answered.contains(&index) {
                return self.learn.hear(asks[index], &self.run.scratches[index], answers).map(|()| true);
            }
            let state = match left.divided.contains(&index) {
                true => self.merged_away(index, tasks),
                false => self.merge(index, pieces, None),
            };
            match state.map_err(|fault| self.learn.place(fault, asks[index]))? {
                Some(state) => self.learn.conclude(asks[index], (state, !self.is_history), answers).map(|()| true),
                None => Ok(false),
            }
        })?;
        Ok(done.into_iter().all(|whole| whole))
    }

    /// Merges the sources of a run of spans and commits the state.
    fn merge_run(
        &self,
        index: usize,
        tasks: &Range<usize>,
        (pieces, share): (&[Piece], Option<usize>),
    ) -> Result<Option<AnyState>> {
        let (learn, analyzer) = (self.learn, self.analyzer(index));
        let Some(mut state) = self.merge(index, pieces, share)? else { return Ok(None) };
        let id = self.id(index, tasks);
        match share {
            Some(share) => learn.store.put_share((id, share), analyzer, &mut state, learn.scratch)?,
            None => learn.store.put_partial(id, analyzer, &mut state, (learn.scratch, self.is_history))?,
        }
        Ok(Some(state))
    }

    /// The state of an analyzer over consecutive sources, or one share of it; `None` if one of them is corrupt.
    fn merge(&self, index: usize, pieces: &[Piece], share: Option<usize>) -> Result<Option<AnyState>> {
        let (learn, analyzer, scratch) = (self.learn, self.analyzer(index), &self.run.scratches[index]);
        let mut merged: Option<AnyState> = None;
        for piece in pieces {
            let kept = |tasks| {
                let id = self.id(index, tasks);
                match share {
                    Some(share) => learn.store.get_share((id, share), analyzer, scratch),
                    None => learn.store.get_partial(id, analyzer, scratch),
                }
            };
            let state = match piece {
                Piece::Kept(tasks) | Piece::Read(tasks) => kept(tasks)?,
                Piece::Merged { tasks, kept: is_kept, of } => {
                    let known = if is_kept[index] { kept(tasks)? } else { None };
                    match known {
                        Some(state) => Some(state),
                        None => self.merge_run(index, tasks, (of, share))?,
                    }
                }
            };
            let Some(state) = state else { return Ok(None) };
            match &mut merged {
                None => merged = Some(state),
                Some(merged) => analyzer.merge(merged, state)?,
            }
        }
        match merged {
            Some(merged) => Ok(Some(merged)),
            None => analyzer.zero(scratch).map(Some),
        }
    }
}

fn sequence<'a>(learn: &'a Learn<'a>, run: &'a LaneRun<'a>) -> Sequence<'a> {
    Sequence {
        io: learn.io,
        program: learn.program,
        known: learn.known,
        memory: learn.memory,
        batch_rows: learn.batch_rows,
        threads: learn.threads,
        scans: &run.lane.scans,
        chains: run.scans.iter().flat_map(|(_, chains)| chains.first()).map(|(chain, _)| chain).collect(),
        narrow: Vec::new(),
        written: Vec::new(),
        computing: 1.0,
    }
}

/// The span index of each analyzer of a lane.
fn seen(learn: &Learn<'_>, run: &LaneRun<'_>) -> Result<Vec<Arc<History>>> {
    let bases = |lane: &Lane| lane.scans.iter().map(|scan| scan.base).collect::<Vec<_>>();
    // Windows over the same series are merged into one, which has the id of the first and reaches as far as all of
    // them.
    let reach = |window: &ChainWindow| (window.op, window.plan.as_ref().map(|plan| plan.reach()));
    let mut by_windows: Vec<(Vec<_>, Arc<History>)> = Vec::new();
    let mut seen = Vec::new();
    for ask in &run.lane.asks {
        let alone = Lane { asks: vec![*ask], scans: learn.program.scans_for(*ask), ..run.lane.clone() };
        let lane = if bases(&alone) == bases(run.lane) { &alone } else { run.lane };
        let run = learn.prepare(lane, 0)?;
        let sequence = sequence(learn, &run);
        let windows = sequence
            .chains
            .iter()
            .zip(&lane.scans)
            .map(|(chain, scan)| (scan.streams.len(), chain.windows().iter().map(reach).collect::<Vec<_>>()));
        let windows: Vec<_> = windows.collect();
        seen.push(match by_windows.iter().find(|(known, _)| *known == windows) {
            Some((_, history)) => history.clone(),
            None => {
                let history = Arc::new(sequence.line()?.history);
                by_windows.push((windows, history.clone()));
                history
            }
        });
    }
    Ok(seen)
}

/// The id of what an analyzer does with the rows of a span; `None` if other rows take part.
fn shape_of(learn: &Learn<'_>, ask: AskId) -> Result<Option<Id>> {
    let bound = &learn.program.bound;
    let question = &bound.asks[ask];
    let analyzer = &question.ask.analyzer;
    let mut id = IdBuilder::new("partial");
    id.text(analyzer.kind()).json(&json!([analyzer.version(), analyzer.config(), question.ask.inputs, question.part]));
    for scan in learn.program.scans_for(ask) {
        match shape(bound, learn.pipeline, &scan, &|ask| learn.known.digest(learn.program, ask))? {
            Some(shape) => id.id(shape),
            None => return Ok(None),
        };
    }
    Ok(Some(id.finish()))
}

/// Collects the runs whose states are merged of others for an analyzer.
fn merges(piece: &Piece, question: usize, into: &mut Vec<Range<usize>>) {
    match piece {
        Piece::Merged { tasks, kept, of } if !kept[question] => {
            of.iter().for_each(|piece| merges(piece, question, into));
            into.push(tasks.clone());
        }
        _ => {}
    }
}

fn reads(piece: &Piece, into: &mut Vec<Range<usize>>) {
    match piece {
        Piece::Kept(_) => {}
        Piece::Read(tasks) => into.push(tasks.clone()),
        Piece::Merged { of, .. } => of.iter().for_each(|piece| reads(piece, into)),
    }
}
