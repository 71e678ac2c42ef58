//! What all passes of a run read from.

use std::sync::Arc;

use forebay_model::{ContentId, Finding, Result};
use forebay_plan::{AnalyzerId, BaseId, ChainContext, ColumnScan, OpChain, OpStream, Program};
use forebay_storage::{MemoryBudget, StorageClient};

use crate::run_state::{RunState, SortedStream, SourceInput};
use crate::span_index::SpanDigests;

/// Batches in a chunk for windows in time order.
const WINDOW_BATCHES: usize = 16;

/// Approximate bytes of a value.
const VALUE_BYTES: usize = 8;

/// The program of a run, its state, and the limits of this process.
#[derive(Clone, Copy)]
pub struct PassContext<'a> {
    pub io: &'a StorageClient,
    pub program: &'a Program,
    pub state: &'a RunState,
    pub memory: MemoryBudget,
    /// The threads that the pass may use.
    pub threads: usize,
    /// The least rows per chunk.
    pub batch_rows: usize,
}

impl<'a> PassContext<'a> {
    /// See [`RunState::input`].
    pub fn input(&self, base: BaseId) -> Result<&'a SourceInput> {
        self.state.input(self.program, base)
    }

    /// See [`RunState::finding`].
    pub fn finding(&self, ask: AnalyzerId) -> Result<Arc<Finding>> {
        self.state.finding(self.program, ask)
    }

    /// See [`RunState::digest`].
    pub fn digest(&self, ask: AnalyzerId) -> Result<ContentId> {
        self.state.digest(self.program, ask)
    }

    /// See [`RunState::span_digests`].
    pub fn span_digests(&self, scans: &[ColumnScan]) -> Result<Arc<SpanDigests>> {
        self.state.span_digests(self.program, scans)
    }

    /// See [`RunState::is_history`].
    pub fn is_history(&self, scans: &[ColumnScan]) -> Result<bool> {
        self.state.is_history(self.program, scans)
    }

    /// See [`RunState::sorted_for`].
    pub fn sorted_for(&self, stream: &OpStream, chain: &OpChain) -> Result<Vec<SortedStream>> {
        self.state.sorted_for(self.program, stream, chain)
    }

    /// Rows to read in one chunk: more than a batch if chains profit from it, as far as memory allows; fewer if vectors
    /// make rows wide.
    pub fn chunk_rows_max<'c>(&self, chains: impl Iterator<Item = &'c OpChain> + Clone) -> usize {
        let share = self.memory.rows_bytes() / self.threads.max(1);
        let vectors = chains.clone().map(OpChain::vector_bytes).sum::<usize>();
        let batch_rows = self.batch_rows.min(share / vectors.max(1)).max(1);
        if !chains.clone().any(OpChain::gains_by_rows) {
            return batch_rows;
        }
        let row_bytes =
            VALUE_BYTES * chains.map(OpChain::columns_max).sum::<usize>().max(1) + vectors;
        let fitting = share / row_bytes;
        batch_rows
            .saturating_mul(WINDOW_BATCHES)
            .min(fitting)
            .max(batch_rows)
    }

    /// Compiles chains with the findings and row orders of the run.
    pub fn with_chains<R>(&self, compile: impl FnOnce(ChainContext<'_>) -> Result<R>) -> Result<R> {
        compile(ChainContext {
            finding: &|ask| self.finding(ask),
            row_order: &|op| self.state.row_order(op),
        })
    }
}
