//! Runs night by night: histories that change, intervals, deadlines, and runs that are killed.

mod as_of_joins;
mod attempts;
mod backfills;
pub mod changed_history;
mod deadlines;
pub mod intervals;
pub mod kills;
mod late_days;
mod moving_splits;
mod refits;
mod resumed_runs;
mod stable_ids;
