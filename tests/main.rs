//! Whole jobs through the front door: the program, the library, real files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr
)]

mod as_of;
mod attempts;
mod backfill;
mod backtest;
mod bits;
mod bucket;
mod builder;
mod cache;
mod chains;
mod commands;
mod cuda_driver;
mod delta;
mod delta_kill;
mod delta_log;
mod delta_sink;
mod delta_tables;
mod duplicates;
mod end_to_end;
mod exact_values;
mod examples;
mod expect;
mod fallbacks;
mod faults;
mod feed;
mod feed_cache;
mod feed_workers;
mod forecast;
mod forecast_workers;
mod future;
mod fuzz;
mod google_server;
mod hosts;
mod inputs;
mod intervals;
mod joined_nights;
mod joins;
mod kill;
mod late;
mod late_steps;
mod lineage;
mod memory;
mod metrics;
mod mistakes;
mod nightly;
mod observe;
mod on_time;
mod pages;
mod patience;
mod per_step;
mod perturb;
mod planted_drift;
mod preview;
mod profile;
mod progress;
mod projects;
mod published;
mod quantiles;
mod random_windows;
mod ready;
mod recursive;
mod refit;
mod relational;
mod request_failures;
mod resume;
mod s3;
mod semantics;
mod sequences;
mod series;
mod settings;
mod simulated;
mod sql_queries;
mod sql_workers;
mod stable_ids;
mod step_tests;
mod storage;
mod stores;
mod stuck;
mod support;
mod torn;
mod trailing_week;
mod train;
mod train_device;
mod train_trees;
mod train_workers;
mod trust;
mod valid_specs;
mod warm_start;
mod watched;
mod web_recorder;
mod windows;
mod workers;
mod written_specs;
