//! Options that commands share, and their values.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use forebay_model::{BATCH_ROWS_DEFAULT, BATCH_ROWS_MAX, Fault, Pipeline, Result};
use forebay_run::{DeadlineSpec, Interval, Session, SessionOptions};
use forebay_storage::{EventListener, IgnoreEvents};

use super::signals::stop_on_signals;
use super::sources::insert_once;
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

    /// The readable part of the spec, and its problems.
    pub fn parse_all(&self) -> Result<spec::ParsedSpec> {
        let text = self.text()?;
        let params = self.values()?;
        spec::parse_all(
            &text,
            &self.shown(),
            &params,
            &Forebay::new().spec_catalog(),
        )
    }

    /// Name of the spec in faults.
    pub fn shown(&self) -> String {
        self.spec.display().to_string()
    }

    /// The text of the spec.
    pub fn text(&self) -> Result<String> {
        spec::read_text(&self.spec)
    }

    /// The values of parameters, by name.
    pub fn values(&self) -> Result<BTreeMap<String, String>> {
        let mut values = BTreeMap::new();
        for param in &self.params {
            let (name, value) = param
                .split_once('=')
                .ok_or_else(|| usage(format!("`--param {param}` is not NAME=VALUE")))?;
            insert_once(&mut values, "--param", name, value)?;
        }
        Ok(values)
    }
}

/// Limits on publishing.
#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// Publish an output without any row, too. Else a run fails where rows were read for a whole output, or
    /// readers see rows of it, and none would be in it; an interval may be empty anyway.
    #[arg(long)]
    pub allow_empty: bool,
}

/// The given rows that are scored.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServedArgs {
    /// The time from which on rows are written, such as 2016-05-22. Earlier rows are history: they are read for
    /// windows, and not written [default: all rows are written]
    #[arg(long, value_name = "TIME", conflicts_with = "interval")]
    pub rows_from: Option<String>,
    /// The given rows are all the history that there is: write rows although windows reach further back. Needed where
    /// series began after those of the fit, or where older rows are gone.
    #[arg(long)]
    pub whole_history: bool,
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
    /// The session, with a new numbering if it is requested.
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
    /// Run with END as the current time, and write the rows from START on and before END; rows of
    /// other intervals stay.
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

/// The time at which the run should end.
#[derive(Debug, Args)]
pub(crate) struct DeadlineArgs {
    /// The time at which the run should end: a time of day (06:30), an instant
    /// (2026-11-21T06:30:00Z) or a length of time (45m). Takes precedence over that of the spec.
    #[arg(long, value_name = "TIME", value_parser = parse_deadline)]
    pub deadline: Option<DeadlineSpec>,
    /// Exit with 98 when the run did less than the spec says, to be on time.
    #[arg(long)]
    pub signal_ladder: bool,
}

impl DeadlineArgs {
    /// The session with this deadline, if one is given.
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

/// Destinations of metrics.
#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Serve metrics for Prometheus at this address while the command runs, such as 127.0.0.1:9464;
    /// port 0 takes a free one. All processes that can reach it can read them.
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

/// Limits on the resources of the machine.
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

/// Settings of a run.
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
    /// Print more of the progress: sources, results of passes, and workers.
    #[arg(long, short)]
    pub verbose: bool,
}

impl RunArgs {
    /// Reporter of a run with these options.
    pub fn reporter(&self) -> RunReporter {
        let verbosity = match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        };
        RunReporter::new(self.json, verbosity)
    }

    /// A session that reports to `listener`.
    pub fn session(&self, listener: Arc<dyn EventListener>) -> Result<Session> {
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
            .with_listener(log::logged(listener))
            .session()?;
        stop_on_signals(session.interrupt())?;
        Ok(session)
    }

    /// A session for looking only.
    pub fn silent_session(&self) -> Result<Session> {
        self.session(Arc::new(IgnoreEvents))
    }
}
