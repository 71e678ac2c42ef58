//! Plans the input of a feed: the rows of a pipeline, from an output that a run has committed, or
//! from the sources with the findings applied while they are read.

pub(crate) mod features;
mod fed_rows;
pub(crate) mod late_steps;
mod mix;
mod output_blocks;
mod planner;
mod remote_blocks;
mod row_counts;
pub(crate) mod selected_blocks;
mod sequence_blocks;
mod source_blocks;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::Schema;
use forebay_cluster::{FeedSpec, ROWS_BYTES_MAX};
use forebay_commit::{Artifact, Manifest, ReuseDecision, StateStore, record_is_intact};
use forebay_contract::{FeedOrigin, FeedSource, ScanRequest};
use forebay_execute::{RunState, scan_request, stop_check_of};
use forebay_feed::{
    BatchFeatures, BatchLayout, BlockSource, FeedConfig, ReportDuplicates, SequenceOptions,
};
use forebay_model::{
    ContentId, Fault, Finding, IdBuilder, Interval, Pipeline, PipelineSink, Result, Span, codes,
};
use forebay_plan::{
    AnalyzerId, BaseDataset, BoundPipeline, ChainContext, ColumnScan, ColumnTap, FEED_FORMAT,
    FUTURE_PART, OpChain, OpStream, PassWork, ReaderFacts, SinkWork, compile, slice_for_columns,
};
use forebay_storage::{
    BackgroundTasks, DiskCache, Event, EventListener, ScratchDir, StorageClient, StorageLocation,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

pub(crate) use self::fed_rows::feed_rows;

use crate::feed::late_steps::shared_operations;
use crate::feed::output_blocks::CommittedOutput;
use crate::feed::planner::{FeedPlanner, READ_ROWS_MAX, distinct};
use crate::feed::remote_blocks::read_on_workers;
use crate::feed::sequence_blocks::{PieceSummary, SequenceBlocks, SequenceCut, summarize_piece};
use crate::feed::source_blocks::{
    RowTransform, ScanPlan, SourceBlocks, cut_pieces, inspect_blocks,
};
use crate::label_copies::inspect_first_batch;
use crate::session::{PreparedRun, Session, datasets};

impl Session {
    /// The rows of a pipeline as a feed reads them, with the findings of `artifact`, or of earlier
    /// runs of the pipeline.
    pub fn feed(
        &self,
        pipeline: &Pipeline,
        artifact: Option<&Artifact>,
        config: &FeedConfig,
    ) -> Result<FeedSource> {
        let mut feed = self.plan_feed(pipeline, artifact, config, None)?;
        feed.on_first_batch = inspect_first_batch(&feed.features, &self.watch);
        feed.on_duplicates = Some(warn_of_duplicates(self.watch.clone()));
        Ok(feed)
    }

    /// Plans a feed of sources that end with an interval. Workers read the rows, if any are
    /// connected.
    pub(crate) fn plan_feed(
        &self,
        pipeline: &Pipeline,
        artifact: Option<&Artifact>,
        config: &FeedConfig,
        interval: Option<&Interval>,
    ) -> Result<FeedSource> {
        let feed = self.plan_local_feed(pipeline, artifact, config, interval)?;
        let Some(cluster) = &self.cluster else {
            return Ok(feed);
        };
        if let Some(artifact) = artifact {
            artifact.ensure_written(&self.io, &self.state()?, self.options.threads)?;
        }
        let feed_spec = FeedSpec {
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
            datasets: feed
                .blocks
                .iter()
                .map(|blocks| blocks.dataset().fingerprint())
                .collect(),
        };
        read_on_workers(feed, cluster, feed_spec, &self.interrupt)
    }

    /// Plans a feed whose rows this machine reads.
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
        let readers = self.reader_facts(pipeline);
        let mut feed_pipeline = with_feed_sink(pipeline, &readers, &from, split);
        let store = StateStore::new(self.io.clone(), self.state()?);
        let scratch = ScratchDir::new(Some(store.root()), self.watch.clone())?;
        let cache = self.feed_cache(config).map_err(|fault| fault.at(at))?;
        let io = cache.as_ref().map_or_else(
            || self.io.clone(),
            |cache| self.io.with_disk_cache(cache.clone()),
        );
        let prepared = self.prepare_feed(&mut feed_pipeline, &io, &store, &scratch, interval)?;
        let PreparedRun {
            datasets,
            mut state,
            mut bound,
            ..
        } = prepared;
        // The findings of the artifact are used, even if a later run has learned others.
        if artifact.is_some_and(|artifact| holds_other_findings(&bound, artifact)) {
            for ask in &mut bound.asks {
                ask.held = None;
            }
        }
        let mut sinks = sinks_that_hold(pipeline, &bound, &from);
        sinks.push(pipeline.sinks.len());
        let asks = bound.asks.clone();
        let share = scratch.scratch_with_budget(self.memory(), self.memory().states_bytes());
        let mut findings: BTreeMap<ContentId, Arc<Finding>> = BTreeMap::new();
        let program = compile(
            &feed_pipeline,
            bound,
            &datasets,
            &sinks,
            false,
            &mut |ask, state| {
                if let Some(artifact) = artifact {
                    findings.insert(state, finding_of(artifact, ask)?);
                    return Ok(true);
                }
                let analyzer = asks[ask].ask.analyzer.as_ref();
                store.load_finding(state, analyzer, &share, &mut findings)
            },
        )?;
        state.findings = findings;
        let planner = FeedPlanner {
            session: self,
            io,
            cache,
            pipeline: &feed_pipeline,
            config,
            program: &program,
            state: &state,
            store,
            scratch,
        };
        planner.plan()
    }

    /// Binds the pipeline of a feed to its inputs, with the findings that an earlier run carries on.
    fn prepare_feed(
        &self,
        pipeline: &mut Pipeline,
        io: &StorageClient,
        store: &StateStore,
        scratch: &ScratchDir,
        interval: Option<&Interval>,
    ) -> Result<PreparedRun> {
        let mut background = BackgroundTasks::default();
        let tasks = Some((scratch, &mut background));
        let sources = self.discover_inputs(io, pipeline, tasks, interval)?;
        background.join_all()?;
        let state = RunState {
            sources,
            ..RunState::default()
        };
        pipeline.split = self.resolve_split(pipeline, &state.sources, interval)?;
        let datasets = datasets(&state.sources);
        let bound = self.bind(pipeline, &datasets)?;
        let mut prepared = PreparedRun {
            datasets,
            state,
            bound,
            split: pipeline.split.clone(),
            carried: None,
        };
        if self.attempt.carried.is_some() {
            return Ok(prepared);
        }
        let sources = &prepared.state.sources;
        prepared.carried = self.carried_run(pipeline, &prepared.bound, sources, interval)?;
        if let Some(carried) = &prepared.carried {
            carried.apply(pipeline, &mut prepared.bound)?;
        }
        self.measure_drift(pipeline, &mut prepared, store, scratch, false)?;
        Ok(prepared)
    }

    fn feed_cache(&self, config: &FeedConfig) -> Result<Option<Arc<DiskCache>>> {
        let Some(cache) = &config.cache else {
            return Ok(None);
        };
        Ok(Some(Arc::new(DiskCache::open(
            &self.io.absolute_path(&cache.path)?,
            cache.bytes_max,
        )?)))
    }
}

/// The pipeline with a sink that is never written: what it would hold is what the feed delivers.
fn with_feed_sink(
    pipeline: &Pipeline,
    readers: &ReaderFacts,
    from: &str,
    split: Option<String>,
) -> Pipeline {
    // A part of the id of the rows, which nothing reads.
    let config = match readers.feed_strategy(pipeline, from) {
        Some(_) => json!({ "strategy": "per_step" }),
        None => json!({}),
    };
    let mut feed_pipeline = pipeline.clone();
    feed_pipeline.sinks.push(PipelineSink {
        name: "feed".to_owned(),
        from: from.to_owned(),
        format: FEED_FORMAT.to_owned(),
        config,
        split,
        optional: false,
        at: pipeline.feed.as_ref().and_then(|feed| feed.at.clone()),
    });
    feed_pipeline
}

/// The sinks of a pipeline whose outputs hold the rows of a step, or those of a step before it.
fn sinks_that_hold(pipeline: &Pipeline, bound: &BoundPipeline, from: &str) -> Vec<usize> {
    let mut sinks = Vec::new();
    for (number, sink) in pipeline.sinks.iter().enumerate() {
        let is_future = sink.split.as_deref() == Some(FUTURE_PART);
        let holds_rows = sink.from == from || shared_operations(bound, from, &sink.from).is_some();
        if holds_rows && !is_future {
            sinks.push(number);
        }
    }
    sinks
}

/// The finding of an artifact for a question of its pipeline.
fn finding_of(artifact: &Artifact, ask: AnalyzerId) -> Result<Arc<Finding>> {
    let learned = artifact.findings.get(ask);
    let finding = learned.map(|learned| learned.finding.clone());
    finding.ok_or_else(|| {
        let message = "the artifact was fitted by another pipeline";
        Fault::new(codes::STATE_VERSION, message)
    })
}

/// Warns of rows of sequences with the keys and the time of a row before them.
fn warn_of_duplicates(listener: Arc<dyn EventListener>) -> ReportDuplicates {
    Arc::new(move |rows| {
        let message = format!(
            "sequences of the feed hold rows with the same keys and the same time as a row before \
             them ({rows} among the first that were read): a key may be missing. Name all columns \
             that tell series apart in `keys`, `dedupe` the rows, or declare `duplicates: allow` \
             beside `keys`"
        );
        listener.on_event(Event::Warning { message });
    })
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
        // The findings decide the width of some columns; the schema of an output has it as well.
        let schema = match (&committed, self.check_learned()) {
            (_, Ok(())) => self.learned_schema(work)?,
            (Some(committed), Err(_)) if committed.late.is_none() => {
                committed.input.dataset.schema.as_ref().clone()
            }
            (_, Err(fault)) => return Err(fault.at(sink.at.as_ref())),
        };
        let features =
            features::choose_features(self.pipeline, self.bound(), &schema, self.config)?;
        let predicted = self.session.predicted_labels(self.pipeline, &sink.from);
        features::refuse_predicted_features(&features, &predicted)?;
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
            None => Arc::new(self.single_rows(&source, &features)?),
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
            stream_bytes_max: ROWS_BYTES_MAX,
            memory_bytes: self.session.options.memory_bytes,
            on_first_batch: None,
            on_duplicates: None,
        })
    }

    /// Rows without others of their series.
    fn single_rows(&self, source: &FeedInput, features: &BatchFeatures) -> Result<SourceBlocks> {
        let readings = source.scan_plans(self, &features.columns(), false)?;
        let layout = BatchLayout::new(features, self.config.rows_per_batch() as usize)?;
        let row_bytes = layout.window_row_bytes(features);
        let rows_max = self.config.block_rows_max(row_bytes);
        let blocks = cut_pieces(&self.io, &readings, rows_max)?;
        let counts = self.block_row_counts(&readings, &blocks, source)?;
        let mut ids = Vec::with_capacity(blocks.len());
        for (_, span) in &blocks {
            ids.push(source.block_id(span));
        }
        let mut times = self.pipeline.sources.iter().flat_map(|source| &source.time);
        let time = times.next().map(String::as_str);
        let blocks = SourceBlocks::new(
            self.io.clone(),
            source.fingerprint,
            readings,
            blocks,
            &counts,
            time,
        );
        Ok(blocks.with_ids(ids))
    }

    /// Rows with the earlier rows of their series.
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
        let key_columns: Vec<String> = series.keys.iter().chain(&series.time).cloned().collect();
        let mut id = IdBuilder::new("series of blocks");
        id.id(source.fingerprint)
            .json(&json!([key_columns, self.feed_sink()?.split]));
        for (_, span) in &blocks {
            id.id(span.fingerprint());
        }
        let mut summarize = || {
            let threads = self.session.options.threads.max(1);
            let key_readings = source.scan_plans(self, &key_columns, true)?;
            inspect_blocks(&io, &key_readings, &blocks, threads, &summarize_piece)
        };
        let summaries: Vec<PieceSummary> =
            self.load_or_compute(id.finish(), blocks.len(), &mut summarize)?;
        let layout = BatchLayout::new(features, self.config.rows_per_batch() as usize)?;
        let window_rows = self.config.wanted_window(layout.window_row_bytes(features));
        let cut = SequenceCut {
            series,
            time: columns.len() - 1,
            window_rows,
        };
        SequenceBlocks::new(io, source.fingerprint, readings, blocks, &summaries, &cut)
    }

    /// Facts about blocks, loaded from the store or computed once and kept there.
    fn load_or_compute<T: Serialize + DeserializeOwned>(
        &self,
        id: ContentId,
        blocks: usize,
        find: &mut dyn FnMut() -> Result<Vec<T>>,
    ) -> Result<Vec<T>> {
        let stored = self
            .store
            .get_metadata(id)?
            .and_then(|metadata| serde_json::from_slice::<Vec<T>>(&metadata).ok());
        if let Some(stored) = stored.filter(|stored| stored.len() == blocks) {
            return Ok(stored);
        }
        let values = find()?;
        let metadata = serde_json::to_vec(&values)
            .map_err(|error| Fault::internal("notes of blocks").cause(error))?;
        self.store.put_metadata(id, &metadata, &self.scratch)?;
        Ok(values)
    }

    /// All columns with their types, once the findings are known.
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
        let (mut columns, positions) = distinct(columns);
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
            readings.push(ScanPlan {
                input,
                request,
                transform: RowTransform::Chain(Box::new(chain)),
                positions: positions.clone(),
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
            marks_unfound: false,
        };
        let finding = |ask| self.state.finding(self.program, ask);
        let check_stop = stop_check_of(&self.io);
        let context = ChainContext {
            finding: &finding,
            row_order: &|op| self.state.row_order(op),
            admit: None,
            check_stop: Some(&check_stop),
        };
        OpChain::new(self.bound(), stream, ops, base_columns, &[want], context)
    }

    /// Fails if a finding that the steps need is not known.
    fn check_learned(&self) -> Result<()> {
        let mut passes = self.program.passes.iter();
        let has_work = passes.any(|pass| match &pass.work {
            PassWork::Learn(work) => !work.lanes.is_empty(),
            PassWork::Gather(_) | PassWork::Write(_) => false,
        });
        if !has_work {
            return Ok(());
        }
        let sink = self.feed_sink()?;
        let message = format!(
            "`{}` needs statistics of this data that no run has learned",
            sink.from
        );
        Err(Fault::new(codes::NOT_FOUND, message).hint(
            "run `forebay fit` or `forebay run` with the same spec, parameters and state \
                   directory first",
        ))
    }

    /// Checks that no operation depends on other rows: rows are fed in any order.
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
        let part = match &sink.split {
            Some(part) => format!(" with `split: {part}`"),
            None => String::new(),
        };
        let why = if gathered.is_some() {
            "all rows at once"
        } else {
            "the rows before"
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

    /// Location of an output, and the manifest of its rows: that of a pass as readers see it, or as
    /// a run that has not published yet recorded it; or that of all intervals.
    fn output_of(
        &self,
        pass: ContentId,
        sink: usize,
    ) -> Result<(StorageLocation, Option<Manifest>)> {
        let io = &self.session.io;
        let name = pass.to_string();
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

/// Origin of the rows that are read.
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

    /// Id of the stored rows of a span.
    fn block_id(&self, span: &Span) -> ContentId {
        match self.committed {
            Some(committed) => committed.block_id(span),
            None => span.fingerprint(),
        }
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

/// True if analyzers hold findings that are not those of an artifact.
fn holds_other_findings(bound: &BoundPipeline, artifact: &Artifact) -> bool {
    let mut pairs = bound.asks.iter().zip(&artifact.findings);
    pairs.any(|(ask, learned)| {
        let held_finding = ask.held.as_ref();
        held_finding.is_some_and(|finding| *finding != learned.finding)
    })
}
