//! Resources that the stages of a distributed query share on a worker, and the tables that they read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use datafusion::execution::runtime_env::RuntimeEnv;
use forebay_cluster::{ExchangeChannels, ScannedSpans};
use forebay_commit::StateStore;
use forebay_execute::{FlowReader, WorkerCounts};
use forebay_model::Result;
use forebay_storage::ScratchDir;

use crate::predict::LoadedModel;

/// The queries that a worker has stages of, by the ids of their attempts.
pub(super) type WorkerQueries = Mutex<BTreeMap<String, Weak<WorkerQuery>>>;

/// Resources that the stages of a query share on this worker. Dropped with the last stage.
pub(super) struct WorkerQuery {
    pub channels: ExchangeChannels,
    pub runtime: Arc<RuntimeEnv>,
    pub tables: Mutex<BTreeMap<TableKey, TableCell>>,
    pub scratch: ScratchDir,
}

/// Pass, input and columns of a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TableKey {
    pub pass: usize,
    pub input: usize,
    pub columns: Vec<String>,
}

/// Filled by the first partition that reads the table; the others wait for it.
pub(super) type TableCell = Arc<Mutex<Option<Arc<OpenTable>>>>;

/// A table that is ready to be read.
pub(super) struct OpenTable {
    pub reader: FlowReader,
    pub store: StateStore,
    /// Steps find the models that they predict with while these are held.
    pub _models: Vec<Arc<LoadedModel>>,
}

impl OpenTable {
    /// Leaves the numbers of rows of some spans for the coordinator.
    pub fn leave_counts(&self, query: &WorkerQuery, scanned: &ScannedSpans) -> Result<()> {
        let ScannedSpans {
            table,
            columns,
            spans,
            ..
        } = scanned;
        let counts = WorkerCounts {
            input: table.input,
            spans: self.reader.counts(spans.clone())?,
        };
        if counts.spans.is_empty() {
            return Ok(());
        }
        let part = format!("{spans:?} {columns:?}");
        counts.leave(&self.store, table.counts, &part, &query.scratch)
    }
}
