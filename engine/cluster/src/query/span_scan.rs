//! The leaf of a query: runs of spans of a table, a run per partition, read by a worker.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf;
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::protocol::TableSpec;
use crate::task_exec::leaf_properties;

/// Partitions of a leaf at most: a plan from the network decides how many are made.
const PARTITIONS_MAX: usize = 1 << 16;

/// Input of a partition of a leaf.
#[derive(Debug, Clone)]
pub struct ScannedSpans {
    pub table: Arc<TableSpec>,
    /// Columns in the order of the schema. Without columns, rows are counted only.
    pub columns: Vec<String>,
    pub schema: SchemaRef,
    pub spans: Range<usize>,
}

/// Reads spans on a worker. `scan` must return at once.
pub trait SpanScanner: Send + Sync + fmt::Debug {
    fn scan(
        self: Arc<Self>,
        scanned: ScannedSpans,
        context: &TaskContext,
    ) -> Result<SendableRecordBatchStream>;
}

/// Facts about the spans of a table that the coordinator has.
#[derive(Debug)]
pub struct TableSpans {
    /// Stored bytes of each span.
    pub bytes: Vec<u64>,
    /// True if the rows of a span depend on the spans before it.
    pub is_ordered: bool,
}

impl TableSpans {
    /// Divides the spans into consecutive runs of about the same bytes. Spans that depend on each other stay together.
    pub fn divide(&self, parts: usize) -> Vec<Range<usize>> {
        let span_count = self.bytes.len();
        if self.is_ordered {
            return (0..parts)
                .map(|part| {
                    if part == 0 {
                        0..span_count
                    } else {
                        span_count..span_count
                    }
                })
                .collect();
        }
        let costs = self.bytes.iter().map(|bytes| u128::from((*bytes).max(1)));
        let total: u128 = costs.clone().sum();
        let ends: Vec<u128> = costs
            .scan(0, |sum, cost| {
                Some(std::mem::replace(sum, *sum + cost) + cost)
            })
            .collect();
        let first_of = |part: usize| match part {
            0 => 0,
            _ if part == parts => span_count,
            _ => span_count
                .min(ends.partition_point(|end| *end * (parts as u128) < total * part as u128) + 1),
        };
        (0..parts)
            .map(|part| first_of(part)..first_of(part + 1))
            .collect()
    }
}

/// The leaf.
#[derive(Debug)]
pub struct SpanScanExec {
    table: Arc<TableSpec>,
    columns: Vec<String>,
    schema: SchemaRef,
    partitions: Vec<Range<usize>>,
    properties: Arc<PlanProperties>,
    /// Spans of the table; `None` on workers.
    known: Option<Arc<TableSpans>>,
    /// Reader of the spans; `None` on the coordinator.
    scanner: Option<Arc<dyn SpanScanner>>,
}

/// Wire form of a leaf; the schema follows it.
#[derive(Serialize, Deserialize)]
struct LeafMessage {
    table: TableSpec,
    columns: Vec<String>,
    partitions: Vec<Range<usize>>,
}

impl SpanScanExec {
    /// The leaf of a coordinator's plan.
    pub fn new(
        table: Arc<TableSpec>,
        columns: Vec<String>,
        schema: SchemaRef,
        table_spans: Arc<TableSpans>,
        partitions: usize,
    ) -> SpanScanExec {
        let partitions = table_spans.divide(partitions);
        let properties = leaf_properties(&schema, partitions.len());
        SpanScanExec {
            table,
            columns,
            schema,
            partitions,
            properties,
            known: Some(table_spans),
            scanner: None,
        }
    }

    pub fn known(&self) -> Option<&TableSpans> {
        self.known.as_deref()
    }

    /// The leaves of `tasks` tasks, with as many partitions each as this one has.
    pub fn of_tasks(&self, tasks: usize) -> Result<Vec<SpanScanExec>> {
        let table_spans = self.known.as_ref();
        let table_spans = table_spans.ok_or_else(|| {
            DataFusionError::Internal("only coordinators divide spans".to_owned())
        })?;
        let each = self.partitions.len();
        let divided = table_spans.divide(each * tasks);
        let leaf = |partitions: &[Range<usize>]| SpanScanExec {
            table: self.table.clone(),
            columns: self.columns.clone(),
            schema: self.schema.clone(),
            partitions: partitions.to_vec(),
            properties: self.properties.clone(),
            known: self.known.clone(),
            scanner: None,
        };
        Ok(divided.chunks(each.max(1)).map(leaf).collect())
    }
}

impl DisplayAs for SpanScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SpanScanExec: {}, columns=[{}], spans={:?}",
            self.table.name,
            self.columns.join(", "),
            self.partitions
        )
    }
}

impl ExecutionPlan for SpanScanExec {
    fn name(&self) -> &str {
        "SpanScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let scanner = self.scanner.as_ref();
        let scanner = scanner
            .ok_or_else(|| DataFusionError::Internal("only workers read spans".to_owned()))?;
        let spans = self.partitions.get(partition).cloned();
        let spans = spans.ok_or_else(|| {
            DataFusionError::Internal(format!("there is no partition {partition}"))
        })?;
        let table = self.table.clone();
        let columns = self.columns.clone();
        scanner.clone().scan(
            ScannedSpans {
                table,
                columns,
                schema: self.schema.clone(),
                spans,
            },
            &context,
        )
    }
}

/// Leaves as bytes. Coordinators have no scanner.
#[derive(Debug)]
pub struct SpanScanCodec(pub Option<Arc<dyn SpanScanner>>);

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl PhysicalExtensionCodec for SpanScanCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut messages = serde_json::Deserializer::from_slice(bytes).into_iter::<LeafMessage>();
        let message = messages.next().transpose().map_err(external)?;
        let message =
            message.ok_or_else(|| DataFusionError::Internal("a leaf without a message".to_owned()));
        let LeafMessage {
            table,
            columns,
            partitions,
        } = message?;
        let schema = bytes.get(messages.byte_offset()..).unwrap_or_default();
        let schema: SchemaRef = Arc::new(Schema::try_from(
            &protobuf::Schema::decode(schema).map_err(external)?,
        )?);
        let is_range = |range: &Range<usize>| range.start <= range.end;
        if partitions.len() > PARTITIONS_MAX
            || !partitions.iter().all(is_range)
            || columns.len() != schema.fields().len()
        {
            return Err(DataFusionError::Internal(
                "a leaf that no coordinator sends".to_owned(),
            ));
        }
        let properties = leaf_properties(&schema, partitions.len());
        let table = Arc::new(table);
        let scanner = self.0.clone();
        Ok(Arc::new(SpanScanExec {
            table,
            columns,
            schema,
            partitions,
            properties,
            known: None,
            scanner,
        }))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let leaf = node.downcast_ref::<SpanScanExec>();
        let leaf = leaf
            .ok_or_else(|| DataFusionError::Internal(format!("{} reads no spans", node.name())))?;
        let message = LeafMessage {
            table: leaf.table.as_ref().clone(),
            columns: leaf.columns.clone(),
            partitions: leaf.partitions.clone(),
        };
        serde_json::to_writer(&mut *bytes, &message).map_err(external)?;
        protobuf::Schema::try_from(leaf.schema.as_ref())?
            .encode(bytes)
            .map_err(external)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(bytes: &[u64], is_ordered: bool, parts: usize) -> Vec<Range<usize>> {
        TableSpans {
            bytes: bytes.to_vec(),
            is_ordered,
        }
        .divide(parts)
    }

    #[test]
    fn runs_cover_all_spans_in_order() {
        for (bytes, parts) in [
            (&[][..], 3),
            (&[5], 4),
            (&[1, 1, 1], 2),
            (&[0, 0, 9, 0], 3),
            (&[7, 1, 1, 1, 1, 1, 1, 1], 4),
            (&[3; 50], 7),
        ] {
            for is_ordered in [false, true] {
                let runs = divided(bytes, is_ordered, parts);
                assert_eq!(runs.len(), parts, "{bytes:?}");
                let mut next = 0;
                for run in runs {
                    assert!(
                        run.start == next && run.end >= run.start,
                        "{bytes:?} in {parts}"
                    );
                    next = run.end;
                }
                assert_eq!(next, bytes.len(), "{bytes:?} in {parts}");
            }
        }
        assert_eq!(divided(&[1, 1, 1, 1], false, 2), [0..2, 2..4]);
        assert_eq!(divided(&[1, 1, 1, 1], true, 2), [0..4, 4..4]);
        assert_eq!(divided(&[6, 1, 1, 1], false, 2), [0..1, 1..4]);
    }
}
