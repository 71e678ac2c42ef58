//! Whole jobs through the front door: the program, the library, real files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr
)]

mod command_line;
mod delta;
mod devices;
mod documents;
mod feeds;
mod forecasts;
mod inputs;
mod jobs;
mod limits;
mod models;
mod nights;
mod observability;
mod quality;
mod serving;
mod steps;
mod storage;
mod support;
mod workers;
