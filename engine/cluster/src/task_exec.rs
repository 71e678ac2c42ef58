//! Leaf of the plans that workers receive: it reads a request and returns messages.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::SystemTime;

use arrow::array::{AsArray, BinaryArray, RecordBatch, StringArray};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use forebay_model::TraceContext;
use forebay_plan::OpId;
use futures::Stream;
use tokio::sync::mpsc;

use crate::protocol::{RequestKind, TaskProgress, WorkerMessage, WorkerRequest};
use crate::task_control::TaskOutcome;
use crate::task_tally::{EndedTask, TaskTally};

/// Messages that wait to be sent: few, since those with rows are large.
const MESSAGES_MAX: usize = 4;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let fields = vec![
        Field::new("message", DataType::Utf8, true),
        Field::new("rows", DataType::Binary, true),
    ];
    Arc::new(Schema::new(fields))
});

/// Output of a leaf.
pub enum WorkerOutput {
    Message(WorkerMessage),
    /// Rows, as [`super::rows`] writes them.
    Rows(Buffer),
}

/// Handler of requests. `handle` must return at once.
pub trait RequestHandler: Send + Sync + fmt::Debug {
    fn handle(self: Arc<Self>, request: WorkerRequest, out: MessageSink);
}

/// The sending side of a reply stream, with a flag that is set when the coordinator no longer reads
/// it.
#[derive(Clone)]
pub struct MessageSink {
    to: mpsc::Sender<WorkerOutput>,
    stop: Arc<AtomicBool>,
    /// Counts outcomes, where the worker requests it.
    tally: Option<Arc<TaskTally>>,
    /// The coordinator's span of the task.
    trace: Option<TraceContext>,
    /// The worker's span of it.
    span: Option<TraceContext>,
    /// Kind of the task in reports, and the time of its arrival.
    task: (&'static str, SystemTime),
}

impl MessageSink {
    /// Counts the outcome of a task of this kind that arrives now, and reports it.
    pub fn with_tally(self, tally: Arc<TaskTally>, kind: &'static str) -> MessageSink {
        MessageSink {
            tally: Some(tally),
            task: (kind, SystemTime::now()),
            ..self
        }
    }

    /// The worker's span of the task, where the coordinator traces.
    pub fn span(&self) -> Option<TraceContext> {
        self.span
    }

    /// Sends a message; blocks while the network is behind. False once the receiver has gone. Only for threads
    /// outside the runtime.
    pub fn send(&self, message: WorkerMessage) -> bool {
        self.to
            .blocking_send(WorkerOutput::Message(message))
            .is_ok()
    }

    /// Sends rows. False once the receiver has gone.
    pub fn send_rows(&self, rows: Vec<u8>) -> bool {
        self.to
            .blocking_send(WorkerOutput::Rows(Buffer::from_vec(rows)))
            .is_ok()
    }

    /// Sends the outcome of a task. `order_failure` gives the window whose assumed row order failed, if any.
    pub fn send_outcome(
        &self,
        ended: forebay_model::Result<TaskOutcome>,
        progress: TaskProgress,
        order_failure: impl FnOnce() -> Option<OpId>,
    ) {
        if let Some(tally) = &self.tally {
            let (kind, began) = self.task;
            tally.count(&ended, progress);
            let MessageSink { trace, span, .. } = *self;
            tally.tell(&EndedTask {
                trace,
                span,
                kind,
                began,
                ended: &ended,
                progress,
            });
        }
        self.send(match ended {
            Ok(TaskOutcome::Done(counts)) => WorkerMessage::Done { counts, progress },
            Ok(TaskOutcome::HandedBack) => WorkerMessage::HandedBack,
            // The receiver has gone.
            Ok(TaskOutcome::Stopped) => return,
            Err(fault) => WorkerMessage::Failed {
                fault: Box::new((&fault).into()),
                order_failure: order_failure(),
            },
        });
    }

    /// A flag that is set once the receiver has gone.
    pub fn cancel_flag(&self) -> &Arc<AtomicBool> {
        &self.stop
    }
}

/// A plan of one node.
#[derive(Debug)]
pub struct TaskExec {
    request: WorkerRequest,
    properties: Arc<PlanProperties>,
    worker: TaskExecCodec,
}

impl TaskExec {
    pub fn plan(request: WorkerRequest, worker: TaskExecCodec) -> Arc<dyn ExecutionPlan> {
        Arc::new(TaskExec {
            request,
            properties: leaf_properties(&SCHEMA, 1),
            worker,
        })
    }
}

/// Properties of a leaf that returns its rows in the order of arrival.
pub(crate) fn leaf_properties(schema: &SchemaRef, partitions: usize) -> Arc<PlanProperties> {
    let equivalences = EquivalenceProperties::new(schema.clone());
    let partitioning = Partitioning::UnknownPartitioning(partitions);
    Arc::new(PlanProperties::new(
        equivalences,
        partitioning,
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

/// Decodes the outputs of a batch.
pub fn decode_outputs(batch: &RecordBatch) -> Result<Vec<WorkerOutput>> {
    let strange = || DataFusionError::Internal("a message is no text".to_owned());
    let [texts, rows] = batch.columns() else {
        return Err(strange());
    };
    let texts = texts.as_string_opt::<i32>();
    let rows = rows.as_binary_opt::<i32>();
    let (texts, rows) = texts.zip(rows).ok_or_else(strange)?;
    let message = |(at, text): (usize, Option<&str>)| match text {
        Some(text) => match serde_json::from_str(text) {
            Ok(message) => Ok(WorkerOutput::Message(message)),
            Err(error) => Err(DataFusionError::External(Box::new(error))),
        },
        None => {
            let start = rows.value_offsets()[at] as usize;
            let length = rows.value_length(at) as usize;
            Ok(WorkerOutput::Rows(
                rows.values().slice_with_length(start, length),
            ))
        }
    };
    texts.iter().enumerate().map(message).collect()
}

/// Encodes a message as a batch.
fn encode_output(output: WorkerOutput) -> Result<RecordBatch> {
    let (text, rows) = match output {
        WorkerOutput::Message(message) => {
            let text = serde_json::to_string(&message)
                .map_err(|error| DataFusionError::External(Box::new(error)))?;
            (Some(text), BinaryArray::new_null(1))
        }
        WorkerOutput::Rows(bytes) => (
            None,
            BinaryArray::new(OffsetBuffer::from_lengths([bytes.len()]), bytes, None),
        ),
    };
    Ok(RecordBatch::try_new(
        SCHEMA.clone(),
        vec![Arc::new(StringArray::from(vec![text])), Arc::new(rows)],
    )?)
}

impl DisplayAs for TaskExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskExec")
    }
}

impl ExecutionPlan for TaskExec {
    fn name(&self) -> &str {
        "TaskExec"
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

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let TaskExecCodec { host, trace } = &self.worker;
        let host = host.as_ref();
        let host =
            host.ok_or_else(|| DataFusionError::Internal("only workers execute tasks".to_owned()))?;
        let (to, from) = mpsc::channel(MESSAGES_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let task = ("", SystemTime::now());
        let span = trace.map(|TraceContext { trace, .. }| TraceContext {
            trace,
            span: fastrand::u64(1..),
        });
        let out = MessageSink {
            to,
            stop: stop.clone(),
            tally: None,
            trace: *trace,
            span,
            task,
        };
        host.clone().handle(self.request.clone(), out);
        Ok(Box::pin(MessageStream { from, stop }))
    }
}

/// Messages as batches. Dropping the stream stops the task.
struct MessageStream {
    from: mpsc::Receiver<WorkerOutput>,
    stop: Arc<AtomicBool>,
}

impl Drop for MessageStream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Stream for MessageStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.from
            .poll_recv(context)
            .map(|output| output.map(encode_output))
    }
}

impl RecordBatchStream for MessageStream {
    fn schema(&self) -> SchemaRef {
        SCHEMA.clone()
    }
}

/// The request in a text that is not too long for its kind.
fn decode_request(text: &[u8]) -> Result<WorkerRequest> {
    let kind = RequestKind::of_text(text);
    if text.len() > kind.bytes_max() {
        let message = format!("a request of {} bytes is too long", text.len());
        return Err(DataFusionError::Execution(message));
    }
    let request: WorkerRequest =
        serde_json::from_slice(text).map_err(|error| DataFusionError::External(Box::new(error)))?;
    if request.request_kind() != kind {
        // It was measured as another one.
        let message = "a request begins as no coordinator writes it".to_owned();
        return Err(DataFusionError::Execution(message));
    }
    Ok(request)
}

/// Plans of a leaf as bytes.
#[derive(Debug, Clone, Default)]
pub struct TaskExecCodec {
    /// Handler of requests; coordinators have none.
    pub host: Option<Arc<dyn RequestHandler>>,
    /// The span that the tasks belong to.
    pub trace: Option<TraceContext>,
}

impl PhysicalExtensionCodec for TaskExecCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(TaskExec::plan(decode_request(bytes)?, self.clone()))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let leaf = node.downcast_ref::<TaskExec>();
        let leaf =
            leaf.ok_or_else(|| DataFusionError::Internal(format!("{} is no task", node.name())))?;
        serde_json::to_writer(bytes, &leaf.request)
            .map_err(|error| DataFusionError::External(Box::new(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that begins with some words, with spaces behind them.
    fn padded(begin: &str, bytes: usize) -> Vec<u8> {
        let mut text = begin.as_bytes().to_vec();
        text.resize(bytes, b' ');
        text
    }

    fn is_too_long(text: &[u8]) -> bool {
        let decoded = decode_request(text);
        decoded.is_err_and(|error| error.to_string().contains("is too long"))
    }

    #[test]
    fn requests_are_measured_by_their_kind_before_they_are_parsed() {
        for (begin, bytes_max) in [
            ("\"hello\"", 1 << 10),
            ("{\"probe\":", 16 << 20),
            ("{\"rows\":", 16 << 20),
            ("{\"train\":", 16 << 20),
            ("{\"task\":", 32 << 20),
            // No coordinator writes these.
            (" {\"task\":", 1 << 10),
            ("[", 1 << 10),
        ] {
            assert!(!is_too_long(&padded(begin, bytes_max)), "{begin}");
            assert!(is_too_long(&padded(begin, bytes_max + 1)), "{begin}");
        }
        assert!(decode_request(&padded("\"hello\"", 1 << 10)).is_ok());
        let greeting = serde_json::to_vec(&WorkerRequest::Hello).unwrap();
        assert!(decode_request(&greeting).is_ok());
    }

    #[test]
    fn texts_name_the_kind_of_their_request() {
        for (text, kind) in [
            ("\"hello\"", RequestKind::Hello),
            ("{\"probe\":{", RequestKind::Probe),
            ("{\"task\":{", RequestKind::Task),
            ("{\"rows\":{", RequestKind::Rows),
            ("{\"train\":{", RequestKind::Train),
            ("{ \"task\":{", RequestKind::Hello),
        ] {
            assert_eq!(RequestKind::of_text(text.as_bytes()), kind, "{text}");
        }
        // Serde writes the names of variants as the kinds have them.
        let fault = serde_json::from_str::<WorkerRequest>("{\"other\":1}").unwrap_err();
        let names = fault.to_string();
        assert!(
            names.contains("`probe`, `task`, `rows`, `train`"),
            "{names}"
        );
    }
}
