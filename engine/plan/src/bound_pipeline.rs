//! The typed pipeline: operations and analyzers over streams of base datasets.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use forebay_contract::TargetChain;
use forebay_model::{
    ContentId, Finding, IdBuilder, Result, SpecLocation, is_unsized_vector, logical_type,
};
use forebay_window::SeriesLength;
use serde::{Deserialize, Serialize};

use crate::{AnalyzerRequest, MapOp, OpId, OpList, PlanOp, SeriesColumns, WindowDivision};

/// Index into `BoundPipeline::asks`.
pub type AnalyzerId = usize;
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
    pub ops: OpList,
}

impl OpStream {
    /// The stream of the first `count` operations.
    pub(crate) fn first(&self, count: usize) -> OpStream {
        OpStream {
            base: self.base,
            ops: self.ops.first(count),
        }
    }
}

/// Rows of a node: its streams, one after the other.
#[derive(Debug, Clone)]
pub struct NodeFlow {
    /// Streams in row order.
    pub streams: Vec<OpStream>,
    /// The visible columns.
    pub schema: SchemaRef,
    /// True if the hidden columns of the split are present.
    pub parts: bool,
    /// Event time and keys, as far as they are known here.
    pub series: SeriesColumns,
    /// Its future rows, if a step adds them.
    pub future: Option<Arc<FutureFlow>>,
    /// The transformation of its target, which predictions undo.
    pub target: Option<Arc<TargetChain>>,
    /// The division of the windows that come next.
    pub windows: WindowDivision,
}

impl NodeFlow {
    /// Names of its columns.
    pub fn column_names(&self) -> Vec<String> {
        let fields = self.schema.fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    /// Updates the transformation of the target after an operation.
    pub(crate) fn follow_target(&mut self, op: &PlanOp) -> Result<()> {
        match op {
            PlanOp::Map(MapOp {
                target: Some(stage),
                ..
            }) => self.target = Some(TargetChain::with_stage(self.target.as_ref(), stage)?),
            PlanOp::Project(columns) => {
                if let Some(chain) = &mut self.target
                    && let Some((_, to)) = columns.iter().find(|(from, _)| *from == chain.column)
                    && *to != chain.column
                {
                    Arc::make_mut(chain).column.clone_from(to);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The rows of the future of a flow.
#[derive(Debug, Clone)]
pub struct FutureFlow {
    /// Streams of the history. Their rows only warm up window state.
    pub history: Vec<OpStream>,
    /// Streams of the rows of the future.
    pub rows: Vec<OpStream>,
    /// The operations that make the rows.
    pub made_by: Vec<OpId>,
    /// The columns that rows had when they were made, under their own names. [`source_column`](crate::source_column) names those that keep
    /// them.
    pub source: SchemaRef,
    /// The columns that identify a series.
    pub keys: Vec<String>,
    /// The event-time column.
    pub time: String,
    /// See [`FutureRowsOp::horizon`](crate::FutureRowsOp::horizon).
    pub horizon: SeriesLength,
    /// Rows per series.
    pub steps: u64,
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

/// Dependence of an analyzer's finding on an earlier run. The ids are those of the earlier
/// finding's content, so that all results that are computed with it have ids of their own: rows, and
/// states that count these rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CarriedFinding {
    /// The finding of this run's rows is combined with the earlier one.
    Continued(ContentId),
    /// The finding begins, and later runs continue it.
    Begun(ContentId),
    /// The finding of an artifact is used in place of one of this run's rows.
    Replaced(ContentId),
}

impl CarriedFinding {
    /// Identifies a finding that replaces one of this run's rows.
    pub fn replaced(answer: &Finding) -> Result<CarriedFinding> {
        let mut id = IdBuilder::new("earlier finding");
        id.id(answer.digest()?);
        Ok(CarriedFinding::Replaced(id.finish()))
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
    /// Dependence of the finding on an earlier run.
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
                        Ok(gathered) if is_unsized_vector(field.data_type()) => field
                            .as_ref()
                            .clone()
                            .with_data_type(logical_type(gathered.data_type())),
                        _ => field.as_ref().clone(),
                    });
            *schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        }
    }
}
