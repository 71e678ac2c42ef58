//! JSON: one object per line.

mod config;
mod infer;
mod reader;

pub use config::JsonSource;
