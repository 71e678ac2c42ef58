//! Analyzers: mergeable aggregates over the whole data.

use std::any::Any;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::Buffer;
use serde_json::Value;

use crate::{Fault, Finding, KeySample, Result, ScratchSpace};

/// One batch of an analyzer's input columns.
#[derive(Debug, Clone, Copy)]
pub struct AnalyzerInput<'a> {
    /// In the order of the analyzer's declared inputs. String columns may be dictionaries.
    pub columns: &'a [ArrayRef],
    /// Rows in every column.
    pub rows: usize,
    /// One key per row; present if [`Analyzer::needs_row_keys`] is true.
    pub keys: Option<&'a [u64]>,
}

/// A mergeable aggregate: accumulate, merge, finish.
///
/// Every analyzer keeps these laws, which the law suite checks:
/// 1. *Identity*: merging [`Analyzer::zero`] on either side changes nothing.
/// 2. *Associativity*: states merged in span order give the same bytes for any grouping.
/// 3. *Same bytes* for any batch size; with [`Analyzer::order_free`], also for any order of spans.
/// 4. *Stable bytes*: decoding and encoding a state reproduces its bytes.
/// 5. *Bounded*: a state holds at most `ScratchSpace::budget_bytes` plus a constant in memory.
pub trait Analyzer: Debug + Send + Sync + 'static {
    /// The accumulated state.
    type State: Send + 'static;

    /// A stable name, such as `moments`; part of the state's id.
    fn kind(&self) -> &'static str;

    /// The version of the state's bytes; a change makes old states invisible rather than wrong.
    fn version(&self) -> u32 {
        1
    }

    /// The configuration that determines the result; part of the state's id.
    fn config(&self) -> Value;

    /// True if `AnalyzerInput::keys` has to be filled.
    fn needs_row_keys(&self) -> bool {
        false
    }

    /// True if the result is independent of the order of rows. If so, threads process spans in any order. Otherwise
    /// states are kept per span and merged in span order.
    fn order_free(&self) -> bool {
        true
    }

    /// False if a state holds the rows themselves. States of some of the rows are then neither committed nor computed by
    /// workers: they would be a second copy of the data.
    fn commits_parts(&self) -> bool {
        true
    }

    /// The empty state.
    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<Self::State>;

    /// Accumulates one batch.
    fn update(&self, state: &mut Self::State, input: &AnalyzerInput<'_>) -> Result<()>;

    /// Merges the state of rows that follow in span order.
    fn merge(&self, state: &mut Self::State, later_state: Self::State) -> Result<()>;

    /// Writes the state's stable bytes. May reorder the state internally, but never changes its meaning.
    fn encode(&self, state: &mut Self::State, out: &mut dyn Write) -> Result<()>;

    /// Reads bytes written by [`Analyzer::encode`].
    fn decode(&self, input: &mut dyn Read, scratch: &Arc<dyn ScratchSpace>) -> Result<Self::State>;

    /// Reads bytes written by [`Analyzer::encode`] of a state that may be large. What merges read in order may stay in the
    /// scratch space.
    fn decode_large(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<Self::State> {
        self.decode(input, scratch)
    }

    /// Approximate size in bytes of [`Analyzer::encode`]'s output. `None` if states cannot be divided into shares.
    fn divisible_bytes(&self, state: &Self::State) -> Option<u64> {
        let _ = state;
        None
    }

    /// Writes the state as shares, partitioned by the hash of the key. Each share is itself a state. Shares of one
    /// number merge independently of the others, and merging all shares in any order gives the whole state.
    ///
    /// Returns a sample of the keys, if large states of the analyzer are read without a table of
    /// them: the shares of states with few keys in common are then merged where they are read.
    fn encode_shares(
        &self,
        state: &mut Self::State,
        shares: &mut [&mut dyn Write],
    ) -> Result<Option<KeySample>> {
        let _ = (state, shares);
        Err(Fault::internal(format!(
            "the state of `{}` cannot be divided",
            self.kind()
        )))
    }

    /// Moves what the state holds to the scratch space, if it can: the state waits to be merged.
    fn spill(&self, state: &mut Self::State) -> Result<()> {
        let _ = state;
        Ok(())
    }

    /// Drops what [`Analyzer::finish`] does not read. Only for the state of all rows, which is not merged any
    /// further.
    fn condense(&self, state: &mut Self::State) -> Result<()> {
        let _ = state;
        Ok(())
    }

    /// Computes the result as a small table.
    fn finish(&self, state: Self::State) -> Result<Finding>;

    /// Builds a lookup index for a finding. It is stored beside the finding, so that other processes need not
    /// rebuild it.
    fn index(&self, finding: &Finding) -> Result<Option<Buffer>> {
        let _ = finding;
        Ok(None)
    }

    /// Bytes of memory held now.
    fn size_bytes(&self, state: &Self::State) -> usize;

    /// Upper bound of the memory of one state in bytes, for `explain`. `budget_bytes` is the budget that the run
    /// would give it.
    fn size_bytes_max(&self, budget_bytes: usize) -> usize {
        budget_bytes
    }
}

/// A type-erased analyzer state.
pub type AnyState = Box<dyn Any + Send>;

/// A type-erased [`Analyzer`]; implemented for every analyzer.
#[allow(missing_docs)] // Each method is the one of the same name above.
pub trait AnyAnalyzer: Debug + Send + Sync {
    fn kind(&self) -> &'static str;
    fn version(&self) -> u32;
    fn config(&self) -> Value;
    fn needs_row_keys(&self) -> bool;
    fn order_free(&self) -> bool;
    fn commits_parts(&self) -> bool;
    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<AnyState>;
    fn update(&self, state: &mut AnyState, input: &AnalyzerInput<'_>) -> Result<()>;
    fn merge(&self, state: &mut AnyState, later_state: AnyState) -> Result<()>;
    fn encode(&self, state: &mut AnyState, out: &mut dyn Write) -> Result<()>;
    fn decode(&self, input: &mut dyn Read, scratch: &Arc<dyn ScratchSpace>) -> Result<AnyState>;
    fn decode_large(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<AnyState>;
    fn divisible_bytes(&self, state: &AnyState) -> Option<u64>;
    fn encode_shares(
        &self,
        state: &mut AnyState,
        shares: &mut [&mut dyn Write],
    ) -> Result<Option<KeySample>>;
    fn spill(&self, state: &mut AnyState) -> Result<()>;
    fn condense(&self, state: &mut AnyState) -> Result<()>;
    fn finish(&self, state: AnyState) -> Result<Finding>;
    fn index(&self, finding: &Finding) -> Result<Option<Buffer>>;
    fn size_bytes(&self, state: &AnyState) -> usize;
    fn size_bytes_max(&self, budget_bytes: usize) -> usize;
}

fn downcast_state<A: Analyzer>(state: &mut AnyState) -> Result<&mut A::State> {
    state.downcast_mut().ok_or_else(|| foreign_state::<A>())
}

fn into_typed_state<A: Analyzer>(state: AnyState) -> Result<A::State> {
    match state.downcast() {
        Ok(state) => Ok(*state),
        Err(_) => Err(foreign_state::<A>()),
    }
}

fn foreign_state<A: Analyzer>() -> Fault {
    Fault::internal(format!(
        "a state of another type was passed to {}",
        std::any::type_name::<A>()
    ))
}

impl<A: Analyzer> AnyAnalyzer for A {
    fn kind(&self) -> &'static str {
        Analyzer::kind(self)
    }
    fn version(&self) -> u32 {
        Analyzer::version(self)
    }
    fn config(&self) -> Value {
        Analyzer::config(self)
    }
    fn needs_row_keys(&self) -> bool {
        Analyzer::needs_row_keys(self)
    }
    fn order_free(&self) -> bool {
        Analyzer::order_free(self)
    }
    fn commits_parts(&self) -> bool {
        Analyzer::commits_parts(self)
    }
    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<AnyState> {
        Ok(Box::new(Analyzer::zero(self, scratch)?))
    }
    fn update(&self, state: &mut AnyState, input: &AnalyzerInput<'_>) -> Result<()> {
        Analyzer::update(self, downcast_state::<A>(state)?, input)
    }
    fn merge(&self, state: &mut AnyState, later_state: AnyState) -> Result<()> {
        let state = downcast_state::<A>(state)?;
        let later_state = into_typed_state::<A>(later_state)?;
        Analyzer::merge(self, state, later_state)
    }
    fn encode(&self, state: &mut AnyState, out: &mut dyn Write) -> Result<()> {
        Analyzer::encode(self, downcast_state::<A>(state)?, out)
    }
    fn decode(&self, input: &mut dyn Read, scratch: &Arc<dyn ScratchSpace>) -> Result<AnyState> {
        Ok(Box::new(Analyzer::decode(self, input, scratch)?))
    }
    fn decode_large(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<AnyState> {
        Ok(Box::new(Analyzer::decode_large(self, input, scratch)?))
    }
    fn divisible_bytes(&self, state: &AnyState) -> Option<u64> {
        Analyzer::divisible_bytes(self, state.downcast_ref()?)
    }
    fn encode_shares(
        &self,
        state: &mut AnyState,
        shares: &mut [&mut dyn Write],
    ) -> Result<Option<KeySample>> {
        Analyzer::encode_shares(self, downcast_state::<A>(state)?, shares)
    }
    fn spill(&self, state: &mut AnyState) -> Result<()> {
        Analyzer::spill(self, downcast_state::<A>(state)?)
    }
    fn condense(&self, state: &mut AnyState) -> Result<()> {
        Analyzer::condense(self, downcast_state::<A>(state)?)
    }
    fn finish(&self, state: AnyState) -> Result<Finding> {
        Analyzer::finish(self, into_typed_state::<A>(state)?)
    }
    fn index(&self, finding: &Finding) -> Result<Option<Buffer>> {
        Analyzer::index(self, finding)
    }
    fn size_bytes(&self, state: &AnyState) -> usize {
        state
            .downcast_ref()
            .map_or(0, |state| Analyzer::size_bytes(self, state))
    }
    fn size_bytes_max(&self, budget_bytes: usize) -> usize {
        Analyzer::size_bytes_max(self, budget_bytes)
    }
}
