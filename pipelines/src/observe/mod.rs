//! Reports of a run to other systems: metrics, traces, lineage, and the course of trainings.
//!
//! An observer never fails a run. Its first failure is a warning, and then it is silent.

mod fan_out;
mod judged_rules;
mod lineage;
mod mlflow;
mod outbox;
mod run_observer;
mod tensorboard;
mod traces;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use forebay_model::{Interval, Pipeline, Result};
use forebay_run::{RunReport, Session};
use forebay_storage::EventListener;

use self::fan_out::FanOut;
pub(crate) use self::judged_rules::JudgedRules;
use self::lineage::LineageObserver;
pub(crate) use self::mlflow::MlflowTracker;
use self::run_observer::{ObservedSession, RunObserver};
use self::tensorboard::TensorBoardObserver;
use self::traces::TraceObserver;
pub(crate) use self::traces::{WorkerTraceArgs, WorkerTraces};
use crate::cli::MetricsArgs;
use crate::metrics::{CommandMetrics, RunMetrics};

/// Systems that a run reports to.
#[derive(Debug, Args)]
pub(crate) struct ObserveArgs {
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Send traces in OpenTelemetry's protocol (OTLP over HTTP) to this collector, such as http://127.0.0.1:4318:
    /// passes, tasks and requests to object stores are spans [default: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    traces: Option<String>,
    /// Send OpenLineage events to this URL, or append them to this file [default: OPENLINEAGE_URL]
    #[arg(long, value_name = "URL|FILE", hide_short_help = true)]
    lineage: Option<String>,
    /// Write event files of trainings for TensorBoard below this directory.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    tensorboard: Option<PathBuf>,
    /// Track trainings in MLflow at this URL [default: that of the `train` sink, else MLFLOW_TRACKING_URI]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    mlflow: Option<String>,
    /// The experiment in MLflow [default: that of the `train` sink, MLFLOW_EXPERIMENT_NAME, or the name of the pipeline]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    mlflow_experiment: Option<String>,
}

/// All observers of a command that runs pipelines.
pub(crate) struct RunObservers {
    pub metrics: CommandMetrics<RunMetrics>,
    observers: Arc<[Box<dyn RunObserver>]>,
    tracker: Arc<MlflowTracker>,
}

impl ObserveArgs {
    /// Arguments of worker processes of the run.
    pub fn worker_arguments(&self) -> Vec<String> {
        self.traces
            .iter()
            .map(|url| format!("--traces={url}"))
            .collect()
    }

    /// The requested observers. Nothing is sent before `begin`.
    pub fn observers(&self) -> Result<RunObservers> {
        let mut observers: Vec<Box<dyn RunObserver>> = Vec::new();
        let mut add = |observer: Option<Box<dyn RunObserver>>| observers.extend(observer);
        add(TraceObserver::new(self.traces.as_deref())?.map(|observer| Box::new(observer) as _));
        add(LineageObserver::new(self.lineage.as_deref())?.map(|observer| Box::new(observer) as _));
        add(self
            .tensorboard
            .clone()
            .map(|directory| Box::new(TensorBoardObserver::new(directory)) as _));
        let tracker = MlflowTracker::new()
            .with_flags(self.mlflow.as_deref(), self.mlflow_experiment.as_deref())?;
        let metrics = self.metrics.metrics()?;
        let tracker = Arc::new(tracker);
        Ok(RunObservers {
            metrics,
            observers: observers.into(),
            tracker,
        })
    }
}

impl RunObservers {
    /// A listener that passes events to the observers, and to the inner listener.
    pub fn listen(&self, inner: Arc<dyn EventListener>) -> Arc<dyn EventListener> {
        let inner = self.metrics.watch(inner);
        if self.observers.is_empty() {
            inner
        } else {
            Arc::new(FanOut {
                inner,
                observers: self.observers.clone(),
            })
        }
    }

    /// Starts to serve and to send; returns the session, which reports trainings itself.
    pub fn begin(
        &mut self,
        session: Session,
        listener: &Arc<dyn EventListener>,
        run_id: Option<&str>,
    ) -> Result<Session> {
        self.metrics.serve(&session)?;
        let observed = ObservedSession {
            session: &session,
            watch: listener,
            run_id,
        };
        for observer in self.observers.iter() {
            observer.begin(&observed)?;
        }
        Ok(session.with_training_tracker(self.tracker.clone()))
    }

    /// Reports that a run of a pipeline begins.
    pub fn run_begins(&self, pipeline: &Pipeline, interval: Option<&Interval>) {
        self.metrics.name_pipeline(&pipeline.name);
        for observer in self.observers.iter() {
            observer.run_begins(pipeline, interval);
        }
    }

    /// Reports the end of one of several runs.
    pub fn run_ends(&self, ended: Result<&RunReport, &forebay_model::Fault>) {
        if let Ok(report) = ended {
            self.metrics.own().set_report(report);
        }
        for observer in self.observers.iter() {
            observer.run_ends(ended);
        }
    }

    /// Reports the end of the command. A fault of the run comes before one of its observers.
    pub fn close<T>(self, ended: Result<T>) -> Result<T> {
        for observer in self.observers.iter() {
            observer.finish();
        }
        self.metrics.close(ended)
    }

    /// The end of a command of one run.
    pub fn finish(self, ended: Result<RunReport>) -> Result<RunReport> {
        self.run_ends(ended.as_ref());
        self.close(ended)
    }
}
