//! JSON: one object per line.

mod config;
mod infer;
mod known_fields;
mod reader;

pub use config::JsonSource;
