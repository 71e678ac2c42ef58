//! Runs: attempts, one after the other, each as far down the ladder as the deadline demands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_model::{Dataset, Fault, Finding, Id, IdBuilder, Pipeline, Result, Rung};
use forebay_plan::{AskId, PassWork, bind, compile};
use forebay_storage::{Event, Later, ScratchDir, timestamp::text};
use jiff::Zoned;
use serde_json::{Value, json};

use crate::artifact::Artifact;
use crate::beside::Stage;
use crate::claim::Claim;
use crate::commit::Store;
use crate::drive::{Fitted, Running};
use crate::interval::Interval;
use crate::ladder::{Ladder, Last, replace, skipped, to_replace};
use crate::lease::Lease;
use crate::pace::{ARTIFACT, Ahead, Costs, Keeper, Moment, Way, Webhook, names, passes};
use crate::session::Prepared;
use crate::workers::Job;
use crate::{OnTime, Report, Session, training};

/// What a run is for.
#[derive(Clone, Copy)]
pub(crate) enum Goal<'a> {
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
    pub(crate) fn drive(&self, pipeline: &Pipeline, goal: Goal<'_>, interval: Option<&Interval>) -> Result<Report> {
        let spec = pipeline.deadline.as_ref();
        let by = spec.and_then(|spec| Some((spec, spec.by.as_deref()?)));
        let resolve = |text: &str| Moment::parse(text)?.resolve(&Zoned::now());
        let by = by.map(|(spec, text)| resolve(text).map_err(|fault| fault.at(spec.at.as_ref()))).transpose()?;
        let deadline = self.deadline.or(by);
        // Some stores make a missing bucket with the first object.
        self.io.require_bucket(&self.state()?)?;
        let lease = Some(Arc::new(Lease::of_run(&self.io, &self.state()?)?));
        let claimed = Session { claim: self.claimed(pipeline, goal, interval)?, lease, ..self.clone() };
        claimed.wait_until_ready(pipeline)?;
        let webhook = spec.and_then(|spec| spec.webhook.clone()).map(|url| Webhook { io: self.io.clone(), url });
        let history = self.state()?.join(&format!("costs/{}.json", pipeline.name));
        let costs = self.io.get(&history)?.map(|bytes| Costs::from_json(&bytes)).unwrap_or_default();
        let listens = (self.watch.clone(), &self.interrupt);
        let run_id = self.options.run_id.as_deref();
        let keeper = Keeper::new(pipeline, costs, deadline, webhook, run_id, listens)?;
        let (watch, interrupt) = (keeper.watch(), keeper.interrupt());
        let session = Session { io: self.io.keeping(self.memory().recent_bytes()), watch, interrupt, ..claimed };
        let done = loop {
            match session.attempt(pipeline, goal, interval, &keeper) {
                Err(_) if keeper.turns() => {}
                done => break done,
            }
        };
        let (on_time, costs) = keeper.finish();
        // Forecasts are a courtesy: no run fails because of them. What a run costs beside others tells nothing.
        if let Some(costs) = costs.filter(|_| self.turn.is_none())
            && let Err(fault) = costs.to_json().and_then(|bytes| self.io.put(&history, bytes.into()))
        {
            self.watch.event(Event::Warning { message: format!("what the run cost is not kept: {}", fault.message()) });
        }
        let on_time = deadline.zip(on_time).map(|(deadline, on_time)| OnTime { at: text(deadline), on_time });
        done.map(|report| Report { deadline: on_time, ..report })
    }

    /// Takes over the run of this id, if it has one. Runs of one id are those with the same goal, interval, sources
    /// and places: a scheduler calls several jobs by the name of one run.
    fn claimed(&self, pipeline: &Pipeline, goal: Goal<'_>, interval: Option<&Interval>) -> Result<Option<Arc<Claim>>> {
        let Some(run_id) = &self.options.run_id else { return Ok(None) };
        let goal = match goal {
            Goal::Fit => "fit",
            Goal::Run => "run",
            Goal::Apply(_) => "apply",
        };
        let sources: Vec<Value> = pipeline.sources.iter().map(|source| json!([source.name, source.config])).collect();
        let sinks = pipeline.sinks.iter().chain(&pipeline.trainings);
        let sinks: Vec<Value> = sinks.map(|sink| json!([sink.name, sink.config])).collect();
        let mut id = IdBuilder::new("run");
        id.text(run_id).text(&pipeline.name).json(&json!([goal, interval, sources, sinks]));
        let claim = Claim::take(&self.io, &self.state()?, run_id, id.finish())?;
        if let Some(from) = claim.before()? {
            self.watch.event(Event::TakenOver { run_id: run_id.clone(), attempt: claim.number(), from });
        }
        Ok(Some(Arc::new(claim)))
    }

    /// One attempt, as far down the ladder as the deadline demands.
    fn attempt(
        &self,
        whole: &Pipeline,
        goal: Goal<'_>,
        interval: Option<&Interval>,
        keeper: &Keeper,
    ) -> Result<Report> {
        let rung = keeper.rung();
        let (pipeline, _) = &skipped(whole, rung);
        let artifact = match goal {
            Goal::Apply(artifact) => Some(artifact),
            Goal::Fit | Goal::Run => None,
        };
        let sinks: &[usize] = &match goal {
            Goal::Fit => Vec::new(),
            Goal::Run | Goal::Apply(_) => (0..pipeline.sinks.len()).collect::<Vec<_>>(),
        };
        // Who learns nothing trains nothing: the models that are there stay.
        let trains = matches!(goal, Goal::Run) && rung < Some(Rung::ReuseStates) && !pipeline.trainings.is_empty();
        let store = Store::new(self.io.clone(), self.state()?);
        let scratch = ScratchDir::new(Some(store.root()), self.watch.clone())?;
        forebay_storage::scratch::sweep(store.root(), scratch.path(), ABANDONED_AFTER);
        let mut later = Later::default();
        let Prepared { datasets, mut known, mut bound } =
            self.prepare(pipeline, sinks, Some((&scratch, &mut later)), interval)?;
        let extended = match trains {
            true => {
                training::check(self, pipeline, &bound, &datasets)?;
                self.with_trained_rows(pipeline, &bound)?
            }
            false => None,
        };
        let own_sinks = sinks.len();
        let (pipeline, sinks) = match &extended {
            Some(extended) => {
                bound = bind(extended, &self.registry, &self.sql, &datasets)?;
                (extended, &(0..extended.sinks.len()).collect::<Vec<_>>()[..])
            }
            None => (pipeline, sinks),
        };
        self.check_outputs(pipeline, sinks, interval)?;
        let share = scratch.share(self.memory(), self.memory().states_bytes());
        let mut found: BTreeMap<Id, Arc<Finding>> = BTreeMap::new();
        let asks = bound.asks.clone();
        let learns = artifact.is_none() && rung < Some(Rung::LastModel);
        let mut answered = BTreeSet::new();
        let mut program = compile(pipeline, bound, &datasets, sinks, artifact.is_none(), &mut |ask, state| {
            if !learns {
                return Ok(false);
            }
            let known = store.recall(state, asks[ask].ask.analyzer.as_ref(), &share, &mut found)?;
            answered.extend(known.then_some(ask));
            Ok(known)
        })?;
        later.done()?;
        let last = match (artifact, keeper.deadline(), &whole.deadline) {
            (None, Some(_), Some(deadline)) if deadline.ladder.iter().any(|rung| *rung > Rung::SkipOptional) => {
                Last::load(self, store.root(), &pipeline.name)
            }
            _ => None,
        };
        let mut ladder = Ladder::down_to(whole, rung);
        let answers = match (artifact, &last) {
            (Some(artifact), _) => Some(artifact.findings.iter().map(|learned| learned.finding.clone()).collect()),
            (None, Some(last)) if rung >= Some(Rung::ReuseStates) => last.answers(pipeline, &program.bound),
            _ => None,
        };
        if let Some(answers) = answers {
            let all = (0..program.bound.asks.len()).collect();
            let replaced = if learns { to_replace(&program) } else { all };
            replace(&mut program, pipeline, &replaced, &answers, &mut found)?;
            if let (Some(ladder), Some(last)) = (&mut ladder, &last) {
                let steps: BTreeSet<&String> =
                    replaced.iter().map(|ask| &program.bound.ops[program.bound.asks[*ask].op].label).collect();
                let is_used = !steps.is_empty() || !learns;
                ladder.artifact = is_used.then(|| last.artifact.id.to_string());
                ladder.reused = steps.into_iter().cloned().collect();
            }
        }
        known.findings = found;
        let withins = self.withins(pipeline, &mut program, interval)?;
        // Workers compile the run themselves; findings of another night are known here alone.
        let is_plain = artifact.is_none() && learns && ladder.as_ref().is_none_or(|ladder| ladder.artifact.is_none());
        let job = match self.crew.is_some() && is_plain {
            true => Some(self.job(pipeline, sinks, answered, interval, &datasets)?),
            false => None,
        };
        let run = Running { withins, job, ..Running::new(self, pipeline, store, scratch, program, known) };
        let mut ways = self.ways(whole, rung, &run, &datasets, interval, last.as_ref())?;
        if learns {
            foresee_rest(&mut ways, if trains { &pipeline.trainings } else { &[] }, &datasets);
        }
        let trainings = if trains { pipeline.trainings.len() } else { 0 };
        let kept = Some((keeper, ways));
        let mut run = Running { keeper: kept, trainings, ladder: ladder.clone(), ..run };
        let mut staged = run.passes()?;
        self.wait_behind(Stage::Done)?;
        run.check_rows(&staged, own_sinks)?;
        // A run that fails publishes nothing: trainings come first. Those of an interval read the intervals before
        // it, too, so its outputs are published before them.
        let mut outputs = Vec::new();
        let fits = artifact.is_none() && (learns || last.is_none());
        if fits {
            keeper.begin(ARTIFACT);
            run.begin_artifact()?;
        }
        if !trains || interval.is_some() {
            outputs = run.publish(std::mem::take(&mut staged))?;
        }
        let fitted = if fits { Some(run.artifact(&datasets)?) } else { None };
        let mut passes = std::mem::take(&mut run.report);
        if fits {
            keeper.end(passes.iter().all(|pass| pass.reused));
        }
        let trained = match &fitted {
            Some(Fitted { artifact, .. }) if trains => {
                self.train(pipeline, artifact, interval, (&run.store, &run.scratch), &mut passes, keeper)?
            }
            _ => Vec::new(),
        };
        outputs.extend(run.publish(staged)?);
        let (artifact, artifact_path) = match (fitted, artifact, last) {
            (Some(fitted), ..) => run.commit(fitted).map(|(id, place)| (id, Some(place.shown)))?,
            (None, Some(artifact), _) => (artifact.id, None),
            (None, None, Some(last)) => (last.artifact.id, Some(last.place.shown)),
            (None, None, None) => return Err(Fault::internal("a run without an artifact")),
        };
        let models = trained.into_iter().map(|model| model.publish(self, &run.store)).collect::<Result<Vec<_>>>()?;
        std::mem::take(&mut run.later).done()?;
        Ok(Report {
            pipeline: pipeline.name.clone(),
            artifact: Some(artifact.to_string()),
            artifact_path,
            outputs,
            models,
            interval: interval.cloned(),
            again: Vec::new(),
            nothing_new: ladder.is_none() && passes.iter().all(|pass| pass.reused),
            deadline: None,
            ladder,
            spilled_bytes: run.scratch.spilled_bytes(),
            passes,
        })
    }

    /// What workers have to know of a run.
    fn job(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        known: BTreeSet<AskId>,
        interval: Option<&Interval>,
        datasets: &BTreeMap<String, Dataset>,
    ) -> Result<Job> {
        Ok(Job {
            // Deadlines are kept here; their webhooks are nobody else's affair.
            pipeline: Pipeline { deadline: None, ..pipeline.clone() },
            sinks: sinks.to_vec(),
            learns: true,
            known,
            interval: interval.cloned(),
            state: self.options.state.clone(),
            base: self.io.absolute(".")?,
            sources: datasets.iter().map(|(name, dataset)| (name.clone(), dataset.fingerprint())).collect(),
            batch_rows: self.options.batch_rows,
        })
    }

    /// The way that a run is on, and those down the ladder that are open.
    fn ways(
        &self,
        whole: &Pipeline,
        rung: Option<Rung>,
        run: &Running<'_>,
        datasets: &BTreeMap<String, Dataset>,
        interval: Option<&Interval>,
        last: Option<&Last>,
    ) -> Result<Vec<Way>> {
        let mut here = passes(&run.program, run.pipeline, datasets, rung, &run.known);
        if rung > Some(Rung::SkipOptional) {
            let withins = run.withins.clone();
            let same = run.instead(run.pipeline, run.program.clone(), run.known.findings.clone());
            only_new(Running { withins, ..same }, &mut here)?;
        }
        let mut ways = vec![Way { rung, passes: here }];
        let ladder = whole.deadline.as_ref().map(|deadline| deadline.ladder.as_slice()).unwrap_or_default();
        for next in ladder.iter().filter(|next| Some(**next) > rung) {
            let (lesser, _) = skipped(whole, Some(*next));
            let bound = bind(&lesser, &self.registry, &self.sql, datasets)?;
            let answers = last.filter(|_| *next > Rung::SkipOptional).and_then(|last| last.answers(&lesser, &bound));
            if *next > Rung::SkipOptional && answers.is_none() {
                continue;
            }
            let sinks: Vec<usize> = if run.program.writes() { (0..lesser.sinks.len()).collect() } else { Vec::new() };
            let is_known = &mut |_, state| Ok(run.known.findings.contains_key(&state));
            let mut program = compile(&lesser, bound, datasets, &sinks, true, is_known)?;
            let mut ahead = passes(&program, &lesser, datasets, Some(*next), &run.known);
            // Which answers another rung replaces shows when it is taken.
            if let (Some(answers), Rung::LastModel) = (answers, next) {
                let (all, mut findings) = ((0..program.bound.asks.len()).collect(), BTreeMap::new());
                replace(&mut program, &lesser, &all, &answers, &mut findings)?;
                let withins = self.withins(&lesser, &mut program, interval)?;
                only_new(Running { withins, ..run.instead(&lesser, program, findings) }, &mut ahead)?;
            }
            ways.push(Way { rung: Some(*next), passes: ahead });
        }
        Ok(ways)
    }
}

/// What readers see stands, where it was made with what stands in for what is not learned: passes that write read
/// the rest.
fn only_new(mut run: Running<'_>, ahead: &mut [Ahead]) -> Result<()> {
    let passes = run.program.passes.clone();
    for (pass, name) in passes.iter().zip(names(&run.program, run.pipeline)) {
        let (PassWork::Write(_), Some(ahead)) = (&pass.work, ahead.iter_mut().find(|ahead| ahead.pass == name)) else {
            continue;
        };
        let standing = run.standing(pass)?;
        let spans = if standing.done { Some((0, 1)) } else { standing.to_read };
        ahead.read = spans.map(|(read, of)| (ahead.total as f64 * read as f64 / of.max(1) as f64) as u64);
    }
    Ok(())
}

/// Adds what comes after the passes to the ways on which something is learned: the artifact, and trainings.
fn foresee_rest(ways: &mut [Way], trainings: &[forebay_model::Sink], datasets: &BTreeMap<String, Dataset>) {
    // How much a training reads is not known before; it costs what it cost the last time, by the data.
    let total = datasets.values().map(Dataset::bytes).sum();
    let ahead = |pass, learned| Ahead { pass, total, read: None, learned, keeps: false };
    for way in ways.iter_mut().filter(|way| way.rung < Some(Rung::LastModel)) {
        way.passes.push(ahead(ARTIFACT.to_owned(), false));
        let trainings = trainings.iter().filter(|_| way.rung < Some(Rung::ReuseStates));
        way.passes.extend(trainings.map(|training| ahead(training::name_of(training), true)));
    }
}
