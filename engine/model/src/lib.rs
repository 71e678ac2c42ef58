//! Core types of Forebay: faults, ids, datasets, pipelines, analyzers and findings.
//!
//! This crate is pure: it has no async runtime, no query engine, no files and no clock. Its decisions can be tested
//! with plain values.

mod analyzer;
mod codec;
mod dataset;
mod fault;
mod finding;
mod id;
mod limits;
mod numbers;
mod pipeline;
mod relative;
mod rows;
mod scratch;
mod strings;
mod take;

pub use analyzer::{Analyzer, AnyAnalyzer, AnyState, Input};
pub use codec::{Decoder, Encoder};
pub use dataset::{Dataset, Extent, Piece, Point, Span};
pub use fault::{
    Code, Domain, Fault, Location, Result, Retry, SentFault, Site, caught, caught_at, codes, disk_error, nearest,
};
pub use finding::Finding;
pub use id::{Id, IdBuilder, canonical_json};
pub use limits::*;
pub use numbers::{between, canonical_keys, holds_floats, share_of};
pub use pipeline::{Deadline, Feed, Label, Node, NodeInput, Pipeline, Ready, Rung, Sink, Source, Split, Step};
pub use relative::RelativePath;
pub use rows::{Chunk, RowKeys};
pub use scratch::{Growth, MemoryScratch, Scratch, SpillFile, SpillWriter};
pub use strings::{Strings, TextRef, is_open, logical_type};
pub use take::{take_batch, take_rows};
