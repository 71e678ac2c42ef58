//! A partition of the series: their state, and the processing of their rows.

use forebay_model::Result;

use crate::arranged::Arranged;
use crate::batch::{BATCH_ROWS, Row};
use crate::gaps::{Step, step};
use crate::history::History;
use crate::program::{Memories, Program};
use crate::rest::Rests;
use crate::resting::Resting;
use crate::table::SeriesTable;
use crate::windows::Workspace;
use crate::{Fill, Gaps, WindowPlan};

/// Fillers of a series per batch row.
const FILLERS_AT_ONCE: u32 = 256;

/// Receives the outputs of a batch: its rows and the words of each output.
pub(crate) type Put<'p> = &'p mut dyn FnMut(&[Row], &mut dyn Iterator<Item = &[u64]>);

/// Rows encoded for computation.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pub hashes: Vec<u128>,
    /// Row indices per partition; unused with a single partition.
    pub own: Vec<Vec<u32>>,
    pub times: Vec<i64>,
    pub inputs: Vec<Vec<u64>>,
}

impl Words {
    /// Clears all rows and reserves capacity.
    pub fn clear(&mut self, rows: usize, inputs: usize) {
        make_room(&mut self.hashes, rows);
        make_room(&mut self.times, rows);
        self.inputs.resize_with(inputs, Vec::new);
        self.inputs.iter_mut().for_each(|input| make_room(input, rows));
    }
}

/// Clears a list and ensures capacity: growing it later would copy into untouched memory. The next push may be
/// slightly larger.
fn make_room<T>(list: &mut Vec<T>, items: usize) {
    list.clear();
    if list.capacity() < items {
        *list = Vec::with_capacity(items + items / 8);
    }
}

/// A clone of an engine starts with empty buffers.
impl Clone for Words {
    fn clone(&self) -> Self {
        Words::default()
    }
}

/// Arguments of a push.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub plan: &'a WindowPlan,
    pub program: &'a Program,
    pub words: &'a Words,
    /// Row indices of the partition, ascending; `None` with a single partition.
    pub own: Option<&'a [u32]>,
    /// Per function: whether its output is requested.
    pub emit: &'a [bool],
}

/// The state of one partition of the series.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub table: SeriesTable,
    pub history: History,
    pub memories: Memories,
    /// Evicted series: only their encoded state is kept.
    pub resting: Resting,
    pub rests: Rests,
    pub gaps: u64,
    scratch: Scratch,
}

/// Buffers reused between pushes.
#[derive(Debug, Default)]
struct Scratch {
    /// The series of each row, and the processing order.
    arranged: Arranged,
    rows: Vec<Row>,
    distances: Vec<Vec<u32>>,
    space: Workspace,
    /// Output words of the batch.
    computed: Vec<Vec<u64>>,
}

impl Clone for Scratch {
    fn clone(&self) -> Self {
        Scratch::default()
    }
}

impl Part {
    /// A partition without series.
    pub fn new(program: &Program, memories: Memories) -> Self {
        Part {
            table: SeriesTable::default(),
            history: History::new(program),
            memories,
            resting: Resting::default(),
            rests: Rests::default(),
            gaps: 0,
            scratch: Scratch::default(),
        }
    }

    /// Pushes the rows of this partition.
    pub fn push(&mut self, asked: Asked<'_>, put: Put<'_>) -> Result<()> {
        let known = self.table.len();
        // Filled periods are entries without input rows, which `append_history` does not create.
        let is_filled = matches!(asked.plan.gaps, Gaps::Complete { .. });
        let only_remembers = !asked.emit.contains(&true) && self.memories.is_empty() && !is_filled;
        self.scratch.arranged.find(&asked.words.hashes, asked.own, &mut self.table, !only_remembers);
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
    fn remember(&mut self, Asked { plan, program, words, own, .. }: Asked<'_>) -> Result<()> {
        let Part { history, scratch, .. } = self;
        for (batch, series) in scratch.arranged.series().chunks(BATCH_ROWS).enumerate() {
            let row = |place: usize| {
                let place = batch * BATCH_ROWS + place;
                own.map_or(place, |own| own[place] as usize)
            };
            for (place, &series) in series.iter().enumerate() {
                let (at, head) = (row(place), history.head(series));
                if head.count > 0
                    && let Step::Row { is_gap } = step(plan, program, head, words.times[at], at)?
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
    fn fill(&mut self, Asked { plan, program, words, own, .. }: Asked<'_>, taken: usize) -> Result<usize> {
        let Part { history, memories, scratch, .. } = self;
        let waiting = |frontier, series| memories.taken(frontier, series as usize);
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
                match step(plan, program, history.head(series), time, at)? {
                    Step::Row { is_gap } => {
                        self.gaps += u64::from(is_gap);
                        break;
                    }
                    Step::Skip { periods, every } => history.skip(series, periods, every),
                    Step::Filler { time } => {
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
            scratch.rows.push(history.row(series, fillers, Some(at as u32)));
        }
        Ok(rows)
    }

    /// Evaluates the batch and passes the requested outputs to `put`.
    fn compute(&mut self, Asked { program, words, emit, .. }: Asked<'_>, put: Put<'_>) {
        let Part { table, history, memories, scratch, .. } = self;
        let Scratch { rows, distances, space, computed, .. } = scratch;
        computed.resize_with(emit.len(), Vec::new);
        history.measure(rows, distances);
        memories.advance(rows, distances, table.len());
        let (fill, is_read) =
            (program.fill.unwrap_or(Fill::Null), emit.contains(&true) || !memories.memories.is_empty());
        history.append(rows, &words.inputs, fill, &memories.marks(distances), is_read);
        history.with_batch(rows, distances, |batch| {
            memories.run(batch, table.len(), emit, computed);
            program.windows.iter().for_each(|windows| windows.run(batch, emit, computed, space));
            program.copies.iter().filter(|copied| emit[copied.function]).for_each(|copied| copied.run(batch, computed));
        });
        let wanted = computed.iter().zip(emit).filter(|(_, wanted)| **wanted);
        put(rows, &mut wanted.map(|(words, _)| words.as_slice()));
        computed.iter_mut().for_each(Vec::clear);
        rows.clear();
        history.next_batch();
    }

    /// Drops all series but that of the last row.
    pub fn keep_last(&mut self) {
        self.resting = Resting::default();
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
