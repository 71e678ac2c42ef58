//! Cadence of trainings: a model of an earlier run stays in force until the policy of its training calls for another.
//!
//! As for the statistics of steps, a decision depends on the data, the earlier training and the spec alone, never on
//! the clock: a repeated run decides the same. The order of trainings is recorded as that of fits
//! (`fits/<pipeline>/<sink>/refit/`), the model and its time with the training.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_commit::{
    Artifact, EarlierFit, FitHistory, FitRange, Manifest, ReuseDecision, StateStore,
    record_is_intact,
};
use forebay_contract::{Trainer, TrainingReport};
use forebay_execute::SourceInput;
use forebay_model::{
    ContentId, IdBuilder, Interval, Pipeline, PipelineNode, PipelineSink, RefitPolicy, Result,
    TimeCutoff,
};
use forebay_plan::{BoundPipeline, OpStream, StepRefit};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::backfill_turn::BackfillStage;
use crate::carried::input_id;
use crate::model_place::{model_location, publication_id};
use crate::predict::accepts_missing;
use crate::previous_artifact::PreviousArtifact;
use crate::refit::{RefitContext, base_sources, reason_to_refit};
use crate::session::Session;

/// Reason for the first training.
const FIRST: &str = "no earlier run had trained it";

/// Cadences of the trainings of a run, by sink. Trainings of every run have none.
pub(crate) type TrainingCadences = BTreeMap<String, TrainingCadence>;

/// Decision about a training that is not done in each run.
pub(crate) struct TrainingCadence {
    /// The decision, for people. Its step is the sink.
    pub refit: StepRefit,
    /// The model that stays in force; `None` if the run trains.
    pub held: Option<HeldModel>,
    /// The rows of this run among those of others.
    range: FitRange,
    /// The training of the run before.
    before: Option<ContentId>,
    /// Id of everything that determines the model besides its rows.
    question: ContentId,
    /// Id of the filters, which select its rows.
    filters: ContentId,
    /// True if the model that stays in force was trained on the rows of other filters.
    pub filters_changed: bool,
}

/// A model of an earlier run that stays in force.
pub(crate) struct HeldModel {
    /// The training.
    pub id: ContentId,
    pub manifest: Manifest,
    pub learned: TrainingReport,
    /// The artifact that its features are made with.
    pub artifact: Arc<PreviousArtifact>,
}

/// Part of a training's record: since when it is in force, and why.
#[derive(Serialize, Deserialize)]
struct CadenceRecord {
    question: String,
    since: Option<String>,
    reason: String,
    /// Not recorded by earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filters: Option<String>,
}

impl TrainingCadence {
    /// The part of a training's record that later runs need.
    pub fn record(&self) -> Value {
        json!(CadenceRecord {
            question: self.question.to_string(),
            since: self.refit.since.clone(),
            reason: self.refit.reason.clone(),
            filters: Some(self.filters.to_string()),
        })
    }

    /// The decision as the first run of this training reported it: a repeat no longer finds the model that was
    /// replaced.
    pub fn reported(&self, reused: Option<&Value>) -> StepRefit {
        let record = reused.map(|record| record["cadence"].clone());
        let record: Option<CadenceRecord> =
            record.and_then(|record| serde_json::from_value(record).ok());
        let mut refit = self.refit.clone();
        if let Some(record) = record {
            refit.since = record.since;
            refit.reason = record.reason;
        }
        refit
    }

    /// Records the training whose model is in force after this run, for the runs after it.
    pub fn record_order(
        &self,
        session: &Session,
        store: &StateStore,
        pipeline: &Pipeline,
        training: ContentId,
    ) -> Result<()> {
        let name = history_name(pipeline, &self.refit.step);
        let history = FitHistory {
            io: &session.io,
            root: store.root(),
            pipeline: &name,
        };
        let earlier_fit = self.before.map(EarlierFit::of_artifact);
        history.record(&self.range, training, None, earlier_fit.as_ref())
    }
}

/// Trainings of a run, as far as they decide which rows it writes for them.
pub(crate) struct TrainingNeeds<'a> {
    pub cadences: &'a TrainingCadences,
    pub interval: Option<&'a Interval>,
    /// True if the boundaries of the split move with the data.
    pub is_moving: bool,
}

impl TrainingNeeds<'_> {
    /// True if the rows of a training are written. Those of an interval are written in its own run alone, and read by
    /// trainings of later ones.
    pub fn includes(&self, training: &PipelineSink) -> bool {
        self.interval.is_some() || !is_held(self.cadences, &training.name)
    }
}

/// True if the model of a training stays in force.
pub(crate) fn is_held(cadences: &TrainingCadences, sink: &str) -> bool {
    cadences
        .get(sink)
        .is_some_and(|cadence| cadence.held.is_some())
}

impl Session {
    /// Decides which trainings a run leaves out, because a model of an earlier run stays in force.
    pub(crate) fn training_cadences(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        sources: &BTreeMap<String, SourceInput>,
        interval: Option<&Interval>,
    ) -> Result<TrainingCadences> {
        let mut cadences = BTreeMap::new();
        for training in &pipeline.trainings {
            let trainer = self.trainer(training)?;
            let Some(policy) = trainer.refit()? else {
                continue;
            };
            // Of intervals side by side, each goes on from the one before.
            self.wait_for_previous_run(BackfillStage::Done)?;
            let context = RefitContext {
                pipeline,
                bound,
                sources,
                interval,
                earlier: None,
            };
            let cadence = self
                .training_cadence(&context, training, trainer.as_ref(), &policy)
                .map_err(|fault| fault.at(training.at.as_ref()))?;
            cadences.insert(training.name.clone(), cadence);
        }
        Ok(cadences)
    }

    fn training_cadence(
        &self,
        context: &RefitContext<'_>,
        training: &PipelineSink,
        trainer: &dyn Trainer,
        policy: &RefitPolicy,
    ) -> Result<TrainingCadence> {
        let RefitContext {
            pipeline,
            bound,
            sources,
            interval,
            ..
        } = context;
        let end = interval.map(|interval| TimeCutoff::before(&interval.to));
        let range = match end.or_else(|| self.as_of.clone()) {
            Some(end) => FitRange::Before(end),
            None => FitRange::Whole(input_id(pipeline, bound, sources)),
        };
        let streams: Vec<&OpStream> = bound
            .flows
            .get(&training.from)
            .into_iter()
            .flat_map(|flow| &flow.streams)
            .collect();
        let read = base_sources(bound, streams);
        let now = self.newest_time_text(context, read, policy.after.as_deref())?;
        let store = StateStore::new(self.io.clone(), self.state()?);
        let name = history_name(pipeline, &training.name);
        let history = FitHistory {
            io: &self.io,
            root: store.root(),
            pipeline: &name,
        };
        let earlier_training = history.before(&range)?.first().map(|fit| fit.artifact);
        let question = question_id(self, pipeline, training, trainer)?;
        let mut cadence = TrainingCadence {
            refit: StepRefit {
                step: training.name.clone(),
                refit: policy.to_string(),
                held: false,
                since: now.clone(),
                reason: FIRST.to_owned(),
                drift: None,
            },
            held: None,
            range,
            before: earlier_training,
            question,
            filters: filters_id(pipeline),
            filters_changed: false,
        };
        let Some(earlier_training) = earlier_training else {
            return Ok(cadence);
        };
        match self.model_in_force(context, training, &store, earlier_training, question)? {
            Err(reason) => cadence.refit.reason = reason,
            Ok((model, record)) => {
                let since = record.since.as_deref();
                if let Some(reason) = reason_to_refit(policy, since, now.as_deref())? {
                    cadence.refit.reason = reason;
                } else {
                    let filters = cadence.filters.to_string();
                    let trained_with = record.filters.as_ref();
                    cadence.filters_changed = trained_with.is_some_and(|other| *other != filters);
                    cadence.refit.held = true;
                    cadence.refit.since = record.since;
                    cadence.refit.reason = record.reason;
                    cadence.held = Some(model);
                }
            }
        }
        Ok(cadence)
    }

    /// The model of an earlier training, or why it cannot stay in force.
    fn model_in_force(
        &self,
        context: &RefitContext<'_>,
        training: &PipelineSink,
        store: &StateStore,
        id: ContentId,
        question: ContentId,
    ) -> Result<std::result::Result<(HeldModel, CadenceRecord), String>> {
        let out = model_location(self, context.pipeline, training, store)?;
        let intact = |record: &Value| record_is_intact(&self.io, &out, record);
        let (ReuseDecision::Reuse, Some(record)) =
            store.pass_record(publication_id(id, &out), intact)?
        else {
            return Ok(Err("the model of the run before is gone".to_owned()));
        };
        let Ok(record_of_cadence) =
            serde_json::from_value::<CadenceRecord>(record["cadence"].clone())
        else {
            return Ok(Err("it was trained before it had a `refit`".to_owned()));
        };
        if record_of_cadence.question != question.to_string() {
            return Ok(Err(
                "the spec of the model or of its rows had changed".to_owned()
            ));
        }
        let manifest = Manifest::from_record(&record)?;
        let Ok(learned) = serde_json::from_value(record["learned"].clone()) else {
            return Ok(Err("the record of the model cannot be read".to_owned()));
        };
        let Some(shard) = manifest.shards.first() else {
            return Ok(Err("the model of the run before has no files".to_owned()));
        };
        let location = out.join(&shard.directory()?).join("artifact");
        let artifact = Artifact::load(&self.io, &location)?;
        let artifact = PreviousArtifact::of(self, artifact, location)?;
        let findings = artifact.findings_for(context.pipeline, context.bound);
        if findings.is_none() {
            return Ok(Err("what its features learn had changed".to_owned()));
        }
        let model = HeldModel {
            id,
            manifest,
            learned,
            artifact: Arc::new(artifact),
        };
        Ok(Ok((model, record_of_cadence)))
    }
}

fn history_name(pipeline: &Pipeline, sink: &str) -> String {
    format!("{}/{sink}/refit", pipeline.name)
}

/// The settings of a step that determine what a model learns.
fn node_question(node: &PipelineNode) -> Value {
    let steps = node.steps.iter().filter(|step| step.kind != "filter");
    let steps: Vec<Value> = steps.map(|step| json!([step.kind, step.config])).collect();
    json!([node.name, node.input, node.fit_on, steps])
}

/// Id of the filters of all steps.
fn filters_id(pipeline: &Pipeline) -> ContentId {
    let mut filters = Vec::new();
    for node in &pipeline.nodes {
        for step in node.steps.iter().filter(|step| step.kind == "filter") {
            filters.push(json!([node.name, step.config]));
        }
    }
    let mut id = IdBuilder::new("filters of a training");
    id.json(&json!(filters));
    id.finish()
}

/// Id of everything that determines a model and its forecasts by other programs besides its rows: the training, the
/// steps, the names of the parts and the treatment of missing values. Filters only select rows.
fn question_id(
    session: &Session,
    pipeline: &Pipeline,
    training: &PipelineSink,
    trainer: &dyn Trainer,
) -> Result<ContentId> {
    let nodes: Vec<Value> = pipeline.nodes.iter().map(node_question).collect();
    let parts = pipeline.split.as_ref().map(|split| split.parts());
    let label = pipeline
        .label
        .as_ref()
        .map(|label| json!([label.column, label.horizon, label.known]));
    let mut id = IdBuilder::new("asked training");
    id.json(&trainer.identity()?)
        .text(&training.from)
        .json(&json!([nodes, parts, label, training.split]));
    if accepts_missing(session, pipeline, &training.from)? {
        id.text("accepts missing values");
    }
    Ok(id.finish())
}
