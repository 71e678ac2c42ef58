//! Findings that depend on those of an earlier run.

use std::fmt::{Debug, Formatter};
use std::io::{Read, Write};
use std::sync::Arc;

use arrow::buffer::Buffer;
use forebay_model::{
    AnalyzerInput, AnyAnalyzer, AnyState, Finding, KeySample, Result, ScratchSpace,
};
use serde_json::Value;

use crate::{AnalyzerId, BoundPipeline, CarriedFinding};

/// A record of rows that findings of all runs share: those that it knows keep their places, and it takes the others in.
pub trait FindingLedger: Send + Sync {
    /// The finding of a run's rows, in the places of the record.
    fn place(&self, current: &Finding) -> Result<Finding>;
}

impl BoundPipeline {
    /// Makes an analyzer continue the findings of earlier runs.
    pub fn continue_finding(
        &mut self,
        analyzer: AnalyzerId,
        carried: CarriedFinding,
        ledger: Arc<dyn FindingLedger>,
    ) {
        let bound = &mut self.asks[analyzer];
        bound.carried = Some(carried);
        let inner = bound.ask.analyzer.clone();
        bound.ask.analyzer = Arc::new(ContinuedAnalyzer { inner, ledger });
    }
}

/// An analyzer whose finding continues an earlier one. Its states are those of the analyzer itself.
struct ContinuedAnalyzer {
    inner: Arc<dyn AnyAnalyzer>,
    ledger: Arc<dyn FindingLedger>,
}

impl Debug for ContinuedAnalyzer {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl AnyAnalyzer for ContinuedAnalyzer {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }
    fn version(&self) -> u32 {
        self.inner.version()
    }
    fn config(&self) -> Value {
        self.inner.config()
    }
    fn needs_row_keys(&self) -> bool {
        self.inner.needs_row_keys()
    }
    fn order_free(&self) -> bool {
        self.inner.order_free()
    }
    fn commits_parts(&self) -> bool {
        self.inner.commits_parts()
    }
    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<AnyState> {
        self.inner.zero(scratch)
    }
    fn update(&self, state: &mut AnyState, input: &AnalyzerInput<'_>) -> Result<()> {
        self.inner.update(state, input)
    }
    fn merge(&self, state: &mut AnyState, second: AnyState) -> Result<()> {
        self.inner.merge(state, second)
    }
    fn encode(&self, state: &mut AnyState, out: &mut dyn Write) -> Result<()> {
        self.inner.encode(state, out)
    }
    fn decode(&self, input: &mut dyn Read, scratch: &Arc<dyn ScratchSpace>) -> Result<AnyState> {
        self.inner.decode(input, scratch)
    }
    fn decode_large(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<AnyState> {
        self.inner.decode_large(input, scratch)
    }
    fn divisible_bytes(&self, state: &AnyState) -> Option<u64> {
        self.inner.divisible_bytes(state)
    }
    fn encode_shares(
        &self,
        state: &mut AnyState,
        shares: &mut [&mut dyn Write],
    ) -> Result<Option<KeySample>> {
        self.inner.encode_shares(state, shares)
    }
    fn spill(&self, state: &mut AnyState) -> Result<()> {
        self.inner.spill(state)
    }
    fn condense(&self, state: &mut AnyState) -> Result<()> {
        self.inner.condense(state)
    }
    fn finish(&self, state: AnyState) -> Result<Finding> {
        self.ledger.place(&self.inner.finish(state)?)
    }
    fn index(&self, finding: &Finding) -> Result<Option<Buffer>> {
        self.inner.index(finding)
    }
    fn size_bytes(&self, state: &AnyState) -> usize {
        self.inner.size_bytes(state)
    }
    fn size_bytes_max(&self, budget_bytes: usize) -> usize {
        self.inner.size_bytes_max(budget_bytes)
    }
}
