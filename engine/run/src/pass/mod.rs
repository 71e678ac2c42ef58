//! The three kinds of passes.

pub(crate) mod gather;
pub(crate) mod learn;
pub(crate) mod write;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use forebay_model::{Dataset, Fault, Finding, Id, Result};
use forebay_plan::{AskId, Base, BaseId, OpId, Program, Scan};

use crate::{ScanRequest, Source};

/// Chunks between two looks at the process's memory.
pub(crate) const CHUNKS_PER_CHECK: usize = 64;

/// A base dataset that can be read now.
#[derive(Clone)]
pub(crate) struct Input {
    pub dataset: Arc<Dataset>,
    pub source: Arc<dyn Source>,
}

/// What is there at some point of a run: datasets to read and findings to use.
#[derive(Default)]
pub(crate) struct Known {
    pub sources: BTreeMap<String, Input>,
    pub gathered: BTreeMap<OpId, Input>,
    /// By state, so that questions with equal states share one finding.
    pub findings: BTreeMap<Id, Arc<Finding>>,
}

impl Known {
    pub fn input(&self, program: &Program, base: BaseId) -> Result<&Input> {
        let found = match &program.bound.bases[base] {
            Base::Source(name) => self.sources.get(name),
            Base::Gathered(op) => self.gathered.get(op),
        };
        found.ok_or_else(|| Fault::internal("a dataset was read before it was there"))
    }

    pub fn finding(&self, program: &Program, ask: AskId) -> Result<Arc<Finding>> {
        let found = self.findings.get(&program.state_ids[ask]).cloned();
        found.ok_or_else(|| Fault::internal("a statistic was used before it was known"))
    }
}

/// What a scan wants of its spans: columns, and the conditions at the head of its streams.
pub(crate) fn scan_request(
    program: &Program,
    scan: &Scan,
    input: &Input,
    batch_rows: usize,
    row_keys: bool,
) -> ScanRequest {
    ScanRequest {
        columns: scan.columns.clone(),
        schema: input.dataset.schema.clone(),
        pruning: forebay_plan::pruning(&program.bound, scan),
        batch_rows,
        row_keys,
    }
}

/// Locks, or says that a thread failed while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    mutex.lock().map_err(|_| poisoned())
}

/// The fault for a lock whose holder failed.
pub(crate) fn poisoned() -> Fault {
    Fault::internal("another thread failed while it held a lock")
}
