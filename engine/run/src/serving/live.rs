//! The serving state of a program that answers rows: the states of series, and the facts that were appended since.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::{Mutex, RwLock, RwLockReadGuard};

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use forebay_commit::{Artifact, ServingManifest, ServingReference};
use forebay_model::{
    CalendarSpan, Chunk, ColumnClock, Fault, LateFacts, Result, TextRules, codes, contains_floats,
    take_rows, tick_nanoseconds, ticks,
};
use forebay_plan::{BoundPipeline, Carry, OpChain, OpId, StoredSeries};
use forebay_storage::StorageClient;
use forebay_threads::lock;
use forebay_window::series_hashes;

use super::append_log::AppendLog;
use super::fitted_column::fit_type;
use super::joined::{JoinedTable, NextOutputs};
use super::late_facts::{FactsBySeries, GroupFacts};
use super::latest::{ContinuedSeries, FactEnds, LiveLatest, SeriesEnds};
use super::series::{GrownSeries, LiveSeries, PieceMemory, RunSeries};
use super::stream::{PooledStep, ServedChain, ServedStream, artifact_finding};
use crate::leak_check::time_text;

/// Memory for series that have grown since the state, unless the program sets it.
const GROWN_BYTES_DEFAULT: usize = 256 << 20;

/// The serving state of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSummary {
    /// The greatest time of the rows that it holds, appended ones included; empty without rows.
    pub as_of: String,
    /// That time in seconds since 1970; `None` without rows, and where times are plain numbers.
    pub as_of_seconds: Option<i64>,
    /// The greatest number of series of a window.
    pub series: u64,
    /// Stored bytes, bytes of series that have grown since, and of facts that are kept for a replay.
    pub bytes: u64,
}

/// Ticks of a column of dates or times in whole seconds.
fn seconds_since_1970(ticks: i64, data_type: &DataType) -> Option<i64> {
    let nanoseconds = i128::from(ticks) * tick_nanoseconds(data_type)?;
    i64::try_from(nanoseconds.div_euclid(1_000_000_000)).ok()
}

/// The result of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendReport {
    /// Rows that are part of the next answers, and on the disk.
    pub rows: u64,
}

/// Windows that share the states of their series.
struct LiveWindow {
    /// The window in the chain that takes up facts: filters for learning apply to those.
    fact_op: OpId,
    series: Arc<LiveSeries>,
    /// The columns of the source that are its keys; empty where a key is computed.
    source_keys: Vec<String>,
    is_strict: bool,
}

/// The rows that a step over all series can answer: those whose distance reaches back to the rows of the run.
struct PooledReach {
    step: String,
    /// `None` where times are whole numbers.
    clock: Option<ColumnClock>,
    /// Distance before a row, in ticks of the column of times.
    behind: CalendarSpan,
    /// The greatest time of the run's rows.
    as_of: Option<i64>,
}

impl PooledReach {
    fn of(pooled: PooledStep, time: &Field, as_of: Option<i64>) -> Result<PooledReach> {
        let clock = ColumnClock::of(time.data_type())?;
        let tick = clock.map_or(1, |clock| clock.tick());
        let ticks = i128::from(pooled.behind.ticks) / tick;
        Ok(PooledReach {
            step: pooled.step,
            clock,
            behind: CalendarSpan {
                ticks: i64::try_from(ticks).unwrap_or(i64::MAX),
                ..pooled.behind
            },
            as_of,
        })
    }

    /// True if the run knew all rows that a row of this time is computed from.
    fn answers(&self, time: i64) -> bool {
        let last_read = match &self.clock {
            Some(clock) => clock.earlier(time, self.behind),
            None => time.checked_sub(self.behind.ticks),
        };
        // Times beyond the calendar are later than any run.
        self.as_of
            .zip(last_read)
            .is_some_and(|(as_of, last_read)| last_read <= as_of)
    }
}

/// The columns of facts, in order of time.
struct FactRows {
    rows: RecordBatch,
    /// Row of the batch that was given, for each row; `None` where their order is the same.
    order: Option<UInt32Array>,
}

/// The states of series, and what changes them.
pub(super) struct LiveState {
    reference: ServingReference,
    windows: Vec<LiveWindow>,
    /// The rows of joins by time, in the order of the joins.
    tables: Vec<JoinedTable>,
    /// The states that the chain which answers rows takes; none where only forecasts can be answered.
    answers: Option<ChainStates>,
    facts: OpChain,
    /// The columns of facts, in the order of the chain, then those that the last rows of series need.
    fact_columns: SchemaRef,
    /// The column of times.
    time: Field,
    /// Held while an answer is computed, and alone while facts become part of the answers: no answer sees a part of them.
    visible: RwLock<()>,
    /// The log of facts; absent where the state lies in an object store.
    log: Mutex<Option<AppendLog>>,
    /// The greatest time of appended facts, in ticks.
    newest: Mutex<Option<i64>>,
    /// The facts since the run, where late ones are replayed; without it, late facts are refused.
    replayed: Option<Mutex<FactsBySeries>>,
    grown_bytes_max: usize,
    piece_memory: Arc<PieceMemory>,
    /// The rows that steps over all series can answer.
    pooled: Vec<PooledReach>,
    /// The last rows of all series, where forecasts are answered.
    latest: Option<LiveLatest>,
}

/// The states that the windows and joins of a chain take, by their indices in a serving state.
#[derive(Debug, Default)]
pub(super) struct ChainStates {
    windows: Vec<(OpId, usize)>,
    tables: Vec<(OpId, usize)>,
}

/// The effect of facts on the state.
struct Growth {
    /// New states of the series of each window.
    windows: Vec<GrownSeries>,
    /// The facts as ends of their series, where forecasts are answered.
    ends: Option<FactEnds>,
}

impl Growth {
    /// An upper bound of the bytes that it adds.
    fn added_bytes(&self) -> usize {
        let windows: usize = self.windows.iter().map(LiveSeries::added_bytes).sum();
        windows + self.ends.as_ref().map_or(0, FactEnds::bytes)
    }
}

/// The chains of a step whose windows read a state.
pub(super) struct LiveChains<'a> {
    pub artifact: &'a Artifact,
    pub reference: &'a ServingReference,
    /// The chain that answers rows.
    pub answers: &'a ServedChain,
    pub answer_bound: &'a BoundPipeline,
    /// The pipeline with its filters for learning.
    pub fact_bound: &'a BoundPipeline,
    /// True if forecasts are answered, too.
    pub forecasts: bool,
}

/// Windows and joins of one answer.
pub(super) struct LiveAnswer<'s> {
    carry: Carry,
    /// The rows of each join, and its outputs.
    joined: Vec<(&'s JoinedTable, NextOutputs)>,
    /// Keeps the state as it is.
    _unchanged: RwLockReadGuard<'s, ()>,
}

/// The joins of one answer.
#[derive(Clone, Copy)]
pub(super) struct AnswerJoins<'a> {
    joined: &'a [(&'a JoinedTable, NextOutputs)],
}

impl LiveAnswer<'_> {
    /// The windows, and the joins beside them.
    pub fn parts(&mut self) -> (&mut Carry, AnswerJoins<'_>) {
        let joins = AnswerJoins {
            joined: &self.joined,
        };
        (&mut self.carry, joins)
    }
}

impl AnswerJoins<'_> {
    /// Looks up the rows that a join is about to read.
    pub fn look_up(&self, join: usize, inputs: &[ArrayRef], rows: usize) -> Result<()> {
        let Some((table, outputs)) = self.joined.get(join) else {
            return Err(Fault::internal("a served join without rows"));
        };
        outputs.push(table.look_up(inputs, rows)?)
    }
}

impl LiveState {
    /// Loads the state of a step; replays the facts of its log.
    pub fn load(io: &StorageClient, chains: LiveChains<'_>) -> Result<LiveState> {
        let LiveChains {
            artifact,
            reference,
            answers,
            answer_bound,
            fact_bound,
            forecasts,
        } = chains;
        let manifest = &reference.manifest;
        let served = ServedStream::of(fact_bound, &manifest.node)?;
        let facts = served.chain(&|analyzer| artifact_finding(artifact, analyzer))?;
        let is_alike = facts.windows().len() == manifest.windows.len()
            && answers.joins.len() == manifest.tables.len();
        if !is_alike {
            return Err(other_version());
        }
        let answer_states = chain_states(manifest, answer_bound, &answers.chain, &answers.joins);
        let answer_states = match answer_states {
            // A window that only a filter for learning reads is computed beside others, and rows do without it.
            Err(_) if forecasts => None,
            states => Some(states?),
        };
        let source = artifact.pipeline.source(&manifest.source);
        let source_keys = source.map(|source| source.keys.clone()).unwrap_or_default();
        let piece_memory = Arc::new(PieceMemory::default());
        let mut windows = Vec::new();
        for (fact, stored) in facts.windows().into_iter().zip(&manifest.windows) {
            let plan = fact.plan.as_ref().ok_or_else(other_version)?;
            if format!("{:016x}", plan.state_version()?) != stored.version {
                return Err(other_version());
            }
            let mut window_keys = served.source_keys_of(fact);
            if window_keys.len() != stored.keys.len() {
                window_keys.clear();
            }
            windows.push(LiveWindow {
                fact_op: fact.op,
                series: Arc::new(LiveSeries::load(io, reference, stored, &piece_memory)?),
                source_keys: window_keys,
                is_strict: served.is_strict(fact, &source_keys),
            });
        }
        let mut tables = Vec::new();
        for (op, stored) in answers.joins.iter().zip(&manifest.tables) {
            tables.push(JoinedTable::load(io, reference, stored, answer_bound, *op)?);
        }
        let common_keys = served.common_keys(&facts.windows());
        let facts = facts.chain;
        let base = &fact_bound.base_schemas[served.stream.base];
        let time = served.state_time(&artifact.pipeline).ok_or_else(|| {
            Fault::new(
                codes::UNSUPPORTED,
                "the times of windows are computed, and rows cannot be brought into their order",
            )
        })?;
        let time = base.field_with_name(&time)?.clone();
        let latest = load_latest(io, &chains)?;
        let fact_columns = fact_schema(base, &facts, &time, latest.as_ref())?;
        let replays = manifest.late == LateFacts::Replay;
        let replayed = replays.then(|| {
            let keys = group_keys(common_keys, &fact_columns);
            Mutex::new(FactsBySeries::new(keys))
        });
        let mut pooled = Vec::new();
        for step in served.pooled_steps() {
            pooled.push(PooledReach::of(step, &time, manifest.as_of_ticks)?);
        }
        let log = reference.log().local.map(AppendLog::at);
        let state = LiveState {
            reference: reference.clone(),
            windows,
            tables,
            answers: answer_states,
            facts,
            fact_columns,
            time,
            visible: RwLock::default(),
            log: Mutex::new(log),
            newest: Mutex::default(),
            replayed,
            grown_bytes_max: GROWN_BYTES_DEFAULT,
            piece_memory,
            pooled,
            latest,
        };
        state.replay_log()?;
        Ok(state)
    }

    /// Sets the memory for series that have grown since the state.
    pub fn set_grown_bytes_max(&mut self, bytes: usize) {
        self.grown_bytes_max = bytes;
    }

    /// Sets the memory for states of the run.
    pub fn set_state_bytes_max(&self, bytes: usize) {
        self.piece_memory.set_bytes_max(bytes);
    }

    /// Puts states of the run into files of a directory, which processes share.
    pub fn share_states_in(&self, directory: PathBuf) {
        self.piece_memory.share_in(directory);
    }

    /// For each row, true if some window holds rows of its series. `None` where the keys of no window are columns of the
    /// batch.
    pub fn known_series(&self, batch: &RecordBatch) -> Result<Option<Vec<bool>>> {
        let mut has_series: Option<Vec<bool>> = None;
        for window in &self.windows {
            let mut keys = Vec::with_capacity(window.source_keys.len());
            for key in &window.source_keys {
                keys.extend(batch.column_by_name(key).cloned());
            }
            if keys.is_empty() || keys.len() != window.source_keys.len() {
                continue;
            }
            let rows = has_series.get_or_insert_with(|| vec![false; batch.num_rows()]);
            let hashes = series_hashes(&keys, batch.num_rows())?;
            for (is_known, hash) in rows.iter_mut().zip(hashes) {
                *is_known = *is_known || window.series.contains(hash)?;
            }
        }
        Ok(has_series)
    }

    /// The time column of the source.
    pub fn time(&self) -> &str {
        self.time.name()
    }

    /// Refuses rows for which a step over all series would need facts that came after the run.
    pub fn refuse_beyond_pooled(&self, times: &ArrayRef) -> Result<()> {
        if self.pooled.is_empty() {
            return Ok(());
        }
        let times = ticks(times)?;
        for time in times.iter().flatten() {
            let beyond = self.pooled.iter().find(|pooled| !pooled.answers(time));
            if let Some(pooled) = beyond {
                return self.beyond_pooled(&pooled.step, time);
            }
        }
        Ok(())
    }

    /// Refuses rows of the future for which a step over all series would need facts that were appended: it has learned
    /// from the rows of the run alone.
    pub fn refuse_pooled_behind_facts(&self, times: &ArrayRef) -> Result<()> {
        if lock(&self.newest)?.is_none() {
            return Ok(());
        }
        self.refuse_beyond_pooled(times)
    }

    fn beyond_pooled(&self, step: &str, time: i64) -> Result<()> {
        let as_of = self.reference.manifest.as_of.as_deref();
        let message = format!(
            "`{step}` takes the rows of all series up to its gap before the row: \
             a row is of {}, and the state has rows up to {}",
            time_text(time, &self.time)?,
            as_of.unwrap_or("no time"),
        );
        Err(Fault::new(codes::NO_HISTORY, message)
            .step(step)
            .hint("run the pipeline with the days before the row, and serve its artifact"))
    }

    /// Refuses facts of times that steps over all series have learned from already.
    fn refuse_behind_pooled(&self, facts: &RecordBatch) -> Result<()> {
        let as_of = self.reference.manifest.as_of_ticks;
        let Some((PooledReach { step, .. }, as_of)) = self.pooled.first().zip(as_of) else {
            return Ok(());
        };
        let Some(times) = facts.column_by_name(self.time()) else {
            return Ok(());
        };
        let first = arrow::compute::min(&ticks(times)?);
        if first.is_none_or(|first| first > as_of) {
            return Ok(());
        }
        let message = format!(
            "`{step}` has learned from the rows of all series up to {}, \
             and a fact is of that time or earlier",
            time_text(as_of, &self.time)?
        );
        Err(Fault::new(codes::OUT_OF_ORDER, message)
            .step(step)
            .hint("put the fact into the data, and run the pipeline again"))
    }

    /// The states that the windows and joins of another chain of the step take.
    pub fn states_of(
        &self,
        bound: &BoundPipeline,
        chain: &OpChain,
        joins: &[OpId],
    ) -> Result<ChainStates> {
        chain_states(&self.reference.manifest, bound, chain, joins)
    }

    /// The last rows of all series; `None` where the state does not hold them.
    pub fn series_ends(&self) -> Result<Option<Arc<SeriesEnds>>> {
        self.latest.as_ref().map(LiveLatest::ends).transpose()
    }

    /// True if forecasts can begin after the last rows of series.
    pub fn holds_ends(&self) -> bool {
        self.latest.is_some()
    }

    /// Windows that read the state, for one answer.
    pub fn answer(&self) -> Result<LiveAnswer<'_>> {
        let states = self.answers.as_ref().ok_or_else(|| {
            let message = "a filter for learning reads windows that rows do without, \
                           and the state holds them together with others";
            Fault::new(codes::UNSUPPORTED, message)
                .hint("ask for forecasts, or compute these windows in a step of their own")
        })?;
        self.answer_by(states)
    }

    /// The windows of a chain that read the state, for one answer.
    pub fn answer_by(&self, chain: &ChainStates) -> Result<LiveAnswer<'_>> {
        let unchanged = self.visible.read().map_err(|_| poisoned())?;
        let mut carry = Carry::default();
        for (op, index) in &chain.windows {
            carry.restore_from(*op, self.windows[*index].stored());
        }
        let mut joined = Vec::new();
        for (op, index) in &chain.tables {
            let outputs = NextOutputs::default();
            carry.set_precomputed(*op, Box::new(outputs.clone()));
            joined.push((&self.tables[*index], outputs));
        }
        Ok(LiveAnswer {
            carry,
            joined,
            _unchanged: unchanged,
        })
    }

    /// Makes facts part of the next answers, once they are on the disk.
    pub fn append(&self, batch: &RecordBatch) -> Result<AppendReport> {
        if !self.takes_facts() {
            let message = "no window of the served step reads the rows before, so that facts \
                           would change no answer";
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .hint("put the facts into the data, and run the pipeline again"));
        }
        let FactRows { rows, order } = self.fact_rows(batch)?;
        self.append_in_order(&rows).map_err(|fault| match &order {
            // Faults number the rows as the caller does.
            Some(order) => fault.map_rows(|row| row_before(order, row)),
            None => fault,
        })
    }

    /// The columns of facts; `None` where these change no answer.
    pub fn fact_columns(&self) -> Option<&SchemaRef> {
        self.takes_facts().then_some(&self.fact_columns)
    }

    /// True if facts change answers.
    fn takes_facts(&self) -> bool {
        !self.windows.is_empty() || self.latest.is_some()
    }

    fn append_in_order(&self, facts: &RecordBatch) -> Result<AppendReport> {
        self.refuse_behind_pooled(facts)?;
        let mut log = lock(&self.log)?;
        let Some(log) = log.as_mut() else {
            let message =
                "facts are logged beside the serving state, which lies in an object store";
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .hint("copy the artifact's directory to a local disk, and serve it from there"));
        };
        self.append_logged(log, facts)
    }

    /// The path of the log of facts.
    pub fn log_path(&self) -> Result<Option<PathBuf>> {
        Ok(lock(&self.log)?.as_ref().map(|log| log.path().to_owned()))
    }

    /// Lets others append to the log.
    pub fn release_log(&self) -> Result<()> {
        if let Some(log) = lock(&self.log)?.as_mut() {
            log.release();
        }
        Ok(())
    }

    /// All facts that were appended, in the order of the appends.
    pub fn appended(&self) -> Result<Vec<RecordBatch>> {
        match lock(&self.log)?.as_ref() {
            Some(log) => log.read_all(),
            None => Ok(Vec::new()),
        }
    }

    /// Appends the facts that are later than the run which stored the state, unless they were appended before: a batch of
    /// them is one append.
    pub fn append_after_run(&self, appends: &[RecordBatch]) -> Result<AppendReport> {
        if !self.takes_facts() {
            return Ok(AppendReport { rows: 0 });
        }
        let appended = self.appended()?;
        let mut rows = 0;
        for facts in appends {
            let new_facts = self.after_run(&self.fact_rows(facts)?.rows)?;
            if new_facts.num_rows() > 0 && !appended.contains(&new_facts) {
                rows += self.append(&new_facts)?.rows;
            }
        }
        Ok(AppendReport { rows })
    }

    /// The facts that are later than the run that stored the state: the others are part of its rows.
    fn after_run(&self, facts: &RecordBatch) -> Result<RecordBatch> {
        let Some(as_of) = self.reference.manifest.as_of_ticks else {
            return Ok(facts.clone());
        };
        let is_later: BooleanArray = ticks(self.fact_times(facts)?)?
            .iter()
            .map(|time| Some(time.is_some_and(|time| time > as_of)))
            .collect();
        Ok(filter_record_batch(facts, &is_later)?)
    }

    /// The column of times of facts.
    fn fact_times<'f>(&self, facts: &'f RecordBatch) -> Result<&'f ArrayRef> {
        facts.column_by_name(self.time()).ok_or_else(|| {
            let message = format!("the facts have no column `{}`", self.time());
            Fault::new(codes::UNKNOWN_COLUMN, message)
        })
    }

    fn append_logged(&self, log: &mut AppendLog, facts: &RecordBatch) -> Result<AppendReport> {
        // Facts that another process appended before it ended.
        for earlier in log.take()? {
            self.replay(&earlier)?;
        }
        let growth = self.growth(facts)?;
        let mut added = growth.added_bytes();
        if self.replayed.is_some() {
            added += FactsBySeries::bytes_of(facts);
        }
        if added + self.grown_bytes()? > self.grown_bytes_max {
            let message = format!(
                "series with appended facts would take more than their {} MiB of memory",
                self.grown_bytes_max >> 20
            );
            return Err(Fault::new(codes::MEMORY, message)
                .hint("run the pipeline with the new facts in its data, and serve its artifact"));
        }
        log.append(facts)?;
        self.install(growth, facts)?;
        Ok(AppendReport {
            rows: facts.num_rows() as u64,
        })
    }

    /// A summary of the state.
    pub fn summary(&self) -> Result<StateSummary> {
        let newest = *lock(&self.newest)?;
        let manifest = &self.reference.manifest;
        // Facts that came late do not make the state newer.
        let as_of_ticks = newest.max(manifest.as_of_ticks);
        let as_of = match as_of_ticks {
            Some(ticks) if as_of_ticks != manifest.as_of_ticks => time_text(ticks, &self.time)?,
            _ => manifest.as_of.clone().unwrap_or_default(),
        };
        Ok(StateSummary {
            as_of,
            as_of_seconds: as_of_ticks
                .and_then(|ticks| seconds_since_1970(ticks, self.time.data_type())),
            series: manifest.series(),
            bytes: manifest.bytes() + self.grown_bytes()? as u64,
        })
    }

    fn grown_bytes(&self) -> Result<usize> {
        let mut bytes = 0;
        for window in &self.windows {
            bytes += window.series.grown_bytes()?;
        }
        if let Some(replayed) = &self.replayed {
            bytes += lock(replayed)?.bytes();
        }
        if let Some(latest) = &self.latest {
            bytes += latest.appended_bytes()?;
        }
        Ok(bytes)
    }

    /// The columns of facts, in order of time.
    fn fact_rows(&self, batch: &RecordBatch) -> Result<FactRows> {
        let mut columns = Vec::new();
        for field in self.fact_columns.fields() {
            let column = batch.column_by_name(field.name()).ok_or_else(|| {
                let message = format!("the facts have no column `{}`", field.name());
                Fault::new(codes::UNKNOWN_COLUMN, message)
            })?;
            let column = fit_type(column, field, None, TextRules::inferred())?;
            columns.push(cast(&column, field.data_type())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let facts =
            RecordBatch::try_new_with_options(self.fact_columns.clone(), columns, &options)?;
        self.in_order(facts)
    }

    /// Facts in order of time.
    fn in_order(&self, facts: RecordBatch) -> Result<FactRows> {
        let order = order_of_time(self.fact_times(&facts)?)?;
        let rows = match &order {
            Some(order) => take_all(&facts, order)?,
            // Facts may be kept: they are no part of a larger batch.
            None if self.replayed.is_some() => {
                take_all(&facts, &(0..facts.num_rows() as u32).collect())?
            }
            None => facts,
        };
        Ok(FactRows { rows, order })
    }

    /// The effect of these facts on the state.
    fn growth(&self, facts: &RecordBatch) -> Result<Growth> {
        let ends = self.latest.as_ref().map(|latest| latest.read(facts));
        Ok(Growth {
            windows: self.advance_with_late(facts)?,
            ends: ends.transpose()?,
        })
    }

    /// The states of the series of these facts once they have taken them up.
    fn advance(&self, facts: &RecordBatch) -> Result<Vec<GrownSeries>> {
        let mut carry = Carry::default();
        for window in &self.windows {
            carry.restore_from(window.fact_op, window.stored());
        }
        self.advance_carry(facts, carry)
    }

    /// The states of the series of these facts. Where some come late, the series of the run take all facts since then.
    fn advance_with_late(&self, facts: &RecordBatch) -> Result<Vec<GrownSeries>> {
        let advanced = self.advance(facts);
        let Some(replayed) = &self.replayed else {
            return advanced;
        };
        match advanced {
            Err(fault) if fault.code() == codes::OUT_OF_ORDER => {}
            advanced => return advanced,
        }
        let GroupFacts { rows, earlier } = lock(replayed)?.with_earlier(facts)?;
        let FactRows { rows, order } = self.in_order(rows)?;
        let mut carry = Carry::default();
        for window in &self.windows {
            carry.restore_from(window.fact_op, window.stored_of_run());
        }
        self.advance_carry(&rows, carry).map_err(|fault| {
            fault.map_rows(|row| {
                let row = match &order {
                    Some(order) => row_before(order, row)?,
                    None => row,
                };
                row.checked_sub(earlier as u64)
            })
        })
    }

    fn advance_carry(&self, facts: &RecordBatch, mut carry: Carry) -> Result<Vec<GrownSeries>> {
        let chunk = Chunk::of_source(facts.clone(), self.facts.source());
        self.facts.advance(&[chunk], &mut carry)?;
        let mut grown = Vec::with_capacity(self.windows.len());
        for window in &self.windows {
            let mut states = GrownSeries::new();
            if let Some(engine) = carry.engine(window.fact_op) {
                engine.for_each_series(&mut |series, state| {
                    states.push((series, Arc::from(state)));
                    Ok(())
                })?;
            }
            grown.push(states);
        }
        Ok(grown)
    }

    fn install(&self, growth: Growth, facts: &RecordBatch) -> Result<()> {
        if let Some(times) = facts.column_by_name(self.time()) {
            let last = arrow::compute::max(&ticks(times)?);
            let mut newest = lock(&self.newest)?;
            *newest = last.max(*newest);
        }
        // No answer sees the states of some windows only.
        let _exclusive = self.visible.write().map_err(|_| poisoned())?;
        for (window, grown) in self.windows.iter().zip(growth.windows) {
            window.series.install(grown)?;
        }
        if let (Some(latest), Some(ends)) = (&self.latest, growth.ends) {
            latest.add(ends)?;
        }
        if let Some(replayed) = &self.replayed {
            lock(replayed)?.add(facts)?;
        }
        Ok(())
    }

    /// Takes up the facts of the log that this state has not taken up yet.
    pub fn replay_log(&self) -> Result<()> {
        let mut log = lock(&self.log)?;
        let Some(log) = log.as_mut() else {
            return Ok(());
        };
        for facts in log.read_new()? {
            self.replay(&facts)?;
        }
        Ok(())
    }

    /// Takes up facts of the log. Those that the state holds already are left out: the data had them, too.
    fn replay(&self, facts: &RecordBatch) -> Result<()> {
        let facts = self.fact_rows(facts).map_err(logged_fault)?.rows;
        match self.growth(&facts) {
            Ok(growth) => return self.install(growth, &facts),
            Err(fault) if fault.code() != codes::OUT_OF_ORDER => return Err(fault),
            Err(_) => {}
        }
        for row in 0..facts.num_rows() {
            let fact = facts.slice(row, 1);
            match self.growth(&fact) {
                Ok(growth) => self.install(growth, &fact)?,
                Err(fault) if fault.code() != codes::OUT_OF_ORDER => return Err(fault),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

impl LiveWindow {
    fn stored(&self) -> StoredSeries {
        StoredSeries {
            states: self.series.clone(),
            is_strict: self.is_strict,
        }
    }

    /// The states of the run, without those of appended facts.
    fn stored_of_run(&self) -> StoredSeries {
        StoredSeries {
            states: Arc::new(RunSeries(self.series.clone())),
            is_strict: self.is_strict,
        }
    }
}

/// The columns of facts that tell groups of series apart. Floats have several forms of one value, and tell none apart.
fn group_keys(keys: Vec<String>, columns: &Schema) -> Vec<String> {
    let mut usable = Vec::new();
    for key in keys {
        let field = columns.field_with_name(&key);
        if field.is_ok_and(|field| !contains_floats(field.data_type())) {
            usable.push(key);
        }
    }
    usable
}

/// The row of a batch that a row in another order is.
fn row_before(order: &UInt32Array, row: u64) -> Option<u64> {
    let row = usize::try_from(row).ok()?;
    order.values().get(row).map(|row| u64::from(*row))
}

/// The order of rows by time, rows of equal times in their own order; `None` where they are in order.
pub(super) fn order_of_time(times: &ArrayRef) -> Result<Option<UInt32Array>> {
    let times = ticks(times)?;
    let tick = |row: usize| times.is_valid(row).then(|| times.value(row));
    if (1..times.len()).all(|row| tick(row - 1) <= tick(row)) {
        return Ok(None);
    }
    let rows = u32::try_from(times.len())
        .map_err(|_| Fault::new(codes::LIMIT, "a batch has more rows than 2^32"))?;
    let mut order: Vec<u32> = (0..rows).collect();
    order.sort_by_key(|row| tick(*row as usize));
    Ok(Some(UInt32Array::from(order)))
}

/// Rows of a batch in another order.
pub(super) fn take_all(batch: &RecordBatch, order: &UInt32Array) -> Result<RecordBatch> {
    let columns = batch.columns().iter();
    let columns = columns.map(|column| take_rows(column, order));
    let options = RecordBatchOptions::new().with_row_count(Some(order.len()));
    Ok(RecordBatch::try_new_with_options(
        batch.schema(),
        columns.collect::<Result<Vec<_>>>()?,
        &options,
    )?)
}

/// The last rows of all series, where forecasts are answered and the state holds them.
fn load_latest(io: &StorageClient, chains: &LiveChains<'_>) -> Result<Option<LiveLatest>> {
    let manifest = &chains.reference.manifest;
    let Some(stored) = manifest.latest.as_ref().filter(|_| chains.forecasts) else {
        return Ok(None);
    };
    let continued = ContinuedSeries::of(chains.fact_bound, &manifest.node);
    let continued = continued.map_err(|_| other_version())?;
    let finding = |analyzer| artifact_finding(chains.artifact, analyzer);
    let piece = stored.piece.file.as_ref().ok_or_else(other_version)?;
    let piece = chains.reference.piece(io, piece)?;
    Ok(Some(LiveLatest::new(&continued, piece, &finding)?))
}

/// The columns of facts: those that their chain reads, then those that the last rows of series need.
fn fact_schema(
    base: &Schema,
    facts: &OpChain,
    time: &Field,
    latest: Option<&LiveLatest>,
) -> Result<SchemaRef> {
    let mut fields = Vec::new();
    for name in facts.advance_columns() {
        let field = base.field_with_name(name)?.clone();
        fields.push(field.with_nullable(true));
    }
    if let Some(latest) = latest {
        add_fact_fields(&mut fields, base, latest.columns())?;
        add_fact_fields(&mut fields, base, std::slice::from_ref(time.name()))?;
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// The states of a serving state that the windows and joins of a chain take: those of the same steps, in their order.
fn chain_states(
    manifest: &ServingManifest,
    bound: &BoundPipeline,
    chain: &OpChain,
    joins: &[OpId],
) -> Result<ChainStates> {
    let mut states = ChainStates::default();
    let mut stored_windows = manifest.windows.iter().enumerate();
    for window in chain.windows() {
        let Some(plan) = &window.plan else {
            continue;
        };
        let step = &bound.ops[window.op].label;
        let version = format!("{:016x}", plan.state_version()?);
        let alike =
            stored_windows.find(|(_, stored)| stored.step == *step && stored.version == version);
        let (index, _) = alike.ok_or_else(|| other_series(step))?;
        states.windows.push((window.op, index));
    }
    let mut stored_tables = manifest.tables.iter().enumerate();
    for op in joins {
        let step = &bound.ops[*op].label;
        let alike = stored_tables.find(|(_, stored)| stored.step == *step);
        let (index, _) = alike.ok_or_else(|| other_series(step))?;
        states.tables.push((*op, index));
    }
    Ok(states)
}

/// Adds columns of the source to those of facts.
fn add_fact_fields(fields: &mut Vec<Field>, source: &Schema, columns: &[String]) -> Result<()> {
    for column in columns {
        if fields.iter().any(|field| field.name() == column) {
            continue;
        }
        let field = source.field_with_name(column)?.clone();
        fields.push(field.with_nullable(true));
    }
    Ok(())
}

/// The fault of a window or a join whose states are those of other windows.
fn other_series(step: &str) -> Fault {
    let message =
        format!("the serving state does not hold the series of `{step}` as its rows need them");
    Fault::new(codes::STATE_VERSION, message)
        .step(step)
        .hint("run the pipeline again with this program")
}

/// A fault of facts of the log. A server of rows may have appended them, which reads no columns that `future_rows` carries
/// on.
fn logged_fault(fault: Fault) -> Fault {
    if fault.code() != codes::UNKNOWN_COLUMN {
        return fault;
    }
    fault.hint(
        "a server that answers rows has appended them: put them into the data, run the pipeline, \
         and serve its state",
    )
}

fn other_version() -> Fault {
    let message = "the serving state belongs to windows of another version";
    Fault::new(codes::STATE_VERSION, message).hint("run the pipeline again with this program")
}

fn poisoned() -> Fault {
    Fault::internal("a thread failed while it changed the serving state")
}
