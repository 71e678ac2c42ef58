//! What a feed reads: the rows of a pipeline, from an output that a run has committed, or from the
//! sources with everything that was learned applied on the way.

pub(crate) mod features;
pub(crate) mod late_steps;
mod mix;
mod output_blocks;
mod remote_blocks;
mod row_counts;
pub(crate) mod selected_blocks;
mod sequence_blocks;
mod source_blocks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::Schema;
use forebay_cluster::{FeedSpec, ROWS_BYTES_MAX};
use forebay_commit::{
    Artifact, LearnedFinding, Manifest, ReuseDecision, StateStore, record_is_intact,
};
use forebay_execute::{RunState, scan_request};
use forebay_feed::{
    BatchFeatures, BatchLayout, BlockSource, DatasetMixture, FeedConfig, FeedOptions, MixSource,
    SampleOrder, SequenceOptions,
};
use forebay_model::{
    ContentId, Fault, Finding, IdBuilder, Interval, Pipeline, PipelineSink, Result, Span, codes,
};
use forebay_plan::{
    BaseDataset, BoundAnalyzer, BoundPipeline, ChainContext, ColumnScan, ColumnTap, FUTURE_PART,
    OpChain, OpStream, PassWork, Program, SinkWork, StepStrategy, compile, slice_for_columns,
};
use forebay_storage::{
    BackgroundTasks, CacheStats, DiskCache, ScanRequest, ScratchDir, StorageClient, StorageLocation,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::feed::late_steps::shared_operations;
use crate::feed::output_blocks::CommittedOutput;
use crate::feed::sequence_blocks::{PieceSummary, SequenceBlocks, SequenceCut, summarize_piece};
use crate::feed::source_blocks::{
    RowTransform, ScanPlan, SourceBlocks, cut_pieces, inspect_blocks,
};
use crate::session::{PreparedRun, Session, datasets};

/// Rows that are read at once at most: few enough to stay in the second-level cache.
const READ_ROWS_MAX: usize = 8192;

/// Rows and columns that are ready to be fed.
#[derive(Clone)]
pub struct FeedSource {
    /// The rows: of one dataset, or of several that are mixed.
    pub blocks: Vec<Arc<dyn BlockSource>>,
    /// The columns.
    pub features: BatchFeatures,
    /// What is read of each: an output, or the sources of the pipeline.
    pub from: Vec<FeedOrigin>,
    mix: Option<DatasetMixture>,
    /// What keeps the bytes of remote sources.
    caches: Vec<Arc<DiskCache>>,
    config: FeedConfig,
    threads: usize,
    /// Blocks that workers read at the same time; none without workers.
    streams: usize,
    memory_bytes: u64,
}

/// What a feed reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedOrigin {
    /// An output that a run has committed, by the name of its sink.
    Output(String),
    /// The sources; the steps are done on the way.
    Sources,
}

impl FeedSource {
    /// How many rows there are, each counted once.
    pub fn rows(&self) -> u64 {
        self.blocks
            .iter()
            .map(|blocks| blocks.dataset().rows())
            .sum()
    }

    /// How many blocks workers read at the same time at most; none where this machine reads.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// What the cache was good for so far, where there is one.
    pub fn cache(&self) -> Option<CacheStats> {
        let all = self.caches.iter().map(|cache| cache.stats());
        all.reduce(|a, b| CacheStats {
            hit_bytes: a.hit_bytes + b.hit_bytes,
            missed_bytes: a.missed_bytes + b.missed_bytes,
            corrupt: a.corrupt + b.corrupt,
            refused_bytes: a.refused_bytes + b.refused_bytes,
        })
    }

    /// What was asked for.
    pub(crate) fn config_of(&self) -> &FeedConfig {
        &self.config
    }

    /// How it is fed: rows in the order of a seed, for one rank of one, one epoch.
    pub fn config(&self, seed: u64) -> Result<FeedOptions> {
        let layout = BatchLayout::new(&self.features, self.config.rows_per_batch() as usize)?;
        let order = self
            .config
            .sample_order(seed, layout.window_row_bytes(&self.features));
        let order = SampleOrder {
            mix: self.mix.clone(),
            ..order
        };
        let mut config = FeedOptions::new(self.blocks.clone(), self.features.clone(), order);
        config.batch_rows = self.config.rows_per_batch();
        config.last = self.config.last.unwrap_or(config.last);
        config.threads = self.threads;
        let rows_apart = self.features.series.is_none();
        for streams in (0..=self.streams).rev() {
            // A thread that waits for a worker fills no batches: each stream gets a thread of its own.
            config.threads = self.threads + streams;
            // Blocks of sequences are large: they hold the history of their rows.
            config.read_ahead = if rows_apart { config.threads as u32 } else { 1 };
            config.memory_max = Some(
                self.memory_bytes
                    .saturating_sub(streams as u64 * ROWS_BYTES_MAX),
            );
            if streams <= 1 || Some(config.held_bytes()?) <= config.memory_max {
                break;
            }
        }
        Ok(config)
    }
}

impl Session {
    /// The rows of a pipeline as a feed reads them, with what `artifact` learned, or what earlier
    /// runs of the pipeline have.
    pub fn feed(
        &self,
        pipeline: &Pipeline,
        artifact: Option<&Artifact>,
        config: &FeedConfig,
    ) -> Result<FeedSource> {
        self.plan_feed(pipeline, artifact, config, None)
    }

    /// The same, of sources that end where an interval does. Where there are workers, they read.
    pub(crate) fn plan_feed(
        &self,
        pipeline: &Pipeline,
        artifact: Option<&Artifact>,
        config: &FeedConfig,
        interval: Option<&Interval>,
    ) -> Result<FeedSource> {
        let fed = self.plan_local_feed(pipeline, artifact, config, interval)?;
        let Some(cluster) = &self.cluster else {
            return Ok(fed);
        };
        if let Some(artifact) = artifact {
            artifact.ensure_written(&self.io, &self.state()?, self.options.threads)?;
        }
        let job = FeedSpec {
            pipeline: pipeline.clone(),
            config: config.clone(),
            artifact: artifact.map(|artifact| artifact.id),
            continues: self.earlier_id(),
            held: self.held_steps(),
            numbering: self.numbering_spec(),
            interval: interval.cloned(),
            state: self.options.state.clone(),
            base: self.io.absolute_path(".")?,
            batch_rows: self.options.batch_rows,
            datasets: fed
                .blocks
                .iter()
                .map(|blocks| blocks.dataset().fingerprint())
                .collect(),
        };
        fed.away(cluster, job, &self.interrupt)
    }

    /// The same without workers.
    pub(crate) fn plan_local_feed(
        &self,
        pipeline: &Pipeline,
        artifact: Option<&Artifact>,
        config: &FeedConfig,
        interval: Option<&Interval>,
    ) -> Result<FeedSource> {
        let at = pipeline.feed.as_ref().and_then(|feed| feed.at.as_ref());
        if !config.mix.is_empty() {
            return self
                .plan_mixture(pipeline, artifact, config, interval)
                .map_err(|fault| fault.at(at));
        }
        if config.epoch_rows.is_some() {
            let fault = Fault::new(codes::BAD_VALUE, "`epoch_rows` is for a mixture");
            return Err(fault
                .hint("leave it out: an epoch has every row once")
                .at(at));
        }
        let (from, split) = feed_rows(pipeline, config).map_err(|fault| fault.at(at))?;
        // A sink that is never written: what it would hold is what the feed delivers.
        let mut wanted = pipeline.clone();
        let is_future = |sink: &PipelineSink| sink.split.as_deref() == Some(FUTURE_PART);
        let per_step = pipeline
            .trainings
            .iter()
            .find(|own| own.from == from && StepStrategy::of(own).is_some());
        wanted.sinks.push(PipelineSink {
            name: "feed".to_owned(),
            from: from.clone(),
            format: "feed".to_owned(),
            // The rows of a training may have what the training may have.
            config: per_step.map_or(json!({}), |_| json!({ "strategy": "per_step" })),
            split,
            optional: false,
            at: at.cloned(),
        });
        let store = StateStore::new(self.io.clone(), self.state()?);
        let scratch = ScratchDir::new(Some(store.root()), self.watch.clone())?;
        let cache = self.feed_cache(config).map_err(|fault| fault.at(at))?;
        let io = cache.as_ref().map_or_else(
            || self.io.clone(),
            |cache| self.io.with_disk_cache(cache.clone()),
        );
        let mut later = BackgroundTasks::default();
        let sources = self.discover_inputs(&io, &wanted, Some((&scratch, &mut later)), interval)?;
        later.join_all()?;
        let state = RunState {
            sources,
            ..RunState::default()
        };
        let datasets = datasets(&state.sources);
        let bound = self.bind(&wanted, &datasets)?;
        let mut prepared = PreparedRun {
            datasets,
            state,
            bound,
            carried: None,
        };
        if self.carried.is_none() {
            prepared.carried =
                self.carried_run(&wanted, &prepared.bound, &prepared.state.sources, interval)?;
            prepared
                .carried
                .iter()
                .try_for_each(|carried| carried.apply(&wanted, &mut prepared.bound))?;
            self.measure_drift(&wanted, &mut prepared, &store, &scratch, false)?;
        }
        let PreparedRun {
            datasets,
            mut state,
            mut bound,
            ..
        } = prepared;
        // What the artifact learned is in force, whatever was learned since.
        let differs = |(ask, learned): (&BoundAnalyzer, &LearnedFinding)| {
            ask.held
                .as_ref()
                .is_some_and(|held| *held != learned.finding)
        };
        if artifact.is_some_and(|artifact| bound.asks.iter().zip(&artifact.findings).any(differs)) {
            bound.asks.iter_mut().for_each(|ask| ask.held = None);
        }
        // Outputs that hold the rows, or those of a step before.
        let suits = |sink: &PipelineSink| {
            !is_future(sink)
                && (sink.from == from || shared_operations(&bound, &from, &sink.from).is_some())
        };
        let mut sinks: Vec<usize> = (0..pipeline.sinks.len())
            .filter(|at| suits(&pipeline.sinks[*at]))
            .collect();
        sinks.push(pipeline.sinks.len());
        let asks = bound.asks.clone();
        let share = scratch.scratch_with_budget(self.memory(), self.memory().states_bytes());
        let mut found: BTreeMap<ContentId, Arc<Finding>> = BTreeMap::new();
        let program = compile(
            &wanted,
            bound,
            &datasets,
            &sinks,
            false,
            &mut |ask, state| {
                if let Some(artifact) = artifact {
                    let learned = artifact
                        .findings
                        .get(ask)
                        .map(|learned| learned.finding.clone());
                    let strange = || {
                        Fault::new(
                            codes::STATE_VERSION,
                            "the artifact was fitted by another pipeline",
                        )
                    };
                    found.insert(state, learned.ok_or_else(strange)?);
                    return Ok(true);
                }
                store.load_finding(state, asks[ask].ask.analyzer.as_ref(), &share, &mut found)
            },
        )?;
        state.findings = found;
        let (session, pipeline, program, state) = (self, &wanted, &program, &state);
        FeedPlanner {
            session,
            io,
            cache,
            pipeline,
            config,
            program,
            state,
            store,
            scratch,
        }
        .plan()
    }

    fn feed_cache(&self, config: &FeedConfig) -> Result<Option<Arc<DiskCache>>> {
        let Some(wanted) = &config.cache else {
            return Ok(None);
        };
        Ok(Some(Arc::new(DiskCache::open(
            &self.io.absolute_path(&wanted.path)?,
            wanted.bytes_max,
        )?)))
    }
}

/// Which step or source, and which part of the split.
fn feed_rows(pipeline: &Pipeline, config: &FeedConfig) -> Result<(String, Option<String>)> {
    let sink = pipeline
        .sinks
        .iter()
        .find(|sink| sink.split.as_deref() != Some(FUTURE_PART));
    let from = config
        .from
        .clone()
        .or_else(|| sink.map(|sink| sink.from.clone()));
    let from = from.or_else(|| pipeline.nodes.last().map(|node| node.name.clone()));
    let from = from.or_else(|| pipeline.sources.first().map(|source| source.name.clone()));
    let from = from.ok_or_else(|| Fault::new(codes::EMPTY, "the pipeline has no rows to feed"))?;
    let of_sink = sink
        .filter(|sink| config.from.is_none() && sink.from == from)
        .and_then(|sink| sink.split.clone());
    let split = config.split.clone().or(of_sink);
    if split.as_deref() == Some(FUTURE_PART) {
        let fault = Fault::new(
            codes::UNSUPPORTED,
            "a feed cannot deliver rows of the future",
        );
        return Err(fault.hint("write them with a sink, or let a `predict` sink use them"));
    }
    Ok((from, split))
}

/// A feed on its way.
struct FeedPlanner<'a> {
    session: &'a Session,
    /// Reads rows by way of the cache, where there is one.
    io: StorageClient,
    cache: Option<Arc<DiskCache>>,
    pipeline: &'a Pipeline,
    config: &'a FeedConfig,
    program: &'a Program,
    state: &'a RunState,
    store: StateStore,
    scratch: ScratchDir,
}

impl FeedPlanner<'_> {
    /// The sink that is never written.
    fn feed_sink(&self) -> Result<&PipelineSink> {
        self.pipeline
            .sinks
            .last()
            .ok_or_else(|| Fault::internal("a feed without rows"))
    }

    fn bound(&self) -> &BoundPipeline {
        &self.program.bound
    }

    /// The work and the pass of each sink.
    fn writes(&self) -> impl Iterator<Item = (ContentId, &SinkWork)> {
        self.program
            .passes
            .iter()
            .filter_map(|pass| match &pass.work {
                PassWork::Write(work) => Some((pass.id, work)),
                _ => None,
            })
    }

    fn plan(&self) -> Result<FeedSource> {
        let sink = self.feed_sink()?;
        let last = self.pipeline.sinks.len() - 1;
        let (pass, work) = self
            .writes()
            .find(|(_, work)| work.sink == last)
            .ok_or_else(|| Fault::internal("a feed without rows to read"))?;
        let committed = self.committed_output()?;
        // What was learned decides how wide some columns are; an output tells as well.
        let schema = match (&committed, self.check_learned()) {
            (_, Ok(())) => self.learned_schema(work)?,
            (Some(committed), Err(_)) if committed.late.is_none() => {
                committed.input.dataset.schema.as_ref().clone()
            }
            (_, Err(fault)) => return Err(fault.at(sink.at.as_ref())),
        };
        let features =
            features::choose_features(self.pipeline, self.bound(), &schema, self.config)?;
        let (from, fingerprint) = match &committed {
            Some(committed) => (FeedOrigin::Output(committed.sink.clone()), committed.id),
            None => (FeedOrigin::Sources, pass),
        };
        let source = FeedInput {
            work,
            committed: committed.as_ref(),
            fingerprint,
        };
        let blocks: Arc<dyn BlockSource> = match &features.series {
            Some(series) => Arc::new(self.sequences(&source, &features, series)?),
            None => {
                let readings = source.scan_plans(self, &features.columns(), false)?;
                let layout = BatchLayout::new(&features, self.config.rows_per_batch() as usize)?;
                let rows_max = self
                    .config
                    .block_rows_max(layout.window_row_bytes(&features));
                let blocks = cut_pieces(&self.io, &readings, rows_max)?;
                let counts = self.block_row_counts(&readings, &blocks, &source)?;
                let time = self
                    .pipeline
                    .sources
                    .iter()
                    .find_map(|source| source.time.as_deref());
                let ids = blocks
                    .iter()
                    .map(|(_, span)| source.block_id(span))
                    .collect();
                let blocks = SourceBlocks::new(
                    self.io.clone(),
                    fingerprint,
                    readings,
                    blocks,
                    &counts,
                    time,
                );
                Arc::new(blocks.with_ids(ids))
            }
        };
        Ok(FeedSource {
            blocks: vec![blocks],
            features,
            from: vec![from],
            mix: None,
            caches: self.cache.iter().cloned().collect(),
            config: self.config.clone(),
            threads: self.session.options.threads.max(1),
            streams: 0,
            memory_bytes: self.session.options.memory_bytes,
        })
    }

    /// Rows and what their series had before them.
    fn sequences(
        &self,
        source: &FeedInput,
        features: &BatchFeatures,
        series: &SequenceOptions,
    ) -> Result<SequenceBlocks> {
        let io = self.io.clone();
        // The last column says which rows are delivered; the blocks make it.
        let mut columns = features.columns();
        columns.pop();
        let readings = source.scan_plans(self, &columns, true)?;
        let blocks = cut_pieces(&io, &readings, None)?;
        let known: Vec<String> = series.keys.iter().chain(&series.time).cloned().collect();
        let mut id = IdBuilder::new("series of blocks");
        id.id(source.fingerprint)
            .json(&json!([known, self.feed_sink()?.split]));
        blocks.iter().for_each(|(_, span)| {
            id.id(span.fingerprint());
        });
        let found: Vec<PieceSummary> =
            self.load_or_compute(id.finish(), blocks.len(), &mut || {
                let threads = self.session.options.threads.max(1);
                inspect_blocks(
                    &io,
                    &source.scan_plans(self, &known, true)?,
                    &blocks,
                    threads,
                    &summarize_piece,
                )
            })?;
        let layout = BatchLayout::new(features, self.config.rows_per_batch() as usize)?;
        let window_rows = self.config.wanted_window(layout.window_row_bytes(features));
        let time = columns.len() - 1;
        let cut = SequenceCut {
            series,
            time,
            window_rows,
        };
        SequenceBlocks::new(io, source.fingerprint, readings, blocks, &found, &cut)
    }

    /// What was found out about blocks once, and is kept.
    fn load_or_compute<T: Serialize + DeserializeOwned>(
        &self,
        id: ContentId,
        blocks: usize,
        find: &mut dyn FnMut() -> Result<Vec<T>>,
    ) -> Result<Vec<T>> {
        let kept = self
            .store
            .get_metadata(id)?
            .and_then(|notes| serde_json::from_slice::<Vec<T>>(&notes).ok());
        if let Some(kept) = kept.filter(|kept| kept.len() == blocks) {
            return Ok(kept);
        }
        let found = find()?;
        let notes = serde_json::to_vec(&found)
            .map_err(|error| Fault::internal("notes of blocks").cause(error))?;
        self.store.put_metadata(id, &notes, &self.scratch)?;
        Ok(found)
    }

    /// All columns with their types.
    fn learned_schema(&self, work: &SinkWork) -> Result<Schema> {
        let scan = work
            .scans
            .first()
            .ok_or_else(|| Fault::internal("a feed without a scan"))?;
        let stream = self.stream(scan)?;
        let (ops, base_columns) =
            slice_for_columns(self.bound(), stream, &with_part(&work.columns, work));
        let chain = self.chain(
            stream,
            &ops,
            &base_columns,
            &work.columns,
            work.part.clone(),
        )?;
        Ok(Schema::new(chain.fields(0).to_vec()))
    }

    /// The sources, with the operations that the columns need; where there are sequences, with the rows of
    /// other parts.
    fn source_plans(
        &self,
        work: &SinkWork,
        columns: &[String],
        flagged: bool,
    ) -> Result<Vec<ScanPlan>> {
        let (mut columns, places) = distinct(columns);
        let mut readings = Vec::new();
        let flagged = flagged && work.part.is_some();
        let part = if flagged { None } else { work.part.clone() };
        if flagged {
            columns.extend(work.part.clone());
        }
        for scan in &work.scans {
            let stream = self.stream(scan)?;
            let (ops, base_columns) =
                slice_for_columns(self.bound(), stream, &with_part(&columns, work));
            self.check_row_independence(stream, &ops)?;
            let chain = self.chain(stream, &ops, &base_columns, &columns, part.clone())?;
            let request = self.request(scan, base_columns)?;
            let input = self.state.input(self.program, scan.base)?.clone();
            let (transform, places) = (RowTransform::Chain(Box::new(chain)), places.clone());
            readings.push(ScanPlan {
                input,
                request,
                transform,
                places,
                flagged,
            });
        }
        Ok(readings)
    }

    fn stream<'s>(&self, scan: &'s ColumnScan) -> Result<&'s OpStream> {
        let stream = scan
            .streams
            .first()
            .ok_or_else(|| Fault::internal("a scan without a stream"))?;
        Ok(&stream.stream)
    }

    fn request(&self, scan: &ColumnScan, columns: Vec<String>) -> Result<ScanRequest> {
        let rows = self.session.options.batch_rows.min(READ_ROWS_MAX);
        let input = self.state.input(self.program, scan.base)?;
        Ok(ScanRequest {
            columns,
            ..scan_request(self.program, scan, input, rows, false)
        })
    }

    fn chain(
        &self,
        stream: &OpStream,
        ops: &[usize],
        base_columns: &[String],
        columns: &[String],
        part: Option<String>,
    ) -> Result<OpChain> {
        let want = ColumnTap {
            after: stream.ops.len(),
            columns: columns.to_vec(),
            part,
        };
        let finding = |ask| self.state.finding(self.program, ask);
        let told = ChainContext {
            finding: &finding,
            row_order: &|op| self.state.row_order(op),
        };
        OpChain::new(self.bound(), stream, ops, base_columns, &[want], told)
    }

    /// What the steps learn must be known.
    fn check_learned(&self) -> Result<()> {
        let open =
            |work: &PassWork| matches!(work, PassWork::Learn(work) if !work.lanes.is_empty());
        if !self.program.passes.iter().any(|pass| open(&pass.work)) {
            return Ok(());
        }
        let sink = self.feed_sink()?;
        let message = format!(
            "`{}` needs statistics of this data that no run has learned",
            sink.from
        );
        Err(Fault::new(codes::NOT_FOUND, message)
            .hint("run `forebay fit` or `forebay run` with the same spec, parameters and state directory first"))
    }

    /// Rows are fed in any order, so that nothing may depend on the rows before.
    fn check_row_independence(&self, stream: &OpStream, ops: &[usize]) -> Result<()> {
        let bound = self.bound();
        let over_series = ops
            .iter()
            .map(|at| stream.ops[*at])
            .find(|op| bound.ops[*op].op.is_over_series());
        let gathered = match &bound.bases[stream.base] {
            BaseDataset::Gathered(op) => Some(*op),
            BaseDataset::Source(_) => None,
        };
        let Some(op) = over_series.or(gathered) else {
            return Ok(());
        };
        let sink = self.feed_sink()?;
        let part = sink
            .split
            .as_ref()
            .map_or_else(String::new, |part| format!(" with `split: {part}`"));
        let why = match gathered.is_some() {
            true => "all rows at once",
            false => "the rows before",
        };
        let message = format!(
            "`{}` needs {why}, so `{}` is fed from an output",
            bound.ops[op].label, sink.from
        );
        let hint = format!(
            "write `{}` to a sink{part} and run the spec; a feed then reads what was written",
            sink.from
        );
        Err(Fault::new(codes::UNSUPPORTED, message).hint(hint))
    }

    /// Where an output is, and the manifest of its rows: that of a pass as readers see it, or as a run that has not
    /// published yet recorded it; or that of all intervals.
    fn output_of(
        &self,
        pass: ContentId,
        sink: usize,
    ) -> Result<(StorageLocation, Option<Manifest>)> {
        let (io, name) = (&self.session.io, pass.to_string());
        let out = self.session.output(self.pipeline, sink)?;
        let visible = Manifest::read(io, &out)?;
        let is_current =
            |manifest: &Manifest| manifest.pass == name || !manifest.intervals.is_empty();
        if visible.as_ref().is_some_and(is_current) {
            return Ok((out, visible));
        }
        let recorded = match self
            .store
            .pass_record(pass, |record| record_is_intact(io, &out, record))?
        {
            (ReuseDecision::Reuse, Some(record)) => Some(Manifest::from_record(&record)?),
            _ => None,
        };
        Ok((out, recorded))
    }
}

/// Where rows are read.
struct FeedInput<'a> {
    work: &'a SinkWork,
    committed: Option<&'a CommittedOutput>,
    fingerprint: ContentId,
}

impl FeedInput<'_> {
    fn scan_plans(
        &self,
        feeding: &FeedPlanner,
        columns: &[String],
        flagged: bool,
    ) -> Result<Vec<ScanPlan>> {
        match self.committed {
            Some(committed) => Ok(vec![feeding.output_plan(committed, columns, flagged)?]),
            None => feeding.source_plans(self.work, columns, flagged),
        }
    }

    /// Names the stored rows of a span.
    fn block_id(&self, span: &Span) -> ContentId {
        self.committed
            .map_or_else(|| span.fingerprint(), |committed| committed.block_id(span))
    }
}

/// The columns, and the hidden one of the part.
fn with_part<'a>(columns: &'a [String], work: &'a SinkWork) -> Vec<&'a str> {
    columns
        .iter()
        .chain(&work.part)
        .map(String::as_str)
        .collect()
}

/// Each column once, and where each column of the feed is among them.
fn distinct(all: &[String]) -> (Vec<String>, Vec<usize>) {
    let mut seen = BTreeSet::new();
    let columns: Vec<String> = all
        .iter()
        .filter(|name| seen.insert((*name).clone()))
        .cloned()
        .collect();
    let place = |name: &String| columns.iter().position(|known| known == name).unwrap_or(0);
    let places = all.iter().map(place).collect();
    (columns, places)
}
