//! Executable operations: a register machine over batches.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::{FilterBuilder, FilterPredicate};
use arrow::datatypes::{DataType, Field};
use forebay_model::{
    AnalyzerInput, Chunk, Fault, Finding, Result, RowKeys, SpecLocation, catch_panic, catch_panic_at, take_rows,
};

use crate::future::is_hidden;
use crate::op::{ColumnKernel, ExpandKernel, ExpandedRows, WindowOp};
use forebay_window::{InputRows, WindowPlan};
use serde::{Deserialize, Serialize};

use crate::{AnalyzerId, BoundPipeline, Carry, OpId, OpStream, PlanOp, WindowRowOrder};

/// Columns requested at a point of a stream, optionally of one part of the split.
#[derive(Debug, Clone)]
pub struct ColumnTap {
    /// Number of the stream's operations before the point.
    pub after: usize,
    /// Column names.
    pub columns: Vec<String>,
    /// Hidden column that restricts the rows to a part.
    pub part: Option<String>,
}

/// Row counts of a chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowCounts {
    /// Rows read.
    pub input: u64,
    /// Rows that conditions removed.
    pub filtered: u64,
    /// Rows added by expansions; negative if empty lists remove rows.
    pub expanded: i64,
}

impl RowCounts {
    /// Adds the counts of other rows.
    pub fn add(&mut self, other: RowCounts) {
        self.input += other.input;
        self.filtered += other.filtered;
        self.expanded += other.expanded;
    }
}

#[derive(Clone)]
enum ChainAction {
    Map {
        kernel: ColumnKernel,
        reads: Vec<usize>,
        writes: Vec<usize>,
    },
    Keep {
        kernel: ColumnKernel,
        reads: Vec<usize>,
    },
    Expand {
        kernel: ExpandKernel,
        reads: Vec<usize>,
        writes: Vec<usize>,
    },
    Window(WindowAction),
    /// Precomputed outputs, of which some are read.
    Given {
        op: OpId,
        writes: Vec<usize>,
        emit: Vec<bool>,
    },
    Give {
        want: usize,
        reads: Vec<usize>,
        part: Option<usize>,
    },
}

#[derive(Clone)]
struct WindowAction {
    op: OpId,
    plan: Arc<WindowPlan>,
    way: WindowRowOrder,
    keys: Vec<usize>,
    time: usize,
    inputs: Vec<usize>,
    writes: Vec<usize>,
    /// Which outputs are read later.
    emit: Vec<bool>,
}

impl WindowAction {
    /// Whether both receive the same rows of the same series in the same order.
    fn is_alike(&self, other: &WindowAction) -> bool {
        (self.way, &self.keys, self.time) == (other.way, &other.keys, other.time)
            && self.plan.shares_state_with(&other.plan)
    }

    /// Merges two windows under this one's id.
    fn merge(mut self, other: &WindowAction) -> WindowAction {
        let (inputs, plan) = self.plan.merge(&self.inputs, &other.plan, &other.inputs);
        (self.inputs, self.plan) = (inputs, Arc::new(plan));
        self.writes.extend(&other.writes);
        self
    }

    fn reads(&self) -> Vec<usize> {
        self.keys.iter().chain([&self.time]).chain(&self.inputs).copied().collect()
    }

    /// Runs over consecutive chunks. A fault comes with the index of its chunk.
    fn run(&self, chunks: &mut [ChunkRegisters], carry: &mut Carry, live: &[bool]) -> Result<(), (usize, Fault)> {
        let columns = |chunk: &ChunkRegisters| {
            let of = |wanted: &[usize]| load(&chunk.registers, wanted);
            Ok((of(&self.keys)?, of(&[self.time])?, of(&self.inputs)?))
        };
        let columns = chunks.iter().map(columns).collect::<Result<Vec<_>>>().map_err(|fault| (0, fault))?;
        let batches = columns.iter().zip(chunks.iter()).filter_map(|((keys, time, inputs), chunk)| {
            Some(InputRows { keys, time: time.first()?, inputs, rows: chunk.rows })
        });
        let batches: Vec<InputRows<'_>> = batches.collect();
        let outputs = carry.push(self.op, &self.plan, self.way, &batches, &self.emit)?;
        let places = requested_registers(&self.writes, &self.emit);
        for (number, (chunk, outputs)) in chunks.iter_mut().zip(outputs).enumerate() {
            store(&mut chunk.registers, &places, outputs, chunk.rows).map_err(|fault| (number, fault))?;
            clear(&mut chunk.registers, live);
        }
        Ok(())
    }
}

/// Registers read by an action.
fn reads(action: &ChainAction) -> Vec<usize> {
    match action {
        ChainAction::Map { reads, .. } | ChainAction::Expand { reads, .. } | ChainAction::Keep { reads, .. } => {
            reads.clone()
        }
        ChainAction::Window(window) => window.reads(),
        ChainAction::Given { .. } => Vec::new(),
        ChainAction::Give { reads, part, .. } => reads.iter().chain(part.iter()).copied().collect(),
    }
}

/// Registers written by an action.
fn writes(action: &ChainAction) -> Vec<usize> {
    match action {
        ChainAction::Map { writes, .. } | ChainAction::Expand { writes, .. } | ChainAction::Given { writes, .. } => {
            writes.clone()
        }
        ChainAction::Window(window) => window.writes.clone(),
        ChainAction::Keep { .. } | ChainAction::Give { .. } => Vec::new(),
    }
}

struct ChainInstruction {
    action: ChainAction,
    /// Registers that are read later; all others are cleared.
    live: Vec<bool>,
    label: Arc<str>,
    at: Option<SpecLocation>,
}

/// A compiled selection of a chain's outputs, with the input columns that it needs.
pub struct ChainPath {
    instructions: Vec<ChainInstruction>,
    /// Input columns of chunks, in order.
    columns: Vec<String>,
    /// Registers of the input columns.
    registers: Vec<usize>,
}

/// An action with its label and its location in the spec.
type LabeledAction = (ChainAction, Arc<str>, Option<SpecLocation>);

/// Outputs that a path computes.
#[derive(Clone, Copy)]
enum PathOutputs<'a> {
    /// All taps.
    All,
    /// No taps: only the window state advances.
    Nothing,
    /// Some columns of the first tap, and some of the other taps.
    Some(&'a [usize], &'a [bool]),
}

/// A stream's operations with their findings, compiled to run over chunks.
pub struct OpChain {
    full: ChainPath,
    /// Advances window state without computing outputs.
    light: ChainPath,
    registers: usize,
    vector_bytes: usize,
    base_columns: Vec<String>,
    steps: Vec<LabeledAction>,
    /// Fields of each tap's columns, after learning.
    fields: Vec<Vec<Field>>,
    windows: Vec<ChainWindow>,
}

impl ChainPath {
    /// Input columns of chunks, in order.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }
}

/// Windows that share one push, with the same row order.
#[derive(Debug, Clone)]
pub struct ChainWindow {
    /// Id of the first window.
    pub op: OpId,
    /// Order in which rows reach them.
    pub way: WindowRowOrder,
    /// The merged plan; `None` if the outputs are precomputed.
    pub plan: Option<Arc<WindowPlan>>,
}

/// Inputs of chain compilation: findings, and the row order of each window.
#[derive(Clone, Copy)]
pub struct ChainContext<'a> {
    /// Returns the finding of an analyzer.
    pub finding: &'a dyn Fn(AnalyzerId) -> Result<Arc<Finding>>,
    /// Returns the row order of a window.
    pub way: &'a dyn Fn(OpId) -> WindowRowOrder,
}

impl OpChain {
    /// Compiles the operations in `needed`. `base_columns` are the columns of chunks, in order.
    pub fn new(
        bound: &BoundPipeline,
        stream: &OpStream,
        needed: &[usize],
        base_columns: &[String],
        wants: &[ColumnTap],
        told: ChainContext<'_>,
    ) -> Result<OpChain> {
        let base = &bound.base_schemas[stream.base];
        let mut names: BTreeMap<String, (usize, Field)> = BTreeMap::new();
        for (register, name) in base_columns.iter().enumerate() {
            names.insert(name.clone(), (register, base.field_with_name(name)?.clone()));
        }
        let mut builder = ChainBuilder {
            names,
            registers: base_columns.len(),
            vector_bytes: 0,
            steps: Vec::new(),
            fields: Vec::new(),
            windows: Vec::new(),
        };
        builder.fields = vec![Vec::new(); wants.len()];
        let last = wants.iter().map(|want| want.after).max().unwrap_or(0);
        for position in 0..=last {
            for (index, want) in wants.iter().enumerate().filter(|(_, want)| want.after == position) {
                builder.give(index, want)?;
            }
            if position < last && needed.binary_search(&position).is_ok() {
                let op = &bound.ops[stream.ops[position]];
                let findings = op.asks.iter().map(|ask| (told.finding)(*ask)).collect::<Result<Vec<_>>>()?;
                let place = |fault: Fault| fault.step(&op.label).at(op.at.as_ref());
                match &op.op {
                    PlanOp::Window(window) => {
                        let way = (told.way)(stream.ops[position]);
                        builder.window(stream.ops[position], window, way, &op.label, op.at.as_ref())
                    }
                    PlanOp::Join(join) => {
                        let fields: Vec<Field> = join.writes().cloned().collect();
                        builder.given(stream.ops[position], &fields, &op.label, op.at.as_ref());
                        Ok(())
                    }
                    other => builder.op(other, &findings, &op.label, op.at.as_ref()),
                }
                .map_err(place)?;
            }
        }
        Ok(builder.finish(base_columns))
    }

    /// Fields of a tap's columns.
    pub fn fields(&self, want: usize) -> &[Field] {
        &self.fields[want]
    }

    /// The windows, in order.
    pub fn windows(&self) -> &[ChainWindow] {
        &self.windows
    }

    /// Whether the output of a row depends on earlier rows.
    pub fn is_ordered(&self) -> bool {
        self.windows.iter().any(|window| window.way != WindowRowOrder::Sorted)
    }

    /// Whether all series keep their state from chunk to chunk. Large chunks are then faster: the state of a series
    /// is loaded once for more rows.
    pub fn gains_by_rows(&self) -> bool {
        self.windows.iter().any(|window| window.way == WindowRowOrder::Time)
    }

    /// Number of registers: an upper bound of the columns held per chunk.
    pub fn columns_max(&self) -> usize {
        self.registers
    }

    /// Bytes per row of all computed vectors, whose widths are known after learning.
    pub fn vector_bytes(&self) -> usize {
        self.vector_bytes
    }

    /// Input columns of chunks for `advance`, in order.
    pub fn advance_columns(&self) -> &[String] {
        &self.light.columns
    }

    /// Compiles a path that computes the given columns of the first tap (by index), and those other taps for which
    /// `others` is true. The window state advances as in the full path.
    pub fn narrow(&self, columns: &[usize], others: &[bool]) -> ChainPath {
        compile_path(&self.steps, self.registers, &self.base_columns, PathOutputs::Some(columns, others))
    }

    /// Whether groups of chunks are faster: windows in time order then load the state of a series once for its rows
    /// in all chunks of a group.
    pub fn gains_by_chunks(&self) -> bool {
        !self.windows.is_empty() && self.windows.iter().all(|window| window.way == WindowRowOrder::Time)
    }

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
        self.run_on(&self.light, chunks, carry, &mut |_, _| Ok(())).map(drop)
    }

    /// Like `run`, for a given path: chunks contain the columns of that path.
    pub fn run_on(
        &self,
        track: &ChainPath,
        chunks: &[Chunk],
        carry: &mut Carry,
        give: &mut dyn FnMut(usize, AnalyzerInput<'_>) -> Result<()>,
    ) -> Result<RowCounts> {
        let mut states: Vec<ChunkRegisters> =
            chunks.iter().map(|chunk| ChunkRegisters::new(self.registers, track, chunk)).collect();
        for instruction in &track.instructions {
            let place = |(number, fault): (usize, Fault)| {
                let fault = fault.step(&*instruction.label).at(instruction.at.as_ref());
                match chunks.get(number) {
                    Some(chunk) => fault.file(&*chunk.file),
                    None => fault,
                }
            };
            if let ChainAction::Window(window) = &instruction.action {
                let done = catch_panic(|| Ok(window.run(&mut states, carry, &instruction.live)));
                done.unwrap_or_else(|fault| Err((0, fault))).map_err(|(number, fault)| {
                    match states.get(number).zip(chunks.get(number)) {
                        Some((state, chunk)) => place((number, state.of_file(chunk, fault))),
                        None => place((number, fault)),
                    }
                })?;
                continue;
            }
            for (number, state) in states.iter_mut().enumerate() {
                let among = |fault: Fault| match chunks.get(number) {
                    Some(chunk) => fault.note(row_range_note(chunk)),
                    None => fault,
                };
                let done = catch_panic_at(among, || instruction.run(state, carry, give));
                done.map_err(|fault| place((number, fault)))?;
            }
        }
        let mut counts = RowCounts::default();
        states.into_iter().for_each(|state| counts.add(state.counts));
        Ok(counts)
    }
}

/// A note with the rows of a chunk in which a panic occurred.
fn row_range_note(chunk: &Chunk) -> String {
    let end = chunk.first_row + (chunk.batch.num_rows() as u64).saturating_sub(1);
    format!("it occurred at one of the rows {} to {end} of the file", chunk.first_row)
}

/// Registers and counts of a chunk between two instructions.
struct ChunkRegisters {
    registers: Vec<Option<ArrayRef>>,
    rows: usize,
    keys: Option<RowKeys>,
    counts: RowCounts,
}

impl ChunkRegisters {
    /// The state before the first instruction.
    fn new(registers: usize, track: &ChainPath, chunk: &Chunk) -> ChunkRegisters {
        let rows = chunk.batch.num_rows();
        let mut state = ChunkRegisters {
            registers: vec![None; registers],
            rows,
            keys: chunk.keys.clone(),
            counts: RowCounts { input: rows as u64 + chunk.skipped, filtered: chunk.skipped, expanded: 0 },
        };
        for (register, column) in track.registers.iter().zip(chunk.batch.columns()) {
            state.registers[*register] = Some(column.clone());
        }
        state
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
        give: &mut dyn FnMut(usize, AnalyzerInput<'_>) -> Result<()>,
    ) -> Result<()> {
        let ChunkRegisters { registers, rows, keys, counts } = state;
        match &self.action {
            ChainAction::Map { kernel, reads, writes } => {
                let outputs = kernel(&load(registers, reads)?, *rows)?;
                store(registers, writes, outputs, *rows)?;
                clear(registers, &self.live);
            }
            ChainAction::Window(_) => return Err(Fault::internal("a window received a single chunk")),
            ChainAction::Given { op, writes, emit } => {
                let outputs = carry.take_precomputed(*op, *rows, emit)?;
                store(registers, &requested_registers(writes, emit), outputs, *rows)?;
            }
            ChainAction::Keep { kernel, reads } => {
                let mask = condition_mask(&kernel(&load(registers, reads)?, *rows)?)?;
                clear(registers, &self.live);
                let kept = mask.true_count();
                counts.filtered += (*rows - kept) as u64;
                if kept < *rows {
                    let predicate = FilterBuilder::new(&mask).optimize().build();
                    for column in registers.iter_mut().flatten() {
                        *column = predicate.filter(column)?;
                    }
                    *keys = keys.as_ref().map(|keys| keys.filter(&mask));
                    *rows = kept;
                }
            }
            ChainAction::Expand { kernel, reads, writes } => {
                let ExpandedRows { picks, columns } = kernel(&load(registers, reads)?, *rows)?;
                clear(registers, &self.live);
                for column in registers.iter_mut().flatten() {
                    *column = take_rows(column, &picks)?;
                }
                *keys = keys.as_ref().map(|keys| {
                    let mut last = (u32::MAX, 0);
                    keys.expand(picks.values().iter().map(|pick| {
                        last = if last.0 == *pick { (*pick, last.1 + 1) } else { (*pick, 0) };
                        (*pick as usize, last.1)
                    }))
                });
                counts.expanded += picks.len() as i64 - *rows as i64;
                *rows = picks.len();
                store(registers, writes, columns, *rows)?;
            }
            ChainAction::Give { want, reads, part } => {
                let columns = load(registers, reads)?;
                match part {
                    None => {
                        let keys = keys.as_ref().map(RowKeys::as_slice);
                        give(*want, AnalyzerInput { columns: &columns, rows: *rows, keys })?;
                    }
                    Some(part) => {
                        let mask = condition_mask(&load(registers, &[*part])?)?;
                        let predicate = FilterBuilder::new(&mask).build();
                        let columns = filter_all(&predicate, &columns)?;
                        let keys = keys.as_ref().map(|keys| keys.filter(&mask));
                        let keys = keys.as_ref().map(RowKeys::as_slice);
                        give(*want, AnalyzerInput { columns: &columns, rows: mask.true_count(), keys })?;
                    }
                }
                clear(registers, &self.live);
            }
        }
        Ok(())
    }
}

/// Registers of the requested outputs.
fn requested_registers(writes: &[usize], emit: &[bool]) -> Vec<usize> {
    writes.iter().zip(emit).filter(|(_, emit)| **emit).map(|(register, _)| *register).collect()
}

fn load(registers: &[Option<ArrayRef>], wanted: &[usize]) -> Result<Vec<ArrayRef>> {
    let missing = || Fault::internal("a register was read before it was written");
    wanted.iter().map(|register| registers[*register].clone().ok_or_else(missing)).collect()
}

fn store(registers: &mut [Option<ArrayRef>], places: &[usize], columns: Vec<ArrayRef>, rows: usize) -> Result<()> {
    if columns.len() != places.len() || columns.iter().any(|column| column.len() != rows) {
        return Err(Fault::internal("a kernel returned other columns or rows than it declared"));
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
    let column = columns.first().ok_or_else(|| Fault::internal("a condition returned no column"))?;
    let Some(mask) = column.as_boolean_opt() else {
        return Ok(BooleanArray::from(vec![false; column.len()])); // The type `Null`: never true.
    };
    Ok(match mask.nulls() {
        None => mask.clone(),
        Some(nulls) => BooleanArray::new(mask.values() & nulls.inner(), None),
    })
}

fn filter_all(predicate: &FilterPredicate, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    columns.iter().map(|column| predicate.filter(column).map_err(Fault::from)).collect()
}

struct ChainBuilder {
    names: BTreeMap<String, (usize, Field)>,
    registers: usize,
    vector_bytes: usize,
    steps: Vec<LabeledAction>,
    fields: Vec<Vec<Field>>,
    windows: Vec<ChainWindow>,
}

impl ChainBuilder {
    fn reads(&self, names: &[String]) -> Result<Vec<usize>> {
        let missing = |name: &String| Fault::internal(format!("column `{name}` is read before it is written"));
        names.iter().map(|name| self.names.get(name).map(|known| known.0).ok_or_else(|| missing(name))).collect()
    }

    fn writes(&mut self, fields: &[Field]) -> Vec<usize> {
        let from = self.registers;
        for field in fields {
            if let DataType::FixedSizeList(item, width) = field.data_type() {
                let value = item.data_type().primitive_width().unwrap_or(size_of::<u64>());
                self.vector_bytes += value * usize::try_from(*width).unwrap_or(0);
            }
            self.names.insert(field.name().clone(), (self.registers, field.clone()));
            self.registers += 1;
        }
        (from..self.registers).collect()
    }

    fn give(&mut self, index: usize, want: &ColumnTap) -> Result<()> {
        let reads = self.reads(&want.columns)?;
        let part = self.reads(want.part.as_slice())?.first().copied();
        self.fields[index] =
            want.columns.iter().filter_map(|name| self.names.get(name).map(|known| known.1.clone())).collect();
        self.steps.push((ChainAction::Give { want: index, reads, part }, Arc::from("output"), None));
        Ok(())
    }

    fn op(&mut self, op: &PlanOp, findings: &[Arc<Finding>], label: &str, at: Option<&SpecLocation>) -> Result<()> {
        let action = match op {
            PlanOp::Map(map) => {
                let lowered = (map.lower)(findings)?;
                let reads = self.reads(&map.reads)?;
                let writes = self.writes(lowered.fields.as_deref().unwrap_or(&map.writes));
                ChainAction::Map { kernel: lowered.kernel, reads, writes }
            }
            PlanOp::Keep(keep) => ChainAction::Keep { kernel: keep.kernel.clone(), reads: self.reads(&keep.reads)? },
            PlanOp::Expand(expand) => {
                let reads = self.reads(&expand.reads)?;
                ChainAction::Expand { kernel: expand.kernel.clone(), reads, writes: self.writes(&expand.writes) }
            }
            PlanOp::Project(columns) => {
                let mut names: BTreeMap<String, (usize, Field)> = BTreeMap::new();
                for (from, to) in columns {
                    // Columns that are not needed were never computed.
                    if let Some((register, field)) = self.names.get(from) {
                        names.insert(to.clone(), (*register, field.clone().with_name(to)));
                    }
                }
                let hidden = self.names.iter().filter(|(name, _)| is_hidden(name));
                names.extend(hidden.map(|(name, known)| (name.clone(), known.clone())));
                self.names = names;
                return Ok(());
            }
            PlanOp::Window(_) | PlanOp::Join(_) | PlanOp::Gather(_) => {
                return Err(Fault::internal("the operation cannot run in a chain"));
            }
        };
        self.steps.push((action, Arc::from(label), at.cloned()));
        Ok(())
    }

    fn window(
        &mut self,
        id: OpId,
        window: &WindowOp,
        way: WindowRowOrder,
        label: &str,
        at: Option<&SpecLocation>,
    ) -> Result<()> {
        if way == WindowRowOrder::Sorted {
            self.given(id, &window.writes, label, at);
            return Ok(());
        }
        let (keys, inputs) = (self.reads(&window.keys)?, self.reads(&window.reads)?);
        let time = self.reads(std::slice::from_ref(&window.time))?;
        let time = time.first().copied().ok_or_else(|| Fault::internal("a window without a time column"))?;
        let writes = self.writes(&window.writes);
        let action =
            WindowAction { op: id, plan: window.plan.clone(), way, keys, time, inputs, writes, emit: Vec::new() };
        match self.place_of(&action) {
            None => {
                self.windows.push(ChainWindow { op: id, way, plan: Some(action.plan.clone()) });
                self.steps.push((ChainAction::Window(action), Arc::from(label), at.cloned()));
            }
            Some((index, moves)) => {
                let (known, label, at) = self.steps.remove(index);
                let ChainAction::Window(known) = known else { return Err(Fault::internal("a step is not a window")) };
                let both = known.merge(&action);
                if let Some(window) = self.windows.iter_mut().find(|window| window.op == both.op) {
                    window.plan = Some(both.plan.clone());
                }
                let index = if moves { self.steps.len() } else { index };
                self.steps.insert(index, (ChainAction::Window(both), label, at));
            }
        }
        Ok(())
    }

    /// Finds a window that can be merged with `other`, so that series are resolved and stored once for both. The
    /// window stays in place if all inputs of the other one exist there. Otherwise it moves down to the other one,
    /// unless its outputs are read before. Returns its index, and whether it moves.
    fn place_of(&self, other: &WindowAction) -> Option<(usize, bool)> {
        let mut written: Vec<usize> = Vec::new();
        let mut read: Vec<usize> = Vec::new();
        for (index, (action, ..)) in self.steps.iter().enumerate().rev() {
            match action {
                ChainAction::Keep { .. } | ChainAction::Expand { .. } => return None,
                ChainAction::Window(known) if known.is_alike(other) => {
                    written.extend(&known.writes);
                    let reads = other.reads();
                    let is_late = |registers: &[usize]| registers.iter().any(|register| written.contains(register));
                    let moves = is_late(&reads);
                    let stuck = reads.iter().chain(&read).any(|register| known.writes.contains(register));
                    return (!moves || !stuck).then_some((index, moves));
                }
                _ => {
                    written.extend(writes(action));
                    read.extend(reads(action));
                }
            }
        }
        None
    }

    fn given(&mut self, op: OpId, fields: &[Field], label: &str, at: Option<&SpecLocation>) {
        let writes = self.writes(fields);
        self.windows.push(ChainWindow { op, way: WindowRowOrder::Sorted, plan: None });
        self.steps.push((ChainAction::Given { op, writes, emit: Vec::new() }, Arc::from(label), at.cloned()));
    }

    fn finish(self, base_columns: &[String]) -> OpChain {
        let ChainBuilder { registers, vector_bytes, steps, fields, windows, .. } = self;
        let track = |gives| compile_path(&steps, registers, base_columns, gives);
        let (full, light) = (track(PathOutputs::All), track(PathOutputs::Nothing));
        OpChain { full, light, registers, vector_bytes, base_columns: base_columns.to_vec(), steps, fields, windows }
    }
}

/// Compiles a path by a backward liveness analysis. For a partial path, only windows, row filters, expansions and
/// requested taps are roots; other actions whose outputs are not live are dropped.
fn compile_path(
    steps: &[LabeledAction],
    registers: usize,
    base_columns: &[String],
    gives: PathOutputs<'_>,
) -> ChainPath {
    let is_whole = matches!(gives, PathOutputs::All);
    let mut live = vec![false; registers];
    let mut instructions = Vec::new();
    for (action, label, at) in steps.iter().rev() {
        let mut action = action.clone();
        let after = live.clone();
        let writes = writes(&action);
        if let ChainAction::Window(WindowAction { emit, .. }) | ChainAction::Given { emit, .. } = &mut action {
            *emit = writes.iter().map(|register| after[*register]).collect();
        }
        if let (ChainAction::Give { want: 0, reads, .. }, PathOutputs::Some(columns, _)) = (&mut action, gives) {
            *reads = columns.iter().filter_map(|column| reads.get(*column).copied()).collect();
        }
        let idle = match (&action, gives) {
            (_, PathOutputs::All) => false,
            (ChainAction::Give { .. }, PathOutputs::Nothing) => true,
            (ChainAction::Give { want, .. }, PathOutputs::Some(_, others)) => {
                want.checked_sub(1).is_some_and(|other| others.get(other) != Some(&true))
            }
            (ChainAction::Map { .. }, _) => !writes.iter().any(|register| after[*register]),
            (ChainAction::Given { emit, .. }, _) => !emit.contains(&true),
            (ChainAction::Window(_) | ChainAction::Keep { .. } | ChainAction::Expand { .. }, _) => false,
        };
        if idle {
            continue;
        }
        writes.iter().for_each(|register| live[*register] = false);
        reads(&action).into_iter().for_each(|register| live[register] = true);
        instructions.push(ChainInstruction { action, live: after, label: label.clone(), at: at.clone() });
    }
    instructions.reverse();
    let registers: Vec<usize> = (0..base_columns.len()).filter(|register| is_whole || live[*register]).collect();
    let columns = registers.iter().map(|register| base_columns[*register].clone()).collect();
    ChainPath { instructions, columns, registers }
}
