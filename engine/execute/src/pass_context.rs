//! Inputs that all passes of a run share.

use std::sync::Arc;

use forebay_model::{ContentId, Finding, Result};
use forebay_plan::{
    AnalyzerId, BaseId, ChainContext, CheckStop, ColumnScan, OpChain, OpStream, Program,
};
use forebay_storage::{MemoryBudget, StorageClient};

use crate::admission::waiting_admission;
use crate::run_state::{RunState, SortedStream};
use crate::source_input::SourceInput;
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
    pub fn finding(&self, analyzer: AnalyzerId) -> Result<Arc<Finding>> {
        self.state.finding(self.program, analyzer)
    }

    /// See [`RunState::digest`].
    pub fn digest(&self, analyzer: AnalyzerId) -> Result<ContentId> {
        self.state.digest(self.program, analyzer)
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

    /// Rows to read in one chunk: more than a batch if chains profit from it, as far as memory allows; fewer if many
    /// columns or vectors make rows wide.
    pub fn chunk_rows_max<'c>(&self, chains: impl Iterator<Item = &'c OpChain> + Clone) -> usize {
        let share = self.memory.rows_bytes() / self.threads.max(1);
        let vector_bytes = chains.clone().map(OpChain::vector_bytes).sum::<usize>();
        let columns = chains.clone().map(OpChain::columns_max).sum::<usize>();
        let row_bytes = VALUE_BYTES * columns.max(1) + vector_bytes;
        let fitting = share / row_bytes;
        let batch_rows = self.batch_rows.min(fitting).max(1);
        let mut chains = chains;
        if !chains.any(OpChain::gains_by_rows) {
            return batch_rows;
        }
        batch_rows
            .saturating_mul(WINDOW_BATCHES)
            .min(fitting)
            .max(batch_rows)
    }

    /// Compiles chains with the findings and row orders of the run.
    pub fn with_chains<R>(&self, compile: impl FnOnce(ChainContext<'_>) -> Result<R>) -> Result<R> {
        let check_stop = stop_check_of(self.io);
        let admit = waiting_admission(self.memory, check_stop.clone());
        compile(ChainContext {
            finding: &|analyzer| self.finding(analyzer),
            row_order: &|op| self.state.row_order(op),
            admit: Some(&admit),
            check_stop: Some(&check_stop),
        })
    }
}

/// Fails when the run that a client of storage serves should stop: for kernels that wait.
pub fn stop_check_of(io: &StorageClient) -> CheckStop {
    let cancellation = io.run_cancellation().clone();
    Arc::new(move || cancellation.check())
}
