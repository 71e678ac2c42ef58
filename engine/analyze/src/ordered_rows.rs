//! Results of all rows in their order, for what learns from row to row.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::slice::Iter;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::{cast, filter, is_not_null};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use forebay_model::{
    AdmittedMemory, Analyzer, AnalyzerInput, Fault, Finding, MemoryRequest, Result, ScratchSpace,
    SpillFile, StateDecoder, StateEncoder, codes, decode_rows,
};
use serde_json::{Value, json};

/// Most bytes of a row, and of what is learned from all rows.
const BYTES_MAX: usize = 1 << 30;

/// The forms of a state: rows, or what was learned from all of them.
const ROWS_FORM: u64 = 0;
const LEARNED_FORM: u64 = 1;

/// Times of the bytes of its rows that a batch takes: the rows, their columns, and a copy of these for the learner.
const BATCH_COPIES: usize = 4;

/// Columns of batches of rows, in their order.
pub type OrderedBatches<'b> = dyn Iterator<Item = Result<Vec<ArrayRef>>> + 'b;

/// Learns from rows batch by batch. The result may depend on their order, and on the size of batches.
pub trait RowLearner: Debug + Send + Sync + 'static {
    /// The name of the analyzer, see [`Analyzer::kind`].
    fn kind(&self) -> &'static str;

    /// The configuration of the analyzer, see [`Analyzer::config`].
    fn config(&self) -> Value;

    /// The logical types of the input columns.
    fn types(&self) -> &[DataType];

    /// Index of a column whose nulls take rows out.
    fn required_column(&self) -> Option<usize> {
        None
    }

    /// Rows of each batch. The last one has more than half as many, and at most one and a half times as many, unless there
    /// are fewer rows in all.
    fn batch_rows(&self) -> usize;

    /// Learns from all rows, on one thread.
    fn learn(&self, batches: &mut OrderedBatches<'_>) -> Result<Vec<u8>>;

    /// The finding of a result.
    fn finding(&self, learned: LearnedRows) -> Result<Finding>;
}

/// The result of a [`RowLearner`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedRows {
    /// Its bytes, in a form of the learner.
    pub bytes: Vec<u8>,
    /// The rows that it was learned from.
    pub rows: u64,
}

/// Analyzer that passes all rows in their order to a learner, in batches of a fixed size.
///
/// Until all rows are there, the state is the rows, in Arrow's row format, which spill. Then the learner reads them once,
/// and the state is what it learned: a committed state is not learned again.
#[derive(Debug, Clone)]
pub struct OrderedRows<L>(pub L);

/// State of [`OrderedRows`].
pub struct OrderedRowsState {
    rows: RowLog,
    learned: Option<LearnedRows>,
}

impl<L: RowLearner> OrderedRows<L> {
    fn converter(&self) -> Result<RowConverter> {
        let types = self.0.types().iter();
        let fields = types.map(|data_type| SortField::new(data_type.clone()));
        Ok(RowConverter::new(fields.collect())?)
    }

    /// Refuses bytes that a state does not hold.
    fn check_size(&self, subject: &str, bytes: usize) -> Result<()> {
        if bytes <= BYTES_MAX {
            return Ok(());
        }
        let message = format!(
            "`{}`: {subject} has {} MiB, and {} are the most",
            self.0.kind(),
            bytes.div_ceil(1 << 20),
            BYTES_MAX >> 20
        );
        Err(Fault::new(codes::LIMIT, message)
            .hint("give it fewer columns or shorter values, or let it learn less"))
    }

    /// The columns in their logical types, without the rows that the learner does not take.
    fn taken_columns(&self, input: &AnalyzerInput<'_>) -> Result<Vec<ArrayRef>> {
        let types = self.0.types();
        if types.len() != input.columns.len() {
            return Err(Fault::internal("a learner of rows has other columns"));
        }
        let mut columns = Vec::with_capacity(types.len());
        for (column, data_type) in input.columns.iter().zip(types) {
            if column.data_type() == data_type {
                columns.push(column.clone());
            } else {
                columns.push(cast(column, data_type)?);
            }
        }
        let required = self.0.required_column();
        let Some(required) = required.and_then(|index| columns.get(index)) else {
            return Ok(columns);
        };
        if required.null_count() == 0 {
            return Ok(columns);
        }
        let has_value = is_not_null(required)?;
        let mut taken_columns = Vec::with_capacity(columns.len());
        for column in &columns {
            taken_columns.push(filter(column, &has_value)?);
        }
        Ok(taken_columns)
    }

    /// Learns from all rows.
    fn learn(&self, rows: &RowLog) -> Result<LearnedRows> {
        let converter = self.converter()?;
        let batch_rows = self.0.batch_rows() as u64;
        let mut batches = LoggedBatches {
            converter: &converter,
            rows: rows.reader(),
            rows_left: rows.count,
            batch_rows,
            memory: BatchMemory::for_batches_of(rows, batch_rows)?,
        };
        let bytes = self.0.learn(&mut batches)?;
        drop(batches);
        self.check_size("what it learned", bytes.len())?;
        // The finding, and the copies of those that use it.
        rows.scratch.admit(MemoryRequest {
            now: bytes.len(),
            later: bytes.len().saturating_mul(2),
        })?;
        Ok(LearnedRows {
            bytes,
            rows: rows.count,
        })
    }
}

impl<L: RowLearner> Analyzer for OrderedRows<L> {
    type State = OrderedRowsState;

    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn config(&self) -> Value {
        let types = self.0.types().iter().map(DataType::to_string);
        json!({
            "learner": self.0.config(),
            "types": types.collect::<Vec<_>>(),
            "batch_rows": self.0.batch_rows(),
        })
    }

    fn order_free(&self) -> bool {
        false
    }

    fn commits_parts(&self) -> bool {
        false
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<OrderedRowsState> {
        Ok(OrderedRowsState {
            rows: RowLog::new(scratch),
            learned: None,
        })
    }

    fn update(&self, state: &mut OrderedRowsState, input: &AnalyzerInput<'_>) -> Result<()> {
        if state.learned.is_some() {
            return Err(late_rows());
        }
        let columns = self.taken_columns(input)?;
        let rows = self.converter()?.convert_columns(&columns)?;
        for row in &rows {
            self.check_size("a row", row.data().len())?;
            state.rows.push(row.data())?;
        }
        Ok(())
    }

    fn merge(&self, state: &mut OrderedRowsState, later_state: OrderedRowsState) -> Result<()> {
        if state.learned.is_some() || later_state.learned.is_some() {
            return Err(late_rows());
        }
        state.rows.append(later_state.rows)
    }

    fn encode(&self, state: &mut OrderedRowsState, out: &mut dyn Write) -> Result<()> {
        let mut encoder = StateEncoder(out);
        match &state.learned {
            Some(learned) => {
                encoder.varint(LEARNED_FORM)?;
                encoder.varint(learned.rows)?;
                encoder.bytes(&learned.bytes)
            }
            None => {
                encoder.varint(ROWS_FORM)?;
                encoder.varint(state.rows.count)?;
                state.rows.write(encoder.0)
            }
        }
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<OrderedRowsState> {
        let mut decoder = StateDecoder(input);
        let mut state = Analyzer::zero(self, scratch)?;
        match decoder.varint()? {
            ROWS_FORM => {
                let mut row = Vec::new();
                for _ in 0..decoder.count()? {
                    decoder.bytes_into(&mut row, BYTES_MAX)?;
                    state.rows.push(&row)?;
                }
            }
            LEARNED_FORM => {
                let rows = decoder.count()?;
                let bytes = decoder.bytes(BYTES_MAX)?;
                state.learned = Some(LearnedRows { bytes, rows });
            }
            form => {
                let message = format!("a state of rows has the unknown form {form}");
                return Err(Fault::new(codes::CORRUPT, message));
            }
        }
        Ok(state)
    }

    fn spill(&self, state: &mut OrderedRowsState) -> Result<()> {
        state.rows.spill()
    }

    fn condense(&self, state: &mut OrderedRowsState) -> Result<()> {
        if state.learned.is_none() {
            state.learned = Some(self.learn(&state.rows)?);
            state.rows = RowLog::new(&state.rows.scratch);
        }
        Ok(())
    }

    fn finish(&self, state: OrderedRowsState) -> Result<Finding> {
        let learned = match state.learned {
            Some(learned) => learned,
            None => self.learn(&state.rows)?,
        };
        self.0.finding(learned)
    }

    fn size_bytes(&self, state: &OrderedRowsState) -> usize {
        let learned = state.learned.as_ref();
        size_of::<OrderedRowsState>()
            + state.rows.size_bytes()
            + learned.map_or(0, |learned| learned.bytes.capacity())
    }
}

/// The fault of rows that come when all rows were learned from.
fn late_rows() -> Fault {
    Fault::internal("rows come after a learner has learned from all of them")
}

/// Rows as byte strings, in their order. Those that do not fit the budget are in temporary files.
struct RowLog {
    scratch: Arc<dyn ScratchSpace>,
    files: Vec<SpilledRows>,
    /// The rows behind those of the files, each with its length.
    tail: Vec<u8>,
    tail_rows: u64,
    /// Rows in all.
    count: u64,
}

struct SpilledRows {
    file: Arc<dyn SpillFile>,
    rows: u64,
}

impl RowLog {
    fn new(scratch: &Arc<dyn ScratchSpace>) -> RowLog {
        RowLog {
            scratch: scratch.clone(),
            files: Vec::new(),
            tail: Vec::new(),
            tail_rows: 0,
            count: 0,
        }
    }

    fn push(&mut self, row: &[u8]) -> Result<()> {
        StateEncoder(&mut self.tail).bytes(row)?;
        self.tail_rows += 1;
        self.count += 1;
        self.spill_surplus()
    }

    /// Adds rows that follow these.
    fn append(&mut self, log: RowLog) -> Result<()> {
        self.count += log.count;
        if log.files.is_empty() {
            self.tail.extend_from_slice(&log.tail);
            self.tail_rows += log.tail_rows;
            return self.spill_surplus();
        }
        self.spill()?;
        self.files.extend(log.files);
        self.tail = log.tail;
        self.tail_rows = log.tail_rows;
        Ok(())
    }

    /// Spills what would soon be more than the budget: the buffer doubles when it grows.
    fn spill_surplus(&mut self) -> Result<()> {
        if self.tail.len() < self.scratch.budget_bytes() / 2 {
            return Ok(());
        }
        self.spill()
    }

    fn spill(&mut self) -> Result<()> {
        if self.tail.is_empty() {
            return Ok(());
        }
        let mut writer = self.scratch.create()?;
        writer
            .write_all(&self.tail)
            .map_err(|error| Fault::disk("memory cannot be spilled", error))?;
        self.files.push(SpilledRows {
            file: writer.finish()?,
            rows: self.tail_rows,
        });
        self.tail = Vec::new();
        self.tail_rows = 0;
        Ok(())
    }

    /// Writes the rows, each with its length.
    fn write(&self, out: &mut dyn Write) -> Result<()> {
        for spilled in &self.files {
            std::io::copy(&mut spilled.file.read()?, out)
                .map_err(|error| Fault::disk("spilled rows cannot be copied", error))?;
        }
        StateEncoder(out).raw(&self.tail)
    }

    fn reader(&self) -> RowReader<'_> {
        RowReader {
            files: self.files.iter(),
            tail: Some((&self.tail, self.tail_rows)),
            piece: Box::new(std::io::empty()),
            piece_rows: 0,
        }
    }

    /// Bytes of the rows with their lengths.
    fn bytes(&self) -> u64 {
        let spilled: u64 = self.files.iter().map(|spilled| spilled.file.bytes()).sum();
        spilled + self.tail.len() as u64
    }

    fn size_bytes(&self) -> usize {
        self.tail.capacity() + self.files.capacity() * size_of::<SpilledRows>()
    }
}

/// Reads the rows of a log.
struct RowReader<'l> {
    files: Iter<'l, SpilledRows>,
    tail: Option<(&'l [u8], u64)>,
    /// The file or the buffer that is read now.
    piece: Box<dyn Read + 'l>,
    piece_rows: u64,
}

impl RowReader<'_> {
    /// Reads the next row; false behind the last one.
    fn read(&mut self, row: &mut Vec<u8>) -> Result<bool> {
        while self.piece_rows == 0 {
            if let Some(spilled) = self.files.next() {
                self.piece = spilled.file.read()?;
                self.piece_rows = spilled.rows;
            } else if let Some((tail, rows)) = self.tail.take() {
                self.piece = Box::new(tail);
                self.piece_rows = rows;
            } else {
                return Ok(false);
            }
        }
        StateDecoder(&mut self.piece).bytes_into(row, BYTES_MAX)?;
        self.piece_rows -= 1;
        Ok(true)
    }
}

/// The rows of a log as columns of batches.
struct LoggedBatches<'l> {
    converter: &'l RowConverter,
    rows: RowReader<'l>,
    rows_left: u64,
    batch_rows: u64,
    memory: BatchMemory<'l>,
}

/// Memory for the largest batch so far. It stays reserved for the batches that follow.
struct BatchMemory<'l> {
    scratch: &'l dyn ScratchSpace,
    /// Bytes of all rows, which no batch exceeds.
    log_bytes: usize,
    /// Bytes of rows that a batch may have.
    batch_bytes: usize,
    admitted: AdmittedMemory,
}

impl<'l> BatchMemory<'l> {
    /// Reserves memory for batches whose rows are as long as all rows are on average.
    fn for_batches_of(rows: &'l RowLog, batch_rows: u64) -> Result<BatchMemory<'l>> {
        let row_bytes = rows.bytes().checked_div(rows.count).unwrap_or(0);
        let rows_max = rows.count.min(last_batch_rows_max(batch_rows));
        let batch_bytes = row_bytes.saturating_mul(rows_max);
        let mut memory = BatchMemory {
            scratch: rows.scratch.as_ref(),
            log_bytes: usize::try_from(rows.bytes()).unwrap_or(usize::MAX),
            batch_bytes: 0,
            admitted: AdmittedMemory::default(),
        };
        memory.grow(usize::try_from(batch_bytes).unwrap_or(usize::MAX), 0)?;
        Ok(memory)
    }

    /// Asks for more where a batch of some bytes takes another row.
    fn admit_row(&mut self, bytes: usize, row_bytes: usize) -> Result<()> {
        let needed_bytes = bytes.saturating_add(row_bytes);
        if needed_bytes <= self.batch_bytes {
            return Ok(());
        }
        let doubled = self.batch_bytes.saturating_mul(2).min(self.log_bytes);
        self.grow(doubled.max(needed_bytes), bytes)
    }

    /// Reserves memory for a batch of which some bytes are resident.
    fn grow(&mut self, batch_bytes: usize, resident_bytes: usize) -> Result<()> {
        let request = MemoryRequest {
            now: batch_bytes
                .saturating_mul(BATCH_COPIES)
                .saturating_sub(resident_bytes),
            later: 0,
        };
        let scratch = self.scratch;
        self.admitted.renew(|| scratch.admit(request))?;
        self.batch_bytes = batch_bytes;
        Ok(())
    }
}

/// Most rows of the last batch. A few rows alone would be too few for some learners.
fn last_batch_rows_max(batch_rows: u64) -> u64 {
    batch_rows.saturating_add(batch_rows / 2)
}

impl LoggedBatches<'_> {
    /// The next batch; `None` behind the last one.
    fn next_batch(&mut self) -> Result<Option<Vec<ArrayRef>>> {
        let mut row_count = self.batch_rows;
        if self.rows_left <= last_batch_rows_max(self.batch_rows) {
            row_count = self.rows_left;
        }
        let mut bytes = Vec::new();
        let mut ends: Vec<usize> = Vec::new();
        let mut row = Vec::new();
        for _ in 0..row_count {
            if !self.rows.read(&mut row)? {
                return Err(Fault::internal("rows of a learner were lost"));
            }
            self.memory.admit_row(bytes.len(), row.len())?;
            bytes.extend_from_slice(&row);
            ends.push(bytes.len());
        }
        self.rows_left -= row_count;
        if ends.is_empty() {
            return Ok(None);
        }
        let begins = std::iter::once(0).chain(ends.iter().copied());
        let rows = begins.zip(&ends).map(|(begin, end)| &bytes[begin..*end]);
        Ok(Some(decode_rows(self.converter, rows)?))
    }
}

impl Iterator for LoggedBatches<'_> {
    type Item = Result<Vec<ArrayRef>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}
