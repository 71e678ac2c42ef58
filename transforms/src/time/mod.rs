//! Dates and times, and series over time.

mod calendar;
mod date_parts;
mod diff;
mod ewm;
mod expanding;
mod fill_forward;
mod forecast_feature;
mod gaps;
mod interpolate;
mod lag;
mod length;
mod min_periods;
mod naming;
mod pct_change;
mod pooled;
mod pooled_index;
mod pooled_sample;
mod pooled_table;
mod rolling;
mod seasonal_index;
mod seasonal_rolling;
mod slot;
mod statistic;
mod target;
mod windows;

pub use calendar::{
    CalendarFact, CalendarFeatures, DayOfWeek, EventTable, FourierTerms, HolidayDate, calendar,
};
pub use date_parts::{CalendarPart, DateParts, date_parts};
pub use diff::{SeriesDiff, diff};
pub use ewm::{EwmStatistic, EwmWindow, HalfLife, ewm};
pub use expanding::{ExpandingWindow, expanding};
pub use fill_forward::{FillForward, fill_forward};
pub use forecast_feature::{ForecastFeature, ForecastFeatureModel, forecast_feature};
pub use gaps::{GapCompletion, GapFill, GapPolicy, SeriesPeriod};
pub use interpolate::{Interpolate, interpolate};
pub use lag::{LagTolerance, SeriesLag, lag};
pub use length::{LengthSpec, duration_hint};
pub(crate) use length::{StepBack, TimeColumn};
pub use min_periods::MinPeriods;
pub use naming::FeatureNaming;
pub use pct_change::{PctChange, pct_change};
pub use pooled::{PooledWindow, TimeAggregate, pooled};
pub(crate) use pooled_table::{PooledCell, PooledTable, ask_moments};
pub use rolling::{ClosedWindow, RollingWindow, rolling};
pub use seasonal_index::{IndexShrinkage, SeasonalIndex, seasonal_index, shrinkage};
pub use seasonal_rolling::{SeasonalRolling, seasonal_rolling};
pub use slot::SeasonalPeriod;
pub use statistic::{FloatType, SeriesStatistic};
pub use target::{
    AutoWord, BoxCoxExponent, BoxCoxFit, DifferenceLengths, SeasonalLength, SeriesScale,
    TargetOperation, TargetTransform, target,
};
pub(crate) use windows::{duplicate_policy, hide_helper_columns, time_column};
