//! Executable operations: a register machine over batches.

mod compile;
mod lost_values;
mod run;

use std::sync::Arc;

use arrow::datatypes::Field;
use forebay_model::{Finding, Result, RowChange, RowLedger, SpecLocation};
use forebay_window::WindowPlan;
use serde::{Deserialize, Serialize};

use self::lost_values::LostValues;
use crate::hidden_columns::is_hidden;
use crate::kernel_memory::AdmitBytes;
use crate::op::{ColumnKernel, ExpandKernel, MapOp, PredictionFeedback, RowMark, ValueCount};
use crate::{AnalyzerId, CheckStop, OpId, WindowRowOrder};

/// Columns requested at a point of a stream, optionally of one part of the split.
#[derive(Debug, Clone)]
pub struct ColumnTap {
    /// Number of the stream's operations before the point.
    pub after: usize,
    /// Column names.
    pub columns: Vec<String>,
    /// Hidden column that restricts the rows to a part.
    pub part: Option<String>,
    /// Adds a Boolean column behind the others where windows found no earlier value for some rows: it marks those rows.
    pub marks_unfound: bool,
}

/// Row counts of a chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowCounts {
    /// Rows that went in.
    pub input: u64,
    /// Rows that conditions removed.
    pub filtered: u64,
    /// Rows added by expansions; negative if empty lists remove rows.
    pub expanded: i64,
    /// Rows of which a prediction was moved to a bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clipped: u64,
    /// Rows whose predicted quantiles crossed, and were sorted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crossed: u64,
    /// Rows with the keys and the time of an earlier row of their series, where windows warn of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// Input rows that the source left out, such as those of row groups that cannot match: they
    /// count as filtered.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// Written rows for which a window found no value.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub without_history: u64,
    /// The steps that removed and added these rows, and changes of values. Its sum is that of the counts above.
    #[serde(default, skip_serializing_if = "RowLedger::is_empty")]
    pub changes: RowLedger,
    /// Results of joins.
    #[serde(default, skip_serializing_if = "JoinsMet::is_empty")]
    pub joins: JoinsMet,
}

/// Joins that looked for rows, and joins that found one: a bit for each join.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinsMet {
    /// Joins that looked for rows.
    pub tried: u64,
    /// Joins that found at least one.
    pub met: u64,
}

impl JoinsMet {
    /// True if no join looked for rows.
    pub fn is_empty(&self) -> bool {
        self.tried == 0
    }

    /// Adds the joins that looked for matches of other rows.
    pub fn add(&mut self, other: JoinsMet) {
        self.tried |= other.tried;
        self.met |= other.met;
    }

    /// Adds one join, with or without a match.
    pub fn record(&mut self, bit: u64, is_met: bool) {
        self.tried |= bit;
        self.met |= if is_met { bit } else { 0 };
    }

    /// True if a join looked for rows and found none.
    pub fn is_unmet(&self, bit: u64) -> bool {
        self.tried & bit != 0 && self.met & bit == 0
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl RowCounts {
    /// Adds the counts of other rows.
    pub fn add(&mut self, other: &RowCounts) {
        self.input += other.input;
        self.filtered += other.filtered;
        self.expanded += other.expanded;
        self.clipped += other.clipped;
        self.crossed += other.crossed;
        self.duplicates += other.duplicates;
        self.skipped += other.skipped;
        self.without_history += other.without_history;
        self.changes.add(&other.changes);
        self.joins.add(other.joins);
    }

    /// Number of output rows.
    pub fn output(&self) -> i64 {
        self.input as i64 - self.filtered as i64 + self.expanded
    }

    /// Counts the rows that an operation over all of these rows adds or removes, given those that it makes of them.
    pub fn settle(&mut self, step: &str, rows: u64, (removed, added): (RowChange, RowChange)) {
        let rows_before = u64::try_from(self.output()).unwrap_or_default();
        self.remove(step, removed, rows_before.saturating_sub(rows));
        self.append(step, added, rows.saturating_sub(rows_before));
    }

    /// Counts rows that are added for a reason.
    pub fn append(&mut self, step: &str, reason: RowChange, rows: u64) {
        self.expanded += rows as i64;
        self.changes.record(step, reason, rows);
    }

    /// Counts rows that are removed for a reason.
    pub fn remove(&mut self, step: &str, reason: RowChange, rows: u64) {
        self.filtered += rows;
        self.changes.record(step, reason, rows);
    }

    /// Counts the marked rows of a chunk.
    fn count_marked(&mut self, mark: RowMark, rows: u64) {
        match mark {
            RowMark::Clipped => self.clipped += rows,
            RowMark::Crossed => self.crossed += rows,
            // The ledger of changes counts them.
            RowMark::Constant | RowMark::NoMatch | RowMark::Unknown | RowMark::Ended => {}
        }
    }
}

#[derive(Clone)]
enum ChainAction {
    Map {
        kernel: ColumnKernel,
        reads: Vec<usize>,
        writes: Vec<usize>,
        marks: Vec<RowMark>,
        value_counts: Vec<ValueCount>,
        lost_values: Vec<LostValues>,
        /// True if its casts count the values that they turn to null.
        counts_casts: bool,
        /// The bit of a join whose rows it finds.
        join: Option<u64>,
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
        /// Step of the window, for each output that is null where a window found no value.
        nullable: Vec<Option<OpId>>,
        lost_values: Vec<LostValues>,
        join: Option<JoinOutputs>,
    },
    Give {
        want: usize,
        reads: Vec<usize>,
        part: Option<usize>,
        marks_unfound: bool,
    },
}

/// The outputs of a join.
#[derive(Debug, Clone, Copy)]
struct JoinOutputs {
    /// Bit of the join in [`JoinsMet`].
    bit: u64,
    /// True if the first column is a flag that marks matched rows.
    has_flag: bool,
    /// True if rows without a match stay, with nulls, and are counted.
    counts_unmatched: bool,
}

#[derive(Clone)]
struct WindowAction {
    op: OpId,
    plan: Arc<WindowPlan>,
    row_order: WindowRowOrder,
    /// See [`WindowOp::division`](crate::WindowOp::division).
    division: u32,
    keys: Vec<usize>,
    time: usize,
    inputs: Vec<usize>,
    writes: Vec<usize>,
    /// True for each output that is read later.
    emit: Vec<bool>,
    /// Step of the window, for each output that is null where a window found no value.
    nullable: Vec<Option<OpId>>,
    lost_values: Vec<LostValues>,
}

impl WindowAction {
    /// True if both receive the same rows of the same series in the same order.
    fn is_alike(&self, other: &WindowAction) -> bool {
        (self.row_order, &self.keys, self.time) == (other.row_order, &other.keys, other.time)
            && self.division == other.division
            && self.plan.shares_state_with(&other.plan)
    }

    /// Merges two windows under this one's id.
    fn merge(mut self, other: &WindowAction) -> WindowAction {
        let (inputs, plan) = self.plan.merge(&self.inputs, &other.plan, &other.inputs);
        (self.inputs, self.plan) = (inputs, Arc::new(plan));
        let offset = self.writes.len();
        self.writes.extend(&other.writes);
        self.nullable.extend(&other.nullable);
        for lost in &other.lost_values {
            self.lost_values.push(LostValues {
                change: lost.change,
                output: offset + lost.output,
            });
        }
        self
    }

    fn reads(&self) -> Vec<usize> {
        self.keys
            .iter()
            .chain([&self.time])
            .chain(&self.inputs)
            .copied()
            .collect()
    }
}

/// Registers read by an action.
fn reads(action: &ChainAction) -> Vec<usize> {
    match action {
        ChainAction::Map { reads, .. }
        | ChainAction::Expand { reads, .. }
        | ChainAction::Keep { reads, .. } => reads.clone(),
        ChainAction::Window(window) => window.reads(),
        ChainAction::Given { .. } => Vec::new(),
        ChainAction::Give { reads, part, .. } => reads.iter().chain(part.iter()).copied().collect(),
    }
}

/// Registers written by an action.
fn writes(action: &ChainAction) -> Vec<usize> {
    match action {
        ChainAction::Map { writes, .. }
        | ChainAction::Expand { writes, .. }
        | ChainAction::Given { writes, .. } => writes.clone(),
        ChainAction::Window(window) => window.writes.clone(),
        ChainAction::Keep { .. } | ChainAction::Give { .. } => Vec::new(),
    }
}

struct ChainInstruction {
    step: LabeledAction,
    /// Index of its first change among the counters of the path.
    first_counter: usize,
    /// Registers that no later instruction reads, and that the ones before have not cleared.
    dead: Vec<usize>,
}

/// A compiled selection of a chain's outputs, with the input columns that it needs.
struct ChainPath {
    instructions: Vec<ChainInstruction>,
    /// Input columns of chunks, in order.
    columns: Vec<String>,
    /// Registers of the input columns.
    registers: Vec<usize>,
    /// Number of counters of changes.
    counters: usize,
}

/// A change of rows or values that an action counts.
#[derive(Clone)]
struct CountedChange {
    change: RowChange,
    column: Option<String>,
    /// Label of its step, where actions of several steps are one.
    step: Option<Arc<str>>,
}

impl CountedChange {
    /// A change of values, under the first column that an operation writes; under none where that is hidden.
    fn of_first_column(map: &MapOp, change: RowChange) -> CountedChange {
        let first = map.writes.first().map(Field::name);
        let visible = first.filter(|name| !is_hidden(name));
        CountedChange {
            change,
            column: visible.cloned(),
            step: None,
        }
    }

    fn of_rows(change: RowChange) -> CountedChange {
        CountedChange {
            change,
            column: None,
            step: None,
        }
    }
}

/// An action with its label and its location in the spec.
#[derive(Clone)]
struct LabeledAction {
    action: ChainAction,
    /// The changes that it counts, in the order of its counters.
    changes: Vec<CountedChange>,
    label: Arc<str>,
    at: Option<SpecLocation>,
}

/// A stream's operations with their findings, compiled to run over chunks.
pub struct OpChain {
    /// The name of the source whose rows it receives; empty where they are those of an intermediate dataset.
    source: String,
    full: ChainPath,
    /// Advances window state without computing outputs.
    light: ChainPath,
    registers: usize,
    vector_bytes: usize,
    /// Fields of each tap's columns, after learning.
    fields: Vec<Vec<Field>>,
    windows: Vec<ChainWindow>,
    feedback: Option<PredictionFeedback>,
    admit: Option<AdmitBytes>,
    check_stop: Option<CheckStop>,
}

/// Windows that share one push, with the same row order.
#[derive(Debug, Clone)]
pub struct ChainWindow {
    /// Id of the first window.
    pub op: OpId,
    /// Order in which rows reach them.
    pub row_order: WindowRowOrder,
    /// The merged plan; `None` if the outputs come from elsewhere: from sorted rows, or from an as-of join of sides in
    /// order of time.
    pub plan: Option<Arc<WindowPlan>>,
    /// True for a join, whose other side is computed elsewhere.
    pub is_join: bool,
}

impl ChainWindow {
    /// True if the chain computes the outputs, from rows in order of time.
    fn is_in_time_order(&self) -> bool {
        self.plan.is_some() && self.row_order == WindowRowOrder::Time
    }
}

/// Inputs of chain compilation: findings, and the row order of each window.
#[derive(Clone, Copy)]
pub struct ChainContext<'a> {
    /// Returns the finding of an analyzer.
    pub finding: &'a dyn Fn(AnalyzerId) -> Result<Arc<Finding>>,
    /// Returns the row order of a window.
    pub row_order: &'a dyn Fn(OpId) -> WindowRowOrder,
    /// Fails if the process would exceed its memory with so many bytes more. Where there is none, nothing is checked.
    pub admit: Option<&'a AdmitBytes>,
    /// Fails when the run should stop, for kernels that wait. Where there is none, only their own limits end a wait.
    pub check_stop: Option<&'a CheckStop>,
}

impl OpChain {
    /// Fields of a tap's columns.
    pub fn fields(&self, want: usize) -> &[Field] {
        &self.fields[want]
    }

    /// The source whose rows it receives; empty where they are those of an intermediate dataset.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The windows, in order.
    pub fn windows(&self) -> &[ChainWindow] {
        &self.windows
    }

    /// True if a join comes behind an operation that may remove or add rows.
    pub fn may_change_rows_before_joins(&self) -> bool {
        let mut may_change_rows = false;
        for instruction in &self.full.instructions {
            match &instruction.step.action {
                ChainAction::Keep { .. } | ChainAction::Expand { .. } => may_change_rows = true,
                ChainAction::Given { join: Some(_), .. } if may_change_rows => return true,
                _ => {}
            }
        }
        false
    }

    /// Predictions that are inputs of later rows, if there are any.
    pub fn feedback(&self) -> Option<&PredictionFeedback> {
        self.feedback.as_ref()
    }

    /// True if the output of a row depends on earlier rows.
    pub fn is_ordered(&self) -> bool {
        self.windows.iter().any(|window| window.plan.is_some())
    }

    /// True if all series keep their state from chunk to chunk. Large chunks are then faster: the
    /// state of a series is loaded once for more rows.
    pub fn gains_by_rows(&self) -> bool {
        self.windows.iter().any(ChainWindow::is_in_time_order)
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

    /// True if groups of chunks are faster: windows in time order then load the state of a series
    /// once for its rows in all chunks of a group.
    pub fn gains_by_chunks(&self) -> bool {
        !self.windows.is_empty() && self.windows.iter().all(ChainWindow::is_in_time_order)
    }
}
