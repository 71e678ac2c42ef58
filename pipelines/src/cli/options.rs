//! Options that commands share, and what they come to.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use forebay_model::{BATCH_ROWS_DEFAULT, BATCH_ROWS_MAX, Fault, Pipeline, Result};
use forebay_run::{DeadlineSpec, Interval, Session, SessionOptions};
use forebay_storage::{EventListener, IgnoreEvents};

use super::signals::stop_on_signals;
use super::{log, usage};
use crate::metrics::{CommandMetrics, MetricSet};
use crate::present::report::{RunReporter, Verbosity};
use crate::present::units::parse_bytes;
use crate::settings::Settings;
use crate::{Forebay, spec};

/// A spec and its parameters.
#[derive(Debug, Args)]
pub(crate) struct SpecArgs {
    /// The spec, a YAML file.
    pub spec: PathBuf,
    /// A value for a parameter of the spec, such as as_of=2016-05-22. Can be given many times.
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub params: Vec<String>,
}

impl SpecArgs {
    /// Reads and checks the spec.
    pub fn pipeline(&self) -> Result<Pipeline> {
        let parsed = self.parse_all()?;
        Fault::combine(parsed.faults).map_or(Ok(parsed.pipeline), Err)
    }

    /// What of the spec can be read, and its problems.
    pub fn parse_all(&self) -> Result<spec::ParsedSpec> {
        let (text, params) = (self.text()?, self.values()?);
        spec::parse_all(
            &text,
            &self.shown(),
            &params,
            &Forebay::new().spec_catalog(),
        )
    }

    /// What faults call the spec.
    pub fn shown(&self) -> String {
        self.spec.display().to_string()
    }

    /// The text of the spec.
    pub fn text(&self) -> Result<String> {
        spec::read_text(&self.spec)
    }

    /// The values of parameters, by name.
    pub fn values(&self) -> Result<BTreeMap<String, String>> {
        let value = |param: &String| {
            let (name, value) = param
                .split_once('=')
                .ok_or_else(|| usage(format!("`--param {param}` is not NAME=VALUE")))?;
            Ok((name.to_owned(), value.to_owned()))
        };
        self.params.iter().map(value).collect()
    }
}

/// What may be published.
#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// Publish an output without any row, too. Else a run fails where rows were read for a whole output, or
    /// readers see rows of it, and none would be in it; an interval may be empty anyway.
    #[arg(long)]
    pub allow_empty: bool,
}

/// Ids of tokens that hold still.
#[derive(Debug, Args)]
pub(crate) struct RenumberArgs {
    /// Give all tokens of vocabularies with `stable: true` new ids, where outputs show ids that this state directory does
    /// not know. Published intervals keep the earlier ids until they are run again.
    #[arg(long)]
    renumber: bool,
}

impl RenumberArgs {
    /// The session, with a numbering that begins anew where that is asked for.
    pub fn apply(&self, session: Session, pipeline: &Pipeline) -> Result<Session> {
        if self.renumber {
            session.renumbering(pipeline)
        } else {
            Ok(session)
        }
    }
}

/// A part of the history.
#[derive(Debug, Args)]
pub(crate) struct IntervalArgs {
    /// Run as if time had come as far as END, and write the rows from START on and before END, beside
    /// those of other intervals.
    #[arg(long, num_args = 2, value_names = ["START", "END"])]
    interval: Option<Vec<String>>,
}

impl IntervalArgs {
    pub fn interval(&self) -> Option<Interval> {
        interval_of(self.interval.as_deref())
    }
}

/// The interval between two values of an option.
pub(crate) fn interval_of(bounds: Option<&[String]>) -> Option<Interval> {
    match bounds {
        Some([from, to]) => Some(Interval {
            from: from.clone(),
            to: to.clone(),
        }),
        _ => None,
    }
}

/// When to be done.
#[derive(Debug, Args)]
pub(crate) struct DeadlineArgs {
    /// When the run should be done: a time of day (06:30), an instant (2026-11-21T06:30:00Z) or a length
    /// of time (45m). Comes before that of the spec.
    #[arg(long, value_name = "TIME", value_parser = parse_deadline)]
    pub deadline: Option<DeadlineSpec>,
    /// Exit with 98 when the run did less than the spec says, to be on time.
    #[arg(long)]
    pub signal_ladder: bool,
}

impl DeadlineArgs {
    /// The session with this deadline, if there is one.
    pub fn apply(&self, session: Session) -> Result<Session> {
        self.deadline
            .iter()
            .try_fold(session, |session, deadline| session.with_deadline(deadline))
    }
}

fn parse_deadline(text: &str) -> Result<DeadlineSpec, String> {
    DeadlineSpec::parse(text).map_err(|fault| match fault.hint_text() {
        Some(hint) => format!("{}; {hint}", fault.message()),
        None => fault.message().to_owned(),
    })
}

/// Where metrics go.
#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Serve metrics for Prometheus at this address while the command is at work, such as 127.0.0.1:9464; port 0 takes a
    /// free one. Who can reach it can read them.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// Write metrics to this file when the command ends, well or not, for node_exporter's textfile collector.
    #[arg(long, value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,
}

impl MetricsArgs {
    /// The metrics of a command.
    pub fn metrics<M: MetricSet>(&self) -> Result<CommandMetrics<M>> {
        CommandMetrics::new(self.metrics.clone(), self.metrics_file.clone())
    }
}

/// What of the machine may be used.
#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    /// Memory that the process may use, such as 512MiB or 4GiB [default: half of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Threads [default: all of the machine's]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// The state directory: a path, or a URL such as s3://bucket/key [default: .forebay]
    #[arg(long, value_name = "DIR")]
    pub state: Option<String>,
}

/// How to run.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Names the run, in its lineage and among its attempts: of several at once, the one that began last goes
    /// on, and the others end with 75.
    #[arg(long, value_name = "ID")]
    pub run_id: Option<String>,
    /// Rows per batch; changes speed and memory, never the result.
    #[arg(long, value_name = "N", default_value_t = BATCH_ROWS_DEFAULT, hide_short_help = true)]
    pub batch_rows: usize,
    /// Print events as lines of JSON; the last line is the summary.
    #[arg(long)]
    pub json: bool,
    /// Print faults alone: neither progress nor a summary.
    #[arg(long, short, conflicts_with_all = ["json", "verbose"])]
    pub quiet: bool,
    /// Print more of the progress: sources, what passes came to, and workers.
    #[arg(long, short)]
    pub verbose: bool,
}

impl RunArgs {
    /// Shows a run as these options say.
    pub fn reporter(&self) -> RunReporter {
        let verbosity = match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        };
        RunReporter::new(self.json, verbosity)
    }

    /// A session that reports to `watch`.
    pub fn session(&self, watch: Arc<dyn EventListener>) -> Result<Session> {
        if self.batch_rows == 0 || self.batch_rows > BATCH_ROWS_MAX {
            return Err(usage(format!(
                "`--batch-rows` must be between 1 and {BATCH_ROWS_MAX}"
            )));
        }
        let settings = Settings::load()?;
        let options = SessionOptions {
            threads: settings.threads(self.machine.threads)?.value,
            memory_bytes: settings.memory_bytes(self.machine.memory)?.value,
            batch_rows: self.batch_rows,
            state: settings.state(self.machine.state.as_deref()).value,
            run_id: self.run_id.clone(),
        };
        let session = Forebay::new()
            .with_options(options)
            .with_listener(log::logged(watch))
            .session()?;
        stop_on_signals(session.interrupt())?;
        Ok(session)
    }

    /// A session for looking only.
    pub fn silent_session(&self) -> Result<Session> {
        self.session(Arc::new(IgnoreEvents))
    }
}
