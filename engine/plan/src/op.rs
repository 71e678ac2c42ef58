//! Operations: the result of binding a transform to its columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::logical_expr::{Expr, LogicalPlan};
use forebay_model::{AnyAnalyzer, Finding, GroupBy, Result, RowChange};
use forebay_window::{SeriesLength, WindowPlan};
use serde::Serialize;
use serde_json::{Value, json};

use crate::expectation::Expectation;
use crate::time_shift::TimeShift;

/// Computes output columns from input columns of the same rows. The second argument is the number of rows. Inputs
/// may have any layout of their logical type (see `forebay_model::StringColumn`).
pub type ColumnKernel = Arc<dyn Fn(&[ArrayRef], usize) -> Result<Vec<ArrayRef>> + Send + Sync>;

/// Computes the input row of each output row, and the new columns.
pub type ExpandKernel = Arc<dyn Fn(&[ArrayRef], usize) -> Result<ExpandedRows> + Send + Sync>;

/// Combines the plans of the inputs into one plan.
pub type LowerGather = Arc<dyn Fn(Vec<LogicalPlan>) -> Result<LogicalPlan> + Send + Sync>;

/// Builds a kernel from findings, in the order of the requested analyzers.
pub type LowerMap = Arc<dyn Fn(&[Arc<Finding>]) -> Result<LoweredMap> + Send + Sync>;

/// The result of `LowerMap`.
#[derive(Clone)]
pub struct LoweredMap {
    /// The kernel.
    pub kernel: ColumnKernel,
    /// Output fields, if they depend on findings (such as the width of a one-hot vector).
    pub fields: Option<Vec<Field>>,
}

impl LoweredMap {
    /// A kernel with the declared output fields.
    pub fn new(
        kernel: impl Fn(&[ArrayRef], usize) -> Result<Vec<ArrayRef>> + Send + Sync + 'static,
    ) -> Self {
        LoweredMap {
            kernel: Arc::new(kernel),
            fields: None,
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
}

/// Combines the finding of an earlier run with that of the rows of this run, in this order.
pub type CombineFindings = Arc<dyn Fn(&Finding, &Finding) -> Result<Finding> + Send + Sync>;

/// A request for an analyzer over columns at the operation's position.
#[derive(Clone)]
pub struct AnalyzerRequest {
    /// The analyzer.
    pub analyzer: Arc<dyn AnyAnalyzer>,
    /// Its input columns, in order.
    pub inputs: Vec<String>,
    /// Another step or source whose rows are read instead of this step's (the other side of a join). Such findings
    /// are reference data: they are recomputed when an artifact is applied.
    pub of: Option<String>,
    /// The part of the split whose rows are read, for a finding of one run's rows; `None` for all rows.
    pub part: Option<String>,
    /// Whether the finding describes the rows of one run. It is computed anew when an artifact is applied or stands in
    /// for what a degraded run does not learn, and no artifact holds it.
    pub per_run: bool,
    /// True if the rows of the future are read instead of the known ones.
    pub of_future: bool,
    /// Continues the finding of the run before, where there is one.
    pub continues: Option<CombineFindings>,
    /// What determines ids beside the finding that continues, as text.
    pub numbering_scheme: String,
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
        }
    }

    /// Continues the findings of earlier runs, whose rows keep their places as ids. `scheme` says what else determines
    /// the ids.
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

/// What is counted of rows that a kernel marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowMark {
    /// A prediction was moved to a bound.
    Clipped,
    /// Predicted quantiles crossed, and were sorted.
    Crossed,
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
            count,
        }
    }

    /// Counts the values that became null.
    pub fn nulled() -> ValueCount {
        ValueCount::new(RowChange::Nulled, |before, after| {
            let nulls_before = before.logical_null_count();
            let nulls = after.logical_null_count().saturating_sub(nulls_before);
            Ok(nulls as u64)
        })
    }
}

/// Predictions that become values of the rows that they are for, before later rows are computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredictionFeedback {
    /// The written column with the predictions.
    pub prediction: String,
    /// The column of the rows, as they were made, that gets them.
    pub label: String,
    /// The event-time column of the rows, as they were made.
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
    /// Also other rows. The text continues a sentence that begins with the step.
    Made(&'static str),
    /// Rows in which this SQL expression is null.
    Computed(Box<Expr>),
    /// No rows: nulls are filled.
    Filled,
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
    /// What is expected of the rows, as the findings of `asks` tell it.
    pub expectation: Option<Expectation>,
    /// What is counted of marked rows. The kernel gives a Boolean column for each, after those that it writes.
    pub marks: Vec<RowMark>,
    /// The changes of values that are counted.
    pub value_counts: Vec<ValueCount>,
    /// Predictions among what it writes that feed later rows.
    pub feedback: Option<PredictionFeedback>,
    /// True if it finds the rows of a join: what it writes is null where there is none.
    pub finds_rows: bool,
    /// The column of times that its only output is, and how far the output lies from it.
    pub moved: Option<MovedTime>,
    /// The rows of another step whose values it writes.
    pub met: Option<Box<MetRows>>,
    /// The rows in which what it writes is null.
    pub nulls: WrittenNulls,
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

impl MapOp {
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
        }
    }

    /// An operation whose kernel depends on the findings of `asks`.
    pub fn fitted(
        reads: impl IntoIterator<Item = impl Into<String>>,
        writes: impl IntoIterator<Item = Field>,
        asks: impl IntoIterator<Item = AnalyzerRequest>,
        lower: impl Fn(&[Arc<Finding>]) -> Result<LoweredMap> + Send + Sync + 'static,
    ) -> Self {
        MapOp {
            reads: reads.into_iter().map(Into::into).collect(),
            writes: writes.into_iter().collect(),
            asks: asks.into_iter().collect(),
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
        }
    }
}

impl MapOp {
    /// An operation that changes nothing, and learns the findings of `asks`.
    pub fn asking(asks: impl IntoIterator<Item = AnalyzerRequest>) -> Self {
        let nothing = LoweredMap::new(|_: &[ArrayRef], _| Ok(Vec::new()));
        let none: [&str; 0] = [];
        MapOp::fitted(none, [], asks, move |_| Ok(nothing.clone()))
    }

    /// The same, that judges the rows by the findings.
    pub fn expecting(
        asks: impl IntoIterator<Item = AnalyzerRequest>,
        expectation: Expectation,
    ) -> Self {
        MapOp {
            expectation: Some(expectation),
            ..MapOp::asking(asks)
        }
    }

    /// Counts a change of values.
    pub fn counting(mut self, count: ValueCount) -> Self {
        self.value_counts.push(count);
        self
    }

    /// Counts the rows that the kernel marks.
    pub fn marking(mut self, marks: impl IntoIterator<Item = RowMark>) -> Self {
        self.marks = marks.into_iter().collect();
        self
    }

    /// Counts as the search for the rows of a join.
    pub fn finding_rows(mut self) -> Self {
        self.finds_rows = true;
        self
    }

    /// Says which column of times the only output is, and how far it lies from it.
    pub fn moving(mut self, moved: Option<MovedTime>) -> Self {
        self.moved = moved;
        self
    }

    /// Says which rows of another step the values are from.
    pub fn meeting(mut self, met: MetRows) -> Self {
        self.met = Some(Box::new(met));
        self
    }

    /// Sets the rows in which what it writes is null.
    pub fn written_nulls(mut self, nulls: WrittenNulls) -> Self {
        self.nulls = nulls;
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
    /// Whether series are read backward: "earlier" then means later.
    pub backward: bool,
}

impl WindowOp {
    /// All columns that it reads.
    pub fn columns(&self) -> impl Iterator<Item = &String> {
        self.keys.iter().chain([&self.time]).chain(&self.reads)
    }

    /// Whether both receive the same rows of the same series.
    pub fn is_alike(&self, other: &WindowOp) -> bool {
        (&self.time, &self.keys, self.backward) == (&other.time, &other.keys, other.backward)
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

/// Which rows of the other side match in an as-of join.
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
    /// Column that tells whether a row matches. Of `Equality` only.
    pub matched: Option<Field>,
    /// Columns taken from the other side, and the fields they become.
    pub columns: Vec<(String, Field)>,
    /// Which row matches.
    pub by: JoinBy,
    /// True if it is likely a mistake that no row matches.
    pub expects_match: bool,
}

/// Which row of the other side matches.
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
    /// Which row matches.
    pub direction: MatchDirection,
    /// Largest distance in time, inclusive, in ticks.
    pub tolerance: Option<i64>,
    /// Whether a row of exactly the same time matches.
    pub exact: bool,
}

impl AsOf {
    /// The type whose ticks are used to compare times of both sides: for timestamps, the finer unit. Either both or
    /// none must have a time zone. `None` if the types are not comparable.
    pub fn time_type(here: &DataType, there: &DataType) -> Option<DataType> {
        match (here, there) {
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
    pub fn key_type(here: &DataType, there: &DataType) -> Option<DataType> {
        match (here, there) {
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
            _ => None,
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

    /// Whether it writes a column of this name.
    pub fn is_written(&self, name: &str) -> bool {
        self.writes().any(|field| field.name() == name)
    }

    /// Columns read from this side.
    pub fn columns_here(&self) -> impl Iterator<Item = &String> {
        self.keys
            .iter()
            .map(|(here, _)| here)
            .chain(self.as_of().map(|as_of| &as_of.time))
    }

    /// Columns read from the other side.
    pub fn columns_there(&self) -> impl Iterator<Item = &String> {
        let keys = self.keys.iter().map(|(_, there)| there);
        let times = self
            .as_of()
            .into_iter()
            .flat_map(|as_of| [&as_of.other_time].into_iter().chain(&as_of.known_at));
        keys.chain(times)
            .chain(self.columns.iter().map(|(there, _)| there))
    }
}

/// An operation over all rows at once. It runs in a pass of its own, whose result is an intermediate dataset.
#[derive(Clone)]
pub struct GatherOp {
    /// Further inputs: steps or sources by name. This step's own rows are the first input, unless `alone`.
    pub others: Vec<String>,
    /// Whether only `others` are read.
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
    /// By the query engine. The plan's output must have the columns of the gather's schema in a canonical order of
    /// rows. The plans of the inputs have an extra column `ROW`, the position of the row in canonical order.
    Query(LowerGather),
    /// Keeps one row per key, the first or the last; rows keep their order.
    OnePerKey {
        /// The key columns.
        keys: Vec<String>,
        /// Whether the last row of a key stays.
        last: bool,
    },
    /// Gives one row per key, computed from mergeable states, in the order of the keys, nulls last.
    GroupBy(GroupByOp),
    /// Joins the rows of the only other input. Rows are in the order of this step's rows, then of the other's.
    Join {
        /// The keys, and the columns to bring.
        join: JoinOp,
        /// Whether rows without a match stay, with nulls.
        unmatched: bool,
    },
    /// Makes rows of the future. They do not replace the step's rows: they come after them where a sink asks for them.
    Future(FutureRowsOp),
}

/// One row per key.
#[derive(Debug, Clone)]
pub struct GroupByOp {
    /// What is computed.
    pub spec: Arc<GroupBy>,
    /// Its input columns: the keys, then the values.
    pub inputs: Vec<String>,
}

impl GroupByOp {
    /// The columns that are read of a schema: the inputs, or any column by which rows are counted.
    pub(crate) fn read_columns(&self, schema: &Schema) -> Vec<usize> {
        let fields = schema.fields().iter().enumerate();
        let read: Vec<usize> = fields
            .filter(|(_, field)| self.inputs.contains(field.name()))
            .map(|(place, _)| place)
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
    /// Counts the series.
    pub count: CountSeries,
    /// Makes the rows, with the hidden columns [`KNOWN_UNTIL`](crate::KNOWN_UNTIL) and
    /// [`HORIZON_STEP`](crate::HORIZON_STEP).
    pub rows: LowerRows,
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
    /// See [`JoinOp`].
    Join(JoinOp),
    /// See `GatherOp`.
    Gather(GatherOp),
}

impl PlanOp {
    /// Whether it decides which rows a stream has.
    pub fn changes_rows(&self) -> bool {
        matches!(self, PlanOp::Keep(_) | PlanOp::Expand(_))
    }

    /// Keeps columns under the names that they have, in this order.
    pub fn keep_columns(names: impl IntoIterator<Item = impl Into<String>>) -> PlanOp {
        let kept = names.into_iter().map(|name| {
            let name = name.into();
            (name.clone(), name)
        });
        PlanOp::Project(kept.collect())
    }

    /// Whether output rows depend on other rows with the same keys.
    pub fn is_over_series(&self) -> bool {
        matches!(self, PlanOp::Window(_) | PlanOp::Join(_))
    }
}

impl PlanOp {
    /// What binding added to the step's kind and configuration: columns, their types, and windows. Part of the
    /// operation's content id, so that a change here needs a new name of that id.
    pub(crate) fn identity(&self) -> Result<Value> {
        let names = |fields: &[Field]| {
            fields
                .iter()
                .map(|field| field.name().clone())
                .collect::<Vec<_>>()
        };
        let taken = |(there, field): &(String, Field)| {
            json!([there, field.name(), field.data_type().to_string()])
        };
        Ok(match self {
            PlanOp::Map(map) => json!({ "map": map.reads, "writes": names(&map.writes) }),
            PlanOp::Keep(keep) => json!({ "filter": keep.reads }),
            PlanOp::Project(columns) => json!({ "project": columns }),
            PlanOp::Expand(expand) => {
                json!({ "expand": expand.reads, "writes": names(&expand.writes) })
            }
            PlanOp::Window(window) => json!({
                "window": window.plan.to_json()?,
                "time": window.time,
                "keys": window.keys,
                "reads": window.reads,
                "writes": names(&window.writes),
                "backward": window.backward,
            }),
            PlanOp::Join(join) => {
                let columns = join.columns.iter().map(taken).collect::<Vec<_>>();
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
