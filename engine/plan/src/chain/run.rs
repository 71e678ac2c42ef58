//! Execution of a chain: a register machine over the columns of chunks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{FilterBuilder, FilterPredicate};
use forebay_model::{
    AnalyzerInput, Chunk, Fault, Result, RowChange, RowKeys, catch_panic, catch_panic_at,
    long_value_bytes, take_rows, taken_bytes,
};
use forebay_window::InputRows;

use super::lost_values::LostValues;
use super::{
    ChainAction, ChainInstruction, ChainPath, JoinOutputs, OpChain, RowCounts, WindowAction,
};
use crate::carry::TakenOutputs;
use crate::kernel_memory::{ADMITTED_BYTES_MIN, admit_output, settle_output, with_admission};
use crate::op::{ExpandedRows, RowMark, ValueCount};
use crate::stop_check::with_stop_check;
use crate::tried_values::count_tried;
use crate::{Carry, OpId};

impl OpChain {
    /// Runs over consecutive chunks. `give` receives the columns of each tap. With windows, chunks must come in
    /// order, together with their `carry`.
    pub fn run(
        &self,
        chunks: &[Chunk],
        carry: &mut Carry,
        give: &mut dyn FnMut(usize, AnalyzerInput<'_>) -> Result<()>,
    ) -> Result<RowCounts> {
        self.within_run(|| self.run_on(&self.full, chunks, carry, give))
    }

    /// Advances the window state over chunks without computing outputs.
    pub fn advance(&self, chunks: &[Chunk], carry: &mut Carry) -> Result<()> {
        self.within_run(|| self.run_on(&self.light, chunks, carry, &mut |_, _| Ok(())))?;
        Ok(())
    }

    /// Takes the outputs of joins for the next rows, which an earlier pass has computed: those of all columns.
    pub fn take_joined(
        &self,
        rows: usize,
        carry: &mut Carry,
    ) -> Result<BTreeMap<OpId, TakenOutputs>> {
        self.within_run(|| {
            let mut joined = BTreeMap::new();
            for instruction in &self.full.instructions {
                let ChainAction::Given {
                    op,
                    writes,
                    join: Some(_),
                    ..
                } = &instruction.step.action
                else {
                    continue;
                };
                let outputs = carry.take_precomputed(*op, rows, &vec![true; writes.len()]);
                let outputs = outputs.map_err(|fault| instruction.locate(fault, None))?;
                joined.insert(*op, outputs);
            }
            Ok(joined)
        })
    }

    /// Calls `work` with the end and the memory of the run, which kernels ask for.
    fn within_run<T>(&self, work: impl FnOnce() -> T) -> T {
        with_stop_check(self.check_stop.as_ref(), || {
            with_admission(self.admit.as_ref(), work)
        })
    }

    /// Like `run`, for a given path: chunks contain the columns of that path.
    fn run_on(
        &self,
        path: &ChainPath,
        chunks: &[Chunk],
        carry: &mut Carry,
        give: &mut dyn FnMut(usize, AnalyzerInput<'_>) -> Result<()>,
    ) -> Result<RowCounts> {
        let mut states: Vec<ChunkRegisters> = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            states.push(ChunkRegisters::new(self.registers, path, chunk));
        }
        let mut changed = vec![0u64; path.counters];
        for instruction in &path.instructions {
            if let ChainAction::Window(window) = &instruction.step.action {
                instruction.run_window(window, &mut states, chunks, carry)?;
                let changed = &mut changed[instruction.counters()];
                for state in &states {
                    state.count_lost(&window.writes, &window.lost_values, changed);
                }
                continue;
            }
            let changed = &mut changed[instruction.counters()];
            for (state, chunk) in states.iter_mut().zip(chunks) {
                let done = catch_panic_at(
                    |fault| fault.note(row_range_note(chunk)),
                    || {
                        if self.admit.is_some() {
                            instruction.admit_outputs(state)?;
                        }
                        instruction.run(state, carry, changed, give)
                    },
                );
                settle_output();
                done.map_err(|fault| instruction.locate_rows(fault, state, chunk))?;
            }
        }
        let mut counts = RowCounts::default();
        for state in &states {
            counts.add(&state.counts);
        }
        self.count_read(chunks, &mut counts);
        for instruction in &path.instructions {
            let changed = &changed[instruction.counters()];
            let step = &instruction.step;
            for (change, count) in step.changes.iter().zip(changed) {
                let column = change.column.as_deref();
                let label = change.step.as_ref().unwrap_or(&step.label);
                counts
                    .changes
                    .record_values(label, column, change.change, *count);
            }
        }
        Ok(counts)
    }

    /// Counts the rows and values that the source left out.
    fn count_read(&self, chunks: &[Chunk], counts: &mut RowCounts) {
        let skipped = chunks.iter().map(|chunk| chunk.skipped).sum();
        counts.changes.record("", RowChange::Skipped, skipped);
        for chunk in chunks {
            for values in &chunk.unfit {
                counts.changes.record_unfit(&self.source, values);
            }
        }
    }
}

/// Columns that a window reads of one chunk.
struct WindowColumns {
    keys: Vec<ArrayRef>,
    time: ArrayRef,
    inputs: Vec<ArrayRef>,
}

impl WindowAction {
    /// Runs over consecutive chunks. A fault comes with the index of its chunk.
    fn run(
        &self,
        chunks: &mut [ChunkRegisters],
        carry: &mut Carry,
        dead: &[usize],
    ) -> Result<(), (usize, Fault)> {
        let mut columns = Vec::with_capacity(chunks.len());
        for chunk in chunks.iter() {
            columns.push(self.columns(chunk).map_err(|fault| (0, fault))?);
        }
        let mut batches = Vec::with_capacity(chunks.len());
        for (columns, chunk) in columns.iter().zip(chunks.iter()) {
            batches.push(InputRows {
                keys: &columns.keys,
                time: &columns.time,
                inputs: &columns.inputs,
                rows: chunk.rows,
            });
        }
        let outputs = carry.push(self.op, &self.plan, self.row_order, &batches, &self.emit)?;
        if let Some(chunk) = chunks.first_mut() {
            // Windows over the same series meet the same rows.
            chunk.counts.duplicates = chunk.counts.duplicates.max(carry.duplicates());
        }
        let registers = requested_registers(&self.writes, &self.emit);
        for (number, (chunk, outputs)) in chunks.iter_mut().zip(outputs).enumerate() {
            chunk.mark_unfound(&outputs, &self.emit, &self.nullable);
            store(&mut chunk.registers, &registers, outputs, chunk.rows)
                .map_err(|fault| (number, fault))?;
            clear(&mut chunk.registers, dead);
        }
        Ok(())
    }

    fn columns(&self, chunk: &ChunkRegisters) -> Result<WindowColumns> {
        Ok(WindowColumns {
            keys: load(&chunk.registers, &self.keys)?,
            time: load_column(&chunk.registers, self.time)?,
            inputs: load(&chunk.registers, &self.inputs)?,
        })
    }
}

/// True if a column has a value.
fn holds_value(column: &ArrayRef) -> bool {
    column.logical_null_count() < column.len()
}

/// A note with the rows of a chunk in which a panic occurred.
fn row_range_note(chunk: &Chunk) -> String {
    let end = chunk.first_row + (chunk.batch.num_rows() as u64).saturating_sub(1);
    format!(
        "it occurred at one of the rows {} to {end} of the file",
        chunk.first_row
    )
}

/// Registers and counts of a chunk between two instructions.
struct ChunkRegisters {
    registers: Vec<Option<ArrayRef>>,
    rows: usize,
    keys: Option<RowKeys>,
    counts: RowCounts,
    /// Rows for which a window found no value; `None` where there are none.
    unfound: Option<BooleanBuffer>,
}

impl ChunkRegisters {
    /// The state before the first instruction.
    fn new(registers: usize, path: &ChainPath, chunk: &Chunk) -> ChunkRegisters {
        let rows = chunk.batch.num_rows();
        let mut state = ChunkRegisters {
            registers: vec![None; registers],
            rows,
            keys: chunk.keys.clone(),
            counts: RowCounts {
                input: rows as u64 + chunk.skipped,
                filtered: chunk.skipped,
                ..RowCounts::default()
            },
            unfound: None,
        };
        for (register, column) in path.registers.iter().zip(chunk.batch.columns()) {
            state.registers[*register] = Some(column.clone());
        }
        state
    }

    /// Marks the rows for which all outputs of a step's window are null.
    fn mark_unfound(&mut self, outputs: &[ArrayRef], emit: &[bool], nullable: &[Option<OpId>]) {
        let mut emitted_steps = Vec::with_capacity(outputs.len());
        for (step, is_emitted) in nullable.iter().zip(emit) {
            if *is_emitted {
                emitted_steps.push(*step);
            }
        }
        // Outputs of a step follow each other.
        let mut step: Option<OpId> = None;
        let mut with_value: Option<BooleanBuffer> = None;
        for (output, output_step) in outputs.iter().zip(emitted_steps) {
            let Some(output_step) = output_step else {
                continue;
            };
            if step != Some(output_step) {
                self.add_unfound(with_value.take());
                step = Some(output_step);
            } else if with_value.is_none() {
                // An output before it has a value in each row.
                continue;
            }
            with_value = match (output.nulls(), with_value) {
                (Some(nulls), _) if nulls.null_count() == 0 => None,
                (Some(nulls), Some(with_value)) => Some(&with_value | nulls.inner()),
                (Some(nulls), None) => Some(nulls.inner().clone()),
                (None, _) => None,
            };
        }
        self.add_unfound(with_value);
    }

    /// Marks the rows in which no output of a window has a value.
    fn add_unfound(&mut self, with_value: Option<BooleanBuffer>) {
        let Some(with_value) = with_value else {
            return;
        };
        if with_value.count_set_bits() == with_value.len() {
            return;
        }
        let unfound = !&with_value;
        self.unfound = Some(match &self.unfound {
            Some(earlier) => earlier | &unfound,
            None => unfound,
        });
    }

    /// Converts the row numbers of a fault to those of the chunk's file. Row numbers are dropped if rows were
    /// filtered or expanded before.
    fn of_file(&self, chunk: &Chunk, fault: Fault) -> Fault {
        let is_whole = self.counts.filtered == chunk.skipped && self.counts.expanded == 0;
        fault.map_rows(|row| is_whole.then_some(chunk.first_row + row))
    }
}

impl ChainInstruction {
    /// Fails if there is no memory for what an operation makes of large inputs: texts may be joined to longer ones, and
    /// grow from step to step. Texts of a dictionary count for each row that has them.
    fn admit_outputs(&self, state: &ChunkRegisters) -> Result<()> {
        let ChainAction::Map { reads, .. } = &self.step.action else {
            return Ok(());
        };
        let mut bytes = 0;
        for read in reads {
            if let Some(column) = &state.registers[*read] {
                bytes += column.get_buffer_memory_size() + long_value_bytes(column);
            }
        }
        if bytes < ADMITTED_BYTES_MIN {
            return Ok(());
        }
        // The output may be twice as long, and its buffer twice as large while it grows.
        admit_output(2 * bytes)
    }

    /// Runs over one chunk. Windows run over several chunks at once instead.
    fn run(
        &self,
        state: &mut ChunkRegisters,
        carry: &mut Carry,
        changed: &mut [u64],
        give: &mut dyn FnMut(usize, AnalyzerInput<'_>) -> Result<()>,
    ) -> Result<()> {
        match &self.step.action {
            ChainAction::Map { .. } => self.run_map(state, changed)?,
            ChainAction::Window(_) => {
                // Windows take several chunks at once: decisions/series-locality.md.
                return Err(Fault::internal("a window received a single chunk"));
            }
            ChainAction::Given { .. } => self.take_given(state, carry, changed)?,
            ChainAction::Keep { kernel, reads } => {
                let condition = kernel(&load(&state.registers, reads)?, state.rows)?;
                // Registers are cleared before they are filtered: a column that only the condition
                // reads is not copied.
                clear(&mut state.registers, &self.dead);
                let removed = state.keep_rows(&condition_mask(&condition)?)?;
                for changed in changed {
                    *changed += removed;
                }
            }
            ChainAction::Expand {
                kernel,
                reads,
                writes,
            } => {
                let ExpandedRows { picks, columns } =
                    kernel(&load(&state.registers, reads)?, state.rows)?;
                clear(&mut state.registers, &self.dead);
                if let [empty, exploded] = changed {
                    let picked = count_distinct(picks.values());
                    *empty += (state.rows - picked) as u64;
                    *exploded += (picks.len() - picked) as u64;
                }
                state.pick_rows(&picks)?;
                store(&mut state.registers, writes, columns, state.rows)?;
            }
            ChainAction::Give {
                want,
                reads,
                part,
                marks_unfound,
            } => {
                let mut columns = load(&state.registers, reads)?;
                // Marks of rows without history travel as one more column behind those of the
                // analyzer.
                if *marks_unfound && let Some(marked) = &state.unfound {
                    columns.push(Arc::new(BooleanArray::new(marked.clone(), None)));
                }
                state.give_rows(*want, columns, *part, give)?;
                clear(&mut state.registers, &self.dead);
            }
        }
        Ok(())
    }

    /// Computes columns of one chunk.
    fn run_map(&self, state: &mut ChunkRegisters, changed: &mut [u64]) -> Result<()> {
        let ChainAction::Map {
            kernel,
            reads,
            writes,
            marks,
            value_counts,
            lost_values,
            counts_casts,
            join,
        } = &self.step.action
        else {
            return Ok(());
        };
        let inputs = load(&state.registers, reads)?;
        let (outputs, tried) = count_tried(|| kernel(&inputs, state.rows));
        let mut outputs = outputs?;
        if let Some(bit) = join
            && state.rows > 0
        {
            // Marks follow the columns.
            let has_value = outputs.iter().take(writes.len()).any(holds_value);
            state.counts.joins.record(*bit, has_value);
        }
        // A kernel returns its marks after the columns that it writes (`MapOp::marks`).
        let marked = outputs.split_off(outputs.len().min(writes.len()));
        let (of_marks, of_values) = changed.split_at_mut(marks.len());
        count_marks(&mut state.counts, marks, marked, of_marks)?;
        let (of_named, of_lost) = of_values.split_at_mut(value_counts.len());
        count_values(value_counts, &inputs, &outputs, of_named)?;
        for (lost, changed) in lost_values.iter().zip(of_lost.iter_mut()) {
            *changed += lost.count(&inputs, &outputs);
        }
        if *counts_casts && let Some(changed) = of_lost.last_mut() {
            *changed += tried;
        }
        store(&mut state.registers, writes, outputs, state.rows)?;
        // Registers that no later instruction reads are freed here, so that chunks of long
        // chains stay small and later filters copy less.
        clear(&mut state.registers, &self.dead);
        Ok(())
    }

    /// Takes the columns that an earlier pass has computed for the rows of one chunk.
    fn take_given(
        &self,
        state: &mut ChunkRegisters,
        carry: &mut Carry,
        changed: &mut [u64],
    ) -> Result<()> {
        let ChainAction::Given {
            op,
            writes,
            emit,
            nullable,
            lost_values,
            join,
        } = &self.step.action
        else {
            return Ok(());
        };
        let precomputed = carry.take_precomputed(*op, state.rows, emit)?;
        if let Some(join) = join
            && state.rows > 0
        {
            let has_flag = join.has_flag && emit.first() == Some(&true);
            state.count_matches(join, &precomputed, has_flag, changed)?;
        }
        state.mark_unfound(&precomputed.columns, emit, nullable);
        let requested = requested_registers(writes, emit);
        store(
            &mut state.registers,
            &requested,
            precomputed.columns,
            state.rows,
        )?;
        state.count_lost(writes, lost_values, changed);
        Ok(())
    }

    /// Counters of the action's changes among those of the path.
    fn counters(&self) -> Range<usize> {
        self.first_counter..self.first_counter + self.step.changes.len()
    }

    /// Runs a window over consecutive chunks.
    fn run_window(
        &self,
        window: &WindowAction,
        states: &mut [ChunkRegisters],
        chunks: &[Chunk],
        carry: &mut Carry,
    ) -> Result<()> {
        let outcome = match catch_panic(|| Ok(window.run(states, carry, &self.dead))) {
            Ok(outcome) => outcome,
            Err(fault) => Err((0, fault)),
        };
        let Err((number, fault)) = outcome else {
            return Ok(());
        };
        let Some((state, chunk)) = states.get(number).zip(chunks.get(number)) else {
            return Err(self.locate(fault, None));
        };
        Err(self.locate(state.of_file(chunk, fault), Some(chunk)))
    }

    /// Adds the step and the file to a fault. Kernels of maps count rows from the begin of the chunk, and so do analyzers.
    fn locate_rows(&self, fault: Fault, state: &ChunkRegisters, chunk: &Chunk) -> Fault {
        let is_of_map = matches!(&self.step.action, ChainAction::Map { .. });
        if is_of_map || fault.has_input_rows() {
            return self.locate(state.of_file(chunk, fault), Some(chunk));
        }
        self.locate(fault, Some(chunk))
    }

    /// Adds the step and the file to a fault.
    fn locate(&self, fault: Fault, chunk: Option<&Chunk>) -> Fault {
        let fault = fault.step(&*self.step.label).at(self.step.at.as_ref());
        match chunk {
            Some(chunk) => fault.file(&*chunk.file),
            None => fault,
        }
    }
}

impl ChunkRegisters {
    /// Counts the rows of a join, and those of them without a match.
    fn count_matches(
        &mut self,
        join: &JoinOutputs,
        outputs: &TakenOutputs,
        has_flag: bool,
        changed: &mut [u64],
    ) -> Result<()> {
        let unmatched = match outputs.columns.first() {
            Some(flag) if has_flag => {
                let matched = condition_mask(std::slice::from_ref(flag))?;
                Some((self.rows - matched.true_count()) as u64)
            }
            _ => outputs.unmatched,
        };
        let is_met = match unmatched {
            Some(unmatched) => unmatched < self.rows as u64,
            None => outputs.columns.iter().any(holds_value),
        };
        self.counts.joins.record(join.bit, is_met);
        if join.counts_unmatched {
            for changed in changed {
                *changed += unmatched.unwrap_or_default();
            }
        }
        Ok(())
    }

    /// Counts the values that a window loses. Outputs that no operation reads are not there.
    fn count_lost(&self, writes: &[usize], lost_values: &[LostValues], changed: &mut [u64]) {
        for (lost, changed) in lost_values.iter().zip(changed) {
            let register = writes.get(lost.output).copied();
            let column = register.and_then(|register| self.registers[register].as_ref());
            *changed += column.map_or(0, |column| lost.count_in_window(column));
        }
    }

    /// Keeps the rows of a mask; returns the number of the others.
    fn keep_rows(&mut self, mask: &BooleanArray) -> Result<u64> {
        let kept_rows = mask.true_count();
        let removed = (self.rows - kept_rows) as u64;
        self.counts.filtered += removed;
        if removed == 0 {
            return Ok(0);
        }
        let predicate = FilterBuilder::new(mask).optimize().build();
        for column in self.registers.iter_mut().flatten() {
            *column = predicate.filter(column)?;
        }
        self.keys = self.keys.as_ref().map(|keys| keys.filter(mask));
        if let Some(marked) = self.unfound.take() {
            let marked = predicate.filter(&BooleanArray::new(marked, None))?;
            self.unfound = Some(marked.as_boolean().values().clone());
        }
        self.rows = kept_rows;
        Ok(removed)
    }

    /// Replaces the rows by copies of them: `picks` are the numbers of the copied rows.
    fn pick_rows(&mut self, picks: &UInt32Array) -> Result<()> {
        let columns = self.registers.iter().flatten();
        admit_output(columns.map(|column| taken_bytes(column, picks)).sum())?;
        for column in self.registers.iter_mut().flatten() {
            *column = take_rows(column, picks)?;
        }
        if let Some(marked) = self.unfound.take() {
            let marked: ArrayRef = Arc::new(BooleanArray::new(marked, None));
            self.unfound = Some(take_rows(&marked, picks)?.as_boolean().values().clone());
        }
        // The key of an expanded row is made of the key of its row and its number among the rows of
        // that row: it does not depend on the division into chunks.
        if let Some(keys) = &self.keys {
            self.keys = Some(keys.expand(numbered_copies(picks.values())));
        }
        self.counts.expanded += picks.len() as i64 - self.rows as i64;
        self.rows = picks.len();
        Ok(())
    }

    /// Gives columns to an analyzer, of all rows or of those of a part.
    fn give_rows(
        &self,
        want: usize,
        columns: Vec<ArrayRef>,
        part: Option<usize>,
        give: &mut dyn FnMut(usize, AnalyzerInput<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(part) = part else {
            let input = AnalyzerInput {
                columns: &columns,
                rows: self.rows,
                keys: self.keys.as_ref().map(RowKeys::as_slice),
            };
            return give(want, input);
        };
        let mask = condition_mask(&load(&self.registers, &[part])?)?;
        let predicate = FilterBuilder::new(&mask).build();
        let columns = filter_all(&predicate, &columns)?;
        let keys = self.keys.as_ref().map(|keys| keys.filter(&mask));
        let input = AnalyzerInput {
            columns: &columns,
            rows: mask.true_count(),
            keys: keys.as_ref().map(RowKeys::as_slice),
        };
        give(want, input).map_err(|fault| {
            if !fault.has_input_rows() {
                return fault;
            }
            // The input has the rows of the part alone.
            fault.map_rows(|row| {
                let mut rows = mask.values().set_indices();
                rows.nth(row as usize).map(|row| row as u64)
            })
        })
    }
}

/// Counts the rows that a kernel has marked.
fn count_marks(
    counts: &mut RowCounts,
    marks: &[RowMark],
    marked: Vec<ArrayRef>,
    changed: &mut [u64],
) -> Result<()> {
    if marked.len() != marks.len() {
        let message = "a kernel marked other rows than it declared";
        return Err(Fault::internal(message));
    }
    for ((mark, column), changed) in marks.iter().zip(marked).zip(changed) {
        let rows = condition_mask(&[column])?.true_count() as u64;
        counts.count_marked(*mark, rows);
        *changed += rows;
    }
    Ok(())
}

/// Counts the values that an operation has changed. Columns of other paths are not there.
fn count_values(
    value_counts: &[ValueCount],
    inputs: &[ArrayRef],
    outputs: &[ArrayRef],
    changed: &mut [u64],
) -> Result<()> {
    for (count, changed) in value_counts.iter().zip(changed) {
        let Some(column_before) = inputs.get(count.before) else {
            continue;
        };
        let Some(column_after) = outputs.get(count.after) else {
            continue;
        };
        *changed += (count.count)(column_before, column_after)?;
    }
    Ok(())
}

/// For each copy of a row, the row and the number of the copy among those of the row.
fn numbered_copies(picks: &[u32]) -> impl Iterator<Item = (usize, u64)> {
    let mut last = (u32::MAX, 0);
    picks.iter().map(move |pick| {
        let number = if last.0 == *pick { last.1 + 1 } else { 0 };
        last = (*pick, number);
        (*pick as usize, number)
    })
}

/// Distinct values of a list in ascending order.
fn count_distinct(picks: &[u32]) -> usize {
    let steps = picks.windows(2).filter(|pair| pair[0] != pair[1]).count();
    steps + usize::from(!picks.is_empty())
}

/// Registers of the requested outputs.
fn requested_registers(writes: &[usize], emit: &[bool]) -> Vec<usize> {
    let mut registers = Vec::with_capacity(writes.len());
    for (register, is_requested) in writes.iter().zip(emit) {
        if *is_requested {
            registers.push(*register);
        }
    }
    registers
}

fn load(registers: &[Option<ArrayRef>], indices: &[usize]) -> Result<Vec<ArrayRef>> {
    let mut columns = Vec::with_capacity(indices.len());
    for index in indices {
        columns.push(load_column(registers, *index)?);
    }
    Ok(columns)
}

fn load_column(registers: &[Option<ArrayRef>], index: usize) -> Result<ArrayRef> {
    match &registers[index] {
        Some(column) => Ok(column.clone()),
        None => Err(Fault::internal("a register was read before it was written")),
    }
}

fn store(
    registers: &mut [Option<ArrayRef>],
    indices: &[usize],
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<()> {
    if columns.len() != indices.len() || columns.iter().any(|column| column.len() != rows) {
        return Err(Fault::internal(
            "a kernel returned other columns or rows than it declared",
        ));
    }
    for (index, column) in indices.iter().zip(columns) {
        registers[*index] = Some(column);
    }
    Ok(())
}

fn clear(registers: &mut [Option<ArrayRef>], dead: &[usize]) {
    for register in dead {
        registers[*register] = None;
    }
}

/// A condition's result, with nulls as false.
fn condition_mask(columns: &[ArrayRef]) -> Result<BooleanArray> {
    let Some(column) = columns.first() else {
        return Err(Fault::internal("a condition returned no column"));
    };
    let Some(mask) = column.as_boolean_opt() else {
        return Ok(BooleanArray::from(vec![false; column.len()])); // The type `Null`: never true.
    };
    Ok(match mask.nulls() {
        None => mask.clone(),
        Some(nulls) => BooleanArray::new(mask.values() & nulls.inner(), None),
    })
}

fn filter_all(predicate: &FilterPredicate, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    let mut filtered = Vec::with_capacity(columns.len());
    for column in columns {
        filtered.push(predicate.filter(column)?);
    }
    Ok(filtered)
}
