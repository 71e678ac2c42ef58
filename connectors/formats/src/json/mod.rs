//! JSON: one object per line.

mod config;
mod infer;
mod known_fields;
mod one_pass;
mod reader;
mod sink;
mod source;
mod surrogates;
mod unfit;

pub use config::{JsonSink, JsonSource};
