//! Text output: faults, explanations, progress.

pub(crate) mod artifact;
pub(crate) mod backtest;
pub(crate) mod cache;
pub mod cells;
pub(crate) mod diagnostic;
pub(crate) mod drift;
mod event_line;
mod examples;
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
mod reference_parts;
mod reference_schema;
mod reference_sql;
pub(crate) mod report;
pub mod rows;
pub(crate) mod standard_output;
pub(crate) mod step_test;
pub(crate) mod sum_text;
pub(crate) mod top;
pub(crate) mod training;
pub mod units;

pub(crate) use fit::{TERMINAL_COLUMNS, fit, output_columns};
pub(crate) use printable::{printable, printable_lines, printable_screen};
