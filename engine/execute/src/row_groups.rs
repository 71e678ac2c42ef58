//! Row groups: rows collected by partition until a group is full, sorted where the sink asks for it, and encoded.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{SortColumn, cast, concat_batches, lexsort_to_indices};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_model::{
    Fault, Result, batch_of_rows, codes, encode_path_part, plain_batch, take_batch,
};
use forebay_storage::{EncodedBatch, FileLayout};

/// Encoded rows of one partition.
pub struct EncodedRowGroup {
    pub partition: String,
    pub encoded: EncodedBatch,
    /// Whether the file ends after them (sorted files hold one group each).
    pub ends_file: bool,
}

/// Rows that are encoded together.
pub struct RowGroup {
    partition: String,
    pub batches: Vec<RecordBatch>,
    ends_file: bool,
}

impl RowGroup {
    /// A group with its rows in the order in which they are written.
    fn new(
        layout: &FileLayout,
        schema: &SchemaRef,
        partition: String,
        batches: Vec<RecordBatch>,
    ) -> Result<RowGroup> {
        let ends_file = !layout.sort_by.is_empty();
        let batches = if ends_file {
            vec![sort(schema, &batches, &layout.sort_by)?]
        } else {
            batches
        };
        Ok(RowGroup {
            partition,
            batches,
            ends_file,
        })
    }

    /// The group after encoding.
    pub fn encoded(&self, encoded: EncodedBatch) -> EncodedRowGroup {
        EncodedRowGroup {
            partition: self.partition.clone(),
            encoded,
            ends_file: self.ends_file,
        }
    }
}

/// The folder value that stands for null, by Hive's convention.
const NULL_PARTITION: &str = "__HIVE_DEFAULT_PARTITION__";

/// Bytes of a folder's name at most: the limit of file systems.
const FOLDER_BYTES_MAX: usize = 255;

/// A column by whose values rows are divided among folders.
struct PartitionColumn<'b> {
    name: &'b str,
    folder: String,
    values: &'b ArrayRef,
    text: ArrayFormatter<'b>,
}

impl PartitionColumn<'_> {
    /// The folder of a row. Refuses values that no folder can hold.
    fn folder_of(&self, row: usize) -> Result<String> {
        let value = self.text.value(row).to_string();
        if value == NULL_PARTITION && self.is_value(row) {
            let message = format!("`{}` holds the text `{NULL_PARTITION}`", self.name);
            let hint = "as the name of a folder it stands for null: replace the text in a step before, or \
                        leave the column out of `partition_by`";
            return Err(Fault::new(codes::BAD_ROW, message)
                .column(self.name)
                .hint(hint));
        }
        let folder = format!("{}={}", self.folder, encode_path_part(&value));
        if folder.len() > FOLDER_BYTES_MAX {
            let start: String = value.chars().take(40).collect();
            let message = format!(
                "the value `{start}...` of `{}` gives a folder's name of {} bytes, and {FOLDER_BYTES_MAX} is the most",
                self.name,
                folder.len()
            );
            let hint = "partition by a shorter column, such as a hash of this one";
            return Err(Fault::new(codes::BAD_ROW, message)
                .column(self.name)
                .hint(hint));
        }
        Ok(folder)
    }

    fn is_value(&self, row: usize) -> bool {
        let nulls = self.values.logical_nulls();
        nulls.is_none_or(|nulls| nulls.is_valid(row))
    }
}

/// Collects rows into row groups, by partition.
pub struct RowGroupBuilder<'a> {
    layout: &'a FileLayout,
    /// The schema of all columns.
    pub schema: &'a SchemaRef,
    /// The schema without partition columns.
    pub file_schema: SchemaRef,
    file_columns: Vec<usize>,
    partition_columns: Vec<usize>,
    open: BTreeMap<String, OpenRowGroup>,
    bytes_max: usize,
}

#[derive(Default)]
struct OpenRowGroup {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl<'a> RowGroupBuilder<'a> {
    pub fn new(schema: &'a SchemaRef, layout: &'a FileLayout, bytes_max: usize) -> Result<Self> {
        let mut partition_columns = Vec::new();
        for name in &layout.partition_by {
            partition_columns.push(schema.index_of(name).map_err(|_| {
                Fault::new(
                    codes::UNKNOWN_COLUMN,
                    format!("there is no column `{name}` to partition by"),
                )
            })?);
        }
        for name in &layout.sort_by {
            schema.index_of(name).map_err(|_| {
                Fault::new(
                    codes::UNKNOWN_COLUMN,
                    format!("there is no column `{name}` to sort by"),
                )
            })?;
        }
        let file_columns: Vec<usize> = (0..schema.fields().len())
            .filter(|column| !partition_columns.contains(column))
            .collect();
        let file_schema = Arc::new(schema.project(&file_columns)?);
        Ok(RowGroupBuilder {
            layout,
            schema,
            file_schema,
            file_columns,
            partition_columns,
            open: BTreeMap::new(),
            bytes_max,
        })
    }

    /// Adds a batch and returns the groups that are full. Groups are cut by rows, so that they do not depend on the
    /// sizes of batches.
    pub fn push(&mut self, batch: RecordBatch) -> Result<Vec<RowGroup>> {
        let mut ready = Vec::new();
        for (partition, mut batch) in self.split(batch)? {
            loop {
                let open = self.open.entry(partition.clone()).or_default();
                let room = self.layout.group_rows_max - open.rows;
                let taken = batch.slice(0, room.min(batch.num_rows()));
                let rest = batch.slice(taken.num_rows(), batch.num_rows() - taken.num_rows());
                open.rows += taken.num_rows();
                open.bytes += added_bytes(&taken, open.batches.last()) * taken.num_rows()
                    / batch.num_rows().max(1);
                open.batches.push(taken);
                if open.rows == self.layout.group_rows_max || open.bytes > self.bytes_max {
                    let full = std::mem::take(open);
                    ready.push(RowGroup::new(
                        self.layout,
                        &self.file_schema,
                        partition.clone(),
                        full.batches,
                    )?);
                }
                if rest.num_rows() == 0 {
                    break;
                }
                batch = rest;
            }
        }
        Ok(ready)
    }

    /// The groups that are not full.
    pub fn rest(self) -> impl Iterator<Item = Result<RowGroup>> {
        let RowGroupBuilder {
            open,
            layout,
            file_schema,
            ..
        } = self;
        let rest = open.into_iter().filter(|(_, open)| open.rows > 0);
        rest.map(move |(partition, open)| {
            RowGroup::new(layout, &file_schema, partition, open.batches)
        })
    }

    /// The rows of each partition, in order.
    fn split(&self, batch: RecordBatch) -> Result<Vec<(String, RecordBatch)>> {
        if batch.num_rows() == 0 {
            return Ok(Vec::new());
        }
        if self.partition_columns.is_empty() {
            return Ok(vec![(String::new(), batch)]);
        }
        let options = FormatOptions::default().with_null(NULL_PARTITION);
        let mut rows: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let formatters = self
            .partition_columns
            .iter()
            .map(|column| {
                let name = batch.schema_ref().field(*column).name();
                Ok(PartitionColumn {
                    name,
                    folder: encode_path_part(name),
                    values: batch.column(*column),
                    text: ArrayFormatter::try_new(batch.column(*column), &options)?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            let mut folders = Vec::with_capacity(formatters.len());
            for column in &formatters {
                folders.push(column.folder_of(row)?);
            }
            rows.entry(folders.join("/")).or_default().push(row as u32);
        }
        let file_batch = batch.project(&self.file_columns)?;
        rows.into_iter()
            .map(|(partition, rows)| {
                Ok((
                    partition,
                    take_batch(&file_batch, &UInt32Array::from(rows))?,
                ))
            })
            .collect()
    }
}

/// A batch of columns in the layouts that sinks write: plain arrays, or dictionaries of strings.
pub fn written_batch(schema: &SchemaRef, columns: &[ArrayRef], rows: usize) -> Result<RecordBatch> {
    let keeps = |of: &DataType, field: &Field| match of {
        DataType::Dictionary(_, value) => {
            **value == DataType::Utf8 && *field.data_type() == DataType::Utf8
        }
        of => of == field.data_type(),
    };
    let (mut fields, mut written) = (Vec::new(), Vec::new());
    for (column, field) in columns.iter().zip(schema.fields()) {
        let column = if keeps(column.data_type(), field) {
            column.clone()
        } else {
            cast(column, field.data_type())?
        };
        fields.push(
            field
                .as_ref()
                .clone()
                .with_data_type(column.data_type().clone()),
        );
        written.push(column);
    }
    batch_of_rows(Arc::new(Schema::new(fields)), written, rows)
}

/// Bytes that a batch adds to the batch before it; a dictionary that both share counts once.
fn added_bytes(batch: &RecordBatch, before: Option<&RecordBatch>) -> usize {
    let columns = batch.columns().iter().enumerate().map(|(at, column)| {
        let Some(keyed) = column.as_any_dictionary_opt() else {
            return bytes_of(column);
        };
        let known = before.and_then(|before| before.column(at).as_any_dictionary_opt());
        let is_known = known.is_some_and(|known| Arc::ptr_eq(known.values(), keyed.values()));
        let values = if is_known {
            0
        } else {
            keyed.values().get_array_memory_size()
        };
        bytes_of(keyed.keys()) + values
    });
    columns.sum()
}

/// Bytes of a column, without the rest of an array that it is a slice of.
fn bytes_of(column: &dyn Array) -> usize {
    column
        .to_data()
        .get_slice_memory_size()
        .unwrap_or_else(|_| column.get_array_memory_size())
}

fn sort(schema: &SchemaRef, batches: &[RecordBatch], by: &[String]) -> Result<RecordBatch> {
    let plain = batches
        .iter()
        .map(|batch| plain_batch(schema, batch))
        .collect::<Result<Vec<_>>>()?;
    let all = concat_batches(schema, &plain)?;
    let mut columns = Vec::new();
    for name in by {
        let values = all
            .column_by_name(name)
            .cloned()
            .ok_or_else(|| Fault::internal("a sort column is missing"))?;
        columns.push(SortColumn {
            values,
            options: None,
        });
    }
    // Ties keep their order: the position is the last key.
    let positions: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..all.num_rows() as u32));
    columns.push(SortColumn {
        values: positions,
        options: None,
    });
    let order = lexsort_to_indices(&columns, None)?;
    take_batch(&all, &order)
}
