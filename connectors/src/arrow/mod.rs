//! Arrow's own format, as files and as streams.

mod config;
mod frames;
mod reader;
mod sink;

pub use config::{ArrowCompression, ArrowSink, ArrowSource};
