//! Operations: the result of binding a transform to its columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::logical_expr::{Expr, LogicalPlan};
use forebay_contract::{NumberExpr, PortableMap, TargetStage, WayBack};
use forebay_model::{
    AnyAnalyzer, ContentId, DuplicateRows, Finding, GroupBy, Result, RowChange, common_zoned_type,
};
use forebay_window::{SeriesLength, WindowPlan};
use serde::Serialize;
use serde_json::{Value, json};

use crate::expectation::Expectation;
use crate::time_shift::TimeShift;
use crate::tried_casts::TriedCasts;

/// Computes output columns from input columns of the same rows. The second argument is the number of rows. Inputs
/// may have any layout of their logical type (see `forebay_model::StringColumn`).
pub type ColumnKernel = Arc<dyn Fn(&[ArrayRef], usize) -> Result<Vec<ArrayRef>> + Send + Sync>;

/// Computes the input row of each output row, and the new columns.
pub type ExpandKernel = Arc<dyn Fn(&[ArrayRef], usize) -> Result<ExpandedRows> + Send + Sync>;

/// Combines the plans of the inputs into one plan.
pub type LowerGather = Arc<dyn Fn(Vec<LogicalPlan>) -> Result<LogicalPlan> + Send + Sync>;

/// Builds a kernel from findings, in the order of the requested analyzers.
pub type LowerMap = Arc<dyn Fn(&[Arc<Finding>]) -> Result<LoweredMap> + Send + Sync>;

/// Describes a computation; called by exports alone, since the description of a vocabulary copies it.
pub type DescribeMap = Arc<dyn Fn() -> Result<PortableMap> + Send + Sync>;

/// The result of `LowerMap`.
#[derive(Clone)]
pub struct LoweredMap {
    /// The kernel.
    pub kernel: ColumnKernel,
    /// Output fields, if they depend on findings (such as the width of a one-hot vector).
    pub fields: Option<Vec<Field>>,
    /// Describes the computation for exports, where other runtimes have it.
    pub portable: Option<DescribeMap>,
    /// A remedy where other runtimes do not have it.
    pub portable_instead: Option<&'static str>,
}

impl LoweredMap {
    /// A kernel with the declared output fields.
    pub fn new(
        kernel: impl Fn(&[ArrayRef], usize) -> Result<Vec<ArrayRef>> + Send + Sync + 'static,
    ) -> Self {
        LoweredMap {
            kernel: Arc::new(kernel),
            fields: None,
            portable: None,
            portable_instead: None,
        }
    }

    /// A kernel from each input column to one output column.
    pub fn unary(kernel: impl Fn(&ArrayRef) -> Result<ArrayRef> + Send + Sync + 'static) -> Self {
        LoweredMap::new(move |inputs, _| inputs.iter().map(&kernel).collect())
    }

    /// Sets the output fields.
    pub fn fields(mut self, fields: Vec<Field>) -> Self {
        self.fields = Some(fields);
        self
    }

    /// Sets the computation that exports repeat.
    pub fn portable(self, describe: impl Fn() -> PortableMap + Send + Sync + 'static) -> Self {
        self.portable_within_limits(move || Ok(describe()))
    }

    /// Sets the computation that exports repeat, unless it is beyond their limits.
    pub fn portable_within_limits(
        mut self,
        describe: impl Fn() -> Result<PortableMap> + Send + Sync + 'static,
    ) -> Self {
        self.portable = Some(Arc::new(describe));
        self
    }

    /// Sets a number's computation that exports repeat.
    pub fn portable_number(self, expression: NumberExpr) -> Self {
        self.portable(move || PortableMap::Number(expression.clone()))
    }

    /// Sets the way back to a number, whose computation exports do not repeat.
    pub fn way_back(self, solve: impl Fn(f64) -> f64 + Send + Sync + 'static) -> Self {
        let way_back = WayBack::new(solve);
        self.portable(move || PortableMap::WayBack(way_back.clone()))
    }
}

/// Combines the finding of an earlier run with that of the rows of this run, in this order.
pub type CombineFindings = Arc<dyn Fn(&Finding, &Finding) -> Result<Finding> + Send + Sync>;

/// A request for an analyzer over columns at the operation's position.
#[derive(Clone)]
pub struct AnalyzerRequest {
    /// The analyzer.
    pub analyzer: Arc<dyn AnyAnalyzer>,
    /// Input columns, in order.
    pub inputs: Vec<String>,
    /// Another step or source whose rows are read instead of this step's (the other side of a join). Such findings
    /// are reference data: they are recomputed when an artifact is applied.
    pub of: Option<String>,
    /// The part of the split whose rows are read, for a finding of one run's rows; `None` for all rows.
    pub part: Option<String>,
    /// True if the finding describes the rows of one run. It is computed again when an artifact is
    /// applied or replaces findings of a degraded run, and no artifact holds it.
    pub per_run: bool,
    /// True if the rows of the future are read instead of the known ones.
    pub of_future: bool,
    /// Combination with the finding of the previous run, if there is one.
    pub continues: Option<CombineFindings>,
    /// Text that determines ids in addition to the finding that it continues.
    pub numbering_scheme: String,
    /// Columns of the finding that decide the values of rows; `None` for all.
    pub row_columns: Option<Vec<String>>,
}

impl AnalyzerRequest {
    /// Requests an analyzer over columns of this step.
    pub fn new(
        analyzer: impl AnyAnalyzer + 'static,
        inputs: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let inputs = inputs.into_iter().map(Into::into).collect();
        AnalyzerRequest {
            analyzer: Arc::new(analyzer),
            inputs,
            of: None,
            part: None,
            per_run: false,
            of_future: false,
            continues: None,
            numbering_scheme: String::new(),
            row_columns: None,
        }
    }

    /// Shows the operation these columns of the finding alone. Shards, states and checkpoints of rows are named by them:
    /// they stay as long as these columns do, also where others move, such as counts.
    pub fn row_columns(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.row_columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// The part of the finding that decides the values of rows.
    pub fn row_finding(&self, finding: Arc<Finding>) -> Result<Arc<Finding>> {
        match &self.row_columns {
            None => Ok(finding),
            Some(columns) => Ok(Arc::new(finding.with_columns(columns)?)),
        }
    }

    /// Continues the findings of earlier runs, whose rows keep their places as ids. `scheme`
    /// identifies everything else that determines the ids.
    pub fn continuing(
        mut self,
        combine: impl Fn(&Finding, &Finding) -> Result<Finding> + Send + Sync + 'static,
        scheme: impl Into<String>,
    ) -> Self {
        self.continues = Some(Arc::new(combine));
        self.numbering_scheme = scheme.into();
        self
    }

    /// Computes the finding from the rows of each run.
    pub fn per_run(mut self) -> Self {
        self.per_run = true;
        self
    }

    /// Computes the finding from the rows of each run that are in a part of the split.
    pub fn per_run_of_part(mut self, part: Option<&str>) -> Self {
        self.part = part.map(str::to_owned);
        self.per_run()
    }

    /// Reads the rows of the future of this step, in each run.
    pub fn of_future_rows(mut self) -> Self {
        self.of_future = true;
        self.per_run()
    }

    /// Reads another step or source instead.
    pub fn read_from(mut self, node: impl Into<String>) -> Self {
        self.of = Some(node.into());
        self
    }
}

/// Kind of the rows or values that a kernel marks, to be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowMark {
    /// A prediction was moved to a bound.
    Clipped,
    /// Predicted quantiles crossed, and were sorted.
    Crossed,
    /// A model had no value to predict from, and predicted a constant.
    Constant,
    /// A join found no row of the other side.
    NoMatch,
    /// A value is neither learned nor listed. Lists have a mark for each element.
    Unknown,
    /// A value was moved to the end of a range that was learned.
    Ended,
}

/// Counts the values of a column that an operation changed, given the column before and after.
pub type CountValues = fn(&ArrayRef, &ArrayRef) -> Result<u64>;

/// A change of values that the ledger of rows counts.
#[derive(Clone)]
pub struct ValueCount {
    /// The reason.
    pub change: RowChange,
    /// Index among the columns that the operation reads.
    pub before: usize,
    /// Index among the columns that it writes.
    pub after: usize,
    /// The column by which the ledger calls the change; by default the one that is written.
    pub column: Option<String>,
    /// Counts the values of a batch.
    pub count: CountValues,
}

impl ValueCount {
    /// Counts the change of the first column read into the first column written.
    pub fn new(change: RowChange, count: CountValues) -> ValueCount {
        ValueCount {
            change,
            before: 0,
            after: 0,
            column: None,
            count,
        }
    }

    /// Counts the missing values of a column that an operation reads and fills for itself; `read_index` is its index
    /// among the columns that are read.
    pub fn filled(read_index: usize, column: impl Into<String>) -> ValueCount {
        ValueCount {
            before: read_index,
            column: Some(column.into()),
            ..ValueCount::new(RowChange::Imputed, |column_before, _| {
                Ok(column_before.logical_null_count() as u64)
            })
        }
    }

    /// Counts the values that became null.
    pub fn nulled() -> ValueCount {
        ValueCount::new(RowChange::Nulled, |column_before, column_after| {
            let nulls_before = column_before.logical_null_count();
            let nulls = column_after
                .logical_null_count()
                .saturating_sub(nulls_before);
            Ok(nulls as u64)
        })
    }
}

/// Predictions that become values of the rows that they are for, before later rows are computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredictionFeedback {
    /// The written column with the predictions.
    pub prediction: String,
    /// Column that receives the predictions, in the rows before the first operation.
    pub label: String,
    /// Event-time column of the rows before the first operation.
    pub time: String,
}

/// The rows in which the columns that a [`MapOp`] writes are null. A column that is declared without nulls has none.
#[derive(Debug, Clone, Default)]
pub enum WrittenNulls {
    /// Rows in which a column that it reads is null.
    #[default]
    Read,
    /// Rows in which this column is null.
    Of(String),
    /// Other rows, too. The text continues a sentence that begins with the step.
    Made(&'static str),
    /// Other rows alone: it has a value where a column that it reads is null, as for a category of its own. The text
    /// continues a sentence that begins with the step.
    MadeOfOthers(&'static str),
    /// Rows in which this SQL expression is null.
    Computed(Box<ComputedNulls>),
    /// No rows: the operation fills nulls.
    Filled,
}

/// The nulls of a SQL expression.
#[derive(Debug, Clone)]
pub struct ComputedNulls {
    /// The expression. `None` if it is too deep for the stack of a thread that walks it: null where a column is.
    pub logical: Option<Expr>,
    /// Its casts whose nulls are counted.
    pub tried: TriedCasts,
}

/// A row-wise operation: one output row for each input row.
#[derive(Clone)]
pub struct MapOp {
    /// Columns read.
    pub reads: Vec<String>,
    /// Columns written. A column of the same name is replaced, which is allowed only if it is among `reads`.
    pub writes: Vec<Field>,
    /// Analyzers whose findings it needs.
    pub asks: Vec<AnalyzerRequest>,
    /// Builds the kernel.
    pub lower: LowerMap,
    /// Distance in nanoseconds before the row's time at which the learned data ends, for findings that depend on
    /// the row's series or time (a table by time). `None` for global statistics.
    pub behind: Option<SeriesLength>,
    /// Expectation about the rows, which the findings of `asks` decide.
    pub expectation: Option<Expectation>,
    /// Kinds of marked rows and values. The kernel returns a Boolean column for each, after those that it writes.
    pub marks: Vec<RowMark>,
    /// The changes of values that are counted.
    pub value_counts: Vec<ValueCount>,
    /// Written predictions that are inputs of later rows.
    pub feedback: Option<PredictionFeedback>,
    /// True if it looks up the rows of a join: its output is null where there is no match.
    pub finds_rows: bool,
    /// The column of times that its only output is, and how far the output lies from it.
    pub moved: Option<Box<MovedTime>>,
    /// The rows of another step whose values it writes.
    pub met: Option<Box<MetRows>>,
    /// Rows in which its output is null.
    pub nulls: WrittenNulls,
    /// The stage of the transformation of a target that it applies, which predictions undo.
    pub target: Option<Box<TargetStage>>,
    /// True if it writes what values of other rows, at any time, tell of a row: its labels, say. Other statistics count
    /// as known.
    pub of_other_rows: bool,
    /// The content of code that lies outside the spec and computes its columns.
    pub code: Option<ContentId>,
}

/// A column of times that an operation moves by a known or bounded distance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedTime {
    /// The column.
    pub from: String,
    /// The distance from it.
    pub shift: TimeShift,
}

/// Rows of another step that rows of this step look up by equal keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetRows {
    /// Key columns of this side and the other side.
    pub keys: Vec<(String, String)>,
    /// The other side's column whose values are written; `None` where the position of the row is.
    pub column: Option<String>,
}

fn has_field(fields: &[Field], name: &str) -> bool {
    fields.iter().any(|field| field.name() == name)
}

impl MapOp {
    /// True if it writes a column of this name.
    pub fn is_written(&self, name: &str) -> bool {
        has_field(&self.writes, name)
    }

    /// An operation without analyzers.
    pub fn new(
        reads: impl IntoIterator<Item = impl Into<String>>,
        writes: impl IntoIterator<Item = Field>,
        kernel: impl Fn(&[ArrayRef], usize) -> Result<Vec<ArrayRef>> + Send + Sync + 'static,
    ) -> Self {
        let lowered = LoweredMap::new(kernel);
        MapOp {
            reads: reads.into_iter().map(Into::into).collect(),
            writes: writes.into_iter().collect(),
            asks: Vec::new(),
            lower: Arc::new(move |_| Ok(lowered.clone())),
            behind: None,
            expectation: None,
            marks: Vec::new(),
            value_counts: Vec::new(),
            feedback: None,
            finds_rows: false,
            moved: None,
            met: None,
            nulls: WrittenNulls::default(),
            target: None,
            of_other_rows: false,
            code: None,
        }
    }

    /// Creates an operation whose kernel depends on the findings of `requests`.
    pub fn fitted(
        reads: impl IntoIterator<Item = impl Into<String>>,
        writes: impl IntoIterator<Item = Field>,
        requests: impl IntoIterator<Item = AnalyzerRequest>,
        lower: impl Fn(&[Arc<Finding>]) -> Result<LoweredMap> + Send + Sync + 'static,
    ) -> Self {
        MapOp {
            reads: reads.into_iter().map(Into::into).collect(),
            writes: writes.into_iter().collect(),
            asks: requests.into_iter().collect(),
            lower: Arc::new(lower),
            behind: None,
            expectation: None,
            marks: Vec::new(),
            value_counts: Vec::new(),
            feedback: None,
            finds_rows: false,
            moved: None,
            met: None,
            nulls: WrittenNulls::default(),
            target: None,
            of_other_rows: false,
            code: None,
        }
    }
}

impl MapOp {
    /// Creates an operation that changes nothing, and learns the findings of `requests`.
    pub fn asking(requests: impl IntoIterator<Item = AnalyzerRequest>) -> Self {
        let no_columns = LoweredMap::new(|_: &[ArrayRef], _| Ok(Vec::new()));
        let no_reads: [&str; 0] = [];
        MapOp::fitted(no_reads, [], requests, move |_| Ok(no_columns.clone()))
    }

    /// Creates an operation that changes nothing, and judges the rows by the findings of `requests`.
    pub fn expecting(
        requests: impl IntoIterator<Item = AnalyzerRequest>,
        expectation: Expectation,
    ) -> Self {
        MapOp {
            expectation: Some(expectation),
            ..MapOp::asking(requests)
        }
    }

    /// Sets a number's computation that exports repeat, for an operation that learns nothing.
    pub fn portable_number(self, expression: NumberExpr) -> Self {
        self.portable(PortableMap::Number(expression))
    }

    /// Sets the computation that exports repeat, for an operation that learns nothing.
    pub fn portable(mut self, map: PortableMap) -> Self {
        let lower = self.lower;
        self.lower = Arc::new(move |findings| {
            let lowered = lower(findings)?;
            let map = map.clone();
            Ok(lowered.portable(move || map.clone()))
        });
        self
    }

    /// Sets the remedy for exports, which refuse the operation.
    pub fn portable_instead(mut self, remedy: &'static str) -> Self {
        let lower = self.lower;
        self.lower = Arc::new(move |findings| {
            let mut lowered = lower(findings)?;
            lowered.portable_instead = Some(remedy);
            Ok(lowered)
        });
        self
    }

    /// Counts a change of values.
    pub fn counting(mut self, count: ValueCount) -> Self {
        self.value_counts.push(count);
        self
    }

    /// Counts the rows and values that the kernel marks.
    pub fn marking(mut self, marks: impl IntoIterator<Item = RowMark>) -> Self {
        self.marks = marks.into_iter().collect();
        self
    }

    /// Counts as the search for the rows of a join.
    pub fn finding_rows(mut self) -> Self {
        self.finds_rows = true;
        self
    }

    /// Sets the time column that the only output is computed from, and the distance between the
    /// two.
    pub fn moving(mut self, moved: Option<MovedTime>) -> Self {
        self.moved = moved.map(Box::new);
        self
    }

    /// Sets the rows of another step from which the values come.
    pub fn meeting(mut self, met: MetRows) -> Self {
        self.met = Some(Box::new(met));
        self
    }

    /// Sets the rows in which the output is null.
    pub fn written_nulls(mut self, nulls: WrittenNulls) -> Self {
        self.nulls = nulls;
        self
    }

    /// Marks values that are those of other rows, at any time.
    pub fn of_other_rows(mut self) -> Self {
        self.of_other_rows = true;
        self
    }

    /// Sets the content of code that lies outside the spec and computes the columns. Other code gives other ids.
    pub fn with_code(mut self, code: ContentId) -> Self {
        self.code = Some(code);
        self
    }

    /// Applies a stage of the transformation of a target.
    pub fn transforming_target(mut self, stage: TargetStage) -> Self {
        self.target = Some(Box::new(stage));
        self
    }

    /// Sets the distance before the row's time at which the learned data ends, in nanoseconds or rows.
    pub fn data_age(mut self, behind: SeriesLength) -> Self {
        self.behind = Some(behind);
        self
    }
}

/// Keeps the rows for which a condition is true; null counts as false.
#[derive(Clone)]
pub struct FilterOp {
    /// Columns read.
    pub reads: Vec<String>,
    /// Computes one Boolean column.
    pub kernel: ColumnKernel,
    /// The condition, for pruning row groups and for `explain`.
    pub condition: Option<Expr>,
    /// Set for a filter of rows to learn from: rows of the future pass it.
    pub learning: bool,
    /// The reason for which rows are removed.
    pub reason: RowChange,
    /// Columns that have a value in every row that it keeps, beyond those that the condition shows.
    pub valued: Vec<String>,
}

/// Result of an `ExpandKernel`: the input row of each output row, and the new columns.
pub struct ExpandedRows {
    /// Input rows, not necessarily distinct, in ascending order.
    pub picks: UInt32Array,
    /// The written columns, of the same length as `picks`.
    pub columns: Vec<ArrayRef>,
}

/// Produces any number of output rows per input row.
#[derive(Clone)]
pub struct ExpandOp {
    /// Columns read.
    pub reads: Vec<String>,
    /// Columns written; all others are repeated.
    pub writes: Vec<Field>,
    /// The kernel.
    pub kernel: ExpandKernel,
}

impl ExpandOp {
    /// True if it writes a column of this name.
    pub fn is_written(&self, name: &str) -> bool {
        has_field(&self.writes, name)
    }
}

/// Windows over series: one output row per input row, in the same order. The new columns depend on earlier rows of
/// the same series.
#[derive(Clone)]
pub struct WindowOp {
    /// The event-time column.
    pub time: String,
    /// Columns that identify a series.
    pub keys: Vec<String>,
    /// Input columns of the plan.
    pub reads: Vec<String>,
    /// Output columns of the plan.
    pub writes: Vec<Field>,
    /// The window functions.
    pub plan: Arc<WindowPlan>,
    /// True if series are read backward: "earlier" then means later.
    pub backward: bool,
    /// Windows of different divisions are not merged: rows of the future and their history then have the same ones. Its
    /// flow sets it.
    pub division: u32,
}

/// The division of a flow's windows that the next ones belong to. Rows of the future meet the windows behind
/// `future_rows` alone, and no filters for learning; rows of one input of a union meet its windows alone. Windows are merged
/// on one side of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowDivision {
    number: u32,
    has_windows: bool,
}

impl WindowDivision {
    /// Puts a window into the division.
    pub(crate) fn enter(&mut self, op: &mut PlanOp) {
        if let PlanOp::Window(window) = op {
            window.division = self.number;
            self.has_windows = true;
        }
    }

    /// Begins another division, if this one has windows.
    pub(crate) fn end(&mut self) {
        self.number += u32::from(self.has_windows);
        self.has_windows = false;
    }

    /// The division of windows behind a union.
    pub(crate) fn unite(&mut self, other: WindowDivision) {
        self.number = self.number.max(other.number);
        self.has_windows |= other.has_windows;
    }
}

impl WindowOp {
    /// True if it writes a column of this name.
    pub fn is_written(&self, name: &str) -> bool {
        has_field(&self.writes, name)
    }

    /// All columns that the window reads.
    pub fn columns(&self) -> impl Iterator<Item = &String> {
        self.keys.iter().chain([&self.time]).chain(&self.reads)
    }

    /// True if both receive the same rows of the same series.
    pub fn is_alike(&self, other: &WindowOp) -> bool {
        (&self.time, &self.keys, self.backward) == (&other.time, &other.keys, other.backward)
            && self.division == other.division
            && self.plan.shares_state_with(&other.plan)
    }

    /// Merges two windows whose columns have the same names here. The outputs of `self` come first.
    pub fn with(mut self, other: &WindowOp) -> WindowOp {
        let (reads, plan) = self.plan.merge(&self.reads, &other.plan, &other.reads);
        (self.reads, self.plan) = (reads, Arc::new(plan));
        self.writes.extend(other.writes.iter().cloned());
        self
    }
}

/// A function that is given whole series: one output row per input row, in the same order. The new columns depend on
/// all rows of the same series, which the function receives at once.
#[derive(Clone)]
pub struct SeriesOp {
    /// The column by which the rows of a series are ordered; without one they keep their order.
    pub time: Option<String>,
    /// Columns that identify a series.
    pub keys: Vec<String>,
    /// Columns that the function receives.
    pub reads: Vec<String>,
    /// Columns that it returns.
    pub writes: Vec<Field>,
    /// Computes the columns of all rows of one series.
    pub kernel: ColumnKernel,
    /// True if a value may be computed from rows behind its own.
    pub looks_ahead: bool,
    /// Distance from the last rows that a value is computed from to its own row, with exact times in nanoseconds; `None`
    /// where it may be computed from its own.
    pub behind: Option<SeriesLength>,
    /// The content of code that lies outside the spec and computes its columns.
    pub code: Option<ContentId>,
}

impl SeriesOp {
    /// True if it writes a column of this name.
    pub fn is_written(&self, name: &str) -> bool {
        has_field(&self.writes, name)
    }

    /// All columns that are read.
    pub fn columns(&self) -> impl Iterator<Item = &String> {
        self.keys.iter().chain(&self.time).chain(&self.reads)
    }
}

/// Direction in which an as-of join looks for the matching row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchDirection {
    /// The last row at or before the row's time.
    Backward,
    /// The first row at or after the row's time.
    Forward,
    /// The nearer of both; the earlier one if both are equally near.
    Nearest,
}

/// Columns of the matching row of another step or source. One output row per input row, in the same order. A null key
/// matches nothing. Neither side has to fit into memory.
#[derive(Debug, Clone)]
pub struct JoinOp {
    /// The other step or source.
    pub other: String,
    /// Key columns of this side and the other side, of comparable types.
    pub keys: Vec<(String, String)>,
    /// Column that marks rows with a match. Of `Equality` only.
    pub matched: Option<Field>,
    /// True if rows without a match stay, with nulls.
    pub keeps_unmatched: bool,
    /// Columns taken from the other side, and the fields they become.
    pub columns: Vec<(String, Field)>,
    /// Condition of a match.
    pub by: JoinBy,
}

/// Condition of a match with a row of the other side.
#[derive(Debug, Clone)]
pub enum JoinBy {
    /// The row of the same key that is valid at the time of the row.
    Time(AsOf),
    /// The row of the same key.
    Equality(JoinChecks),
}

/// The cardinality that an equality join checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct JoinChecks {
    /// Two rows of this side must not match one row of the other side.
    pub unique_here: bool,
    /// Two rows of the other side must not have the same key.
    pub unique_there: bool,
}

/// Match by time. Of rows with equal times on the other side, the last one counts. A null time matches nothing.
#[derive(Debug, Clone)]
pub struct AsOf {
    /// Time column of this side.
    pub time: String,
    /// Time column of the other side, of a comparable type.
    pub other_time: String,
    /// Column of the other side that contains the time when a row became known, of a comparable type: the row is
    /// invisible before.
    pub known_at: Option<String>,
    /// Direction in which the matching row is searched.
    pub direction: MatchDirection,
    /// Largest distance in time, inclusive, in ticks.
    pub tolerance: Option<i64>,
    /// True if a row of exactly the same time matches.
    pub exact: bool,
}

impl AsOf {
    /// The type whose ticks are used to compare times of both sides: for timestamps, the finer unit. Either both or
    /// none must have a time zone. `None` if the types are not comparable.
    pub fn time_type(own_type: &DataType, other_type: &DataType) -> Option<DataType> {
        match (own_type, other_type) {
            (a, b) if a == b => Some(a.clone()),
            (a, b) if a.is_integer() && b.is_integer() => {
                JoinOp::key_type(a, b).filter(|common| *common == DataType::Int64)
            }
            (DataType::Timestamp(a, zone), DataType::Timestamp(b, other))
                if zone.is_some() == other.is_some() =>
            {
                // Units are ordered from coarse to fine.
                Some(DataType::Timestamp((*a).max(*b), zone.clone()))
            }
            _ => None,
        }
    }
}

impl JoinOp {
    /// The type in which keys of both sides are compared; `None` if they are not comparable.
    pub fn key_type(own_type: &DataType, other_type: &DataType) -> Option<DataType> {
        match (own_type, other_type) {
            (a, b) if a == b => Some(a.clone()),
            (a, b) if a.is_integer() && b.is_integer() => {
                Some(match (a.is_signed_integer(), b.is_signed_integer()) {
                    (true, true) => DataType::Int64,
                    (false, false) => DataType::UInt64,
                    _ if *a != DataType::UInt64 && *b != DataType::UInt64 => DataType::Int64,
                    // Covers all signed and unsigned 64-bit integers.
                    _ => DataType::Decimal128(20, 0),
                })
            }
            (a, b) if a.is_floating() && b.is_floating() => Some(DataType::Float64),
            // Zones by several names are one.
            _ => common_zoned_type(own_type, other_type),
        }
    }

    /// The match by time, unless keys alone match.
    pub fn as_of(&self) -> Option<&AsOf> {
        match &self.by {
            JoinBy::Time(as_of) => Some(as_of),
            JoinBy::Equality(_) => None,
        }
    }

    /// The columns that it writes.
    pub fn writes(&self) -> impl Iterator<Item = &Field> {
        self.matched
            .iter()
            .chain(self.columns.iter().map(|(_, field)| field))
    }

    /// True if it writes a column of this name.
    pub fn is_written(&self, name: &str) -> bool {
        self.writes().any(|field| field.name() == name)
    }

    /// Columns read from this side.
    pub fn columns_here(&self) -> impl Iterator<Item = &String> {
        self.keys
            .iter()
            .map(|(column, _)| column)
            .chain(self.as_of().map(|as_of| &as_of.time))
    }

    /// Columns read from the other side.
    pub fn columns_there(&self) -> impl Iterator<Item = &String> {
        let keys = self.keys.iter().map(|(_, other_column)| other_column);
        let times = self
            .as_of()
            .into_iter()
            .flat_map(|as_of| [&as_of.other_time].into_iter().chain(&as_of.known_at));
        keys.chain(times)
            .chain(self.columns.iter().map(|(other_column, _)| other_column))
    }
}

/// An operation over all rows at once. It runs in a pass of its own, whose result is an intermediate dataset.
#[derive(Clone)]
pub struct GatherOp {
    /// Further inputs: steps or sources by name. This step's own rows are the first input, unless `alone`.
    pub others: Vec<String>,
    /// True if only `others` are read.
    pub alone: bool,
    /// Columns of the result.
    pub schema: SchemaRef,
    /// Method of computation.
    pub lower: GatherBy,
    /// The query that computes the rows, if one does.
    pub query: Option<Arc<QueryPlan>>,
}

/// A query, for the age of its columns.
#[derive(Debug, Clone)]
pub struct QueryPlan {
    /// The plan over the tables that it names.
    pub plan: LogicalPlan,
    /// Declared distances before a row's time at which the data of a column ends.
    pub data_age: BTreeMap<String, SeriesLength>,
}

/// Method by which a `GatherOp` computes its rows.
#[derive(Clone)]
pub enum GatherBy {
    /// The query engine computes the rows. The plan's output must have the columns of the gather's
    /// schema in a canonical order of rows. The plans of the inputs have an extra column `ROW`, the
    /// position of the row in canonical order.
    Query(LowerGather),
    /// Keeps one row per key, the first or the last; rows keep their order.
    OnePerKey {
        /// The key columns.
        keys: Vec<String>,
        /// True if the last row of a key stays, instead of the first.
        last: bool,
    },
    /// Returns one row per key, computed from mergeable states, in the order of the keys, nulls
    /// last.
    GroupBy(GroupByOp),
    /// Joins the rows of the only other input. Rows are in the order of this step's rows, then of the other's.
    Join {
        /// The keys, and the columns to bring.
        join: JoinOp,
        /// True if rows without a match stay, with nulls.
        unmatched: bool,
    },
    /// Makes rows of the future. They do not replace the step's rows: they come after them in sinks
    /// that request them.
    Future(FutureRowsOp),
}

/// One row per key.
#[derive(Debug, Clone)]
pub struct GroupByOp {
    /// Aggregates to compute.
    pub spec: Arc<GroupBy>,
    /// Input columns: the keys, then the values.
    pub inputs: Vec<String>,
}

impl GroupByOp {
    /// The columns that are read of a schema: the inputs, or any column by which rows are counted.
    pub fn read_columns(&self, schema: &Schema) -> Vec<usize> {
        let fields = schema.fields().iter().enumerate();
        let read: Vec<usize> = fields
            .filter(|(_, field)| self.inputs.contains(field.name()))
            .map(|(position, _)| position)
            .collect();
        if read.is_empty() {
            (0..schema.fields().len().min(1)).collect()
        } else {
            read
        }
    }
}

/// Batches of rows that are made one after the other.
pub type RowBatches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Makes rows from findings.
pub type LowerRows = Arc<dyn Fn(&[Arc<Finding>]) -> Result<RowBatches> + Send + Sync>;

/// Makes the rows of the future of some series, given the finding of all last rows, and the rows of these series in it.
pub type RowsOfSeries = Arc<dyn Fn(&Finding, &[u32]) -> Result<RowBatches> + Send + Sync>;

/// Counts series, given the finding of their last rows.
pub type CountSeries = Arc<dyn Fn(&Finding) -> Result<FutureSeries> + Send + Sync>;

/// The series that rows of the future continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FutureSeries {
    /// Series that go on.
    pub active: u64,
    /// Series that ended too long ago.
    pub ended: u64,
    /// The last time of the data, in ticks; `None` without data.
    pub known_until: Option<i64>,
    /// Series that go on after the last time of the data, although they end before it.
    pub behind: u64,
    /// The last time of these series, in ticks.
    pub last_behind: Option<i64>,
    /// Rows that have the keys and the last time of an earlier row of their series.
    pub duplicates: u64,
    /// The first series whose last time has several rows.
    pub repeated_ends: Vec<RepeatedEnd>,
    /// Series that go on and have more than one time.
    pub paired: u64,
    /// Those of them whose last two times are further apart than a step.
    pub sparse: u64,
    /// The last two times of the first of these, in ticks.
    pub sparse_end: Option<[i64; 2]>,
}

/// The end of a series, at which it has several rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatedEnd {
    /// The keys of the series as text.
    pub keys: Vec<String>,
    /// Its last time in ticks.
    pub time: i64,
    /// The rows at that time.
    pub rows: u64,
}

/// Rows that continue every series beyond its last time.
#[derive(Clone)]
pub struct FutureRowsOp {
    /// Finds the last row of each series.
    pub latest: AnalyzerRequest,
    /// The columns that identify a series.
    pub keys: Vec<String>,
    /// The event-time column.
    pub time: String,
    /// Distance of the last row of a series from the time up to which the series is known, in nanoseconds, or in steps
    /// of a time column of integers.
    pub horizon: SeriesLength,
    /// Rows per series.
    pub steps: u64,
    /// Treatment of series whose last time has several rows.
    pub duplicates: DuplicateRows,
    /// Counts the series.
    pub count: CountSeries,
    /// Makes the rows, with the hidden columns [`KNOWN_UNTIL`](crate::KNOWN_UNTIL) and
    /// [`HORIZON_STEP`](forebay_contract::HORIZON_STEP).
    pub rows: LowerRows,
    /// Makes those of the rows that continue some of the series.
    pub rows_of_series: RowsOfSeries,
}

impl GatherOp {
    /// Column with the position of a row in the canonical order of the input, `UInt64`.
    pub const ROW: &'static str = "__row";
}

/// An operation of a flow.
#[derive(Clone)]
pub enum PlanOp {
    /// See `MapOp`.
    Map(MapOp),
    /// See `FilterOp`.
    Keep(FilterOp),
    /// Selects and renames the visible columns: (old name, new name).
    Project(Vec<(String, String)>),
    /// See `ExpandOp`.
    Expand(ExpandOp),
    /// See `WindowOp`.
    Window(WindowOp),
    /// See [`SeriesOp`].
    Series(SeriesOp),
    /// See [`JoinOp`].
    Join(JoinOp),
    /// See `GatherOp`.
    Gather(GatherOp),
}

impl PlanOp {
    /// True if it writes the values of a column of this name. A projection writes none.
    pub fn is_written(&self, name: &str) -> bool {
        match self {
            PlanOp::Map(map) => map.is_written(name),
            PlanOp::Expand(expand) => expand.is_written(name),
            PlanOp::Window(window) => window.is_written(name),
            PlanOp::Series(series) => series.is_written(name),
            PlanOp::Join(join) => join.is_written(name),
            PlanOp::Keep(_) | PlanOp::Project(_) | PlanOp::Gather(_) => false,
        }
    }

    /// Names of the columns whose values it writes. A projection writes none.
    pub fn written_columns(&self) -> Vec<&String> {
        match self {
            PlanOp::Map(map) => map.writes.iter().map(Field::name).collect(),
            PlanOp::Expand(expand) => expand.writes.iter().map(Field::name).collect(),
            PlanOp::Window(window) => window.writes.iter().map(Field::name).collect(),
            PlanOp::Series(series) => series.writes.iter().map(Field::name).collect(),
            PlanOp::Join(join) => join.writes().map(Field::name).collect(),
            PlanOp::Keep(_) | PlanOp::Project(_) | PlanOp::Gather(_) => Vec::new(),
        }
    }

    /// True if it decides which rows a stream has.
    pub fn changes_rows(&self) -> bool {
        matches!(self, PlanOp::Keep(_) | PlanOp::Expand(_))
    }

    /// Keeps columns under the names that they have, in this order.
    pub fn keep_columns(names: impl IntoIterator<Item = impl Into<String>>) -> PlanOp {
        let columns = names.into_iter().map(|name| {
            let name = name.into();
            (name.clone(), name)
        });
        PlanOp::Project(columns.collect())
    }

    /// True if output rows depend on other rows with the same keys.
    pub fn is_over_series(&self) -> bool {
        matches!(
            self,
            PlanOp::Window(_) | PlanOp::Series(_) | PlanOp::Join(_)
        )
    }
}

impl PlanOp {
    /// Facts that binding added to the step's kind and configuration: columns, their types, and
    /// windows. Part of the operation's content id, so that a change here needs a new name of that
    /// id.
    pub(crate) fn identity(&self) -> Result<Value> {
        let names = |fields: &[Field]| {
            fields
                .iter()
                .map(|field| field.name().clone())
                .collect::<Vec<_>>()
        };
        let column_identity = |(other_column, field): &(String, Field)| {
            json!([other_column, field.name(), field.data_type().to_string()])
        };
        Ok(match self {
            PlanOp::Map(map) => {
                let mut identity = json!({ "map": map.reads, "writes": names(&map.writes) });
                // Operations without such code keep the ids that they have always had.
                if let Some(code) = map.code {
                    identity["code"] = json!(code);
                }
                identity
            }
            PlanOp::Keep(keep) => json!({ "filter": keep.reads }),
            PlanOp::Project(columns) => json!({ "project": columns }),
            PlanOp::Expand(expand) => {
                json!({ "expand": expand.reads, "writes": names(&expand.writes) })
            }
            PlanOp::Window(window) => {
                let mut identity = json!({
                    "window": window.plan.to_json()?,
                    "time": window.time,
                    "keys": window.keys,
                    "reads": window.reads,
                    "writes": names(&window.writes),
                    "backward": window.backward,
                });
                // Windows of flows with one division keep the ids that they have always had.
                if window.division > 0 {
                    identity["division"] = json!(window.division);
                }
                identity
            }
            PlanOp::Series(series) => json!({
                "series": series.keys,
                "time": series.time,
                "reads": series.reads,
                "writes": names(&series.writes),
                "code": series.code,
            }),
            PlanOp::Join(join) => {
                let columns = join.columns.iter().map(column_identity).collect::<Vec<_>>();
                match &join.by {
                    JoinBy::Time(as_of) => json!({
                        "as_of": join.other,
                        "keys": join.keys,
                        "time": as_of.time,
                        "other_time": as_of.other_time,
                        "known_at": as_of.known_at,
                        "direction": as_of.direction,
                        "tolerance": as_of.tolerance,
                        "exact": as_of.exact,
                        "columns": columns,
                    }),
                    JoinBy::Equality(checks) => json!({
                        "equal": join.other,
                        "keys": join.keys,
                        "matched": join.matched.as_ref().map(Field::name),
                        "checks": checks,
                        "columns": columns,
                    }),
                }
            }
            PlanOp::Gather(GatherOp {
                lower: GatherBy::Future(future),
                ..
            }) => {
                json!({ "future": future.latest.inputs, "keys": future.keys, "time": future.time })
            }
            PlanOp::Gather(gather) => json!({ "gather": gather.others }),
        })
    }
}
