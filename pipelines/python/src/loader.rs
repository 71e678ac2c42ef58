//! The loader: a feed, and where it stands.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay::Event;
use forebay::FeedConfig;
use forebay::feed::{BatchFeatures, FeedCursor, FeedOptions, OrderMode};
use forebay::model::{Fault, Pipeline, codes};
use forebay::present::feed::poor_shuffle;
use forebay::run::{Artifact, EventListener};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::batch::Batch;
use crate::device::{BatchPlacement, PlacedFeed, PlacementRequest};
use crate::fault::{IntoPyResult, fault_exception};
use crate::session::{MachineRequest, SIGNALS_EVERY, interruptible, load_artifact, request};
use crate::spec_source::SpecSource;

/// Delivers mini-batches. Threads of its own read ahead.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Loader {
    /// Options of the feed; `None` only when the loader is dropped.
    config: Option<FeedOptions>,
    features: Arc<BatchFeatures>,
    placement: BatchPlacement,
    at: Mutex<LoaderState>,
    /// The process that made it: threads do not survive a fork.
    process: u32,
    warnings: Arc<WarningList>,
}

/// Warnings that Python has not heard yet.
#[derive(Default)]
struct WarningList(Mutex<Vec<String>>);

impl WarningList {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl EventListener for WarningList {
    fn on_event(&self, event: Event) {
        if let Event::Warning { message } = event {
            let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            messages.push(message);
        }
    }
}

/// State of a loader.
#[derive(Default)]
struct LoaderState {
    /// The present iteration: earlier ones are over.
    iteration: u64,
    closed: bool,
    feed: Option<PlacedFeed>,
    cursor: Option<FeedCursor>,
    /// The epoch of the present iteration.
    epoch: Option<u64>,
    /// True if the present iteration has returned a batch.
    moved: bool,
}

/// Fault of an iteration that was continued after its end.
fn iteration_over() -> Fault {
    let message = "this iteration is over: another one over the same loader has begun since";
    Fault::new(codes::UNSUPPORTED, message).hint(
        "read a loader with one iterator at a time, and make a second loader to go over the rows \
         twice at once",
    )
}

/// Arguments of a loader.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoaderRequest {
    spec: SpecSource,
    is_artifact: bool,
    sources: BTreeMap<String, String>,
    /// Fields of `feed:` that the caller sets.
    overlay: Value,
    machine: MachineRequest,
    seed: u64,
    rank: u32,
    world_size: u32,
    epochs: Option<u64>,
    receipts: bool,
    device: String,
    format: String,
    pin_memory: bool,
    prefetch: usize,
    /// The GPU that `cuda` is.
    current_device: usize,
}

impl LoaderRequest {
    fn placement(&self) -> Result<BatchPlacement, Fault> {
        BatchPlacement::new(&PlacementRequest {
            device: &self.device,
            format: &self.format,
            pin_memory: self.pin_memory,
            prefetch: self.prefetch,
            current: self.current_device,
        })
    }

    fn pipeline(&self) -> Result<(Pipeline, Option<Artifact>), Fault> {
        if !self.is_artifact {
            return Ok((self.spec.pipeline()?, None));
        }
        let artifact = load_artifact(&self.spec.file)?;
        let mut pipeline = artifact.pipeline.clone();
        pipeline.sinks.clear();
        if let Some(unknown) = self
            .sources
            .keys()
            .find(|name| pipeline.source(name).is_none())
        {
            return Err(Fault::new(
                codes::UNKNOWN_NAME,
                format!("the pipeline has no source `{unknown}`"),
            ));
        }
        for source in &mut pipeline.sources {
            let Some(path) = self.sources.get(&source.name) else {
                let message = format!("where is the source `{}`?", source.name);
                let hint = format!(
                    "give `sources={{\"{}\": PATH}}`: an artifact does not hold paths",
                    source.name
                );
                return Err(Fault::new(codes::MISSING_FIELD, message).hint(hint));
            };
            source.set_path(path.as_str());
        }
        Ok((pipeline, Some(artifact)))
    }

    fn config(
        &self,
        pipeline: &Pipeline,
        artifact: Option<&Artifact>,
    ) -> Result<FeedConfig, Fault> {
        let config = FeedConfig::from_pipeline(pipeline)?;
        let mut config =
            serde_json::to_value(config).map_err(|error| Fault::internal("a feed").cause(error))?;
        if let (Some(config), Some(overlay)) = (config.as_object_mut(), self.overlay.as_object()) {
            config.extend(overlay.clone());
        }
        let mut config = FeedConfig::from_json(config)?;
        let written = artifact.and_then(|artifact| artifact.pipeline.sinks.first());
        if config.mix.is_empty() {
            config.from = config
                .from
                .or_else(|| written.map(|sink| sink.from.clone()));
        }
        Ok(config)
    }
}

#[pymethods]
impl Loader {
    #[new]
    fn new(py: Python<'_>, request_text: &str) -> PyResult<Self> {
        let loader_request: LoaderRequest = request(py, request_text)?;
        // The device first, so that its faults are reported before anything is read.
        let placement = py
            .detach(|| loader_request.placement())
            .into_py_result(py)?;
        let warnings = Arc::new(WarningList::default());
        let session = py
            .detach(|| loader_request.machine.session(warnings.clone(), None))
            .into_py_result(py)?
            .session;
        let stop = || session.interrupt().flag().store(true, Ordering::Relaxed);
        let work = || {
            let (pipeline, artifact) = loader_request.pipeline()?;
            let config = loader_request.config(&pipeline, artifact.as_ref())?;
            let fed = session.feed(&pipeline, artifact.as_ref(), &config)?;
            forebay::feed::BatchPlan::check(
                config.rows_per_batch(),
                loader_request.rank,
                loader_request.world_size,
            )?;
            let mut config = fed.config(loader_request.seed)?;
            (config.rank, config.world, config.receipts) = (
                loader_request.rank,
                loader_request.world_size,
                loader_request.receipts,
            );
            config.epochs = loader_request.epochs.unwrap_or(u64::MAX);
            config.require_batches()?;
            // A caller that keeps batches keeps their slots; the loader allocates others instead.
            config.slots_max = usize::MAX;
            placement.pin(&mut config);
            Ok::<_, Fault>(config)
        };
        let config = interruptible(py, stop, work, || Ok(()))?;
        let config = loader_request.spec.result_of(py, config)?;
        let features = Arc::new(config.features.clone());
        let config = Some(config);
        let process = std::process::id();
        Ok(Loader {
            config,
            features,
            placement,
            at: Mutex::default(),
            process,
            warnings,
        })
    }

    /// The columns of each part, by its name.
    fn columns(&self) -> BTreeMap<&'static str, Vec<String>> {
        let features = &self.features;
        let names = |fields: &[forebay::feed::FeatureField]| {
            fields.iter().map(|field| field.column.clone()).collect()
        };
        let parts = [
            ("dense", names(&features.dense)),
            ("categorical", names(&features.categorical)),
            ("label", names(features.label.as_slice())),
            ("weight", names(features.weight.as_slice())),
        ];
        parts
            .into_iter()
            .filter(|(_, columns): &(_, Vec<String>)| !columns.is_empty())
            .collect()
    }

    /// Warnings since the last call.
    fn warnings(&self) -> Vec<String> {
        self.warnings.take()
    }

    /// Begins the next epoch, or goes on with the one that a state left; gives the iteration, for [`Loader::next`].
    fn begin(&self, py: Python<'_>) -> PyResult<u64> {
        self.check_process()?;
        let begun = self.run_detached(py, || {
            let mut at = self.open()?;
            let standing = at
                .feed
                .as_ref()
                .map(|feed| feed.cursor().clone())
                .or_else(|| at.cursor.clone());
            let next = match (&standing, at.epoch) {
                // An iteration that was left early: the epoch after it.
                (Some(cursor), Some(epoch)) if cursor.epoch == epoch && at.moved => {
                    at.feed = None;
                    Some(cursor.at(epoch + 1, 0))
                }
                _ => standing,
            };
            if at.feed.is_none() {
                at.feed = Some(self.start(FeedOptions {
                    cursor: next,
                    ..self.config()?
                })?);
            }
            at.epoch = at.feed.as_ref().map(|feed| feed.cursor().epoch);
            at.moved = false;
            at.iteration += 1;
            Ok(at.iteration)
        });
        begun.into_py_result(py)
    }

    /// The next batch of an iteration's epoch; None at its end.
    fn next(&self, py: Python<'_>, iteration: u64) -> PyResult<Option<Batch>> {
        self.check_process()?;
        loop {
            let polled = self.run_detached(py, || {
                let mut at = match self.open() {
                    Ok(at) if at.iteration == iteration => at,
                    Ok(_) => return Some(Err(iteration_over())),
                    Err(fault) => return Some(Err(fault)),
                };
                let LoaderState {
                    feed: Some(feed),
                    epoch,
                    moved,
                    ..
                } = &mut *at
                else {
                    return None;
                };
                if *epoch != Some(feed.cursor().epoch) {
                    return None;
                }
                let batch = feed.next_within(SIGNALS_EVERY);
                *moved |= matches!(&batch, Some(Ok(Some(_))));
                if let Some(Err(_)) = &batch {
                    at.feed = None;
                }
                batch
            });
            match polled {
                None => return Ok(None),
                Some(Ok(Some(batch))) => {
                    return Ok(Some(Batch {
                        batch: Arc::new(batch),
                        features: self.features.clone(),
                    }));
                }
                Some(Ok(None)) => py.check_signals()?,
                Some(Err(fault)) => return Err(fault_exception(py, &fault, None)),
            }
        }
    }

    /// Number of batches of a whole epoch that this rank gets, also if it continues within one:
    /// trainers count on from there.
    fn steps(&self, py: Python<'_>) -> PyResult<u64> {
        self.check_process()?;
        let steps = self.run_detached(py, || {
            let mut at = self.open()?;
            if at.feed.is_none() {
                at.feed = Some(self.start(FeedOptions {
                    cursor: at.cursor.clone(),
                    ..self.config()?
                })?);
            }
            // The epoch after this one cannot be the one in which the feed began.
            Ok(at
                .feed
                .as_ref()
                .map_or(0, |feed| feed.steps(feed.cursor().epoch + 1)))
        });
        steps.into_py_result(py)
    }

    /// Position of the loader after the last batch, as text.
    fn cursor(&self, py: Python<'_>) -> PyResult<String> {
        let cursor = py.detach(|| {
            let at = self.lock();
            match at
                .feed
                .as_ref()
                .map(PlacedFeed::cursor)
                .or(at.cursor.as_ref())
            {
                Some(cursor) => cursor.encode(),
                None => self.config()?.beginning()?.encode(),
            }
        });
        Ok(String::from_utf8_lossy(&cursor.into_py_result(py)?).into_owned())
    }

    /// Continues from the position of a cursor.
    fn resume(&self, py: Python<'_>, cursor: &str) -> PyResult<()> {
        self.check_process()?;
        let resumed = self.run_detached(py, || {
            let cursor = FeedCursor::decode(cursor.as_bytes())?;
            let mut at = self.open()?;
            at.feed = None;
            // Here, so that a cursor of other data is refused here.
            at.feed = Some(self.start(FeedOptions {
                cursor: Some(cursor.clone()),
                ..self.config()?
            })?);
            (at.cursor, at.epoch, at.moved) = (Some(cursor), None, false);
            at.iteration += 1;
            Ok(())
        });
        resumed.into_py_result(py)
    }

    /// Begins with an epoch.
    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.check_process()?;
        let set = self.run_detached(py, || {
            let mut at = self.open()?;
            let stands =
                |feed: &PlacedFeed| feed.cursor().epoch == epoch && feed.cursor().position == 0;
            if at.feed.as_ref().is_some_and(stands) {
                return Ok(());
            }
            // A state that was loaded has brought its order with it.
            let cursor = at.cursor.as_ref().map(|cursor| cursor.at(epoch, 0));
            at.feed = None;
            at.feed = Some(self.start(FeedOptions {
                first_epoch: epoch,
                cursor,
                ..self.config()?
            })?);
            (at.epoch, at.moved) = (None, false);
            at.iteration += 1;
            Ok(())
        });
        set.into_py_result(py)
    }

    /// Warning about a shuffle that mixes too little.
    fn poor_shuffle(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let poor_quality = py.detach(|| {
            let sequence = self.config()?.sequence()?;
            let shuffled = matches!(sequence.order().mode, OrderMode::Shuffled { .. });
            Ok(sequence
                .quality(0)
                .filter(|quality| shuffled && quality.is_poor()))
        });
        Ok(poor_quality.into_py_result(py)?.as_ref().map(poor_shuffle))
    }

    /// Statistics of the loader since the last call.
    fn stats(&self) -> BTreeMap<&'static str, f64> {
        let mut at = self.lock();
        let Some(feed) = at.feed.as_mut() else {
            return BTreeMap::new();
        };
        let (stats, copied_bytes) = feed.take_stats();
        let times = &stats.times;
        let copied = copied_bytes.map(|bytes| bytes as f64).map(|bytes| {
            let seconds = stats.wall.as_secs_f64().max(f64::MIN_POSITIVE);
            [
                ("h2d_bytes", bytes),
                ("h2d_bytes_per_second", bytes / seconds),
            ]
        });
        let numbers = BTreeMap::from([
            ("steps", stats.steps as f64),
            ("rows", stats.rows as f64),
            ("bytes", stats.bytes as f64),
            ("seconds", stats.wall.as_secs_f64()),
            ("consumer_wait_seconds", stats.consumer_wait.as_secs_f64()),
            ("starved_steps", stats.starved_steps as f64),
            ("producer_wait_seconds", times.producer_wait.as_secs_f64()),
            ("storage_seconds", times.disk.as_secs_f64()),
            ("decoding_seconds", times.decoding.as_secs_f64()),
            ("packing_seconds", times.packing.as_secs_f64()),
            ("filling_seconds", times.filling.as_secs_f64()),
            ("non_finite", times.found.non_finite as f64),
            ("skipped_rows", times.found.skipped as f64),
            ("filled", times.found.filled as f64),
            ("duplicates", times.found.duplicates as f64),
        ]);
        numbers
            .into_iter()
            .chain(copied.into_iter().flatten())
            .collect()
    }

    /// The parts that batches have.
    fn parts(&self, py: Python<'_>) -> PyResult<Vec<&'static str>> {
        let config = self.config().into_py_result(py)?;
        let layout = forebay::feed::BatchLayout::new(&config.features, config.batch_rows as usize)
            .into_py_result(py)?;
        Ok(layout.parts.iter().map(|part| part.role.name()).collect())
    }

    /// Stops the threads. The loader keeps its position, and delivers no more batches.
    fn close(&self, py: Python<'_>) {
        self.run_detached(py, || {
            let mut at = self.lock();
            at.cursor = at
                .feed
                .take()
                .map(|feed| feed.cursor().clone())
                .or_else(|| at.cursor.take());
            at.closed = true;
        });
    }
}

impl Loader {
    fn start(&self, config: FeedOptions) -> Result<PlacedFeed, Fault> {
        self.placement.start(config)
    }

    /// Works without Python's lock, and leaves the thread's CUDA context as it was.
    fn run_detached<T: Send>(&self, py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
        py.detach(|| self.placement.keeping_cuda_context(work))
    }

    fn config(&self) -> Result<FeedOptions, Fault> {
        self.config
            .clone()
            .ok_or_else(|| Fault::internal("a loader without a feed"))
    }

    fn lock(&self) -> MutexGuard<'_, LoaderState> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state; a fault if the loader is closed.
    fn open(&self) -> Result<MutexGuard<'_, LoaderState>, Fault> {
        let at = self.lock();
        if at.closed {
            return Err(Fault::new(codes::UNSUPPORTED, "the loader is closed")
                .hint("make a new one; `load_state_dict` lets it go on where this one stood"));
        }
        Ok(at)
    }

    fn check_process(&self) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "this loader was made before a fork, and its threads live in the parent: make it in \
             the process that reads it (it needs no DataLoader workers), or start processes with \
             `spawn`",
        ))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // After a fork no thread is there to be joined, neither the feed's nor those that serve storage.
        if self.process != std::process::id() {
            std::mem::forget(self.config.take());
            self.placement.leak_after_fork();
            if let Ok(mut at) = self.at.try_lock() {
                std::mem::forget(at.feed.take());
            }
            return;
        }
        let feed = self.at.get_mut().map(|at| at.feed.take());
        self.placement.keeping_cuda_context(|| drop(feed));
    }
}
