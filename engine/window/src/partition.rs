//! A partition of the series: their state, and the processing of their rows.

use forebay_model::Result;

use crate::batch::{BATCH_ROWS, BatchRow};
use crate::cold_store::ColdStore;
use crate::compiled_plan::{CompiledPlan, PlanAccumulators};
use crate::eviction::EvictionStats;
use crate::gaps::{GapStep, next_step};
use crate::rolling::RollingBuffers;
use crate::series_buffer::SeriesBuffer;
use crate::series_grouping::SeriesGrouping;
use crate::series_table::SeriesTable;
use crate::{GapHandling, PeriodFill, WindowPlan};

/// Fillers of a series per batch row.
const FILLERS_AT_ONCE: u32 = 256;

/// Receives the outputs of a batch: its rows and the words of each output.
pub(crate) type EmitOutputs<'p> = &'p mut dyn FnMut(&[BatchRow], &mut dyn Iterator<Item = &[u64]>);

/// Rows encoded for computation.
#[derive(Debug, Default)]
pub(crate) struct EncodedRows {
    pub hashes: Vec<u128>,
    /// Row indices per partition; unused with a single partition.
    pub own: Vec<Vec<u32>>,
    pub times: Vec<i64>,
    pub inputs: Vec<Vec<u64>>,
}

impl EncodedRows {
    /// Clears all rows and reserves capacity.
    pub fn clear(&mut self, rows: usize, inputs: usize) {
        clear_and_reserve(&mut self.hashes, rows);
        clear_and_reserve(&mut self.times, rows);
        self.inputs.resize_with(inputs, Vec::new);
        self.inputs
            .iter_mut()
            .for_each(|input| clear_and_reserve(input, rows));
    }
}

/// Clears a list and ensures capacity: growing it later would copy into untouched memory. The next push may be
/// slightly larger.
fn clear_and_reserve<T>(list: &mut Vec<T>, items: usize) {
    list.clear();
    if list.capacity() < items {
        *list = Vec::with_capacity(items + items / 8);
    }
}

/// A clone of an engine starts with empty buffers.
impl Clone for EncodedRows {
    fn clone(&self) -> Self {
        EncodedRows::default()
    }
}

/// Arguments of a push.
#[derive(Clone, Copy)]
pub(crate) struct PushRequest<'a> {
    pub plan: &'a WindowPlan,
    pub program: &'a CompiledPlan,
    pub words: &'a EncodedRows,
    /// Row indices of the partition, ascending; `None` with a single partition.
    pub own: Option<&'a [u32]>,
    /// Per function: whether its output is requested.
    pub emit: &'a [bool],
}

/// The state of one partition of the series.
#[derive(Debug, Clone)]
pub(crate) struct SeriesPartition {
    pub table: SeriesTable,
    pub history: SeriesBuffer,
    pub memories: PlanAccumulators,
    /// Evicted series: only their encoded state is kept.
    pub resting: ColdStore,
    pub rests: EvictionStats,
    pub gaps: u64,
    scratch: PushBuffers,
}

/// Buffers reused between pushes.
#[derive(Debug, Default)]
struct PushBuffers {
    /// The series of each row, and the processing order.
    arranged: SeriesGrouping,
    rows: Vec<BatchRow>,
    distances: Vec<Vec<u32>>,
    space: RollingBuffers,
    /// Output words of the batch.
    computed: Vec<Vec<u64>>,
}

impl Clone for PushBuffers {
    fn clone(&self) -> Self {
        PushBuffers::default()
    }
}

impl SeriesPartition {
    /// A partition without series.
    pub fn new(program: &CompiledPlan, memories: PlanAccumulators) -> Self {
        SeriesPartition {
            table: SeriesTable::default(),
            history: SeriesBuffer::new(program),
            memories,
            resting: ColdStore::default(),
            rests: EvictionStats::default(),
            gaps: 0,
            scratch: PushBuffers::default(),
        }
    }

    /// Pushes the rows of this partition.
    pub fn push(&mut self, asked: PushRequest<'_>, put: EmitOutputs<'_>) -> Result<()> {
        let known = self.table.len();
        // Filled periods are entries without input rows, which `append_history` does not create.
        let is_filled = matches!(asked.plan.gaps, GapHandling::Complete { .. });
        let only_remembers = !asked.emit.contains(&true) && self.memories.is_empty() && !is_filled;
        self.scratch.arranged.find(
            &asked.words.hashes,
            asked.own,
            &mut self.table,
            !only_remembers,
        );
        self.wake(known)?;
        self.history.grow(self.table.len());
        if only_remembers {
            return self.remember(asked);
        }
        let mut taken = 0;
        while taken < self.scratch.arranged.len() {
            taken = self.fill(asked, taken)?;
            self.compute(asked, put);
        }
        Ok(())
    }

    /// Appends rows without evaluating windows, in input order: first the times of a batch, then each input.
    fn remember(
        &mut self,
        PushRequest {
            plan,
            program,
            words,
            own,
            ..
        }: PushRequest<'_>,
    ) -> Result<()> {
        let SeriesPartition {
            history, scratch, ..
        } = self;
        for (batch, series) in scratch.arranged.series().chunks(BATCH_ROWS).enumerate() {
            let row = |place: usize| {
                let place = batch * BATCH_ROWS + place;
                own.map_or(place, |own| own[place] as usize)
            };
            for (place, &series) in series.iter().enumerate() {
                let (at, head) = (row(place), history.head(series));
                if head.count > 0
                    && let GapStep::Row { is_gap } =
                        next_step(plan, program, head, words.times[at], at)?
                {
                    self.gaps += u64::from(is_gap);
                }
                history.push(series, words.times[at], |_, _| 0);
            }
            history.remember(series, row, &words.inputs);
            history.next_batch();
        }
        Ok(())
    }

    /// Fills a batch with rows from place `taken` on; returns the next place.
    fn fill(
        &mut self,
        PushRequest {
            plan,
            program,
            words,
            own,
            ..
        }: PushRequest<'_>,
        taken: usize,
    ) -> Result<usize> {
        let SeriesPartition {
            history,
            memories,
            scratch,
            ..
        } = self;
        let waiting = |frontier, series| memories.next_unconsumed(frontier, series as usize);
        let rows = scratch.arranged.len();
        for place in taken..rows {
            if scratch.rows.len() == BATCH_ROWS {
                return Ok(place);
            }
            let (at, series) = scratch.arranged.row(place);
            let at = own.map_or(at, |own| own[at] as usize);
            let time = words.times[at];
            let mut fillers = 0;
            while history.head(series).count > 0 {
                match next_step(plan, program, history.head(series), time, at)? {
                    GapStep::Row { is_gap } => {
                        self.gaps += u64::from(is_gap);
                        break;
                    }
                    GapStep::Skip { periods, every } => history.skip(series, periods, every),
                    GapStep::Filler { time } => {
                        history.push(series, time, waiting);
                        fillers += 1;
                        if fillers == FILLERS_AT_ONCE {
                            // A batch row without output, so that cumulative statistics consume its entries.
                            scratch.rows.push(history.row(series, fillers, None));
                            fillers = 0;
                        }
                    }
                }
            }
            history.push(series, time, waiting);
            scratch
                .rows
                .push(history.row(series, fillers, Some(at as u32)));
        }
        Ok(rows)
    }

    /// Evaluates the batch and passes the requested outputs to `put`.
    fn compute(
        &mut self,
        PushRequest {
            program,
            words,
            emit,
            ..
        }: PushRequest<'_>,
        put: EmitOutputs<'_>,
    ) {
        let SeriesPartition {
            table,
            history,
            memories,
            scratch,
            ..
        } = self;
        let PushBuffers {
            rows,
            distances,
            space,
            computed,
            ..
        } = scratch;
        computed.resize_with(emit.len(), Vec::new);
        history.measure(rows, distances);
        memories.advance(rows, distances, table.len());
        let (fill, is_read) = (
            program.fill.unwrap_or(PeriodFill::Null),
            emit.contains(&true) || !memories.memories.is_empty(),
        );
        history.append(
            rows,
            &words.inputs,
            fill,
            &memories.batch_distances(distances),
            is_read,
        );
        history.with_batch(rows, distances, |batch| {
            memories.run(batch, table.len(), emit, computed);
            program
                .windows
                .iter()
                .for_each(|windows| windows.run(batch, emit, computed, space));
            program
                .copies
                .iter()
                .filter(|copied| emit[copied.function])
                .for_each(|copied| copied.run(batch, computed));
        });
        let wanted = computed.iter().zip(emit).filter(|(_, wanted)| **wanted);
        put(rows, &mut wanted.map(|(words, _)| words.as_slice()));
        computed.iter_mut().for_each(Vec::clear);
        rows.clear();
        history.next_batch();
    }

    /// Drops all series but that of the last row.
    pub fn keep_last(&mut self) {
        self.resting = ColdStore::default();
        if self.table.len() < 2 {
            return;
        }
        let last = self.table.last() as usize;
        self.history.keep_only(last);
        self.memories.keep_only(last);
        self.table.keep_only(last);
    }

    /// Number of series, active and evicted.
    pub fn series(&self) -> usize {
        self.table.len() + self.resting.len()
    }

    /// Bytes of state.
    pub fn bytes(&self) -> usize {
        self.awake_bytes() + self.resting.bytes()
    }

    /// Bytes of the state of active series.
    pub fn awake_bytes(&self) -> usize {
        self.table.bytes() + self.history.bytes() + self.memories.bytes()
    }
}
