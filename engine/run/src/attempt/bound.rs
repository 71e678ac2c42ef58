//! Binding: which pipeline an attempt carries out, and over which inputs.

use std::collections::BTreeMap;

use forebay_commit::StateStore;
use forebay_execute::RunState;
use forebay_model::{DataSplit, Dataset, DegradationLevel, Fault, Pipeline, Result, codes};
use forebay_plan::BoundPipeline;
use forebay_storage::{BackgroundTasks, ScratchDir};

use crate::attempt::RunAttempt;
use crate::day_report::DayReport;
use crate::degradation::skip_optional;
use crate::remote_run::name_by_artifact;
use crate::report::PassReport;
use crate::run_mode::RunMode;
use crate::served_history::ServedHistory;
use crate::serving::check_serving;
use crate::session::{PreparedRun, Session};
use crate::training_cadence::{TrainingCadences, TrainingNeeds};
use crate::training_checks::check_trainings;

/// First stage: the pipeline that an attempt carries out, bound to the inputs that it found. Later stages refer to it.
pub(super) struct BoundRun {
    /// Session that carries the findings of the earlier run.
    pub session: Session,
    /// The pipeline at this level of degradation, with bounded joins and with the inputs of
    /// trainings as sinks.
    pub pipeline: Pipeline,
    /// The sinks to write: those of the pipeline, then the inputs of trainings.
    pub sinks: Vec<usize>,
    /// Number of leading entries of `sinks` that belong to the pipeline itself.
    pub pipeline_sinks: usize,
    pub trains: bool,
    pub datasets: BTreeMap<String, Dataset>,
    /// The passes that measured drift.
    pub measured: Vec<PassReport>,
    /// Decisions about trainings that are not done in each run.
    pub cadences: TrainingCadences,
    /// Days of sources that are late, duplicate or empty.
    pub days: Vec<DayReport>,
}

/// The part of a bound pipeline that the compiler consumes.
pub(super) struct CompilerInputs {
    pub state: RunState,
    pub bound: BoundPipeline,
}

impl RunAttempt<'_> {
    /// Prepares the pipeline and checks everything that can be known before a pass.
    pub(super) fn bind(
        &self,
        store: &StateStore,
        scratch: &ScratchDir,
        background: &mut BackgroundTasks,
    ) -> Result<(BoundRun, CompilerInputs)> {
        let (mut pipeline, _) = skip_optional(self.whole, self.level);
        let mut sinks: Vec<usize> = match self.mode {
            RunMode::Fit => Vec::new(),
            RunMode::Run | RunMode::Apply(_) => (0..pipeline.sinks.len()).collect(),
        };
        // A run that learns nothing trains nothing: the models that are there stay.
        let is_below_reuse = self.level < Some(DegradationLevel::ReuseStates);
        let trains =
            matches!(self.mode, RunMode::Run) && is_below_reuse && !pipeline.trainings.is_empty();
        let mut prepared = self.session.prepare(
            &pipeline,
            &sinks,
            Some((scratch, background)),
            self.interval,
        )?;
        pipeline.split.clone_from(&prepared.split);
        let measured = if self.artifact().is_none() && is_below_reuse {
            self.session
                .measure_drift(&pipeline, &mut prepared, store, scratch, true)?
        } else {
            Vec::new()
        };
        let PreparedRun {
            datasets,
            state,
            mut bound,
            carried,
            split: _,
        } = prepared;
        let session = self.session.with_carried(carried);
        if let Some(artifact) = self.artifact() {
            let served = ServedHistory {
                session: &session,
                pipeline: &pipeline,
                bound: &bound,
                sources: &state.sources,
                artifact,
                interval: self.interval,
                ranges: Default::default(),
            };
            served.check()?;
            name_by_artifact(&mut bound, artifact)?;
        } else if let Some(bounded) = session.rebind_bounded(&pipeline, &datasets, &mut bound)? {
            pipeline = bounded;
        }
        let pipeline_sinks = sinks.len();
        let mut cadences = TrainingCadences::new();
        if self.learns() {
            for warning in session.spec_warnings(&pipeline, &bound, &datasets, trains)? {
                session.warn(&warning);
            }
            if self.interval.is_some() && self.session.records_runs {
                warn_of_rows_without_time(&session, &pipeline, &datasets);
            }
        }
        // Rows of a run within another are those of that one, or of a forecast.
        let days = if matches!(self.mode, RunMode::Run) && self.session.records_runs {
            session.source_days(&pipeline, &state.sources, self.interval)?
        } else {
            Vec::new()
        };
        if trains {
            check_trainings(&session, &pipeline, &bound, &datasets)?;
            session.check_folds(&pipeline, &bound, &state.sources, self.interval)?;
            cadences =
                session.training_cadences(&pipeline, &bound, &state.sources, self.interval)?;
            let needs = TrainingNeeds {
                cadences: &cadences,
                interval: self.interval,
                is_moving: self
                    .whole
                    .split
                    .as_ref()
                    .is_some_and(DataSplit::is_relative),
            };
            if let Some(extended) = session.with_training_inputs(&pipeline, &bound, &needs)? {
                bound = session.bind(&extended, &datasets)?;
                sinks = (0..extended.sinks.len()).collect();
                pipeline = extended;
            }
        }
        if matches!(self.mode, RunMode::Run) {
            session.check_published_ids(&pipeline, &bound)?;
        }
        if self.artifact().is_none() {
            check_serving(&pipeline, &bound)?;
        }
        session.check_outputs(&pipeline, &sinks, self.interval)?;
        session.check_formats(&pipeline, &sinks, &bound)?;
        session.check_tables(&pipeline, &sinks, &bound)?;
        let run = BoundRun {
            session,
            pipeline,
            sinks,
            pipeline_sinks,
            trains,
            datasets,
            measured,
            cadences,
            days,
        };
        Ok((run, CompilerInputs { state, bound }))
    }
}

/// Warns of rows that no interval holds, where the metadata of files count them.
fn warn_of_rows_without_time(
    session: &Session,
    pipeline: &Pipeline,
    datasets: &BTreeMap<String, Dataset>,
) {
    for source in &pipeline.sources {
        let Some(time) = &source.time else {
            continue;
        };
        let dataset = datasets.get(&source.name);
        let count = dataset.and_then(|dataset| dataset.null_count(time));
        let Some(count) = count.filter(|count| *count > 0) else {
            continue;
        };
        let (rows, verb) = if count == 1 {
            ("row", "has")
        } else {
            ("rows", "have")
        };
        let message = format!(
            "{count} {rows} of source `{}` {verb} no `{time}`, and so no interval",
            source.name
        );
        let fault = Fault::new(codes::EMPTY, message).column(time);
        session.warn(&fault.hint("give them a time in the files, or run without an interval"));
    }
}
