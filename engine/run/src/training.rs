//! Trainings of a run.
//!
//! They run after all passes, read the feed of their step, and are published like outputs, with
//! those of their run: files first, then the manifest that names them. A training's id names
//! everything that determines its model; a model that is committed under it is never trained again,
//! and it names the checkpoints.

use std::sync::Arc;

use bytes::Bytes;
use forebay_commit::{
    Artifact, Manifest, OutputFile, ReuseDecision, Shard, StateStore, record_is_intact,
    shard_directory, unique_shard_directory, visible_location,
};
use forebay_contract::{
    BaselineReport, FeedSource, StepColumns, StepStrategy, TakePartFn, Trainer, TrainingContext,
    TrainingReport, TrainingServices,
};
use forebay_feed::{FeedConfig, FeedOrder, ORDER_VERSION};
use forebay_model::{
    ContentId, Fault, IdBuilder, Interval, Pipeline, PipelineSink, RelativePath, Result,
    ScratchSpace, codes,
};
use forebay_plan::{StepRefit, step_columns, unit_mismatch};
use forebay_storage::failpoint::step;
use forebay_storage::{BackgroundTasks, Event, StorageLocation};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

use crate::deadline::DeadlineMonitor;
use crate::executor::RunExecutor;
use crate::feed::selected_blocks::rows_of_blocks;
use crate::label_copies::{copy_warning, label_copies};
use crate::model_place::{place_of, publication_id};
use crate::predict::{accepts_missing, declared_horizon};
use crate::previous_artifact::PreviousArtifact;
use crate::report::{ModelReport, PassReport};
use crate::session::Session;
use crate::training_cadence::{HeldModel, TrainingCadence, TrainingCadences};
use crate::training_checks::label_column;
use crate::training_run::TrainingRun;
use crate::training_split::{train_part, validation_part};
use crate::training_start::{EarlierModel, TrainingPlan};

impl Session {
    pub(crate) fn trainer(&self, training: &PipelineSink) -> Result<Arc<dyn Trainer>> {
        self.connectors
            .trainer(&training.format, &training.config)
            .map_err(|fault| fault.at(training.at.as_ref()))
    }

    /// Trains all models of a pipeline with the findings of the artifact, but for those that stay in force.
    pub(crate) fn train(
        &self,
        run: &RunExecutor<'_>,
        (artifact, cadences): (&Artifact, &TrainingCadences),
        interval: Option<&Interval>,
        passes: &mut Vec<PassReport>,
        monitor: &DeadlineMonitor,
    ) -> Result<Vec<UnpublishedModel>> {
        let RunExecutor {
            pipeline,
            store,
            scratch,
            ..
        } = run;
        let mut models = Vec::new();
        let total = passes.len() + pipeline.trainings.len();
        for training in &pipeline.trainings {
            let number = passes.len() + 1;
            let label = training_pass_name(training);
            monitor.begin(&label);
            let located = |fault: Fault| {
                fault
                    .at(training.at.as_ref())
                    .pass(format!("{number} of {total} ({label})"))
            };
            let training = TrainingRun {
                session: self,
                pipeline,
                training,
                artifact,
                cadence: cadences.get(&training.name),
                interval,
                store,
                scratch,
            };
            let (model, pass) = training.run(number, total, &label).map_err(located)?;
            self.watch.on_event(Event::PassDone {
                number,
                reused: pass.reused,
                rows: pass.rows_in,
                filtered: 0,
            });
            monitor.end(pass.reused);
            models.push(model);
            passes.push(pass);
        }
        Ok(models)
    }
}

/// Name of a training as a pass.
pub(crate) fn training_pass_name(training: &PipelineSink) -> String {
    format!("train {}", training.name)
}

/// The parts that a training reads; `None` is all rows.
pub(crate) fn training_parts(
    pipeline: &Pipeline,
    training: &PipelineSink,
    trainer: &dyn Trainer,
) -> Vec<Option<String>> {
    let train = train_part(pipeline, training);
    let validation = validation_part(pipeline, training, trainer.validation());
    // All rows hold those of every part.
    let validation = validation.filter(|_| train.is_some());
    std::iter::once(train).chain(validation.map(Some)).collect()
}

/// A model that is trained and recorded, and that readers do not see yet.
pub(crate) struct UnpublishedModel {
    training: PipelineSink,
    out: StorageLocation,
    manifest: Manifest,
    id: ContentId,
    reused: bool,
    learned: TrainingReport,
    /// The decision about a training that is not done in each run.
    refit: Option<StepRefit>,
    /// The artifact of a model that stays in force.
    earlier: Option<Arc<PreviousArtifact>>,
}

impl UnpublishedModel {
    /// The name of its sink.
    pub fn name(&self) -> &str {
        &self.training.name
    }

    /// Id of everything that determines it.
    pub fn id(&self) -> ContentId {
        self.id
    }

    /// The artifact that its features are made with, where that is one of an earlier run.
    pub fn earlier(&self) -> Option<&Arc<PreviousArtifact>> {
        self.earlier.as_ref()
    }

    /// The directory of its files.
    pub fn directory(&self) -> Result<StorageLocation> {
        let shard = self
            .manifest
            .shards
            .first()
            .ok_or_else(|| Fault::internal("a model without files"))?;
        Ok(self.out.join(&shard.directory()?))
    }

    /// Shows the model to readers.
    pub fn publish(self, session: &Session, store: &StateStore) -> Result<ModelReport> {
        let UnpublishedModel {
            training,
            out,
            manifest,
            id,
            reused,
            learned,
            refit,
            earlier: _,
        } = self;
        let mut background = BackgroundTasks::default();
        let published = manifest
            .publish(
                &session.io,
                &out,
                None,
                (&|| session.check_fence(), &mut background),
            )
            .map_err(|fault| {
                fault
                    .at(training.at.as_ref())
                    .pass(training_pass_name(&training))
            })?;
        background.join_all()?;
        store.drop_checkpoint(id)?;
        store.drop_shared(id)?;
        let mut part = 0;
        while store.get_checkpoint(part_id(id, part))?.is_some() {
            store.drop_checkpoint(part_id(id, part))?;
            part += 1;
        }
        let data = published.manifest.shown_at(&out);
        Ok(ModelReport {
            sink: training.name,
            path: visible_location(&out).shown,
            data,
            id: id.to_string(),
            reused,
            refit,
            learned,
            is_new: published.is_new,
        })
    }
}

/// The model and the report of a training that an earlier run has recorded.
fn recorded_training(record: &Value) -> Result<(Manifest, TrainingReport)> {
    let manifest = Manifest::from_record(record)?;
    let report = serde_json::from_value(record["learned"].clone()).map_err(|error| {
        let message = "the record of a training cannot be read";
        Fault::new(codes::STATE_VERSION, message).cause(error)
    })?;
    Ok((manifest, report))
}

/// The rows and columns of a training.
struct TrainingRows {
    rows: FeedSource,
    validation: Option<FeedSource>,
    /// Steps of the horizon and their known columns, for a model for each step.
    steps: Option<StepColumns>,
}

/// A training that is carried out.
struct RunningTraining<'a> {
    run: &'a TrainingRun<'a>,
    id: ContentId,
    out: &'a StorageLocation,
    /// The model that it continues.
    earlier: Option<&'a EarlierModel>,
}

impl TrainingServices for RunningTraining<'_> {
    fn sink(&self) -> &str {
        &self.run.training.name
    }

    fn feed_columns(&self, config: FeedConfig) -> Result<FeedSource> {
        let TrainingRun {
            training,
            pipeline,
            artifact,
            interval,
            session,
            ..
        } = self.run;
        let config = FeedConfig {
            from: Some(training.from.clone()),
            split: self.run.train_part(),
            ..config
        };
        session.plan_feed(pipeline, Some(artifact), &config, *interval)
    }

    fn check(&self) -> Result<()> {
        self.run.session.interrupt.check()
    }

    fn emit(&self, event: Event) {
        self.run.session.watch.on_event(event);
    }

    fn checkpoint(&self) -> Result<Option<Vec<u8>>> {
        self.run.store.get_checkpoint(self.id)
    }

    fn save_checkpoint(&self, checkpoint: &[u8]) -> Result<()> {
        self.run
            .store
            .put_checkpoint(self.id, checkpoint, self.run.scratch)
    }

    fn finished_part(&self, part: u64) -> Result<Option<Vec<u8>>> {
        self.run.store.get_checkpoint(part_id(self.id, part))
    }

    fn save_part(&self, part: u64, bytes: &[u8]) -> Result<()> {
        self.run
            .store
            .put_checkpoint(part_id(self.id, part), bytes, self.run.scratch)
    }

    fn published_file(&self, name: &str) -> Result<Option<Bytes>> {
        let io = &self.run.session.io;
        let Some(manifest) = Manifest::read(io, self.out)? else {
            return Ok(None);
        };
        io.get(&self.out.join(&manifest.data).join(name))
    }

    fn earlier_id(&self) -> Option<ContentId> {
        self.earlier.map(|earlier| earlier.id)
    }

    fn earlier_file(&self, name: &str) -> Result<Option<Bytes>> {
        self.earlier
            .map_or(Ok(None), |earlier| earlier.file(self.run.session, name))
    }

    fn scratch(&self) -> Arc<dyn ScratchSpace> {
        let memory = self.run.session.memory();
        let bytes = memory.states_bytes();
        self.run.scratch.scratch_with_budget(memory, bytes)
    }

    fn worker_slots(&self) -> Result<Option<usize>> {
        self.run.worker_slots()
    }

    fn train_on_workers(
        &self,
        parts: &mut dyn Iterator<Item = Result<Vec<u8>>>,
        take: TakePartFn<'_>,
    ) -> Result<()> {
        self.run.train_on_workers(self.id, parts, take)
    }
}

impl TrainingRun<'_> {
    /// The model of an earlier run, which stays in force.
    fn keep_model(
        &self,
        trainer: &dyn Trainer,
        cadence: &TrainingCadence,
        kept_model: &HeldModel,
    ) -> Result<(UnpublishedModel, PassReport)> {
        let out = self.place(trainer)?;
        cadence.record_order(self.session, self.store, self.pipeline, kept_model.id)?;
        if cadence.filters_changed {
            let message = format!(
                "`{}` stays in force as it was trained: a filter has changed since, and selects \
                 the rows of the next training only",
                self.training.name
            );
            let hint = "to train now, run once without `refit`";
            self.session
                .warn(&Fault::new(codes::BAD_VALUE, message).hint(hint));
        }
        let pass = PassReport {
            id: publication_id(kept_model.id, &out).to_string(),
            work: "train",
            reused: true,
            rows_in: kept_model.learned.rows,
            rows_kept: kept_model.learned.rows,
            rows_skipped: 0,
            rows_filtered: 0,
            rows_expanded: 0,
            rows_out: 0,
            changes: kept_model.learned.changes.clone(),
        };
        let model = UnpublishedModel {
            training: self.training.clone(),
            out,
            manifest: kept_model.manifest.clone(),
            id: kept_model.id,
            reused: true,
            learned: kept_model.learned.clone(),
            refit: Some(cadence.refit.clone()),
            earlier: Some(kept_model.artifact.clone()),
        };
        Ok((model, pass))
    }

    /// Trains, or takes the model that the same training has recorded, or the one that stays in force.
    fn run(
        &self,
        number: usize,
        total: usize,
        label: &str,
    ) -> Result<(UnpublishedModel, PassReport)> {
        self.session.interrupt.check()?;
        let trainer = self.session.trainer(self.training)?;
        if let Some(cadence) = self.cadence
            && let Some(kept_model) = &cadence.held
        {
            return self.keep_model(trainer.as_ref(), cadence, kept_model);
        }
        let out = self.place(trainer.as_ref())?;
        let inputs = self.inputs(trainer.as_ref())?;
        let from_scratch = self.id_from_scratch(trainer.as_ref(), &inputs)?;
        let mut plan = self.plan(trainer.as_ref(), from_scratch, &out, &inputs.rows)?;
        let id = plan.id;
        self.session.watch.on_event(Event::PassStarted {
            number,
            total,
            label: label.to_owned(),
            id: id.to_string(),
            bytes: None,
        });
        // The record of a training is per location: the same model may be published in several.
        let pass = publication_id(id, &out);
        let record = plan
            .record
            .take()
            .filter(|_| plan.decision == ReuseDecision::Reuse);
        let reused = record.is_some();
        let refit = self
            .cadence
            .map(|cadence| cadence.reported(record.as_ref()));
        let history = plan.history.take();
        let (manifest, learned) = match record {
            Some(record) => recorded_training(&record)?,
            None => {
                let keeps_history = history.is_some();
                self.train_anew(trainer.as_ref(), inputs, plan, &out, keeps_history)?
            }
        };
        if let Some(history) = history {
            self.record_training(from_scratch, id, history)?;
        }
        if let Some(cadence) = self.cadence {
            cadence.record_order(self.session, self.store, self.pipeline, id)?;
        }
        let pass = PassReport {
            id: pass.to_string(),
            work: "train",
            reused,
            rows_in: learned.rows,
            rows_kept: if reused { learned.rows } else { 0 },
            rows_skipped: 0,
            rows_filtered: 0,
            rows_expanded: 0,
            rows_out: 0,
            changes: learned.changes.clone(),
        };
        let model = UnpublishedModel {
            training: self.training.clone(),
            out,
            manifest,
            id,
            reused,
            learned,
            refit,
            earlier: None,
        };
        Ok((model, pass))
    }

    /// The rows and columns that a trainer gets.
    fn inputs(&self, trainer: &dyn Trainer) -> Result<TrainingRows> {
        let rows = self.rows(trainer)?;
        let validation = self.validation(trainer)?;
        let steps = if trainer.step_strategy() == Some(StepStrategy::PerStep) {
            Some(self.step_columns()?)
        } else {
            None
        };
        Ok(TrainingRows {
            rows,
            validation,
            steps,
        })
    }

    /// The id of a training from scratch. `plan` replaces it if the training continues an earlier model, since that
    /// model determines the result, too (decisions/warm-starts.md).
    fn id_from_scratch(&self, trainer: &dyn Trainer, inputs: &TrainingRows) -> Result<ContentId> {
        let mut id = self.id(trainer, &inputs.rows, inputs.validation.as_ref())?;
        if let Some(StepColumns { steps, known }) = &inputs.steps {
            id.json(&json!([steps, known]));
        }
        Ok(id.finish())
    }

    /// Trains, writes the model and records it. A training whose history is kept records the blocks of its rows.
    fn train_anew(
        &self,
        trainer: &dyn Trainer,
        inputs: TrainingRows,
        plan: TrainingPlan,
        out: &StorageLocation,
        keeps_history: bool,
    ) -> Result<(Manifest, TrainingReport)> {
        let TrainingRows {
            rows,
            validation,
            steps,
        } = inputs;
        let TrainingPlan {
            id,
            decision,
            begin,
            ..
        } = plan;
        let services = RunningTraining {
            run: self,
            id,
            out,
            earlier: begin.earlier.as_ref(),
        };
        let context = TrainingContext {
            rows: begin.rows.as_ref().unwrap_or(&rows),
            validation: validation.as_ref(),
            steps,
            naive: self.naive_columns(trainer, validation.is_some())?,
            threads: self.session.options.threads.max(1),
            memory_bytes: self.session.options.memory_bytes,
            origin: json!({
                "training": id.to_string(),
                "artifact": self.artifact.id.to_string(),
                "pipeline": self.pipeline.name,
                "from": self.training.from,
                "horizon": declared_horizon(self.pipeline),
            }),
            services: &services,
        };
        self.warn_of_copies(context.rows)?;
        let mut trained = trainer.train(&context)?;
        trained.check_sums()?;
        self.warn_of_baseline(&trained.learned);
        self.warn_of_constant(trainer, &trained.learned);
        trained.learned.start = begin.report;
        let pass = publication_id(id, out);
        let manifest = self.write(id, pass, out, trained.files)?;
        let mut record = json!({
            "out": out.shown,
            "manifest": manifest,
            "learned": trained.learned,
        });
        if keeps_history {
            record["blocks"] = json!(rows_of_blocks(&rows));
        }
        if let Some(cadence) = self.cadence {
            record["cadence"] = cadence.record();
        }
        // A model that was trained for an attempt which another one has replaced is not recorded.
        self.session.check_fence()?;
        let intact = |record: &Value| record_is_intact(&self.session.io, out, record);
        self.store
            .put_pass_record(pass, decision, &record, intact)?;
        Ok((manifest, trained.learned))
    }

    fn place(&self, trainer: &dyn Trainer) -> Result<StorageLocation> {
        place_of(
            self.session,
            self.pipeline,
            self.training,
            trainer,
            self.store,
        )
    }

    fn feed(&self, trainer: &dyn Trainer) -> FeedConfig {
        FeedConfig {
            from: Some(self.training.from.clone()),
            ..trainer.feed()
        }
    }

    fn train_part(&self) -> Option<String> {
        train_part(self.pipeline, self.training)
    }

    fn rows(&self, trainer: &dyn Trainer) -> Result<FeedSource> {
        let config = FeedConfig {
            split: self.train_part(),
            ..self.feed(trainer)
        };
        let feed =
            self.session
                .plan_feed(self.pipeline, Some(self.artifact), &config, self.interval)?;
        if feed.rows() == 0 {
            return Err(Fault::new(codes::EMPTY, "there are no rows to learn from")
                .hint("look at the part of the split, and at what the steps filter"));
        }
        Ok(feed)
    }

    fn validation(&self, trainer: &dyn Trainer) -> Result<Option<FeedSource>> {
        let named = trainer.validation();
        let Some(part) = validation_part(self.pipeline, self.training, trainer.validation()) else {
            return Ok(None);
        };
        let config = FeedConfig {
            split: Some(part.clone()),
            order: FeedOrder::Sequential,
            ..self.feed(trainer)
        };
        let feed =
            self.session
                .plan_feed(self.pipeline, Some(self.artifact), &config, self.interval)?;
        if feed.rows() > 0 {
            return Ok(Some(feed));
        }
        let message = format!(
            "the part `{part}` has no rows, so `{}` is not validated",
            self.training.name
        );
        match named {
            Some(_) => Err(Fault::new(codes::EMPTY, message)
                .hint("leave `validation` out, or look at the split")),
            None => {
                let hint = "look at the bounds of the part, and at the times of the data";
                self.session
                    .warn(&Fault::new(codes::EMPTY, message).hint(hint));
                Ok(None)
            }
        }
    }

    /// Number of steps ahead for which the columns of its rows are known.
    fn step_columns(&self) -> Result<StepColumns> {
        let bound = self
            .artifact
            .bind(&self.session.registry, &self.session.sql)?;
        step_columns(self.pipeline, &bound, &self.training.from)
    }

    /// The columns of its rows that hold values of the label at earlier times; none without rows to compare them on.
    fn naive_columns(&self, trainer: &dyn Trainer, validated: bool) -> Result<Vec<String>> {
        if !validated {
            return Ok(Vec::new());
        }
        let label = label_column(self.pipeline, &trainer.feed())?;
        let bound = self
            .artifact
            .bind(&self.session.registry, &self.session.sql)?;
        let Some(flow) = bound.flows.get(&self.training.from) else {
            return Ok(Vec::new());
        };
        let names = flow.schema.fields().iter().map(|field| field.name());
        let naive = names.filter(|name| unit_mismatch(&bound, flow, name, &label).is_none());
        Ok(naive.cloned().collect())
    }

    /// Warns of features that equal the label in all rows that are read first.
    fn warn_of_copies(&self, rows: &FeedSource) -> Result<()> {
        let Some(label) = &rows.features.label else {
            return Ok(());
        };
        for column in label_copies(rows)? {
            let of = format!("`{}`", self.training.name);
            let warning = copy_warning(&column, &label.column, &of);
            self.session.warn(&warning);
        }
        Ok(())
    }

    /// Warns of a model that is no better than a forecast without one.
    fn warn_of_baseline(&self, learned: &TrainingReport) {
        let baseline = learned.baseline.as_ref();
        let Some(worse) = baseline.and_then(BaselineReport::no_better_than) else {
            return;
        };
        let message = format!("`{}` is {worse}", self.training.name);
        let hint = "look at the features and their scale, and at how long it is trained";
        self.session
            .warn(&Fault::new(codes::BAD_VALUE, message).hint(hint));
    }

    /// Warns of a model of one number, such as trees without a split.
    fn warn_of_constant(&self, trainer: &dyn Trainer, learned: &TrainingReport) {
        let models = learned.step_models.unwrap_or(1);
        // Each quantile has trees of its own; the ends of intervals have none.
        let quantiles = if trainer.has_intervals() {
            0
        } else {
            trainer.quantiles().len() as u64
        };
        if learned.groups.is_some() || learned.parameters > models * (1 + quantiles) {
            return;
        }
        let message = format!(
            "`{}` predicts the same for all rows: its {} rows gave it no split",
            self.training.name, learned.rows
        );
        let hint = "train it on more rows, or lower `min_leaf_rows`; and look at whether the \
                    features differ between rows";
        self.session
            .warn(&Fault::new(codes::EMPTY, message).hint(hint));
    }

    /// Id of everything that determines the model.
    fn id(
        &self,
        trainer: &dyn Trainer,
        rows: &FeedSource,
        validation: Option<&FeedSource>,
    ) -> Result<IdBuilder> {
        let mut id = IdBuilder::new("training");
        id.json(&trainer.identity()?)
            .id(self.artifact.id)
            .text(&self.training.from);
        for feed in [Some(rows), validation].into_iter().flatten() {
            for blocks in &feed.blocks {
                id.id(blocks.dataset().fingerprint());
            }
            // Rows are the same wherever they are kept.
            let config = FeedConfig {
                cache: None,
                missing_numbers: false,
                ..feed.config.clone()
            };
            id.json(&json!([feed.features, config, ORDER_VERSION]));
        }
        // Later forecasts judge missing values by the artifact beside the model.
        if accepts_missing(self.session, self.pipeline, &self.training.from)? {
            id.text("accepts missing values");
        }
        Ok(id)
    }

    /// Writes the model's files together with those of the artifact: all that is needed to predict.
    fn write(
        &self,
        id: ContentId,
        pass: ContentId,
        out: &StorageLocation,
        files: Vec<(String, Vec<u8>)>,
    ) -> Result<Manifest> {
        let artifact = self
            .artifact
            .files(self.session.options.threads)?
            .into_iter();
        let artifact = artifact.map(|(name, bytes)| (format!("artifact/{name}"), bytes));
        let directory = if out.local.is_some() {
            shard_directory(id)
        } else {
            unique_shard_directory(id)
        }?;
        let mut written = Vec::new();
        let files = files
            .into_iter()
            .map(|(path, bytes)| (path, Bytes::from(bytes)));
        for (path, bytes) in files.chain(artifact) {
            let path = RelativePath::new(path)?;
            let location = out.join(&directory.join(&path));
            step("write", &location.shown);
            let digest = format!("{:032x}", xxh3_128(&bytes));
            written.push(
                OutputFile {
                    path,
                    rows: 0,
                    bytes: bytes.len() as u64,
                    digest,
                }
                .in_directory(&directory),
            );
            self.session.io.put(&location, bytes)?;
        }
        let shard = Shard {
            id: id.to_string(),
            files: written,
            ..Shard::default()
        };
        Manifest::new(pass, &arrow::datatypes::Schema::empty(), vec![shard])
    }
}

/// Id of a part of a training.
fn part_id(training: ContentId, part: u64) -> ContentId {
    let mut id = IdBuilder::new("part of a training");
    id.id(training).text(&part.to_string());
    id.finish()
}
