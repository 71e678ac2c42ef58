//! The learning pass: analyzers grouped in lanes of columns read rows span by span, and their states are merged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use forebay_commit::{RetainedIds, StateStore};
use forebay_model::{
    AnyAnalyzer, AnyState, Chunk, ContentId, Fault, Finding, Pipeline, Result, ScratchSpace,
    catch_panic, codes,
};
use forebay_plan::{
    AnalyzerId, AnalyzerLane, BaseId, Carry, ChainContext, ColumnTap, OpChain, RowCounts,
    WindowBudget,
};
use forebay_storage::failpoint::{reading, step};
use forebay_storage::{ChunkIterator, Event, EventListener, ScanRequest, ScratchDir};
use forebay_threads::{CountingSemaphore, lock, parallel_map, poisoned_lock, run_on_all};

use crate::chunk_groups::ChunkGroups;
use crate::chunk_source::ChunkIter;
use crate::fused_learn::{FusedCoverage, FusedLearnFn};
use crate::incremental_learn::IncrementalLane;
use crate::ordered_scan::SpanRef;
use crate::pass_context::PassContext;
use crate::read_ahead::{PlannedSpan, ReadAhead};
use crate::remote::ClusterHandle;
use crate::run_state::{group_rows_max, scan_request};
use crate::scan_progress::ScanProgress;

/// The least memory for a state that can spill; with less it would spill constantly.
const SPILLING_STATE_BYTES_MIN: usize = 4 << 20;

/// Rows of a finding from which on workers get it and its index, instead of finishing the state each for itself.
const SHARED_FINDING_ROWS_MIN: usize = 4096;

/// Lanes that workers learn concurrently, for each task slot: while some are merged, others are read.
const LANES_PER_SLOT: usize = 4;

/// The inputs of the pass, shared by its threads.
pub struct LearnPass<'a> {
    pub context: PassContext<'a>,
    pub pipeline: &'a Pipeline,
    pub store: &'a StateStore,
    pub scratch: &'a ScratchDir,
    pub watch: &'a dyn EventListener,
    pub cluster: Option<ClusterHandle<'a>>,
    /// Whether this process is a worker.
    pub on_worker: bool,
    /// Where states of all rows go that have no finding. `None`: states are committed, and findings made of them.
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
    /// For each tap, the index of the lane's analyzer.
    pub places: Vec<usize>,
}

/// What one scan of a lane reads, and the chains of its streams.
pub struct LaneScan {
    pub request: Arc<ScanRequest>,
    pub chains: Vec<TappedChain>,
}

/// The states that rows are accumulated into, and the counts of these rows.
pub struct LaneStates<'a> {
    /// One for each analyzer of the lane.
    pub states: &'a mut [AnyState],
    /// Which of them are wanted.
    pub wants: &'a dyn Fn(usize) -> bool,
    pub counts: &'a mut RowCounts,
}

pub struct LaneExecution<'a> {
    pub lane: &'a AnalyzerLane,
    pub scans: Vec<LaneScan>,
    tasks: Vec<SpanRef>,
    next: AtomicUsize,
    /// Whether one thread has to read all spans in order, because of window state.
    in_order: bool,
    /// Whether a thread may update one state with any spans in any order.
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
        let (ahead, place) = &self.ahead;
        for task in tasks {
            let input = learn
                .context
                .input(self.lane.scans[task.scan].base)?
                .clone();
            let request = self.scans[task.scan].request.clone();
            ahead.plan([(
                (*place, task),
                PlannedSpan {
                    input,
                    span: task.span,
                    request,
                },
            )])?;
        }
        Ok(())
    }

    /// Gives up what was announced and not read.
    pub fn end_reads(&self) -> Result<()> {
        self.ahead.0.clear()
    }

    fn open_ahead(&self, learn: &LearnPass<'_>, task: SpanRef) -> Result<ChunkIterator> {
        let (ahead, place) = &self.ahead;
        let open = || {
            let input = learn.context.input(self.lane.scans[task.scan].base)?;
            input.source.open(
                learn.context.io,
                &input.dataset.spans[task.span],
                &self.scans[task.scan].request,
            )
        };
        ahead.take(learn.context.io, (*place, task), open)
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
    /// Learns the lanes. `along` first learns the units that it can fuse with writing.
    pub fn run(
        &self,
        lanes: &[AnalyzerLane],
        along: Option<FusedLearnFn<'_>>,
    ) -> Result<LearnResult> {
        // Other runs may have committed states since this one was planned.
        self.store.refresh()?;
        let answers = self.answers(lanes, along);
        // A pass that fails keeps what it has learned.
        let synced = self.store.sync();
        answers.and_then(|answers| synced.map(|()| answers))
    }

    fn answers(
        &self,
        lanes: &[AnalyzerLane],
        along: Option<FusedLearnFn<'_>>,
    ) -> Result<LearnResult> {
        // As many threads as have memory for the states of the lane with the largest ones.
        let need = lanes
            .iter()
            .map(|lane| self.need(lane))
            .map(|(fixed, spilling)| fixed + spilling * SPILLING_STATE_BYTES_MIN);
        let fitting = self.context.memory.states_bytes() / need.max().unwrap_or(0).max(1);
        let threads = self.context.threads.min(fitting).max(1);
        let budget = self.context.memory.states_bytes() / threads;
        let mut runs = lanes
            .iter()
            .map(|lane| self.prepare(lane, budget))
            .collect::<Result<Vec<_>>>()?;
        // Large lanes first, so that threads finish together.
        runs.sort_by_key(|run| std::cmp::Reverse(run.lane.bytes));
        let answers: Mutex<LearnResult> = Mutex::default();
        let turns = CountingSemaphore::new(threads);
        let mut runs = match self.cluster {
            Some(cluster) => self.by_workers(runs, cluster, &turns, &answers)?,
            None => {
                let partials = runs
                    .iter()
                    .map(|run| IncrementalLane::new(self, run, &turns));
                let partials = partials.collect::<Result<Vec<_>>>()?;
                let divided: Vec<&IncrementalLane<'_>> = partials.iter().flatten().collect();
                let answer = |learned| {
                    divided
                        .iter()
                        .try_for_each(|partials| partials.run(&answers, &learned))
                };
                match along {
                    Some(along) => along(&divided, &answer)?,
                    None => answer(FusedCoverage::default())?,
                }
                let is_done: Vec<bool> = partials.iter().map(Option::is_some).collect();
                runs.into_iter()
                    .zip(is_done)
                    .filter(|(_, done)| !done)
                    .map(|(run, _)| run)
                    .collect()
            }
        };
        let bytes = runs.iter().map(|run| self.lane_bytes(run.lane)).sum();
        if bytes > 0 {
            self.watch.on_event(Event::PassReads { bytes, of: bytes });
        }
        self.plan_reads(&mut runs, threads)?;
        let stop = AtomicBool::new(false);
        let each = || {
            while !stop.load(Ordering::Relaxed) {
                let done = catch_panic(|| match self.pick(&runs)? {
                    Some(run) => self.participate(run, &stop, &answers).map(|()| true),
                    None => Ok(false),
                });
                if !done.inspect_err(|_| stop.store(true, Ordering::Relaxed))? {
                    break;
                }
            }
            Ok(())
        };
        run_on_all(threads, &each)
            .into_iter()
            .collect::<Result<()>>()?;
        answers.into_inner().map_err(|_| poisoned_lock())
    }

    /// Announces the spans of lanes in the order in which threads come to them: a lane for each thread at a time.
    fn plan_reads(&self, runs: &mut [LaneExecution<'_>], threads: usize) -> Result<()> {
        let ahead = Arc::new(ReadAhead::new(threads));
        for (place, run) in runs.iter_mut().enumerate() {
            run.ahead = (ahead.clone(), place);
        }
        for together in runs.chunks(threads) {
            let longest = together
                .iter()
                .map(|run| run.tasks.len())
                .max()
                .unwrap_or(0);
            for at in 0..longest {
                for run in together {
                    run.plan_reads(self, run.tasks.get(at).into_iter().copied())?;
                }
            }
        }
        Ok(())
    }

    /// Learns all lanes on workers, enough lanes concurrently to keep the workers busy; returns the lanes that cannot
    /// be divided.
    fn by_workers<'l>(
        &self,
        runs: Vec<LaneExecution<'l>>,
        cluster: ClusterHandle<'_>,
        turns: &CountingSemaphore,
        answers: &Mutex<LearnResult>,
    ) -> Result<Vec<LaneExecution<'l>>> {
        let together = cluster.cluster.wait_for_slots(cluster.interrupt)? * LANES_PER_SLOT;
        let done = parallel_map(together, runs.len(), &|lane| match IncrementalLane::new(
            self,
            &runs[lane],
            turns,
        )? {
            Some(partials) => partials
                .run(answers, &FusedCoverage::default())
                .map(|()| true),
            None => Ok(false),
        })?;
        Ok(runs
            .into_iter()
            .zip(done)
            .filter(|(_, done)| !done)
            .map(|(run, _)| run)
            .collect())
    }

    /// Stored bytes of the columns that a lane reads.
    pub fn lane_bytes(&self, lane: &AnalyzerLane) -> u64 {
        lane_bytes(lane, &|base| {
            self.context
                .input(base)
                .map_or(0, |input| input.dataset.bytes())
        })
    }

    /// How many spans the lane with the most unread spans has to read, and of how many.
    pub fn to_read(&self, lanes: &[AnalyzerLane]) -> Result<(usize, usize)> {
        let mut most = (0, 0);
        for lane in lanes {
            let run = self.prepare(lane, self.context.memory.states_bytes())?;
            let (read, all) = match IncrementalLane::new(self, &run, &CountingSemaphore::new(1))? {
                Some(partials) => partials.spans_to_read()?,
                None => (run.tasks.len(), run.tasks.len()),
            };
            most = most.max((read, all));
        }
        Ok(most)
    }

    /// The bytes of a lane's states of bounded size, and the number of its other states, which fill the memory they get
    /// and spill the rest.
    pub fn need(&self, lane: &AnalyzerLane) -> (usize, usize) {
        let sizes = lane
            .asks
            .iter()
            .map(|ask| fixed_bytes(self.context.program.bound.asks[*ask].ask.analyzer.as_ref()));
        sizes.fold((0, 0), |(fixed, spilling), size| match size {
            Some(size) => (fixed + size, spilling),
            None => (fixed, spilling + 1),
        })
    }

    pub fn prepare<'l>(&self, lane: &'l AnalyzerLane, budget: usize) -> Result<LaneExecution<'l>> {
        let bound = &self.context.program.bound;
        let analyzers: Vec<_> = lane
            .asks
            .iter()
            .map(|ask| &bound.asks[*ask].ask.analyzer)
            .collect();
        let keys = analyzers.iter().any(|analyzer| analyzer.needs_row_keys());
        let mut scans = Vec::new();
        let mut tasks = Vec::new();
        for (index, scan) in lane.scans.iter().enumerate() {
            let input = self.context.input(scan.base)?;
            let mut chains: Vec<TappedChain> = Vec::new();
            for stream in &scan.streams {
                let wants: Vec<ColumnTap> = stream.column_taps(bound).collect();
                let compile = |told: ChainContext<'_>| {
                    OpChain::new(
                        bound,
                        &stream.stream,
                        &stream.needed,
                        &scan.columns,
                        &wants,
                        told,
                    )
                };
                let chain = self.context.with_chains(compile)?;
                let places = stream
                    .taps
                    .iter()
                    .map(|(ask, _)| index_of_ask(&lane.asks, *ask))
                    .collect::<Result<_>>()?;
                chains.push(TappedChain { chain, places });
            }
            let rows = self
                .context
                .chunk_rows_max(chains.iter().map(|tapped| &tapped.chain));
            let request = Arc::new(scan_request(self.context.program, scan, input, rows, keys));
            scans.push(LaneScan { request, chains });
            tasks.extend((0..input.dataset.spans.len()).map(|span| SpanRef { scan: index, span }));
        }
        let in_order = scans
            .iter()
            .flat_map(|scan: &LaneScan| &scan.chains)
            .any(|tapped| tapped.chain.is_ordered());
        let (fixed, spilling) = self.need(lane);
        let share = budget.saturating_sub(fixed) / spilling.max(1);
        let share = share.max(SPILLING_STATE_BYTES_MIN.min(budget));
        let scratches = analyzers
            .iter()
            .map(|analyzer| {
                self.scratch.scratch_with_budget(
                    self.context.memory,
                    fixed_bytes(analyzer.as_ref()).unwrap_or(share),
                )
            })
            .collect();
        Ok(LaneExecution {
            lane,
            scans,
            tasks,
            next: AtomicUsize::new(0),
            in_order,
            order_free: analyzers.iter().all(|analyzer| analyzer.order_free()),
            scratches,
            merged: Mutex::default(),
            ahead: (Arc::new(ReadAhead::new(self.context.threads)), 0),
        })
    }

    /// A lane that no thread has started, else the one with the most unread spans.
    fn pick<'r, 'l>(&self, runs: &'r [LaneExecution<'l>]) -> Result<Option<&'r LaneExecution<'l>>> {
        for run in runs {
            let mut merged = lock(&run.merged)?;
            if !merged.started {
                merged.started = true;
                merged.participants = 1;
                return Ok(Some(run));
            }
        }
        let left = |run: &LaneExecution<'_>| {
            run.tasks
                .len()
                .saturating_sub(run.next.load(Ordering::Relaxed))
        };
        let Some(run) = runs
            .iter()
            .filter(|run| !run.in_order && left(run) > 0)
            .max_by_key(|run| left(run))
        else {
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

    pub fn zero(&self, run: &LaneExecution<'_>) -> Result<Vec<AnyState>> {
        let analyzers = run
            .lane
            .asks
            .iter()
            .map(|ask| &self.context.program.bound.asks[*ask].ask.analyzer);
        analyzers
            .zip(&run.scratches)
            .map(|(analyzer, scratch)| analyzer.zero(scratch))
            .collect()
    }

    fn participate(
        &self,
        run: &LaneExecution<'_>,
        stop: &AtomicBool,
        answers: &Mutex<LearnResult>,
    ) -> Result<()> {
        let mut counts = RowCounts::default();
        let mut own = if run.order_free {
            Some(self.zero(run)?)
        } else {
            None
        };
        let mut carry = Carry::new(&WindowBudget::new(
            self.context.memory.states_bytes() / self.context.threads.max(1),
        ));
        loop {
            let index = run.next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = run.tasks.get(index) else {
                break;
            };
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let task = std::slice::from_ref(task);
            match &mut own {
                Some(states) => {
                    if !self.spans(
                        run,
                        task,
                        &mut carry,
                        stop,
                        LaneStates {
                            states,
                            wants: &|_| true,
                            counts: &mut counts,
                        },
                    )? {
                        return Ok(());
                    }
                }
                None => {
                    let mut states = self.zero(run)?;
                    let into = LaneStates {
                        states: &mut states,
                        wants: &|_| true,
                        counts: &mut counts,
                    };
                    if !self.spans(run, task, &mut carry, stop, into)? {
                        return Ok(());
                    }
                    let mut merged = lock(&run.merged)?;
                    merged.waiting.insert(index, states);
                    while let Some(states) = {
                        let until = merged.merged_until;
                        merged.waiting.remove(&until)
                    } {
                        merged.merged_until += 1;
                        self.merge(run, &mut merged, states)?;
                    }
                }
            }
        }
        let mut merged = lock(&run.merged)?;
        merged.counts.add(&counts);
        if let Some(states) = own {
            self.merge(run, &mut merged, states)?;
        }
        merged.participants -= 1;
        if merged.participants > 0 || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let states = match merged.states.take() {
            Some(states) => states,
            None => self.zero(run)?,
        };
        let lane_counts = merged.counts.clone();
        drop(merged);
        for (ask, state) in run.lane.asks.iter().zip(states) {
            self.conclude(*ask, state, true, answers)?;
        }
        lock(answers)?.record_counts(lane_counts, 0);
        self.store.note_read(self.lane_bytes(run.lane))
    }

    /// Whether another pass merges the states of an analyzer.
    pub fn is_along(&self, ask: AnalyzerId) -> bool {
        self.along.is_some_and(|along| along.contains(&ask))
    }

    /// Commits the state of all rows and inserts its finding.
    pub fn conclude(
        &self,
        ask: AnalyzerId,
        state: AnyState,
        durable: bool,
        answers: &Mutex<LearnResult>,
    ) -> Result<()> {
        if self.is_along(ask) {
            return Ok(());
        }
        if let Some(states) = self.states {
            lock(states)?.insert(ask, state);
            return Ok(());
        }
        let finding = self.find(ask, state, durable)?;
        self.answer(ask, Arc::new(finding), answers)
    }

    /// Inserts a finding that a worker computed.
    pub fn hear(
        &self,
        ask: AnalyzerId,
        scratch: &Arc<dyn ScratchSpace>,
        answers: &Mutex<LearnResult>,
    ) -> Result<()> {
        let id = self.context.program.state_ids[ask];
        let analyzer = &self.context.program.bound.asks[ask].ask.analyzer;
        if let Some(finding) = self.store.shared_table(id, false)? {
            lock(&self.context.state.shared)?.push(id);
            return self.answer(ask, Arc::new(finding), answers);
        }
        let mut found = BTreeMap::new();
        self.store.refresh()?;
        let recalled = self
            .store
            .load_finding(id, analyzer.as_ref(), scratch, &mut found);
        recalled.map_err(|fault| self.place(fault, ask))?;
        let finding = found.remove(&id).ok_or_else(|| {
            let fault = Fault::new(
                codes::STORAGE,
                format!("a state that a worker committed ({id}) is gone"),
            );
            fault.hint("nothing is lost: run the same command again")
        })?;
        self.answer(ask, finding, answers)
    }

    fn answer(
        &self,
        ask: AnalyzerId,
        finding: Arc<Finding>,
        answers: &Mutex<LearnResult>,
    ) -> Result<()> {
        let id = self.context.program.state_ids[ask];
        lock(answers)?.findings.insert(id, finding);
        Ok(())
    }

    /// Commits the state of all rows, and returns its finding. With workers, the finding is committed for them, too. A
    /// state that is not `durable` was merged of committed states, and is merged again if a power failure loses it.
    pub fn find(&self, ask: AnalyzerId, mut state: AnyState, durable: bool) -> Result<Finding> {
        let id = self.context.program.state_ids[ask];
        let analyzer = &self.context.program.bound.asks[ask].ask.analyzer;
        let found = catch_panic(|| {
            analyzer.condense(&mut state)?;
            self.store
                .put_state(id, analyzer.as_ref(), &mut state, self.scratch, durable)?;
            analyzer.finish(state)
        });
        let found = found.map_err(|fault| self.place(fault, ask))?;
        if self.on_worker {
            // The coordinator is told next that the state is committed.
            self.store.sync()?;
        }
        if (self.cluster.is_some() || self.on_worker)
            && found.table().num_rows() >= SHARED_FINDING_ROWS_MIN
        {
            let index = analyzer.index(&found)?;
            self.store
                .share_finding(id, &found, index.as_ref(), self.scratch)?;
            if self.cluster.is_some() {
                lock(&self.context.state.shared)?.push(id);
            }
        }
        Ok(found)
    }

    fn merge(
        &self,
        run: &LaneExecution<'_>,
        merged: &mut LaneMerge,
        later: Vec<AnyState>,
    ) -> Result<()> {
        let Some(states) = &mut merged.states else {
            merged.states = Some(later);
            return Ok(());
        };
        for ((ask, state), later) in run.lane.asks.iter().zip(states).zip(later) {
            let analyzer = &self.context.program.bound.asks[*ask].ask.analyzer;
            catch_panic(|| analyzer.merge(state, later))
                .map_err(|fault| self.place(fault, *ask))?;
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
        LaneStates {
            states,
            wants,
            counts,
        }: LaneStates<'_>,
    ) -> Result<bool> {
        let Some(scan) = tasks.first().map(|task| task.scan) else {
            return Ok(true);
        };
        let bound = &self.context.program.bound;
        let LaneScan { request, chains } = &run.scans[scan];
        let input = self.context.input(run.lane.scans[scan].base)?;
        // Lanes share the bytes of a span; each reports its share.
        let share = match &input.dataset.column_bytes {
            Some(_) => run.lane.bytes as f64 / (input.dataset.bytes() as f64).max(1.0),
            None => 1.0,
        };
        let spans = || tasks.iter().map(|task| &input.dataset.spans[task.span]);
        let mut progress = ScanProgress::new(spans(), share.min(1.0));
        let mut run_through = |chunks: &[Chunk], carry: &mut Carry| {
            let skipped = chunks.iter().map(|chunk| chunk.skipped).sum();
            let rows = chunks
                .iter()
                .map(|chunk| chunk.batch.num_rows() as u64)
                .sum::<u64>()
                + skipped;
            let mut streamed = RowCounts::default();
            for TappedChain { chain, places } in chains {
                let counted = chain.run(chunks, carry, &mut |want, input| {
                    let place = places[want];
                    let ask = run.lane.asks[place];
                    if !wants(place) {
                        return Ok(());
                    }
                    let analyzer = &bound.asks[ask].ask.analyzer;
                    catch_panic(|| analyzer.update(&mut states[place], &input))
                        .map_err(|fault| self.place(fault, ask))
                });
                let counted = counted
                    .map_err(|fault| self.context.state.record_order_failure(carry, fault))?;
                streamed.add(&counted);
            }
            // Rows that several chains take are read once.
            counts.add(&RowCounts {
                input: rows,
                skipped,
                ..streamed
            });
            self.watch.on_event(Event::Progress {
                rows,
                bytes: progress.advance(rows),
            });
            Ok(())
        };
        // If several chains feed an analyzer, they take turns at each chunk.
        let rows_max = match chains.as_slice() {
            [TappedChain { chain, .. }] => group_rows_max(
                request.batch_rows,
                chain,
                self.context.memory,
                self.context.threads,
            ),
            _ => 0,
        };
        let mut open = |task: &SpanRef, carry: &mut Carry| {
            for (TappedChain { chain, .. }, stream) in
                chains.iter().zip(&run.lane.scans[scan].streams)
            {
                let sorted = self.context.sorted_for(&stream.stream, chain)?;
                sorted
                    .iter()
                    .try_for_each(|sorted| sorted.attach(task.span, carry))?;
            }
            let span = &input.dataset.spans[task.span];
            let label = span.label();
            reading(&label);
            let chunks = run.open_ahead(self, *task)?;
            Ok(
                Box::new(chunks.map(move |chunk| chunk.map_err(|fault| fault.file(&*label))))
                    as ChunkIter<'_>,
            )
        };
        let groups = ChunkGroups {
            tasks,
            rows_max,
            stop,
            memory: self.context.memory,
        };
        let whole = groups.for_each(carry, &mut open, &mut run_through)?;
        step("have read", "a span");
        if whole {
            self.watch.on_event(Event::Progress {
                rows: 0,
                bytes: progress.finish(),
            });
        }
        Ok(whole)
    }

    pub fn place(&self, fault: Fault, ask: AnalyzerId) -> Fault {
        let ask = &self.context.program.bound.asks[ask];
        let op = &self.context.program.bound.ops[ask.op];
        let fault = fault.step(&op.label).at(op.at.as_ref());
        match ask.ask.inputs.first() {
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

fn index_of_ask(asks: &[AnalyzerId], ask: AnalyzerId) -> Result<usize> {
    asks.iter()
        .position(|known| *known == ask)
        .ok_or_else(|| Fault::internal("a lane misses one of its questions"))
}

/// Stored bytes of what a lane is about.
pub fn lane_bytes(lane: &AnalyzerLane, dataset_bytes: &dyn Fn(BaseId) -> u64) -> u64 {
    match lane.bytes {
        0 => lane.scans.iter().map(|scan| dataset_bytes(scan.base)).sum(),
        bytes => bytes,
    }
}
