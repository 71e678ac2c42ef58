//! Parts of a training on workers: rows travel through the state directory, and so do the models that come back.

use arrow::buffer::Buffer;
use forebay_cluster::{TaskEvent, TaskKind, TaskSpec, TrainSpec};
use forebay_commit::StateStore;
use forebay_contract::TakePartFn;
use forebay_model::{ContentId, Fault, IdBuilder, Result};
use forebay_storage::ScratchDir;

use crate::training_run::TrainingRun;

impl TrainingRun<'_> {
    /// Number of parts that workers can train at the same time; `None` without workers.
    pub(crate) fn worker_slots(&self) -> Result<Option<usize>> {
        let session = self.session;
        let slots = session
            .cluster
            .as_ref()
            .map(|cluster| cluster.wait_for_slots(&session.interrupt));
        slots.transpose()
    }

    /// Trains parts of the training `id` on workers, and passes on the result of each as soon as it
    /// is available. One that an interrupted run has trained is not trained again.
    pub(crate) fn train_on_workers(
        &self,
        id: ContentId,
        parts: &mut dyn Iterator<Item = Result<Vec<u8>>>,
        take: TakePartFn<'_>,
    ) -> Result<()> {
        let TrainingRun {
            session,
            training,
            pipeline,
            store,
            scratch,
            ..
        } = *self;
        let cluster = session
            .cluster
            .as_ref()
            .ok_or_else(|| Fault::internal("a training without workers"))?;
        let train_spec = TrainSpec {
            pipeline: pipeline.name.clone(),
            id,
            format: training.format.clone(),
            config: training.config.clone(),
            state: session.options.state.clone(),
            base: session.io.absolute_path(".")?,
        };
        let exchange = PartExchange {
            store,
            training: id,
        };
        let mut tasks = Vec::new();
        let mut parts_away = Vec::new();
        for (number, rows) in parts.enumerate() {
            let rows = rows?;
            let part = part_id(&train_spec, &rows);
            if let Some(models) = exchange.models(part)? {
                take(number, models.as_slice())?;
                continue;
            }
            exchange.put_rows(part, &rows, scratch)?;
            tasks.push(TaskSpec {
                cost: rows.len() as u64,
                after: None,
                what: TaskKind::Train { part },
            });
            parts_away.push((number, part));
        }
        cluster.train_parts(train_spec, tasks, &session.interrupt, &mut |event| {
            let TaskEvent::Done { task, .. } = event else {
                return Ok(());
            };
            let missing = || Fault::internal("a worker has left no models");
            let (number, part) = *parts_away.get(task).ok_or_else(missing)?;
            let models = exchange.models(part)?.ok_or_else(missing)?;
            take(number, models.as_slice())
        })
    }
}

/// Exchange of rows and models of a training between its coordinator and workers.
pub(crate) struct PartExchange<'a> {
    pub store: &'a StateStore,
    pub training: ContentId,
}

impl PartExchange<'_> {
    /// The rows of a part, for the worker that trains it.
    pub fn rows(&self, part: ContentId) -> Result<Option<Buffer>> {
        self.store.get_shared_bytes(self.training, &rows_name(part))
    }

    /// Leaves the rows of a part.
    pub fn put_rows(&self, part: ContentId, rows: &[u8], scratch: &ScratchDir) -> Result<()> {
        self.put(&rows_name(part), rows, scratch)
    }

    /// Result of a part, where a worker has trained it.
    pub fn models(&self, part: ContentId) -> Result<Option<Buffer>> {
        self.store
            .get_shared_bytes(self.training, &models_name(part))
    }

    /// Stores the result of a part.
    pub fn put_models(&self, part: ContentId, models: &[u8], scratch: &ScratchDir) -> Result<()> {
        self.put(&models_name(part), models, scratch)
    }

    fn put(&self, name: &str, bytes: &[u8], scratch: &ScratchDir) -> Result<()> {
        let failed = |error| Fault::disk("a part cannot be written", error);
        self.store
            .put_shared(self.training, name, scratch, &mut |out| {
                out.write_all(bytes).map_err(failed)
            })
    }
}

fn rows_name(part: ContentId) -> String {
    format!("{part}-rows")
}

fn models_name(part: ContentId) -> String {
    format!("{part}-models")
}

/// Id of a part: a hash of everything that determines its result.
fn part_id(train_spec: &TrainSpec, bytes: &[u8]) -> ContentId {
    let mut id = IdBuilder::new("part on a worker");
    id.text(&train_spec.format)
        .json(&train_spec.config)
        .bytes(bytes);
    id.finish()
}
