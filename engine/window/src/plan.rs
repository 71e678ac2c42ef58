//! What is computed over each series: plain values, made by transforms, run by [`crate::Engine`].

use arrow::datatypes::DataType;

/// A length of time in ticks of the time column, or a number of rows of the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Rows of the series.
    Rows(u64),
    /// Ticks of the time column: days for dates, else its own unit.
    Ticks(i64),
}

impl Length {
    /// Nothing at all.
    pub const ZERO: Length = Length::Rows(0);
}

/// Which ends of a window belong to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Closed {
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

impl Closed {
    /// Whether the first end belongs to it.
    pub(crate) fn has_first(self) -> bool {
        matches!(self, Closed::Left | Closed::Both)
    }

    /// Whether the last end belongs to it.
    pub(crate) fn has_last(self) -> bool {
        matches!(self, Closed::Right | Closed::Both)
    }
}

/// The entries of a series that a statistic of one of its rows is taken over. Entries are in
/// order of time, and of arrival where times are equal; a window never holds an entry that
/// arrived after its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// As many rows, or as much time, as `over` says, ending `gap` before the row. Both have the
    /// same kind, but for a gap of [`Length::ZERO`].
    Rolling {
        /// How long it is.
        over: Length,
        /// How far before the row it ends.
        gap: Length,
        /// Which ends belong to it.
        closed: Closed,
    },
    /// Everything up to `gap` before the row: all but the last `gap` rows, or the entries whose
    /// time is at or before `t - gap`.
    Expanding {
        /// How far before the row it ends.
        gap: Length,
    },
    /// Every `season`-th entry, `over` of them, the last being `gap` before the row: by rows the
    /// entries at `i - gap - k * season`, by ticks the last entry of exactly each of the times
    /// `t - gap - k * season`, for `k` in `0..over`.
    Seasonal {
        /// The distance from one to the next.
        season: Length,
        /// How many at most.
        over: u64,
        /// How far before the row the last one is; of the same kind as `season`.
        gap: Length,
    },
}

/// A statistic of the entries of a frame that are not missing (null or NaN).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stat {
    /// How many there are.
    Count,
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// Their variance, divided by `n - ddof`.
    Var {
        /// What the divisor leaves out.
        ddof: u8,
    },
    /// The root of [`Stat::Var`].
    Std {
        /// What the divisor leaves out.
        ddof: u8,
    },
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The value at rank `q * (n - 1)` in order of size, neighbours interpolated linearly.
    Quantile(f64),
    /// The adjusted Fisher-Pearson coefficient of skewness; at least three values.
    Skew,
    /// The bias-corrected excess kurtosis; at least four values.
    Kurtosis,
    /// The earliest.
    First,
    /// The latest.
    Last,
    /// How many different ones.
    Unique,
    /// The least-squares slope over the row's number (`unit` is `None`) or over time in units of
    /// `unit` ticks; at least two different places.
    Slope {
        /// Ticks per unit; rows where absent.
        unit: Option<i64>,
    },
    /// The share of zeros among them.
    ZeroShare,
    /// The distance back from the row itself to the last one that is not zero: in rows (`unit` is
    /// `None`) or in units of `unit` ticks. Null where there is none in the frame.
    SinceNonzero {
        /// Ticks per unit; rows where absent.
        unit: Option<i64>,
    },
}

/// How the past fades in an exponentially weighted mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decay {
    /// By the factor `1 - alpha` with each row.
    Alpha(f64),
    /// To one half with every so many ticks.
    HalfLife(f64),
}

/// What an exponentially weighted window gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EwmStat {
    /// The weighted mean.
    Mean,
    /// The unbiased weighted variance, as pandas' `ewm(...).var(bias=False)`.
    Var,
    /// The root of [`EwmStat::Var`].
    Std,
}

/// One output column.
#[derive(Debug, Clone, PartialEq)]
pub enum Compute {
    /// The value `by` before the row. By ticks: the last entry of exactly the time `t - by`, or,
    /// with a tolerance, the last one at or before it and at most `as_of` ticks older.
    Lag {
        /// How far back.
        by: Length,
        /// How much older than `t - by` it may be; exact where absent. `i64::MAX` is no limit.
        as_of: Option<i64>,
    },
    /// The value less the value `by` before.
    Diff {
        /// How far back.
        by: Length,
    },
    /// The value divided by the value `by` before, less one.
    PctChange {
        /// How far back.
        by: Length,
    },
    /// A statistic of a frame; null where fewer than `min_periods` of its entries have values.
    Window {
        /// Which entries.
        frame: Frame,
        /// What of them.
        stat: Stat,
        /// How many values it takes.
        min_periods: u64,
    },
    /// Exponentially weighted, as pandas' `ewm`, over the entries up to `gap` before the row.
    Ewm {
        /// How the past fades.
        decay: Decay,
        /// Whether weights are divided by their sum (pandas' `adjust`).
        adjust: bool,
        /// Whether missing values leave no trace in the weights (pandas' `ignore_na`).
        ignore_na: bool,
        /// What comes out.
        stat: EwmStat,
        /// How far before the row it ends.
        gap: Length,
        /// How many values it takes.
        min_periods: u64,
    },
    /// The mean of the values in the row's own slot (of the week, of the year, ...) divided by the
    /// mean of all values, both over the entries up to `gap` before the row:
    /// `(n * index + strength * parent) / (n + strength)`, `n` being the values in the slot.
    SeasonalIndex {
        /// The input that holds the slot, as bits.
        slot: usize,
        /// How far before the row it ends.
        gap: Length,
        /// How many values the slot takes, else the parent (or null without strength).
        min_periods: u64,
        /// The weight of the parent, in values.
        strength: f64,
        /// The input that holds the parent's index of the row's slot; 1 where absent or missing.
        parent: Option<usize>,
    },
    /// The last value that is not missing, at or before the row and at most `limit` rows back.
    LastValid {
        /// How many rows back at most; any number where absent.
        limit: Option<u64>,
    },
    /// The time of what [`Compute::LastValid`] gives, in ticks.
    LastValidTime {
        /// How many rows back at most; any number where absent.
        limit: Option<u64>,
    },
}

/// How an input column is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// As doubles, missing ones as NaN: for whatever computes, and for copies of types that
    /// doubles hold exactly.
    Number,
    /// As 64-bit integers, missing ones as `i64::MIN`: for exact copies of 64-bit integers, times
    /// and slots. Functions that copy ([`Compute::Lag`], [`Compute::LastValid`], [`Compute::Diff`],
    /// first and last of a frame) work on these.
    Bits,
}

/// A column that functions read.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowInput {
    /// Its logical type.
    pub data_type: DataType,
    /// How it is kept.
    pub keep: Keep,
}

/// One output.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// Which input it is of.
    pub input: usize,
    /// What it computes.
    pub compute: Compute,
    /// The type that comes out: `Float64`, `Float32`, `Int64` for counts, the input's own for
    /// copies. What the type cannot hold becomes null.
    pub data_type: DataType,
}

/// What is put in the place of a missing period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Nothing: the period counts as a row whose value is missing.
    Null,
    /// Zero.
    Zero,
    /// The value before.
    Forward,
}

/// What missing periods of a series mean to functions that count rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gaps {
    /// Rows are counted, whatever their times.
    CountRows,
    /// A step from one time to the next that is not `every` ticks (or zero) is a fault.
    Error {
        /// The period in ticks.
        every: i64,
    },
    /// Such steps are counted and reported.
    Warn {
        /// The period in ticks.
        every: i64,
    },
    /// Missing periods count as rows; a step that is not a multiple of `every` is a fault. No row
    /// comes out for them.
    Complete {
        /// The period in ticks.
        every: i64,
        /// Their value.
        fill: Fill,
    },
}

/// Everything that one step computes over each series.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowPlan {
    /// The logical type of the time column: dates, timestamps or integers.
    pub time: DataType,
    /// The logical types of the key columns.
    pub keys: Vec<DataType>,
    /// The columns that are read.
    pub inputs: Vec<WindowInput>,
    /// The outputs.
    pub functions: Vec<Function>,
    /// What missing periods mean.
    pub gaps: Gaps,
}

impl WindowPlan {
    /// Whether another plan remembers the same rows of the same series.
    pub fn goes_with(&self, other: &WindowPlan) -> bool {
        (&self.time, &self.keys, &self.gaps) == (&other.time, &other.keys, &other.gaps)
    }

    /// This plan and another one as one, and the columns that are its inputs: equal inputs from the
    /// same column are one. The outputs of this one come first.
    pub fn with<C: Clone + PartialEq>(
        &self,
        columns: &[C],
        other: &WindowPlan,
        other_columns: &[C],
    ) -> (Vec<C>, WindowPlan) {
        let mut both: Vec<(C, WindowInput)> = columns.iter().cloned().zip(self.inputs.iter().cloned()).collect();
        let mut places = Vec::with_capacity(other.inputs.len());
        for (column, input) in other_columns.iter().zip(&other.inputs) {
            let known = both.iter().position(|(known, kept)| known == column && kept == input);
            places.push(known.unwrap_or_else(|| {
                both.push((column.clone(), input.clone()));
                both.len() - 1
            }));
        }
        let (columns, inputs) = both.into_iter().unzip();
        let moved = |function: &Function| {
            let mut function = function.clone();
            function.input = places[function.input];
            if let Compute::SeasonalIndex { slot, parent, .. } = &mut function.compute {
                *slot = places[*slot];
                *parent = parent.map(|parent| places[parent]);
            }
            function
        };
        let functions = self.functions.iter().cloned().chain(other.functions.iter().map(moved)).collect();
        (columns, WindowPlan { inputs, functions, ..self.clone() })
    }
}

impl Compute {
    /// How far before the row the youngest entry lies that decides what comes out: when the
    /// output was known.
    pub fn behind(&self) -> Length {
        match self {
            Compute::Lag { by, .. } => *by,
            Compute::Window { frame, .. } => match frame {
                Frame::Rolling { gap, .. } | Frame::Expanding { gap } | Frame::Seasonal { gap, .. } => *gap,
            },
            Compute::Ewm { gap, .. } | Compute::SeasonalIndex { gap, .. } => *gap,
            Compute::Diff { .. }
            | Compute::PctChange { .. }
            | Compute::LastValid { .. }
            | Compute::LastValidTime { .. } => Length::ZERO,
        }
    }
}
