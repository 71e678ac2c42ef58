//! Window plans: the functions computed over each series. Plain values, built by transforms and run by
//! `WindowEngine`.

use arrow::datatypes::DataType;
use forebay_model::{Fault, Result};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::DuplicateCheck;

/// A length: ticks of the time column, or rows of the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SeriesLength {
    /// Rows of the series.
    Rows(u64),
    /// Ticks of the time column: days for dates, else its own unit.
    Ticks(i64),
}

impl SeriesLength {
    /// The empty length.
    pub const ZERO: SeriesLength = SeriesLength::Rows(0);
}

/// Which ends of a window are included.
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
    /// Whether the first end is included.
    pub(crate) fn has_first(self) -> bool {
        matches!(self, ClosedEnds::Left | ClosedEnds::Both)
    }

    /// Whether the last end is included.
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
        /// Which ends are included.
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
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// Their variance, divided by `n - ddof`.
    Var {
        /// Delta degrees of freedom: the divisor is `n - ddof`.
        ddof: u8,
    },
    /// Their standard deviation, the root of the variance.
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
    /// By the factor `1 - alpha` per row.
    Alpha(f64),
    /// To one half per this many ticks.
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
    /// The value `by` before the row. By ticks: the last entry at exactly the time `t - by`. With a tolerance: the
    /// last entry at or before that time and at most `as_of` ticks older.
    Lag {
        /// Distance back.
        by: SeriesLength,
        /// Largest age beyond `t - by`, in ticks; exact if `None`. `i64::MAX` means no limit.
        as_of: Option<i64>,
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
        /// Whether weights are divided by their sum (`adjust` of pandas).
        adjust: bool,
        /// Whether missing values are ignored in the weights (`ignore_na` of pandas).
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
    /// As doubles, with NaN for missing values: for computations, and for copies of types that doubles represent
    /// exactly.
    Number,
    /// As 64-bit integers, with `i64::MIN` for missing values: for exact copies of 64-bit integers, times and
    /// slots. Supported by functions that copy (`Lag`, `LastValid`, `Diff`, first and last of a frame).
    Bits,
}

/// A column that functions read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowInput {
    /// Its logical type.
    #[serde(serialize_with = "type_text")]
    pub data_type: DataType,
    /// Its encoding.
    pub keep: WordEncoding,
}

/// One output column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowOutput {
    /// Index of its input.
    pub input: usize,
    /// Its function.
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
    /// Fail if a step is neither zero nor `every` ticks.
    Error {
        /// The period in ticks.
        every: i64,
    },
    /// Count and report such steps.
    Warn {
        /// The period in ticks.
        every: i64,
    },
    /// Count missing periods as rows without output; fail if a step is not a multiple of `every`.
    Complete {
        /// The period in ticks.
        every: i64,
        /// Value of a missing period.
        fill: PeriodFill,
    },
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

    /// Whether both plans have the same series, times and gap policy, so that they can share state.
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
        let mut both: Vec<(C, WindowInput)> = columns
            .iter()
            .cloned()
            .zip(self.inputs.iter().cloned())
            .collect();
        let mut places = Vec::with_capacity(other.inputs.len());
        for (column, input) in other_columns.iter().zip(&other.inputs) {
            let known = both
                .iter()
                .position(|(known, kept)| known == column && kept == input);
            places.push(known.unwrap_or_else(|| {
                both.push((column.clone(), input.clone()));
                both.len() - 1
            }));
        }
        let (columns, inputs) = both.into_iter().unzip();
        let moved = |function: &WindowOutput| {
            let mut function = function.clone();
            function.input = places[function.input];
            if let WindowFunction::SeasonalIndex { slot, parent, .. } = &mut function.compute {
                *slot = places[*slot];
                *parent = parent.map(|parent| places[parent]);
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
        matches!(self, SeriesLength::Ticks(_))
    }
}

impl WindowFunction {
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
