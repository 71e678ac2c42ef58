//! Execution of a chain: a register machine over the columns of chunks.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{FilterBuilder, FilterPredicate};
use forebay_model::{
    AnalyzerInput, Chunk, Fault, Result, RowChange, RowKeys, catch_panic, catch_panic_at, take_rows,
};
use forebay_window::InputRows;

use super::{
    ChainAction, ChainInstruction, ChainPath, JoinOutputs, OpChain, RowCounts, WindowAction,
};
use crate::op::ExpandedRows;
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
        self.run_on(&self.full, chunks, carry, give)
    }

    /// Advances the window state over chunks without computing outputs.
    pub fn advance(&self, chunks: &[Chunk], carry: &mut Carry) -> Result<()> {
        self.run_on(&self.light, chunks, carry, &mut |_, _| Ok(()))
            .map(drop)
    }

    /// Like `run`, for a given path: chunks contain the columns of that path.
    fn run_on(
        &self,
        path: &ChainPath,
        chunks: &[Chunk],
        carry: &mut Carry,
        give: &mut dyn FnMut(usize, AnalyzerInput<'_>) -> Result<()>,
    ) -> Result<RowCounts> {
        let mut states: Vec<ChunkRegisters> = chunks
            .iter()
            .map(|chunk| ChunkRegisters::new(self.registers, path, chunk))
            .collect();
        let mut changed = vec![0u64; path.counters];
        for instruction in &path.instructions {
            let place = |(number, fault): (usize, Fault)| {
                let fault = fault
                    .step(&*instruction.step.label)
                    .at(instruction.step.at.as_ref());
                match chunks.get(number) {
                    Some(chunk) => fault.file(&*chunk.file),
                    None => fault,
                }
            };
            if let ChainAction::Window(window) = &instruction.step.action {
                let done = catch_panic(|| Ok(window.run(&mut states, carry, &instruction.live)));
                done.unwrap_or_else(|fault| Err((0, fault))).map_err(
                    |(number, fault)| match states.get(number).zip(chunks.get(number)) {
                        Some((state, chunk)) => place((number, state.of_file(chunk, fault))),
                        None => place((number, fault)),
                    },
                )?;
                continue;
            }
            let first = instruction.first_counter;
            let changed = &mut changed[first..first + instruction.step.changes.len()];
            for (number, state) in states.iter_mut().enumerate() {
                let among = |fault: Fault| match chunks.get(number) {
                    Some(chunk) => fault.note(row_range_note(chunk)),
                    None => fault,
                };
                let done = catch_panic_at(among, || instruction.run(state, carry, changed, give));
                done.map_err(|fault| place((number, fault)))?;
            }
        }
        let mut counts = RowCounts::default();
        states
            .into_iter()
            .for_each(|state| counts.add(&state.counts));
        let skipped = chunks.iter().map(|chunk| chunk.skipped).sum();
        counts.changes.record("", RowChange::Skipped, skipped);
        for instruction in &path.instructions {
            let first = instruction.first_counter;
            for (change, count) in instruction.step.changes.iter().zip(&changed[first..]) {
                let (step, column) = (&instruction.step.label, change.column.as_deref());
                counts
                    .changes
                    .record_values(step, column, change.change, *count);
            }
        }
        Ok(counts)
    }
}

impl WindowAction {
    /// Runs over consecutive chunks. A fault comes with the index of its chunk.
    fn run(
        &self,
        chunks: &mut [ChunkRegisters],
        carry: &mut Carry,
        live: &[bool],
    ) -> Result<(), (usize, Fault)> {
        let columns = |chunk: &ChunkRegisters| {
            let of = |wanted: &[usize]| load(&chunk.registers, wanted);
            Ok((of(&self.keys)?, of(&[self.time])?, of(&self.inputs)?))
        };
        let columns = chunks
            .iter()
            .map(columns)
            .collect::<Result<Vec<_>>>()
            .map_err(|fault| (0, fault))?;
        let batches =
            columns
                .iter()
                .zip(chunks.iter())
                .filter_map(|((keys, time, inputs), chunk)| {
                    Some(InputRows {
                        keys,
                        time: time.first()?,
                        inputs,
                        rows: chunk.rows,
                    })
                });
        let batches: Vec<InputRows<'_>> = batches.collect();
        let outputs = carry.push(self.op, &self.plan, self.row_order, &batches, &self.emit)?;
        if let Some(chunk) = chunks.first_mut() {
            // Windows over the same series meet the same rows.
            chunk.counts.duplicates = chunk.counts.duplicates.max(carry.duplicates());
        }
        let places = requested_registers(&self.writes, &self.emit);
        for (number, (chunk, outputs)) in chunks.iter_mut().zip(outputs).enumerate() {
            chunk.mark_unfound(&outputs, &self.emit, &self.nullable);
            store(&mut chunk.registers, &places, outputs, chunk.rows)
                .map_err(|fault| (number, fault))?;
            clear(&mut chunk.registers, live);
        }
        Ok(())
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
        let emitted = nullable
            .iter()
            .zip(emit)
            .filter(|(_, emit)| **emit)
            .map(|(step, _)| *step);
        // Outputs of a step follow each other.
        let mut step: Option<OpId> = None;
        let mut found: Option<BooleanBuffer> = None;
        for (output, of) in outputs.iter().zip(emitted) {
            let Some(of) = of else { continue };
            if step != Some(of) {
                self.add_unfound(found.take());
                step = Some(of);
            } else if found.is_none() {
                // An output before it has a value in each row.
                continue;
            }
            found = match (output.nulls(), found) {
                (Some(nulls), _) if nulls.null_count() == 0 => None,
                (Some(nulls), Some(found)) => Some(&found | nulls.inner()),
                (Some(nulls), None) => Some(nulls.inner().clone()),
                (None, _) => None,
            };
        }
        self.add_unfound(found);
    }

    /// Marks the rows in which no output of a window has a value.
    fn add_unfound(&mut self, found: Option<BooleanBuffer>) {
        let Some(found) = found.filter(|found| found.count_set_bits() < found.len()) else {
            return;
        };
        let unfound = !&found;
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
    /// Runs over one chunk. Windows run over several chunks at once instead.
    fn run(
        &self,
        state: &mut ChunkRegisters,
        carry: &mut Carry,
        changed: &mut [u64],
        give: &mut dyn FnMut(usize, AnalyzerInput<'_>) -> Result<()>,
    ) -> Result<()> {
        let ChunkRegisters {
            registers,
            rows,
            keys,
            counts,
            unfound,
        } = state;
        match &self.step.action {
            ChainAction::Map {
                kernel,
                reads,
                writes,
                marks,
                value_counts,
                join,
            } => {
                let inputs = load(registers, reads)?;
                let mut outputs = kernel(&inputs, *rows)?;
                if let Some(bit) = join.filter(|_| *rows > 0) {
                    counts.joins.record(bit, outputs.iter().any(holds_value));
                }
                let marked = outputs.split_off(outputs.len().min(writes.len()));
                if marked.len() != marks.len() {
                    return Err(Fault::internal(
                        "a kernel marked other rows than it declared",
                    ));
                }
                let (of_marks, of_values) = changed.split_at_mut(marks.len());
                for ((mark, column), changed) in marks.iter().zip(marked).zip(of_marks) {
                    let rows = condition_mask(&[column])?.true_count() as u64;
                    counts.count_marked(*mark, rows);
                    *changed += rows;
                }
                for (count, changed) in value_counts.iter().zip(of_values) {
                    let (before, after) = (inputs.get(count.before), outputs.get(count.after));
                    if let (Some(before), Some(after)) = (before, after) {
                        *changed += (count.count)(before, after)?;
                    }
                }
                store(registers, writes, outputs, *rows)?;
                clear(registers, &self.live);
            }
            ChainAction::Window(_) => {
                return Err(Fault::internal("a window received a single chunk"));
            }
            ChainAction::Given {
                op,
                writes,
                emit,
                nullable,
                join,
            } => {
                let outputs = carry.take_precomputed(*op, *rows, emit)?;
                if let Some(JoinOutputs { bit, has_flag }) = join.filter(|_| *rows > 0) {
                    let is_met = match outputs.first().filter(|_| has_flag) {
                        Some(flag) => condition_mask(std::slice::from_ref(flag))?.true_count() > 0,
                        None => outputs.iter().any(holds_value),
                    };
                    counts.joins.record(bit, is_met);
                }
                state.mark_unfound(&outputs, emit, nullable);
                store(
                    &mut state.registers,
                    &requested_registers(writes, emit),
                    outputs,
                    state.rows,
                )?;
            }
            ChainAction::Keep { kernel, reads } => {
                let mask = condition_mask(&kernel(&load(registers, reads)?, *rows)?)?;
                clear(registers, &self.live);
                let kept = mask.true_count();
                let removed = (*rows - kept) as u64;
                counts.filtered += removed;
                changed.iter_mut().for_each(|changed| *changed += removed);
                if kept < *rows {
                    let predicate = FilterBuilder::new(&mask).optimize().build();
                    for column in registers.iter_mut().flatten() {
                        *column = predicate.filter(column)?;
                    }
                    *keys = keys.as_ref().map(|keys| keys.filter(&mask));
                    if let Some(marked) = unfound.take() {
                        let marked = predicate.filter(&BooleanArray::new(marked, None))?;
                        *unfound = Some(marked.as_boolean().values().clone());
                    }
                    *rows = kept;
                }
            }
            ChainAction::Expand {
                kernel,
                reads,
                writes,
            } => {
                let ExpandedRows { picks, columns } = kernel(&load(registers, reads)?, *rows)?;
                clear(registers, &self.live);
                for column in registers.iter_mut().flatten() {
                    *column = take_rows(column, &picks)?;
                }
                if let Some(marked) = unfound.take() {
                    let marked: ArrayRef = Arc::new(BooleanArray::new(marked, None));
                    *unfound = Some(take_rows(&marked, &picks)?.as_boolean().values().clone());
                }
                *keys = keys.as_ref().map(|keys| {
                    let mut last = (u32::MAX, 0);
                    keys.expand(picks.values().iter().map(|pick| {
                        last = if last.0 == *pick {
                            (*pick, last.1 + 1)
                        } else {
                            (*pick, 0)
                        };
                        (*pick as usize, last.1)
                    }))
                });
                counts.expanded += picks.len() as i64 - *rows as i64;
                if let [empty, exploded] = changed {
                    let picked = count_distinct(picks.values());
                    *empty += (*rows - picked) as u64;
                    *exploded += (picks.len() - picked) as u64;
                }
                *rows = picks.len();
                store(registers, writes, columns, *rows)?;
            }
            ChainAction::Give {
                want,
                reads,
                part,
                marks_unfound,
            } => {
                let mut columns = load(registers, reads)?;
                if let (true, Some(marked)) = (*marks_unfound, &*unfound) {
                    columns.push(Arc::new(BooleanArray::new(marked.clone(), None)));
                }
                match part {
                    None => {
                        let keys = keys.as_ref().map(RowKeys::as_slice);
                        give(
                            *want,
                            AnalyzerInput {
                                columns: &columns,
                                rows: *rows,
                                keys,
                            },
                        )?;
                    }
                    Some(part) => {
                        let mask = condition_mask(&load(registers, &[*part])?)?;
                        let predicate = FilterBuilder::new(&mask).build();
                        let columns = filter_all(&predicate, &columns)?;
                        let keys = keys.as_ref().map(|keys| keys.filter(&mask));
                        let keys = keys.as_ref().map(RowKeys::as_slice);
                        give(
                            *want,
                            AnalyzerInput {
                                columns: &columns,
                                rows: mask.true_count(),
                                keys,
                            },
                        )?;
                    }
                }
                clear(registers, &self.live);
            }
        }
        Ok(())
    }
}

/// Distinct values of a list in ascending order.
fn count_distinct(picks: &[u32]) -> usize {
    let steps = picks.windows(2).filter(|pair| pair[0] != pair[1]).count();
    steps + usize::from(!picks.is_empty())
}

/// Registers of the requested outputs.
fn requested_registers(writes: &[usize], emit: &[bool]) -> Vec<usize> {
    writes
        .iter()
        .zip(emit)
        .filter(|(_, emit)| **emit)
        .map(|(register, _)| *register)
        .collect()
}

fn load(registers: &[Option<ArrayRef>], wanted: &[usize]) -> Result<Vec<ArrayRef>> {
    let missing = || Fault::internal("a register was read before it was written");
    wanted
        .iter()
        .map(|register| registers[*register].clone().ok_or_else(missing))
        .collect()
}

fn store(
    registers: &mut [Option<ArrayRef>],
    places: &[usize],
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<()> {
    if columns.len() != places.len() || columns.iter().any(|column| column.len() != rows) {
        return Err(Fault::internal(
            "a kernel returned other columns or rows than it declared",
        ));
    }
    for (place, column) in places.iter().zip(columns) {
        registers[*place] = Some(column);
    }
    Ok(())
}

fn clear(registers: &mut [Option<ArrayRef>], live: &[bool]) {
    for (register, live) in registers.iter_mut().zip(live) {
        if !live {
            *register = None;
        }
    }
}

/// A condition's result, with nulls as false.
fn condition_mask(columns: &[ArrayRef]) -> Result<BooleanArray> {
    let column = columns
        .first()
        .ok_or_else(|| Fault::internal("a condition returned no column"))?;
    let Some(mask) = column.as_boolean_opt() else {
        return Ok(BooleanArray::from(vec![false; column.len()])); // The type `Null`: never true.
    };
    Ok(match mask.nulls() {
        None => mask.clone(),
        Some(nulls) => BooleanArray::new(mask.values() & nulls.inner(), None),
    })
}

fn filter_all(predicate: &FilterPredicate, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    columns
        .iter()
        .map(|column| predicate.filter(column).map_err(Fault::from))
        .collect()
}
