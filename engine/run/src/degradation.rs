//! Runs further down the ladder: what the newest artifact holds stands in for what is not learned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_commit::{Artifact, DegradationReport, FitHistory, FitRange, LearnedFinding};
use forebay_model::{
    ContentId, DegradationLevel, Fault, Finding, IdBuilder, Pipeline, Result, codes,
};
use forebay_plan::{
    AnalyzerId, BoundPipeline, NodeFlow, OpId, PassWork, Program, all_columns, analyzer_identities,
    analyzer_scans, part_column, upstream_analyzers,
};
use forebay_storage::{Event, StorageLocation};

use crate::session::Session;

/// The report on a run that degraded to a level; `None` for a complete run.
pub(crate) fn degradation_report(
    pipeline: &Pipeline,
    rung: Option<DegradationLevel>,
) -> Option<DegradationReport> {
    let declared = pipeline
        .deadline
        .as_ref()
        .map(|deadline| deadline.ladder.as_slice())
        .unwrap_or_default();
    let rungs = declared
        .iter()
        .filter(|known| Some(**known) <= rung)
        .map(|rung| rung.word().to_owned())
        .collect();
    rung.map(|_| DegradationReport {
        rungs,
        skipped: skip_optional(pipeline, rung).1,
        artifact: None,
        reused: Vec::new(),
    })
}

/// The pipeline as it is run on a rung, and the names of what is left out.
pub(crate) fn skip_optional(
    pipeline: &Pipeline,
    rung: Option<DegradationLevel>,
) -> (Pipeline, Vec<String>) {
    let declared = pipeline
        .deadline
        .as_ref()
        .is_some_and(|deadline| deadline.ladder.contains(&DegradationLevel::SkipOptional));
    match rung {
        Some(_) if declared => pipeline.without_optional(),
        _ => (pipeline.clone(), Vec::new()),
    }
}

/// An artifact of a pipeline that an earlier run has left.
pub(crate) struct PreviousArtifact {
    pub artifact: Artifact,
    pub place: StorageLocation,
    /// What each of its findings answers.
    asked: Vec<ContentId>,
}

impl PreviousArtifact {
    /// Reads the one that stands in for what a degraded run does not learn: of an interval or of the last one before it,
    /// so that an old interval sees nothing of later ones; without such, and without an interval, the newest. One that
    /// cannot be read is none, and no run fails because of it.
    pub fn load(session: &Session, root: &StorageLocation, name: &str) -> Option<PreviousArtifact> {
        let range = session.carried.as_ref().and_then(|carried| carried.range());
        let load = || {
            if let Some(range @ FitRange::Before(until)) = range {
                let history = FitHistory {
                    io: &session.io,
                    root,
                    pipeline: name,
                };
                for id in history.up_to(range)? {
                    if history.holds(id)? {
                        let place = Artifact::directory(root, id);
                        return PreviousArtifact::of(
                            session,
                            Artifact::load(&session.io, &place)?,
                            place,
                        )
                        .map(Some);
                    }
                }
                let past = until.past_text();
                let message = format!(
                    "no artifact is left that was fitted on rows {past}: the newest may stand in"
                );
                session.watch.on_event(Event::Warning { message });
            }
            let Some(place) = Artifact::latest(&session.io, root, name)? else {
                return Ok(None);
            };
            PreviousArtifact::of(session, Artifact::load(&session.io, &place)?, place).map(Some)
        };
        load().unwrap_or_else(|fault: Fault| {
            let message = format!(
                "the newest artifact cannot stand in for a later one: {}",
                fault.message()
            );
            session.watch.on_event(Event::Warning { message });
            None
        })
    }

    /// An artifact, and where it is.
    pub fn of(
        session: &Session,
        artifact: Artifact,
        place: StorageLocation,
    ) -> Result<PreviousArtifact> {
        let bound = artifact.bind(&session.registry, &session.sql)?;
        let asked = analyzer_identities(&bound, &artifact.pipeline)?;
        Ok(PreviousArtifact {
            artifact,
            place,
            asked,
        })
    }

    /// Its answers to all questions of a pipeline; `None` where what is asked has changed since, or anything
    /// before it.
    pub fn findings_for(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
    ) -> Option<Vec<Arc<Finding>>> {
        let matches = self.matches(pipeline, bound).ok()?;
        matches
            .into_iter()
            .map(|learned| Some(learned?.finding.clone()))
            .collect()
    }

    /// Its answer to each question of a pipeline; `None` for those that are asked otherwise now.
    pub fn matches(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
    ) -> Result<Vec<Option<&LearnedFinding>>> {
        let mut left: Vec<_> = self.asked.iter().zip(&self.artifact.findings).collect();
        let mut matches = Vec::new();
        for (question, name) in bound.asks.iter().zip(analyzer_identities(bound, pipeline)?) {
            let step = &bound.ops[question.op].label;
            let place = left
                .iter()
                .position(|(known, learned)| **known == name && learned.step == *step);
            matches.push(place.map(|place| left.remove(place).1));
        }
        Ok(matches)
    }
}

/// The questions that are not answered yet, and all that are tied to them: an answer of tonight and
/// one of another night never meet in what one of them is computed from.
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
    let mut found: BTreeSet<AnalyzerId> = works
        .flat_map(|work| &work.lanes)
        .flat_map(|lane| lane.asks.iter().copied())
        .collect();
    found.retain(|ask| !bound.asks[*ask].ask.per_run);
    loop {
        let before = found.len();
        for tied in ties
            .iter()
            .filter(|tied| !tied.is_disjoint(&found))
            .cloned()
            .collect::<Vec<_>>()
        {
            found.extend(tied);
        }
        if found.len() == before {
            return found;
        }
    }
}

/// The questions whose answers decide what a gather gives.
pub(crate) fn asks_before_gather(bound: &BoundPipeline, op: OpId) -> BTreeSet<AnalyzerId> {
    let inputs = bound.gather_inputs.get(&op).into_iter().flatten();
    let asked = bound.ops[op]
        .asks
        .iter()
        .flat_map(|ask| bound.asks[*ask].needed_columns());
    let mut found = upstream_analyzers(
        bound,
        inputs
            .flat_map(|(_, flow)| all_columns(flow))
            .chain(asked)
            .collect(),
    );
    found.extend(&bound.ops[op].asks);
    found
}

/// The questions whose answers decide what a sink gets.
pub(crate) fn asks_before_sink(
    bound: &BoundPipeline,
    pipeline: &Pipeline,
    sink: usize,
) -> BTreeSet<AnalyzerId> {
    let sink = &pipeline.sinks[sink];
    let flow = bound.flows.get(&sink.from).map(|flow| {
        let (streams, _) = flow.streams_of(sink.split.as_deref());
        NodeFlow {
            streams,
            ..flow.clone()
        }
    });
    let mut wanted = flow.as_ref().map(all_columns).unwrap_or_default();
    let part = sink.split.as_deref().map(part_column);
    wanted
        .iter_mut()
        .for_each(|(_, columns)| columns.extend(part.clone()));
    upstream_analyzers(bound, wanted)
}

/// Lets answers of another night stand for those of some questions, except for those that each run answers anew. What
/// is made with them gets names of its own: it is not what the spans and the steps come to.
pub(crate) fn replace_findings(
    program: &mut Program,
    pipeline: &Pipeline,
    asks: &BTreeSet<AnalyzerId>,
    answers: &[Arc<Finding>],
    findings: &mut BTreeMap<ContentId, Arc<Finding>>,
) -> Result<()> {
    let per_run = |ask: &AnalyzerId| program.bound.asks[*ask].ask.per_run;
    let asks: &BTreeSet<AnalyzerId> = &asks.iter().copied().filter(|ask| !per_run(ask)).collect();
    for ask in asks {
        let another = || {
            Fault::new(
                codes::STATE_VERSION,
                "the artifact was fitted by another pipeline",
            )
        };
        let answer = answers.get(*ask).ok_or_else(another)?;
        findings.insert(program.state_ids[*ask], answer.clone());
    }
    let bound = &program.bound;
    for pass in &mut program.passes {
        let used = match &mut pass.work {
            PassWork::Learn(work) => {
                for lane in &mut work.lanes {
                    let (known, left) = lane
                        .asks
                        .iter()
                        .partition(|ask| !bound.asks[**ask].ask.per_run);
                    work.known.extend::<Vec<AnalyzerId>>(known);
                    lane.asks = left;
                }
                work.lanes.retain(|lane| !lane.asks.is_empty());
                for lane in &mut work.lanes {
                    lane.scans = analyzer_scans(bound, &lane.asks);
                }
                continue;
            }
            PassWork::Gather(op) => asks_before_gather(bound, *op),
            PassWork::Write(work) => asks_before_sink(bound, pipeline, work.sink),
        };
        let mut name = IdBuilder::new("replaced");
        name.id(pass.id);
        let mut replaced = used.intersection(asks).peekable();
        if replaced.peek().is_none() {
            continue;
        }
        for ask in replaced {
            name.id(answers[*ask].digest()?);
        }
        pass.id = name.finish();
        if let PassWork::Gather(op) = &pass.work {
            program.gather_ids.insert(*op, pass.id);
        }
    }
    Ok(())
}
