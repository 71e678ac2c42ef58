//! The state of every series, and the rows that pass through it.

use std::sync::Arc;

use arrow::array::ArrayRef;
use forebay_model::{Fault, Result};

use crate::batch::{BATCH_ROWS, Batch, Row};
use crate::gaps::{Step, step};
use crate::history::History;
use crate::keys::Keys;
use crate::program::{Memories, Program, compile};
use crate::table::SeriesTable;
use crate::windows::Workspace;
use crate::{Compute, Function, Keep, Stat, WindowPlan, output, words};

/// A full series ends a batch; below so many rows it is given room to fill the next one.
const SHORT_BATCH_ROWS: usize = BATCH_ROWS / 4;

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
    places: Vec<Vec<u32>>,
    space: Workspace,
    /// Fillers since the last row of any kind.
    fillers: usize,
    /// Whether the next row's series filled the last batch by itself.
    hot: bool,
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
        let keeps = plan.inputs.iter().map(|input| input.keep).collect();
        Engine {
            history: History::new(keeps, program.needs.clone()),
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
        self.history.cool(self.table.last(), |series| self.memories.taken(series as usize));
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

    /// Appends the entries of a batch to their series, from a row on; says where it stopped.
    fn fill(&mut self, from: usize, rows: usize) -> Result<usize> {
        let Engine { plan, program, table, history, memories, scratch, .. } = self;
        let mut hot = std::mem::take(&mut scratch.hot);
        for at in from..rows {
            if scratch.rows.len() == BATCH_ROWS {
                return Ok(at);
            }
            let series = table.resolve(scratch.hashes[at]);
            history.grow(table.len());
            let time = scratch.times[at];
            loop {
                let head = history.head(series);
                let next =
                    if head.count > 0 { step(plan, program, head, time, at)? } else { Step::Row { is_gap: false } };
                if let Step::Skip { periods, every } = next {
                    history.skip(series, periods, every);
                    continue;
                }
                if !history.has_room(series) {
                    if history.is_pending(series) {
                        scratch.hot = scratch.rows.len() < SHORT_BATCH_ROWS;
                        return Ok(at);
                    }
                    history.make_room(series, memories.taken(series as usize), std::mem::take(&mut hot));
                }
                match next {
                    Step::Filler { time, fill } => {
                        history.append_filler(series, time, fill, &program.fillable);
                        scratch.fillers += 1;
                        if scratch.fillers >= BATCH_ROWS {
                            // A row without output now and then, so that its entries are taken.
                            scratch.fillers = 0;
                            scratch.silent.push(scratch.rows.len() as u32);
                            scratch.rows.push(history.row(series));
                        }
                    }
                    Step::Row { is_gap } => {
                        self.gaps += u64::from(is_gap);
                        history.append(series, time, |input| scratch.inputs[input][at]);
                        scratch.rows.push(history.row(series));
                        break;
                    }
                    Step::Skip { .. } => {}
                }
            }
            hot = false;
        }
        Ok(rows)
    }

    /// Computes the rows of the batch.
    fn compute(&mut self, emit: &[bool], outputs: &mut [Vec<u64>]) {
        let Scratch { rows, silent, places, space, .. } = &mut self.scratch;
        let words = self.history.words();
        places.resize_with(self.program.edges.len(), Vec::new);
        for (edge, places) in self.program.edges.iter().zip(places.iter_mut()) {
            edge.places(rows, words, places);
        }
        let batch = Batch { words, rows, places };
        self.memories.run(&batch, self.table.len(), emit, outputs);
        for windows in &self.program.windows {
            windows.run(&batch, emit, outputs, space);
        }
        for copied in self.program.copies.iter().filter(|copied| emit[copied.function]) {
            copied.run(&batch, outputs);
        }
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
        self.history.next_batch();
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
        self.history.keep_only(last, self.memories.taken(last));
        self.memories.keep_only(last);
        self.table.keep_only(last);
    }

    /// How many series it remembers.
    pub fn series(&self) -> usize {
        self.table.len()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let Scratch { hashes, times, inputs, rows, places, space, .. } = &self.scratch;
        let inputs = inputs.iter().map(|words| words.capacity() * 8).sum::<usize>();
        let places = places.iter().map(|places| places.capacity() * 4).sum::<usize>();
        let columns = hashes.capacity() * 16 + times.capacity() * 8 + inputs;
        let scratch = columns + rows.capacity() * size_of::<Row>() + places + space.bytes();
        let state = self.table.bytes() + self.history.bytes() + self.memories.bytes() + self.keys.bytes();
        size_of::<Engine>() + state + scratch
    }

    /// Steps between rows of a series that were not the declared period, with `Gaps::Warn`.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }
}
