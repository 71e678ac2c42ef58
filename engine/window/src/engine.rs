//! The state of every series, and the rows that pass through it.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::ArrayRef;
use forebay_model::{Fault, Result};

use crate::WindowPlan;

/// Rows to push: columns of the plan's logical types in whatever layout (dictionaries, views).
pub struct Rows<'a> {
    /// The key columns.
    pub keys: &'a [ArrayRef],
    /// The time column.
    pub time: &'a ArrayRef,
    /// The inputs, in the plan's order.
    pub inputs: &'a [ArrayRef],
    /// How many rows.
    pub rows: usize,
}

/// What the windows of one step remember of every series.
#[derive(Debug, Clone)]
pub struct Engine {
    plan: Arc<WindowPlan>,
}

impl Engine {
    /// No series yet.
    pub fn new(plan: Arc<WindowPlan>) -> Self {
        Engine { plan }
    }

    /// Takes rows and gives the outputs of those functions for which `emit` is true, in the
    /// plan's order. A row whose time lies before that of an earlier row of its series is a fault
    /// with the code `OUT_OF_ORDER`; the engine is not usable afterwards.
    pub fn push(&mut self, rows: &Rows<'_>, emit: &[bool]) -> Result<Vec<ArrayRef>> {
        let _ = (rows, emit, &self.plan);
        Err(Fault::internal("not built yet"))
    }

    /// Forgets all series but that of the last row: for rows that come series by series.
    pub fn keep_last(&mut self) {}

    /// How many series it remembers.
    pub fn series(&self) -> usize {
        0
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        0
    }

    /// Steps between rows of a series that were not the declared period, with `Gaps::Warn`.
    pub fn gaps(&self) -> u64 {
        0
    }

    /// Writes what it remembers: the same bytes for the same rows, however they came.
    pub fn encode(&self, out: &mut dyn Write) -> Result<()> {
        let _ = out;
        Err(Fault::internal("not built yet"))
    }

    /// Reads what [`Engine::encode`] wrote.
    pub fn decode(plan: Arc<WindowPlan>, input: &mut dyn Read) -> Result<Self> {
        let _ = input;
        Ok(Engine::new(plan))
    }
}
