//! Decoding of a row group within the memory that readers have.
//!
//! As a rule all columns are decoded beside each other, batch by batch: each of them holds a page and a dictionary. Where
//! that is more than the share of readers, some columns are decoded after the other, each time for a range of rows. The
//! pages at the ends of ranges are decompressed more than once then.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{FieldRef, Schema};
use arrow::error::ArrowError;
use forebay_model::Fault;
use forebay_storage::{MemoryShortage, ReadLease};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReader};
use parquet::basic::Type;
use parquet::file::metadata::ColumnChunkMetaData;

use super::group_decoder::build_reader;
use super::int96::NanosecondReader;
use super::page_gate::GatedPages;
use crate::files::nested_types::{find_type, is_shared};
use crate::guard::catch_decode_panic;

/// Bytes of the dictionary and the page that an open column holds, as writers make them.
const OPEN_COLUMN_BYTES: u64 = 2 << 20;

/// Bytes of an open column besides its pages: its codec, the numbers of a dictionary that are decoded at a time, and the
/// values of a batch before they are an array. They count where columns are many and short.
const OPEN_DECODER_BYTES: u64 = 10 << 10;

/// Bytes of a view of a text, besides the text.
const VIEW_BYTES: u64 = 16;

/// The rows of a row group that are read, or of a part of it.
pub(super) struct GroupPages {
    pub(super) pages: GatedPages,
    pub(super) layout: ArrowReaderMetadata,
    /// The stored columns to read, by their numbers in the layout.
    pub(super) leaves: Vec<usize>,
    /// The number of the row group in the layout.
    pub(super) group: usize,
    /// From this row of the row group to before that one.
    pub(super) rows: (u64, u64),
    /// True if these are not all rows of the row group.
    pub(super) is_part: bool,
}

/// Bytes that decoding takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GroupNeed {
    /// Of all columns that are open beside each other.
    open: u64,
    /// Of a decoded row.
    row: u64,
}

/// A row group that is being decoded.
pub(super) enum GroupReader {
    /// All columns beside each other.
    Streamed {
        reader: Box<ParquetRecordBatchReader>,
        /// The times of type INT96 once more.
        nanoseconds: Option<Box<NanosecondReader>>,
        _lease: ReadLease,
    },
    /// Some columns after the other.
    Divided(Box<DividedReader>),
}

/// A reason for which rows are not decoded.
pub(super) enum GroupError {
    Decode(ArrowError),
    Fault(Fault),
    /// Some columns of a range of rows do not fit.
    Shortage(MemoryShortage, Option<String>),
}

impl From<ArrowError> for GroupError {
    fn from(error: ArrowError) -> Self {
        GroupError::Decode(error)
    }
}

impl GroupPages {
    fn columns(&self) -> impl Iterator<Item = &ColumnChunkMetaData> {
        let group = self.layout.metadata().row_group(self.group);
        self.leaves.iter().map(|leaf| group.column(*leaf))
    }

    fn need(&self) -> GroupNeed {
        let rows = self.layout.metadata().row_group(self.group).num_rows();
        let mut decoded = 0u64;
        for (leaf, column) in self.leaves.iter().zip(self.columns()) {
            let bytes = if self.shares_values(*leaf) {
                decoded_bytes(column)
            } else {
                copied_bytes(column)
            };
            decoded = decoded.saturating_add(bytes);
        }
        GroupNeed {
            open: self.columns().map(open_bytes).sum(),
            row: decoded.div_ceil(rows.max(1) as u64).max(1),
        }
    }

    /// True if the rows of a stored column share the values of its dictionary.
    fn shares_values(&self, leaf: usize) -> bool {
        let stored = self.layout.metadata().file_metadata().schema_descr();
        let root = stored.get_column_root_idx(leaf);
        let layout = self.layout.schema();
        let field = layout.fields().get(root);
        field.is_some_and(|field| find_type(field.data_type(), is_shared).is_some())
    }

    /// Decodes some columns of some rows. Columns outside of `leaves` are not read.
    fn open(
        &self,
        leaves: &[usize],
        rows: (u64, u64),
        is_part: bool,
        batch_rows: usize,
    ) -> Result<(ParquetRecordBatchReader, Option<NanosecondReader>), ArrowError> {
        let metadata = self.layout.metadata();
        let range = is_part.then_some(rows);
        let nanoseconds = NanosecondReader::open(
            &self.pages,
            metadata,
            |leaf| leaves.contains(&leaf),
            self.group,
            range,
            batch_rows,
        )?;
        let stored = metadata.file_metadata().schema_descr();
        let mask = ProjectionMask::leaves(stored, leaves.iter().copied());
        let layout = self.layout.clone();
        let reader = build_reader(
            self.pages.clone(),
            layout,
            mask,
            self.group,
            range,
            batch_rows,
        )?;
        Ok((reader, nanoseconds))
    }
}

/// Bytes of a column chunk once all its rows are decoded.
fn decoded_bytes(column: &ColumnChunkMetaData) -> u64 {
    let stored = column.uncompressed_size().max(0) as u64;
    let values = column.num_values().max(0) as u64;
    let width = match column.column_type() {
        Type::BOOLEAN => 1,
        Type::INT32 | Type::FLOAT => 4,
        Type::INT64 | Type::DOUBLE | Type::INT96 => 8,
        Type::FIXED_LEN_BYTE_ARRAY => column.column_descr().type_length().max(0) as u64,
        Type::BYTE_ARRAY => return stored.saturating_add(values.saturating_mul(VIEW_BYTES)),
    };
    stored.max(values.saturating_mul(width))
}

/// Bytes of a column chunk once all its rows are decoded, each with its own value. Values of a dictionary are stored once,
/// and most writers tell how long they are in all rows.
fn copied_bytes(column: &ColumnChunkMetaData) -> u64 {
    let values_bytes = column.unencoded_byte_array_data_bytes().unwrap_or(0);
    let views_bytes = decoded_bytes(column);
    views_bytes.max(values_bytes.max(0) as u64)
}

/// Bytes that a column chunk holds while it is decoded.
fn open_bytes(column: &ColumnChunkMetaData) -> u64 {
    let pages_bytes = column.uncompressed_size().max(0) as u64;
    pages_bytes.min(OPEN_COLUMN_BYTES) + OPEN_DECODER_BYTES
}

impl GroupReader {
    /// Begins to decode, with `batch_rows` rows per batch at most.
    pub(super) fn open(pages: GroupPages, batch_rows: usize) -> Result<GroupReader, GroupError> {
        let memory = pages.pages.gate.memory().clone();
        let need = pages.need();
        let rows = pages.rows.1 - pages.rows.0;
        let fitting = memory.chunk_bytes() / need.row;
        let batch_rows = (batch_rows as u64).min(rows).min(fitting).max(1);
        let streamed = need.open.saturating_add(batch_rows * need.row);
        let Some(lease) = memory.lease(streamed) else {
            return Ok(GroupReader::Divided(Box::new(DividedReader::new(
                pages, need, batch_rows,
            ))));
        };
        let (reader, nanoseconds) = pages.open(
            &pages.leaves,
            pages.rows,
            pages.is_part,
            batch_rows as usize,
        )?;
        Ok(GroupReader::Streamed {
            reader: Box::new(reader),
            nanoseconds: nanoseconds.map(Box::new),
            _lease: lease,
        })
    }

    /// The next batch, whose first row is this one of the file.
    pub(super) fn next(&mut self, first_row: u64) -> Result<Option<RecordBatch>, GroupError> {
        match self {
            GroupReader::Streamed {
                reader,
                nanoseconds,
                ..
            } => {
                let batch = catch_decode_panic(|| reader.next().transpose())?;
                if let (Some(nanoseconds), Some(batch)) = (nanoseconds, &batch) {
                    nanoseconds
                        .check(batch, first_row)
                        .map_err(GroupError::Fault)?;
                }
                Ok(batch)
            }
            GroupReader::Divided(reader) => reader.next(first_row),
        }
    }
}

/// Decodes ranges of rows, some columns after the other.
pub(super) struct DividedReader {
    pages: GroupPages,
    need: GroupNeed,
    /// Stored columns that are open beside each other.
    parts: Vec<Vec<usize>>,
    batch_rows: u64,
    /// The next row of the row group that is to be decoded.
    next_row: u64,
    /// Rows that are decoded and have not been given out.
    decoded: Option<RecordBatch>,
    lease: Option<ReadLease>,
}

impl DividedReader {
    fn new(pages: GroupPages, need: GroupNeed, batch_rows: u64) -> DividedReader {
        let parts = divide_columns(&pages, pages.pages.gate.memory().chunk_bytes());
        DividedReader {
            next_row: pages.rows.0,
            pages,
            need,
            parts,
            batch_rows,
            decoded: None,
            lease: None,
        }
    }

    fn next(&mut self, first_row: u64) -> Result<Option<RecordBatch>, GroupError> {
        if self.decoded.is_none() {
            if self.next_row >= self.pages.rows.1 {
                return Ok(None);
            }
            let rows = self.choose_rows();
            self.decoded = Some(self.decode(rows, first_row)?);
            self.next_row = rows.1;
        }
        let Some(decoded) = self.decoded.take() else {
            return Ok(None);
        };
        let rows = decoded.num_rows().min(self.batch_rows as usize);
        if rows < decoded.num_rows() {
            self.decoded = Some(decoded.slice(rows, decoded.num_rows() - rows));
        }
        Ok(Some(decoded.slice(0, rows)))
    }

    /// The next rows to decode: as many as the share of readers has memory for, and a batch at least.
    fn choose_rows(&mut self) -> (u64, u64) {
        self.lease = None;
        let remaining = self.pages.rows.1 - self.next_row;
        let fitting = self.pages.pages.gate.memory().range_bytes() / self.need.row;
        let mut rows = remaining.min(fitting);
        while rows > self.batch_rows && self.lease.is_none() {
            let bytes = rows.saturating_mul(self.need.row);
            self.lease = self.pages.pages.gate.memory().lease(bytes);
            if self.lease.is_none() {
                rows = rows.div_ceil(2);
            }
        }
        let rows = rows.max(self.batch_rows).min(remaining);
        (self.next_row, self.next_row + rows)
    }

    fn decode(&self, rows: (u64, u64), first_row: u64) -> Result<RecordBatch, GroupError> {
        let count = rows.1 - rows.0;
        let gate = &self.pages.pages.gate;
        let mut columns: Vec<(FieldRef, ArrayRef)> = Vec::new();
        for part in &self.parts {
            let bytes = self.need.row.saturating_mul(count) / self.parts.len() as u64
                + self.need.open / self.parts.len() as u64;
            let _reservation = gate
                .memory()
                .reserve(bytes, true)
                .map_err(|shortage| GroupError::Shortage(shortage, self.column_name(part)))?;
            gate.set_inside(true);
            let decoded = self.decode_part(part, rows, first_row);
            gate.set_inside(false);
            gate.settle();
            let decoded = decoded?;
            let fields = decoded.schema().fields().clone();
            columns.extend(
                fields
                    .iter()
                    .cloned()
                    .zip(decoded.columns().iter().cloned()),
            );
        }
        let (fields, arrays): (Vec<FieldRef>, Vec<ArrayRef>) = columns.into_iter().unzip();
        let options = RecordBatchOptions::new().with_row_count(Some(count as usize));
        let batch =
            RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
        Ok(batch)
    }

    /// Decodes columns that are open beside each other.
    fn decode_part(
        &self,
        leaves: &[usize],
        rows: (u64, u64),
        first_row: u64,
    ) -> Result<RecordBatch, GroupError> {
        let count = (rows.1 - rows.0) as usize;
        let (mut reader, nanoseconds) = self.pages.open(leaves, rows, true, count)?;
        let batch = catch_decode_panic(|| reader.next().transpose())?;
        let batch = batch.filter(|batch| batch.num_rows() == count);
        let batch = batch.ok_or_else(|| {
            ArrowError::ParquetError("the row group has fewer rows than the footer says".to_owned())
        })?;
        if let Some(mut nanoseconds) = nanoseconds {
            nanoseconds
                .check(&batch, first_row)
                .map_err(GroupError::Fault)?;
        }
        Ok(batch)
    }

    /// The column of some stored columns, where it is one.
    fn column_name(&self, leaves: &[usize]) -> Option<String> {
        let stored = self.pages.layout.metadata().file_metadata();
        let root = |leaf: &usize| stored.schema_descr().get_column_root(*leaf).name();
        let first = leaves.first().map(root)?;
        leaves
            .iter()
            .all(|leaf| root(leaf) == first)
            .then(|| first.to_owned())
    }
}

/// Divides stored columns into parts that take about so many bytes while they are open. A column stays whole.
fn divide_columns(pages: &GroupPages, bytes_max: u64) -> Vec<Vec<usize>> {
    let stored = pages.layout.metadata().file_metadata().schema_descr();
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut bytes = 0;
    let mut root = None;
    for (leaf, column) in pages.leaves.iter().zip(pages.columns()) {
        let leaf_root = stored.get_column_root_idx(*leaf);
        let leaf_bytes = open_bytes(column);
        let is_same_column = root == Some(leaf_root);
        match parts.last_mut() {
            Some(part) if is_same_column || bytes + leaf_bytes <= bytes_max => {
                part.push(*leaf);
                bytes += leaf_bytes;
            }
            _ => {
                parts.push(vec![*leaf]);
                bytes = leaf_bytes;
            }
        }
        root = Some(leaf_root);
    }
    parts
}
