//! State of a run that all kinds of passes share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use forebay_cluster::ShufflePlan;
use forebay_contract::ScanRequest;
use forebay_model::{ContentId, Dataset, Fault, FaultCode, Finding, Result};
use forebay_plan::{
    AnalyzerId, BaseDataset, BaseId, Carry, ChainWindow, ColumnScan, OpChain, OpId, OpStream,
    Program, WindowRowOrder,
};
use forebay_storage::MemoryBudget;
use forebay_threads::lock;

use crate::sorted_outputs::SortedOutputs;
use crate::source_input::SourceInput;
use crate::span_index::{JoinedSpans, SpanDigests};

/// The window that stopped a pass because its assumed row order was wrong, and the code of its fault.
pub type RowOrderFailure = Arc<Mutex<Option<(OpId, FaultCode)>>>;

/// Records the window that stopped a pass, if one did.
pub fn record_order_failure(order_failure: &RowOrderFailure, carry: &Carry, fault: Fault) -> Fault {
    if let (Some(op), Ok(mut order_failure)) = (carry.failed(), order_failure.lock()) {
        order_failure.get_or_insert((op, fault.code()));
    }
    fault
}

/// The sorted outputs of a window for one stream.
#[derive(Clone)]
pub struct SortedStream {
    op: OpId,
    sorted: Arc<dyn SortedOutputs>,
    place: usize,
}

impl SortedStream {
    /// Attaches the outputs to the rows of a span.
    pub fn attach(&self, span: usize, carry: &mut Carry) -> Result<()> {
        let sorted = self.sorted.clone();
        carry.set_precomputed(self.op, sorted.read(self.place, span)?);
        Ok(())
    }
}

/// Datasets, one after the other, with the digests of their spans.
pub struct DigestedDatasets {
    datasets: Vec<Arc<Dataset>>,
    digests: Arc<SpanDigests>,
}

/// The state of a run: datasets to read and findings to use.
#[derive(Default)]
pub struct RunState {
    pub sources: BTreeMap<String, SourceInput>,
    pub gathered: BTreeMap<OpId, SourceInput>,
    /// Findings by state id, so that analyzers with equal states share one finding.
    pub findings: BTreeMap<ContentId, Arc<Finding>>,
    /// The order in which rows reach each window.
    pub row_orders: BTreeMap<OpId, WindowRowOrder>,
    /// Windows whose state is so large that one thread needs all the memory for it.
    pub single_threaded: BTreeSet<OpId>,
    /// The outputs of windows and joins that chains do not compute themselves.
    pub sorted: BTreeMap<OpId, Arc<dyn SortedOutputs>>,
    /// Shuffles of the windows and joins that workers sorted.
    pub shuffles: Vec<ShufflePlan>,
    /// As-of joins of which a row came out of order.
    pub out_of_order: BTreeSet<OpId>,
    /// The ids of states whose findings workers have committed.
    pub shared: Mutex<Vec<ContentId>>,
    /// The first window whose row order was wrong.
    pub order_failure: RowOrderFailure,
    /// Digests of spans, computed on first use.
    pub span_digests: Mutex<Vec<DigestedDatasets>>,
}

impl RunState {
    pub fn input(&self, program: &Program, base: BaseId) -> Result<&SourceInput> {
        let input = match &program.bound.bases[base] {
            BaseDataset::Source(name) => self.sources.get(name),
            BaseDataset::Gathered(op) => self.gathered.get(op),
        };
        input.ok_or_else(|| Fault::internal("a dataset was read before it was there"))
    }

    /// The digests of the spans that some scans read, scan by scan.
    pub fn span_digests(
        &self,
        program: &Program,
        scans: &[ColumnScan],
    ) -> Result<Arc<SpanDigests>> {
        let dataset = |scan: &ColumnScan| Ok(self.input(program, scan.base)?.dataset.clone());
        let datasets = scans.iter().map(dataset).collect::<Result<Vec<_>>>()?;
        let mut cached = lock(&self.span_digests)?;
        let are_they = |cached_datasets: &[Arc<Dataset>]| {
            cached_datasets.len() == datasets.len()
                && cached_datasets
                    .iter()
                    .zip(&datasets)
                    .all(|(cached_dataset, dataset)| Arc::ptr_eq(cached_dataset, dataset))
        };
        if let Some(cached_digests) = cached.iter().find(|cached| are_they(&cached.datasets)) {
            return Ok(cached_digests.digests.clone());
        }
        let spans = datasets
            .iter()
            .enumerate()
            .flat_map(|(at, dataset)| dataset.spans.iter().map(move |span| (at, span)));
        let digests = Arc::new(SpanDigests::new(spans));
        cached.push(DigestedDatasets {
            datasets: datasets.clone(),
            digests: digests.clone(),
        });
        Ok(digests)
    }

    /// True if all rows come from sources that grow with time.
    pub fn is_history(&self, program: &Program, scans: &[ColumnScan]) -> Result<bool> {
        for scan in scans {
            if !self.input(program, scan.base)?.in_time_order {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if rows may be written in shards, each kept as long as its inputs stay the same.
    pub fn in_shards(&self, program: &Program, scans: &[ColumnScan]) -> Result<bool> {
        Ok(!program.windows_of(scans).is_empty() || self.is_history(program, scans)?)
    }

    /// The digest of the part of an analyzer's finding that decides the values of rows.
    pub fn digest(&self, program: &Program, analyzer: AnalyzerId) -> Result<ContentId> {
        let request = &program.bound.asks[analyzer].ask;
        let finding = self.finding(program, analyzer)?;
        request.row_finding(finding)?.digest()
    }

    pub fn row_order(&self, op: OpId) -> WindowRowOrder {
        self.row_orders
            .get(&op)
            .copied()
            .unwrap_or(WindowRowOrder::Time)
    }

    /// Records the window that stopped a pass, if one did.
    pub fn record_order_failure(&self, carry: &Carry, fault: Fault) -> Fault {
        record_order_failure(&self.order_failure, carry, fault)
    }

    /// The spans of the other side that rows of each of `spans` spans may meet, for a join whose
    /// outputs are computed in order of time.
    pub fn joined_spans(&self, window: &ChainWindow, spans: usize) -> Option<JoinedSpans> {
        if window.plan.is_some() {
            return None;
        }
        self.sorted.get(&window.op)?.joined_spans(spans)
    }

    /// The outputs that a stream's windows need, each with the stream's index among the streams that were sorted
    /// together.
    pub fn sorted_for(
        &self,
        program: &Program,
        stream: &OpStream,
        chain: &OpChain,
    ) -> Result<Vec<SortedStream>> {
        let mut sorted_streams = Vec::new();
        for ChainWindow { op, row_order, .. } in chain
            .windows()
            .iter()
            .filter(|window| window.plan.is_none())
        {
            let sorted = self
                .sorted
                .get(op)
                .ok_or_else(|| Fault::internal(format!("{row_order:?} rows are not there")))?;
            let is_input = |candidate: &OpStream| {
                candidate.base == stream.base
                    && stream.ops.starts_with(&candidate.ops)
                    && stream.ops.get(candidate.ops.len()) == Some(op)
            };
            let flow = program.bound.window_inputs.get(op);
            let position = flow.and_then(|flow| flow.streams.iter().position(is_input));
            let position =
                position.ok_or_else(|| Fault::internal("a window stands on another stream"))?;
            sorted_streams.push(SortedStream {
                op: *op,
                sorted: sorted.clone(),
                place: position,
            });
        }
        Ok(sorted_streams)
    }

    pub fn finding(&self, program: &Program, analyzer: AnalyzerId) -> Result<Arc<Finding>> {
        let finding = self
            .findings
            .get(&program.state_ids[analyzer])
            .or(program.bound.asks[analyzer].held.as_ref())
            .cloned();
        finding.ok_or_else(|| Fault::internal("a statistic was used before it was known"))
    }
}

/// A scan's request to its spans: columns, and the conditions at the head of its streams.
pub fn scan_request(
    program: &Program,
    scan: &ColumnScan,
    input: &SourceInput,
    batch_rows: usize,
    row_keys: bool,
) -> ScanRequest {
    ScanRequest {
        columns: scan.columns.clone(),
        schema: input.dataset.schema.clone(),
        pruning: forebay_plan::pruning_conditions(&program.bound, scan),
        batch_rows,
        row_keys,
    }
}

/// Estimated window state of a series in bytes, more than most series need.
const SERIES_BYTES: usize = 4 << 10;

/// Rows of several chunks that pass through a chain together: as many as memory allows if each row started a series. 0
/// if the chain does not profit from it.
pub fn group_rows_max(
    at_once: usize,
    chain: &OpChain,
    memory: MemoryBudget,
    threads: usize,
) -> usize {
    if chain.gains_by_chunks() {
        at_once.min(memory.states_bytes() / threads.max(1) / SERIES_BYTES)
    } else {
        0
    }
}

/// Bytes of several chunks that pass through a chain together on one of the threads.
pub fn group_bytes_max(memory: MemoryBudget, threads: usize) -> usize {
    memory.rows_bytes() / threads.max(1)
}
