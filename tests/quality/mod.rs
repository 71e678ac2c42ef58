//! Checks of data and specs: expectations, drift, leaks, and the row ledger.

mod days_of_sources;
mod drift_by_weeks;
mod duplicate_rows;
mod expectations;
mod leaks;
mod null_columns;
mod perturbed_future;
mod planted_drift;
mod profiles;
mod row_ledger;
mod unsound_learning;
