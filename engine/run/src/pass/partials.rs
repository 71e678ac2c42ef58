//! Learning from a history: the states of runs of spans are kept, so that what is the same as
//! before is merged and not read again.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use forebay_model::{AnyState, Id, IdBuilder, Result};
use forebay_plan::{AskId, Carry, RowCounts, Way, shape};
use serde_json::json;

use super::history::{History, Part};
use super::learn::{Answers, LaneRun, Learn};
use super::order::{Line, Sequence, Task};
use super::{lock, poisoned};
use crate::events::Event;

/// A lane over a history.
pub(crate) struct Partials<'a> {
    learn: &'a Learn<'a>,
    run: &'a LaneRun<'a>,
    threads: usize,
    /// What each question does with the rows of a span.
    shapes: Vec<Id>,
}

/// Where the state of a run of tasks comes from.
enum Piece {
    /// An earlier run kept it.
    Kept(Range<usize>),
    /// Its rows are read.
    Read(Range<usize>),
    /// It is merged of others, in order.
    Merged(Range<usize>, Vec<Piece>),
}

impl<'a> Partials<'a> {
    /// `None` for a lane that is no history, or whose rows are not told by its own spans alone.
    pub fn new(learn: &'a Learn<'a>, run: &'a LaneRun<'a>, threads: usize) -> Result<Option<Self>> {
        let chains = || run.scans.iter().flat_map(|(_, chains)| chains).map(|(chain, _)| chain);
        let in_time = chains().flat_map(|chain| chain.windows()).all(|window| window.way == Way::Time);
        if !in_time || !learn.known.is_history(learn.program, &run.lane.scans)? {
            return Ok(None);
        }
        let mut shapes = Vec::new();
        for ask in &run.lane.asks {
            match shape_of(learn, *ask)? {
                Some(shape) => shapes.push(shape),
                None => return Ok(None),
            }
        }
        Ok(Some(Partials { learn, run, threads, shapes }))
    }

    fn sequence(&self) -> Sequence<'a> {
        let learn = self.learn;
        Sequence {
            io: learn.io,
            program: learn.program,
            known: learn.known,
            memory: learn.memory,
            batch_rows: learn.batch_rows,
            threads: learn.threads,
            scans: &self.run.lane.scans,
            chains: self.run.scans.iter().flat_map(|(_, chains)| chains.first()).map(|(chain, _)| chain).collect(),
        }
    }

    /// How many spans have to be read, and of how many.
    pub fn to_read(&self) -> Result<(usize, usize)> {
        let line = self.sequence().line()?;
        let mut todo = Vec::new();
        self.pieces(&line.history, &line.history.tree())?.iter().for_each(|piece| reads(piece, &mut todo));
        Ok((todo.iter().map(Range::len).sum(), line.tasks.len()))
    }

    /// Answers the lane's questions.
    pub fn run(&self, answers: &Mutex<Answers>) -> Result<()> {
        let sequence = self.sequence();
        let line = sequence.line()?;
        // What is kept may turn out to be broken; then it is gone, and the next attempt reads.
        while !self.attempt(&sequence, &line, answers)? {}
        Ok(())
    }

    /// Gives false if something that was kept cannot be read.
    fn attempt(&self, sequence: &Sequence<'_>, line: &Line, answers: &Mutex<Answers>) -> Result<bool> {
        let Line { tasks, history, .. } = line;
        let tree = history.tree();
        let pieces = self.pieces(history, &tree)?;
        let mut todo = Vec::new();
        pieces.iter().for_each(|piece| reads(piece, &mut todo));
        let mut lane = IdBuilder::new("lane");
        self.shapes.iter().for_each(|shape| {
            lane.id(*shape);
        });
        let lane = lane.finish();
        let all = history.bytes(0..tasks.len()).max(1);
        let share = self.learn.lane_bytes(self.run.lane) as f64 / all as f64;
        let part_bytes: u64 = todo.iter().map(|tasks| history.bytes(tasks.clone())).sum();
        let told = |bytes: u64| (bytes as f64 * share) as u64;
        self.learn.watch.event(Event::PassReads { bytes: told(part_bytes), of: told(all) });
        let part = |tasks: Range<usize>| Part { id: history.id(lane, tasks.clone()), tasks, known: None };
        let todo: Vec<Part> = todo.into_iter().map(part).collect();
        let kept_in = (self.learn.store, self.learn.scratch);
        let done = sequence.each_part(line, lane, kept_in, &todo, self.threads, |part, carry, stop| {
            self.read(history, tasks, part, carry, stop)
        })?;
        if !self.merge_all(history, &pieces, answers)? {
            return Ok(false);
        }
        let read: u64 = todo.iter().map(|part| history.rows(part.tasks.clone())).sum();
        let kept = history.rows(0..tasks.len()) - read;
        let mut sum = RowCounts::default();
        done.parts.into_values().for_each(|counts| sum.add(counts));
        sum.input += kept;
        let mut answers = lock(answers)?;
        answers.count(sum, kept);
        answers.kept.carries.extend(done.carry);
        for run in tree.iter().flatten() {
            answers.kept.partials.extend(self.shapes.iter().map(|shape| history.id(*shape, run.clone())));
        }
        Ok(true)
    }

    /// Where the state of all rows comes from.
    fn pieces(&self, history: &History, tree: &[Vec<Range<usize>>]) -> Result<Vec<Piece>> {
        let top = tree.last().into_iter().flatten();
        top.map(|run| self.piece(history, tree, tree.len() - 1, run)).collect()
    }

    fn is_kept(&self, history: &History, tasks: &Range<usize>) -> Result<bool> {
        for shape in &self.shapes {
            if !self.learn.store.has_partial(history.id(*shape, tasks.clone()))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Where the state of a run of a level of the tree comes from.
    fn piece(&self, history: &History, tree: &[Vec<Range<usize>>], level: usize, run: &Range<usize>) -> Result<Piece> {
        if self.is_kept(history, run)? {
            return Ok(Piece::Kept(run.clone()));
        }
        let Some(below) = level.checked_sub(1) else {
            // Yesterday the run may have been shorter.
            for end in (run.start + 1..run.end).rev() {
                if self.is_kept(history, &(run.start..end))? {
                    let pieces = vec![Piece::Kept(run.start..end), Piece::Read(end..run.end)];
                    return Ok(Piece::Merged(run.clone(), pieces));
                }
            }
            return Ok(Piece::Read(run.clone()));
        };
        let runs = tree[below].iter().filter(|part| run.start <= part.start && part.end <= run.end);
        let pieces = runs.map(|part| self.piece(history, tree, below, part)).collect::<Result<Vec<_>>>()?;
        Ok(Piece::Merged(run.clone(), pieces))
    }

    /// Reads the rows of a part and keeps its states; `None` when the pass was stopped.
    fn read(
        &self,
        history: &History,
        tasks: &[Task],
        part: &Part,
        carry: &mut Carry,
        stop: &AtomicBool,
    ) -> Result<Option<RowCounts>> {
        let learn = self.learn;
        let mut states = learn.zero(self.run)?;
        let mut counts = RowCounts::default();
        for task in &tasks[part.tasks.clone()] {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            learn.span(self.run, task, carry, &mut states, &mut counts)?;
        }
        for ((ask, shape), state) in self.run.lane.asks.iter().zip(&self.shapes).zip(&mut states) {
            let analyzer = learn.program.bound.asks[*ask].ask.analyzer.as_ref();
            let id = history.id(*shape, part.tasks.clone());
            learn.store.put_partial(id, analyzer, state, learn.scratch).map_err(|fault| learn.place(fault, *ask))?;
        }
        Ok(Some(counts))
    }

    /// Merges the states of all pieces, a question a thread.
    fn merge_all(&self, history: &History, pieces: &[Piece], answers: &Mutex<Answers>) -> Result<bool> {
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut whole = true;
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(ask) = self.run.lane.asks.get(index) else { return Ok(whole) };
                match self.merge(history, index, pieces).map_err(|fault| self.learn.place(fault, *ask))? {
                    Some(state) => self.learn.conclude(*ask, state, answers)?,
                    None => whole = false,
                }
            }
        };
        let done: Vec<Result<bool>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads).map(|_| scope.spawn(worker)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(poisoned()))).collect()
        });
        done.into_iter().try_fold(true, |all, done| Ok(all & done?))
    }

    /// The state of a question over consecutive pieces; `None` where one of them is broken.
    fn merge(&self, history: &History, index: usize, pieces: &[Piece]) -> Result<Option<AnyState>> {
        let learn = self.learn;
        let analyzer = learn.program.bound.asks[self.run.lane.asks[index]].ask.analyzer.as_ref();
        let scratch = &self.run.scratches[index];
        let mut merged: Option<AnyState> = None;
        for piece in pieces {
            let state = match piece {
                Piece::Kept(tasks) | Piece::Read(tasks) => {
                    let id = history.id(self.shapes[index], tasks.clone());
                    learn.store.get_partial(id, analyzer, scratch)?
                }
                Piece::Merged(tasks, pieces) => {
                    let mut state = self.merge(history, index, pieces)?;
                    if let Some(state) = &mut state {
                        let id = history.id(self.shapes[index], tasks.clone());
                        learn.store.put_partial(id, analyzer, state, learn.scratch)?;
                    }
                    state
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

/// Names what a question does with the rows of a span; `None` where other rows take part.
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

fn reads(piece: &Piece, into: &mut Vec<Range<usize>>) {
    match piece {
        Piece::Kept(_) => {}
        Piece::Read(tasks) => into.push(tasks.clone()),
        Piece::Merged(_, pieces) => pieces.iter().for_each(|piece| reads(piece, into)),
    }
}
