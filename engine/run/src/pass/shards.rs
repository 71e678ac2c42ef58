//! Shards of a writing pass over a history: consecutive spans side by side, each shard with files of its own.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use forebay_model::{AnyState, Fault, Id, Input, Result};
use forebay_plan::{Carry, RowCounts};

use super::along::Along;
use super::helpers::{Helpers, Reads};
use super::history::Part;
use super::order::{Done, Going, Line, Seal, Sequence, gaps_message};
use super::target::Target;
use super::write::{Groups, Made, Prepared, Write};
use super::{lock, poisoned};
use crate::Layout;
use crate::events::Event;
use crate::output::{Files, Shard, Written};
use crate::workers::Work;

/// What shards are made with.
pub(crate) struct Making<'a> {
    pub sequence: &'a Sequence<'a>,
    pub prepared: &'a Prepared,
    pub target: &'a Target<'a>,
    pub line: &'a Line,
    /// What is learned of the rows on their way.
    pub along: Option<&'a Along<'a>>,
    pub layout: &'a Layout,
}

/// A shard whose rows are all there; the last of them are not in its files yet.
struct Unfinished<'a> {
    part: Part,
    files: Files<'a>,
    groups: Groups<'a>,
    counts: RowCounts,
    /// What was learned along.
    states: Option<Vec<Option<AnyState>>>,
}

/// A shard, and what tells that all that has to be kept before it is kept.
type Handed<'a> = (Unfinished<'a>, Receiver<()>);

pub(super) fn shard_of(id: Id, spans: Vec<String>, counts: RowCounts, files: Vec<Written>) -> Shard {
    Shard {
        id: id.to_string(),
        spans,
        rows_in: counts.input,
        rows_filtered: counts.filtered,
        rows_expanded: counts.expanded,
        files,
    }
}

impl Write<'_> {
    /// Makes the shards that are not there yet; later runs keep each as long as its spans, and those that its
    /// windows reach, stay what they are.
    pub fn in_shards(&self, making: &Making<'_>, parts: Vec<Part>) -> Result<Made> {
        let Making { sequence, target, line, .. } = making;
        let todo: Vec<Part> = parts.iter().filter(|part| part.known.is_none()).cloned().collect();
        let bytes = todo.iter().map(|part| line.history.bytes(part.tasks.clone())).sum();
        // A pass of its own looks at everything.
        let of = if making.along.is_some() { 0 } else { line.history.bytes(0..line.tasks.len()) };
        self.watch.event(Event::PassReads { bytes, of });
        let away = self.crewed.map(|crewed| crewed.away(Work::Write { pass: crewed.pass }, self.watch));
        let done = away.map(|away| sequence.on_workers(line, target.shape, target.store, &todo, &away));
        let mut done = done.transpose()?.flatten().map_or_else(|| self.on_threads(making, &todo), Ok)?;
        if done.gaps > 0 {
            self.watch.event(Event::Warning { message: gaps_message(done.gaps) });
        }
        let rows_kept = parts.iter().filter_map(|part| part.known.as_ref()).map(|shard| shard.rows_in).sum();
        let mut shard = |part: Part| part.known.or_else(|| done.parts.remove(&part.tasks.start));
        let shards = parts.into_iter().map(|part| shard(part).ok_or_else(|| Fault::internal("a shard was not made")));
        Ok(Made { shards: shards.collect::<Result<_>>()?, rows_kept, carry: done.carry })
    }

    /// Makes shards by threads of this process. A range needs the rows within reach before it, so that few days are
    /// one range: threads that have none read rows ahead, and finish shards.
    fn on_threads(&self, making: &Making<'_>, todo: &[Part]) -> Result<Done<Shard>> {
        let Making { sequence, target, line, .. } = making;
        let ranges = sequence.ranges_here(line, (target.shape, target.store), todo, self.threads)?;
        let failed = AtomicBool::new(false);
        let readings = ranges.iter().map(|range| range.readings(&line.tasks, todo)).collect();
        let idle = self.threads.saturating_sub(ranges.len());
        // Threads without a range hold no rows of their own.
        let ahead_bytes = self.memory.rows_bytes() / self.threads.max(1) * idle / ranges.len().max(1);
        let helpers: Helpers<'_, Handed<'_>> = Helpers::new(sequence, readings, (idle, ahead_bytes));
        let finished = Mutex::new(BTreeMap::new());
        let help = || {
            let finish = |(unfinished, kept): Handed<'_>| {
                let start = unfinished.part.tasks.start;
                let shard = self.finish(making, unfinished, Some(kept))?;
                lock(&finished)?.extend(shard.map(|shard| (start, shard)));
                Ok(())
            };
            helpers.help(finish).inspect_err(|_| failed.store(true, Ordering::Relaxed))
        };
        let reads = |range| Box::new(helpers.reads(range)) as Box<dyn Reads>;
        let (kept_in, by) = ((target.store, target.scratch), (ranges.as_slice(), self.threads, &reads as &_));
        let (done, helped) = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..idle).map(|_| scope.spawn(help)).collect();
            let done =
                sequence.on_threads(line, target.shape, kept_in, todo, by, |part, (carry, reads), stop, seal| {
                    if failed.load(Ordering::Relaxed) {
                        return Ok(None);
                    }
                    let going = (&mut *carry, reads);
                    let Some(unfinished) = self.rows_of(making, part, going, stop)? else { return Ok(None) };
                    let (tell, kept) = channel();
                    let back = helpers.leave((unfinished, kept))?;
                    seal(carry)?;
                    match back {
                        Some((unfinished, _)) => self.finish(making, unfinished, None).map(Some),
                        // Who does not listen has failed.
                        None => Ok(tell.send(()).ok().map(|()| None)),
                    }
                });
            helpers.end();
            // The threads of the ranges are idle now: this one stands in for them.
            let here = help();
            let threads = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(poisoned())));
            (done, threads.chain([here]).collect::<Result<()>>())
        });
        helped?;
        let finished = finished.into_inner().map_err(|_| poisoned())?;
        let Done { parts, gaps, carry } = done?;
        let made = parts.into_iter().filter_map(|(start, shard): (_, Option<Shard>)| Some((start, shard?)));
        Ok(Done { parts: made.chain(finished).collect(), gaps, carry })
    }

    /// Makes a shard from its beginning to its end; `None` when the pass was stopped.
    pub fn shard(
        &self,
        making: &Making<'_>,
        part: &Part,
        (carry, seal): (&mut Carry, Seal<'_>),
        stop: &AtomicBool,
    ) -> Result<Option<Shard>> {
        let going = (&mut *carry, &making.sequence as &dyn Reads);
        let Some(unfinished) = self.rows_of(making, part, going, stop)? else { return Ok(None) };
        seal(carry)?;
        self.finish(making, unfinished, None)
    }

    /// Computes the rows of a shard; `None` when the pass was stopped.
    fn rows_of<'m>(
        &self,
        making: &'m Making<'_>,
        part: &Part,
        (carry, reads): Going<'_>,
        stop: &AtomicBool,
    ) -> Result<Option<Unfinished<'m>>> {
        let Making { sequence, prepared, target, line, along, layout } = making;
        let mut files = target.begin(prepared.schema.clone(), part.id)?;
        let mut counts = RowCounts::default();
        // Each thread has rows of one shard, and those of one more may wait.
        let mut groups = Groups::new(&prepared.schema, layout, self.memory.output_bytes() / (self.threads + 1))?;
        let mut states = along.map(|along| along.begin(&part.tasks)).transpose()?;
        for task in &line.tasks[part.tasks.clone()] {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let mut learn = |question: usize, input: Input<'_>| match along.zip(states.as_mut()) {
                Some((along, states)) => along.update(states, question, &input),
                None => Ok(()),
            };
            counts.add(self.rows((sequence, *task), target, (carry, reads), &mut groups, &mut learn, &mut |part| {
                files.append(&part.partition, part.encoded, part.ends_file)
            })?);
        }
        Ok(Some(Unfinished { part: part.clone(), files, groups, counts, states }))
    }

    /// Ends the files of a shard and commits it, once `kept` tells that it may be; `None` where it never may.
    fn finish(
        &self,
        making: &Making<'_>,
        unfinished: Unfinished<'_>,
        kept: Option<Receiver<()>>,
    ) -> Result<Option<Shard>> {
        let Making { target, line, along, .. } = making;
        let Unfinished { part, mut files, mut groups, counts, states } = unfinished;
        for ready in groups.rest() {
            let part = self.encode(&groups, ready)?;
            files.append(&part.partition, part.encoded, part.ends_file)?;
        }
        let files = target.placed(part.id, files.finish(false)?);
        let shard = shard_of(part.id, line.history.contents(part.tasks.clone()), counts, files);
        if kept.is_some_and(|kept| kept.recv().is_err()) {
            return Ok(None);
        }
        if let Some((along, states)) = along.zip(states) {
            along.keep(&part.tasks, states)?;
        }
        target.keep(part.id, shard).map(Some)
    }
}
