//! The state of every series, and the rows that pass through it.

use std::sync::Arc;

use arrow::array::ArrayRef;
use forebay_model::{Fault, Result};

use crate::arranged::Arranged;
use crate::batch::{BATCH_ROWS, Row};
use crate::gaps::{Step, step};
use crate::history::History;
use crate::keys::Keys;
use crate::output::{Output, straight};
use crate::program::{Memories, Program, compile};
use crate::rest::Rests;
use crate::resting::Resting;
use crate::table::SeriesTable;
use crate::windows::Workspace;
use crate::{Compute, Fill, Function, Keep, Stat, WindowPlan, words};

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
    /// Series whose rows lie back so far that only their bytes are kept.
    pub(crate) resting: Resting,
    pub(crate) rests: Rests,
    pub(crate) gaps: u64,
    scratch: Scratch,
}

/// What is used again from one push to the next.
#[derive(Debug, Default)]
struct Scratch {
    hashes: Vec<u128>,
    times: Vec<i64>,
    inputs: Vec<Vec<u64>>,
    /// The series of each row, and the order in which rows are taken.
    arranged: Arranged,
    rows: Vec<Row>,
    distances: Vec<Vec<u32>>,
    space: Workspace,
    /// The outputs of the rows of a batch.
    computed: Vec<Vec<u64>>,
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
            resting: Resting::default(),
            rests: Rests::default(),
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
        let wanted = self.plan.functions.iter().zip(emit).filter(|(_, wanted)| **wanted);
        let mut outputs: Vec<Output> =
            wanted.map(|(of, _)| Output::new(self.keep_of(of), &of.data_type, rows.rows)).collect();
        let mut taken = 0;
        while taken < rows.rows {
            taken = self.fill(taken, rows.rows)?;
            self.compute(emit, &mut outputs);
        }
        outputs.into_iter().map(Output::column).collect()
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
        let known = self.table.len();
        scratch.arranged.find(&scratch.hashes, &mut self.table);
        self.wake(known)?;
        self.history.grow(self.table.len());
        let Engine { plan, scratch, .. } = self;
        words::times(rows.time, &mut scratch.times)?;
        scratch.inputs.resize_with(rows.inputs.len(), Vec::new);
        for ((column, input), words) in rows.inputs.iter().zip(&plan.inputs).zip(&mut scratch.inputs) {
            input.keep.words(column, words)?;
        }
        Ok(())
    }

    /// Makes a batch of the rows that come after so many; says how many are taken then.
    fn fill(&mut self, taken: usize, rows: usize) -> Result<usize> {
        let Engine { plan, program, history, memories, scratch, .. } = self;
        let waiting = |frontier, series| memories.taken(frontier, series as usize);
        for place in taken..rows {
            if scratch.rows.len() == BATCH_ROWS {
                return Ok(place);
            }
            let (at, series) = scratch.arranged.row(place);
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
                        history.push(series, time, waiting);
                        fillers += 1;
                        if fillers == FILLERS_AT_ONCE {
                            // A row without output, so that what waits for its entries takes them.
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

    /// Computes the rows of the batch, and puts what is wanted where their rows are.
    fn compute(&mut self, emit: &[bool], outputs: &mut [Output]) {
        let Engine { program, table, history, memories, scratch, .. } = self;
        let Scratch { rows, distances, space, computed, .. } = scratch;
        computed.resize_with(emit.len(), Vec::new);
        history.measure(rows, distances);
        memories.advance(rows, distances, table.len());
        let (fill, is_read) =
            (program.fill.unwrap_or(Fill::Null), emit.contains(&true) || !memories.memories.is_empty());
        history.append(rows, &scratch.inputs, fill, &memories.marks(distances), is_read);
        history.with_batch(rows, distances, |batch| {
            memories.run(batch, table.len(), emit, computed);
            program.windows.iter().for_each(|windows| windows.run(batch, emit, computed, space));
            program.copies.iter().filter(|copied| emit[copied.function]).for_each(|copied| copied.run(batch, computed));
        });
        let straight = if outputs.is_empty() { None } else { straight(rows) };
        let wanted = computed.iter_mut().zip(emit).filter(|(_, wanted)| **wanted);
        wanted.zip(outputs).for_each(|((words, _), output)| {
            output.put((rows, straight), words);
            words.clear();
        });
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
        self.resting = Resting::default();
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
        self.table.len() + self.resting.len()
    }

    /// Bytes of what it remembers. What a push needs besides is a few words for each of its rows.
    pub fn bytes(&self) -> usize {
        size_of::<Engine>() + self.awake_bytes() + self.resting.bytes() + self.keys.bytes()
    }

    /// Bytes of what is remembered of series that do not rest.
    pub(crate) fn awake_bytes(&self) -> usize {
        self.table.bytes() + self.history.bytes() + self.memories.bytes()
    }

    /// Steps between rows of a series that were not the declared period, with `Gaps::Warn`.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }
}
