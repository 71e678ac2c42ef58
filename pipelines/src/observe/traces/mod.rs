//! Traces in OpenTelemetry's protocol: a run, its passes, the tasks of workers, the epochs of trainings, and requests
//! to object stores are spans.
//!
//! Messages are encoded here, and not by the crate `opentelemetry-otlp`: with the features that it
//! needs, all of DataFusion would be built again.

mod export;
mod otlp;
mod request;
mod settings;
mod worker;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use self::otlp::{KeyValue, Span, SpanEvent, SpanKind, Status, StatusCode, attribute};
use self::request::RequestSpan;
use self::settings::TraceSettings;
pub(crate) use self::worker::{WorkerTraceArgs, WorkerTraces};
use super::outbox::Outbox;
use super::run_observer::{ObservedSession, RunObserver};
use forebay_model::{Fault, Interval, Pipeline, Result, TraceContext};
use forebay_run::RunReport;
use forebay_storage::{Event, RequestListener, StorageRequest};

/// Moments that a span keeps at most.
const EVENTS_MAX: usize = 100;

/// Creates spans from events, and sends them.
pub(super) struct TraceObserver {
    settings: TraceSettings,
    spans: Arc<SpanRecorder>,
}

/// The spans that are open.
#[derive(Debug)]
struct SpanRecorder {
    trace: u128,
    out: Outbox<Span>,
    dropped: AtomicU64,
    open: Mutex<OpenSpans>,
}

#[derive(Debug, Default)]
struct OpenSpans {
    run: Option<OpenSpan>,
    pass: Option<OpenSpan>,
    tasks: BTreeMap<u64, OpenSpan>,
}

/// A span that has begun.
#[derive(Debug)]
struct OpenSpan {
    id: u64,
    parent: Option<u64>,
    name: String,
    began: SystemTime,
    attributes: Vec<KeyValue>,
    events: Vec<SpanEvent>,
}

/// Time in OTLP's unit.
fn nanos(time: SystemTime) -> u64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl OpenSpan {
    fn new(name: impl Into<String>, parent: Option<u64>, attributes: Vec<KeyValue>) -> OpenSpan {
        let id = fastrand::u64(1..);
        let began = SystemTime::now();
        OpenSpan {
            id,
            parent,
            name: name.into(),
            began,
            attributes,
            events: Vec::new(),
        }
    }
}

impl OpenSpans {
    /// The innermost span that all threads share.
    fn current(&mut self) -> Option<&mut OpenSpan> {
        self.pass.as_mut().or(self.run.as_mut())
    }

    fn current_id(&mut self) -> Option<u64> {
        self.current().map(|span| span.id)
    }
}

impl SpanRecorder {
    fn open(&self) -> MutexGuard<'_, OpenSpans> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a span that ends now, with further attributes and the text of an error, if any.
    fn end(&self, span: OpenSpan, attributes: Vec<KeyValue>, error: Option<String>) {
        self.end_at(
            span,
            SystemTime::now(),
            attributes,
            (SpanKind::Internal, error),
        );
    }

    fn end_at(
        &self,
        span: OpenSpan,
        end: SystemTime,
        added: Vec<KeyValue>,
        how: (SpanKind, Option<String>),
    ) {
        let OpenSpan {
            id,
            parent,
            name,
            began,
            mut attributes,
            events,
        } = span;
        attributes.extend(added);
        let (kind, error) = how;
        let span = Span {
            trace_id: self.trace.to_be_bytes().to_vec(),
            span_id: id.to_be_bytes().to_vec(),
            parent_span_id: parent
                .map(|parent| parent.to_be_bytes().to_vec())
                .unwrap_or_default(),
            name,
            kind: kind.into(),
            start_time_unix_nano: nanos(began),
            end_time_unix_nano: nanos(end.max(began)),
            attributes,
            events,
            status: error.map(|message| Status {
                message,
                code: StatusCode::Error.into(),
            }),
        };
        if !self.out.send(span) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RequestListener for SpanRecorder {
    fn on_request(&self, request: StorageRequest) {
        let RequestSpan {
            name,
            attributes,
            began,
            end,
            error,
        } = RequestSpan::of(request);
        let span = OpenSpan::new(name, self.open().current_id(), attributes);
        self.end_at(
            OpenSpan { began, ..span },
            end,
            Vec::new(),
            (SpanKind::Client, error),
        );
    }
}

impl TraceObserver {
    /// Creates the observer, if traces are requested.
    pub fn new(flag: Option<&str>) -> Result<Option<TraceObserver>> {
        let Some(settings) = TraceSettings::resolve(flag)? else {
            return Ok(None);
        };
        let trace = settings
            .parent
            .map_or_else(|| fastrand::u128(1..), |parent| parent.trace);
        let spans = SpanRecorder {
            trace,
            out: Outbox::new(),
            dropped: AtomicU64::new(0),
            open: Mutex::default(),
        };
        Ok(Some(TraceObserver {
            settings,
            spans: Arc::new(spans),
        }))
    }
}

impl RunObserver for TraceObserver {
    fn begin(&self, observed: &ObservedSession<'_>) -> Result<()> {
        let io = observed.session.io();
        io.listen(self.spans.clone());
        self.settings
            .send_from(&self.spans.out, io, observed.watch)?;
        let run_id = observed.run_id.map(|id| attribute("forebay.run_id", id));
        let parent = self.settings.parent.map(|parent| parent.span);
        self.spans.open().run = Some(OpenSpan::new("run", parent, run_id.into_iter().collect()));
        Ok(())
    }

    fn run_begins(&self, pipeline: &Pipeline, interval: Option<&Interval>) {
        let mut open = self.spans.open();
        let Some(run) = open.run.as_mut() else { return };
        run.name = format!("run {}", pipeline.name);
        run.attributes
            .retain(|attribute| !attribute.key.starts_with("forebay.interval"));
        run.attributes
            .push(attribute("forebay.pipeline", pipeline.name.as_str()));
        if let Some(Interval { from, to }) = interval {
            run.attributes
                .push(attribute("forebay.interval.from", from.as_str()));
            run.attributes
                .push(attribute("forebay.interval.to", to.as_str()));
        }
    }

    fn task_context(&self, task: u64) -> Option<TraceContext> {
        let open = self.spans.open();
        open.tasks.get(&task).map(|span| TraceContext {
            trace: self.spans.trace,
            span: span.id,
        })
    }

    fn on_event(&self, event: &Event) {
        if matches!(
            event,
            Event::Progress { .. } | Event::Worked { .. } | Event::WorkerMoved { .. }
        ) {
            return;
        }
        let mut open = self.spans.open();
        match event {
            Event::PassStarted {
                number, label, id, ..
            } => {
                let attributes = vec![
                    attribute("forebay.pass.number", *number as u64),
                    attribute("forebay.pass.id", id.as_str()),
                ];
                let parent = open.run.as_ref().map(|run| run.id);
                open.pass = Some(OpenSpan::new(label, parent, attributes));
            }
            Event::PassDone {
                reused,
                rows,
                filtered,
                ..
            } => {
                let Some(pass) = open.pass.take() else { return };
                drop(open);
                let attributes = vec![
                    attribute("forebay.pass.reused", *reused),
                    attribute("forebay.rows", *rows),
                    attribute("forebay.rows_filtered", *filtered),
                ];
                self.spans.end(pass, attributes, None);
            }
            Event::TaskStarted { task, worker, kind } => {
                let attributes = vec![attribute("forebay.worker", worker.as_str())];
                let parent = open.current_id();
                open.tasks.insert(
                    *task,
                    OpenSpan::new(format!("task {kind}"), parent, attributes),
                );
            }
            Event::TaskEnded {
                task,
                outcome,
                rows,
            } => {
                let Some(task) = open.tasks.remove(task) else {
                    return;
                };
                drop(open);
                let attributes = vec![
                    attribute("forebay.task.outcome", *outcome),
                    attribute("forebay.rows", *rows),
                ];
                let error = matches!(*outcome, "failed" | "lost").then(|| (*outcome).to_owned());
                self.spans.end(task, attributes, error);
            }
            Event::TrainingEpoch {
                sink,
                epoch,
                seconds,
                starved_steps,
                ..
            } => {
                let attributes = vec![
                    attribute("forebay.sink", sink.as_str()),
                    attribute("forebay.training.step", epoch.step),
                    attribute("forebay.training.loss", epoch.loss),
                    attribute("forebay.training.starved_steps", *starved_steps),
                ];
                let span = OpenSpan::new(
                    format!("epoch {}", epoch.epoch),
                    open.current_id(),
                    attributes,
                );
                drop(open);
                let took = Duration::try_from_secs_f64(*seconds).unwrap_or_default();
                let end = span.began;
                let began = span.began.checked_sub(took).unwrap_or(span.began);
                self.spans.end_at(
                    OpenSpan { began, ..span },
                    end,
                    Vec::new(),
                    (SpanKind::Internal, None),
                );
            }
            Event::Warning { message } => {
                let Some(span) = open.current().filter(|span| span.events.len() < EVENTS_MAX)
                else {
                    return;
                };
                let attributes = vec![attribute("message", message.as_str())];
                let time_unix_nano = nanos(SystemTime::now());
                span.events.push(SpanEvent {
                    time_unix_nano,
                    name: "warning".to_owned(),
                    attributes,
                });
            }
            _ => {}
        }
    }

    fn run_ends(&self, ended: Result<&RunReport, &Fault>) {
        let mut open = self.spans.open();
        let pass = open.pass.take();
        let tasks = std::mem::take(&mut open.tasks);
        if let Some(run) = open.run.as_mut() {
            match ended {
                Ok(report) => run.attributes.extend(
                    report
                        .artifact
                        .as_ref()
                        .map(|id| attribute("forebay.artifact", id.as_str())),
                ),
                Err(fault) => run
                    .attributes
                    .push(attribute("error.type", fault.code().name)),
            }
        }
        drop(open);
        // What is open was cut off.
        let error = ended.err().map_or("it did not end", Fault::message);
        for span in tasks.into_values().chain(pass) {
            self.spans.end(span, Vec::new(), Some(error.to_owned()));
        }
        if let Err(fault) = ended {
            self.end_run(Some(fault.message().to_owned()));
        }
    }

    fn finish(&self) {
        self.end_run(None);
        self.spans.out.close();
    }
}

impl TraceObserver {
    fn end_run(&self, error: Option<String>) {
        let Some(run) = self.spans.open().run.take() else {
            return;
        };
        let attributes = match self.spans.dropped.load(Ordering::Relaxed) {
            0 => Vec::new(),
            dropped => vec![attribute("forebay.spans_dropped", dropped)],
        };
        self.spans.end(run, attributes, error);
    }
}
