//! Arrow's own format, as files and as streams.

mod batch_stream;
mod config;
mod frames;
mod reader;
mod request;
mod sink;

pub(crate) use request::open_request;

pub use config::{ArrowCompression, ArrowSink, ArrowSource};
