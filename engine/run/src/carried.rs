//! What a run goes on from: the artifact of the run before it, for analyzers that continue their findings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use forebay_cluster::NumberingSpec;
use forebay_commit::{Artifact, EarlierFit, FitHistory, FitRange};
use forebay_execute::{RunState, SourceInput};
use forebay_model::{
    ContentId, DataSplit, Dataset, Fault, IdBuilder, Interval, Pipeline, Result, TimeCutoff,
};
use forebay_plan::{BoundPipeline, Program, bind_all};
use forebay_storage::Event;
use serde_json::json;

use crate::backfill::BackfillStage;
use crate::degradation::PreviousArtifact;
use crate::numbering::RunNumbering;
use crate::refit::{RefitContext, RefitDecisions};
use crate::report::ContinuedReport;
use crate::session::Session;

/// The run before.
#[derive(Clone)]
pub(crate) struct CarriedRun {
    /// The rows of this run; `None` on a worker.
    range: Option<FitRange>,
    /// The run before, if there was one. Its artifact may have been removed.
    before: Option<EarlierFit>,
    /// The artifact whose statistics steps may hold.
    earlier: Option<Arc<PreviousArtifact>>,
    /// The ids of tokens that the run continues.
    pub numbering: Option<RunNumbering>,
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
                before: None,
                earlier: None,
                numbering: None,
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
        let fits = history.before(&range)?;
        let before = fits.first().cloned();
        let numbering = if continues {
            Some(self.numbering_after(pipeline, bound, before.as_ref())?)
        } else {
            None
        };
        let holds = pipeline.nodes.iter().any(|node| node.refit.is_some());
        let mut earlier = None;
        for EarlierFit { artifact: id, .. } in fits.iter().filter(|_| holds) {
            if history.holds(*id)? {
                earlier = Some(Arc::new(self.earlier_artifact(*id)?));
                break;
            }
            let message =
                format!("the artifact {id} was removed: statistics go on from the one before it");
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
            before,
            earlier,
            numbering,
            refits,
        })))
    }

    pub(crate) fn earlier_artifact(&self, id: ContentId) -> Result<PreviousArtifact> {
        let place = Artifact::directory(&self.state()?, id);
        PreviousArtifact::of(self, Artifact::load(&self.io, &place)?, place)
    }

    /// A worker's session, which goes on from what its coordinator goes on from.
    pub(crate) fn carrying(
        &self,
        earlier: Option<ContentId>,
        held: &BTreeSet<String>,
        numbering: &Option<NumberingSpec>,
    ) -> Result<Session> {
        let earlier = earlier
            .map(|id| self.earlier_artifact(id).map(Arc::new))
            .transpose()?;
        let root = self.state()?;
        let numbering = numbering
            .clone()
            .map(|spec| RunNumbering::of_worker(self.io.clone(), root, spec));
        let refits = RefitDecisions::of_worker(held.iter().cloned());
        Ok(Session {
            carried: Some(Arc::new(CarriedRun {
                range: None,
                before: None,
                earlier,
                numbering,
                refits,
            })),
            ..self.clone()
        })
    }

    /// The artifact whose statistics the run may hold.
    pub(crate) fn earlier_id(&self) -> Option<ContentId> {
        self.carried.as_ref()?.earlier_id()
    }

    /// The artifact that the run goes on from. It may have been removed.
    pub(crate) fn continued_id(&self) -> Option<ContentId> {
        self.carried.as_ref()?.continued_id()
    }

    /// The ids of tokens that the run continues, as workers need to know them.
    pub(crate) fn numbering_spec(&self) -> Option<NumberingSpec> {
        let numbering = self.carried.as_ref()?.numbering.as_ref()?;
        Some(numbering.spec().clone())
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
    pub(crate) fn record_fit(
        &self,
        program: &Program,
        learned: &RunState,
        artifact: ContentId,
    ) -> Result<()> {
        let Some(carried) = &self.carried else {
            return Ok(());
        };
        let Some(range) = &carried.range else {
            return Ok(());
        };
        let numbering = carried
            .numbering
            .as_ref()
            .map(|numbering| numbering.after_run(program, learned))
            .transpose()?;
        let state = self.state()?;
        let history = FitHistory {
            io: &self.io,
            root: &state,
            pipeline: &program.name,
        };
        let before = carried.fit_before();
        history.record(range, artifact, numbering, before.as_ref())
    }
}

impl CarriedRun {
    /// The artifact whose statistics the run may hold.
    pub fn earlier_id(&self) -> Option<ContentId> {
        Some(self.earlier.as_ref()?.artifact.id)
    }

    /// The fit that the run goes on from: of one that holds statistics, that of the artifact that has them.
    fn fit_before(&self) -> Option<EarlierFit> {
        let before = self.before.clone()?;
        Some(EarlierFit {
            artifact: self.earlier_id().unwrap_or(before.artifact),
            ..before
        })
    }

    /// The artifact that the run goes on from. It may have been removed.
    pub fn continued_id(&self) -> Option<ContentId> {
        Some(self.fit_before()?.artifact)
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
        if let Some(earlier) = &self.earlier {
            let matches = earlier.matches(pipeline, bound)?;
            for (ask, learned) in matches.into_iter().enumerate() {
                let is_held = bound.can_hold(ask) && self.refits.is_held(bound.step_of(ask));
                if let Some(learned) = learned.filter(|_| is_held) {
                    bound.asks[ask].held = Some(learned.finding.clone());
                }
            }
        }
        match &self.numbering {
            Some(numbering) => numbering.apply(pipeline, bound),
            None => Ok(()),
        }
    }

    /// How findings that continue earlier ones differ from those.
    pub fn report(&self, program: &Program, state: &RunState) -> Result<Vec<ContinuedReport>> {
        let bound = &program.bound;
        let mut reports = Vec::new();
        for (ask, question) in bound
            .asks
            .iter()
            .enumerate()
            .filter(|(_, ask)| ask.ask.continues.is_some())
        {
            let finding = state.finding(program, ask)?;
            let numbering = self.numbering.as_ref();
            let before = numbering.map_or(0, |numbering| numbering.tokens_before(bound, ask));
            let tokens = finding.rows() as u64;
            let continued = self.continued_id().filter(|_| before > 0);
            let counts = finding.column("count")?.as_primitive::<UInt64Type>();
            reports.push(ContinuedReport {
                step: bound.ops[question.op].label.clone(),
                columns: question.ask.inputs.clone(),
                artifact: continued.map(|artifact| artifact.to_string()),
                tokens,
                added: tokens - before.min(tokens),
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
