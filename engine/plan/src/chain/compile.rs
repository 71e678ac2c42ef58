//! Compilation of a stream's operations into a chain.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use forebay_model::{Fault, Finding, NameIndex, Result, RowChange};
use forebay_window::{WindowFunction, WindowOutput, WindowStat};

use super::lost_values::{LostValues, counted_casts};
use super::{
    ChainAction, ChainContext, ChainInstruction, ChainPath, ChainWindow, ColumnTap, CountedChange,
    JoinOutputs, LabeledAction, OpChain, WindowAction, reads, writes,
};
use crate::hidden_columns::is_hidden;
use crate::op::{MapOp, PredictionFeedback, RowMark, WindowOp};
use crate::{BaseDataset, BoundOp, BoundPipeline, OpId, OpStream, PlanOp, WindowRowOrder};

/// Outputs that a path computes.
#[derive(Clone, Copy)]
enum PathOutputs {
    /// All taps.
    All,
    /// No taps: only the window state advances.
    Nothing,
}

/// The outputs of a join, by which its matches are counted.
fn join_outputs(op: &BoundOp) -> Option<JoinOutputs> {
    match &op.op {
        PlanOp::Join(join) => Some(JoinOutputs {
            bit: op.join_bit(),
            has_flag: join.matched.is_some(),
            counts_unmatched: join.keeps_unmatched,
        }),
        _ => None,
    }
}

impl OpChain {
    /// Compiles the operations in `needed`. `base_columns` are the columns of chunks, in order.
    pub fn new(
        bound: &BoundPipeline,
        stream: &OpStream,
        needed: &[usize],
        base_columns: &[String],
        wants: &[ColumnTap],
        context: ChainContext<'_>,
    ) -> Result<OpChain> {
        let base = &bound.base_schemas[stream.base];
        let index = NameIndex::of_fields(base.fields());
        let mut names: BTreeMap<String, (usize, Field)> = BTreeMap::new();
        for (register, name) in base_columns.iter().enumerate() {
            let field = match index.get(name) {
                Some(position) => base.field(position),
                None => base.field_with_name(name)?,
            };
            names.insert(name.clone(), (register, field.clone()));
        }
        let mut builder = ChainBuilder {
            names,
            registers: base_columns.len(),
            vector_bytes: 0,
            steps: Vec::new(),
            fields: Vec::new(),
            windows: Vec::new(),
            feedback: None,
        };
        builder.fields = vec![Vec::new(); wants.len()];
        let last = wants.iter().map(|want| want.after).max().unwrap_or(0);
        for position in 0..=last {
            for (index, want) in wants
                .iter()
                .enumerate()
                .filter(|(_, want)| want.after == position)
            {
                builder.give(index, want)?;
            }
            if position < last && needed.binary_search(&position).is_ok() {
                let id = stream.ops[position];
                let op = &bound.ops[stream.ops[position]];
                let mut findings = Vec::with_capacity(op.asks.len());
                for analyzer in &op.asks {
                    let request = &bound.asks[*analyzer].ask;
                    findings.push(request.row_finding((context.finding)(*analyzer)?)?);
                }
                let added = match &op.op {
                    PlanOp::Window(window) => {
                        builder.window(id, op, window, (context.row_order)(id))
                    }
                    PlanOp::Series(series) => {
                        builder.given(id, op, &series.writes, WindowRowOrder::Sorted, &[]);
                        Ok(())
                    }
                    PlanOp::Join(join) => {
                        let fields: Vec<Field> = join.writes().cloned().collect();
                        let row_order = join
                            .as_of()
                            .map_or(WindowRowOrder::Sorted, |_| (context.row_order)(id));
                        builder.given(id, op, &fields, row_order, &[]);
                        Ok(())
                    }
                    _ => builder.op(op, &findings),
                };
                added.map_err(|fault| fault.step(&op.label).at(op.at.as_ref()))?;
            }
        }
        let source = match &bound.bases[stream.base] {
            BaseDataset::Source(name) => name.clone(),
            BaseDataset::Gathered(_) => String::new(),
        };
        Ok(builder.finish(source, base_columns, context))
    }
}

struct ChainBuilder {
    names: BTreeMap<String, (usize, Field)>,
    registers: usize,
    vector_bytes: usize,
    steps: Vec<LabeledAction>,
    fields: Vec<Vec<Field>>,
    windows: Vec<ChainWindow>,
    feedback: Option<PredictionFeedback>,
}

impl ChainBuilder {
    fn reads(&self, names: &[String]) -> Result<Vec<usize>> {
        let missing = |name: &String| {
            Fault::internal(format!("column `{name}` is read before it is written"))
        };
        names
            .iter()
            .map(|name| {
                self.names
                    .get(name)
                    .map(|binding| binding.0)
                    .ok_or_else(|| missing(name))
            })
            .collect()
    }

    fn writes(&mut self, fields: &[Field]) -> Vec<usize> {
        let from = self.registers;
        for field in fields {
            if let DataType::FixedSizeList(item, width) = field.data_type() {
                let value = item
                    .data_type()
                    .primitive_width()
                    .unwrap_or(size_of::<u64>());
                self.vector_bytes += value * usize::try_from(*width).unwrap_or(0);
            }
            self.names
                .insert(field.name().clone(), (self.registers, field.clone()));
            self.registers += 1;
        }
        (from..self.registers).collect()
    }

    fn give(&mut self, index: usize, want: &ColumnTap) -> Result<()> {
        let reads = self.reads(&want.columns)?;
        let part = self.reads(want.part.as_slice())?.first().copied();
        self.fields[index] = want
            .columns
            .iter()
            .filter_map(|name| self.names.get(name).map(|binding| binding.1.clone()))
            .collect();
        let action = ChainAction::Give {
            want: index,
            reads,
            part,
            marks_unfound: want.marks_unfound,
        };
        self.steps.push(LabeledAction {
            action,
            changes: Vec::new(),
            label: Arc::from("output"),
            at: None,
        });
        Ok(())
    }

    /// Adds an operation over single rows.
    fn op(&mut self, op: &BoundOp, findings: &[Arc<Finding>]) -> Result<()> {
        let action = match &op.op {
            PlanOp::Map(map) => {
                let lowered = (map.lower)(findings)?;
                self.feedback = self.feedback.take().or_else(|| map.feedback.clone());
                let reads = self.reads(&map.reads)?;
                let writes = self.writes(lowered.fields.as_deref().unwrap_or(&map.writes));
                ChainAction::Map {
                    kernel: lowered.kernel,
                    reads,
                    writes,
                    marks: map.marks.clone(),
                    value_counts: map.value_counts.clone(),
                    lost_values: LostValues::of_map(map),
                    counts_casts: counted_casts(map).is_some(),
                    join: map.finds_rows.then(|| op.join_bit()),
                }
            }
            PlanOp::Keep(keep) => ChainAction::Keep {
                kernel: keep.kernel.clone(),
                reads: self.reads(&keep.reads)?,
            },
            PlanOp::Expand(expand) => {
                let reads = self.reads(&expand.reads)?;
                ChainAction::Expand {
                    kernel: expand.kernel.clone(),
                    reads,
                    writes: self.writes(&expand.writes),
                }
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
                names.extend(hidden.map(|(name, binding)| (name.clone(), binding.clone())));
                self.names = names;
                return Ok(());
            }
            PlanOp::Window(_) | PlanOp::Series(_) | PlanOp::Join(_) | PlanOp::Gather(_) => {
                return Err(Fault::internal("the operation cannot run in a chain"));
            }
        };
        self.push(op, action);
        Ok(())
    }

    fn push(&mut self, op: &BoundOp, action: ChainAction) {
        self.steps.push(LabeledAction {
            action,
            changes: counted_changes(op),
            label: Arc::from(op.label.as_str()),
            at: op.at.clone(),
        });
    }

    /// Adds a window, or merges it with an earlier one.
    fn window(
        &mut self,
        id: OpId,
        op: &BoundOp,
        window: &WindowOp,
        row_order: WindowRowOrder,
    ) -> Result<()> {
        if row_order == WindowRowOrder::Sorted {
            let nullable = nullable_outputs(id, window);
            self.given(id, op, &window.writes, WindowRowOrder::Sorted, &nullable);
            return Ok(());
        }
        let keys = self.reads(&window.keys)?;
        let inputs = self.reads(&window.reads)?;
        let time = self.reads(std::slice::from_ref(&window.time))?;
        let time = time
            .first()
            .copied()
            .ok_or_else(|| Fault::internal("a window without a time column"))?;
        let writes = self.writes(&window.writes);
        let action = WindowAction {
            op: id,
            plan: window.plan.clone(),
            row_order,
            division: window.division,
            keys,
            time,
            inputs,
            writes,
            emit: Vec::new(),
            nullable: nullable_outputs(id, window),
            lost_values: LostValues::of_window(window),
        };
        match self.place_of(&action) {
            None => {
                self.windows.push(ChainWindow {
                    op: id,
                    row_order,
                    plan: Some(action.plan.clone()),
                    is_join: false,
                });
                self.push(op, ChainAction::Window(action));
            }
            Some((index, moves)) => {
                let LabeledAction {
                    action: window_action,
                    mut changes,
                    label,
                    at,
                } = self.steps.remove(index);
                let ChainAction::Window(window) = window_action else {
                    return Err(Fault::internal("a step is not a window"));
                };
                let merged = window.merge(&action);
                changes.extend(counted_changes(op));
                if let Some(window) = self
                    .windows
                    .iter_mut()
                    .find(|window| window.op == merged.op)
                {
                    window.plan = Some(merged.plan.clone());
                }
                let index = if moves { self.steps.len() } else { index };
                self.steps.insert(
                    index,
                    LabeledAction {
                        action: ChainAction::Window(merged),
                        changes,
                        label,
                        at,
                    },
                );
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
        for (index, LabeledAction { action, .. }) in self.steps.iter().enumerate().rev() {
            match action {
                ChainAction::Keep { .. } | ChainAction::Expand { .. } => return None,
                ChainAction::Window(window) if window.is_alike(other) => {
                    written.extend(&window.writes);
                    let reads = other.reads();
                    let is_late = |registers: &[usize]| {
                        registers.iter().any(|register| written.contains(register))
                    };
                    let moves = is_late(&reads);
                    let stuck = reads
                        .iter()
                        .chain(&read)
                        .any(|register| window.writes.contains(register));
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

    /// Adds an operation whose outputs are precomputed.
    fn given(
        &mut self,
        id: OpId,
        op: &BoundOp,
        fields: &[Field],
        row_order: WindowRowOrder,
        nullable: &[Option<OpId>],
    ) {
        let writes = self.writes(fields);
        self.windows.push(ChainWindow {
            op: id,
            row_order,
            plan: None,
            is_join: matches!(op.op, PlanOp::Join(_)),
        });
        self.push(
            op,
            ChainAction::Given {
                op: id,
                writes,
                emit: Vec::new(),
                nullable: nullable.to_vec(),
                lost_values: match &op.op {
                    PlanOp::Window(window) => LostValues::of_window(window),
                    PlanOp::Series(series) => LostValues::of_series(series),
                    _ => Vec::new(),
                },
                join: join_outputs(op),
            },
        );
    }

    fn finish(self, source: String, base_columns: &[String], context: ChainContext<'_>) -> OpChain {
        let ChainBuilder {
            registers,
            vector_bytes,
            steps,
            fields,
            windows,
            feedback,
            ..
        } = self;
        let path = |gives| compile_path(&steps, registers, base_columns, gives);
        let full = path(PathOutputs::All);
        let light = path(PathOutputs::Nothing);
        OpChain {
            source,
            full,
            light,
            registers,
            vector_bytes,
            fields,
            windows,
            feedback,
            admit: context.admit.cloned(),
            check_stop: context.check_stop.cloned(),
        }
    }
}

/// The window of each output that is null where no value was found. Counts are never null, and
/// nulls of windows that look forward are not due to the begin of the history.
fn nullable_outputs(id: OpId, window: &WindowOp) -> Vec<Option<OpId>> {
    let is_nullable = |output: &WindowOutput| {
        let is_count = matches!(
            output.compute,
            WindowFunction::Window {
                stat: WindowStat::Count | WindowStat::Unique,
                ..
            }
        );
        !is_count && !window.backward
    };
    let step = |output: &WindowOutput| is_nullable(output).then_some(id);
    window.plan.functions.iter().map(step).collect()
}

/// The values that an operation over series loses, in the order of its outputs.
fn lost_changes(
    op: &BoundOp,
    lost_values: Vec<LostValues>,
    writes: &[Field],
) -> Vec<CountedChange> {
    let mut changes = Vec::new();
    for lost in lost_values {
        let written = writes.get(lost.output);
        changes.push(CountedChange {
            change: lost.change,
            column: written.map(|field| field.name().clone()),
            step: Some(Arc::from(op.label.as_str())),
        });
    }
    changes
}

/// The changes that the action of an operation counts, in the order of its counters.
fn counted_changes(op: &BoundOp) -> Vec<CountedChange> {
    match &op.op {
        PlanOp::Map(map) => changes_of_values(map),
        PlanOp::Keep(keep) => vec![CountedChange::of_rows(keep.reason)],
        PlanOp::Expand(_) => vec![
            CountedChange::of_rows(RowChange::EmptyList),
            CountedChange::of_rows(RowChange::Exploded),
        ],
        PlanOp::Join(join) if join.keeps_unmatched => {
            vec![CountedChange::of_rows(RowChange::NoMatch)]
        }
        PlanOp::Window(window) => lost_changes(op, LostValues::of_window(window), &window.writes),
        PlanOp::Series(series) => lost_changes(op, LostValues::of_series(series), &series.writes),
        _ => Vec::new(),
    }
}

/// The marks of an operation, then its counts of values, then those of all operations, then those of its casts.
fn changes_of_values(map: &MapOp) -> Vec<CountedChange> {
    let marks = map.marks.iter().map(|mark| match mark {
        RowMark::Clipped => CountedChange::of_rows(RowChange::Clipped),
        RowMark::Crossed => CountedChange::of_rows(RowChange::Sorted),
        RowMark::Constant => CountedChange::of_rows(RowChange::Imputed),
        RowMark::NoMatch => CountedChange::of_rows(RowChange::NoMatch),
        RowMark::Unknown => CountedChange::of_first_column(map, RowChange::Unknown),
        RowMark::Ended => CountedChange::of_first_column(map, RowChange::Clipped),
    });
    let counts = map.value_counts.iter().map(|count| CountedChange {
        change: count.change,
        column: count.column.clone().or_else(|| {
            let written = map.writes.get(count.after);
            written.map(|field| field.name().clone())
        }),
        step: None,
    });
    let lost = LostValues::of_map(map)
        .into_iter()
        .map(|lost| CountedChange {
            change: lost.change,
            column: map
                .writes
                .get(lost.output)
                .map(|field| field.name().clone()),
            step: None,
        });
    let casts = counted_casts(map).map(|texts| CountedChange {
        change: RowChange::Nulled,
        column: Some(texts),
        step: None,
    });
    marks.chain(counts).chain(lost).chain(casts).collect()
}

/// Lets the next instruction that clears registers clear `waiting` ones, and those of instructions that clear none or
/// clear before they write.
fn defer_clearing(instructions: &mut [ChainInstruction], mut waiting: Vec<usize>) {
    for instruction in instructions {
        let action = &instruction.step.action;
        match action {
            ChainAction::Given { .. } => {
                waiting.append(&mut instruction.dead);
            }
            ChainAction::Expand { .. } => {
                let written = writes(action);
                let is_written = |register: &usize| written.contains(register);
                let (deferred, cleared) = std::mem::take(&mut instruction.dead)
                    .into_iter()
                    .partition(is_written);
                instruction.dead = cleared;
                instruction.dead.append(&mut waiting);
                waiting = deferred;
            }
            ChainAction::Map { .. }
            | ChainAction::Window(_)
            | ChainAction::Keep { .. }
            | ChainAction::Give { .. } => instruction.dead.append(&mut waiting),
        }
    }
}

/// Compiles a path by a backward liveness analysis. For the light path, only windows, row filters and expansions
/// are roots; other actions whose outputs are not live are dropped.
fn compile_path(
    steps: &[LabeledAction],
    registers: usize,
    base_columns: &[String],
    gives: PathOutputs,
) -> ChainPath {
    let is_whole = matches!(gives, PathOutputs::All);
    let mut live = vec![false; registers];
    let mut instructions = Vec::new();
    for step in steps.iter().rev() {
        let mut action = step.action.clone();
        let writes = writes(&action);
        if let ChainAction::Window(WindowAction { emit, .. }) | ChainAction::Given { emit, .. } =
            &mut action
        {
            *emit = writes.iter().map(|register| live[*register]).collect();
        }
        if let ChainAction::Given {
            emit,
            join: Some(join),
            ..
        } = &mut action
            && is_whole
            && join.has_flag
            && let Some(flag) = emit.first_mut()
        {
            // The flag is counted, also where no operation reads it.
            *flag = true;
        }
        let idle = match (&action, gives) {
            (_, PathOutputs::All) => false,
            (ChainAction::Give { .. }, PathOutputs::Nothing) => true,
            (ChainAction::Map { .. }, _) => !writes.iter().any(|register| live[*register]),
            (ChainAction::Given { emit, .. }, _) => !emit.contains(&true),
            (ChainAction::Window(_) | ChainAction::Keep { .. } | ChainAction::Expand { .. }, _) => {
                false
            }
        };
        if idle {
            continue;
        }
        let reads = reads(&action);
        // Each register is written once: those that are not read later are no longer needed.
        let touched = writes.iter().chain(&reads).copied();
        let dead = touched.filter(|register| !live[*register]).collect();
        writes.iter().for_each(|register| live[*register] = false);
        reads.into_iter().for_each(|register| live[register] = true);
        instructions.push(ChainInstruction {
            step: LabeledAction {
                action,
                ..step.clone()
            },
            dead,
            first_counter: 0,
        });
    }
    instructions.reverse();
    let unread = (0..base_columns.len()).filter(|register| !live[*register]);
    defer_clearing(&mut instructions, unread.collect());
    let mut counters = 0;
    for instruction in &mut instructions {
        instruction.first_counter = counters;
        counters += instruction.step.changes.len();
    }
    let registers: Vec<usize> = (0..base_columns.len())
        .filter(|register| is_whole || live[*register])
        .collect();
    let columns = registers
        .iter()
        .map(|register| base_columns[*register].clone())
        .collect();
    ChainPath {
        instructions,
        columns,
        registers,
        counters,
    }
}
