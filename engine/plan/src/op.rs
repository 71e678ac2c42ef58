//! Operations: what a transform comes to once it knows its columns.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use forebay_model::{AnyAnalyzer, Finding, Result};
use forebay_window::{Length, WindowPlan};

/// Computes output columns from input columns of the same rows. The second argument is the number
/// of rows. Inputs may be in any layout of their logical type (see [`forebay_model::Strings`]).
pub type Kernel = Arc<dyn Fn(&[ArrayRef], usize) -> Result<Vec<ArrayRef>> + Send + Sync>;

/// Computes which input rows come out, and columns beside them.
pub type ExpandKernel = Arc<dyn Fn(&[ArrayRef], usize) -> Result<Expanded> + Send + Sync>;

/// Turns the inputs' plans into one plan.
pub type LowerGather = Arc<dyn Fn(Vec<LogicalPlan>) -> Result<LogicalPlan> + Send + Sync>;

/// Turns what was learned into a kernel; the findings come in the order of the asks.
pub type Lower = Arc<dyn Fn(&[Arc<Finding>]) -> Result<Lowered> + Send + Sync>;

/// What [`Lower`] gives.
#[derive(Clone)]
pub struct Lowered {
    /// What runs.
    pub kernel: Kernel,
    /// The outputs' fields, where they depend on what was learned (the width of a one-hot vector).
    pub fields: Option<Vec<Field>>,
}

impl Lowered {
    /// A kernel whose outputs have the fields that were declared.
    pub fn new(kernel: impl Fn(&[ArrayRef], usize) -> Result<Vec<ArrayRef>> + Send + Sync + 'static) -> Self {
        Lowered { kernel: Arc::new(kernel), fields: None }
    }

    /// A kernel from one column to one column.
    pub fn unary(kernel: impl Fn(&ArrayRef) -> Result<ArrayRef> + Send + Sync + 'static) -> Self {
        Lowered::new(move |inputs, _| inputs.iter().map(&kernel).collect())
    }

    /// States the outputs' fields.
    pub fn fields(mut self, fields: Vec<Field>) -> Self {
        self.fields = Some(fields);
        self
    }
}

/// A question to the whole data, asked of columns at the point where the operation stands.
#[derive(Clone)]
pub struct Ask {
    /// The question.
    pub analyzer: Arc<dyn AnyAnalyzer>,
    /// Its input columns, in order.
    pub inputs: Vec<String>,
    /// Asks the rows of another step or source instead of this one's (the other side of a join).
    /// Such findings are reference data: they are read anew when an artifact is applied.
    pub of: Option<String>,
}

impl Ask {
    /// Asks columns of this step.
    pub fn new(analyzer: impl AnyAnalyzer + 'static, inputs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Ask { analyzer: Arc::new(analyzer), inputs: inputs.into_iter().map(Into::into).collect(), of: None }
    }

    /// Asks another step or source.
    pub fn of(mut self, node: impl Into<String>) -> Self {
        self.of = Some(node.into());
        self
    }
}

/// A row-wise operation: one output row for each input row.
#[derive(Clone)]
pub struct Map {
    /// Columns read.
    pub reads: Vec<String>,
    /// Columns written: a column of the same name is replaced, which is allowed only when it is
    /// among `reads`.
    pub writes: Vec<Field>,
    /// What it has to learn first.
    pub asks: Vec<Ask>,
    /// Gives the kernel.
    pub lower: Lower,
    /// Where what it learned tells of the row's own series or time (a table by time): how far
    /// behind the row's time, in nanoseconds, that ends. Statistics of everything leave it out.
    pub behind: Option<Length>,
}

impl Map {
    /// An operation that learns nothing.
    pub fn new(
        reads: impl IntoIterator<Item = impl Into<String>>,
        writes: impl IntoIterator<Item = Field>,
        kernel: impl Fn(&[ArrayRef], usize) -> Result<Vec<ArrayRef>> + Send + Sync + 'static,
    ) -> Self {
        let lowered = Lowered::new(kernel);
        Map {
            reads: reads.into_iter().map(Into::into).collect(),
            writes: writes.into_iter().collect(),
            asks: Vec::new(),
            lower: Arc::new(move |_| Ok(lowered.clone())),
            behind: None,
        }
    }

    /// An operation whose kernel depends on what `asks` find.
    pub fn fitted(
        reads: impl IntoIterator<Item = impl Into<String>>,
        writes: impl IntoIterator<Item = Field>,
        asks: impl IntoIterator<Item = Ask>,
        lower: impl Fn(&[Arc<Finding>]) -> Result<Lowered> + Send + Sync + 'static,
    ) -> Self {
        Map {
            reads: reads.into_iter().map(Into::into).collect(),
            writes: writes.into_iter().collect(),
            asks: asks.into_iter().collect(),
            lower: Arc::new(lower),
            behind: None,
        }
    }
}

impl Map {
    /// States how far behind the row's time ends what was learned, in nanoseconds or rows.
    pub fn behind(mut self, behind: Length) -> Self {
        self.behind = Some(behind);
        self
    }
}

/// Keeps the rows for which a condition is true (null counts as false).
#[derive(Clone)]
pub struct Keep {
    /// Columns read.
    pub reads: Vec<String>,
    /// Gives one Boolean column.
    pub kernel: Kernel,
    /// The condition, for pruning row groups and for `explain`.
    pub condition: Option<datafusion::logical_expr::Expr>,
}

/// What an [`Expand`] gives: for each output row its input row, and the new columns.
pub struct Expanded {
    /// Input rows, not necessarily distinct, in ascending order.
    pub picks: UInt32Array,
    /// The written columns, as long as `picks`.
    pub columns: Vec<ArrayRef>,
}

/// Gives any number of output rows for each input row.
#[derive(Clone)]
pub struct Expand {
    /// Columns read.
    pub reads: Vec<String>,
    /// Columns written; all others are repeated.
    pub writes: Vec<Field>,
    /// What runs.
    pub kernel: ExpandKernel,
}

/// Windows over series: one output row for each input row, in the same order, whose new columns
/// depend on earlier rows of the same series.
#[derive(Clone)]
pub struct Window {
    /// The event-time column.
    pub time: String,
    /// The columns that tell series apart.
    pub keys: Vec<String>,
    /// The plan's inputs.
    pub reads: Vec<String>,
    /// The plan's outputs.
    pub writes: Vec<Field>,
    /// What is computed.
    pub plan: Arc<WindowPlan>,
    /// Whether series are read from their end: "earlier" then means later.
    pub backward: bool,
}

impl Window {
    /// Everything that it reads.
    pub fn columns(&self) -> impl Iterator<Item = &String> {
        self.keys.iter().chain([&self.time]).chain(&self.reads)
    }

    /// Whether another one gets the same rows of the same series.
    pub fn is_alike(&self, other: &Window) -> bool {
        (&self.time, &self.keys, self.backward) == (&other.time, &other.keys, other.backward)
            && self.plan.goes_with(&other.plan)
    }

    /// Both in one, where the columns of both have these names. The outputs of this one come first.
    pub fn with(mut self, other: &Window) -> Window {
        let (reads, plan) = self.plan.with(&self.reads, &other.plan, &other.reads);
        (self.reads, self.plan) = (reads, Arc::new(plan));
        self.writes.extend(other.writes.iter().cloned());
        self
    }
}

/// Which rows of the other side an as-of join looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The last one at or before the row's time.
    Backward,
    /// The first one at or after it.
    Forward,
    /// The nearer one of both; the earlier one where both are as near.
    Nearest,
}

/// Columns of the row of another step that was there at the time of each row: point in time. One
/// output row for each input row, in the same order. Of rows there with equal times the last
/// counts. A null key or time matches nothing.
#[derive(Debug, Clone)]
pub struct AsOf {
    /// The other step or source.
    pub other: String,
    /// Key columns here and there, of the same types.
    pub keys: Vec<(String, String)>,
    /// The time column here.
    pub time: String,
    /// The time column there, of the same type.
    pub other_time: String,
    /// The column there that tells when a row became known, of the same type: it is not seen
    /// before.
    pub known_at: Option<String>,
    /// Which row counts.
    pub direction: Direction,
    /// How far away in time it may be, inclusive, in ticks.
    pub tolerance: Option<i64>,
    /// Whether a row of the very same time counts.
    pub exact: bool,
    /// The columns there that are brought, and what they become here.
    pub columns: Vec<(String, Field)>,
}

impl AsOf {
    /// The type in which keys of two sides are compared; `None` where they cannot be.
    pub fn key_type(here: &DataType, there: &DataType) -> Option<DataType> {
        match (here, there) {
            (a, b) if a == b => Some(a.clone()),
            (a, b) if a.is_integer() && b.is_integer() => Some(match (a.is_signed_integer(), b.is_signed_integer()) {
                (true, true) => DataType::Int64,
                (false, false) => DataType::UInt64,
                _ if *a != DataType::UInt64 && *b != DataType::UInt64 => DataType::Int64,
                // All integers of 64 bits, signed or not.
                _ => DataType::Decimal128(20, 0),
            }),
            (a, b) if a.is_floating() && b.is_floating() => Some(DataType::Float64),
            _ => None,
        }
    }

    /// The type in whose ticks times of two sides are compared: the finer unit of two timestamps, which have
    /// both a time zone or both none; `None` where they cannot be.
    pub fn time_type(here: &DataType, there: &DataType) -> Option<DataType> {
        match (here, there) {
            (a, b) if a == b => Some(a.clone()),
            (a, b) if a.is_integer() && b.is_integer() => {
                Self::key_type(a, b).filter(|common| *common == DataType::Int64)
            }
            (DataType::Timestamp(a, zone), DataType::Timestamp(b, other)) if zone.is_some() == other.is_some() => {
                // Units come from the coarsest to the finest.
                Some(DataType::Timestamp((*a).max(*b), zone.clone()))
            }
            _ => None,
        }
    }

    /// What is read here.
    pub fn columns_here(&self) -> impl Iterator<Item = &String> {
        self.keys.iter().map(|(here, _)| here).chain([&self.time])
    }

    /// What is read there.
    pub fn columns_there(&self) -> impl Iterator<Item = &String> {
        let keys = self.keys.iter().map(|(_, there)| there);
        keys.chain([&self.other_time]).chain(&self.known_at).chain(self.columns.iter().map(|(there, _)| there))
    }
}

/// An operation over all rows at once, done in a pass of its own whose result is kept as an intermediate dataset.
#[derive(Clone)]
pub struct Gather {
    /// Further inputs: steps or sources by name. This step's own rows are always the first input,
    /// unless `alone`.
    pub others: Vec<String>,
    /// Whether only `others` are read.
    pub alone: bool,
    /// Columns of the result.
    pub schema: SchemaRef,
    /// How its rows are computed.
    pub lower: GatherBy,
}

/// How the rows of a [`Gather`] are computed.
#[derive(Clone)]
pub enum GatherBy {
    /// By the query engine. The plan's output must have the columns of the gather's schema in a canonical order of
    /// rows. The plans of the inputs have an extra column [`Gather::ROW`], the position of the row in canonical order.
    Query(LowerGather),
    /// One row of each key stays, the first or the last, and rows keep their order.
    OnePerKey {
        /// The key columns.
        keys: Vec<String>,
        /// Whether the last row of a key stays.
        last: bool,
    },
}

impl Gather {
    /// The position of a row in the canonical order of the input, `UInt64`.
    pub const ROW: &'static str = "__row";
}

/// All operations.
#[derive(Clone)]
pub enum Op {
    /// See [`Map`].
    Map(Map),
    /// See [`Keep`].
    Keep(Keep),
    /// The visible columns from here on: (name before, name after).
    Project(Vec<(String, String)>),
    /// See [`Expand`].
    Expand(Expand),
    /// See [`Window`].
    Window(Window),
    /// See [`AsOf`].
    AsOf(AsOf),
    /// See [`Gather`].
    Gather(Gather),
}

impl Op {
    /// Whether rows depend on others of their series, which then come beside them or before them.
    pub fn is_over_series(&self) -> bool {
        matches!(self, Op::Window(_) | Op::AsOf(_))
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |fields: &[Field]| fields.iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        match self {
            Op::Map(map) => write!(f, "map {:?} -> {:?}", map.reads, names(&map.writes)),
            Op::Keep(keep) => write!(f, "keep by {:?}", keep.reads),
            Op::Project(columns) => write!(f, "project {columns:?}"),
            Op::Expand(expand) => write!(f, "expand {:?} -> {:?}", expand.reads, names(&expand.writes)),
            Op::Window(window) => {
                let order = if window.backward { "backward" } else { "forward" };
                write!(f, "window {order} by {:?} {:?} of {:?} -> ", window.time, window.keys, window.reads)?;
                write!(f, "{:?} {:?}", names(&window.writes), window.plan)
            }
            Op::AsOf(join) => write!(f, "{join:?}"),
            Op::Gather(gather) => write!(f, "gather {:?}", gather.others),
        }
    }
}
