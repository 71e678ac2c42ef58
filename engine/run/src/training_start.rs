//! What a training begins with: nothing, or the model of the run before.
//!
//! Which training comes before is recorded as for fits (`fits/<pipeline>/<sink>/`). The id of a training that goes on
//! from another contains that one's id, so that a repeat is known as one.

use std::collections::BTreeSet;

use bytes::Bytes;
use forebay_commit::{
    Artifact, EarlierFit, FitHistory, FitRange, LearnedFinding, Manifest, ReuseDecision,
    record_is_intact,
};
use forebay_feed::BatchFeatures;
use forebay_model::{ContentId, IdBuilder, Interval, PipelineNode, Result, TimeCutoff};
use forebay_storage::StorageLocation;
use serde_json::Value;

use crate::feed::FeedSource;
use crate::feed::selected_blocks::{BlockSelection, SelectedRows};
use crate::report::TrainingStartReport;
use crate::session::Session;
use crate::training::{Trainer, TrainingRun, publication_id};

/// A training that goes on from the model of the run before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmStart {
    /// The share of the rows of the run before that is learned from again.
    pub replay: f64,
}

/// The model of the run before.
pub(crate) struct EarlierModel {
    pub id: ContentId,
    directory: StorageLocation,
    /// Names of the blocks that it could learn from.
    seen: BTreeSet<String>,
}

/// A training before its first row is read.
pub(crate) struct TrainingPlan {
    pub id: ContentId,
    /// What is recorded under this id.
    pub standing: ReuseDecision,
    pub record: Option<Value>,
    pub begin: TrainingBegin,
    /// Set where later trainings may go on from this one.
    pub history: Option<TrainingHistory>,
}

/// What is recorded of a training for those after it.
pub(crate) struct TrainingHistory {
    /// The training that it could go on from.
    before: Option<ContentId>,
}

/// How a training begins.
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

/// Names a training that goes on from another.
fn continued_id(training: ContentId, earlier: ContentId) -> ContentId {
    let mut id = IdBuilder::new("continued training");
    id.id(training).id(earlier);
    id.finish()
}

impl TrainingRun<'_> {
    fn history_name(&self) -> String {
        format!("{}/{}", self.pipeline.name, self.training.name)
    }

    /// The rows of this run among those of others. `fresh` names the training from nothing.
    fn fit_range(&self, fresh: ContentId) -> FitRange {
        let end = self
            .interval
            .map(|interval: &Interval| TimeCutoff::before(&interval.to));
        end.or_else(|| self.session.as_of.clone())
            .map_or(FitRange::Whole(fresh), FitRange::Before)
    }

    /// Names a training and decides how it begins. `fresh` names the same training from nothing.
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
            let ((standing, record), begin) = (recorded(fresh)?, TrainingBegin::default());
            return Ok(TrainingPlan {
                id: fresh,
                standing,
                record,
                begin,
                history: None,
            });
        };
        let before = self.training_before(fresh)?;
        let history = Some(TrainingHistory { before });
        let id = before.map_or(fresh, |before| continued_id(fresh, before));
        let (standing, record) = recorded(id)?;
        if standing == ReuseDecision::Reuse {
            return Ok(TrainingPlan {
                id,
                standing,
                record,
                begin: TrainingBegin::default(),
                history,
            });
        }
        let begin = self.begin(trainer, warm, before, out, rows)?;
        if begin.earlier.is_some() {
            return Ok(TrainingPlan {
                id,
                standing,
                record,
                begin,
                history,
            });
        }
        let (standing, record) = recorded(fresh)?;
        Ok(TrainingPlan {
            id: fresh,
            standing,
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
        own: TrainingHistory,
    ) -> Result<()> {
        let name = self.history_name();
        let history = FitHistory {
            io: &self.session.io,
            root: self.store.root(),
            pipeline: &name,
        };
        let before = own.before.map(EarlierFit::of_artifact);
        history.record(&self.fit_range(fresh), id, None, before.as_ref())
    }

    /// Decides how a training begins.
    fn begin(
        &self,
        trainer: &dyn Trainer,
        warm: WarmStart,
        before: Option<ContentId>,
        out: &StorageLocation,
        rows: &FeedSource,
    ) -> Result<TrainingBegin> {
        let all = rows.rows();
        let from_nothing = |reason: String| {
            let report = TrainingStartReport {
                reason: Some(reason),
                new_rows: all,
                all_rows: all,
                ..TrainingStartReport::default()
            };
            TrainingBegin {
                earlier: None,
                rows: None,
                report: Some(report),
            }
        };
        let Some(before) = before else {
            return Ok(from_nothing("no earlier run has trained it".to_owned()));
        };
        let earlier = match self.earlier_model(trainer, before, out, &rows.features)? {
            Ok(earlier) => earlier,
            Err(reason) => return Ok(from_nothing(reason)),
        };
        let selection = BlockSelection {
            seen: &earlier.seen,
            replay: warm.replay,
            seed: before,
        };
        let Some((selected, SelectedRows { new, replayed, all })) = rows.select(&selection) else {
            return Ok(from_nothing(
                "sequences of rows are trained on as a whole".to_owned(),
            ));
        };
        if new + replayed == 0 {
            return Ok(from_nothing("no row is new".to_owned()));
        }
        let from = Some(before.to_string());
        let report = TrainingStartReport {
            from,
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
        let Some(blocks) = record["blocks"].as_array() else {
            return Ok(Err(
                "the model of the run before does not tell its rows".to_owned()
            ));
        };
        let seen = blocks
            .iter()
            .filter_map(|name| name.as_str().map(str::to_owned))
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

/// A step whose columns may mean something else than in an earlier artifact. Filters decide only which rows there are;
/// a step that was not there before decides something where the training or another step reads it now.
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
            Some(before) => makes(before) != makes(node),
            None => node.name == from,
        });
    changed.map(|node| node.name.as_str())
}

/// The step of a vocabulary whose tokens do not begin with those of an earlier artifact.
fn moved_ids(earlier: &Artifact, now: &Artifact) -> Option<String> {
    for learned in now
        .findings
        .iter()
        .filter(|learned| learned.analyzer == "vocabulary")
    {
        let same = |known: &&LearnedFinding| {
            (&known.step, &known.analyzer, &known.columns)
                == (&learned.step, &learned.analyzer, &learned.columns)
        };
        let Some(before) = earlier.findings.iter().find(same) else {
            continue;
        };
        let tokens = |of: &LearnedFinding| of.finding.table().column(0).clone();
        let (before, now) = (tokens(before), tokens(learned));
        if before.len() > now.len() || before.as_ref() != now.slice(0, before.len()).as_ref() {
            return Some(learned.step.clone());
        }
    }
    None
}
