//! The learning pass: analyzers grouped in lanes of columns read rows span by span, and their states are merged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use forebay_commit::{RetainedIds, StateStore};
use forebay_contract::{ChunkIterator, ScanRequest};
use forebay_model::{
    AnalyzerInput, AnyAnalyzer, AnyState, Chunk, ContentId, Fault, Finding, Pipeline, Result,
    ScratchSpace, catch_panic, codes,
};
use forebay_plan::{
    AnalyzerId, AnalyzerLane, BaseId, Carry, ColumnScan, ColumnTap, OpChain, RowCounts, ScanStream,
    WindowBudget, with_stop_check,
};
use forebay_storage::failpoint::{reading, step};
use forebay_storage::{Event, EventListener, ScratchDir};
use forebay_threads::lock;

use crate::chunk_groups::ChunkGroups;
use crate::chunk_source::{ChunkIter, SpanRef};
use crate::cluster_handle::ClusterHandle;
use crate::pass_context::{PassContext, stop_check_of};
use crate::read_ahead::{PlannedSpan, ReadAhead};
use crate::run_state::{group_bytes_max, group_rows_max, scan_request};
use crate::scan_progress::ScanProgress;
use crate::source_input::SourceInput;

/// The least memory for a state that can spill; with less it would spill constantly.
pub(crate) const SPILLING_STATE_BYTES_MIN: usize = 4 << 20;

/// Rows of a finding from which on workers get it and its index, instead of finishing the state each for itself.
const SHARED_FINDING_ROWS_MIN: usize = 4096;

/// The inputs of the pass, shared by its threads.
pub struct LearnPass<'a> {
    pub context: PassContext<'a>,
    pub pipeline: &'a Pipeline,
    pub store: &'a StateStore,
    pub scratch: &'a ScratchDir,
    pub watch: &'a dyn EventListener,
    pub cluster: Option<ClusterHandle<'a>>,
    /// True if this process is a worker.
    pub on_worker: bool,
    /// Receives the states of all rows for analyzers without a finding. `None`: states are
    /// committed, and findings are made of them.
    pub states: Option<&'a Mutex<BTreeMap<AnalyzerId, AnyState>>>,
    /// Groups whose states of runs of spans are committed along with those of the other analyzers. Another pass merges
    /// them.
    pub along: Option<&'a BTreeSet<AnalyzerId>>,
}

/// The result of a learning pass.
#[derive(Default)]
pub struct LearnResult {
    /// Findings by state id.
    pub findings: BTreeMap<ContentId, Arc<Finding>>,
    /// The row counts of the lane with the most rows.
    pub counts: RowCounts,
    /// Rows that were not read, because committed states of earlier runs cover them.
    pub rows_kept: u64,
    /// The ids to retain for later runs.
    pub kept: RetainedIds,
}

/// A stream's chain with its taps.
pub struct TappedChain {
    pub chain: OpChain,
    /// Index of the lane's analyzer, for each tap.
    pub places: Vec<usize>,
}

/// Columns that one scan of a lane reads, and the chains of its streams.
pub struct LaneScan {
    pub request: Arc<ScanRequest>,
    pub chains: Vec<TappedChain>,
}

impl LaneScan {
    /// True if windows need the rows in order.
    fn is_ordered(&self) -> bool {
        self.chains.iter().any(|tapped| tapped.chain.is_ordered())
    }
}

/// The states that rows are accumulated into, and the counts of these rows.
pub struct LaneStates<'a> {
    /// State of each analyzer of the lane.
    pub states: &'a mut [AnyState],
    /// Returns true for the analyzers that are updated.
    pub wants: &'a dyn Fn(usize) -> bool,
    pub counts: &'a mut RowCounts,
}

pub struct LaneExecution<'a> {
    pub lane: &'a AnalyzerLane,
    pub scans: Vec<LaneScan>,
    pub(crate) tasks: Vec<SpanRef>,
    next: AtomicUsize,
    /// True if one thread has to read all spans in order, because of window state.
    in_order: bool,
    /// True if a thread may update one state with any spans in any order.
    order_free: bool,
    pub scratches: Vec<Arc<dyn ScratchSpace>>,
    merged: Mutex<LaneMerge>,
    /// The spans that are read next, by the lane's place among the lanes of the pass.
    ahead: (Arc<ReadAhead<(usize, SpanRef)>>, usize),
}

/// The lane's merged result so far.
#[derive(Default)]
struct LaneMerge {
    started: bool,
    participants: usize,
    states: Option<Vec<AnyState>>,
    /// States of spans that wait for earlier ones; used if the order of merging matters.
    waiting: BTreeMap<usize, Vec<AnyState>>,
    merged_until: usize,
    counts: RowCounts,
}

impl LaneExecution<'_> {
    /// Announces spans that are read in this order.
    pub fn plan_reads(
        &self,
        learn: &LearnPass<'_>,
        tasks: impl Iterator<Item = SpanRef>,
    ) -> Result<()> {
        let (read_ahead, lane_number) = &self.ahead;
        for task in tasks {
            let input = learn
                .context
                .input(self.lane.scans[task.scan].base)?
                .clone();
            let request = self.scans[task.scan].request.clone();
            let planned_span = PlannedSpan {
                input,
                span: task.span,
                request,
            };
            read_ahead.plan([((*lane_number, task), planned_span)])?;
        }
        Ok(())
    }

    /// Cancels reads that were announced and not used.
    pub fn end_reads(&self) -> Result<()> {
        self.ahead.0.clear()
    }

    /// The next span that no thread reads yet, with its index.
    fn next_task(&self) -> Option<(usize, &[SpanRef])> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let task = self.tasks.get(index..=index)?;
        Some((index, task))
    }

    fn unread_spans(&self) -> usize {
        let started = self.next.load(Ordering::Relaxed);
        self.tasks.len().saturating_sub(started)
    }

    fn open_ahead(&self, learn: &LearnPass<'_>, task: SpanRef) -> Result<ChunkIterator> {
        let (read_ahead, lane_number) = &self.ahead;
        let io = learn.context.io;
        read_ahead.take(io, (*lane_number, task), || {
            let input = learn.context.input(self.lane.scans[task.scan].base)?;
            let span = &input.dataset.spans[task.span];
            input.source.open(io, span, &self.scans[task.scan].request)
        })
    }
}

/// Reads spans of one scan of a lane, and updates the analyzers of the lane.
struct LaneScanReader<'a> {
    learn: &'a LearnPass<'a>,
    run: &'a LaneExecution<'a>,
    scan: usize,
}

impl LaneScanReader<'_> {
    fn chains(&self) -> &[TappedChain] {
        &self.run.scans[self.scan].chains
    }

    fn input(&self) -> Result<&SourceInput> {
        let base = self.run.lane.scans[self.scan].base;
        self.learn.context.input(base)
    }

    /// The progress of reading some spans.
    fn progress(&self, tasks: &[SpanRef]) -> Result<ScanProgress> {
        let dataset = &self.input()?.dataset;
        // Lanes share the bytes of a span; each reports its share.
        let share = if dataset.column_bytes.is_some() {
            self.run.lane.bytes as f64 / (dataset.bytes() as f64).max(1.0)
        } else {
            1.0
        };
        let spans = tasks.iter().map(|task| &dataset.spans[task.span]);
        Ok(ScanProgress::new(spans, share.min(1.0)))
    }

    /// Rows that pass through the chain together; 0 for one chunk at a time.
    fn group_rows_max(&self) -> usize {
        let [tapped] = self.chains() else {
            // If several chains feed an analyzer, they take turns at each chunk.
            return 0;
        };
        let context = &self.learn.context;
        let batch_rows = self.run.scans[self.scan].request.batch_rows;
        group_rows_max(batch_rows, &tapped.chain, context.memory, context.threads)
    }

    /// Opens a span, with the precomputed outputs of its windows.
    fn open(&self, task: &SpanRef, carry: &mut Carry) -> Result<ChunkIter<'_>> {
        let streams = &self.run.lane.scans[self.scan].streams;
        for (tapped, stream) in self.chains().iter().zip(streams) {
            let context = &self.learn.context;
            for sorted in context.sorted_for(&stream.stream, &tapped.chain)? {
                sorted.attach(task.span, carry)?;
            }
        }
        let label = self.input()?.dataset.spans[task.span].label();
        reading(&label);
        let chunks = self.run.open_ahead(self.learn, *task)?;
        Ok(Box::new(chunks.map(move |chunk| {
            chunk.map_err(|fault| fault.file(&*label))
        })))
    }

    /// Runs consecutive chunks through the chains and updates the states.
    fn accumulate(
        &self,
        chunks: &[Chunk],
        carry: &mut Carry,
        lane_states: &mut LaneStates<'_>,
        progress: &mut ScanProgress,
    ) -> Result<()> {
        let mut skipped = 0;
        let mut rows = 0;
        for chunk in chunks {
            skipped += chunk.skipped;
            rows += chunk.batch.num_rows() as u64 + chunk.skipped;
        }
        let mut streamed = RowCounts::default();
        for TappedChain { chain, places } in self.chains() {
            let counted = chain.run(chunks, carry, &mut |tap, input| {
                self.update(lane_states, places[tap], &input)
            });
            let state = self.learn.context.state;
            let counted = counted.map_err(|fault| state.record_order_failure(carry, fault))?;
            streamed.add(&counted);
        }
        // Rows that several chains take are read once.
        lane_states.counts.add(&RowCounts {
            input: rows,
            skipped,
            ..streamed
        });
        self.learn.watch.on_event(Event::Progress {
            rows,
            bytes: progress.advance(rows),
        });
        Ok(())
    }

    /// Updates the state of one analyzer, unless it is not wanted.
    fn update(
        &self,
        lane_states: &mut LaneStates<'_>,
        index: usize,
        input: &AnalyzerInput<'_>,
    ) -> Result<()> {
        if !(lane_states.wants)(index) {
            return Ok(());
        }
        let analyzer_id = self.run.lane.asks[index];
        let analyzer = self.learn.analyzer(analyzer_id);
        let state = &mut lane_states.states[index];
        catch_panic(|| analyzer.update(state, input))
            .map_err(|fault| self.learn.place(fault, analyzer_id))
    }
}

impl LearnResult {
    /// The counts of the rows that were learned from. Chains that take the same rows may have removed more rows than were
    /// read; then only the rows that were read are known.
    pub fn row_counts(&self) -> RowCounts {
        if self.counts.output() >= 0 {
            return self.counts.clone();
        }
        RowCounts {
            input: self.counts.input,
            ..RowCounts::default()
        }
    }

    /// Records the row counts of a lane.
    pub fn record_counts(&mut self, counts: RowCounts, rows_kept: u64) {
        let mut joins = self.counts.joins;
        joins.add(counts.joins);
        if counts.input > self.counts.input {
            self.counts = counts;
            self.rows_kept = rows_kept;
        }
        self.counts.joins = joins;
    }
}

impl LearnPass<'_> {
    /// Announces the spans of lanes in the order in which threads read them: a lane for each thread
    /// at a time.
    pub(crate) fn plan_reads(&self, runs: &mut [LaneExecution<'_>], threads: usize) -> Result<()> {
        let read_ahead = Arc::new(ReadAhead::new(threads));
        for (lane_number, run) in runs.iter_mut().enumerate() {
            run.ahead = (read_ahead.clone(), lane_number);
        }
        for concurrent_runs in runs.chunks(threads) {
            let lengths = concurrent_runs.iter().map(|run| run.tasks.len());
            for at in 0..lengths.max().unwrap_or(0) {
                for run in concurrent_runs {
                    run.plan_reads(self, run.tasks.get(at).into_iter().copied())?;
                }
            }
        }
        Ok(())
    }

    /// Stored bytes of the columns that a lane reads.
    pub fn lane_bytes(&self, lane: &AnalyzerLane) -> u64 {
        lane_bytes(lane, &|base| {
            self.context
                .input(base)
                .map_or(0, |input| input.dataset.bytes())
        })
    }

    /// The bytes of a lane's states of bounded size, and the number of its other states, which fill
    /// the memory that they are given and spill the rest.
    pub fn need(&self, lane: &AnalyzerLane) -> (usize, usize) {
        let mut fixed = 0;
        let mut spilling = 0;
        for analyzer in &lane.asks {
            match fixed_bytes(self.analyzer(*analyzer).as_ref()) {
                Some(bytes) => fixed += bytes,
                None => spilling += 1,
            }
        }
        (fixed, spilling)
    }

    pub(crate) fn analyzer(&self, analyzer: AnalyzerId) -> &Arc<dyn AnyAnalyzer> {
        &self.context.program.bound.asks[analyzer].ask.analyzer
    }

    /// Compiles the chains of a lane. `budget` is the memory of its states in bytes.
    pub fn prepare<'l>(&self, lane: &'l AnalyzerLane, budget: usize) -> Result<LaneExecution<'l>> {
        let mut scans = Vec::with_capacity(lane.scans.len());
        let mut tasks = Vec::new();
        for (index, scan) in lane.scans.iter().enumerate() {
            scans.push(self.lane_scan(lane, scan)?);
            let span_count = self.context.input(scan.base)?.dataset.spans.len();
            tasks.extend((0..span_count).map(|span| SpanRef { scan: index, span }));
        }
        Ok(LaneExecution {
            lane,
            in_order: scans.iter().any(LaneScan::is_ordered),
            scans,
            tasks,
            next: AtomicUsize::new(0),
            order_free: self.analyzers(lane).all(|analyzer| analyzer.order_free()),
            scratches: self.scratches(lane, budget),
            merged: Mutex::default(),
            ahead: (Arc::new(ReadAhead::new(self.context.threads)), 0),
        })
    }

    /// The analyzers of a lane, in order.
    fn analyzers<'l>(
        &'l self,
        lane: &'l AnalyzerLane,
    ) -> impl Iterator<Item = &'l Arc<dyn AnyAnalyzer>> {
        lane.asks
            .iter()
            .map(move |analyzer| self.analyzer(*analyzer))
    }

    /// Compiles the chains of a scan's streams.
    fn lane_scan(&self, lane: &AnalyzerLane, scan: &ColumnScan) -> Result<LaneScan> {
        let mut chains = Vec::with_capacity(scan.streams.len());
        for stream in &scan.streams {
            chains.push(self.tapped_chain(lane, scan, stream)?);
        }
        let compiled = chains.iter().map(|tapped| &tapped.chain);
        let rows = self.context.chunk_rows_max(compiled);
        let needs_keys = self
            .analyzers(lane)
            .any(|analyzer| analyzer.needs_row_keys());
        let input = self.context.input(scan.base)?;
        let request = scan_request(self.context.program, scan, input, rows, needs_keys);
        Ok(LaneScan {
            request: Arc::new(request),
            chains,
        })
    }

    /// Compiles the chain of a stream, with a tap for each of its analyzers.
    fn tapped_chain(
        &self,
        lane: &AnalyzerLane,
        scan: &ColumnScan,
        stream: &ScanStream,
    ) -> Result<TappedChain> {
        let bound = &self.context.program.bound;
        let taps: Vec<ColumnTap> = stream.column_taps(bound).collect();
        let chain = self.context.with_chains(|chain_context| {
            OpChain::new(
                bound,
                &stream.stream,
                &stream.needed,
                &scan.columns,
                &taps,
                chain_context,
            )
        })?;
        let mut analyzer_indices = Vec::with_capacity(taps.len());
        for (analyzer, _) in &stream.taps {
            analyzer_indices.push(index_of_ask(&lane.asks, *analyzer)?);
        }
        Ok(TappedChain {
            chain,
            places: analyzer_indices,
        })
    }

    /// The scratch space of each analyzer. States that spill share the memory that states of bounded size leave.
    fn scratches(&self, lane: &AnalyzerLane, budget: usize) -> Vec<Arc<dyn ScratchSpace>> {
        let (fixed, spilling) = self.need(lane);
        let share = budget.saturating_sub(fixed) / spilling.max(1);
        let share = share.max(SPILLING_STATE_BYTES_MIN.min(budget));
        let mut scratches = Vec::with_capacity(lane.asks.len());
        for analyzer in self.analyzers(lane) {
            let bytes = fixed_bytes(analyzer.as_ref()).unwrap_or(share);
            let scratch = self.scratch.scratch_with_budget(self.context.memory, bytes);
            scratches.push(scratch);
        }
        scratches
    }

    /// A lane that no thread has started, else the one with the most unread spans.
    pub(crate) fn pick<'r, 'l>(
        &self,
        runs: &'r [LaneExecution<'l>],
    ) -> Result<Option<&'r LaneExecution<'l>>> {
        for run in runs {
            let mut merged = lock(&run.merged)?;
            if !merged.started {
                merged.started = true;
                merged.participants = 1;
                return Ok(Some(run));
            }
        }
        let shareable = runs
            .iter()
            .filter(|run| !run.in_order && run.unread_spans() > 0);
        let Some(run) = shareable.max_by_key(|run| run.unread_spans()) else {
            return Ok(None);
        };
        let mut merged = lock(&run.merged)?;
        // The lane may have ended in between.
        if merged.participants == 0 {
            return Ok(None);
        }
        merged.participants += 1;
        Ok(Some(run))
    }

    /// Empty states of all analyzers of a lane.
    pub fn zero(&self, run: &LaneExecution<'_>) -> Result<Vec<AnyState>> {
        let mut states = Vec::with_capacity(run.scratches.len());
        for (analyzer, scratch) in self.analyzers(run.lane).zip(&run.scratches) {
            states.push(analyzer.zero(scratch)?);
        }
        Ok(states)
    }

    /// Reads spans of a lane until all are read. The last thread of a lane concludes it.
    pub(crate) fn participate(
        &self,
        run: &LaneExecution<'_>,
        stop: &AtomicBool,
        answers: &Mutex<LearnResult>,
    ) -> Result<()> {
        let mut counts = RowCounts::default();
        let mut thread_states = None;
        let window_bytes = self.context.memory.states_bytes() / self.context.threads.max(1);
        let mut carry = Carry::new(&WindowBudget::new(window_bytes));
        if run.order_free {
            thread_states = Some(self.zero(run)?);
        }
        while let Some((index, task)) = run.next_task() {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let mut states = match thread_states.take() {
                Some(states) => states,
                None => self.zero(run)?,
            };
            let into = LaneStates {
                states: &mut states,
                wants: &|_| true,
                counts: &mut counts,
            };
            if !self.spans(run, task, &mut carry, stop, into)? {
                return Ok(());
            }
            if run.order_free {
                thread_states = Some(states);
            } else {
                self.merge_in_order(run, index, states)?;
            }
        }
        let Some((states, counts)) = self.merge_thread(run, thread_states, &counts, stop)? else {
            return Ok(());
        };
        for (analyzer, state) in run.lane.asks.iter().zip(states) {
            self.conclude(*analyzer, state, true, answers)?;
        }
        lock(answers)?.record_counts(counts, 0);
        self.store.note_read(self.lane_bytes(run.lane))
    }

    /// Merges the states of a span once those of all spans before it are merged.
    fn merge_in_order(
        &self,
        run: &LaneExecution<'_>,
        index: usize,
        states: Vec<AnyState>,
    ) -> Result<()> {
        let mut merged = lock(&run.merged)?;
        merged.waiting.insert(index, states);
        loop {
            let next_index = merged.merged_until;
            let Some(next_states) = merged.waiting.remove(&next_index) else {
                return Ok(());
            };
            merged.merged_until += 1;
            self.merge(run, &mut merged, next_states)?;
        }
    }

    /// Merges what a thread has learned into its lane. The last thread gets the states and counts of all rows.
    fn merge_thread(
        &self,
        run: &LaneExecution<'_>,
        thread_states: Option<Vec<AnyState>>,
        counts: &RowCounts,
        stop: &AtomicBool,
    ) -> Result<Option<(Vec<AnyState>, RowCounts)>> {
        let mut merged = lock(&run.merged)?;
        merged.counts.add(counts);
        if let Some(states) = thread_states {
            self.merge(run, &mut merged, states)?;
        }
        merged.participants -= 1;
        if merged.participants > 0 || stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let states = match merged.states.take() {
            Some(states) => states,
            None => self.zero(run)?,
        };
        Ok(Some((states, merged.counts.clone())))
    }

    /// True if another pass merges the states of an analyzer.
    pub fn is_along(&self, analyzer: AnalyzerId) -> bool {
        match self.along {
            Some(fused_analyzers) => fused_analyzers.contains(&analyzer),
            None => false,
        }
    }

    /// Commits the state of all rows and inserts its finding.
    pub fn conclude(
        &self,
        analyzer: AnalyzerId,
        state: AnyState,
        durable: bool,
        answers: &Mutex<LearnResult>,
    ) -> Result<()> {
        if self.is_along(analyzer) {
            return Ok(());
        }
        if let Some(states) = self.states {
            lock(states)?.insert(analyzer, state);
            return Ok(());
        }
        let finding = self.find(analyzer, state, durable)?;
        self.answer(analyzer, Arc::new(finding), answers)
    }

    /// Inserts a finding that a worker computed.
    pub fn hear(
        &self,
        analyzer_id: AnalyzerId,
        scratch: &Arc<dyn ScratchSpace>,
        answers: &Mutex<LearnResult>,
    ) -> Result<()> {
        let id = self.context.program.state_ids[analyzer_id];
        let analyzer = self.analyzer(analyzer_id);
        if let Some(finding) = self.store.shared_table(id, false)? {
            lock(&self.context.state.shared)?.push(id);
            return self.answer(analyzer_id, Arc::new(finding), answers);
        }
        let mut findings = BTreeMap::new();
        self.store.refresh()?;
        let recalled = self
            .store
            .load_finding(id, analyzer.as_ref(), scratch, &mut findings);
        recalled.map_err(|fault| self.place(fault, analyzer_id))?;
        let Some(finding) = findings.remove(&id) else {
            let message = format!("a state that a worker committed ({id}) is gone");
            return Err(Fault::new(codes::STORAGE, message)
                .hint("nothing is lost: run the same command again"));
        };
        self.answer(analyzer_id, finding, answers)
    }

    fn answer(
        &self,
        analyzer: AnalyzerId,
        finding: Arc<Finding>,
        answers: &Mutex<LearnResult>,
    ) -> Result<()> {
        let id = self.context.program.state_ids[analyzer];
        lock(answers)?.findings.insert(id, finding);
        Ok(())
    }

    /// Commits the state of all rows, and returns its finding. With workers, the finding is committed for them, too. A
    /// state that is not `durable` was merged of committed states, and is merged again if a power failure loses it.
    pub fn find(
        &self,
        analyzer_id: AnalyzerId,
        mut state: AnyState,
        durable: bool,
    ) -> Result<Finding> {
        let id = self.context.program.state_ids[analyzer_id];
        let analyzer = self.analyzer(analyzer_id);
        // An analyzer may wait for another process.
        let check_stop = stop_check_of(self.context.io);
        let finding = with_stop_check(Some(&check_stop), || {
            catch_panic(|| {
                analyzer.condense(&mut state)?;
                self.store
                    .put_state(id, analyzer.as_ref(), &mut state, self.scratch, durable)?;
                analyzer.finish(state)
            })
        });
        let finding = finding.map_err(|fault| self.place(fault, analyzer_id))?;
        if self.on_worker {
            // The coordinator is notified next that the state is committed.
            self.store.sync()?;
        }
        let is_distributed = self.cluster.is_some() || self.on_worker;
        if is_distributed && finding.table().num_rows() >= SHARED_FINDING_ROWS_MIN {
            let index = analyzer.index(&finding)?;
            self.store
                .share_finding(id, &finding, index.as_ref(), self.scratch)?;
            if self.cluster.is_some() {
                lock(&self.context.state.shared)?.push(id);
            }
        }
        Ok(finding)
    }

    /// Merges the states of later spans into those of a lane.
    fn merge(
        &self,
        run: &LaneExecution<'_>,
        merged: &mut LaneMerge,
        later_states: Vec<AnyState>,
    ) -> Result<()> {
        let Some(states) = &mut merged.states else {
            merged.states = Some(later_states);
            return Ok(());
        };
        let states = states.iter_mut().zip(later_states);
        for (analyzer_id, (state, later_state)) in run.lane.asks.iter().zip(states) {
            catch_panic(|| self.analyzer(*analyzer_id).merge(state, later_state))
                .map_err(|fault| self.place(fault, *analyzer_id))?;
        }
        Ok(())
    }

    /// Accumulates some spans of a scan; false if the pass was stopped.
    pub fn spans(
        &self,
        run: &LaneExecution<'_>,
        tasks: &[SpanRef],
        carry: &mut Carry,
        stop: &AtomicBool,
        mut lane_states: LaneStates<'_>,
    ) -> Result<bool> {
        let Some(task) = tasks.first() else {
            return Ok(true);
        };
        let reader = LaneScanReader {
            learn: self,
            run,
            scan: task.scan,
        };
        let mut progress = reader.progress(tasks)?;
        let groups = ChunkGroups {
            tasks,
            rows_max: reader.group_rows_max(),
            bytes_max: group_bytes_max(self.context.memory, self.context.threads),
            stop,
            memory: self.context.memory,
        };
        let whole = groups.for_each(
            carry,
            &mut |task, carry| reader.open(task, carry),
            &mut |chunks, carry| reader.accumulate(chunks, carry, &mut lane_states, &mut progress),
        )?;
        step("have read", "a span");
        if whole {
            self.watch.on_event(Event::Progress {
                rows: 0,
                bytes: progress.finish(),
            });
        }
        Ok(whole)
    }

    pub fn place(&self, fault: Fault, analyzer: AnalyzerId) -> Fault {
        let bound_analyzer = &self.context.program.bound.asks[analyzer];
        let op = &self.context.program.bound.ops[bound_analyzer.op];
        let fault = fault.step(&op.label).at(op.at.as_ref());
        match bound_analyzer.ask.inputs.first() {
            Some(column) => fault.column(column),
            None => fault,
        }
    }
}

/// The size of a state that is bounded by its nature; `None` for states that fill the memory they get.
pub fn fixed_bytes(analyzer: &dyn AnyAnalyzer) -> Option<usize> {
    let plenty = usize::MAX / 4;
    Some(analyzer.size_bytes_max(plenty)).filter(|bytes| *bytes < plenty)
}

fn index_of_ask(analyzers: &[AnalyzerId], analyzer: AnalyzerId) -> Result<usize> {
    analyzers
        .iter()
        .position(|candidate| *candidate == analyzer)
        .ok_or_else(|| Fault::internal("a lane misses one of its questions"))
}

/// Stored bytes of the columns that a lane reads.
pub fn lane_bytes(lane: &AnalyzerLane, dataset_bytes: &dyn Fn(BaseId) -> u64) -> u64 {
    match lane.bytes {
        0 => lane.scans.iter().map(|scan| dataset_bytes(scan.base)).sum(),
        bytes => bytes,
    }
}
