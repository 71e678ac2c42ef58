//! The serving state of a run: what its windows hold of each series after the last row.
//!
//! The state goes on from that of the run before where the source has only grown at its end. Then only new files are
//! read, and pieces without new rows are shared.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use forebay_commit::{
    Artifact, PieceWriter, SeriesPiece, ServingManifest, ServingReference, SpanPrefix, StoredPiece,
    StoredWindow,
};
use forebay_contract::ScanRequest;
use forebay_execute::SourceInput;
use forebay_model::{
    Chunk, ContentId, Fault, IdBuilder, NodeInput, Pipeline, PipelineNode, Result, Span, codes,
    ticks,
};
use forebay_plan::{Carry, ChainWindow, OpChain, StoredSeries, WindowBudget};
use forebay_storage::ScratchDir;
use forebay_window::WindowEngine;

use super::joined::TableRequest;
use super::latest::{ContinuedSeries, LatestRequest};
use super::series::{LiveSeries, PieceMemory, piece_of};
use super::stream::ServedStream;
use crate::executor::RunExecutor;
use crate::leak_check::{TimeRange, time_text};
use crate::session::Session;
use crate::step_rows::RowsRequest;

/// Series of a piece, about.
const SERIES_PER_PIECE: usize = 4096;

/// Most pieces of a window.
const PIECES_MAX: usize = 1024;

/// Chunks that are pushed at once: windows load a series once for its rows in all of them.
const CHUNKS_AT_ONCE: usize = 8;

/// The step that sorts rows; no step of a spec can have its name.
const SORTED: &str = "--in-order-of-time";

/// The rows that states are computed from.
struct StateInput<'a> {
    session: &'a Session,
    pipeline: &'a Pipeline,
    source: &'a str,
    input: &'a SourceInput,
    /// The column of times.
    time: String,
    chain: &'a OpChain,
    windows: &'a [&'a ChainWindow],
}

/// Windows after their last row.
struct WindowStates {
    carry: Carry,
    /// The greatest time of the rows that they received, in ticks.
    newest: Option<i64>,
}

impl RunExecutor<'_> {
    /// Writes the serving state of the run into the directory of its artifact, and returns its description; `None` where
    /// the pipeline declares none.
    pub(crate) fn serving_state(&self, artifact: ContentId) -> Result<Option<ServingManifest>> {
        let Some(serving) = &self.pipeline.serving else {
            return Ok(None);
        };
        let state = self.window_state(&serving.from, artifact);
        let mut state = state.map_err(|fault| fault.at(serving.at.as_ref()))?;
        state.late = serving.late;
        Ok(Some(state))
    }

    fn window_state(&self, node: &str, artifact: ContentId) -> Result<ServingManifest> {
        let bound = &self.program.bound;
        let served = ServedStream::of(bound, node)?;
        served.refuse_unserved()?;
        let finding = |analyzer: usize| self.state.finding(&self.program, analyzer);
        let served_chain = served.chain(&finding)?;
        let windows = served_chain.windows();
        let source = served
            .source()
            .ok_or_else(|| Fault::internal("served rows without a source"))?;
        let input = self.state.input(&self.program, served.stream.base)?;
        let ops = served.window_ops();
        let operations = served.operations_id(&ops, &|ask| self.program.state_ids[ask]);
        let spans = &input.dataset.spans;
        let mut manifest = ServingManifest::new(
            node.to_owned(),
            source.to_owned(),
            span_prefix(spans),
            operations,
        );
        // Forecasts begin after the last rows of series, where a state can hold those.
        let continued = ContinuedSeries::of(bound, node).ok();
        let holds_rows =
            !windows.is_empty() || !served_chain.joins.is_empty() || continued.is_some();
        if !holds_rows && served.pooled_steps().is_empty() {
            return Ok(manifest);
        }
        let Some(time) = served.state_time(self.pipeline) else {
            if windows.is_empty() && served_chain.joins.is_empty() {
                return Ok(manifest);
            }
            let message = "the times of windows are computed, \
                           and appended rows could not be brought into their order";
            return Err(Fault::new(codes::UNSUPPORTED, message));
        };
        let earlier = self.earlier_state(&manifest, &windows, spans)?;
        let io = &self.session.io;
        let directory = Artifact::directory(self.store.root(), artifact);
        let writer = PieceWriter::new(io, directory.clone(), earlier.as_ref());
        let state_input = StateInput {
            session: self.session,
            pipeline: self.pipeline,
            source,
            input,
            time: time.clone(),
            chain: &served_chain.chain,
            windows: &windows,
        };
        let states = state_input.states(earlier.as_ref())?;
        for (index, window) in windows.iter().enumerate() {
            let stored = earlier
                .as_ref()
                .map(|earlier| (earlier, &earlier.manifest.windows[index]));
            let keys = served.keys_of(window);
            let step = bound.ops[window.op].label.clone();
            let stored = store_window(&writer, window, states.carry.engine(window.op), stored)?;
            manifest.windows.push(StoredWindow {
                step,
                keys,
                ..stored
            });
        }
        let previous = earlier.as_ref().map(|earlier| &earlier.manifest);
        manifest.as_of_ticks = states
            .newest
            .max(previous.and_then(|previous| previous.as_of_ticks));
        let field = input.dataset.schema.field_with_name(&time)?;
        manifest.as_of = manifest
            .as_of_ticks
            .map(|newest| time_text(newest, field))
            .transpose()?;
        for op in &served_chain.joins {
            let by_source_time = served.join_time(*op).as_ref() == Some(&time);
            let newest = manifest.as_of_ticks.filter(|_| by_source_time);
            let first = newest.map(|newest| time_column(newest, field.data_type()));
            let request = TableRequest {
                pipeline: self.pipeline,
                bound,
                op: *op,
                first: first.transpose()?,
            };
            let table = self.session.store_joined(&writer, &request)?;
            manifest.tables.push(table);
        }
        if let Some(continued) = &continued {
            let session = self.session;
            let memory = session.memory();
            let bytes_max = memory.states_bytes();
            let request = LatestRequest {
                session,
                input,
                earlier: earlier.as_ref(),
                finding: &finding,
                digest: &|analyzer| self.program.state_ids[analyzer],
                scratch: self.scratch.scratch_with_budget(memory, bytes_max),
            };
            manifest.latest = Some(continued.store(&writer, &request)?);
        }
        if let Some(replaced) = ServingReference::read(io, &directory).ok().flatten() {
            let named = manifest.files();
            let files = replaced.manifest.files();
            manifest.before = files.difference(&named).cloned().collect();
        }
        Ok(manifest)
    }

    /// The state of the run before, where this run's state can go on from it.
    fn earlier_state(
        &self,
        manifest: &ServingManifest,
        windows: &[&ChainWindow],
        spans: &[Span],
    ) -> Result<Option<ServingReference>> {
        let io = &self.session.io;
        let newest = Artifact::latest(io, self.store.root(), &self.pipeline.name)
            .ok()
            .flatten();
        let Some(newest) = newest else {
            return Ok(None);
        };
        // A state that cannot be read is computed again.
        let Some(earlier) = ServingReference::read(io, &newest).ok().flatten() else {
            return Ok(None);
        };
        let previous = &earlier.manifest;
        let is_alike = previous.node == manifest.node
            && previous.operations == manifest.operations
            && previous.windows.len() == windows.len()
            && spans
                .get(..previous.spans.count)
                .is_some_and(|spans| span_prefix(spans) == previous.spans);
        if !is_alike {
            return Ok(None);
        }
        for (window, stored) in windows.iter().zip(&previous.windows) {
            if window_version(window)? != stored.version {
                return Ok(None);
            }
        }
        Ok(Some(earlier))
    }
}

impl StateInput<'_> {
    /// The windows after the last row. They go on from an earlier state.
    fn states(&self, earlier: Option<&ServingReference>) -> Result<WindowStates> {
        let first = earlier.map_or(0, |earlier| earlier.manifest.spans.count);
        match self.states_in_order(earlier, &self.input.dataset.spans[first..]) {
            // Rows of a series lie in several files, in another order than that of time.
            Err(fault) if fault.code() == codes::OUT_OF_ORDER => self.states_of_sorted(),
            states => states,
        }
    }

    fn states_in_order(
        &self,
        earlier: Option<&ServingReference>,
        spans: &[Span],
    ) -> Result<WindowStates> {
        let mut states = self.begin(earlier)?;
        if self.windows.is_empty() {
            let range = TimeRange::of(&self.session.io, self.input, &self.time)?;
            states.newest = range.map(|range| range.max);
            return Ok(states);
        }
        let request = ScanRequest {
            batch_rows: self.session.options.batch_rows,
            ..ScanRequest::of_columns(
                self.chain.advance_columns().to_vec(),
                &self.input.dataset.schema,
            )
        };
        for span in spans {
            let mut chunks = Vec::new();
            for chunk in self.input.source.open(&self.session.io, span, &request)? {
                chunks.push(chunk?);
                if chunks.len() == CHUNKS_AT_ONCE {
                    self.advance(&mut states, &std::mem::take(&mut chunks))?;
                }
            }
            self.advance(&mut states, &chunks)?;
        }
        Ok(states)
    }

    /// The windows after rows that a query brings into the order of time.
    fn states_of_sorted(&self) -> Result<WindowStates> {
        let range = TimeRange::of(&self.session.io, self.input, &self.time)?;
        let Some(range) = range else {
            return self.begin(None);
        };
        let mut columns = Vec::new();
        for name in self.chain.advance_columns() {
            columns.push(quoted(name));
        }
        let time = quoted(&self.time);
        let data_type = &range.field.data_type().to_string();
        let newest = time_text(range.max, &range.field)?;
        let query = format!(
            "SELECT {} FROM {} WHERE {time} <= arrow_cast('{newest}', '{data_type}') \
             ORDER BY {time}",
            columns.join(", "),
            quoted(self.source),
        );
        let source = self.pipeline.source(self.source).cloned();
        let pipeline = Pipeline {
            name: self.pipeline.name.clone(),
            sources: source.into_iter().collect(),
            nodes: vec![PipelineNode::new(SORTED, NodeInput::Sql(query), Vec::new())],
            ..Pipeline::default()
        };
        let state = self.session.state()?;
        let scratch = ScratchDir::new(Some(&state), self.session.watch.clone())?;
        let request = RowsRequest {
            step: SORTED,
            condition: None,
            connectors: self.session.connectors.clone(),
            artifact: None,
            enforces_rules: false,
            uses_state: false,
        };
        let rows = self.session.compute_rows(&pipeline, request, scratch)?;
        let mut states = self.begin(None)?;
        for batch in rows {
            let chunk = Chunk::of_source(batch?, self.source);
            let advanced = self.advance(&mut states, &[chunk]);
            // The rows are in another order here than in their files.
            advanced.map_err(|fault| fault.map_rows(|_| None))?;
        }
        Ok(states)
    }

    fn begin(&self, earlier: Option<&ServingReference>) -> Result<WindowStates> {
        let budget = WindowBudget::new(self.session.memory().states_bytes());
        let mut carry = Carry::new(&budget);
        if let Some(earlier) = earlier {
            let memory = Arc::new(PieceMemory::default());
            // A run writes to its own directories alone.
            memory.set_bytes_max(usize::MAX);
            let windows = self.windows.iter().zip(&earlier.manifest.windows);
            for (window, stored) in windows {
                let states = LiveSeries::load(&self.session.io, earlier, stored, &memory)?;
                carry.restore_from(
                    window.op,
                    StoredSeries {
                        states: Arc::new(states),
                        is_strict: false,
                    },
                );
            }
        }
        Ok(WindowStates {
            carry,
            newest: None,
        })
    }

    fn advance(&self, states: &mut WindowStates, chunks: &[Chunk]) -> Result<()> {
        self.session.interrupt.check()?;
        for chunk in chunks {
            states.newest = states.newest.max(self.newest(&chunk.batch)?);
        }
        self.chain.advance(chunks, &mut states.carry)
    }

    /// The greatest time of rows.
    fn newest(&self, batch: &RecordBatch) -> Result<Option<i64>> {
        let Some(times) = batch.column_by_name(&self.time) else {
            return Ok(None);
        };
        Ok(arrow::compute::max(&ticks(times)?))
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A time as a column.
fn time_column(tick: i64, data_type: &DataType) -> Result<ArrayRef> {
    let ticks: ArrayRef = Arc::new(Int64Array::from(vec![tick]));
    let ticks = if *data_type == DataType::Date32 {
        cast(&ticks, &DataType::Int32)?
    } else {
        ticks
    };
    Ok(cast(&ticks, data_type)?)
}

/// Number and hash of spans.
fn span_prefix(spans: &[Span]) -> SpanPrefix {
    let mut id = IdBuilder::new("spans");
    for span in spans {
        id.id(span.fingerprint());
    }
    SpanPrefix {
        count: spans.len(),
        hash: id.finish().to_string(),
    }
}

/// The version of the states of a window's series.
fn window_version(window: &ChainWindow) -> Result<String> {
    let plan = window.plan.as_ref();
    let plan = plan.ok_or_else(|| Fault::internal("a served window without a plan"))?;
    Ok(format!("{:016x}", plan.state_version()?))
}

/// Number of pieces for some series: a power of two.
fn pieces_for(series: usize) -> usize {
    series
        .div_ceil(SERIES_PER_PIECE)
        .next_power_of_two()
        .min(PIECES_MAX)
}

/// Writes the states of a window's series. Series without new rows are those of the state before.
fn store_window(
    writer: &PieceWriter<'_>,
    window: &ChainWindow,
    engine: Option<&WindowEngine>,
    earlier: Option<(&ServingReference, &StoredWindow)>,
) -> Result<StoredWindow> {
    let count = match earlier {
        Some((_, stored)) => stored.pieces.len(),
        None => pieces_for(engine.map_or(0, WindowEngine::series)),
    };
    let mut pieces = PieceBuilder {
        writer,
        earlier,
        count,
        records: Vec::new(),
        done: Vec::new(),
    };
    if let Some(engine) = engine {
        engine.for_each_series(&mut |series, state| {
            pieces.finish_before(piece_of(series, count))?;
            pieces.records.push((series, state.to_vec()));
            Ok(())
        })?;
    }
    pieces.finish_before(count)?;
    let pieces = pieces.done;
    Ok(StoredWindow {
        step: String::new(),
        keys: Vec::new(),
        version: window_version(window)?,
        series: pieces.iter().map(|piece| piece.series).sum(),
        bytes: pieces.iter().map(|piece| piece.bytes).sum(),
        pieces,
    })
}

/// The pieces of a window, one after the other.
struct PieceBuilder<'a> {
    writer: &'a PieceWriter<'a>,
    earlier: Option<(&'a ServingReference, &'a StoredWindow)>,
    count: usize,
    /// New states of the piece that is being filled, in the order of their hashes.
    records: Vec<(u128, Vec<u8>)>,
    done: Vec<StoredPiece>,
}

impl PieceBuilder<'_> {
    /// Finishes the pieces before one.
    fn finish_before(&mut self, piece: usize) -> Result<()> {
        while self.done.len() < piece.min(self.count) {
            let records = std::mem::take(&mut self.records);
            let finished = self.piece(self.done.len(), &records)?;
            self.done.push(finished);
        }
        Ok(())
    }

    fn piece(&self, index: usize, records: &[(u128, Vec<u8>)]) -> Result<StoredPiece> {
        let stored = self
            .earlier
            .map(|(reference, window)| (reference, &window.pieces[index]));
        if records.is_empty() {
            // Without new states the piece stays as it is.
            return match stored {
                Some((_, piece)) => self.writer.share(piece),
                None => Ok(StoredPiece::default()),
            };
        }
        let new = records
            .iter()
            .map(|(series, state)| (*series, state.as_slice()));
        let file = stored.and_then(|(reference, piece)| Some((reference, piece.file.as_ref()?)));
        let Some((reference, file)) = file else {
            return self
                .writer
                .write(SeriesPiece::encode(new)?, records.len() as u64);
        };
        let piece = SeriesPiece::decode(&self.writer.read(reference, file)?)?;
        let merged = merge_records(piece.records(), new);
        let count = merged.len() as u64;
        self.writer
            .write(SeriesPiece::encode(merged.into_iter())?, count)
    }
}

/// Both lists in the order of hashes. New states replace earlier ones.
fn merge_records<'r>(
    earlier: impl Iterator<Item = (u128, &'r [u8])>,
    new: impl Iterator<Item = (u128, &'r [u8])>,
) -> Vec<(u128, &'r [u8])> {
    let mut merged = Vec::new();
    let mut earlier = earlier.peekable();
    for record in new {
        while let Some(state) = earlier.next_if(|state| state.0 < record.0) {
            merged.push(state);
        }
        earlier.next_if(|state| state.0 == record.0);
        merged.push(record);
    }
    merged.extend(earlier);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_states_replace_those_before() {
        let before: [(u128, &[u8]); 3] = [(1, b"a"), (3, b"b"), (5, b"c")];
        let new: [(u128, &[u8]); 3] = [(0, b"d"), (3, b"e"), (9, b"f")];
        let merged = merge_records(before.into_iter(), new.into_iter());
        let expected: [(u128, &[u8]); 5] = [(0, b"d"), (1, b"a"), (3, b"e"), (5, b"c"), (9, b"f")];
        assert_eq!(merged, expected);
    }

    #[test]
    fn the_number_of_pieces_is_a_power_of_two() {
        let counts = [0, 1, 4096, 4097, 1 << 20, 1 << 30].map(pieces_for);
        assert_eq!(counts, [1, 1, 1, 2, 256, 1024]);
    }
}
