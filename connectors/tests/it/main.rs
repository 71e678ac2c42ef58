//! The connectors, from the outside: every test discovers, opens, and compares rows.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr
)]

mod corpus;
mod extents;
mod faults;
mod formats;
mod fuzz;
mod help;
mod inputs;
mod memory;
mod parquet;
mod real;
mod requests;
mod round_trips;
mod s3;
mod texts;
mod time_formats;
mod types;
