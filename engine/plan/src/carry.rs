//! Window state carried from chunk to chunk.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::ArrayRef;
use arrow::row::{OwnedRow, RowConverter, SortField};
use forebay_model::{DuplicateRows, Fault, Result, canonical_keys, codes, logical_type};
use forebay_window::{
    InputRows, ParallelFor, SeriesStates, WindowEngine, WindowPlan, run_sequentially,
};
use serde::{Deserialize, Serialize};

use crate::OpId;

/// Order in which rows reach a window. All three give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WindowRowOrder {
    /// Time order: the state of every series is kept from chunk to chunk.
    Time,
    /// Series by series, each in time order: the state of one series is kept at a time.
    Key,
    /// Any order: the outputs were computed beforehand from sorted rows and are read alongside.
    Sorted,
}

/// Precomputed outputs of a window or a join, in row order.
pub trait PrecomputedOutputs: Send {
    /// The requested outputs of the next `rows` rows.
    fn take(&mut self, rows: usize, emit: &[bool]) -> Result<TakenOutputs>;
}

/// Outputs of consecutive rows.
#[derive(Clone)]
pub struct TakenOutputs {
    /// The requested columns.
    pub columns: Vec<ArrayRef>,
    /// The number of rows for which a join found no row, where the outputs tell it beside the columns.
    pub unmatched: Option<u64>,
}

impl TakenOutputs {
    /// Columns alone.
    pub fn of_columns(columns: Vec<ArrayRef>) -> TakenOutputs {
        TakenOutputs {
            columns,
            unmatched: None,
        }
    }
}

/// Precomputed outputs by the window or join that they belong to.
pub type PrecomputedByOp = BTreeMap<OpId, Box<dyn PrecomputedOutputs>>;

/// Resources shared by carries: a memory limit for window state, and threads for parallel partitions.
#[derive(Clone)]
pub struct WindowBudget {
    bytes_max: usize,
    held: Arc<AtomicUsize>,
    /// Number of partitions, and the executor that runs them in parallel.
    beside: Option<(usize, Arc<ParallelFor>)>,
}

impl WindowBudget {
    /// A budget without any use.
    pub fn new(bytes_max: usize) -> Self {
        WindowBudget {
            bytes_max,
            held: Arc::default(),
            beside: None,
        }
    }

    /// Enables parallel computation of `parts` partitions of the series.
    pub fn with_parallelism(self, parts: usize, parallel_for: Arc<ParallelFor>) -> Self {
        WindowBudget {
            beside: (parts > 1).then_some((parts, parallel_for)),
            ..self
        }
    }

    fn parts(&self) -> usize {
        self.beside.as_ref().map_or(1, |(parts, _)| *parts)
    }
}

/// The share of the budget used by one carry; released on drop.
struct BudgetReservation {
    budget: WindowBudget,
    bytes: usize,
}

impl BudgetReservation {
    fn new(budget: &WindowBudget, bytes: usize) -> Self {
        let mut reservation = BudgetReservation {
            budget: budget.clone(),
            bytes: 0,
        };
        reservation.set(bytes);
        reservation
    }

    /// Sets the bytes used by this carry; returns the bytes used by all carries.
    fn set(&mut self, bytes: usize) -> usize {
        let bytes_before = std::mem::replace(&mut self.bytes, bytes);
        let others = self
            .budget
            .held
            .fetch_add(bytes.wrapping_sub(bytes_before), Ordering::Relaxed)
            .wrapping_sub(bytes_before);
        others.wrapping_add(bytes)
    }
}

impl Drop for BudgetReservation {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Stored states of a window's series.
#[derive(Clone)]
pub struct StoredSeries {
    /// The states.
    pub states: Arc<dyn SeriesStates>,
    /// True if each row must be later than the newest row of its series.
    pub is_strict: bool,
}

/// The state of all windows of a chain at some row, passed from span to span in order.
#[derive(Default)]
pub struct Carry {
    pub(crate) engines: BTreeMap<OpId, WindowEngine>,
    /// Stored states, from which series are restored when their rows come.
    stored: BTreeMap<OpId, StoredSeries>,
    keys: BTreeMap<OpId, KeyOrderCheck>,
    given: PrecomputedByOp,
    /// Reservation of the shared memory limit.
    held: Option<BudgetReservation>,
    /// The window that failed because its rows were out of order or its state exceeded the limit. It has to be
    /// computed from sorted rows.
    failed: Option<OpId>,
    /// Rows of the last push with the keys and the time of an earlier row, where a warning is
    /// requested.
    duplicates: u64,
}

impl Carry {
    /// A carry without state.
    pub fn new(budget: &WindowBudget) -> Self {
        Carry {
            held: Some(BudgetReservation::new(budget, 0)),
            ..Carry::default()
        }
    }

    /// Sets the precomputed outputs for the rows of the next span.
    pub fn set_precomputed(&mut self, op: OpId, outputs: Box<dyn PrecomputedOutputs>) {
        self.given.insert(op, outputs);
    }

    /// Sets the precomputed outputs of all windows and joins; returns those that it had.
    pub fn replace_precomputed(&mut self, outputs: PrecomputedByOp) -> PrecomputedByOp {
        std::mem::replace(&mut self.given, outputs)
    }

    /// Restores the series of a window from stored states when their rows come.
    pub fn restore_from(&mut self, op: OpId, stored: StoredSeries) {
        self.stored.insert(op, stored);
    }

    /// The state of a window that has received rows.
    pub fn engine(&self, op: OpId) -> Option<&WindowEngine> {
        self.engines.get(&op)
    }

    /// The window that has to be computed from sorted rows, after a fault.
    pub fn failed(&self) -> Option<OpId> {
        self.failed
    }

    /// Encodes the state of windows that received all their rows in time order.
    pub fn encode(
        &self,
        windows: &BTreeMap<OpId, Arc<WindowPlan>>,
        out: &mut dyn Write,
    ) -> Result<()> {
        windows
            .iter()
            .try_for_each(|(op, plan)| match self.engines.get(op) {
                Some(engine) => engine.encode(out),
                None => WindowEngine::new(plan.clone()).encode(out),
            })
    }

    /// Decodes bytes written by [`Carry::encode`] for the same windows.
    pub fn decode(
        windows: &BTreeMap<OpId, Arc<WindowPlan>>,
        budget: &WindowBudget,
        input: &mut dyn Read,
    ) -> Result<Carry> {
        let mut engine =
            |plan: &Arc<WindowPlan>| WindowEngine::decode(plan.clone(), budget.parts(), input);
        let engines = windows.iter().map(|(op, plan)| Ok((*op, engine(plan)?)));
        let mut carry = Carry {
            engines: engines.collect::<Result<_>>()?,
            ..Carry::default()
        };
        carry.held = Some(BudgetReservation::new(budget, carry.bytes()));
        Ok(carry)
    }

    /// Copies the state, so that another thread can continue from it. Precomputed outputs stay here.
    pub fn fork(&self) -> Carry {
        let reservation = self
            .held
            .as_ref()
            .map(|reservation| BudgetReservation::new(&reservation.budget, reservation.bytes));
        Carry {
            engines: self.engines.clone(),
            stored: self.stored.clone(),
            held: reservation,
            ..Carry::default()
        }
    }

    /// Bytes of window state.
    pub fn bytes(&self) -> usize {
        self.engines.values().map(WindowEngine::bytes).sum()
    }

    /// Number of steps that differ from the declared period, if the spec requests a warning.
    pub fn gaps(&self) -> u64 {
        self.engines.values().map(WindowEngine::gaps).sum()
    }

    /// Number of rows of the last push with the keys and the time of an earlier row, if the spec
    /// requests a warning.
    pub(crate) fn duplicates(&self) -> u64 {
        self.duplicates
    }

    pub(crate) fn take_precomputed(
        &mut self,
        op: OpId,
        rows: usize,
        emit: &[bool],
    ) -> Result<TakenOutputs> {
        let precomputed = self
            .given
            .get_mut(&op)
            .ok_or_else(|| Fault::internal("a window has no precomputed outputs"))?;
        precomputed.take(rows, emit)
    }

    /// Pushes consecutive batches through a window. A fault comes with the index of its batch.
    pub(crate) fn push(
        &mut self,
        op: OpId,
        plan: &Arc<WindowPlan>,
        row_order: WindowRowOrder,
        batches: &[InputRows<'_>],
        emit: &[bool],
    ) -> Result<Vec<Vec<ArrayRef>>, (usize, Fault)> {
        if row_order == WindowRowOrder::Key {
            let keys = self.keys.entry(op).or_default();
            for (number, rows) in batches.iter().enumerate() {
                keys.check(rows.keys)
                    .inspect_err(|_| self.failed = Some(op))
                    .map_err(|fault| (number, fault))?;
            }
        }
        // Series in key order are processed one after the other and use a single partition.
        let parallelism = self
            .held
            .as_ref()
            .filter(|_| row_order == WindowRowOrder::Time)
            .and_then(|reservation| reservation.budget.beside.as_ref());
        let parts = parallelism.map_or(1, |(parts, _)| *parts);
        let engine = self
            .engines
            .entry(op)
            .or_insert_with(|| WindowEngine::in_parts(plan.clone(), parts));
        if let Some(stored) = self.stored.get(&op) {
            engine.restore(batches, stored.states.as_ref(), stored.is_strict)?;
        }
        let parallel_for: &ParallelFor =
            parallelism.map_or(&run_sequentially, |(_, parallel_for)| parallel_for.as_ref());
        let outputs = engine
            .push_all(batches, emit, parallel_for)
            .inspect_err(|(_, fault)| {
                if fault.code() == codes::OUT_OF_ORDER && !engine.refused_duplicates() {
                    self.failed = Some(op);
                }
            })?;
        self.duplicates = match plan.duplicates.policy {
            DuplicateRows::Warn => engine.duplicates(),
            DuplicateRows::Allow | DuplicateRows::Error => 0,
        };
        match (row_order, &self.held) {
            (WindowRowOrder::Key, _) => engine.keep_last(),
            (_, Some(reservation)) => engine
                .settle(reservation.budget.bytes_max)
                .map_err(|fault| (0, fault))?,
            _ => {}
        }
        let bytes = self.bytes();
        if let Some(reservation) = &mut self.held {
            let max = reservation.budget.bytes_max;
            let total_bytes = reservation.set(bytes);
            if total_bytes > max {
                self.failed = Some(op);
                let message = format!(
                    "windows hold {} MiB, more than their limit of {} MiB",
                    total_bytes >> 20,
                    max >> 20
                );
                return Err((0, Fault::new(codes::MEMORY, message).hint("raise --memory")));
            }
        }
        Ok(outputs)
    }
}

/// Checks that keys ascend: a series must not return after its state was dropped.
#[derive(Default)]
struct KeyOrderCheck {
    converter: Option<RowConverter>,
    last: Option<OwnedRow>,
}

impl KeyOrderCheck {
    fn check(&mut self, keys: &[ArrayRef]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let plain = keys
            .iter()
            .map(|key| canonical_keys(&arrow::compute::cast(key, &logical_type(key.data_type()))?));
        let plain = plain.collect::<Result<Vec<ArrayRef>>>()?;
        let converter = match &mut self.converter {
            Some(converter) => converter,
            slot => {
                let fields = plain
                    .iter()
                    .map(|key| SortField::new(key.data_type().clone()))
                    .collect();
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
