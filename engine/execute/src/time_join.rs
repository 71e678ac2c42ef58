//! As-of joins of histories: the last row of each key of the other side is state, like that of
//! windows. Each thread holds it from span to span from the beginning of its range, and the state
//! at the end is kept, so that the next run continues from it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};
use forebay_commit::StateStore;
use forebay_model::{
    BoundValue, ColumnExtent, ContentId, Fault, FaultCode, IdBuilder, Pipeline, Result,
    catch_panic, codes,
};
use forebay_plan::{
    AdmitBytes, AsOf, JoinBy, JoinOp, JoinedExtents, OpId, PlanOp, PrecomputedOutputs,
    TakenOutputs, join_id,
};
use forebay_storage::{BackgroundTask, ScratchDir};
use forebay_threads::lock;

use crate::admission::admission;
use crate::join_keys::{distinct, typed_join_keys};
use crate::materialize::{FlowReader, MaterializePass, QUEUE_BATCHES};
use crate::run_state::RowOrderFailure;
use crate::sorted_file::{next_rows, select_outputs};
use crate::sorted_outputs::SortedOutputs;
use crate::span_index::{JoinedSpans, SpanDigests};
use crate::time_merge::{HELD_SHARE, TimeMerge, follows};

/// Number of last spans of this side before each of which a state of an earlier run is looked up.
const PROBED_SPANS: usize = 32;

/// Inputs of a join in order of time.
pub struct TimeJoinSetup<'a> {
    pub gather: MaterializePass<'a>,
    pub pipeline: &'a Pipeline,
    pub store: &'a StateStore,
    pub op: OpId,
}

/// A backward as-of join of two histories.
pub struct TimeJoin {
    op: OpId,
    join: JoinOp,
    as_of: AsOf,
    /// The keys of both sides, with the types in which they are compared.
    keys: [Vec<(String, DataType)>; 2],
    here: Arc<FlowReader>,
    there: Arc<OtherSide>,
    /// The times of the spans of this side.
    times: Vec<TimeExtent>,
    /// Id of the operation on the rows of both sides; without it no state is kept.
    operation: Option<ContentId>,
    store: StateStore,
    scratch: ScratchDir,
    order_failure: RowOrderFailure,
    held_bytes_max: usize,
    /// Asked for long texts that many rows meet.
    admit: AdmitBytes,
    /// Merges of threads that are between two spans, the oldest first.
    idle: Mutex<Vec<IdleMerge>>,
    idle_max: usize,
    /// The merge whose rows are copied for spans that no thread has reached.
    front: Mutex<Option<IdleMerge>>,
}

/// The least and the greatest time of a span.
#[derive(Clone, Copy)]
struct TimeExtent {
    min: i64,
    max: i64,
}

/// The history that is joined.
struct OtherSide {
    rows: FlowReader,
    /// The times alone.
    order: FlowReader,
    times: Vec<TimeExtent>,
    digests: Arc<SpanDigests>,
    /// Spans whose rows are known to come in order of time.
    checked: Mutex<BTreeSet<usize>>,
}

/// A merge that waits for the next span.
struct IdleMerge {
    /// The next span of this side.
    at: usize,
    merge: SpanMerge,
}

/// The rows that are held, and those that are read next.
struct SpanMerge {
    merge: TimeMerge,
    side: Arc<OtherSide>,
    /// The next span of the other side.
    next: usize,
    open: Option<SpanBatches>,
}

/// The rows of a span, read on a thread of their own. The receiver is dropped first, so that the thread ends.
struct SpanBatches {
    batches: Receiver<RecordBatch>,
    reader: Option<BackgroundTask<()>>,
}

impl SpanBatches {
    /// `reader` gives the reader of some rows.
    fn open<R: Send + Sync + 'static>(
        rows: Arc<R>,
        span: usize,
        reader: fn(&R) -> &FlowReader,
    ) -> Self {
        let (sender, batches) = sync_channel(QUEUE_BATCHES);
        let read =
            move || reader(&rows).read(span..span + 1, &mut |batch| sender.send(batch).is_ok());
        SpanBatches {
            batches,
            reader: Some(BackgroundTask::spawn(read)),
        }
    }

    /// The next batch; `None` once all were read.
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        match self.batches.recv() {
            Ok(batch) => Ok(Some(batch)),
            Err(_) => self
                .reader
                .take()
                .map_or(Ok(()), BackgroundTask::join)
                .map(|()| None),
        }
    }
}

impl OtherSide {
    /// Fails if the rows of a span do not come in order of time: a row that comes late would be missed.
    fn check_order(&self, span: usize) -> Result<()> {
        if lock(&self.checked)?.contains(&span) {
            return Ok(());
        }
        let mut seen = i64::MIN;
        let mut ordered = Ok(true);
        self.order.read(span..span + 1, &mut |batch| {
            let ticks = cast(batch.column(0), &DataType::Int64);
            ordered = ticks.map(|ticks| follows(ticks.as_primitive(), &mut seen));
            matches!(ordered, Ok(true))
        })?;
        if !ordered? {
            return Err(Fault::new(
                codes::OUT_OF_ORDER,
                "rows that are joined do not come in order of time",
            ));
        }
        lock(&self.checked)?.insert(span);
        Ok(())
    }

    /// The end of the spans with rows at a time or before it.
    fn end(&self, time: i64) -> usize {
        self.times.partition_point(|extent| extent.min <= time)
    }

    /// The first span with a row at a time or after it.
    fn first_from(&self, time: i64) -> usize {
        self.times.partition_point(|extent| extent.max < time)
    }
}

impl SpanMerge {
    /// Passes over spans whose rows are of no use any more.
    fn skip_to(&mut self, span: usize) {
        if self.open.is_none() && !self.merge.has_waiting() {
            self.next = self.next.max(span);
        }
    }

    /// The outputs for a batch of this side, whose rows may match the spans before `end`; `None` if
    /// the join is abandoned.
    fn join(&mut self, batch: &RecordBatch, end: usize) -> Result<Option<Vec<RecordBatch>>> {
        let SpanMerge {
            merge,
            side,
            next,
            open,
        } = self;
        merge.join(batch, &mut || next_batch(side, next, open, end))
    }

    /// Advances over all rows up to a time; false if the join is abandoned.
    fn see_until(&mut self, time: i64) -> Result<bool> {
        let SpanMerge {
            merge,
            side,
            next,
            open,
        } = self;
        let end = side.end(time);
        merge.see_until(time, &mut || next_batch(side, next, open, end))
    }
}

/// The next rows of the other side, of the spans before `end`.
fn next_batch(
    side: &Arc<OtherSide>,
    next: &mut usize,
    open: &mut Option<SpanBatches>,
    end: usize,
) -> Result<Option<RecordBatch>> {
    loop {
        if let Some(batches) = open {
            if let Some(batch) = batches.next()? {
                return Ok(Some(batch));
            }
            *open = None;
        }
        if *next >= end {
            return Ok(None);
        }
        side.check_order(*next)?;
        *open = Some(SpanBatches::open(side.clone(), *next, |side| &side.rows));
        *next += 1;
    }
}

impl SortedOutputs for TimeJoin {
    fn read(self: Arc<Self>, _: usize, span: usize) -> Result<Box<dyn PrecomputedOutputs>> {
        let own_batches = SpanBatches::open(self.here.clone(), span, |rows| rows);
        let merge = self.noting_order(self.merge_before(span))?;
        let schema = merge.merge.schema().clone();
        let merge = Some(merge);
        let ready = VecDeque::new();
        let remainder = None;
        let mut rows = MergedRows {
            join: self,
            span,
            merge,
            here: own_batches,
            ready,
            rest: remainder,
            schema,
        };
        rows.fill()?;
        Ok(Box::new(rows))
    }

    fn joined_spans(&self, spans: usize) -> Option<JoinedSpans> {
        let digests = self.there.digests.clone();
        if spans != self.times.len() {
            return Some(JoinedSpans {
                digests,
                starts: vec![0; spans],
                ends: vec![self.there.times.len(); spans],
            });
        }
        let starts = self
            .times
            .iter()
            .map(|extent| self.first_useful(extent.min))
            .collect();
        let ends = self
            .times
            .iter()
            .map(|extent| self.there.end(extent.max))
            .collect();
        Some(JoinedSpans {
            digests,
            starts,
            ends,
        })
    }

    fn kept_state(&self) -> Result<Option<ContentId>> {
        let Some(id) = self.state_id(self.times.len()) else {
            return Ok(None);
        };
        Ok(self.store.carry_bytes(id)?.map(|_| id))
    }
}

impl TimeJoin {
    /// Opens the readers of both sides.
    pub fn open(setup: &TimeJoinSetup<'_>) -> Result<Arc<TimeJoin>> {
        let TimeJoinSetup {
            gather,
            pipeline,
            store,
            op,
        } = setup;
        let context = &gather.context;
        let bound = &context.program.bound;
        let strange = || Fault::internal("a join whose sides are no histories");
        let PlanOp::Join(
            join @ JoinOp {
                by: JoinBy::Time(as_of),
                ..
            },
        ) = &bound.ops[*op].op
        else {
            return Err(strange());
        };
        let dataset = |base| context.input(base).ok().map(|input| input.dataset.as_ref());
        let JoinedExtents {
            here: here_times,
            there: there_times,
        } = JoinedExtents::of(bound, *op, &dataset).ok_or_else(strange)?;
        let flows = bound.window_inputs.get(op).zip(bound.join_inputs.get(op));
        let (own_flow, other_flow) = flows.ok_or_else(strange)?;
        let base = other_flow.streams.first().ok_or_else(strange)?.base;
        let spans = &context.input(base)?.dataset.spans;
        let (own_keys, other) = typed_join_keys(join, &own_flow.schema, &other_flow.schema)?;
        let side = OtherSide {
            rows: gather.reader(other_flow, &distinct(join.columns_there()))?,
            order: gather.reader(other_flow, std::slice::from_ref(&as_of.other_time))?,
            times: there_times
                .iter()
                .map(TimeExtent::of)
                .collect::<Option<_>>()
                .ok_or_else(strange)?,
            digests: Arc::new(SpanDigests::new(spans.iter().map(|span| (0, span)))),
            checked: Mutex::default(),
        };
        Ok(Arc::new(TimeJoin {
            op: *op,
            join: join.clone(),
            as_of: as_of.clone(),
            keys: [own_keys, other],
            here: Arc::new(gather.reader(own_flow, &distinct(join.columns_here()))?),
            there: Arc::new(side),
            times: here_times
                .iter()
                .map(TimeExtent::of)
                .collect::<Option<_>>()
                .ok_or_else(strange)?,
            operation: join_id(bound, pipeline, *op, &|analyzer| context.digest(analyzer))?,
            store: (*store).clone(),
            scratch: gather.scratch.clone(),
            order_failure: context.state.order_failure.clone(),
            // Each thread holds rows, and the front does.
            held_bytes_max: context.memory.engine_bytes() / HELD_SHARE / (context.threads + 1),
            admit: admission(context.memory),
            idle: Mutex::default(),
            idle_max: context.threads.max(1),
            front: Mutex::default(),
        }))
    }

    /// The first span of the other side that rows at a time, or later, may meet.
    fn first_useful(&self, time: i64) -> usize {
        self.as_of
            .tolerance
            .map_or(0, |most| self.there.first_from(time.saturating_sub(most)))
    }

    /// The id of the rows that are held after some spans of this side; `None` before the first, or if nothing is kept.
    fn state_id(&self, spans: usize) -> Option<ContentId> {
        let last = self.times.get(spans.checked_sub(1)?)?.max;
        let end = self.there.end(last);
        let start = self.first_useful(last).min(end);
        let content = self.there.digests.met(&(start..end));
        let mut id = IdBuilder::new("latest rows 1");
        id.id(self.operation?)
            .id(content)
            .bytes(&last.to_le_bytes());
        Some(id.finish())
    }

    /// The rows that are held before a span. A thread that continues where another ended takes over
    /// its rows. All others copy the rows of the front, which reads each row of the other side
    /// once.
    fn merge_before(&self, span: usize) -> Result<SpanMerge> {
        {
            let mut idle = lock(&self.idle)?;
            if let Some(position) = idle.iter().position(|idle| idle.at == span) {
                return Ok(idle.remove(position).merge);
            }
        }
        let first = self
            .times
            .get(span)
            .map_or(0, |extent| self.first_useful(extent.min));
        let Some(previous) = span.checked_sub(1) else {
            return self.merge_from(first);
        };
        let last = self.times[previous].max;
        // Rows that are held are met again in the first of these spans, in the same order.
        let unseen = if self.as_of.exact {
            last.saturating_add(1)
        } else {
            last
        };
        let unseen = first.max(self.there.first_from(unseen));
        // The front advances under its lock, so that each row of the other side is read once for
        // all threads.
        let mut front = lock(&self.front)?;
        let is_there = front.as_ref().is_some_and(|front| front.at == span);
        if !is_there
            // A run keeps the state after its last span alone: it is looked up near the end of the
            // history (decisions/time-merge.md).
            && let Some(id) = self
                .state_id(span)
                .filter(|_| span + PROBED_SPANS >= self.times.len())
        {
            let mut unfinished = self.merge_from(unseen)?;
            if self
                .store
                .get_carry(id, |input| catch_panic(|| unfinished.merge.decode(input)))?
                .is_some()
            {
                return Ok(unfinished);
            }
        }
        let front = match &mut *front {
            // The front does not go back: before its position it starts again at the first useful
            // row.
            Some(front) if front.at <= span => front,
            front => front.insert(IdleMerge {
                at: 0,
                merge: self.merge_from(first)?,
            }),
        };
        if front.at < span {
            front.merge.skip_to(first);
            if !front.merge.see_until(last)? {
                return Err(self.give_up(&front.merge.merge));
            }
            front.at = span;
        }
        let mut merge = self.merge_from(unseen)?;
        merge.merge.continue_from(&front.merge.merge);
        Ok(merge)
    }

    /// Creates a merge without rows that reads from a span of the other side on.
    fn merge_from(&self, next: usize) -> Result<SpanMerge> {
        let schemas = [self.here.schema(), self.there.rows.schema()];
        let keys = [self.keys[0].as_slice(), self.keys[1].as_slice()];
        let mut merge = TimeMerge::new(&self.join, &self.as_of, keys, schemas)?;
        merge.held_bytes_max = self.held_bytes_max;
        merge.admit = Some(self.admit.clone());
        Ok(SpanMerge {
            merge,
            side: self.there.clone(),
            next,
            open: None,
        })
    }

    /// Keeps the rows that are held after a span: for the next one, or for the next run.
    fn finish(&self, span: usize, mut merge: SpanMerge) -> Result<()> {
        if span + 1 < self.times.len() {
            let mut idle = lock(&self.idle)?;
            // Where threads take units in turn, none goes on where another one ended.
            if idle.len() >= self.idle_max {
                idle.remove(0);
            }
            idle.push(IdleMerge {
                at: span + 1,
                merge,
            });
            return Ok(());
        }
        lock(&self.idle)?.clear();
        drop(lock(&self.front)?.take());
        let Some(id) = self.state_id(span + 1) else {
            return Ok(());
        };
        let Some(last) = self.times.get(span) else {
            return Ok(());
        };
        if self.store.carry_bytes(id)?.is_some() {
            return Ok(());
        }
        if !merge.see_until(last.max)? {
            return Err(self.give_up(&merge.merge));
        }
        self.store.put_carry(id, &self.scratch, &mut |out| {
            merge.merge.encode(last.max, out)
        })
    }

    /// The fault after which both sides are sorted.
    fn give_up(&self, merge: &TimeMerge) -> Fault {
        let (code, message) = if merge.is_outgrown() {
            (
                codes::MEMORY,
                "the last rows of all keys outgrow their memory",
            )
        } else {
            (
                codes::OUT_OF_ORDER,
                "rows of a join do not come in order of time",
            )
        };
        self.note_order(code);
        Fault::new(code, message)
    }

    fn note_order(&self, code: FaultCode) {
        if let Ok(mut order_failure) = self.order_failure.lock() {
            order_failure.get_or_insert((self.op, code));
        }
    }

    /// Records a row out of order.
    fn noting_order<T>(&self, done: Result<T>) -> Result<T> {
        done.inspect_err(|fault| {
            if fault.code() == codes::OUT_OF_ORDER {
                self.note_order(fault.code());
            }
        })
    }
}

impl TimeExtent {
    fn of(extent: &ColumnExtent) -> Option<TimeExtent> {
        match (&extent.min, &extent.max) {
            (BoundValue::Int(min), BoundValue::Int(max)) => Some(TimeExtent {
                min: *min,
                max: *max,
            }),
            _ => None,
        }
    }
}

/// The outputs for the rows of a span, computed as they are taken.
pub struct MergedRows {
    join: Arc<TimeJoin>,
    span: usize,
    /// `None` once all rows of the span are joined.
    merge: Option<SpanMerge>,
    here: SpanBatches,
    /// Outputs that are not taken yet: the distance, then the columns of the join.
    ready: VecDeque<RecordBatch>,
    /// Unread rows of the last outputs.
    rest: Option<RecordBatch>,
    schema: SchemaRef,
}

impl MergedRows {
    /// Joins batches until outputs are ready, or the span ends.
    fn fill(&mut self) -> Result<()> {
        while self.ready.is_empty() {
            let Some(mut merge) = self.merge.take() else {
                return Ok(());
            };
            let join = self.join.clone();
            let Some(batch) = self.here.next()? else {
                return join.noting_order(join.finish(self.span, merge));
            };
            let end = join
                .times
                .get(self.span)
                .map_or(0, |extent| join.there.end(extent.max));
            match join.noting_order(merge.join(&batch, end))? {
                Some(outputs) => self
                    .ready
                    .extend(outputs.into_iter().filter(|outputs| outputs.num_rows() > 0)),
                None => return Err(join.give_up(&merge.merge)),
            }
            self.merge = Some(merge);
        }
        Ok(())
    }
}

impl PrecomputedOutputs for MergedRows {
    fn take(&mut self, rows: usize, emit: &[bool]) -> Result<TakenOutputs> {
        let mut remainder = self.rest.take();
        let parts = next_rows(rows, &mut remainder, &mut || {
            self.fill()?;
            self.ready
                .pop_front()
                .ok_or_else(|| Fault::internal("a join read fewer rows than its step"))
        })?;
        self.rest = remainder;
        // The end of a span is noticed behind its last row: what is held then is kept before the rows are committed.
        if self.rest.is_none() {
            self.fill()?;
        }
        let emitted = emit
            .iter()
            .enumerate()
            .filter(|(_, emit)| **emit)
            .map(|(index, _)| index + 1);
        let columns = select_outputs(&parts, &self.schema, emitted)?;
        // The distance is null in rows without a match.
        let unmatched = parts.iter().map(|part| part.column(0).null_count() as u64);
        Ok(TakenOutputs {
            columns,
            unmatched: Some(unmatched.sum()),
        })
    }
}
