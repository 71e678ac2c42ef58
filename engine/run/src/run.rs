//! Runs: attempts, one after the other, each as far down the ladder as the deadline demands.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_commit::{Artifact, AttemptFence, StateLease, StateStore};
use forebay_model::{ContentId, Dataset, DegradationLevel, Fault, Finding, IdBuilder, Interval, Pipeline, Result};
use forebay_plan::{PassWork, compile};
use forebay_storage::timestamp::format_utc;
use forebay_storage::{BackgroundTasks, Event, ScratchDir};
use jiff::Zoned;
use serde_json::{Value, json};

use crate::backfill::BackfillStage;
use crate::deadline::{
    ARTIFACT, CostHistory, DeadlineMonitor, DeadlineSpec, PlanOption, PlannedPass, RunSignals, Webhook, pass_names,
    planned_passes,
};
use crate::degradation::{PreviousArtifact, asks_to_replace, degradation_report, replace_findings, skip_optional};
use crate::executor::{DeadlinePlan, RunExecutor, UncommittedArtifact};
use crate::predict::{ForecastInputs, UnpublishedForecast, forecast_pass_name, naive_passes};
use crate::remote_run::{RemoteRun, name_by_artifact};
use crate::report::{DeadlineOutcome, RunReport};
use crate::session::{PreparedRun, Session};
use crate::training::training_pass_name;
use crate::training_checks::check_trainings;

/// What a run is for.
#[derive(Clone, Copy)]
pub(crate) enum RunMode<'a> {
    /// The artifact.
    Fit,
    /// The artifact, outputs and models.
    Run,
    /// Outputs, with what this artifact learned.
    Apply(&'a Artifact),
}

/// Temporary directories of this age have lost their run: a run touches its own all the time.
const ABANDONED_AFTER: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

impl Session {
    /// Runs, and begins again further down the ladder where the deadline demands it: what is committed
    /// by then is not done again.
    pub(crate) fn run_with_deadline(
        &self,
        pipeline: &Pipeline,
        goal: RunMode<'_>,
        interval: Option<&Interval>,
    ) -> Result<RunReport> {
        let before = self.io.usage();
        let spec = pipeline.deadline.as_ref();
        let by = spec.and_then(|spec| Some((spec, spec.by.as_deref()?)));
        let resolve = |text: &str| DeadlineSpec::parse(text)?.resolve(&Zoned::now());
        let by = by.map(|(spec, text)| resolve(text).map_err(|fault| fault.at(spec.at.as_ref()))).transpose()?;
        let deadline = self.deadline.or(by);
        // Some stores make a missing bucket with the first object.
        self.io.require_bucket(&self.state()?)?;
        let lease = Some(Arc::new(StateLease::of_run(&self.io, &self.state()?)?));
        let claimed = Session { claim: self.acquire_fence(pipeline, goal, interval)?, lease, ..self.clone() };
        claimed.wait_until_ready(pipeline)?;
        let webhook = spec.and_then(|spec| spec.webhook.clone()).map(|url| Webhook { io: self.io.clone(), url });
        let history = self.state()?.join(&format!("costs/{}.json", pipeline.name));
        let costs = self.io.get(&history)?.map(|bytes| CostHistory::from_json(&bytes)).unwrap_or_default();
        let signals = RunSignals { watch: self.watch.clone(), interrupt: self.interrupt.clone() };
        let run_id = self.options.run_id.as_deref();
        let monitor = DeadlineMonitor::new(pipeline, costs, deadline, webhook, run_id, signals)?;
        let (watch, interrupt) = (monitor.watch(), monitor.interrupt());
        let session =
            Session { io: self.io.with_read_cache(self.memory().recent_bytes()), watch, interrupt, ..claimed };
        let mut pipeline = Cow::Borrowed(pipeline);
        let done = loop {
            match session.run_attempt(&pipeline, goal, interval, &monitor) {
                Err(_) if monitor.should_restart() => {}
                Err(fault) => match session.bound_join_of(&pipeline, &fault)? {
                    Some(bounded) if !matches!(goal, RunMode::Apply(_)) => pipeline = Cow::Owned(bounded),
                    _ => break Err(fault),
                },
                done => break done,
            }
        };
        let (on_time, costs) = monitor.finish();
        // Forecasts are a courtesy: no run fails because of them. What a run costs beside others tells nothing.
        if let Some(costs) = costs.filter(|_| self.turn.is_none())
            && let Err(fault) = costs.to_json().and_then(|bytes| self.io.put(&history, bytes.into()))
        {
            self.watch
                .on_event(Event::Warning { message: format!("what the run cost is not kept: {}", fault.message()) });
        }
        let on_time =
            deadline.zip(on_time).map(|(deadline, on_time)| DeadlineOutcome { at: format_utc(deadline), on_time });
        let storage = Some(self.io.usage().since(before)).filter(|usage| usage.requests > 0);
        done.map(|report| RunReport { deadline: on_time, storage, ..report })
    }

    /// Takes over the run of this id, if it has one. Runs of one id are those with the same goal, interval, sources
    /// and places: a scheduler calls several jobs by the name of one run.
    fn acquire_fence(
        &self,
        pipeline: &Pipeline,
        goal: RunMode<'_>,
        interval: Option<&Interval>,
    ) -> Result<Option<Arc<AttemptFence>>> {
        let Some(run_id) = &self.options.run_id else { return Ok(None) };
        let goal = match goal {
            RunMode::Fit => "fit",
            RunMode::Run => "run",
            RunMode::Apply(_) => "apply",
        };
        let sources: Vec<Value> = pipeline.sources.iter().map(|source| json!([source.name, source.config])).collect();
        let sinks = pipeline.sinks.iter().chain(&pipeline.trainings);
        let sinks: Vec<Value> = sinks.map(|sink| json!([sink.name, sink.config])).collect();
        let mut id = IdBuilder::new("run");
        id.text(run_id).text(&pipeline.name).json(&json!([goal, interval, sources, sinks]));
        let claim = AttemptFence::acquire(&self.io, &self.state()?, run_id, id.finish())?;
        if let Some(from) = claim.previous_attempt()? {
            self.watch.on_event(Event::TakenOver { run_id: run_id.clone(), attempt: claim.number(), from });
        }
        Ok(Some(Arc::new(claim)))
    }

    /// One attempt, as far down the ladder as the deadline demands.
    fn run_attempt(
        &self,
        whole: &Pipeline,
        goal: RunMode<'_>,
        interval: Option<&Interval>,
        monitor: &DeadlineMonitor,
    ) -> Result<RunReport> {
        let rung = monitor.level();
        if rung == Some(DegradationLevel::Naive) {
            return self.run_naive(whole, interval, monitor);
        }
        let artifact = match goal {
            RunMode::Apply(artifact) => Some(artifact),
            RunMode::Fit | RunMode::Run => None,
        };
        // What is applied is in force, whatever was learned since.
        let whole = &if artifact.is_some() { Cow::Owned(whole.learning_anew()) } else { Cow::Borrowed(whole) };
        let (pipeline, _) = &skip_optional(whole, rung);
        let sinks: &[usize] = &match goal {
            RunMode::Fit => Vec::new(),
            RunMode::Run | RunMode::Apply(_) => (0..pipeline.sinks.len()).collect::<Vec<_>>(),
        };
        // Who learns nothing trains nothing: the models that are there stay.
        let trains = matches!(goal, RunMode::Run)
            && rung < Some(DegradationLevel::ReuseStates)
            && !pipeline.trainings.is_empty();
        let store = StateStore::new(self.io.clone(), self.state()?);
        let scratch = ScratchDir::new(Some(store.root()), self.watch.clone())?;
        forebay_storage::scratch::remove_stale(store.root(), scratch.path(), ABANDONED_AFTER);
        let mut later = BackgroundTasks::default();
        let mut prepared = self.prepare(pipeline, sinks, Some((&scratch, &mut later)), interval)?;
        let measured = match artifact.is_none() && rung < Some(DegradationLevel::ReuseStates) {
            true => self.measure_drift(pipeline, &mut prepared, &store, &scratch, true)?,
            false => Vec::new(),
        };
        let PreparedRun { datasets, mut known, mut bound, carried } = prepared;
        let session = &Session { carried, ..self.clone() };
        if let Some(artifact) = artifact {
            name_by_artifact(&mut bound, artifact)?;
        }
        let bounded = match artifact {
            None => session.rebind_bounded(pipeline, &datasets, &mut bound)?,
            Some(_) => None,
        };
        let pipeline = bounded.as_ref().unwrap_or(pipeline);
        let extended = match trains {
            true => {
                check_trainings(session, pipeline, &bound, &datasets)?;
                for warning in session.training_warnings(pipeline, &bound) {
                    let hint = warning.hint_text().map_or_else(String::new, |hint| format!("; {hint}"));
                    session.watch.on_event(Event::Warning { message: format!("{}{hint}", warning.message()) });
                }
                session.with_training_inputs(pipeline, &bound)?
            }
            false => None,
        };
        let own_sinks = sinks.len();
        let (pipeline, sinks) = match &extended {
            Some(extended) => {
                bound = session.bind(extended, &datasets)?;
                (extended, &(0..extended.sinks.len()).collect::<Vec<_>>()[..])
            }
            None => (pipeline, sinks),
        };
        session.check_outputs(pipeline, sinks, interval)?;
        session.check_tables(pipeline, sinks, &bound)?;
        let share = scratch.scratch_with_budget(session.memory(), session.memory().states_bytes());
        let mut found: BTreeMap<ContentId, Arc<Finding>> = BTreeMap::new();
        let asks = bound.asks.clone();
        let learns = artifact.is_none() && rung < Some(DegradationLevel::LastModel);
        let mut answered = BTreeSet::new();
        let mut program = compile(pipeline, bound, &datasets, sinks, artifact.is_none(), &mut |ask, state| {
            if !learns && !asks[ask].ask.per_run {
                return Ok(false);
            }
            let known = store.load_finding(state, asks[ask].ask.analyzer.as_ref(), &share, &mut found)?;
            answered.extend(known.then_some(ask));
            Ok(known)
        })?;
        later.join_all()?;
        let last = match (artifact, monitor.deadline(), &whole.deadline) {
            (None, Some(_), Some(deadline))
                if deadline.ladder.iter().any(|rung| *rung > DegradationLevel::SkipOptional) =>
            {
                PreviousArtifact::load(session, store.root(), &pipeline.name)
            }
            _ => None,
        };
        let mut ladder = degradation_report(whole, rung);
        let mut refits = session.carried.as_ref().map(|carried| carried.refits.clone()).unwrap_or_default();
        let answers = match (artifact, &last) {
            (Some(artifact), _) => Some(artifact.findings.iter().map(|learned| learned.finding.clone()).collect()),
            (None, Some(last)) if rung >= Some(DegradationLevel::ReuseStates) => {
                last.findings_for(pipeline, &program.bound)
            }
            _ => None,
        };
        if let Some(answers) = answers {
            let all = (0..program.bound.asks.len()).collect();
            let replaced = if learns { asks_to_replace(&program) } else { all };
            replace_findings(&mut program, pipeline, &replaced, &answers, &mut found)?;
            if let (Some(ladder), Some(last)) = (&mut ladder, &last) {
                let asks = replaced.iter().map(|ask| &program.bound.asks[*ask]).filter(|ask| !ask.ask.per_run);
                let steps: BTreeSet<&String> = asks.map(|ask| &program.bound.ops[ask.op].label).collect();
                let is_used = !steps.is_empty() || !learns;
                refits.replace(&replaced.iter().map(|ask| program.bound.step_of(*ask)).collect(), &last.artifact.fits);
                ladder.artifact = is_used.then(|| last.artifact.id.to_string());
                ladder.reused = steps.into_iter().cloned().collect();
            }
        }
        known.findings = found;
        let intervals = session.restrict_to_interval(pipeline, &mut program, interval)?;
        // Workers compile the run themselves; findings of another night are known here alone.
        let is_plain = match artifact {
            Some(_) => ladder.is_none(),
            None => learns && ladder.as_ref().is_none_or(|ladder| ladder.artifact.is_none()),
        };
        let run_spec = match is_plain {
            true => {
                let run = RemoteRun { pipeline, sinks, learns: artifact.is_none(), known: answered, applies: artifact };
                session.run_spec(run, interval, &datasets)?
            }
            false => None,
        };
        let run = RunExecutor::new(session, pipeline, store, scratch, program, known);
        let run = RunExecutor { intervals, run_spec, refits, ..run };
        let mut options = session.plan_options(whole, rung, &run, &datasets, interval, last.as_ref())?;
        if artifact.is_none() {
            let none = Pipeline::default();
            let runs = matches!(goal, RunMode::Run);
            add_final_passes(&mut options, if runs { pipeline } else { &none }, &datasets);
        }
        let trainings = if trains { pipeline.trainings.len() } else { 0 };
        let deadline = Some(DeadlinePlan { monitor, options });
        let mut run = RunExecutor { deadline, trainings, degradation: ladder.clone(), ..run };
        let mut staged = run.run_passes()?;
        let expectations = run.judge_expectations(interval)?;
        session.wait_for_previous_run(BackfillStage::Done)?;
        run.check_rows(&staged, own_sinks)?;
        // A run that fails publishes nothing: trainings come first. Those of an interval read the intervals before
        // it, too, so its outputs are published before them.
        let mut outputs = Vec::new();
        let fits = artifact.is_none() && (learns || last.is_none());
        if fits {
            monitor.begin(ARTIFACT);
            run.begin_artifact()?;
        }
        if !trains || interval.is_some() {
            outputs = run.publish(std::mem::take(&mut staged))?;
        }
        let fitted = if fits { Some(run.finish_artifact(&datasets)?) } else { None };
        let continued = match &session.carried {
            Some(carried) if fits => carried.report(pipeline, &run.program, &run.known)?,
            _ => Vec::new(),
        };
        let mut passes = measured;
        passes.extend(std::mem::take(&mut run.report));
        if fits {
            monitor.end(passes.iter().all(|pass| pass.reused));
        }
        let trained = match &fitted {
            Some(UncommittedArtifact { artifact, .. }) if trains => {
                session.train(&run, artifact, interval, &mut passes, monitor)?
            }
            _ => Vec::new(),
        };
        let plans = match &fitted {
            Some(UncommittedArtifact { artifact, .. }) if trains => {
                session.plan_forecasts(pipeline, artifact, &trained)?
            }
            _ if matches!(goal, RunMode::Run) => session.plan_earlier_forecasts(pipeline, &run.store)?,
            _ => Vec::new(),
        };
        let mut forecasts = Vec::new();
        for (plan, sink) in plans.iter().zip(&pipeline.predictions) {
            let name = forecast_pass_name(sink);
            monitor.begin(&name);
            let inputs = ForecastInputs { datasets: &datasets, run: &run, interval, ladder: &ladder };
            let mut forecast = session.run_forecast(plan, inputs).map_err(|fault| fault.at(sink.at.as_ref()))?;
            let own = forecast.passes();
            monitor.end(own.iter().all(|pass| pass.reused));
            passes.extend(own);
            forecasts.push(forecast);
        }
        outputs.extend(run.publish(staged)?);
        let (artifact, artifact_path) = match (fitted, artifact, last) {
            (Some(fitted), ..) => run.commit_artifact(fitted).map(|(id, place)| (id, Some(place.shown)))?,
            (None, Some(artifact), _) => (artifact.id, None),
            (None, None, Some(last)) => (last.artifact.id, Some(last.place.shown)),
            (None, None, None) => return Err(Fault::internal("a run without an artifact")),
        };
        let models = trained.into_iter().map(|model| model.publish(session, &run.store)).collect::<Result<Vec<_>>>()?;
        let forecasts = forecasts.into_iter().map(UnpublishedForecast::publish).collect::<Result<Vec<_>>>()?;
        std::mem::take(&mut run.background).join_all()?;
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
            expectations,
            interval: interval.cloned(),
            again: Vec::new(),
            nothing_new: ladder.is_none() && passes.iter().all(|pass| pass.reused),
            deadline: None,
            ladder,
            spilled_bytes: run.scratch.spilled_bytes(),
            storage: None,
            passes,
        })
    }

    /// The plan of this run, and those of the lower levels that are open to it.
    fn plan_options(
        &self,
        whole: &Pipeline,
        rung: Option<DegradationLevel>,
        run: &RunExecutor<'_>,
        datasets: &BTreeMap<String, Dataset>,
        interval: Option<&Interval>,
        last: Option<&PreviousArtifact>,
    ) -> Result<Vec<PlanOption>> {
        let mut here = planned_passes(&run.program, run.pipeline, datasets, rung, &run.known);
        if rung > Some(DegradationLevel::SkipOptional) {
            let intervals = run.intervals.clone();
            let same = run.dry_run_with(run.pipeline, run.program.clone(), run.known.findings.clone());
            estimate_new_reads(RunExecutor { intervals, ..same }, &mut here)?;
        }
        let mut options = vec![PlanOption { rung, passes: here }];
        let ladder = whole.deadline.as_ref().map(|deadline| deadline.ladder.as_slice()).unwrap_or_default();
        for next in ladder.iter().filter(|next| Some(**next) > rung) {
            if *next == DegradationLevel::Naive {
                if !whole.predictions.is_empty() {
                    options.push(PlanOption { rung: Some(*next), passes: naive_passes() });
                }
                continue;
            }
            let (lesser, _) = skip_optional(whole, Some(*next));
            let bound = self.bind(&lesser, datasets)?;
            let answers = last
                .filter(|_| *next > DegradationLevel::SkipOptional)
                .and_then(|last| last.findings_for(&lesser, &bound));
            if *next > DegradationLevel::SkipOptional && answers.is_none() {
                continue;
            }
            let sinks: Vec<usize> = if run.program.writes() { (0..lesser.sinks.len()).collect() } else { Vec::new() };
            let is_known = &mut |_, state| Ok(run.known.findings.contains_key(&state));
            let mut program = compile(&lesser, bound, datasets, &sinks, true, is_known)?;
            let mut ahead = planned_passes(&program, &lesser, datasets, Some(*next), &run.known);
            // Which answers another rung replaces shows when it is taken.
            if let (Some(answers), DegradationLevel::LastModel) = (answers, next) {
                let (all, mut findings) = ((0..program.bound.asks.len()).collect(), BTreeMap::new());
                replace_findings(&mut program, &lesser, &all, &answers, &mut findings)?;
                let intervals = self.restrict_to_interval(&lesser, &mut program, interval)?;
                estimate_new_reads(
                    RunExecutor { intervals, ..run.dry_run_with(&lesser, program, findings) },
                    &mut ahead,
                )?;
            }
            options.push(PlanOption { rung: Some(*next), passes: ahead });
        }
        Ok(options)
    }
}

/// What readers see stands, where it was made with what stands in for what is not learned: passes that write read
/// the rest.
fn estimate_new_reads(mut run: RunExecutor<'_>, ahead: &mut [PlannedPass]) -> Result<()> {
    let passes = run.program.passes.clone();
    for (pass, name) in passes.iter().zip(pass_names(&run.program, run.pipeline)) {
        let (PassWork::Write(_), Some(ahead)) = (&pass.work, ahead.iter_mut().find(|ahead| ahead.pass == name)) else {
            continue;
        };
        let standing = run.inspect_pass(pass)?;
        let spans = if standing.done { Some((0, 1)) } else { standing.to_read };
        ahead.read = spans.map(|(read, of)| (ahead.total as f64 * read as f64 / of.max(1) as f64) as u64);
    }
    Ok(())
}

/// Adds what follows the passes to each plan: the artifact, trainings and forecasts.
fn add_final_passes(options: &mut [PlanOption], pipeline: &Pipeline, datasets: &BTreeMap<String, Dataset>) {
    // How much a training reads is not known before; it costs what it cost the last time, by the data.
    let total = datasets.values().map(Dataset::bytes).sum();
    let ahead = |pass, learned| PlannedPass { pass, total, read: None, learned, keeps: false };
    for option in options.iter_mut().filter(|option| option.rung < Some(DegradationLevel::Naive)) {
        if option.rung < Some(DegradationLevel::LastModel) {
            option.passes.push(ahead(ARTIFACT.to_owned(), false));
        }
        if option.rung < Some(DegradationLevel::ReuseStates) {
            let trainings = pipeline.trainings.iter().map(training_pass_name);
            option.passes.extend(trainings.map(|name| ahead(name, true)));
        }
        option.passes.extend(pipeline.predictions.iter().map(|sink| ahead(forecast_pass_name(sink), true)));
    }
}
