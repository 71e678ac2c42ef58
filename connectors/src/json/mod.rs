//! JSON: one object per line.

mod config;
mod reader;

pub use config::Json;
