//! Degraded runs: findings of the newest artifact replace those that are not learned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_commit::{Artifact, DegradationReport, FitHistory, FitRange};
use forebay_model::{ContentId, DegradationLevel, Fault, Finding, Pipeline, Result, codes};
use forebay_plan::{
    AnalyzerId, BoundPipeline, CarriedFinding, PassWork, Program, analyzer_scans,
    upstream_analyzers,
};
use forebay_storage::{Event, StorageLocation};

use crate::previous_artifact::PreviousArtifact;
use crate::session::Session;

/// The report on a run that degraded to a level; `None` for a complete run.
pub(crate) fn degradation_report(
    pipeline: &Pipeline,
    level: Option<DegradationLevel>,
) -> Option<DegradationReport> {
    let declared = pipeline
        .deadline
        .as_ref()
        .map(|deadline| deadline.ladder.as_slice())
        .unwrap_or_default();
    let rungs = declared
        .iter()
        .filter(|declared| Some(**declared) <= level)
        .map(|level| level.word().to_owned())
        .collect();
    level.map(|_| DegradationReport {
        rungs,
        skipped: skip_optional(pipeline, level).1,
        artifact: None,
        reused: Vec::new(),
    })
}

/// The pipeline as it runs at a level of degradation, and the names of the parts that are left out.
pub(crate) fn skip_optional(
    pipeline: &Pipeline,
    level: Option<DegradationLevel>,
) -> (Pipeline, Vec<String>) {
    let declared = pipeline
        .deadline
        .as_ref()
        .is_some_and(|deadline| deadline.ladder.contains(&DegradationLevel::SkipOptional));
    match level {
        Some(_) if declared => pipeline.without_optional(),
        _ => (pipeline.clone(), Vec::new()),
    }
}

impl PreviousArtifact {
    /// Reads the artifact whose findings a degraded run uses: that of the interval or of the last
    /// one before it, so that an old interval uses no later data; without such, and without an
    /// interval, the newest. An unreadable one counts as missing, and fails no run.
    pub fn load(session: &Session, root: &StorageLocation, name: &str) -> Option<PreviousArtifact> {
        match PreviousArtifact::load_readable(session, root, name) {
            Ok(artifact) => artifact,
            Err(fault) => {
                let message = format!(
                    "the newest artifact cannot stand in for a later one: {}",
                    fault.message()
                );
                session.watch.on_event(Event::Warning { message });
                None
            }
        }
    }

    fn load_readable(
        session: &Session,
        root: &StorageLocation,
        name: &str,
    ) -> Result<Option<PreviousArtifact>> {
        let carried = session.attempt.carried.as_ref();
        let range = carried.and_then(|carried| carried.range());
        if let Some(range @ FitRange::Before(until)) = range {
            let history = FitHistory {
                io: &session.io,
                root,
                pipeline: name,
            };
            for id in history.up_to(range)? {
                if history.holds(id)? {
                    let location = Artifact::directory(root, id);
                    return PreviousArtifact::load_at(session, location).map(Some);
                }
            }
            let past = until.past_text();
            let message = format!(
                "no artifact is left that was fitted on rows {past}: the newest may stand in"
            );
            session.watch.on_event(Event::Warning { message });
        }
        match Artifact::latest(&session.io, root, name)? {
            Some(location) => PreviousArtifact::load_at(session, location).map(Some),
            None => Ok(None),
        }
    }

    fn load_at(session: &Session, location: StorageLocation) -> Result<PreviousArtifact> {
        let artifact = Artifact::load(&session.io, &location)?;
        PreviousArtifact::of(session, artifact, location)
    }

    /// An artifact that was read from a location.
    pub fn of(
        session: &Session,
        artifact: Artifact,
        location: StorageLocation,
    ) -> Result<PreviousArtifact> {
        let bound = artifact.bind(&session.registry, &session.sql)?;
        PreviousArtifact::of_bound(artifact, location, &bound)
    }
}

/// The analyzers without a finding yet, and all that are tied to them: findings of this run and of
/// an earlier one must not be mixed in the inputs of one finding.
pub(crate) fn asks_to_replace(program: &Program) -> BTreeSet<AnalyzerId> {
    let bound = &program.bound;
    // Each question is tied to those before it, to those of its step, and to those of its state.
    let mut ties: Vec<BTreeSet<AnalyzerId>> = Vec::new();
    let mut by_state: BTreeMap<ContentId, BTreeSet<AnalyzerId>> = BTreeMap::new();
    for (ask, question) in bound.asks.iter().enumerate() {
        let mut tied = upstream_analyzers(bound, question.needed_columns());
        tied.extend(bound.ops[question.op].asks.iter().copied());
        tied.insert(ask);
        ties.push(tied);
        by_state
            .entry(program.state_ids[ask])
            .or_default()
            .insert(ask);
    }
    ties.extend(by_state.into_values());
    let works = program.passes.iter().filter_map(|pass| match &pass.work {
        PassWork::Learn(work) => Some(work),
        _ => None,
    });
    let mut to_replace: BTreeSet<AnalyzerId> = works
        .flat_map(|work| &work.lanes)
        .flat_map(|lane| lane.asks.iter().copied())
        .collect();
    to_replace.retain(|ask| !bound.asks[*ask].ask.per_run);
    // Ties of ties count, too: the set grows until no tie adds to it.
    loop {
        let count = to_replace.len();
        for tied in &ties {
            if !tied.is_disjoint(&to_replace) {
                to_replace.extend(tied);
            }
        }
        if to_replace.len() == count {
            return to_replace;
        }
    }
}

/// Names the findings of some analyzers by the content of those that replace them, before the
/// pipeline is compiled. Spans and steps alone do not determine what is computed from them: rows, and
/// states that count these rows. Analyzers that each run learns again keep their findings.
pub(crate) fn name_replaced(
    bound: &mut BoundPipeline,
    asks: &BTreeSet<AnalyzerId>,
    answers: &[Arc<Finding>],
) -> Result<()> {
    for ask in asks {
        let Some(question) = bound.asks.get_mut(*ask) else {
            return Err(fitted_by_another());
        };
        if question.ask.per_run {
            continue;
        }
        let answer = answers.get(*ask).ok_or_else(fitted_by_another)?;
        if question.held.is_some() {
            // The content of a finding that is held is its name.
            question.held = Some(answer.clone());
        } else {
            question.carried = Some(CarriedFinding::replaced(answer)?);
        }
    }
    Ok(())
}

/// Replaces the findings of some analyzers by those of an earlier run, except for analyzers that
/// each run learns again. [`name_replaced`] has named them.
pub(crate) fn replace_findings(
    program: &mut Program,
    asks: &BTreeSet<AnalyzerId>,
    answers: &[Arc<Finding>],
    findings: &mut BTreeMap<ContentId, Arc<Finding>>,
) -> Result<()> {
    let bound = &program.bound;
    for ask in asks.iter().filter(|ask| !bound.asks[**ask].ask.per_run) {
        let answer = answers.get(*ask).ok_or_else(fitted_by_another)?;
        findings.insert(program.state_ids[*ask], answer.clone());
    }
    for pass in &mut program.passes {
        let PassWork::Learn(work) = &mut pass.work else {
            continue;
        };
        for lane in &mut work.lanes {
            // Analyzers of each run are learned anyway.
            let (replaced, learned) = lane
                .asks
                .iter()
                .partition(|ask| !bound.asks[**ask].ask.per_run);
            work.known.extend::<Vec<AnalyzerId>>(replaced);
            lane.asks = learned;
        }
        work.lanes.retain(|lane| !lane.asks.is_empty());
        for lane in &mut work.lanes {
            lane.scans = analyzer_scans(bound, &lane.asks);
        }
    }
    Ok(())
}

/// The fault of an artifact whose findings answer other questions.
pub(crate) fn fitted_by_another() -> Fault {
    let message = "the artifact was fitted by another pipeline";
    Fault::new(codes::STATE_VERSION, message)
}
