//! Window plans: the functions computed over each series. Plain values, built by transforms and run by
//! `WindowEngine`.

use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use forebay_model::{CalendarSpan, DuplicateRows, Fault, Result, TimeDistance};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// A length: ticks of the time column, a span of its calendar, or rows of the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SeriesLength {
    /// Rows of the series.
    Rows(u64),
    /// Ticks of the time column: days for dates, else its own unit.
    Ticks(i64),
    /// Months and days of the calendar in the column's zone.
    Calendar(CalendarSpan),
}

impl SeriesLength {
    /// The empty length.
    pub const ZERO: SeriesLength = SeriesLength::Rows(0);

    /// The span of a length of time; `None` for rows, but the empty length.
    pub fn span(self) -> Option<CalendarSpan> {
        match self {
            SeriesLength::Rows(0) => Some(CalendarSpan::default()),
            SeriesLength::Rows(_) => None,
            SeriesLength::Ticks(ticks) => Some(CalendarSpan::ticks(ticks)),
            SeriesLength::Calendar(span) => Some(span),
        }
    }
}

impl SeriesLength {
    /// The length this many times.
    pub(crate) fn times(self, count: i64) -> SeriesLength {
        match self {
            SeriesLength::Rows(rows) => {
                SeriesLength::Rows(rows.saturating_mul(count.unsigned_abs()))
            }
            SeriesLength::Ticks(ticks) => SeriesLength::Ticks(ticks.saturating_mul(count)),
            SeriesLength::Calendar(span) => SeriesLength::Calendar(span.times(count)),
        }
    }
}

impl From<TimeDistance> for SeriesLength {
    fn from(distance: TimeDistance) -> Self {
        match distance {
            TimeDistance::Ticks(ticks) => SeriesLength::Ticks(ticks),
            TimeDistance::Calendar(span) => SeriesLength::Calendar(span),
        }
    }
}

/// The ends of a window that are included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosedEnds {
    /// `(t - w, t]`.
    #[default]
    Right,
    /// `[t - w, t)`.
    Left,
    /// `[t - w, t]`.
    Both,
    /// `(t - w, t)`.
    Neither,
}

impl ClosedEnds {
    /// True if the first end is included.
    pub(crate) fn has_first(self) -> bool {
        matches!(self, ClosedEnds::Left | ClosedEnds::Both)
    }

    /// True if the last end is included.
    pub(crate) fn has_last(self) -> bool {
        matches!(self, ClosedEnds::Right | ClosedEnds::Both)
    }
}

/// The entries of a series that a statistic of one of its rows covers. Entries are in time order, and in arrival
/// order for equal times. A window never contains an entry that arrived after its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SeriesFrame {
    /// The last `over` rows or ticks, ending `gap` before the row. `over` and `gap` have the same kind, except for
    /// a gap of `ZERO`.
    Rolling {
        /// Length of the window.
        over: SeriesLength,
        /// Distance of its end before the row.
        gap: SeriesLength,
        /// The included ends.
        closed: ClosedEnds,
    },
    /// All entries up to `gap` before the row: all but the last `gap` rows, or the entries at or before time `t -
    /// gap`.
    Expanding {
        /// Distance of its end before the row.
        gap: SeriesLength,
    },
    /// Every `season`-th entry, `over` of them, the last one `gap` before the row. By rows: the entries at `i - gap
    /// - k * season`. By ticks: the last entry at exactly each of the times `t - gap - k * season`, for `k` in
    /// `0..over`.
    Seasonal {
        /// Distance between consecutive entries.
        season: SeriesLength,
        /// Most entries.
        over: u64,
        /// Distance of the last entry before the row; of the same kind as `season`.
        gap: SeriesLength,
    },
}

/// A statistic of the values of a frame that are not missing (null or NaN).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowStat {
    /// Number of values.
    Count,
    /// Sum of the values.
    Sum,
    /// Mean of the values.
    Mean,
    /// Variance of the values, divided by `n - ddof`.
    Var {
        /// Delta degrees of freedom: the divisor is `n - ddof`.
        ddof: u8,
    },
    /// Standard deviation of the values, the root of the variance.
    Std {
        /// Delta degrees of freedom: the divisor of the variance is `n - ddof`.
        ddof: u8,
    },
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// The value at rank `q * (n - 1)` in ascending order, with linear interpolation.
    Quantile(f64),
    /// The adjusted Fisher-Pearson coefficient of skewness; requires three values.
    Skew,
    /// The bias-corrected excess kurtosis; requires four values.
    Kurtosis,
    /// The earliest.
    First,
    /// The latest.
    Last,
    /// Number of distinct values.
    Unique,
    /// The least-squares slope over row numbers (`unit` is `None`) or over time in units of `unit` ticks; requires
    /// two distinct abscissas.
    Slope {
        /// Ticks per unit; `None` for rows.
        unit: Option<i64>,
    },
    /// Share of zeros.
    ZeroShare,
    /// The distance from the row back to the last nonzero value: in rows (`unit` is `None`) or in units of `unit`
    /// ticks. Null if the frame has no nonzero value.
    SinceNonzero {
        /// Ticks per unit; `None` for rows.
        unit: Option<i64>,
    },
}

/// Decay of weights in an exponentially weighted window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EwmDecay {
    /// Decay by the factor `1 - alpha` per row.
    Alpha(f64),
    /// Decay to one half per this many ticks.
    HalfLife(f64),
}

/// Statistic of an exponentially weighted window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EwmStat {
    /// The weighted mean.
    Mean,
    /// The unbiased weighted variance, as pandas' `ewm(...).var(bias=False)`.
    Var,
    /// The weighted standard deviation, the root of the variance.
    Std,
}

/// A function that computes one output column.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowFunction {
    /// The value `by` before the row. By time: the last entry at exactly the time `t - by`. With a tolerance: the
    /// last entry at or before that time and at most `as_of` older.
    Lag {
        /// Distance back.
        by: SeriesLength,
        /// Largest age beyond `t - by`; exact if `None`. `i64::MAX` ticks mean no limit.
        as_of: Option<TimeDistance>,
    },
    /// The value minus the value `by` before.
    Diff {
        /// Distance back.
        by: SeriesLength,
    },
    /// The value divided by the value `by` before, minus one.
    PctChange {
        /// Distance back.
        by: SeriesLength,
    },
    /// A statistic of a frame; null if fewer than `min_periods` entries have values.
    Window {
        /// The covered entries.
        frame: SeriesFrame,
        /// The statistic.
        stat: WindowStat,
        /// Fewest values required.
        min_periods: u64,
    },
    /// Exponentially weighted, as pandas' `ewm`, over the entries up to `gap` before the row.
    Ewm {
        /// Decay of the weights.
        decay: EwmDecay,
        /// True if weights are divided by their sum (`adjust` of pandas).
        adjust: bool,
        /// True if missing values are ignored in the weights (`ignore_na` of pandas).
        ignore_na: bool,
        /// The statistic.
        stat: EwmStat,
        /// Distance of its end before the row.
        gap: SeriesLength,
        /// Fewest values required.
        min_periods: u64,
    },
    /// The mean of the values in the row's own slot (of the week, of the year, ...) divided by the mean of all
    /// values, both over the entries up to `gap` before the row. Shrunk toward the parent: `(n * index + strength *
    /// parent) / (n + strength)`, with `n` values in the slot.
    SeasonalIndex {
        /// Index of the input that contains the slot, in `ValidityBits` encoding.
        slot: usize,
        /// Distance of its end before the row.
        gap: SeriesLength,
        /// Fewest values required in the slot. With fewer, the result is the parent, or null without strength.
        min_periods: u64,
        /// Weight of the parent, as a number of values.
        strength: f64,
        /// Index of the input that contains the parent's index of the row's slot; 1 if absent or missing.
        parent: Option<usize>,
    },
    /// The last value that is not missing, at or before the row and at most `limit` rows back.
    LastValid {
        /// Most rows back; unlimited if `None`.
        limit: Option<u64>,
    },
    /// The time in ticks of the value that `LastValid` gives.
    LastValidTime {
        /// Most rows back; unlimited if `None`.
        limit: Option<u64>,
    },
}

/// Encoding of a column's values as 64-bit words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WordEncoding {
    /// Doubles, with NaN for missing values: for computations, and for copies of types that doubles
    /// represent exactly.
    Number,
    /// 64-bit integers, with `i64::MIN` for missing values: for exact copies of 64-bit integers,
    /// times and slots. Supported by functions that copy (`Lag`, `LastValid`, `Diff`, first and
    /// last of a frame).
    Bits,
    /// As hashes of values that are stored beside the series, with `i64::MIN` for missing values: for exact copies of
    /// values of any type. Supported by functions that copy or count.
    Values,
}

impl WordEncoding {
    /// The encoding in which copies of values of a type are exact; `None` where they cannot be copied.
    pub fn of_copies(data_type: &DataType) -> Option<WordEncoding> {
        use DataType as T;
        match data_type {
            T::Boolean | T::Int8 | T::Int16 | T::Int32 | T::UInt8 | T::UInt16 | T::UInt32 => {
                Some(WordEncoding::Number)
            }
            T::Float16 | T::Float32 | T::Float64 => Some(WordEncoding::Number),
            T::Int64
            | T::UInt64
            | T::Date32
            | T::Date64
            | T::Timestamp(..)
            | T::Time32(_)
            | T::Time64(_)
            | T::Duration(_) => Some(WordEncoding::Bits),
            other => can_store(other).then_some(WordEncoding::Values),
        }
    }

    /// The encoding that functions see: hashes of values are bits to them.
    pub(crate) fn of_words(self) -> WordEncoding {
        match self {
            WordEncoding::Values => WordEncoding::Bits,
            other => other,
        }
    }
}

/// A column that functions read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowInput {
    /// Logical type of the column.
    #[serde(serialize_with = "type_text")]
    pub data_type: DataType,
    /// Encoding of the values.
    pub keep: WordEncoding,
}

/// An output column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowOutput {
    /// Index of its input.
    pub input: usize,
    /// Function of the output.
    pub compute: WindowFunction,
    /// Output type: `Float64`, `Float32`, `Int64` for counts, or the input's own type for copies. Values that the
    /// type cannot hold become null.
    #[serde(serialize_with = "type_text")]
    pub data_type: DataType,
}

/// Value of a missing period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PeriodFill {
    /// Null: the period counts as a row without a value.
    Null,
    /// Zero.
    Zero,
    /// The previous value.
    Forward,
}

/// Treatment of missing periods by functions that count rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GapHandling {
    /// Count rows regardless of their times.
    CountRows,
    /// Fail if a step is neither zero nor `every`.
    Error {
        /// The period.
        every: TimeDistance,
    },
    /// Count and report such steps.
    Warn {
        /// The period.
        every: TimeDistance,
    },
    /// Count missing periods as rows without output; fail if a step is not a multiple of `every`.
    Complete {
        /// The period.
        every: TimeDistance,
        /// Value of a missing period.
        fill: PeriodFill,
    },
}

impl GapHandling {
    /// The declared period.
    pub fn every(self) -> Option<TimeDistance> {
        match self {
            GapHandling::CountRows => None,
            GapHandling::Error { every }
            | GapHandling::Warn { every }
            | GapHandling::Complete { every, .. } => Some(every),
        }
    }
}

/// All windows that one step computes over each series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowPlan {
    /// The logical type of the time column: dates, timestamps or integers.
    #[serde(serialize_with = "type_text")]
    pub time: DataType,
    /// The logical types of the key columns.
    #[serde(serialize_with = "type_texts")]
    pub keys: Vec<DataType>,
    /// The input columns.
    pub inputs: Vec<WindowInput>,
    /// The output columns.
    pub functions: Vec<WindowOutput>,
    /// Treatment of missing periods.
    pub gaps: GapHandling,
    /// Treatment of rows with equal times.
    #[serde(skip)]
    pub duplicates: DuplicateCheck,
}

fn type_text<S: Serializer>(data_type: &DataType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(data_type)
}

fn type_texts<S: Serializer>(data_types: &[DataType], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(data_types.iter().map(DataType::to_string))
}

impl WindowPlan {
    /// The plan as stored: ids of operations and hashes in window states are computed from it, so a change of a
    /// field or variant name needs a new version of both.
    pub fn to_json(&self) -> Result<Value> {
        serde_json::to_value(self)
            .map_err(|error| Fault::internal("a window plan has no JSON").cause(error))
    }

    /// True if values are stored beside the series.
    pub(crate) fn stores_values(&self) -> bool {
        let mut inputs = self.inputs.iter();
        inputs.any(|input| input.keep == WordEncoding::Values)
    }

    /// True if a length or a period is of the calendar.
    pub(crate) fn has_calendar(&self) -> bool {
        let is_calendar = |length: SeriesLength| matches!(length, SeriesLength::Calendar(_));
        let by_calendar = |function: &WindowOutput| match &function.compute {
            WindowFunction::Lag { by, as_of } => {
                is_calendar(*by) || matches!(as_of, Some(TimeDistance::Calendar(_)))
            }
            WindowFunction::Diff { by } | WindowFunction::PctChange { by } => is_calendar(*by),
            WindowFunction::Window { frame, .. } => match *frame {
                SeriesFrame::Rolling { over, gap, .. } => is_calendar(over) || is_calendar(gap),
                SeriesFrame::Expanding { gap } => is_calendar(gap),
                SeriesFrame::Seasonal { season, gap, .. } => {
                    is_calendar(season) || is_calendar(gap)
                }
            },
            WindowFunction::Ewm { gap, .. } | WindowFunction::SeasonalIndex { gap, .. } => {
                is_calendar(*gap)
            }
            WindowFunction::LastValid { .. } | WindowFunction::LastValidTime { .. } => false,
        };
        let by_period = matches!(self.gaps.every(), Some(TimeDistance::Calendar(_)));
        by_period || self.functions.iter().any(by_calendar)
    }

    /// True if both plans have the same series, times and gap policy, so that they can share state.
    pub fn shares_state_with(&self, other: &WindowPlan) -> bool {
        (&self.time, &self.keys, &self.gaps) == (&other.time, &other.keys, &other.gaps)
    }

    /// Merges two plans; returns the merged input columns and plan. Equal inputs from the same column are shared.
    /// The outputs of `self` come first.
    pub fn merge<C: Clone + PartialEq>(
        &self,
        columns: &[C],
        other: &WindowPlan,
        other_columns: &[C],
    ) -> (Vec<C>, WindowPlan) {
        let mut merged: Vec<(C, WindowInput)> = columns
            .iter()
            .cloned()
            .zip(self.inputs.iter().cloned())
            .collect();
        let mut positions = Vec::with_capacity(other.inputs.len());
        for (column, input) in other_columns.iter().zip(&other.inputs) {
            let position = merged.iter().position(|(merged_column, merged_input)| {
                merged_column == column && merged_input == input
            });
            positions.push(position.unwrap_or_else(|| {
                merged.push((column.clone(), input.clone()));
                merged.len() - 1
            }));
        }
        let (columns, inputs) = merged.into_iter().unzip();
        let moved = |function: &WindowOutput| {
            let mut function = function.clone();
            function.input = positions[function.input];
            if let WindowFunction::SeasonalIndex { slot, parent, .. } = &mut function.compute {
                *slot = positions[*slot];
                *parent = parent.map(|parent| positions[parent]);
            }
            function
        };
        let functions = self
            .functions
            .iter()
            .cloned()
            .chain(other.functions.iter().map(moved))
            .collect();
        (
            columns,
            WindowPlan {
                inputs,
                functions,
                duplicates: self.duplicates.stricter(&other.duplicates),
                ..self.clone()
            },
        )
    }
}

impl SeriesLength {
    fn is_time(self) -> bool {
        matches!(self, SeriesLength::Ticks(_) | SeriesLength::Calendar(_))
    }
}

impl WindowFunction {
    /// True for a function that computes numbers of the values. All others count or copy values.
    pub fn computes_numbers(&self) -> bool {
        match self {
            WindowFunction::Diff { .. }
            | WindowFunction::PctChange { .. }
            | WindowFunction::Ewm { .. }
            | WindowFunction::SeasonalIndex { .. } => true,
            WindowFunction::Window { stat, .. } => matches!(
                stat,
                WindowStat::Sum
                    | WindowStat::Mean
                    | WindowStat::Var { .. }
                    | WindowStat::Std { .. }
                    | WindowStat::Quantile(_)
                    | WindowStat::Skew
                    | WindowStat::Kurtosis
                    | WindowStat::Slope { .. }
            ),
            WindowFunction::Lag { .. }
            | WindowFunction::LastValid { .. }
            | WindowFunction::LastValidTime { .. } => false,
        }
    }

    /// True if the times of entries, and not their places alone, determine the output.
    pub fn is_by_time(&self) -> bool {
        match self {
            WindowFunction::Lag { by, .. }
            | WindowFunction::Diff { by }
            | WindowFunction::PctChange { by } => by.is_time(),
            WindowFunction::Window { frame, .. } => match frame {
                SeriesFrame::Rolling { over, gap, .. } => over.is_time() || gap.is_time(),
                SeriesFrame::Expanding { gap } => gap.is_time(),
                SeriesFrame::Seasonal { season, gap, .. } => season.is_time() || gap.is_time(),
            },
            WindowFunction::Ewm { decay, gap, .. } => {
                matches!(decay, EwmDecay::HalfLife(_)) || gap.is_time()
            }
            WindowFunction::SeasonalIndex { gap, .. } => gap.is_time(),
            WindowFunction::LastValid { .. } | WindowFunction::LastValidTime { .. } => false,
        }
    }

    /// Distance before the row of the newest entry that determines the output: the age of its data.
    pub fn behind(&self) -> SeriesLength {
        match self {
            WindowFunction::Lag { by, .. } => *by,
            WindowFunction::Window { frame, .. } => match frame {
                SeriesFrame::Rolling { gap, .. }
                | SeriesFrame::Expanding { gap }
                | SeriesFrame::Seasonal { gap, .. } => *gap,
            },
            WindowFunction::Ewm { gap, .. } | WindowFunction::SeasonalIndex { gap, .. } => *gap,
            WindowFunction::Diff { .. }
            | WindowFunction::PctChange { .. }
            | WindowFunction::LastValid { .. }
            | WindowFunction::LastValidTime { .. } => SeriesLength::ZERO,
        }
    }
}

/// Treatment of rows of a series with equal times, and the names by which a fault calls their columns. Ids and stored
/// states do not contain it: it changes no output.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DuplicateCheck {
    /// The treatment.
    pub policy: DuplicateRows,
    /// The key columns.
    pub keys: Vec<String>,
    /// The time column.
    pub time: String,
}

impl DuplicateCheck {
    /// The stricter of two checks of the same series.
    pub fn stricter(&self, other: &DuplicateCheck) -> DuplicateCheck {
        if other.policy > self.policy {
            other.clone()
        } else {
            self.clone()
        }
    }
}

/// True if values of a type can be stored.
fn can_store(data_type: &DataType) -> bool {
    RowConverter::supports_fields(&[SortField::new(data_type.clone())])
}
