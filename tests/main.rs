//! Whole jobs through the front door: the program, the library, real files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod as_of;
mod attempts;
mod backfill;
mod bits;
mod bucket;
mod builder;
mod cache;
mod commands;
mod custom;
mod end_to_end;
mod faults;
mod feed;
mod feed_cache;
mod feed_workers;
mod hosts;
mod intervals;
mod kill;
mod late;
mod lineage;
mod nightly;
mod on_time;
mod perturb;
mod random_windows;
mod ready;
mod relational;
mod resume;
mod s3;
mod semantics;
mod sequences;
mod series;
mod simulated;
mod storage;
mod support;
mod train;
mod train_device;
mod windows;
mod workers;
