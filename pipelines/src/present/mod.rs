//! Everything that prints: faults, explanations, progress.

pub(crate) mod artifact;
pub(crate) mod backtest;
pub(crate) mod cache;
pub(crate) mod diagnostic;
pub(crate) mod drift;
pub mod explain;
pub mod fault;
pub(crate) mod fault_pages;
pub mod feed;
mod fit;
pub(crate) mod perturbed;
mod plain_progress;
mod printable;
pub(crate) mod profile;
pub mod progress;
pub mod reference;
pub(crate) mod report;
pub mod rows;
pub(crate) mod step_test;
pub(crate) mod top;
mod training;
pub mod units;

pub(crate) use fit::{TERMINAL_COLUMNS, fit, output_columns};
pub(crate) use printable::printable_lines;
