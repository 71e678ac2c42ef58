//! The last row of each series, after which served forecasts begin: the state of the analyzer that `future_rows` asks
//! for. A run stores it, and appended facts go on from it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use arrow::row::{RowConverter, SortField};
use bytes::Bytes;
use forebay_commit::{PieceWriter, ServingReference, StoredLatest, read_table, write_table};
use forebay_contract::ScanRequest;
use forebay_execute::SourceInput;
use forebay_model::{
    AnalyzerInput, AnyAnalyzer, AnyState, Chunk, ContentId, Fault, Finding, IdBuilder,
    MemoryScratch, Result, ScratchSpace, canonical_keys, codes,
};
use forebay_plan::{
    AnalyzerId, AnalyzerRequest, BaseDataset, BoundPipeline, Carry, ChainContext, ColumnTap,
    FutureRowsOp, GatherBy, GatherOp, OpChain, OpStream, PlanOp, WindowRowOrder, base_column,
    slice_for_columns,
};
use forebay_threads::lock;

use super::joined::row_keys;
use crate::session::Session;

/// Column of a piece with the bytes of the analyzer's state.
const STATE: &str = "state";

/// Appends that wait to be merged, at most.
const APPENDS_MAX: usize = 1024;

/// Bytes of an append besides its columns.
const APPEND_BYTES: usize = 256;

/// The rows whose series a step continues with rows of the future.
pub(super) struct ContinuedSeries<'a> {
    bound: &'a BoundPipeline,
    /// The operation that makes rows of the future.
    pub future: &'a FutureRowsOp,
    /// The analyzer of the last rows.
    request: &'a AnalyzerRequest,
    /// The operations before it.
    stream: &'a OpStream,
    /// Positions of those that it needs.
    positions: Vec<usize>,
    /// Columns of the source that it needs.
    columns: Vec<String>,
}

impl<'a> ContinuedSeries<'a> {
    /// The rows of a step, or the reason for which a serving state cannot hold the last ones, phrased to follow the name
    /// of the step.
    pub fn of(bound: &'a BoundPipeline, node: &str) -> Result<ContinuedSeries<'a>, &'static str> {
        let flow = bound.flows.get(node);
        let Some(future) = flow.and_then(|flow| flow.future.as_deref()) else {
            return Err("has no `future_rows`");
        };
        let [made_by] = future.made_by.as_slice() else {
            return Err("is a union of inputs that have `future_rows` of their own");
        };
        let op = &bound.ops[*made_by];
        let PlanOp::Gather(GatherOp {
            lower: GatherBy::Future(rows),
            ..
        }) = &op.op
        else {
            return Err("has no `future_rows`");
        };
        let Some(analyzer) = op.asks.first() else {
            return Err("has `future_rows` of no series");
        };
        let analyzer = &bound.asks[*analyzer];
        let [stream] = analyzer.streams.as_slice() else {
            return Err("has `future_rows` behind a union");
        };
        if let BaseDataset::Gathered(_) = &bound.bases[stream.base] {
            return Err("has `future_rows` behind a step that needs all rows at once");
        }
        let inputs: Vec<&str> = analyzer.ask.inputs.iter().map(String::as_str).collect();
        let (positions, columns) = slice_for_columns(bound, stream, &inputs);
        let mut ops = positions.iter().map(|position| stream.ops[*position]);
        if ops.any(|op| bound.ops[op].op.is_over_series()) {
            return Err(
                "needs windows or joins before `future_rows` to know the last rows of its series",
            );
        }
        Ok(ContinuedSeries {
            bound,
            future: rows,
            request: &analyzer.ask,
            stream,
            positions,
            columns,
        })
    }

    /// The column of the source that a key is, possibly renamed; `None` if it is computed.
    pub fn source_field(&self, key: &str) -> Option<&'a Field> {
        let column = base_column(self.bound, self.stream, key)?;
        let schema = &self.bound.base_schemas[self.stream.base];
        schema.field_with_name(&column).ok()
    }

    /// A key that is no column of the source: requests could not name it.
    pub fn computed_key(&self) -> Option<&'a str> {
        let mut keys = self.future.keys.iter();
        let key = keys.find(|key| self.source_field(key).is_none());
        key.map(String::as_str)
    }

    /// Hash of the analyzer and of the operations before it, with what they learned.
    fn operations_id(&self, digest: &dyn Fn(AnalyzerId) -> ContentId) -> ContentId {
        let analyzer = &self.request.analyzer;
        let mut id = IdBuilder::new("last rows of series");
        id.text(analyzer.kind()).json(&analyzer.config());
        id.text(&analyzer.version().to_string());
        for input in &self.request.inputs {
            id.text(input);
        }
        let schema = &self.bound.base_schemas[self.stream.base];
        for column in &self.columns {
            let field = schema.field_with_name(column);
            let data_type =
                field.map_or_else(|_| String::new(), |field| field.data_type().to_string());
            id.text(column).text(&data_type);
        }
        for position in &self.positions {
            let op = &self.bound.ops[self.stream.ops[*position]];
            id.id(op.identity);
            for analyzer in &op.asks {
                id.id(digest(*analyzer));
            }
        }
        id.finish()
    }

    /// The operations before the analyzer, compiled: the only tap has its inputs.
    fn chain(&self, finding: &dyn Fn(AnalyzerId) -> Result<Arc<Finding>>) -> Result<OpChain> {
        let tap = ColumnTap {
            after: self.stream.ops.len(),
            columns: self.request.inputs.clone(),
            part: None,
            marks_unfound: false,
        };
        let context = ChainContext {
            finding,
            row_order: &|_| WindowRowOrder::Time,
            admit: None,
            check_stop: None,
        };
        OpChain::new(
            self.bound,
            self.stream,
            &self.positions,
            &self.columns,
            &[tap],
            context,
        )
    }

    /// Stores the last rows of a run. They go on from those of the state before where its spans are the first of these.
    pub fn store(
        &self,
        writer: &PieceWriter<'_>,
        request: &LatestRequest<'_>,
    ) -> Result<StoredLatest> {
        let LatestRequest {
            session,
            input,
            earlier,
            finding,
            digest,
            scratch,
        } = request;
        let operations = self.operations_id(*digest).to_string();
        let analyzer = &self.request.analyzer;
        let previous =
            earlier.and_then(|earlier| Some((earlier, earlier.manifest.latest.as_ref()?)));
        let previous = previous.filter(|(_, latest)| latest.operations == operations);
        let spans = &input.dataset.spans;
        let mut first = 0;
        let mut state = None;
        if let Some((earlier, latest)) = previous {
            first = earlier.manifest.spans.count;
            if first == spans.len() {
                return Ok(StoredLatest {
                    operations,
                    piece: writer.share(&latest.piece)?,
                });
            }
            if let Some(file) = &latest.piece.file {
                let encoded = state_of_piece(&writer.read(earlier, file)?)?;
                state = Some(analyzer.decode(&mut encoded.as_slice(), scratch)?);
            }
        }
        let mut state = match state {
            Some(state) => state,
            None => {
                first = 0;
                analyzer.zero(scratch)?
            }
        };
        let chain = self.chain(*finding)?;
        let request = ScanRequest {
            batch_rows: session.options.batch_rows,
            ..ScanRequest::of_columns(self.columns.clone(), &input.dataset.schema)
        };
        for span in spans.iter().skip(first) {
            for chunk in input.source.open(&session.io, span, &request)? {
                session.interrupt.check()?;
                let chunks = [chunk?];
                chain.run(&chunks, &mut Carry::default(), &mut |_, input| {
                    analyzer.update(&mut state, &input)
                })?;
            }
        }
        let piece = piece_of_state(&encoded_state(analyzer.as_ref(), &mut state)?)?;
        Ok(StoredLatest {
            operations,
            piece: writer.write(piece, 1)?,
        })
    }
}

/// Inputs of the last rows of a run.
pub(super) struct LatestRequest<'a> {
    pub session: &'a Session,
    pub input: &'a SourceInput,
    /// The state of the run before, whose spans are the first ones of the source.
    pub earlier: Option<&'a ServingReference>,
    pub finding: &'a dyn Fn(AnalyzerId) -> Result<Arc<Finding>>,
    pub digest: &'a dyn Fn(AnalyzerId) -> ContentId,
    /// Scratch space of the analyzer.
    pub scratch: Arc<dyn ScratchSpace>,
}

fn encoded_state(analyzer: &dyn AnyAnalyzer, state: &mut AnyState) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    analyzer.encode(state, &mut bytes)?;
    Ok(bytes)
}

fn piece_of_state(state: &[u8]) -> Result<Vec<u8>> {
    let column: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values([state]));
    write_table(&RecordBatch::try_from_iter([(STATE, column)])?)
}

fn state_of_piece(piece: &[u8]) -> Result<Vec<u8>> {
    let table = read_table(piece)?;
    let states = table.column_by_name(STATE);
    let states = states.and_then(|column| column.as_binary_opt::<i64>());
    match states.filter(|states| !states.is_empty()) {
        Some(states) => Ok(states.value(0).to_vec()),
        None => {
            let message = "the last rows of the serving state cannot be read";
            Err(Fault::new(codes::CORRUPT, message).hint("run the pipeline again"))
        }
    }
}

/// Facts as the analyzer of last rows reads them.
#[derive(Default)]
pub(super) struct FactEnds {
    columns: Vec<ArrayRef>,
    rows: usize,
}

impl FactEnds {
    /// Bytes that they take until they are merged.
    pub fn bytes(&self) -> usize {
        let columns = self.columns.iter();
        let columns: usize = columns.map(|column| column.get_array_memory_size()).sum();
        columns + APPEND_BYTES
    }
}

/// The last rows of all series, with those of appended facts.
pub(super) struct LiveLatest {
    chain: OpChain,
    /// Columns of facts that it reads, in order.
    columns: Vec<String>,
    analyzer: Arc<dyn AnyAnalyzer>,
    /// Number of key columns.
    keys: usize,
    state: Mutex<LatestState>,
}

struct LatestState {
    /// The analyzer's state without the appends that wait.
    piece: Bytes,
    /// Appends that wait to be merged.
    waiting: Vec<FactEnds>,
    waiting_bytes: usize,
    /// The ends of all series, until facts are appended.
    ends: Option<Arc<SeriesEnds>>,
}

impl LiveLatest {
    /// The last rows of a run.
    pub fn new(
        continued: &ContinuedSeries<'_>,
        piece: Bytes,
        finding: &dyn Fn(AnalyzerId) -> Result<Arc<Finding>>,
    ) -> Result<LiveLatest> {
        Ok(LiveLatest {
            chain: continued.chain(finding)?,
            columns: continued.columns.clone(),
            analyzer: continued.request.analyzer.clone(),
            keys: continued.future.keys.len(),
            state: Mutex::new(LatestState {
                piece,
                waiting: Vec::new(),
                waiting_bytes: 0,
                ends: None,
            }),
        })
    }

    /// The columns of facts that it reads.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Bytes of appended facts that wait to be merged.
    pub fn appended_bytes(&self) -> Result<usize> {
        Ok(lock(&self.state)?.waiting_bytes)
    }

    /// Facts as ends of their series; those that a filter takes are not among them.
    pub fn read(&self, facts: &RecordBatch) -> Result<FactEnds> {
        let schema = facts.schema_ref();
        let mut positions = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            positions.push(schema.index_of(column)?);
        }
        let chunk = Chunk::of_source(facts.project(&positions)?, self.chain.source());
        let mut ends = FactEnds::default();
        self.chain
            .run(&[chunk], &mut Carry::default(), &mut |_, input| {
                ends = FactEnds {
                    columns: input.columns.to_vec(),
                    rows: input.rows,
                };
                Ok(())
            })?;
        Ok(ends)
    }

    /// Takes up facts.
    pub fn add(&self, facts: FactEnds) -> Result<()> {
        if facts.rows == 0 {
            return Ok(());
        }
        let mut state = lock(&self.state)?;
        state.ends = None;
        state.waiting_bytes += facts.bytes();
        state.waiting.push(facts);
        if state.waiting.len() >= APPENDS_MAX {
            self.merge_waiting(&mut state)?;
        }
        Ok(())
    }

    /// Merges the appends that wait; returns the state of all rows.
    fn merge_waiting(&self, state: &mut LatestState) -> Result<AnyState> {
        let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch::default());
        let encoded = state_of_piece(&state.piece)?;
        let mut merged = self.analyzer.decode(&mut encoded.as_slice(), &scratch)?;
        if state.waiting.is_empty() {
            return Ok(merged);
        }
        for facts in &state.waiting {
            let input = AnalyzerInput {
                columns: &facts.columns,
                rows: facts.rows,
                keys: None,
            };
            self.analyzer.update(&mut merged, &input)?;
        }
        let encoded = encoded_state(self.analyzer.as_ref(), &mut merged)?;
        state.piece = Bytes::from(piece_of_state(&encoded)?);
        state.waiting.clear();
        state.waiting_bytes = 0;
        Ok(merged)
    }

    /// The ends of all series.
    pub fn ends(&self) -> Result<Arc<SeriesEnds>> {
        let mut state = lock(&self.state)?;
        if let Some(ends) = &state.ends {
            return Ok(ends.clone());
        }
        let rows = self.merge_waiting(&mut state)?;
        let ends = Arc::new(SeriesEnds::of(self.analyzer.finish(rows)?, self.keys)?);
        state.ends = Some(ends.clone());
        Ok(ends)
    }
}

/// The last row of each series, found by keys.
pub(super) struct SeriesEnds {
    /// The finding of `future_rows`: a row for each series.
    pub finding: Finding,
    key_types: Vec<DataType>,
    converter: RowConverter,
    /// The row of each series, by the bytes of its keys.
    rows: HashMap<Box<[u8]>, u32>,
}

impl SeriesEnds {
    fn of(finding: Finding, keys: usize) -> Result<SeriesEnds> {
        let mut columns = Vec::with_capacity(keys);
        for key in 1..=keys {
            columns.push(finding.column(&format!("key{key}"))?.clone());
        }
        let key_types: Vec<DataType> = columns.iter().map(|key| key.data_type().clone()).collect();
        let fields = key_types.iter().map(|key| SortField::new(key.clone()));
        let mut ends = SeriesEnds {
            converter: RowConverter::new(fields.collect())?,
            key_types,
            rows: HashMap::with_capacity(finding.rows()),
            finding,
        };
        let encoded = ends.encoded(&columns, ends.finding.rows())?;
        ends.rows = encoded.into_iter().zip(0..).collect();
        Ok(ends)
    }

    fn encoded(&self, keys: &[ArrayRef], rows: usize) -> Result<Vec<Box<[u8]>>> {
        let mut typed = Vec::with_capacity(keys.len());
        for (key, data_type) in keys.iter().zip(&self.key_types) {
            typed.push(canonical_keys(&cast(key, data_type)?)?);
        }
        row_keys(&self.converter, &typed, rows)
    }

    /// The row of each series in the finding, given key columns of `rows` rows; `None` for those that no row has.
    pub fn rows_of(&self, keys: &[ArrayRef], rows: usize) -> Result<Vec<Option<u32>>> {
        let encoded = self.encoded(keys, rows)?;
        Ok(encoded
            .iter()
            .map(|key| self.rows.get(key).copied())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};

    use super::*;

    #[test]
    fn series_are_found_by_their_keys() {
        let stores: ArrayRef = Arc::new(StringArray::from(vec![None, Some("a"), Some("b")]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(2)]));
        let finding = Finding::of([("key1", stores), ("key2", numbers)]).unwrap();
        let ends = SeriesEnds::of(finding, 2).unwrap();
        let stores: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None, Some("a")]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(2), Some(1), Some(1)]));
        let rows = ends.rows_of(&[stores, numbers], 3).unwrap();
        assert_eq!(rows, [Some(2), Some(0), None]);
    }

    #[test]
    fn rows_without_keys_are_one_series() {
        let times: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let ends = SeriesEnds::of(Finding::of([("time", times)]).unwrap(), 0).unwrap();
        assert_eq!(ends.rows_of(&[], 2).unwrap(), [Some(0), Some(0)]);
    }

    #[test]
    fn states_come_back_from_their_pieces() {
        let piece = piece_of_state(b"state").unwrap();
        assert_eq!(state_of_piece(&piece).unwrap(), b"state");
    }
}
