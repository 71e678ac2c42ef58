//! What windows remember from one chunk to the next.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::ArrayRef;
use arrow::row::{OwnedRow, RowConverter, SortField};
use forebay_model::{Fault, Result, canonical_keys, codes, logical_type};
use forebay_window::{Engine, Rows, Together, WindowPlan, alone};
use serde::{Deserialize, Serialize};

use crate::OpId;

/// How the rows reach a window. All three give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Way {
    /// In order of time: every series is remembered from chunk to chunk.
    Time,
    /// Series by series, each in order of time: one series is remembered at a time.
    Key,
    /// In no order: the outputs were computed before, from sorted rows, and are read beside them.
    Sorted,
}

/// Outputs of a window that were computed before, in the order of the rows.
pub trait Given: Send {
    /// The outputs of the next rows, for which `emit` is true.
    fn take(&mut self, rows: usize, emit: &[bool]) -> Result<Vec<ArrayRef>>;
}

/// What carries share: memory for what windows remember, which they hold together, and threads that compute beside
/// the one that has the carry.
#[derive(Clone)]
pub struct Budget {
    bytes_max: usize,
    held: Arc<AtomicUsize>,
    /// In how many parts series are divided, and who computes these together.
    beside: Option<(usize, Arc<Together>)>,
}

impl Budget {
    /// Nothing is held yet.
    pub fn new(bytes_max: usize) -> Self {
        Budget { bytes_max, held: Arc::default(), beside: None }
    }

    /// The same where the rows of so many parts of the series can be computed together.
    pub fn with_beside(self, parts: usize, together: Arc<Together>) -> Self {
        Budget { beside: (parts > 1).then_some((parts, together)), ..self }
    }

    fn parts(&self) -> usize {
        self.beside.as_ref().map_or(1, |(parts, _)| *parts)
    }
}

/// What one carry holds of it.
struct Held {
    budget: Budget,
    bytes: usize,
}

impl Held {
    fn new(budget: &Budget, bytes: usize) -> Self {
        let mut held = Held { budget: budget.clone(), bytes: 0 };
        held.set(bytes);
        held
    }

    /// Says how much is held; gives what all hold together.
    fn set(&mut self, bytes: usize) -> usize {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let others = self.budget.held.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed).wrapping_sub(before);
        others.wrapping_add(bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The state of all windows of a chain at some row. It moves from span to span in order.
#[derive(Default)]
pub struct Carry {
    pub(crate) engines: BTreeMap<OpId, Engine>,
    keys: BTreeMap<OpId, Keys>,
    given: BTreeMap<OpId, Box<dyn Given>>,
    /// What its engines hold of the memory that they share with others.
    held: Option<Held>,
    /// The window that could not go on because its rows came in another order than it was told,
    /// or that outgrew its memory: it has to take the way of sorted rows.
    failed: Option<OpId>,
}

impl Carry {
    /// Nothing is remembered yet.
    pub fn new(budget: &Budget) -> Self {
        Carry { held: Some(Held::new(budget, 0)), ..Carry::default() }
    }

    /// Puts outputs beside the rows of the next span.
    pub fn give(&mut self, op: OpId, given: Box<dyn Given>) {
        self.given.insert(op, given);
    }

    /// The window that has to take the way of sorted rows, after a fault.
    pub fn failed(&self) -> Option<OpId> {
        self.failed
    }

    /// Writes what some windows remember, which must all have had their rows in order of time.
    pub fn encode(&self, windows: &BTreeMap<OpId, Arc<WindowPlan>>, out: &mut dyn Write) -> Result<()> {
        windows.iter().try_for_each(|(op, plan)| match self.engines.get(op) {
            Some(engine) => engine.encode(out),
            None => Engine::new(plan.clone()).encode(out),
        })
    }

    /// Reads what [`Carry::encode`] wrote for the same windows.
    pub fn decode(windows: &BTreeMap<OpId, Arc<WindowPlan>>, budget: &Budget, input: &mut dyn Read) -> Result<Carry> {
        let mut engine = |plan: &Arc<WindowPlan>| Engine::decode(plan.clone(), budget.parts(), input);
        let engines = windows.iter().map(|(op, plan)| Ok((*op, engine(plan)?)));
        let mut carry = Carry { engines: engines.collect::<Result<_>>()?, ..Carry::default() };
        carry.held = Some(Held::new(budget, carry.bytes()));
        Ok(carry)
    }

    /// A copy of what is remembered, for another thread to go on from.
    pub fn fork(&self) -> Carry {
        let held = self.held.as_ref().map(|held| Held::new(&held.budget, held.bytes));
        Carry { engines: self.engines.clone(), held, ..Carry::default() }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.engines.values().map(Engine::bytes).sum()
    }

    /// Steps in series that were not the declared period, where the spec asks for a warning.
    pub fn gaps(&self) -> u64 {
        self.engines.values().map(Engine::gaps).sum()
    }

    pub(crate) fn given(&mut self, op: OpId, rows: usize, emit: &[bool]) -> Result<Vec<ArrayRef>> {
        let given = self.given.get_mut(&op).ok_or_else(|| Fault::internal("a window's outputs were not given"))?;
        given.take(rows, emit)
    }

    /// Pushes batches that follow one another through a window. A fault comes with the number of its batch.
    pub(crate) fn push(
        &mut self,
        op: OpId,
        plan: &Arc<WindowPlan>,
        way: Way,
        batches: &[Rows<'_>],
        emit: &[bool],
    ) -> Result<Vec<Vec<ArrayRef>>, (usize, Fault)> {
        if way == Way::Key {
            let keys = self.keys.entry(op).or_default();
            for (number, rows) in batches.iter().enumerate() {
                keys.check(rows.keys).inspect_err(|_| self.failed = Some(op)).map_err(|fault| (number, fault))?;
            }
        }
        // Series that come one after the other are forgotten one after the other.
        let beside = self.held.as_ref().filter(|_| way == Way::Time).and_then(|held| held.budget.beside.as_ref());
        let parts = beside.map_or(1, |(parts, _)| *parts);
        let engine = self.engines.entry(op).or_insert_with(|| Engine::in_parts(plan.clone(), parts));
        let together: &Together = beside.map_or(&alone, |(_, together)| together.as_ref());
        let outputs = engine.push_all(batches, emit, together).inspect_err(|(_, fault)| {
            if fault.code() == codes::OUT_OF_ORDER {
                self.failed = Some(op);
            }
        })?;
        match (way, &self.held) {
            (Way::Key, _) => engine.keep_last(),
            (_, Some(held)) => engine.settle(held.budget.bytes_max).map_err(|fault| (0, fault))?,
            _ => {}
        }
        let bytes = self.bytes();
        if let Some(held) = &mut self.held {
            let max = held.budget.bytes_max;
            let held = held.set(bytes);
            if held > max {
                self.failed = Some(op);
                let message = format!("windows hold {} MiB, more than their {} MiB", held >> 20, max >> 20);
                return Err((0, Fault::new(codes::MEMORY, message).hint("raise --memory")));
            }
        }
        Ok(outputs)
    }
}

/// Checks that keys ascend, so that no series comes back after it was forgotten.
#[derive(Default)]
struct Keys {
    converter: Option<RowConverter>,
    last: Option<OwnedRow>,
}

impl Keys {
    fn check(&mut self, keys: &[ArrayRef]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let plain = keys.iter().map(|key| canonical_keys(&arrow::compute::cast(key, &logical_type(key.data_type()))?));
        let plain = plain.collect::<Result<Vec<ArrayRef>>>()?;
        let converter = match &mut self.converter {
            Some(converter) => converter,
            slot => {
                let fields = plain.iter().map(|key| SortField::new(key.data_type().clone())).collect();
                slot.insert(RowConverter::new(fields)?)
            }
        };
        let rows = converter.convert_columns(&plain)?;
        let mut last = self.last.as_ref().map(OwnedRow::row);
        for row in rows.iter() {
            if last.is_some_and(|last| last > row) {
                return Err(Fault::new(codes::OUT_OF_ORDER, "keys do not ascend"));
            }
            last = Some(row);
        }
        self.last = last.map(|row| row.owned());
        Ok(())
    }
}
