//! Trainings: sinks that turn the rows of a step into a model.
//!
//! They come after all passes, read the feed of their step, and are published as outputs are, with the
//! outputs of their run: files first, then the manifest that names them. A training's id names everything that determines its
//! model; what is committed under it is never trained again, and checkpoints go by it.

use std::sync::Arc;

use bytes::Bytes;
use forebay_commit::{
    Artifact, Manifest, OutputFile, ReuseDecision, Shard, StateStore, output_root,
    record_is_intact, shard_directory, unique_shard_directory, visible_location,
};
use forebay_feed::{BatchFeatures, FeedConfig, FeedOrder, ORDER_VERSION};
use forebay_model::{
    ContentId, Fault, IdBuilder, Interval, Pipeline, PipelineSink, RelativePath, Result, RowLedger,
    ScratchSpace, codes,
};
use forebay_plan::{StepColumns, step_columns, unit_mismatch};
use forebay_storage::failpoint::step;
use forebay_storage::{BackgroundTasks, Event, ScratchDir, StorageLocation};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

use crate::connector_registry::ReadModelFile;
use crate::deadline::DeadlineMonitor;
use crate::executor::RunExecutor;
use crate::feed::FeedSource;
use crate::label_copies::label_copies;
use crate::predict::declared_horizon;
use crate::report::{BaselineReport, ModelReport, PassReport, TrainingReport};
use crate::session::Session;
use crate::training_checks::label_column;
use crate::training_parts::PartContext;
use crate::training_start::{EarlierModel, TrainingPlan, WarmStart};

/// Default names of the parts of a split that are learned from and validated on.
const TRAIN_PART: &str = "train";
const VALIDATION_PART: &str = "validation";

/// A training, configured: takes mini-batches and gives a model.
pub trait Trainer: std::fmt::Debug + Send + Sync {
    /// Where the model goes; without it, to the state directory.
    fn path(&self) -> Option<&str>;

    /// What batches are made of. Rows (`from`, `split`) are for the pipeline to say.
    fn feed(&self) -> FeedConfig;

    /// The part of the split that the model is validated on, where the configuration names one.
    fn validation(&self) -> Option<&str>;

    /// Columns that predict in place of a model, so that they must hold the label of other times in its own units.
    fn label_columns(&self) -> Vec<String> {
        Vec::new()
    }

    /// The quantiles that the model predicts beside its point forecast, in ascending order.
    fn quantiles(&self) -> Vec<f64> {
        Vec::new()
    }

    /// Everything that determines the model beside its rows.
    fn identity(&self) -> Result<Value>;

    /// Fails where this machine lacks what the training needs: asked before anything else is done.
    fn check_ready(&self) -> Result<()> {
        Ok(())
    }

    /// Whether it has a model for each step of the horizon.
    fn per_step(&self) -> bool {
        false
    }

    /// Whether the predictions of its model for one step are values of the label for the next.
    fn recursive(&self) -> bool {
        false
    }

    /// Fails where models for each step cannot be trained, as far as the configuration names columns.
    fn check_steps(&self, _columns: &StepColumns) -> Result<()> {
        Ok(())
    }

    /// Whether and how it goes on from the model of the run before.
    fn warm_start(&self) -> Option<WarmStart> {
        None
    }

    /// Why it cannot go on from an earlier model, given the model's files and what batches are made of.
    fn refuse_start(
        &self,
        _files: ReadModelFile<'_>,
        _features: &BatchFeatures,
    ) -> Result<Option<String>> {
        Ok(None)
    }

    /// Learns from the rows.
    fn train(&self, course: &TrainingContext<'_>) -> Result<TrainingOutput>;

    /// On a worker: trains a part that [`TrainingContext::train_on_workers`] got.
    fn train_part(&self, _part: &[u8], _context: &PartContext<'_>) -> Result<Vec<u8>> {
        Err(Fault::internal("a trainer without parts"))
    }
}

/// What a training is given.
pub struct TrainingContext<'a> {
    /// The rows to learn from.
    pub rows: &'a FeedSource,
    /// The rows to validate on.
    pub validation: Option<&'a FeedSource>,
    /// How far ahead each column is known, for a model for each step of the horizon.
    pub steps: Option<StepColumns>,
    /// Columns that hold values of the label at earlier times in its own units: each is a forecast by itself.
    pub naive: Vec<String>,
    /// Threads to use; the model must not depend on them.
    pub threads: usize,
    /// The memory limit of the process.
    pub memory_bytes: u64,
    /// What the model should say of where it comes from.
    pub origin: Value,
    id: ContentId,
    out: &'a StorageLocation,
    training: &'a TrainingRun<'a>,
    earlier: Option<&'a EarlierModel>,
}

/// What a training gives.
pub struct TrainingOutput {
    /// The model's files by name.
    pub files: Vec<(String, Vec<u8>)>,
    /// How it went.
    pub learned: TrainingReport,
}

impl<'a> TrainingContext<'a> {
    pub(crate) fn run(&self) -> &'a TrainingRun<'a> {
        self.training
    }

    pub(crate) fn id(&self) -> ContentId {
        self.id
    }
}

impl TrainingContext<'_> {
    /// The name of the sink.
    pub fn sink(&self) -> &str {
        &self.training.training.name
    }

    /// Other columns of the rows to learn from; rows (`from`, `split`) are not for the trainer to say.
    pub fn feed_columns(&self, config: FeedConfig) -> Result<FeedSource> {
        let TrainingRun {
            training,
            pipeline,
            artifact,
            interval,
            session,
            ..
        } = self.training;
        let config = FeedConfig {
            from: Some(training.from.clone()),
            split: self.training.train_part(),
            ..config
        };
        session.plan_feed(pipeline, Some(artifact), &config, *interval)
    }

    /// Fails when the run should stop.
    pub fn check(&self) -> Result<()> {
        self.training.session.interrupt.check()
    }

    /// Passes an event to the run's listener.
    pub fn emit(&self, event: Event) {
        self.training.session.watch.on_event(event);
    }

    /// How far an earlier run came with this training.
    pub fn checkpoint(&self) -> Result<Option<Vec<u8>>> {
        self.training.store.get_checkpoint(self.id)
    }

    /// A part of a training that an earlier run finished; parts count from 0.
    pub fn finished_part(&self, part: u64) -> Result<Option<Vec<u8>>> {
        self.training.store.get_checkpoint(part_id(self.id, part))
    }

    /// Keeps a part that is finished, until the model is published. All parts before it are kept.
    pub fn save_part(&self, part: u64, bytes: &[u8]) -> Result<()> {
        self.training
            .store
            .put_checkpoint(part_id(self.id, part), bytes, self.training.scratch)
    }

    /// A file of the model that is published where this one will be; `None` where there is none.
    pub fn published_file(&self, name: &str) -> Result<Option<Bytes>> {
        let io = &self.training.session.io;
        let Some(manifest) = Manifest::read(io, self.out)? else {
            return Ok(None);
        };
        io.get(&self.out.join(&manifest.data).join(name))
    }

    /// The training that this one goes on from.
    pub fn earlier_id(&self) -> Option<ContentId> {
        self.earlier.map(|earlier| earlier.id)
    }

    /// A file of the model that the training goes on from; `None` where it begins with nothing.
    pub fn earlier_file(&self, name: &str) -> Result<Option<Bytes>> {
        self.earlier.map_or(Ok(None), |earlier| {
            earlier.file(self.training.session, name)
        })
    }

    /// Temporary files within the limits of the run.
    pub fn scratch(&self) -> Arc<dyn ScratchSpace> {
        let memory = self.training.session.memory();
        let bytes = memory.states_bytes();
        self.training.scratch.scratch_with_budget(memory, bytes)
    }

    /// Keeps how far this run has come.
    pub fn save_checkpoint(&self, checkpoint: &[u8]) -> Result<()> {
        self.training
            .store
            .put_checkpoint(self.id, checkpoint, self.training.scratch)
    }
}

impl Session {
    pub(crate) fn trainer(&self, training: &PipelineSink) -> Result<Arc<dyn Trainer>> {
        self.connectors
            .trainer(&training.format, &training.config)
            .map_err(|fault| fault.at(training.at.as_ref()))
    }

    /// Trains all models of a pipeline with what the artifact learned.
    pub(crate) fn train(
        &self,
        run: &RunExecutor<'_>,
        artifact: &Artifact,
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
            let place = |fault: Fault| {
                fault
                    .at(training.at.as_ref())
                    .pass(format!("{number} of {total} ({label})"))
            };
            let training = TrainingRun {
                session: self,
                pipeline,
                training,
                artifact,
                interval,
                store,
                scratch,
            };
            let (model, pass) = training.run(number, total, &label).map_err(place)?;
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

/// What a training is called as a pass.
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
    let validation = validation_part(pipeline, training, trainer);
    // All rows hold those of every part.
    let validation = validation.filter(|_| train.is_some());
    std::iter::once(train).chain(validation.map(Some)).collect()
}

/// The part that is learned from; all rows where the split has none of this name.
fn train_part(pipeline: &Pipeline, training: &PipelineSink) -> Option<String> {
    training
        .split
        .clone()
        .or_else(|| existing_part(pipeline, TRAIN_PART))
}

fn validation_part(
    pipeline: &Pipeline,
    training: &PipelineSink,
    trainer: &dyn Trainer,
) -> Option<String> {
    let named = trainer
        .validation()
        .map(str::to_owned)
        .or_else(|| existing_part(pipeline, VALIDATION_PART));
    named.filter(|part| Some(part) != train_part(pipeline, training).as_ref())
}

fn existing_part(pipeline: &Pipeline, name: &str) -> Option<String> {
    let parts = pipeline
        .split
        .as_ref()
        .map(|split| split.parts())
        .unwrap_or_default();
    parts.contains(&name).then(|| name.to_owned())
}

/// A model that is trained and recorded, and that readers do not see yet.
pub(crate) struct UnpublishedModel {
    training: PipelineSink,
    out: StorageLocation,
    manifest: Manifest,
    id: ContentId,
    reused: bool,
    learned: TrainingReport,
}

impl UnpublishedModel {
    /// The name of its sink.
    pub fn name(&self) -> &str {
        &self.training.name
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
        } = self;
        let mut later = BackgroundTasks::default();
        let published = manifest
            .publish(
                &session.io,
                &out,
                None,
                (&|| session.check_fence(), &mut later),
            )
            .map_err(|fault| {
                fault
                    .at(training.at.as_ref())
                    .pass(training_pass_name(&training))
            })?;
        later.join_all()?;
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
            learned,
            is_new: published.is_new,
        })
    }
}

/// A training on its way.
pub(crate) struct TrainingRun<'a> {
    pub session: &'a Session,
    pub pipeline: &'a Pipeline,
    pub training: &'a PipelineSink,
    pub artifact: &'a Artifact,
    pub interval: Option<&'a Interval>,
    pub store: &'a StateStore,
    pub scratch: &'a ScratchDir,
}

impl TrainingRun<'_> {
    fn run(
        &self,
        number: usize,
        total: usize,
        label: &str,
    ) -> Result<(UnpublishedModel, PassReport)> {
        self.session.interrupt.check()?;
        let trainer = self.session.trainer(self.training)?;
        let out = self.place(trainer.as_ref())?;
        let rows = self.rows(trainer.as_ref())?;
        let validation = self.validation(trainer.as_ref())?;
        let steps = if trainer.per_step() {
            Some(self.step_columns()?)
        } else {
            None
        };
        let mut id = self.id(trainer.as_ref(), &rows, validation.as_ref())?;
        if let Some(StepColumns { steps, known }) = &steps {
            id.json(&json!([steps, known]));
        }
        let fresh = id.finish();
        let TrainingPlan {
            id,
            standing,
            record,
            begin,
            history,
        } = self.plan(trainer.as_ref(), fresh, &out, &rows)?;
        let event = Event::PassStarted {
            number,
            total,
            label: label.to_owned(),
            id: id.to_string(),
            bytes: None,
        };
        self.session.watch.on_event(event);
        let pass = publication_id(id, &out);
        let record = record.filter(|_| standing == ReuseDecision::Reuse);
        let unreadable = |error| {
            Fault::new(
                codes::STATE_VERSION,
                "the record of a training cannot be read",
            )
            .cause(error)
        };
        let reused = record.is_some();
        let (manifest, learned): (Manifest, TrainingReport) = match record {
            Some(record) => (
                Manifest::from_record(&record)?,
                serde_json::from_value(record["learned"].clone()).map_err(unreadable)?,
            ),
            None => {
                let course = TrainingContext {
                    rows: begin.rows.as_ref().unwrap_or(&rows),
                    validation: validation.as_ref(),
                    steps,
                    naive: self.naive_columns(trainer.as_ref(), validation.is_some())?,
                    threads: self.session.options.threads.max(1),
                    memory_bytes: self.session.options.memory_bytes,
                    origin: json!({
                        "training": id.to_string(),
                        "artifact": self.artifact.id.to_string(),
                        "pipeline": self.pipeline.name,
                        "from": self.training.from,
                        "horizon": declared_horizon(self.pipeline),
                    }),
                    id,
                    out: &out,
                    training: self,
                    earlier: begin.earlier.as_ref(),
                };
                self.warn_of_copies(course.rows)?;
                let mut trained = trainer.train(&course)?;
                self.warn_of_baseline(&trained.learned);
                trained.learned.start = begin.report;
                let manifest = self.write(id, pass, &out, trained.files)?;
                let (as_json, learned) = (json!(manifest), json!(trained.learned));
                let mut record =
                    json!({ "out": out.shown, "manifest": as_json, "learned": learned });
                if history.is_some() {
                    record["blocks"] = json!(rows.block_names());
                }
                self.session.check_fence()?;
                let intact = |record: &Value| record_is_intact(&self.session.io, &out, record);
                self.store
                    .put_pass_record(pass, standing, &record, intact)?;
                (manifest, trained.learned)
            }
        };
        if let Some(history) = history {
            self.record_training(fresh, id, history)?;
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
            changes: RowLedger::default(),
        };
        Ok((
            UnpublishedModel {
                training: self.training.clone(),
                out,
                manifest,
                id,
                reused,
                learned,
            },
            pass,
        ))
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
        let fed =
            self.session
                .plan_feed(self.pipeline, Some(self.artifact), &config, self.interval)?;
        if fed.rows() == 0 {
            return Err(Fault::new(codes::EMPTY, "there are no rows to learn from")
                .hint("look at the part of the split, and at what the steps filter"));
        }
        Ok(fed)
    }

    fn validation(&self, trainer: &dyn Trainer) -> Result<Option<FeedSource>> {
        let named = trainer.validation();
        let Some(part) = validation_part(self.pipeline, self.training, trainer) else {
            return Ok(None);
        };
        let config = FeedConfig {
            split: Some(part.clone()),
            order: FeedOrder::Sequential,
            ..self.feed(trainer)
        };
        let fed =
            self.session
                .plan_feed(self.pipeline, Some(self.artifact), &config, self.interval)?;
        if fed.rows() > 0 {
            return Ok(Some(fed));
        }
        let message = format!(
            "the part `{part}` has no rows, so `{}` is not validated",
            self.training.name
        );
        match named {
            Some(_) => Err(Fault::new(codes::EMPTY, message)
                .hint("leave `validation` out, or look at the split")),
            None => {
                self.session.watch.on_event(Event::Warning { message });
                Ok(None)
            }
        }
    }

    /// How far ahead the columns of its rows are known.
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
            let message = format!(
                "the feature `{column}` of `{}` equals the label `{}` in all rows that were compared",
                self.training.name, label.column
            );
            let hint = "leave it out if it is known only when the label is";
            let warning = Fault::new(codes::LEAKAGE, message).column(column);
            self.session.warn(&warning.hint(hint));
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

    /// Names everything that determines the model.
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
        for fed in [Some(rows), validation].into_iter().flatten() {
            for blocks in &fed.blocks {
                id.id(blocks.dataset().fingerprint());
            }
            // Rows are the same wherever they are kept.
            let config = FeedConfig {
                cache: None,
                missing_numbers: false,
                ..fed.config_of().clone()
            };
            id.json(&json!([fed.features, config, ORDER_VERSION]));
        }
        Ok(id)
    }

    /// The model's files, and the artifact's beside them: all that is needed to predict.
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
            let place = out.join(&directory.join(&path));
            step("write", &place.shown);
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
            self.session.io.put(&place, bytes)?;
        }
        let shard = Shard {
            id: id.to_string(),
            files: written,
            ..Shard::default()
        };
        Manifest::new(pass, &arrow::datatypes::Schema::empty(), vec![shard])
    }
}

/// Where the model of a training goes.
pub(crate) fn model_location(
    session: &Session,
    pipeline: &Pipeline,
    training: &PipelineSink,
    store: &StateStore,
) -> Result<StorageLocation> {
    place_of(
        session,
        pipeline,
        training,
        session.trainer(training)?.as_ref(),
        store,
    )
}

fn place_of(
    session: &Session,
    pipeline: &Pipeline,
    training: &PipelineSink,
    trainer: &dyn Trainer,
    store: &StateStore,
) -> Result<StorageLocation> {
    match trainer.path() {
        Some(path) => output_root(&session.io, path),
        None => {
            let models = store
                .root()
                .join(&format!("models/{}/{}", pipeline.name, training.name));
            output_root(&session.io, &models.shown)
        }
    }
}

/// Names a part of a training.
fn part_id(training: ContentId, part: u64) -> ContentId {
    let mut id = IdBuilder::new("part of a training");
    id.id(training).text(&part.to_string());
    id.finish()
}

/// Names a model in a directory: where it goes changes nothing about it, but each place has a record.
pub(crate) fn publication_id(training: ContentId, out: &StorageLocation) -> ContentId {
    let mut id = IdBuilder::new("published training");
    id.id(training).text(&out.shown);
    id.finish()
}
