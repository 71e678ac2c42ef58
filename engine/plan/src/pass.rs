//! Passes: the reads of the data that a program consists of, and their work.

use forebay_model::ContentId;

use crate::{AnalyzerId, BaseId, BoundPipeline, ColumnTap, OpId, OpStream};

/// A read of the data.
#[derive(Debug, Clone)]
pub struct Pass {
    /// `hash(format version, span fingerprints, configuration, ids of the states it reads)`.
    pub id: ContentId,
    /// Passes of one level are independent of each other.
    pub level: usize,
    /// Work of the pass.
    pub work: PassWork,
}

/// Work of a pass.
#[derive(Debug, Clone)]
pub enum PassWork {
    /// Computes findings.
    Learn(LearnWork),
    /// Materializes an intermediate dataset.
    Gather(OpId),
    /// Writes a sink (an index into the pipeline's sinks).
    Write(SinkWork),
}

/// The analyzers of a pass: those to compute, and those whose findings are known.
#[derive(Debug, Clone)]
pub struct LearnWork {
    /// Lanes to run; empty if all findings are known.
    pub lanes: Vec<AnalyzerLane>,
    /// Analyzers whose states were committed by an earlier run.
    pub known: Vec<AnalyzerId>,
}

/// Analyzers that run together because they read the same columns. Lanes of one pass read disjoint columns, except
/// for columns that select rows. Each lane therefore holds its states once, regardless of the number of threads,
/// and frees them when it is done.
#[derive(Debug, Clone)]
pub struct AnalyzerLane {
    /// The analyzers, one per state.
    pub asks: Vec<AnalyzerId>,
    /// Scans of the analyzers, in order.
    pub scans: Vec<ColumnScan>,
    /// Stored bytes of the columns that it reads; 0 where the format does not record bytes per
    /// column.
    pub bytes: u64,
}

/// A scan of some columns of a base dataset.
#[derive(Debug, Clone)]
pub struct ColumnScan {
    /// The base dataset.
    pub base: BaseId,
    /// Columns, in the order of the base's schema.
    pub columns: Vec<String>,
    /// Operations applied to the rows.
    pub streams: Vec<ScanStream>,
}

/// A stream and the points at which analyzers read it.
#[derive(Debug, Clone)]
pub struct ScanStream {
    /// All operations of the stream; only those in `needed` run.
    pub stream: OpStream,
    /// Positions in the stream's operations.
    pub needed: Vec<usize>,
    /// Analyzers, and the number of operations after which each reads.
    pub taps: Vec<(AnalyzerId, usize)>,
}

impl ScanStream {
    /// Taps of its analyzers, in order.
    pub fn column_taps(&self, bound: &BoundPipeline) -> impl Iterator<Item = ColumnTap> {
        self.taps.iter().map(|(analyzer, position)| {
            let bound_analyzer = &bound.asks[*analyzer];
            ColumnTap {
                after: *position,
                columns: bound_analyzer.ask.inputs.clone(),
                part: bound_analyzer.part.clone(),
                marks_unfound: false,
            }
        })
    }
}

/// Work of a write pass.
#[derive(Debug, Clone)]
pub struct SinkWork {
    /// An index into the pipeline's sinks.
    pub sink: usize,
    /// Scans of the sink, in order.
    pub scans: Vec<ColumnScan>,
    /// Written columns.
    pub columns: Vec<String>,
    /// Hidden column that restricts the rows to a part.
    pub part: Option<String>,
    /// The first scan whose rows are written. Those before it only warm up window state: the history before rows of the
    /// future.
    pub first_scan: usize,
}

/// The operations that the rows of some scans go through.
pub fn needed_ops<'a>(
    scans: impl IntoIterator<Item = &'a ColumnScan>,
) -> impl Iterator<Item = OpId> {
    let streams = scans.into_iter().flat_map(|scan| &scan.streams);
    streams.flat_map(|stream| {
        stream
            .needed
            .iter()
            .map(|position| stream.stream.ops[*position])
    })
}
