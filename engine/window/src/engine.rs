//! The window engine: the state of every series, and the push of rows through it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use arrow::array::ArrayRef;
use forebay_model::{DuplicateRows, Fault, Result, catch_panic};

use crate::compiled_plan::{CompiledPlan, compile_plan};
use crate::duplicates::PushedRows;
use crate::input_rows::InputRows;
use crate::output::{OutputRows, PushOutput, SharedOutput, contiguous_start};
use crate::partition::{EncodedRows, PushRequest, SeriesPartition};
use crate::series_hash::SeriesHasher;
use crate::value_store::ValueStore;
use crate::{WindowFunction, WindowOutput, WindowPlan, WindowStat, WordEncoding, encoding};

/// Executor of numbered tasks: runs each task once, on any threads. Returns when all are done and the work has been
/// dropped.
pub type ParallelFor = dyn Fn(usize, Arc<dyn Fn(usize) + Send + Sync>) + Send + Sync;

/// Runs the tasks sequentially.
pub fn run_sequentially(pieces: usize, work: Arc<dyn Fn(usize) + Send + Sync>) {
    (0..pieces).for_each(|piece| work(piece));
}

/// Window state of every series for the windows of one step, divided into partitions by the hash of the keys.
#[derive(Debug, Clone)]
pub struct WindowEngine {
    pub(crate) plan: Arc<WindowPlan>,
    program: Arc<CompiledPlan>,
    pub(crate) keys: SeriesHasher,
    /// Partitions of the series, by the hash of their keys.
    pub(crate) parts: Vec<SeriesPartition>,
    /// The values of inputs that are no numbers.
    pub(crate) values: ValueStore,
    /// True if the last push failed because of rows with equal times.
    refused_duplicates: bool,
    /// Buffer reused between pushes.
    words: EncodedRows,
}

/// A push through several partitions in parallel.
struct PartitionedPush {
    plan: Arc<WindowPlan>,
    program: Arc<CompiledPlan>,
    words: EncodedRows,
    emit: Vec<bool>,
    /// Each partition with its result, once its rows are computed.
    parts: Vec<Mutex<(SeriesPartition, Option<Result<()>>)>>,
    outputs: Vec<SharedOutput>,
}

impl PartitionedPush {
    fn run_partition(&self, number: usize) {
        let PartitionedPush {
            plan,
            program,
            words,
            emit,
            parts,
            outputs,
        } = self;
        let request = PushRequest {
            plan,
            program,
            words,
            own: Some(&words.own[number]),
            emit,
        };
        let Ok(mut part) = parts[number].lock() else {
            return;
        };
        let (part, done) = &mut *part;
        let mut row_numbers = Vec::new();
        *done = Some(catch_panic(|| {
            part.push(request, &mut |rows, computed| {
                row_numbers.clear();
                row_numbers.extend(rows.iter().map(|row| row.source.unwrap_or(u32::MAX)));
                for (output, words) in outputs.iter().zip(computed) {
                    output.put(&row_numbers, words);
                }
            })
        }));
    }
}

/// A function whose output is requested, with the encoding of its words.
type EmittedFunction<'a> = (WordEncoding, &'a WindowOutput);

/// Divides encoded rows among partitions.
fn divide_rows(words: &mut EncodedRows, parts: usize) {
    words.own.resize_with(parts, Vec::new);
    for rows in &mut words.own {
        rows.clear();
    }
    for (row, &hash) in words.hashes.iter().enumerate() {
        words.own[partition_of(hash, parts)].push(row as u32);
    }
}

/// Index of the partition of a series.
pub(crate) fn partition_of(hash: u128, parts: usize) -> usize {
    ((hash >> 96) as usize * parts) >> 32
}

impl WindowEngine {
    /// An engine without series.
    pub fn new(plan: Arc<WindowPlan>) -> Self {
        WindowEngine::in_parts(plan, 1)
    }

    /// An engine without series whose partitions can be computed in parallel.
    pub fn in_parts(plan: Arc<WindowPlan>, parts: usize) -> Self {
        let (program, memories) = compile_plan(&plan);
        let parts = (0..parts.max(1))
            .map(|_| SeriesPartition::new(&program, memories.clone()))
            .collect();
        WindowEngine {
            program: Arc::new(program),
            keys: SeriesHasher::default(),
            parts,
            values: ValueStore::default(),
            refused_duplicates: false,
            words: EncodedRows::default(),
            plan,
        }
    }

    /// Pushes rows and returns the outputs of the functions for which `emit` is true, in the plan's order. Fails
    /// with `OUT_OF_ORDER` if a row is earlier than a previous row of its series. The engine is not usable after a
    /// fault.
    pub fn push(&mut self, rows: &InputRows<'_>, emit: &[bool]) -> Result<Vec<ArrayRef>> {
        let outputs = self
            .push_all(std::slice::from_ref(rows), emit, &run_sequentially)
            .map_err(|(_, fault)| fault)?;
        Ok(outputs.into_iter().flatten().collect())
    }

    /// Like `push`, for several consecutive batches: the state of a series is loaded into the caches once for its
    /// rows in all of them. `parallel_for` runs the partitions. A fault comes with the index of its batch.
    pub fn push_all(
        &mut self,
        batches: &[InputRows<'_>],
        emit: &[bool],
        parallel_for: &ParallelFor,
    ) -> Result<Vec<Vec<ArrayRef>>, (usize, Fault)> {
        self.plan.check().map_err(|fault| (0, fault))?;
        if self.values.is_full() {
            self.drop_unused_values().map_err(|fault| (0, fault))?;
        }
        let row_count = batches.iter().map(|rows| rows.rows).sum();
        self.words.clear(row_count, self.plan.inputs.len());
        for (number, rows) in batches.iter().enumerate() {
            self.read(rows, emit).map_err(|fault| (number, fault))?;
        }
        let outputs = self
            .compute(emit, parallel_for)
            .map_err(|fault| locate_batch(batches, fault))?;
        if let Some(fault) = self.refuse_duplicates(batches) {
            self.refused_duplicates = true;
            return Err(locate_batch(batches, fault));
        }
        if batches.len() == 1 {
            return Ok(vec![outputs]);
        }
        let mut first = 0;
        let mut columns_of_batches = Vec::with_capacity(batches.len());
        for rows in batches {
            let columns = outputs.iter().map(|column| column.slice(first, rows.rows));
            columns_of_batches.push(columns.collect());
            first += rows.rows;
        }
        Ok(columns_of_batches)
    }

    /// Number of rows of the last push with the keys and the time of an earlier row. Rows whose
    /// outputs were not requested do not count.
    pub fn duplicates(&self) -> u64 {
        self.parts.iter().map(|part| part.ties).sum()
    }

    /// True if the last push failed because of rows with equal times: another order of rows changes nothing.
    pub fn refused_duplicates(&self) -> bool {
        self.refused_duplicates
    }

    /// The fault for the duplicates of the last push, where they are refused.
    fn refuse_duplicates(&self, batches: &[InputRows<'_>]) -> Option<Fault> {
        if self.plan.duplicates.policy != DuplicateRows::Error {
            return None;
        }
        let first = self.parts.iter().filter_map(|part| part.first_tie).min()?;
        let rows = PushedRows {
            batches,
            hashes: &self.words.hashes,
            times: &self.words.times,
        };
        Some(rows.duplicate_fault(&self.plan, first as usize, self.duplicates()))
    }

    /// Computes the outputs of all rows that were encoded.
    fn compute(&mut self, emit: &[bool], parallel_for: &ParallelFor) -> Result<Vec<ArrayRef>> {
        let plan = self.plan.clone();
        let mut emitted: Vec<EmittedFunction<'_>> = Vec::new();
        for (function, is_emitted) in plan.functions.iter().zip(emit) {
            if *is_emitted {
                emitted.push((output_encoding(&plan, function), function));
            }
        }
        if self.parts.len() == 1 {
            self.compute_alone(emit, &emitted)
        } else {
            self.compute_in_parts(emit, &emitted, parallel_for)
        }
    }

    /// Computes the outputs of the only partition.
    fn compute_alone(
        &mut self,
        emit: &[bool],
        emitted: &[EmittedFunction<'_>],
    ) -> Result<Vec<ArrayRef>> {
        let WindowEngine {
            plan,
            program,
            parts,
            values,
            words,
            ..
        } = self;
        let [part] = parts.as_mut_slice() else {
            return Err(poisoned_partition());
        };
        let rows = words.times.len();
        let mut outputs = Vec::with_capacity(emitted.len());
        for (keep, function) in emitted {
            outputs.push(PushOutput::new(*keep, function, rows));
        }
        let request = PushRequest {
            plan,
            program,
            words,
            own: None,
            emit,
        };
        part.push(request, &mut |rows, computed| {
            let start = if outputs.is_empty() {
                None
            } else {
                contiguous_start(rows)
            };
            for (output, words) in outputs.iter_mut().zip(computed) {
                output.put(OutputRows { rows, start }, words);
            }
        })?;
        let mut columns = Vec::with_capacity(outputs.len());
        for output in outputs {
            columns.push(output.column(values)?);
        }
        Ok(columns)
    }

    /// Computes the outputs of all partitions, in parallel.
    fn compute_in_parts(
        &mut self,
        emit: &[bool],
        emitted: &[EmittedFunction<'_>],
        parallel_for: &ParallelFor,
    ) -> Result<Vec<ArrayRef>> {
        let part_count = self.parts.len();
        let rows = self.words.times.len();
        let mut words = std::mem::take(&mut self.words);
        divide_rows(&mut words, part_count);
        let mut parts = Vec::with_capacity(part_count);
        for part in std::mem::take(&mut self.parts) {
            parts.push(Mutex::new((part, None)));
        }
        let push = Arc::new(PartitionedPush {
            plan: self.plan.clone(),
            program: self.program.clone(),
            words,
            emit: emit.to_vec(),
            parts,
            outputs: emitted.iter().map(|_| SharedOutput::new(rows)).collect(),
        });
        let running = push.clone();
        parallel_for(
            part_count,
            Arc::new(move |part| running.run_partition(part)),
        );
        let Ok(push) = Arc::try_unwrap(push) else {
            return Err(poisoned_partition());
        };
        self.words = push.words;
        for part in push.parts {
            let (part, done) = part.into_inner().map_err(|_| poisoned_partition())?;
            done.ok_or_else(poisoned_partition)??;
            self.parts.push(part);
        }
        let mut columns = Vec::with_capacity(emitted.len());
        for (output, (keep, function)) in push.outputs.into_iter().zip(emitted) {
            columns.push(output.column(*keep, function, &self.values)?);
        }
        Ok(columns)
    }

    /// Encodes the columns of a batch and appends them to the buffer.
    fn read(&mut self, rows: &InputRows<'_>, emit: &[bool]) -> Result<()> {
        let WindowEngine {
            plan,
            keys,
            values,
            words,
            ..
        } = self;
        let expected = (plan.keys.len(), plan.inputs.len(), plan.functions.len());
        let columns = rows.keys.iter().chain(rows.inputs).chain([rows.time]);
        if (rows.keys.len(), rows.inputs.len(), emit.len()) != expected
            || columns.into_iter().any(|column| column.len() != rows.rows)
        {
            return Err(Fault::internal("the columns do not match the window plan"));
        }
        keys.hash(rows.keys, rows.rows, &mut words.hashes)?;
        encoding::append_times(rows.time, &mut words.times)?;
        for ((column, input), words) in rows.inputs.iter().zip(&plan.inputs).zip(&mut words.inputs)
        {
            input.words(column, values, words)?;
        }
        Ok(())
    }

    /// Drops the values that no series holds any more.
    fn drop_unused_values(&mut self) -> Result<()> {
        let mut marks = HashSet::new();
        let mut bytes = Vec::new();
        let mut even_times = Vec::new();
        for part in &self.parts {
            for series in 0..part.table.len() {
                part.encode_series(series, &mut even_times, &mut bytes)?;
                self.values.mark(&bytes, &mut marks);
            }
            for (_, slot) in part.resting.records() {
                self.values.mark(part.resting.bytes_at(slot), &mut marks);
            }
        }
        self.values.retain(&marks);
        Ok(())
    }

    /// Drops the state of all series but that of the last row. For rows that come series by series, with a single
    /// partition.
    pub fn keep_last(&mut self) {
        self.parts.iter_mut().for_each(SeriesPartition::keep_last);
    }

    /// Evicts series to the cold store when the state becomes large compared with `bytes_max`. Short and finished
    /// series then take a small part of their memory. A series is restored with its next row; outputs do not
    /// change.
    pub fn settle(&mut self, bytes_max: usize) -> Result<()> {
        let bytes_max = bytes_max / self.parts.len().max(1);
        self.parts
            .iter_mut()
            .try_for_each(|part| part.settle(bytes_max))
    }

    /// Evicts all series but those with the newest rows; returns how many.
    pub fn rest(&mut self) -> Result<usize> {
        self.parts.iter_mut().map(SeriesPartition::rest).sum()
    }

    /// Number of series, active and evicted.
    pub fn series(&self) -> usize {
        self.parts.iter().map(SeriesPartition::series).sum()
    }

    /// Bytes of state. A push temporarily needs a few words per row in addition.
    pub fn bytes(&self) -> usize {
        size_of::<WindowEngine>()
            + self.parts.iter().map(SeriesPartition::bytes).sum::<usize>()
            + self.keys.bytes()
            + self.values.bytes()
    }

    /// Entries that rolling windows have read for rows that tie: a measure of the cost of many rows
    /// at one time. Decoding or cloning an engine resets the count.
    pub fn tied_entries_read(&self) -> u64 {
        self.parts
            .iter()
            .map(SeriesPartition::tied_entries_read)
            .sum()
    }

    /// Number of steps that differ from the declared period, with `Warn`.
    pub fn gaps(&self) -> u64 {
        self.parts.iter().map(|part| part.gaps).sum()
    }
}

/// Index of the batch that contains the row of a fault; the fault gets the row's index in that batch.
fn locate_batch(batches: &[InputRows<'_>], fault: Fault) -> (usize, Fault) {
    let Some(row) = fault.site().rows.first().copied() else {
        return (0, fault);
    };
    let mut first = 0;
    for (number, rows) in batches.iter().enumerate() {
        let end = first + rows.rows as u64;
        if row < end {
            return (number, fault.map_rows(|row| row.checked_sub(first)));
        }
        first = end;
    }
    (0, fault)
}

fn poisoned_partition() -> Fault {
    Fault::internal("a thread failed while it computed windows")
}

/// Encoding of a function's output.
fn output_encoding(plan: &WindowPlan, function: &WindowOutput) -> WordEncoding {
    let copies = match &function.compute {
        WindowFunction::LastValidTime { .. } => return WordEncoding::Bits,
        WindowFunction::Window { stat, .. } => matches!(stat, WindowStat::First | WindowStat::Last),
        WindowFunction::Lag { .. }
        | WindowFunction::Diff { .. }
        | WindowFunction::LastValid { .. } => true,
        WindowFunction::PctChange { .. }
        | WindowFunction::Ewm { .. }
        | WindowFunction::SeasonalIndex { .. } => false,
    };
    if copies {
        plan.inputs[function.input].keep
    } else {
        WordEncoding::Number
    }
}
