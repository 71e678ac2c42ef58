//! What a run goes on from: the artifact of the run before it, for analyzers that continue their findings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use forebay_commit::{Artifact, FitHistory, FitRange};
use forebay_execute::{RunState, SourceInput};
use forebay_model::{
    ContentId, DataSplit, Dataset, Fault, IdBuilder, Interval, Pipeline, Result, TimeCutoff,
};
use forebay_plan::{BoundPipeline, CarriedFinding, Program, bind_all};
use forebay_storage::Event;
use serde_json::json;

use crate::backfill::BackfillStage;
use crate::degradation::PreviousArtifact;
use crate::refit::{RefitContext, RefitDecisions};
use crate::report::ContinuedReport;
use crate::session::Session;

/// The run before.
#[derive(Clone)]
pub(crate) struct CarriedRun {
    /// The rows of this run; `None` on a worker.
    range: Option<FitRange>,
    /// The artifact of the run before, if there was one.
    earlier: Option<Arc<PreviousArtifact>>,
    /// Which steps use what it learned.
    pub refits: RefitDecisions,
}

impl Session {
    /// Binds a pipeline; its analyzers continue what the run goes on from. The fault holds the problems of whatever reads
    /// the steps, too.
    pub(crate) fn bind(
        &self,
        pipeline: &Pipeline,
        datasets: &BTreeMap<String, Dataset>,
    ) -> Result<BoundPipeline> {
        let binding = bind_all(pipeline, &self.registry, &self.sql, datasets);
        if !binding.faults.is_empty() {
            let readers = self.check_bound(pipeline, &binding, datasets);
            let faults = binding.faults.into_iter().chain(readers).collect();
            return Err(Fault::combine(faults)
                .unwrap_or_else(|| Fault::internal("no fault of binding is there")));
        }
        let mut bound = binding.bound;
        self.carried
            .iter()
            .try_for_each(|carried| carried.apply(pipeline, &mut bound))?;
        Ok(bound)
    }

    /// What a run goes on from; `None` if nothing in its pipeline depends on earlier runs.
    pub(crate) fn carried_run(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        sources: &BTreeMap<String, SourceInput>,
        interval: Option<&Interval>,
    ) -> Result<Option<Arc<CarriedRun>>> {
        let until = interval
            .map(|interval| TimeCutoff::before(&interval.to))
            .or_else(|| self.as_of.clone());
        let continues = bound.asks.iter().any(|ask| ask.ask.continues.is_some());
        if !continues && pipeline.nodes.iter().all(|node| node.refit.is_none()) {
            // A run that degrades takes the artifact of its own interval, or of one before it.
            let range = until
                .filter(|_| pipeline.deadline.is_some())
                .map(FitRange::Before);
            let carried = |range| CarriedRun {
                range: Some(range),
                earlier: None,
                refits: RefitDecisions::default(),
            };
            return Ok(range.map(carried).map(Arc::new));
        }
        // Of intervals side by side, each goes on from the one before.
        self.wait_for_previous_run(BackfillStage::Done)?;
        let range = match until {
            Some(until) => FitRange::Before(until),
            None => FitRange::Whole(input_id(pipeline, bound, sources)),
        };
        let state = self.state()?;
        let history = FitHistory {
            io: &self.io,
            root: &state,
            pipeline: &pipeline.name,
        };
        let mut earlier = None;
        for id in history.before(&range)? {
            if history.holds(id)? {
                earlier = Some(Arc::new(self.earlier_artifact(id)?));
                break;
            }
            let message = format!(
                "the artifact {id} was removed: ids and statistics go on from the one before it"
            );
            self.watch.on_event(Event::Warning { message });
        }
        let context = RefitContext {
            pipeline,
            bound,
            sources,
            interval,
            earlier: earlier.as_deref(),
        };
        let refits = self.decide_refits(&context)?;
        Ok(Some(Arc::new(CarriedRun {
            range: Some(range),
            earlier,
            refits,
        })))
    }

    fn earlier_artifact(&self, id: ContentId) -> Result<PreviousArtifact> {
        let place = Artifact::directory(&self.state()?, id);
        PreviousArtifact::of(self, Artifact::load(&self.io, &place)?, place)
    }

    /// A worker's session, which goes on from what its coordinator goes on from.
    pub(crate) fn carrying(
        &self,
        earlier: Option<ContentId>,
        held: &BTreeSet<String>,
    ) -> Result<Session> {
        let earlier = earlier
            .map(|id| self.earlier_artifact(id).map(Arc::new))
            .transpose()?;
        let refits = RefitDecisions::of_worker(held.iter().cloned());
        Ok(Session {
            carried: Some(Arc::new(CarriedRun {
                range: None,
                earlier,
                refits,
            })),
            ..self.clone()
        })
    }

    /// The artifact that the run goes on from.
    pub(crate) fn earlier_id(&self) -> Option<ContentId> {
        self.carried.as_ref()?.earlier_id()
    }

    /// The steps that hold what this artifact learned.
    pub(crate) fn held_steps(&self) -> BTreeSet<String> {
        self.carried
            .iter()
            .flat_map(|carried| carried.refits.held())
            .cloned()
            .collect()
    }

    /// Records what the run learned, for the runs after it.
    pub(crate) fn record_fit(&self, pipeline: &Pipeline, artifact: ContentId) -> Result<()> {
        let Some(range) = self
            .carried
            .as_ref()
            .and_then(|carried| carried.range.as_ref())
        else {
            return Ok(());
        };
        let state = self.state()?;
        let history = FitHistory {
            io: &self.io,
            root: &state,
            pipeline: &pipeline.name,
        };
        history.record(range, artifact, self.earlier_id())
    }
}

impl CarriedRun {
    /// The artifact that the run goes on from.
    pub fn earlier_id(&self) -> Option<ContentId> {
        Some(self.earlier.as_ref()?.artifact.id)
    }

    /// The rows that the run learns from.
    pub fn range(&self) -> Option<&FitRange> {
        self.range.as_ref()
    }

    /// The same with other decisions.
    pub fn with_refits(&self, refits: RefitDecisions) -> CarriedRun {
        CarriedRun {
            refits,
            ..self.clone()
        }
    }

    /// Lets the analyzers of a pipeline hold or continue what they found in the run before. What is asked otherwise now
    /// begins anew.
    pub fn apply(&self, pipeline: &Pipeline, bound: &mut BoundPipeline) -> Result<()> {
        let Some(earlier) = &self.earlier else {
            return Ok(());
        };
        let matches = earlier.matches(pipeline, bound)?;
        for (ask, learned) in matches.into_iter().enumerate() {
            if let Some(learned) =
                learned.filter(|_| bound.can_hold(ask) && self.refits.is_held(bound.step_of(ask)))
            {
                bound.asks[ask].held = Some(learned.finding.clone());
                continue;
            }
            let (Some(combine), Some(learned)) = (bound.asks[ask].ask.continues.clone(), learned)
            else {
                continue;
            };
            let carried = CarriedFinding::continued(&learned.finding)?;
            bound.continue_finding(ask, carried, learned.finding.clone(), combine);
        }
        Ok(())
    }

    /// How findings that continue earlier ones differ from those.
    pub fn report(
        &self,
        pipeline: &Pipeline,
        program: &Program,
        state: &RunState,
    ) -> Result<Vec<ContinuedReport>> {
        let bound = &program.bound;
        let earlier = self.earlier.as_deref();
        let matches = earlier
            .map(|earlier| earlier.matches(pipeline, bound))
            .transpose()?
            .unwrap_or_default();
        let mut reports = Vec::new();
        for (ask, question) in bound
            .asks
            .iter()
            .enumerate()
            .filter(|(_, ask)| ask.ask.continues.is_some())
        {
            let finding = state.finding(program, ask)?;
            let before = matches.get(ask).copied().flatten();
            let counts = finding.column("count")?.as_primitive::<UInt64Type>();
            reports.push(ContinuedReport {
                step: bound.ops[question.op].label.clone(),
                columns: question.ask.inputs.clone(),
                artifact: earlier
                    .filter(|_| before.is_some())
                    .map(|earlier| earlier.artifact.id.to_string()),
                tokens: finding.rows() as u64,
                added: (finding.rows()
                    - before
                        .map_or(0, |before| before.finding.rows())
                        .min(finding.rows())) as u64,
                absent: counts.values().iter().filter(|count| **count == 0).count() as u64,
            });
        }
        Ok(reports)
    }
}

/// Names the rows of a run and the operations on them, so that a repeat of the run is known as one.
fn input_id(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    sources: &BTreeMap<String, SourceInput>,
) -> ContentId {
    let mut id = IdBuilder::new("input of a fit");
    for (name, source) in sources {
        id.text(name).id(source.dataset.fingerprint());
    }
    bound.ops.iter().for_each(|op| {
        id.text(&op.label).id(op.identity);
    });
    id.json(&json!(pipeline.split.as_ref().map(DataSplit::config)));
    id.finish()
}
