//! Transforms from the outside: rows in, and the rows that the peers make of them.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod basic;
mod categorical;
mod days;
mod functions;
mod harness;
mod numeric;
mod pooled;
mod relational;
mod series;
mod target_encoding;
mod text;
mod windows;
