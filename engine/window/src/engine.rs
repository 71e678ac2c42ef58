//! The state of every series, and the rows that pass through it.

use std::sync::Arc;

use arrow::array::ArrayRef;
use forebay_model::{Fault, Result};

use crate::batch::{BATCH_ROWS, Row};
use crate::gaps::{Step, step};
use crate::history::History;
use crate::keys::Keys;
use crate::program::{Memories, Program, compile};
use crate::table::SeriesTable;
use crate::windows::Workspace;
use crate::{Compute, Fill, Function, Keep, Stat, WindowPlan, output, words};

/// Missing periods of a series that are filled in at once.
const FILLERS_AT_ONCE: u32 = 256;

/// Rows to push: columns of the plan's logical types in whatever layout (dictionaries, views).
pub struct Rows<'a> {
    /// The key columns.
    pub keys: &'a [ArrayRef],
    /// The time column.
    pub time: &'a ArrayRef,
    /// The inputs, in the plan's order.
    pub inputs: &'a [ArrayRef],
    /// How many rows.
    pub rows: usize,
}

/// What the windows of one step remember of every series.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) plan: Arc<WindowPlan>,
    pub(crate) program: Arc<Program>,
    pub(crate) keys: Keys,
    pub(crate) table: SeriesTable,
    pub(crate) history: History,
    pub(crate) memories: Memories,
    pub(crate) gaps: u64,
    scratch: Scratch,
}

/// What is used again from one push to the next.
#[derive(Debug, Default)]
struct Scratch {
    hashes: Vec<u128>,
    times: Vec<i64>,
    inputs: Vec<Vec<u64>>,
    rows: Vec<Row>,
    /// Rows of the batch that stand for missing periods: nothing comes out for them.
    silent: Vec<u32>,
    distances: Vec<Vec<u32>>,
    space: Workspace,
}

impl Clone for Scratch {
    fn clone(&self) -> Self {
        Scratch::default()
    }
}

impl Engine {
    /// No series yet.
    pub fn new(plan: Arc<WindowPlan>) -> Self {
        let (program, memories) = compile(&plan);
        Engine {
            history: History::new(&program),
            program: Arc::new(program),
            keys: Keys::default(),
            table: SeriesTable::default(),
            memories,
            gaps: 0,
            scratch: Scratch::default(),
            plan,
        }
    }

    /// Takes rows and gives the outputs of those functions for which `emit` is true, in the
    /// plan's order. A row whose time lies before that of an earlier row of its series is a fault
    /// with the code `OUT_OF_ORDER`; the engine is not usable after a fault.
    pub fn push(&mut self, rows: &Rows<'_>, emit: &[bool]) -> Result<Vec<ArrayRef>> {
        self.plan.check()?;
        self.read(rows, emit)?;
        let mut outputs: Vec<Vec<u64>> =
            emit.iter().map(|&wanted| Vec::with_capacity(if wanted { rows.rows } else { 0 })).collect();
        let mut at = 0;
        while at < rows.rows {
            at = self.fill(at, rows.rows)?;
            self.compute(emit, &mut outputs);
        }
        let outputs = outputs.into_iter().zip(&self.plan.functions).zip(emit).filter(|(_, wanted)| **wanted);
        outputs
            .map(|((words, function), _)| output::column(words, self.keep_of(function), &function.data_type))
            .collect()
    }

    /// Brings the columns into the forms that are computed with.
    fn read(&mut self, rows: &Rows<'_>, emit: &[bool]) -> Result<()> {
        let plan = &self.plan;
        let expected = (plan.keys.len(), plan.inputs.len(), plan.functions.len());
        let columns = rows.keys.iter().chain(rows.inputs).chain([rows.time]);
        if (rows.keys.len(), rows.inputs.len(), emit.len()) != expected
            || columns.into_iter().any(|column| column.len() != rows.rows)
        {
            return Err(Fault::internal("rows that do not fit their plan"));
        }
        let scratch = &mut self.scratch;
        self.keys.hash(rows.keys, rows.rows, &mut scratch.hashes)?;
        words::times(rows.time, &mut scratch.times)?;
        scratch.inputs.resize_with(rows.inputs.len(), Vec::new);
        for ((column, input), words) in rows.inputs.iter().zip(&plan.inputs).zip(&mut scratch.inputs) {
            input.keep.words(column, words)?;
        }
        Ok(())
    }

    /// Finds the series of the rows of a batch, from a row on; says where it stopped.
    fn fill(&mut self, from: usize, rows: usize) -> Result<usize> {
        let Engine { plan, program, table, history, memories, scratch, .. } = self;
        let taken = |frontier, series| memories.taken(frontier, series as usize);
        for at in from..rows {
            if scratch.rows.len() == BATCH_ROWS {
                return Ok(at);
            }
            let series = table.resolve(scratch.hashes[at]);
            history.grow(table.len());
            let time = scratch.times[at];
            let mut fillers = 0;
            while history.head(series).count > 0 {
                match step(plan, program, history.head(series), time, at)? {
                    Step::Row { is_gap } => {
                        self.gaps += u64::from(is_gap);
                        break;
                    }
                    Step::Skip { periods, every } => history.skip(series, periods, every),
                    Step::Filler { time } => {
                        history.push(series, time, taken);
                        fillers += 1;
                        if fillers == FILLERS_AT_ONCE {
                            // A row without output, so that what waits for its entries takes them.
                            scratch.silent.push(scratch.rows.len() as u32);
                            scratch.rows.push(history.row(series, fillers, None));
                            fillers = 0;
                        }
                    }
                }
            }
            history.push(series, time, taken);
            scratch.rows.push(history.row(series, fillers, Some(at as u32)));
        }
        Ok(rows)
    }

    /// Computes the rows of the batch.
    fn compute(&mut self, emit: &[bool], outputs: &mut [Vec<u64>]) {
        let Engine { program, table, history, memories, scratch, .. } = self;
        let Scratch { rows, silent, distances, space, .. } = scratch;
        history.measure(rows, distances);
        memories.advance(rows, distances, table.len());
        history.append(rows, &scratch.inputs, program.fill.unwrap_or(Fill::Null), &memories.marks(distances));
        history.with_batch(rows, distances, |batch| {
            memories.run(batch, table.len(), emit, outputs);
            program.windows.iter().for_each(|windows| windows.run(batch, emit, outputs, space));
            program.copies.iter().filter(|copied| emit[copied.function]).for_each(|copied| copied.run(batch, outputs));
        });
        if !silent.is_empty() {
            for (output, _) in outputs.iter_mut().zip(emit).filter(|(_, wanted)| **wanted) {
                let start = output.len() - rows.len();
                silent.iter().rev().for_each(|&row| {
                    output.remove(start + row as usize);
                });
            }
            silent.clear();
        }
        rows.clear();
        history.next_batch();
    }

    /// How the output of a function is kept.
    fn keep_of(&self, function: &Function) -> Keep {
        let copies = match &function.compute {
            Compute::LastValidTime { .. } => return Keep::Bits,
            Compute::Window { stat, .. } => matches!(stat, Stat::First | Stat::Last),
            Compute::Lag { .. } | Compute::Diff { .. } | Compute::LastValid { .. } => true,
            Compute::PctChange { .. } | Compute::Ewm { .. } | Compute::SeasonalIndex { .. } => false,
        };
        if copies { self.plan.inputs[function.input].keep } else { Keep::Number }
    }

    /// Forgets all series but that of the last row: for rows that come series by series.
    pub fn keep_last(&mut self) {
        if self.table.len() < 2 {
            return;
        }
        let last = self.table.last() as usize;
        self.history.keep_only(last);
        self.memories.keep_only(last);
        self.table.keep_only(last);
    }

    /// How many series it remembers.
    pub fn series(&self) -> usize {
        self.table.len()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let Scratch { hashes, times, inputs, rows, distances, space, .. } = &self.scratch;
        let inputs = inputs.iter().map(|words| words.capacity() * 8).sum::<usize>();
        let distances = distances.iter().map(|distances| distances.capacity() * 4).sum::<usize>();
        let columns = hashes.capacity() * 16 + times.capacity() * 8 + inputs;
        let scratch = columns + rows.capacity() * size_of::<Row>() + distances + space.bytes();
        let state = self.table.bytes() + self.history.bytes() + self.memories.bytes() + self.keys.bytes();
        size_of::<Engine>() + state + scratch
    }

    /// Steps between rows of a series that were not the declared period, with `Gaps::Warn`.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }
}
