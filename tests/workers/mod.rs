//! Runs on worker processes, which give the same bits, die, and believe their own.

mod aggregates;
mod authentication;
mod dedupe;
pub mod feeds;
mod forecasts;
pub mod runs;
mod separate_hosts;
mod sql_queries;
mod trainings;
