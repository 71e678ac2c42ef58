//! Findings that a run carries on: the artifact of the run before it, for analyzers that continue
//! their findings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_cluster::NumberingSpec;
use forebay_commit::{Artifact, EarlierFit, FitHistory, FitRange};
use forebay_execute::{RunState, SourceInput};
use forebay_model::{
    ContentId, DataSplit, Dataset, Fault, IdBuilder, Interval, Pipeline, Result, TimeCutoff,
};
use forebay_plan::{BoundPipeline, Program};
use forebay_storage::Event;
use serde_json::json;

use crate::backfill_turn::BackfillStage;
use crate::carried_run::CarriedRun;
use crate::previous_artifact::PreviousArtifact;
use crate::refit::{RefitContext, RefitDecisions};
use crate::run_numbering::RunNumbering;
use crate::session::Session;

impl Session {
    /// Binds a pipeline whose analyzers continue the findings that the run carries on. The fault
    /// also holds the problems of the readers of its steps.
    pub(crate) fn bind(
        &self,
        pipeline: &Pipeline,
        datasets: &BTreeMap<String, Dataset>,
    ) -> Result<BoundPipeline> {
        let binding = self.bind_partly(pipeline, datasets);
        if !binding.faults.is_empty() {
            let readers = self.check_bound(pipeline, &binding, datasets);
            let faults = binding.faults.into_iter().chain(readers).collect();
            return Err(Fault::combine(faults)
                .unwrap_or_else(|| Fault::internal("no fault of binding is there")));
        }
        let mut bound = binding.bound;
        if let Some(carried) = &self.attempt.carried {
            carried.apply(pipeline, &mut bound)?;
        }
        Ok(bound)
    }

    /// Findings that a run carries on; `None` if no part of its pipeline depends on earlier runs.
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
            let Some(range) = range else {
                return Ok(None);
            };
            return Ok(Some(Arc::new(CarriedRun {
                range: Some(range),
                last_fit: None,
                earlier: None,
                numbering: None,
                refits: RefitDecisions::default(),
            })));
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
        let last_fit = fits.first().cloned();
        let numbering = if continues {
            Some(self.numbering_after(pipeline, bound, last_fit.as_ref())?)
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
            last_fit,
            earlier,
            numbering,
            refits,
        })))
    }

    pub(crate) fn earlier_artifact(&self, id: ContentId) -> Result<PreviousArtifact> {
        let location = Artifact::directory(&self.state()?, id);
        PreviousArtifact::of(self, Artifact::load(&self.io, &location)?, location)
    }

    /// A worker's session, which continues the same findings as its coordinator.
    pub(crate) fn carrying(
        &self,
        earlier: Option<ContentId>,
        held_steps: &BTreeSet<String>,
        numbering: &Option<NumberingSpec>,
    ) -> Result<Session> {
        let earlier = earlier
            .map(|id| self.earlier_artifact(id).map(Arc::new))
            .transpose()?;
        let root = self.state()?;
        let numbering = numbering
            .clone()
            .map(|spec| RunNumbering::new(self.io.clone(), root, spec));
        let refits = RefitDecisions::of_worker(held_steps.iter().cloned());
        Ok(self.with_carried(Some(Arc::new(CarriedRun {
            range: None,
            last_fit: None,
            earlier,
            numbering,
            refits,
        }))))
    }

    /// The artifact whose statistics the run may hold.
    pub(crate) fn earlier_id(&self) -> Option<ContentId> {
        self.attempt.carried.as_ref()?.earlier_id()
    }

    /// The artifact that the run continues. It may have been removed.
    pub(crate) fn continued_id(&self) -> Option<ContentId> {
        self.attempt.carried.as_ref()?.continued_id()
    }

    /// The ids of tokens that the run continues, as workers need to know them.
    pub(crate) fn numbering_spec(&self) -> Option<NumberingSpec> {
        let numbering = self.attempt.carried.as_ref()?.numbering.as_ref()?;
        Some(numbering.spec().clone())
    }

    /// Decisions of the run about findings of earlier runs: those that steps hold, and those that they learn again.
    pub(crate) fn refit_decisions(&self) -> RefitDecisions {
        let carried = self.attempt.carried.as_ref();
        carried
            .map(|carried| carried.refits.clone())
            .unwrap_or_default()
    }

    /// The steps that hold findings of this artifact.
    pub(crate) fn held_steps(&self) -> BTreeSet<String> {
        self.attempt
            .carried
            .iter()
            .flat_map(|carried| carried.refits.held())
            .cloned()
            .collect()
    }

    /// Records the findings of the run, for the runs after it.
    pub(crate) fn record_fit(
        &self,
        program: &Program,
        learned: &RunState,
        artifact: ContentId,
    ) -> Result<()> {
        let Some(carried) = &self.attempt.carried else {
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
        let last_fit = carried.fit_before();
        history.record(range, artifact, numbering, last_fit.as_ref())
    }
}

/// Id of the rows of a run and the operations on them, by which a repeated run is recognised.
pub(crate) fn input_id(
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
