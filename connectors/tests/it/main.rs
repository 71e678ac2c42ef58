//! The connectors, from the outside: every test discovers, opens, and compares rows.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr
)]

mod extents;
mod faults;
mod formats;
mod fuzz;
mod help;
mod inputs;
mod parquet;
mod real;
mod ring;
mod s3;
mod texts;
mod types;
