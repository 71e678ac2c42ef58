//! Writes the shards of a history: units of consecutive spans in parallel, each shard with files of its own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use forebay_model::{Fault, Id, Input, Result, caught};
use forebay_plan::{Budget, Carry, RowCounts};
use forebay_storage::{Encoded, Event, Layout, Piece, rows_of};
use forebay_threads::{Finishers, Helpers, Then};

use super::along::Along;
use super::helpers::{Readings, Reads};
use super::history::Part;
use super::order::{Columns, Done, Going, Hands, Line, PartRange, Seal, Sequence, gaps_message};
use super::staying::{Staying, Stays};
use super::target::Target;
use super::write::{EncodedPart, Groups, Made, Prepared, Ready, Write};
use super::{lock, poisoned};
use crate::output::{Files, Shard, Written};
use crate::workers::Work;

/// Puts the new shards, by their first spans, in order with the committed ones.
type All<'a> = &'a (dyn Fn(&BTreeMap<usize, Shard>) -> Result<Vec<Shard>> + Sync);

/// The inputs of writing shards.
pub(crate) struct Making<'a> {
    pub sequence: &'a Sequence<'a>,
    pub prepared: &'a Prepared,
    pub target: &'a Target<'a>,
    pub line: &'a Line,
    /// Analyzers that read the rows on their way.
    pub along: Option<&'a Along<'a>>,
    pub staying: Staying,
    pub layout: &'a Layout,
}

/// A shard being written: any thread encodes groups of its rows; they are appended in order.
struct Growing<'a> {
    part: Part,
    /// The columns that are computed.
    schema: SchemaRef,
    /// The number of pieces into which each group is encoded.
    pieces: usize,
    /// Set if some columns are reused: the last piece holds those.
    stays: Option<&'a Stays>,
    state: Mutex<Grown<'a>>,
}

struct Grown<'a> {
    files: Option<Files<'a>>,
    /// The number of groups in the files.
    appended: usize,
    /// Encoded groups, by number, that wait for earlier ones.
    waiting: BTreeMap<usize, EncodedPart>,
    end: Option<End>,
}

/// The totals of a shard, known once all its rows were computed.
struct End {
    groups: usize,
    counts: RowCounts,
}

/// A shard whose rows are all encoded.
pub(super) struct Complete<'a> {
    part: Part,
    files: Files<'a>,
    end: End,
}

/// A row group that is being encoded.
struct Group<'a> {
    shard: Arc<Growing<'a>>,
    number: usize,
    ready: Ready,
    pieces: Mutex<Encoding>,
}

/// The encoded pieces of a group.
#[derive(Default)]
struct Encoding {
    done: usize,
    /// By their positions in the file.
    pieces: BTreeMap<usize, Piece>,
}

impl Making<'_> {
    /// What is read of a unit: the spans to open, and the columns to read of them.
    fn opened(&self, part: &Part) -> (Range<usize>, Columns) {
        let columns = self.staying.get(&part.tasks.start).map_or(Columns::All, |stays| stays.columns);
        match columns {
            Columns::Written(_) => (part.tasks.start..part.tasks.start + 1, columns),
            _ => (part.tasks.clone(), columns),
        }
    }
}

impl<'a> Growing<'a> {
    /// Adds an encoded group, or the end; returns the shard if it is now complete.
    fn add(&self, add: impl FnOnce(&mut Grown<'a>)) -> Result<Option<Complete<'a>>> {
        let mut guard = lock(&self.state)?;
        let state = &mut *guard;
        add(state);
        let Some(files) = &mut state.files else { return Ok(None) };
        while let Some(part) = state.waiting.remove(&state.appended) {
            // A panic must not poison the lock: the other threads would report the poisoned lock instead.
            caught(|| files.append(&part.partition, part.encoded, part.ends_file))?;
            state.appended += 1;
        }
        let Some(end) = state.end.take_if(|end| end.groups == state.appended) else { return Ok(None) };
        Ok(state.files.take().map(|files| Complete { part: self.part.clone(), files, end }))
    }
}

/// Whether any shard has files.
pub(super) fn has_files(shards: &[Shard]) -> bool {
    shards.iter().any(|shard| !shard.files.is_empty())
}

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
    /// Writes the missing shards. Later runs keep each shard as long as its spans, and those that its windows reach,
    /// stay the same.
    pub fn in_shards(&self, making: &Making<'_>, parts: Vec<Part>) -> Result<Made> {
        let Making { sequence, target, line, .. } = making;
        let todo: Vec<Part> = parts.iter().filter(|part| part.known.is_none()).cloned().collect();
        let bytes = todo.iter().map(|part| line.history.bytes(part.tasks.clone())).sum();
        // A pass that is not fused covers all spans.
        let of = if making.along.is_some() { 0 } else { line.history.bytes(0..line.tasks.len()) };
        self.watch.event(Event::PassReads { bytes, of });
        let away = self.crewed.map(|crewed| crewed.away(Work::Write { pass: crewed.pass }, self.watch));
        let done = away.map(|away| sequence.on_workers(line, target.shape, target.store, &todo, &away));
        let shards = |made: &BTreeMap<usize, Shard>| {
            let shard = |part: &Part| part.known.clone().or_else(|| made.get(&part.tasks.start).cloned());
            let shards = parts.iter().map(|part| shard(part).ok_or_else(|| Fault::internal("a shard was not made")));
            shards.collect::<Result<Vec<_>>>()
        };
        let done = done.transpose()?.flatten().map_or_else(|| self.on_threads(making, &todo, &shards), Ok)?;
        if done.gaps > 0 {
            self.watch.event(Event::Warning { message: gaps_message(done.gaps) });
        }
        let rows_kept = parts.iter().filter_map(|part| part.known.as_ref()).map(|shard| shard.rows_in).sum();
        let values_kept = making.staying.values().map(Stays::values).sum();
        Ok(Made { shards: shards(&done.parts)?, rows_kept, values_kept, carry: done.carry, is_linked: false })
    }

    /// Writes shards on threads of this process. A range needs the rows that its windows reach, so that a few days are
    /// a single range. Idle threads prefetch chunks and encode computed rows. `all` puts the new shards in order with
    /// the committed ones.
    fn on_threads<'m>(&self, making: &'m Making<'_>, todo: &[Part], all: All<'_>) -> Result<Done<Shard>> {
        let Making { sequence, target, line, .. } = making;
        let ranges = sequence.ranges_here(line, (target.shape, target.store), todo, self.threads)?;
        let busy = ranges.len().clamp(1, self.threads.max(1));
        let idle = self.threads.saturating_sub(busy);
        // Idle threads hold no rows of their own.
        let ahead_bytes = self.memory.rows_bytes() / self.threads.max(1) * idle / ranges.len().max(1);
        let readings = |range: &PartRange| range.readings(&line.tasks, todo, |part| making.opened(part));
        let readings = ranges.iter().map(readings).collect();
        let failed = AtomicBool::new(false);
        let made = Mutex::new(BTreeMap::new());
        let finish = |complete: Complete<'m>| {
            let done = caught(|| self.finish(making, complete)).and_then(|(first, shard)| {
                lock(&made)?.insert(first, shard);
                Ok(())
            });
            done.inspect_err(|_| failed.store(true, Ordering::Relaxed))
        };
        let finishers = Finishers::new(self.threads, &finish);
        let complete = |complete: Option<Complete<'m>>| complete.map_or(Ok(()), |complete| finishers.give(complete));
        let encode = |group: &Group<'m>, piece: usize| {
            let done = self.encoding(|| self.encode(group, piece)).and_then(complete);
            done.inspect_err(|_| failed.store(true, Ordering::Relaxed))
        };
        let open = |(task, columns)| sequence.open(task, columns);
        let helpers: Helpers<'_, Group<'m>, Readings> = Helpers::new(&open, &encode, readings, ahead_bytes);
        let leave = |group: Group<'m>| {
            let pieces = group.shard.pieces;
            helpers.leave(group, pieces)
        };
        let reads = |range| Box::new(helpers.reads(range)) as Box<dyn Reads>;
        let around = |ranges: &dyn Fn() -> Result<()>| helpers.help_after(ranges);
        let kept_in = (target.store, target.scratch);
        // Idle threads compute partitions of series for the threads with ranges.
        let parts = 1 + idle / ranges.len().max(1);
        let budget = Budget::new(self.memory.states_bytes()).with_beside(parts, helpers.together());
        let each = || {
            let hands =
                Hands { ranges: &ranges, threads: busy, reads: &reads, around: &around, budget: budget.clone() };
            let work = |part: &Part, going: Going<'_>, stop: &AtomicBool, seal: Seal<'_>| {
                if failed.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let (carry, reads) = going;
                let Some((shard, end)) = self.rows_of(making, part, (&mut *carry, reads), stop, &leave)? else {
                    return Ok(None);
                };
                seal(carry)?;
                complete(shard.add(|state| state.end = Some(end))?).map(Some)
            };
            helpers.beside(idle, || sequence.on_threads(line, target.shape, kept_in, todo, hands, work))
        };
        let answer = || making.along.map_or(Ok(()), Along::answer);
        let link = || making.along.map_or(Ok(()), |along| along.link(all(&*lock(&made)?)?));
        let then = making.along.map(|_| Then { meanwhile: &answer, last: &link });
        let Done { gaps, carry, .. } = finishers.beside(self.finishing(target), each, then)?;
        Ok(Done { parts: made.into_inner().map_err(|_| poisoned())?, gaps, carry })
    }

    /// Threads that finish shards: a disk writes one file at a time; uploads run in parallel.
    pub(super) fn finishing(&self, target: &Target<'_>) -> usize {
        if target.out.local.is_some() { 1 } else { self.threads }
    }

    /// Computes and encodes the rows of a shard; `None` if the pass was stopped.
    pub(super) fn shard<'m>(
        &self,
        making: &'m Making<'_>,
        part: &Part,
        (carry, seal): (&mut Carry, Seal<'_>),
        stop: &AtomicBool,
    ) -> Result<Option<Complete<'m>>> {
        let going = (&mut *carry, &making.sequence as &dyn Reads);
        let encode =
            |group: Group<'m>| (0..group.shard.pieces).try_for_each(|piece| self.encode(&group, piece).map(drop));
        let Some((shard, end)) = self.rows_of(making, part, going, stop, &encode)? else { return Ok(None) };
        seal(carry)?;
        shard.add(|state| state.end = Some(end))
    }

    /// Computes the rows of a shard and passes its row groups to `leave`; `None` if the pass was stopped.
    fn rows_of<'m>(
        &self,
        making: &'m Making<'_>,
        part: &Part,
        (carry, reads): Going<'_>,
        stop: &AtomicBool,
        leave: &dyn Fn(Group<'m>) -> Result<()>,
    ) -> Result<Option<(Arc<Growing<'m>>, End)>> {
        let Making { sequence, prepared, target, line, along, layout, staying } = making;
        let files = target.begin(prepared.schema.clone(), part.id)?;
        let stays = staying.get(&part.tasks.start);
        // Each thread holds the rows of one group, and those of one more may wait. If columns are reused, groups have
        // the rows of the earlier shard.
        let group_bytes_max = stays.map_or(self.memory.output_bytes() / (self.threads + 1), |_| usize::MAX);
        let schema = stays.map_or(&prepared.schema, |stays| &stays.schema);
        let mut groups = Groups::new(schema, layout, group_bytes_max)?;
        let schema = groups.file_schema.clone();
        let pieces = stays.map_or_else(|| self.sink.pieces(&schema), |stays| stays.computed.len() + 1);
        let state = Grown { files: Some(files), appended: 0, waiting: BTreeMap::new(), end: None };
        let shard = Arc::new(Growing { part: part.clone(), schema, pieces, stays, state: Mutex::new(state) });
        let mut number = 0;
        let mut take = |ready: Ready| {
            let group = Group { shard: shard.clone(), number, ready, pieces: Mutex::default() };
            number += 1;
            leave(group)
        };
        let mut states = along.map(|along| along.begin(&part.tasks)).transpose()?;
        let mut learn = |question: usize, input: Input<'_>| match along.zip(states.as_mut()) {
            Some((along, states)) => along.update(states, question, &input),
            None => Ok(()),
        };
        let (opened, columns) = making.opened(part);
        let rows = (*sequence, &line.tasks[opened], columns);
        let going = ((carry, reads), stop);
        let Some(counts) = self.rows(rows, target, going, &mut groups, &mut learn, &mut take)? else { return Ok(None) };
        groups.rest().try_for_each(|ready| take(ready?))?;
        along.zip(states).map_or(Ok(()), |(along, states)| along.keep(&part.tasks, states, counts))?;
        Ok(Some((shard, End { groups: number, counts })))
    }

    /// Encodes a piece of a group; returns the shard if it is now complete.
    fn encode<'m>(&self, group: &Group<'m>, piece: usize) -> Result<Option<Complete<'m>>> {
        let Group { shard, number, ready, pieces } = group;
        let rows = rows_of(&ready.batches);
        let encoded = match (shard.stays, shard.stays.and_then(|stays| stays.computed.get(piece))) {
            (Some(stays), None) => stays.take(*number, rows)?,
            (_, place) => {
                vec![(*place.unwrap_or(&piece), self.sink.encode_piece(&shard.schema, &ready.batches, piece)?)]
            }
        };
        let mut encoding = lock(pieces)?;
        encoding.done += 1;
        encoding.pieces.extend(encoded);
        if encoding.done < shard.pieces {
            return Ok(None);
        }
        let pieces = std::mem::take(&mut encoding.pieces).into_values().collect();
        let part = ready.encoded(Encoded { pieces, rows });
        shard.add(|state| drop(state.waiting.insert(*number, part)))
    }

    /// Closes the files of a shard and commits it; returns it with its first span.
    pub(super) fn finish(&self, making: &Making<'_>, complete: Complete<'_>) -> Result<(usize, Shard)> {
        let Making { target, line, .. } = making;
        let Complete { part, files, end } = complete;
        let files = target.placed(part.id, files.finish(false)?)?;
        let shard = shard_of(part.id, line.history.contents(part.tasks.clone()), end.counts, files);
        Ok((part.tasks.start, target.keep(part.id, shard)?))
    }
}
