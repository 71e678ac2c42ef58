//! One attempt of a run: bind, compile, execute the passes, train, forecast, publish.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_commit::{Artifact, DegradationReport, StateStore};
use forebay_execute::RunState;
use forebay_model::{
    ContentId, Dataset, DegradationLevel, Fault, Finding, Interval, Pipeline, Result,
};
use forebay_plan::{AnalyzerId, BoundPipeline, PassWork, Program, compile};
use forebay_storage::{BackgroundTasks, Event, ScratchDir};

use crate::backfill::BackfillStage;
use crate::deadline::{
    ARTIFACT, DeadlineMonitor, PlanOption, PlannedPass, pass_names, planned_passes,
};
use crate::degradation::{
    PreviousArtifact, asks_to_replace, degradation_report, replace_findings, skip_optional,
};
use crate::executor::{DeadlinePlan, PassInterval, RunExecutor};
use crate::predict::{
    ForecastInputs, ForecastPlan, UnpublishedForecast, forecast_pass_name, naive_passes,
};
use crate::refit::RefitDecisions;
use crate::remote_run::{RemoteRun, name_by_artifact};
use crate::report::{PassReport, RunReport};
use crate::run::RunMode;
use crate::session::{PreparedRun, Session};
use crate::training::{UnpublishedModel, training_pass_name};
use crate::training_checks::check_trainings;

/// Temporary directories of this age have lost their run: a run touches its own all the time.
const ABANDONED_AFTER: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// One attempt of a run, at one level of its deadline's ladder.
pub(crate) struct RunAttempt<'a> {
    pub session: &'a Session,
    /// The pipeline as the user wrote it.
    pub whole: &'a Pipeline,
    pub mode: RunMode<'a>,
    pub interval: Option<&'a Interval>,
    pub monitor: &'a DeadlineMonitor,
    /// `None`: the whole pipeline.
    pub level: Option<DegradationLevel>,
}

/// The pipeline that an attempt carries out, bound to the inputs that it found.
struct BoundRun {
    /// With what the run goes on from.
    session: Session,
    /// At this level of the ladder, with bounded joins, and with the inputs of trainings as sinks.
    pipeline: Pipeline,
    /// The sinks to write: those of the pipeline, then the inputs of trainings.
    sinks: Vec<usize>,
    /// How many of them are the pipeline's own.
    own_sinks: usize,
    trains: bool,
    datasets: BTreeMap<String, Dataset>,
    state: RunState,
    bound: BoundPipeline,
    /// The passes that measured drift.
    measured: Vec<PassReport>,
}

/// The program of an attempt, and which findings it takes from elsewhere.
struct CompiledRun {
    program: Program,
    intervals: BTreeMap<ContentId, PassInterval>,
    findings: BTreeMap<ContentId, Arc<Finding>>,
    /// The analyzers whose findings were committed by an earlier run.
    answered: BTreeSet<AnalyzerId>,
    /// The artifact that a degraded run may take findings from.
    last: Option<PreviousArtifact>,
    ladder: Option<DegradationReport>,
    refits: RefitDecisions,
}

impl<'a> RunAttempt<'a> {
    /// Carries out the attempt and publishes its results.
    pub fn run(&self) -> Result<RunReport> {
        if self.level == Some(DegradationLevel::Naive) {
            return self
                .session
                .run_naive(self.whole, self.interval, self.monitor);
        }
        // What is applied is in force, whatever was learned since.
        let whole = match self.artifact() {
            Some(_) => Cow::Owned(self.whole.learning_anew()),
            None => Cow::Borrowed(self.whole),
        };
        let attempt = RunAttempt {
            whole: &whole,
            ..*self
        };
        let store = StateStore::new(self.session.io.clone(), self.session.state()?);
        let scratch = ScratchDir::new(Some(store.root()), self.session.watch.clone())?;
        forebay_storage::scratch::remove_stale(store.root(), scratch.path(), ABANDONED_AFTER);
        let mut later = BackgroundTasks::default();
        let mut run = attempt.bind(&store, &scratch, &mut later)?;
        let compiled = attempt.compile(&mut run, &store, &scratch)?;
        later.join_all()?;
        attempt.execute(run, compiled, store, scratch)
    }

    /// The artifact that is applied.
    fn artifact(&self) -> Option<&Artifact> {
        match self.mode {
            RunMode::Apply(artifact) => Some(artifact),
            RunMode::Fit | RunMode::Run => None,
        }
    }

    /// Whether findings that are not committed are learned.
    fn learns(&self) -> bool {
        self.artifact().is_none() && self.level < Some(DegradationLevel::LastModel)
    }

    fn bind(
        &self,
        store: &StateStore,
        scratch: &ScratchDir,
        later: &mut BackgroundTasks,
    ) -> Result<BoundRun> {
        let (mut pipeline, _) = skip_optional(self.whole, self.level);
        let mut sinks: Vec<usize> = match self.mode {
            RunMode::Fit => Vec::new(),
            RunMode::Run | RunMode::Apply(_) => (0..pipeline.sinks.len()).collect(),
        };
        // A run that learns nothing trains nothing: the models that are there stay.
        let is_below_reuse = self.level < Some(DegradationLevel::ReuseStates);
        let trains =
            matches!(self.mode, RunMode::Run) && is_below_reuse && !pipeline.trainings.is_empty();
        let mut prepared =
            self.session
                .prepare(&pipeline, &sinks, Some((scratch, later)), self.interval)?;
        let measured = match self.artifact().is_none() && is_below_reuse {
            true => self
                .session
                .measure_drift(&pipeline, &mut prepared, store, scratch, true)?,
            false => Vec::new(),
        };
        let PreparedRun {
            datasets,
            state,
            mut bound,
            carried,
        } = prepared;
        let session = Session {
            carried,
            ..self.session.clone()
        };
        if let Some(artifact) = self.artifact() {
            name_by_artifact(&mut bound, artifact)?;
        } else if let Some(bounded) = session.rebind_bounded(&pipeline, &datasets, &mut bound)? {
            pipeline = bounded;
        }
        let own_sinks = sinks.len();
        if trains {
            check_trainings(&session, &pipeline, &bound, &datasets)?;
            for warning in session.training_warnings(&pipeline, &bound) {
                let hint = warning
                    .hint_text()
                    .map_or_else(String::new, |hint| format!("; {hint}"));
                session.watch.on_event(Event::Warning {
                    message: format!("{}{hint}", warning.message()),
                });
            }
            if let Some(extended) = session.with_training_inputs(&pipeline, &bound)? {
                bound = session.bind(&extended, &datasets)?;
                sinks = (0..extended.sinks.len()).collect();
                pipeline = extended;
            }
        }
        if matches!(self.mode, RunMode::Run) {
            session.check_published_ids(&pipeline, &bound)?;
        }
        session.check_outputs(&pipeline, &sinks, self.interval)?;
        session.check_tables(&pipeline, &sinks, &bound)?;
        Ok(BoundRun {
            session,
            pipeline,
            sinks,
            own_sinks,
            trains,
            datasets,
            state,
            bound,
            measured,
        })
    }

    fn compile(
        &self,
        run: &mut BoundRun,
        store: &StateStore,
        scratch: &ScratchDir,
    ) -> Result<CompiledRun> {
        let bound = std::mem::take(&mut run.bound);
        let BoundRun {
            session,
            pipeline,
            sinks,
            datasets,
            ..
        } = &*run;
        let share = scratch.scratch_with_budget(session.memory(), session.memory().states_bytes());
        let asks = bound.asks.clone();
        let (learns, makes_artifact) = (self.learns(), self.artifact().is_none());
        let mut findings = BTreeMap::new();
        let mut answered = BTreeSet::new();
        let program = compile(
            pipeline,
            bound,
            datasets,
            sinks,
            makes_artifact,
            &mut |ask, state| {
                if !learns && !asks[ask].ask.per_run {
                    return Ok(false);
                }
                let known = store.load_finding(
                    state,
                    asks[ask].ask.analyzer.as_ref(),
                    &share,
                    &mut findings,
                )?;
                answered.extend(known.then_some(ask));
                Ok(known)
            },
        )?;
        let ladder = degradation_report(self.whole, self.level);
        let refits = session
            .carried
            .as_ref()
            .map(|carried| carried.refits.clone())
            .unwrap_or_default();
        let last = self.previous_artifact(session, pipeline, store);
        let intervals = BTreeMap::new();
        let mut compiled = CompiledRun {
            program,
            intervals,
            findings,
            answered,
            last,
            ladder,
            refits,
        };
        self.substitute_findings(pipeline, &mut compiled)?;
        compiled.intervals =
            session.restrict_to_interval(pipeline, &mut compiled.program, self.interval)?;
        Ok(compiled)
    }

    /// The newest artifact, where the ladder has a level that takes findings from it.
    fn previous_artifact(
        &self,
        session: &Session,
        pipeline: &Pipeline,
        store: &StateStore,
    ) -> Option<PreviousArtifact> {
        let deadline = self
            .whole
            .deadline
            .as_ref()
            .filter(|_| self.monitor.deadline().is_some())?;
        let takes_findings = deadline
            .ladder
            .iter()
            .any(|level| *level > DegradationLevel::SkipOptional);
        let wanted = self.artifact().is_none() && takes_findings;
        if wanted {
            PreviousArtifact::load(session, store.root(), &pipeline.name)
        } else {
            None
        }
    }

    /// Takes findings from the applied artifact, or from the newest one where this level does not learn them.
    fn substitute_findings(&self, pipeline: &Pipeline, compiled: &mut CompiledRun) -> Result<()> {
        let CompiledRun {
            program,
            findings,
            last,
            ladder,
            refits,
            ..
        } = compiled;
        let answers = match (self.artifact(), &last) {
            (Some(artifact), _) => Some(
                artifact
                    .findings
                    .iter()
                    .map(|learned| learned.finding.clone())
                    .collect(),
            ),
            (None, Some(last)) if self.level >= Some(DegradationLevel::ReuseStates) => {
                last.findings_for(pipeline, &program.bound)
            }
            _ => None,
        };
        let Some(answers) = answers else {
            return Ok(());
        };
        let learns = self.learns();
        let replaced = if learns {
            asks_to_replace(program)
        } else {
            (0..program.bound.asks.len()).collect()
        };
        replace_findings(program, pipeline, &replaced, &answers, findings)?;
        if let (Some(ladder), Some(last)) = (ladder, last) {
            let asks = replaced
                .iter()
                .map(|ask| &program.bound.asks[*ask])
                .filter(|ask| !ask.ask.per_run);
            let steps: BTreeSet<&String> =
                asks.map(|ask| &program.bound.ops[ask.op].label).collect();
            let is_used = !steps.is_empty() || !learns;
            refits.replace(
                &replaced
                    .iter()
                    .map(|ask| program.bound.step_of(*ask))
                    .collect(),
                &last.artifact.fits,
            );
            ladder.artifact = is_used.then(|| last.artifact.id.to_string());
            ladder.reused = steps.into_iter().cloned().collect();
        }
        Ok(())
    }

    fn execute(
        &self,
        mut bound: BoundRun,
        compiled: CompiledRun,
        store: StateStore,
        scratch: ScratchDir,
    ) -> Result<RunReport> {
        let state = std::mem::take(&mut bound.state);
        let BoundRun {
            session,
            pipeline,
            datasets,
            trains,
            ..
        } = &bound;
        let CompiledRun {
            program,
            intervals,
            findings,
            answered,
            last,
            ladder,
            refits,
        } = compiled;
        // Workers compile the run themselves; findings of another night are known here alone.
        let applies = self.artifact();
        let is_plain = match applies {
            Some(_) => ladder.is_none(),
            None => {
                self.learns()
                    && ladder
                        .as_ref()
                        .is_none_or(|ladder| ladder.artifact.is_none())
            }
        };
        let run_spec = match is_plain {
            true => {
                let sinks = &bound.sinks;
                let run = RemoteRun {
                    pipeline,
                    sinks,
                    learns: applies.is_none(),
                    known: answered,
                    applies,
                };
                session.run_spec(run, self.interval, datasets)?
            }
            false => None,
        };
        let run = RunExecutor::new(
            session,
            pipeline,
            store,
            scratch,
            program,
            RunState { findings, ..state },
        );
        let run = RunExecutor {
            intervals,
            run_spec,
            refits,
            ..run
        };
        let deadline = Some(self.deadline_plan(&bound, &run, last.as_ref())?);
        let trainings = if *trains { pipeline.trainings.len() } else { 0 };
        let mut run = RunExecutor {
            deadline,
            trainings,
            degradation: ladder.clone(),
            ..run
        };
        let mut staged = run.run_passes()?;
        // Expectations compare with what the previous interval has published.
        session.wait_for_previous_run(BackfillStage::Done)?;
        let expectations = run.judge_expectations(self.interval)?;
        run.check_rows(&staged, bound.own_sinks)?;
        // A run that fails publishes nothing: trainings come first. Those of an interval read the intervals before
        // it, too, so its outputs are published before them.
        let fits = self.artifact().is_none() && (self.learns() || last.is_none());
        if fits {
            self.monitor.begin(ARTIFACT);
            run.begin_artifact()?;
        }
        let mut outputs = Vec::new();
        if !trains || self.interval.is_some() {
            outputs = run.publish(std::mem::take(&mut staged))?;
        }
        let fitted = if fits {
            Some(run.finish_artifact(datasets)?)
        } else {
            None
        };
        let continued = match &session.carried {
            Some(carried) if fits => carried.report(&run.program, &run.state)?,
            _ => Vec::new(),
        };
        let mut passes: Vec<PassReport> = bound
            .measured
            .iter()
            .cloned()
            .chain(std::mem::take(&mut run.report))
            .collect();
        if fits {
            self.monitor.end(passes.iter().all(|pass| pass.reused));
        }
        let newest = fitted
            .as_ref()
            .map(|fitted| &fitted.artifact)
            .filter(|_| *trains);
        let trained = match newest {
            Some(artifact) => {
                session.train(&run, artifact, self.interval, &mut passes, self.monitor)?
            }
            None => Vec::new(),
        };
        let plans = match newest {
            Some(artifact) => session.plan_forecasts(pipeline, artifact, &trained)?,
            None if matches!(self.mode, RunMode::Run) => {
                session.plan_earlier_forecasts(pipeline, &run.store)?
            }
            None => Vec::new(),
        };
        let forecasts = self.forecast(&bound, &run, &plans, &mut passes)?;
        outputs.extend(run.publish(staged)?);
        let (artifact, artifact_path) = match (fitted, self.artifact(), last) {
            (Some(fitted), ..) => run
                .commit_artifact(fitted)
                .map(|(id, place)| (id, Some(place.shown)))?,
            (None, Some(artifact), _) => (artifact.id, None),
            (None, None, Some(last)) => (last.artifact.id, Some(last.place.shown)),
            (None, None, None) => return Err(Fault::internal("a run without an artifact")),
        };
        let publish_model = |model: UnpublishedModel| model.publish(session, &run.store);
        let models = trained
            .into_iter()
            .map(publish_model)
            .collect::<Result<Vec<_>>>()?;
        let forecasts = forecasts
            .into_iter()
            .map(UnpublishedForecast::publish)
            .collect::<Result<Vec<_>>>()?;
        std::mem::take(&mut run.background).join_all()?;
        if matches!(self.mode, RunMode::Run) && !expectations.record.is_empty() {
            expectations
                .record
                .save(&session.io, run.store.root(), &pipeline.name)?;
        }
        // A run that was killed may have computed what is published now.
        let is_shown = !outputs.iter().any(|output| output.is_new)
            && !models.iter().any(|model| model.is_new)
            && !forecasts.iter().any(|forecast| forecast.is_new);
        Ok(RunReport {
            forecasts,
            pipeline: pipeline.name.clone(),
            artifact: Some(artifact.to_string()),
            artifact_path,
            outputs,
            models,
            future: std::mem::take(&mut run.future),
            continued,
            refits: std::mem::take(&mut run.refits.steps),
            expectations: expectations.reports,
            interval: self.interval.cloned(),
            again: Vec::new(),
            nothing_new: ladder.is_none() && is_shown && passes.iter().all(|pass| pass.reused),
            deadline: None,
            ladder,
            spilled_bytes: run.scratch.spilled_bytes(),
            storage: None,
            passes,
        })
    }

    /// Carries out the plans of forecasts. The caller publishes the results.
    fn forecast<'f>(
        &self,
        bound: &'f BoundRun,
        run: &RunExecutor<'_>,
        plans: &'f [ForecastPlan],
        passes: &mut Vec<PassReport>,
    ) -> Result<Vec<UnpublishedForecast<'f>>> {
        let mut forecasts = Vec::new();
        for (plan, sink) in plans.iter().zip(&bound.pipeline.predictions) {
            self.monitor.begin(&forecast_pass_name(sink));
            let (datasets, ladder) = (&bound.datasets, &run.degradation);
            let inputs = ForecastInputs {
                datasets,
                run,
                interval: self.interval,
                ladder,
            };
            let forecast = bound.session.run_forecast(plan, inputs);
            let mut forecast = forecast.map_err(|fault| fault.at(sink.at.as_ref()))?;
            let own = forecast.passes();
            self.monitor.end(own.iter().all(|pass| pass.reused));
            passes.extend(own);
            forecasts.push(forecast);
        }
        Ok(forecasts)
    }

    /// The plan of this attempt, and those of the lower levels that are open to it.
    fn deadline_plan(
        &self,
        bound: &BoundRun,
        run: &RunExecutor<'_>,
        last: Option<&PreviousArtifact>,
    ) -> Result<DeadlinePlan<'a>> {
        let mut options = vec![PlanOption {
            rung: self.level,
            passes: self.planned_passes(bound, run)?,
        }];
        let ladder = self
            .whole
            .deadline
            .as_ref()
            .map(|deadline| deadline.ladder.as_slice())
            .unwrap_or_default();
        for level in ladder
            .iter()
            .copied()
            .filter(|level| Some(*level) > self.level)
        {
            let passes = match level {
                DegradationLevel::Naive if self.whole.predictions.is_empty() => None,
                DegradationLevel::Naive => Some(naive_passes()),
                _ => self.planned_passes_at(level, bound, run, last)?,
            };
            options.extend(passes.map(|passes| PlanOption {
                rung: Some(level),
                passes,
            }));
        }
        if self.artifact().is_none() {
            let runs = matches!(self.mode, RunMode::Run);
            let none = Pipeline::default();
            add_final_passes(
                &mut options,
                if runs { &bound.pipeline } else { &none },
                &bound.datasets,
            );
        }
        Ok(DeadlinePlan {
            monitor: self.monitor,
            options,
        })
    }

    fn planned_passes(&self, bound: &BoundRun, run: &RunExecutor<'_>) -> Result<Vec<PlannedPass>> {
        let mut passes = planned_passes(
            &run.program,
            run.pipeline,
            &bound.datasets,
            self.level,
            &run.state,
        );
        if self.level > Some(DegradationLevel::SkipOptional) {
            let intervals = run.intervals.clone();
            let same = run.dry_run_with(
                run.pipeline,
                run.program.clone(),
                run.state.findings.clone(),
            );
            estimate_new_reads(RunExecutor { intervals, ..same }, &mut passes)?;
        }
        Ok(passes)
    }

    /// The passes of a lower level. `None` where it needs findings of an earlier artifact that does not have them.
    fn planned_passes_at(
        &self,
        level: DegradationLevel,
        bound: &BoundRun,
        run: &RunExecutor<'_>,
        last: Option<&PreviousArtifact>,
    ) -> Result<Option<Vec<PlannedPass>>> {
        let BoundRun {
            session, datasets, ..
        } = bound;
        let (lesser, _) = skip_optional(self.whole, Some(level));
        let lesser_bound = session.bind(&lesser, datasets)?;
        let takes_findings = level > DegradationLevel::SkipOptional;
        let answers = last
            .filter(|_| takes_findings)
            .and_then(|last| last.findings_for(&lesser, &lesser_bound));
        if takes_findings && answers.is_none() {
            return Ok(None);
        }
        let sinks: Vec<usize> = if run.program.writes() {
            (0..lesser.sinks.len()).collect()
        } else {
            Vec::new()
        };
        let is_known = &mut |_, state| Ok(run.state.findings.contains_key(&state));
        let mut program = compile(&lesser, lesser_bound, datasets, &sinks, true, is_known)?;
        let mut passes = planned_passes(&program, &lesser, datasets, Some(level), &run.state);
        // Which answers another level replaces shows when it is taken.
        if let (Some(answers), DegradationLevel::LastModel) = (answers, level) {
            let (all, mut findings) = ((0..program.bound.asks.len()).collect(), BTreeMap::new());
            replace_findings(&mut program, &lesser, &all, &answers, &mut findings)?;
            let intervals = session.restrict_to_interval(&lesser, &mut program, self.interval)?;
            let dry_run = RunExecutor {
                intervals,
                ..run.dry_run_with(&lesser, program, findings)
            };
            estimate_new_reads(dry_run, &mut passes)?;
        }
        Ok(Some(passes))
    }
}

/// What readers see stands, where it was made with what stands in for what is not learned: passes that write read
/// the rest.
fn estimate_new_reads(mut run: RunExecutor<'_>, ahead: &mut [PlannedPass]) -> Result<()> {
    let passes = run.program.passes.clone();
    for (pass, name) in passes.iter().zip(pass_names(&run.program, run.pipeline)) {
        let (PassWork::Write(_), Some(ahead)) = (
            &pass.work,
            ahead.iter_mut().find(|ahead| ahead.pass == name),
        ) else {
            continue;
        };
        let standing = run.inspect_pass(pass)?;
        let spans = if standing.done {
            Some((0, 1))
        } else {
            standing.to_read
        };
        ahead.read =
            spans.map(|(read, of)| (ahead.total as f64 * read as f64 / of.max(1) as f64) as u64);
    }
    Ok(())
}

/// Adds what follows the passes to each plan: the artifact, trainings and forecasts.
fn add_final_passes(
    options: &mut [PlanOption],
    pipeline: &Pipeline,
    datasets: &BTreeMap<String, Dataset>,
) {
    // How much a training reads is not known before; it costs what it cost the last time, by the data.
    let total = datasets.values().map(Dataset::bytes).sum();
    let ahead = |pass, learned| PlannedPass {
        pass,
        total,
        read: None,
        learned,
        keeps: false,
    };
    for option in options
        .iter_mut()
        .filter(|option| option.rung < Some(DegradationLevel::Naive))
    {
        if option.rung < Some(DegradationLevel::LastModel) {
            option.passes.push(ahead(ARTIFACT.to_owned(), false));
        }
        if option.rung < Some(DegradationLevel::ReuseStates) {
            let trainings = pipeline.trainings.iter().map(training_pass_name);
            option
                .passes
                .extend(trainings.map(|name| ahead(name, true)));
        }
        option.passes.extend(
            pipeline
                .predictions
                .iter()
                .map(|sink| ahead(forecast_pass_name(sink), true)),
        );
    }
}
