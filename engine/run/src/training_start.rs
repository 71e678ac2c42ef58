//! Start of a training: without a model, or from the model of the run before.
//!
//! The preceding training is recorded as for fits (`fits/<pipeline>/<sink>/`). The id of a training
//! that continues another contains that one's id, so that a repeat is recognised.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_commit::{
    Artifact, EarlierFit, FitHistory, FitRange, LearnedFinding, Manifest, ReuseDecision,
    record_is_intact,
};
use forebay_contract::{FeedSource, Trainer, TrainingStartReport, WarmStart};
use forebay_feed::BatchFeatures;
use forebay_model::{ContentId, IdBuilder, Interval, PipelineNode, Result, TimeCutoff};
use forebay_storage::StorageLocation;
use serde_json::Value;

use crate::feed::selected_blocks::{BlockSelection, SelectedRows, select_blocks};
use crate::model_place::publication_id;
use crate::session::Session;
use crate::training_run::TrainingRun;

/// The model of the run before.
pub(crate) struct EarlierModel {
    pub id: ContentId,
    directory: StorageLocation,
    /// The blocks that it could learn from, with their rows.
    seen: BTreeMap<String, u64>,
}

/// A training before its first row is read.
pub(crate) struct TrainingPlan {
    pub id: ContentId,
    /// Recorded result under this id.
    pub decision: ReuseDecision,
    pub record: Option<Value>,
    pub begin: TrainingBegin,
    /// Set where later trainings may go on from this one.
    pub history: Option<TrainingHistory>,
}

/// Record of a training for those after it.
pub(crate) struct TrainingHistory {
    /// The training that it could go on from.
    before: Option<ContentId>,
}

/// Start of a training.
#[derive(Default)]
pub(crate) struct TrainingBegin {
    pub earlier: Option<EarlierModel>,
    /// The rows to learn from, where these are not all.
    pub rows: Option<FeedSource>,
    pub report: Option<TrainingStartReport>,
}

impl EarlierModel {
    /// A file of the model.
    pub fn file(&self, session: &Session, name: &str) -> Result<Option<Bytes>> {
        session.io.get(&self.directory.join(name))
    }
}

/// Id of a training that continues another.
fn continued_id(training: ContentId, earlier: ContentId) -> ContentId {
    let mut id = IdBuilder::new("continued training");
    id.id(training).id(earlier);
    id.finish()
}

impl TrainingRun<'_> {
    fn history_name(&self) -> String {
        format!("{}/{}", self.pipeline.name, self.training.name)
    }

    /// The rows of this run among those of others. `fresh` is the id of the training without an
    /// earlier model.
    fn fit_range(&self, fresh: ContentId) -> FitRange {
        let end = self
            .interval
            .map(|interval: &Interval| TimeCutoff::before(&interval.to));
        end.or_else(|| self.session.as_of.clone())
            .map_or(FitRange::Whole(fresh), FitRange::Before)
    }

    /// Chooses the id and the start of a training. `fresh` is the id of the same training without
    /// an earlier model.
    pub(crate) fn plan(
        &self,
        trainer: &dyn Trainer,
        fresh: ContentId,
        out: &StorageLocation,
        rows: &FeedSource,
    ) -> Result<TrainingPlan> {
        let intact = |record: &Value| record_is_intact(&self.session.io, out, record);
        let recorded = |id| self.store.pass_record(publication_id(id, out), intact);
        let Some(warm) = trainer.warm_start() else {
            let (decision, record) = recorded(fresh)?;
            let begin = TrainingBegin::default();
            return Ok(TrainingPlan {
                id: fresh,
                decision,
                record,
                begin,
                history: None,
            });
        };
        let earlier_id = self.training_before(fresh)?;
        let history = Some(TrainingHistory { before: earlier_id });
        let id = earlier_id.map_or(fresh, |earlier_id| continued_id(fresh, earlier_id));
        let (decision, record) = recorded(id)?;
        if decision == ReuseDecision::Reuse {
            return Ok(TrainingPlan {
                id,
                decision,
                record,
                begin: TrainingBegin::default(),
                history,
            });
        }
        let begin = self.begin(trainer, warm, earlier_id, out, rows)?;
        if begin.earlier.is_some() {
            return Ok(TrainingPlan {
                id,
                decision,
                record,
                begin,
                history,
            });
        }
        let (decision, record) = recorded(fresh)?;
        Ok(TrainingPlan {
            id: fresh,
            decision,
            record,
            begin,
            history,
        })
    }

    /// The training that this one could go on from.
    fn training_before(&self, fresh: ContentId) -> Result<Option<ContentId>> {
        let name = self.history_name();
        let history = FitHistory {
            io: &self.session.io,
            root: self.store.root(),
            pipeline: &name,
        };
        let fits = history.before(&self.fit_range(fresh))?;
        Ok(fits.first().map(|fit| fit.artifact))
    }

    /// Records a training, for those after it.
    pub(crate) fn record_training(
        &self,
        fresh: ContentId,
        id: ContentId,
        training_history: TrainingHistory,
    ) -> Result<()> {
        let name = self.history_name();
        let history = FitHistory {
            io: &self.session.io,
            root: self.store.root(),
            pipeline: &name,
        };
        let last_fit = training_history.before.map(EarlierFit::of_artifact);
        history.record(&self.fit_range(fresh), id, None, last_fit.as_ref())
    }

    /// Decides how a training begins.
    fn begin(
        &self,
        trainer: &dyn Trainer,
        warm: WarmStart,
        earlier_id: Option<ContentId>,
        out: &StorageLocation,
        rows: &FeedSource,
    ) -> Result<TrainingBegin> {
        let all_rows = rows.rows();
        let from_nothing = |reason: String| {
            let report = TrainingStartReport {
                reason: Some(reason),
                new_rows: all_rows,
                all_rows,
                ..TrainingStartReport::default()
            };
            TrainingBegin {
                earlier: None,
                rows: None,
                report: Some(report),
            }
        };
        let Some(earlier_id) = earlier_id else {
            return Ok(from_nothing("no earlier run has trained it".to_owned()));
        };
        let earlier = match self.earlier_model(trainer, earlier_id, out, &rows.features)? {
            Ok(earlier) => earlier,
            Err(reason) => return Ok(from_nothing(reason)),
        };
        let selection = BlockSelection {
            seen: &earlier.seen,
            replay: warm.replay,
            seed: earlier_id,
        };
        let Some((selected, SelectedRows { new, replayed, all })) = select_blocks(rows, &selection)
        else {
            return Ok(from_nothing(
                "sequences of rows are trained on as a whole".to_owned(),
            ));
        };
        if new + replayed == 0 {
            return Ok(from_nothing("no row is new".to_owned()));
        }
        let report = TrainingStartReport {
            from: Some(earlier_id.to_string()),
            reason: None,
            new_rows: new,
            replayed_rows: replayed,
            all_rows: all,
        };
        Ok(TrainingBegin {
            earlier: Some(earlier),
            rows: Some(selected),
            report: Some(report),
        })
    }

    /// The model of an earlier training, or why it is of no use.
    fn earlier_model(
        &self,
        trainer: &dyn Trainer,
        id: ContentId,
        out: &StorageLocation,
        features: &BatchFeatures,
    ) -> Result<std::result::Result<EarlierModel, String>> {
        let intact = |record: &Value| record_is_intact(&self.session.io, out, record);
        let (ReuseDecision::Reuse, Some(record)) =
            self.store.pass_record(publication_id(id, out), intact)?
        else {
            return Ok(Err("the model of the run before is gone".to_owned()));
        };
        let Some(blocks) = record["blocks"].as_object() else {
            return Ok(Err(
                "the model of the run before does not tell its rows".to_owned()
            ));
        };
        let seen = blocks
            .iter()
            .filter_map(|(name, rows)| Some((name.clone(), rows.as_u64()?)))
            .collect();
        let manifest = Manifest::from_record(&record)?;
        let Some(shard) = manifest.shards.first() else {
            return Ok(Err("the model of the run before has no files".to_owned()));
        };
        let earlier = EarlierModel {
            id,
            directory: out.join(&shard.directory()?),
            seen,
        };
        let artifact = Artifact::load(&self.session.io, &earlier.directory.join("artifact"))?;
        if let Some(step) = moved_ids(&artifact, self.artifact) {
            return Ok(Err(format!(
                "the ids of `{step}` have moved: `stable: true` would keep them"
            )));
        }
        if let Some(step) = changed_step(&artifact, self.artifact, &self.training.from) {
            return Ok(Err(format!("`{step}` changed since the run before")));
        }
        let read = |name: &str| earlier.file(self.session, name);
        let refusal = trainer.refuse_start(&read, features)?;
        Ok(refusal.map_or(Ok(earlier), Err))
    }
}

/// A step whose columns may have another meaning than in an earlier artifact. Filters only select
/// rows; a new step matters if the training or another step reads it now.
fn changed_step<'a>(earlier: &Artifact, now: &'a Artifact, from: &str) -> Option<&'a str> {
    let makes = |node: &PipelineNode| {
        let steps = node.steps.iter().filter(|step| step.kind != "filter");
        (
            node.input.clone(),
            steps
                .map(|step| (step.kind.clone(), step.config.clone()))
                .collect::<Vec<_>>(),
        )
    };
    let changed = now
        .pipeline
        .nodes
        .iter()
        .find(|node| match earlier.pipeline.node(&node.name) {
            Some(node_before) => makes(node_before) != makes(node),
            None => node.name == from,
        });
    changed.map(|node| node.name.as_str())
}

/// The step of a vocabulary whose tokens do not start with those of an earlier artifact.
fn moved_ids(earlier: &Artifact, current: &Artifact) -> Option<String> {
    for learned in current
        .findings
        .iter()
        .filter(|learned| learned.analyzer == "vocabulary")
    {
        let same = |candidate: &&LearnedFinding| {
            (&candidate.step, &candidate.analyzer, &candidate.columns)
                == (&learned.step, &learned.analyzer, &learned.columns)
        };
        let Some(earlier_tokens) = earlier.findings.iter().find(same) else {
            continue;
        };
        let tokens = |learned: &LearnedFinding| learned.finding.table().column(0).clone();
        let earlier_tokens = tokens(earlier_tokens);
        let current = tokens(learned);
        if earlier_tokens.len() > current.len()
            || earlier_tokens.as_ref() != current.slice(0, earlier_tokens.len()).as_ref()
        {
            return Some(learned.step.clone());
        }
    }
    None
}
