//! Sizes of a column's profile.

/// The parts at whose bounds a profile has quantiles: the quantiles 0, 0.01 to 1.
pub const PROFILE_QUANTILE_PARTS: usize = 100;

/// The frequent values that a profile lists. A column with fewer values is counted exactly.
pub const PROFILE_FREQUENT_VALUES: usize = 100;
