//! The typed pipeline: operations and analyzers over streams of base datasets.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use forebay_model::{ContentId, Finding, SpecLocation, is_unsized_vector, logical_type};

use crate::{AnalyzerId, AnalyzerRequest, CarriedFinding, FutureFlow, OpId, PlanOp, SeriesColumns};

/// Index into `BoundPipeline::bases`.
pub type BaseId = usize;

/// Origin of a stream's rows.
#[derive(Debug, Clone)]
pub enum BaseDataset {
    /// A source of the pipeline, by name.
    Source(String),
    /// The result of a gather, by its operation.
    Gathered(OpId),
}

/// A sequence of operations over one base dataset.
#[derive(Debug, Clone)]
pub struct OpStream {
    /// The base dataset.
    pub base: BaseId,
    /// Indices into `BoundPipeline::ops`.
    pub ops: Vec<OpId>,
}

/// Rows of a node: its streams, one after the other.
#[derive(Debug, Clone)]
pub struct NodeFlow {
    /// Streams in row order.
    pub streams: Vec<OpStream>,
    /// The visible columns.
    pub schema: SchemaRef,
    /// Whether the hidden columns of the split are present.
    pub parts: bool,
    /// Event time and keys, as far as they are known here.
    pub series: SeriesColumns,
    /// Its future rows, if a step adds them.
    pub future: Option<Arc<FutureFlow>>,
}

/// A bound operation.
#[derive(Clone)]
pub struct BoundOp {
    /// Display name, `node.kind`.
    pub label: String,
    /// Hash of everything that determines the output, given inputs and findings.
    pub identity: ContentId,
    /// The operation.
    pub op: PlanOp,
    /// Analyzers whose findings it needs: indices into `BoundPipeline::analyzers`.
    pub asks: Vec<AnalyzerId>,
    /// Location in the spec.
    pub at: Option<SpecLocation>,
}

impl BoundOp {
    /// The bit of a join in [`JoinsMet`](crate::JoinsMet). Two joins rarely share one.
    pub fn join_bit(&self) -> u64 {
        1 << (self.identity.to_bytes()[0] % 64)
    }
}

/// A bound analyzer.
#[derive(Clone)]
pub struct BoundAnalyzer {
    /// The operation that needs the finding.
    pub op: OpId,
    /// The requested analyzer.
    pub ask: AnalyzerRequest,
    /// The rows it reads.
    pub streams: Vec<OpStream>,
    /// Hidden column that restricts the rows to a part of the split.
    pub part: Option<String>,
    /// How the finding depends on an earlier run.
    pub carried: Option<CarriedFinding>,
    /// The finding of an earlier run that is used instead of one of this run's rows.
    pub held: Option<Arc<Finding>>,
}

/// The typed pipeline.
#[derive(Clone, Default)]
pub struct BoundPipeline {
    /// Base datasets.
    pub bases: Vec<BaseDataset>,
    /// Columns of each base.
    pub base_schemas: Vec<SchemaRef>,
    /// Operations.
    pub ops: Vec<BoundOp>,
    /// Analyzers.
    pub asks: Vec<BoundAnalyzer>,
    /// Flows of nodes and sources by name.
    pub flows: BTreeMap<String, NodeFlow>,
    /// Inputs of each gather: name and flow.
    pub gather_inputs: BTreeMap<OpId, Vec<(String, NodeFlow)>>,
    /// The input flow of each window and join.
    pub window_inputs: BTreeMap<OpId, NodeFlow>,
    /// The flow of the other side of each join.
    pub join_inputs: BTreeMap<OpId, NodeFlow>,
}

impl BoundPipeline {
    /// The operations up to the last that writes, renames or drops a column. Most operations of a wide table do not
    /// touch it.
    pub(crate) fn through_last_change<'o>(&self, ops: &'o [OpId], column: &str) -> &'o [OpId] {
        let last = ops.iter().rposition(|op| self.changes(*op, column));
        &ops[..last.map_or(0, |last| last + 1)]
    }

    fn changes(&self, op: OpId, column: &str) -> bool {
        match &self.ops[op].op {
            PlanOp::Map(map) => map.writes.iter().any(|field| field.name() == column),
            PlanOp::Expand(expand) => expand.writes.iter().any(|field| field.name() == column),
            PlanOp::Window(window) => window.writes.iter().any(|field| field.name() == column),
            PlanOp::Join(join) => join.is_written(column),
            PlanOp::Project(_) => true,
            PlanOp::Keep(_) | PlanOp::Gather(_) => false,
        }
    }

    /// Sets the vector widths of a gathered dataset, which are known once it exists.
    pub fn set_gathered_schema(&mut self, op: OpId, gathered: &Schema) {
        for (base, schema) in self.bases.iter().zip(&mut self.base_schemas) {
            if !matches!(base, BaseDataset::Gathered(known) if *known == op) {
                continue;
            }
            let fields =
                schema
                    .fields()
                    .iter()
                    .map(|field| match gathered.field_with_name(field.name()) {
                        Ok(found) if is_unsized_vector(field.data_type()) => field
                            .as_ref()
                            .clone()
                            .with_data_type(logical_type(found.data_type())),
                        _ => field.as_ref().clone(),
                    });
            *schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        }
    }
}
