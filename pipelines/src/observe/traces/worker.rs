//! Spans of a worker: its tasks for coordinators that trace.

use std::sync::Arc;
use std::time::SystemTime;

use clap::Args;
use forebay_model::{Fault, Result, TraceContext};
use forebay_run::{EndedTask, Session, TaskListener, TaskOutcome, TaskTally};
use forebay_storage::{EventListener, RequestListener, StorageRequest};

use super::super::outbox::Outbox;
use super::nanos;
use super::otlp::{KeyValue, Span, SpanKind, Status, StatusCode, attribute};
use super::request::RequestSpan;
use super::settings::TraceSettings;

/// Destination of a worker's spans.
#[derive(Debug, Args)]
pub(crate) struct WorkerTraceArgs {
    /// Send traces in OpenTelemetry's protocol (OTLP over HTTP) to this collector, such as http://127.0.0.1:4318: tasks
    /// of coordinators that trace are spans in theirs, with requests to object stores [default: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    traces: Option<String>,
}

/// Spans of a worker that have not been sent.
#[derive(Debug)]
pub(crate) struct WorkerTraces(Arc<TaskSpans>);

/// Turns tasks and requests that have ended into spans.
#[derive(Debug)]
struct TaskSpans {
    worker: String,
    out: Outbox<Span>,
}

impl WorkerTraceArgs {
    /// Starts to send spans of the tasks that `tally` counts, if it is requested. `worker` is its
    /// address.
    pub fn begin(
        &self,
        session: &Session,
        tally: &TaskTally,
        worker: String,
        listener: &Arc<dyn EventListener>,
    ) -> Result<Option<WorkerTraces>> {
        let Some(settings) = TraceSettings::resolve(self.traces.as_deref())? else {
            return Ok(None);
        };
        let spans = Arc::new(TaskSpans {
            worker,
            out: Outbox::new(),
        });
        settings.send_from(&spans.out, session.io(), listener)?;
        session.io().listen(spans.clone());
        tally.listen(spans.clone());
        Ok(Some(WorkerTraces(spans)))
    }
}

impl WorkerTraces {
    /// Sends waiting spans.
    pub fn finish(&self) {
        self.0.out.close();
    }
}

/// A span of a worker.
struct WorkerSpan<'a> {
    parent: TraceContext,
    /// Id of the span.
    id: u64,
    name: String,
    kind: SpanKind,
    began: SystemTime,
    end: SystemTime,
    attributes: Vec<KeyValue>,
    error: Option<&'a str>,
}

impl TaskSpans {
    /// Sends a span; where the queue is full, it is dropped.
    fn send(&self, span: WorkerSpan<'_>) {
        let WorkerSpan {
            parent,
            id,
            name,
            kind,
            began,
            end,
            attributes,
            error,
        } = span;
        self.out.send(Span {
            trace_id: parent.trace.to_be_bytes().to_vec(),
            span_id: id.to_be_bytes().to_vec(),
            parent_span_id: parent.span.to_be_bytes().to_vec(),
            name,
            kind: kind.into(),
            start_time_unix_nano: nanos(began),
            end_time_unix_nano: nanos(end.max(began)),
            attributes,
            events: Vec::new(),
            status: error.map(|message| Status {
                message: message.to_owned(),
                code: StatusCode::Error.into(),
            }),
        });
    }
}

/// Requests of tasks are in their spans. Requests for no task of a tracing coordinator belong to no
/// trace.
impl RequestListener for TaskSpans {
    fn on_request(&self, request: StorageRequest) {
        let Some(parent) = request.span else { return };
        let RequestSpan {
            name,
            attributes,
            began,
            end,
            error,
        } = RequestSpan::of(request);
        let id = fastrand::u64(1..);
        let kind = SpanKind::Client;
        self.send(WorkerSpan {
            parent,
            id,
            name,
            kind,
            began,
            end,
            attributes,
            error: error.as_deref(),
        });
    }
}

impl TaskListener for TaskSpans {
    fn task_ended(&self, task: &EndedTask<'_>) {
        let EndedTask {
            trace: Some(parent),
            span: Some(span),
            kind,
            began,
            ended,
            progress,
        } = task
        else {
            return;
        };
        let (outcome, error) = match ended {
            Ok(TaskOutcome::Done(_)) => ("done", None),
            Ok(TaskOutcome::HandedBack) => ("handed_back", None),
            Ok(TaskOutcome::Stopped) => ("stopped", None),
            Err(fault) => ("failed", Some(fault)),
        };
        let mut attributes = vec![
            attribute("forebay.worker", self.worker.as_str()),
            attribute("forebay.task.outcome", outcome),
            attribute("forebay.rows", progress.rows),
            attribute("forebay.bytes", progress.bytes),
            attribute("forebay.spilled_bytes", progress.spilled_bytes),
            attribute("forebay.cpu_seconds", progress.cpu_seconds),
        ];
        attributes.extend(error.map(|fault| attribute("error.type", fault.code().name)));
        // A task is reported when it has ended.
        self.send(WorkerSpan {
            parent: *parent,
            id: span.span,
            name: format!("work {kind}"),
            kind: SpanKind::Server,
            began: *began,
            end: SystemTime::now(),
            attributes,
            error: error.map(Fault::message),
        });
    }
}
