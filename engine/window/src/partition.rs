//! A partition of the series: their state, and the processing of their rows.

use forebay_model::Result;

use crate::batch::{BATCH_ROWS, BatchRow};
use crate::cold_store::ColdStore;
use crate::compiled_plan::{CompiledPlan, PlanAccumulators};
use crate::eviction_stats::EvictionStats;
use crate::gaps::{GapStep, next_step};
use crate::rolling::RollingBuffers;
use crate::series_buffer::SeriesBuffer;
use crate::series_grouping::SeriesGrouping;
use crate::series_table::SeriesTable;
use crate::ties::TiedWindows;
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
    /// Rows of the last push that have the time of the row before them in their series.
    pub ties: u64,
    /// The first of them.
    pub first_tie: Option<u32>,
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
    /// Per rolling window: the windows of rows that tie.
    tied: Vec<TiedWindows>,
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
            ties: 0,
            first_tie: None,
            scratch: PushBuffers::default(),
        }
    }

    /// Pushes the rows of this partition.
    pub fn push(&mut self, request: PushRequest<'_>, put: EmitOutputs<'_>) -> Result<()> {
        let known_series = self.table.len();
        self.ties = 0;
        self.first_tie = None;
        // Filled periods are entries without input rows, which `append_history` does not create.
        let is_filled = matches!(request.plan.gaps, GapHandling::Complete { .. });
        let only_remembers =
            !request.emit.contains(&true) && self.memories.is_empty() && !is_filled;
        self.scratch.arranged.find(
            &request.words.hashes,
            request.own,
            &mut self.table,
            !only_remembers,
        );
        self.wake(known_series)?;
        self.history.grow(self.table.len());
        if only_remembers {
            return self.remember(request);
        }
        let mut taken_rows = 0;
        while taken_rows < self.scratch.arranged.len() {
            taken_rows = self.fill(request, taken_rows)?;
            self.compute(request, put);
        }
        self.limit_tied_windows();
        Ok(())
    }

    /// Appends rows without evaluating windows, in input order: first the times of a batch, then each input.
    fn remember(
        &mut self,
        PushRequest {
            plan,
            program,
            words,
            own: row_numbers,
            ..
        }: PushRequest<'_>,
    ) -> Result<()> {
        let SeriesPartition {
            history, scratch, ..
        } = self;
        for (batch, series) in scratch.arranged.series().chunks(BATCH_ROWS).enumerate() {
            let row = |offset: usize| {
                let index = batch * BATCH_ROWS + offset;
                row_numbers.map_or(index, |row_numbers| row_numbers[index] as usize)
            };
            for (offset, &series) in series.iter().enumerate() {
                let at = row(offset);
                let head = history.head(series);
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

    /// Fills a batch with rows from index `taken_rows` on; returns the index of the next row.
    fn fill(
        &mut self,
        PushRequest {
            plan,
            program,
            words,
            own: row_numbers,
            emit,
        }: PushRequest<'_>,
        taken_rows: usize,
    ) -> Result<usize> {
        // Rows that only warm up windows are counted where they are evaluated.
        let is_counted = emit.contains(&true);
        let SeriesPartition {
            history,
            memories,
            scratch,
            ..
        } = self;
        let waiting = |frontier, series| memories.next_unconsumed(frontier, series as usize);
        let rows = scratch.arranged.len();
        for index in taken_rows..rows {
            if scratch.rows.len() == BATCH_ROWS {
                return Ok(index);
            }
            let (at, series) = scratch.arranged.row(index);
            let at = row_numbers.map_or(at, |row_numbers| row_numbers[at] as usize);
            let time = words.times[at];
            let mut fillers = 0;
            while history.head(series).count > 0 {
                match next_step(plan, program, history.head(series), time, at)? {
                    GapStep::Row { is_gap } => {
                        self.gaps += u64::from(is_gap);
                        break;
                    }
                    GapStep::Skip { periods, last } => history.skip(series, periods, last),
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
            let row = history.row(series, fillers, Some(at as u32));
            if row.ties() > 0 && is_counted {
                self.ties += 1;
                self.first_tie = Some(self.first_tie.map_or(at as u32, |tie| tie.min(at as u32)));
            }
            scratch.rows.push(row);
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
            tied,
            computed,
            ..
        } = scratch;
        computed.resize_with(emit.len(), Vec::new);
        tied.resize_with(program.windows.len(), TiedWindows::default);
        let has_ties = rows.iter().any(|row| row.ties() > 0);
        history.measure(rows, distances);
        memories.advance(rows, distances, table.len());
        let fill = program.fill.unwrap_or(PeriodFill::Null);
        let is_read = emit.contains(&true) || !memories.memories.is_empty();
        history.append(
            rows,
            &words.inputs,
            fill,
            &memories.batch_distances(distances),
            is_read,
        );
        history.with_batch(rows, distances, |batch| {
            memories.run(batch, table.len(), emit, computed);
            for (windows, tied) in program.windows.iter().zip(tied) {
                match windows.begins_at_time(&program.edges) {
                    Some(span) if has_ties => {
                        tied.run(windows, span, batch, emit, computed, space);
                    }
                    _ => windows.run(batch, emit, computed, space),
                }
            }
            for copied in &program.copies {
                if emit[copied.function] {
                    copied.run(batch, computed);
                }
            }
        });
        let emitted = computed
            .iter()
            .zip(emit)
            .filter(|(_, is_emitted)| **is_emitted);
        put(rows, &mut emitted.map(|(words, _)| words.as_slice()));
        for words in computed {
            words.clear();
        }
        rows.clear();
        history.next_batch();
    }

    /// Forgets the windows of rows that tie: the numbers of series are about to change.
    pub fn forget_tied_windows(&mut self) {
        self.scratch.tied.iter_mut().for_each(TiedWindows::clear);
    }

    /// Entries that windows read for rows that tie.
    pub fn tied_entries_read(&self) -> u64 {
        let tied = self.scratch.tied.iter();
        tied.map(TiedWindows::entries_read).sum()
    }

    fn limit_tied_windows(&mut self) {
        let has_words = self.scratch.tied.iter().any(|tied| tied.bytes() > 0);
        if has_words {
            let entry_words = self.history.bytes() / size_of::<u64>();
            let tied = self.scratch.tied.iter_mut();
            tied.for_each(|tied| tied.limit(entry_words));
        }
    }

    /// Drops all series but that of the last row.
    pub fn keep_last(&mut self) {
        self.resting = ColdStore::default();
        if self.table.len() < 2 {
            return;
        }
        self.forget_tied_windows();
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
        let tied = self.scratch.tied.iter().map(TiedWindows::bytes);
        self.awake_bytes() + self.resting.bytes() + tied.sum::<usize>()
    }

    /// Bytes of the state of active series.
    pub fn awake_bytes(&self) -> usize {
        self.table.bytes() + self.history.bytes() + self.memories.bytes()
    }
}
