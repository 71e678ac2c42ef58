//! Analyzers: mergeable questions about the whole data.

use std::any::Any;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::Buffer;
use serde_json::Value;

use crate::{Fault, Finding, Result, Scratch};

/// One batch of an analyzer's input columns.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// In the order in which the analyzer was asked. Strings may arrive as dictionaries.
    pub columns: &'a [ArrayRef],
    /// Rows in every column.
    pub rows: usize,
    /// One key per row; present when [`Analyzer::needs_row_keys`] says so.
    pub keys: Option<&'a [u64]>,
}

/// A mergeable question: accumulate, merge, finish.
///
/// The laws that every analyzer keeps, and that the law suite checks:
/// 1. *Identity*: merging [`Analyzer::zero`] on either side changes nothing.
/// 2. *Associativity*: states merged in span order give the same bytes for any grouping.
/// 3. *Same bytes* for any batch size; and where [`Analyzer::order_free`], for any order of spans.
/// 4. *Stable bytes*: decode, then encode, gives the same bytes.
/// 5. *Bounded*: a state holds at most [`Scratch::budget_bytes`] plus a constant in memory.
pub trait Analyzer: Debug + Send + Sync + 'static {
    /// What it knows so far.
    type State: Send + 'static;

    /// A stable name, such as `moments`; part of the state's id.
    fn kind(&self) -> &'static str;

    /// The version of the state's bytes; a change makes old states invisible rather than wrong.
    fn version(&self) -> u32 {
        1
    }

    /// The configuration that determines the result; part of the state's id.
    fn config(&self) -> Value;

    /// Whether [`Input::keys`] has to be filled.
    fn needs_row_keys(&self) -> bool {
        false
    }

    /// Whether the result does not depend on the order of rows, so that threads may take spans
    /// as they come. Otherwise states are kept per span and merged in span order.
    fn order_free(&self) -> bool {
        true
    }

    /// A state that has seen nothing.
    fn zero(&self, scratch: &Arc<dyn Scratch>) -> Result<Self::State>;

    /// Takes a batch in.
    fn update(&self, state: &mut Self::State, input: &Input<'_>) -> Result<()>;

    /// Adds a state of rows that come later in span order.
    fn merge(&self, state: &mut Self::State, later: Self::State) -> Result<()>;

    /// Writes the state's stable bytes. May reorder the state inside, never change its meaning.
    fn encode(&self, state: &mut Self::State, out: &mut dyn Write) -> Result<()>;

    /// Reads what [`Analyzer::encode`] wrote.
    fn decode(&self, input: &mut dyn Read, scratch: &Arc<dyn Scratch>) -> Result<Self::State>;

    /// About how many bytes [`Analyzer::encode`] would write; `None` where states cannot be divided.
    fn divisible_bytes(&self, state: &Self::State) -> Option<u64> {
        let _ = state;
        None
    }

    /// Writes the state in shares: each is a state of the keys whose hashes fall to it, so that shares of
    /// one number are merged apart from those of others, and all of them come to the whole in any order.
    fn encode_shares(&self, state: &mut Self::State, shares: &mut [&mut dyn Write]) -> Result<()> {
        let _ = (state, shares);
        Err(Fault::internal(format!("`{}` has no shares", self.kind())))
    }

    /// Forgets what [`Analyzer::finish`] does not read. For the state of all rows, which is merged with no other.
    fn condense(&self, state: &mut Self::State) -> Result<()> {
        let _ = state;
        Ok(())
    }

    /// The answer, as a small table.
    fn finish(&self, state: Self::State) -> Result<Finding>;

    /// What makes it quick to look something up in an answer, and costs something to make: left beside the
    /// answer for others to use.
    fn index(&self, finding: &Finding) -> Result<Option<Buffer>> {
        let _ = finding;
        Ok(None)
    }

    /// Memory held now.
    fn size_bytes(&self, state: &Self::State) -> usize;

    /// An upper bound of the memory one state can hold, for `explain`; `budget_bytes` is what the
    /// run would give it.
    fn size_bytes_max(&self, budget_bytes: usize) -> usize {
        budget_bytes
    }
}

/// A state whose type has been erased.
pub type AnyState = Box<dyn Any + Send>;

/// An [`Analyzer`] whose state type has been erased; implemented for all of them.
#[allow(missing_docs)] // Each method is the one of the same name above.
pub trait AnyAnalyzer: Debug + Send + Sync {
    fn kind(&self) -> &'static str;
    fn version(&self) -> u32;
    fn config(&self) -> Value;
    fn needs_row_keys(&self) -> bool;
    fn order_free(&self) -> bool;
    fn zero(&self, scratch: &Arc<dyn Scratch>) -> Result<AnyState>;
    fn update(&self, state: &mut AnyState, input: &Input<'_>) -> Result<()>;
    fn merge(&self, state: &mut AnyState, later: AnyState) -> Result<()>;
    fn encode(&self, state: &mut AnyState, out: &mut dyn Write) -> Result<()>;
    fn decode(&self, input: &mut dyn Read, scratch: &Arc<dyn Scratch>) -> Result<AnyState>;
    fn divisible_bytes(&self, state: &AnyState) -> Option<u64>;
    fn encode_shares(&self, state: &mut AnyState, shares: &mut [&mut dyn Write]) -> Result<()>;
    fn condense(&self, state: &mut AnyState) -> Result<()>;
    fn finish(&self, state: AnyState) -> Result<Finding>;
    fn index(&self, finding: &Finding) -> Result<Option<Buffer>>;
    fn size_bytes(&self, state: &AnyState) -> usize;
    fn size_bytes_max(&self, budget_bytes: usize) -> usize;
}

fn typed<A: Analyzer>(state: &mut AnyState) -> Result<&mut A::State> {
    state.downcast_mut().ok_or_else(|| foreign_state::<A>())
}

fn owned<A: Analyzer>(state: AnyState) -> Result<A::State> {
    state.downcast().map(|state| *state).map_err(|_| foreign_state::<A>())
}

fn foreign_state<A: Analyzer>() -> Fault {
    Fault::internal(format!("a state of another type reached {}", std::any::type_name::<A>()))
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
    fn zero(&self, scratch: &Arc<dyn Scratch>) -> Result<AnyState> {
        Ok(Box::new(Analyzer::zero(self, scratch)?))
    }
    fn update(&self, state: &mut AnyState, input: &Input<'_>) -> Result<()> {
        Analyzer::update(self, typed::<A>(state)?, input)
    }
    fn merge(&self, state: &mut AnyState, later: AnyState) -> Result<()> {
        Analyzer::merge(self, typed::<A>(state)?, owned::<A>(later)?)
    }
    fn encode(&self, state: &mut AnyState, out: &mut dyn Write) -> Result<()> {
        Analyzer::encode(self, typed::<A>(state)?, out)
    }
    fn decode(&self, input: &mut dyn Read, scratch: &Arc<dyn Scratch>) -> Result<AnyState> {
        Ok(Box::new(Analyzer::decode(self, input, scratch)?))
    }
    fn divisible_bytes(&self, state: &AnyState) -> Option<u64> {
        Analyzer::divisible_bytes(self, state.downcast_ref()?)
    }
    fn encode_shares(&self, state: &mut AnyState, shares: &mut [&mut dyn Write]) -> Result<()> {
        Analyzer::encode_shares(self, typed::<A>(state)?, shares)
    }
    fn condense(&self, state: &mut AnyState) -> Result<()> {
        Analyzer::condense(self, typed::<A>(state)?)
    }
    fn finish(&self, state: AnyState) -> Result<Finding> {
        Analyzer::finish(self, owned::<A>(state)?)
    }
    fn index(&self, finding: &Finding) -> Result<Option<Buffer>> {
        Analyzer::index(self, finding)
    }
    fn size_bytes(&self, state: &AnyState) -> usize {
        state.downcast_ref().map_or(0, |state| Analyzer::size_bytes(self, state))
    }
    fn size_bytes_max(&self, budget_bytes: usize) -> usize {
        Analyzer::size_bytes_max(self, budget_bytes)
    }
}
