//! Row groups: rows collected by partition until a group is full, sorted if the sink requires it,
//! and encoded.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, concat, concat_batches};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_contract::{EncodedBatch, FileLayout};
use forebay_model::{
    Fault, Result, batch_of_rows, codes, column_bytes, encode_folder_value, encode_path_part,
    plain_bytes, take_batch,
};
use forebay_storage::MemoryBudget;
use hashbrown::HashMap;

use crate::row_order::row_order;

/// Encoded rows of one partition.
pub struct EncodedRowGroup {
    pub partition: String,
    pub encoded: EncodedBatch,
    /// True if the file ends after them (sorted files hold one group each).
    pub ends_file: bool,
}

/// Rows that are encoded together.
pub struct RowGroup {
    pub partition: String,
    pub batches: Vec<RecordBatch>,
    ends_file: bool,
}

/// Rows of a partition that do not fill a group, in the order in which they were read.
pub struct OpenRows {
    pub partition: String,
    pub batches: Vec<RecordBatch>,
}

impl OpenRows {
    /// Bytes of these rows with all texts as plain values.
    pub fn plain_bytes(&self) -> usize {
        self.batches.iter().map(batch_plain_bytes).sum()
    }

    /// The group of these rows alone.
    pub fn closed(self, layout: &FileLayout, schema: &SchemaRef) -> Result<RowGroup> {
        RowGroup::new(layout, schema, self.partition, self.batches)
    }
}

impl RowGroup {
    /// A group with its rows in the order in which they are written.
    pub fn new(
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

/// Bytes of an open group besides its rows: the arrays of its few batches, and the name of its partition.
const OPEN_GROUP_BYTES: usize = 2 << 10;

/// Shares of rows that the open groups of all partitions may take together.
const OPEN_SHARES: usize = 2;

/// Batches below this number of rows are joined with others of the same partition, unless these are much larger.
const SMALL_BATCH_ROWS: usize = 1024;

/// Batches below this number of rows are always joined.
const TINY_BATCH_ROWS: usize = 64;

/// Groups of at least so many bytes are closed when memory is short.
const CLOSED_BYTES_MIN: usize = 1 << 20;

/// Growth of open groups after which the memory of the process is looked at.
const ADMITTED_BYTES: usize = 4 << 20;

/// The folder value that stands for null, by Hive's convention.
const NULL_PARTITION: &str = "__HIVE_DEFAULT_PARTITION__";

/// Bytes of a folder's name at most: the limit of file systems.
pub const FOLDER_BYTES_MAX: usize = 255;

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
            let hint = "as the name of a folder it stands for null: replace the text in a step \
                        before, or leave the column out of `partition_by`";
            return Err(Fault::new(codes::BAD_ROW, message)
                .column(self.name)
                .hint(hint));
        }
        let folder = format!("{}={}", self.folder, encode_folder_value(&value));
        if folder.len() > FOLDER_BYTES_MAX {
            let start: String = value.chars().take(40).collect();
            let message = format!(
                "the value `{start}...` of `{}` gives a folder's name of {} bytes, and \
                 {FOLDER_BYTES_MAX} is the most",
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

    /// The folders of all rows. The text of a value is made once.
    fn folders(&self) -> Result<PartitionFolders> {
        let field = SortField::new(self.values.data_type().clone());
        let converter = RowConverter::new(vec![field])?;
        let values = converter.convert_columns(std::slice::from_ref(self.values))?;
        let mut numbers: HashMap<&[u8], u32> = HashMap::new();
        let mut folders = PartitionFolders {
            names: Vec::new(),
            of_rows: Vec::with_capacity(values.num_rows()),
        };
        for row in 0..values.num_rows() {
            let value = values.row(row);
            let number = match numbers.get(value.data()) {
                Some(number) => *number,
                None => {
                    let number = folders.names.len() as u32;
                    folders.names.push(self.folder_of(row)?);
                    numbers.insert(value.data(), number);
                    number
                }
            };
            folders.of_rows.push(number);
        }
        Ok(folders)
    }

    fn is_value(&self, row: usize) -> bool {
        let nulls = self.values.logical_nulls();
        nulls.is_none_or(|nulls| nulls.is_valid(row))
    }
}

/// The folders of a column's values.
struct PartitionFolders {
    /// The folder of each distinct value.
    names: Vec<String>,
    /// The number of each row's folder.
    of_rows: Vec<u32>,
}

/// The rows of each partition, in order. A partition is named by the folders of all columns.
fn rows_by_partition(columns: &[PartitionFolders], rows: usize) -> BTreeMap<String, Vec<u32>> {
    let mut by_numbers: HashMap<Vec<u32>, Vec<u32>> = HashMap::new();
    let mut numbers = Vec::with_capacity(columns.len());
    for row in 0..rows {
        numbers.clear();
        numbers.extend(columns.iter().map(|column| column.of_rows[row]));
        match by_numbers.get_mut(&numbers) {
            Some(partition_rows) => partition_rows.push(row as u32),
            None => {
                by_numbers.insert(numbers.clone(), vec![row as u32]);
            }
        }
    }
    let mut by_name: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (numbers, partition_rows) in by_numbers {
        let mut folders = Vec::with_capacity(columns.len());
        for (column, number) in columns.iter().zip(numbers) {
            folders.push(column.names[number as usize].as_str());
        }
        let named_rows = by_name.entry(folders.join("/")).or_default();
        let is_first = named_rows.is_empty();
        named_rows.extend(partition_rows);
        // Some values differ and have one text, such as those that are no number.
        if !is_first {
            named_rows.sort_unstable();
        }
    }
    by_name
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
    limits: RowGroupLimits,
    /// Bytes of all open groups.
    open_bytes: usize,
    /// Bytes of open groups for which there was memory when they were last looked at.
    admitted_bytes: usize,
}

/// Bytes that rows take until they are encoded.
#[derive(Debug, Clone, Copy)]
pub struct RowGroupLimits {
    pub memory: MemoryBudget,
    /// Of one group.
    pub group_bytes_max: usize,
    /// Of the open groups of all partitions.
    pub open_bytes_max: usize,
}

impl RowGroupLimits {
    /// The limits of one of the threads that build groups beside each other.
    pub fn of_thread(memory: MemoryBudget, threads: usize, group_bytes_max: usize) -> Self {
        RowGroupLimits {
            memory,
            group_bytes_max,
            open_bytes_max: memory.rows_bytes() * OPEN_SHARES / threads.max(1),
        }
    }
}

#[derive(Default)]
struct OpenRowGroup {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl OpenRowGroup {
    /// Adds a batch. Small ones are joined with those before: 20,000 partitions make batches of a row each, which take
    /// a hundred times the memory of their rows.
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let mut rows = batch.num_rows();
        let mut joined = vec![batch];
        while let Some(last) = self.batches.last()
            && last.schema_ref() == joined[0].schema_ref()
            && (last.num_rows() < TINY_BATCH_ROWS
                || last.num_rows() < SMALL_BATCH_ROWS && last.num_rows() <= 2 * rows)
        {
            rows += last.num_rows();
            joined.extend(self.batches.pop());
        }
        joined.reverse();
        let batch = match joined.as_slice() {
            [batch] => batch.clone(),
            several => concat_batches(several[0].schema_ref(), several)?,
        };
        self.batches.push(batch);
        Ok(())
    }
}

impl<'a> RowGroupBuilder<'a> {
    pub fn new(
        schema: &'a SchemaRef,
        layout: &'a FileLayout,
        limits: RowGroupLimits,
    ) -> Result<Self> {
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
            limits,
            open_bytes: 0,
            admitted_bytes: 0,
        })
    }

    /// Adds a batch and returns the groups that are full. Groups are cut by rows, so that they do not depend on the
    /// sizes of batches. Where many partitions are open, the largest groups are cut when memory is short.
    pub fn push(&mut self, batch: RecordBatch) -> Result<Vec<RowGroup>> {
        let mut ready = Vec::new();
        for (partition, mut batch) in self.split(batch)? {
            loop {
                let open = self.open.entry(partition.clone()).or_default();
                let mut room = self.layout.group_rows_max - open.rows;
                if self.layout.is_plain {
                    room = room.min(plain_rows_within(&batch, self.limits.group_bytes_max));
                }
                let head = batch.slice(0, room.min(batch.num_rows()));
                let tail = batch.slice(head.num_rows(), batch.num_rows() - head.num_rows());
                let added = if self.layout.is_plain {
                    batch_plain_bytes(&head)
                } else {
                    added_bytes(&head, open.batches.last()) * head.num_rows()
                        / batch.num_rows().max(1)
                };
                open.rows += head.num_rows();
                open.bytes += added;
                self.open_bytes += added;
                if self.partition_columns.is_empty() {
                    open.batches.push(head);
                } else {
                    open.push(head)?;
                }
                if open.rows == self.layout.group_rows_max
                    || open.bytes > self.limits.group_bytes_max
                {
                    let full = std::mem::take(open);
                    self.open_bytes -= full.bytes;
                    ready.push(self.close(partition.clone(), full)?);
                }
                if tail.num_rows() == 0 {
                    break;
                }
                batch = tail;
            }
        }
        self.close_largest(&mut ready)?;
        Ok(ready)
    }

    fn close(&self, partition: String, group: OpenRowGroup) -> Result<RowGroup> {
        RowGroup::new(self.layout, &self.file_schema, partition, group.batches)
    }

    /// Closes large groups if all open ones together take too much. Groups of few rows stay open: each would be a file.
    fn close_largest(&mut self, ready: &mut Vec<RowGroup>) -> Result<()> {
        if self.partition_columns.is_empty() {
            return Ok(());
        }
        if self.open_bytes > self.limits.open_bytes_max {
            let mut large: Vec<(usize, String)> = Vec::new();
            for (partition, open) in &self.open {
                if open.bytes >= CLOSED_BYTES_MIN {
                    large.push((open.bytes, partition.clone()));
                }
            }
            large.sort_unstable_by(|a, b| b.cmp(a));
            for (_, partition) in large {
                if self.open_bytes <= self.limits.open_bytes_max / 2 {
                    break;
                }
                if let Some(group) = self.open.remove(&partition) {
                    self.open_bytes -= group.bytes;
                    ready.push(self.close(partition, group)?);
                }
            }
        }
        self.admit_open()
    }

    /// Fails if the rows of many partitions outgrow the memory.
    fn admit_open(&mut self) -> Result<()> {
        let memory_bytes = self.open_bytes + self.open.len() * OPEN_GROUP_BYTES;
        if memory_bytes < self.admitted_bytes + ADMITTED_BYTES {
            return Ok(());
        }
        self.admitted_bytes = memory_bytes;
        match self.limits.memory.shortage(ADMITTED_BYTES as u64) {
            None => Ok(()),
            Some(shortage) => {
                let rows = format!("collecting the rows of {} partitions", self.open.len());
                let hint = format!(
                    "partition by fewer values, sort the rows by them before, or give {}",
                    shortage.sufficient_option()
                );
                Err(shortage.fault(&rows).hint(hint))
            }
        }
    }

    /// The groups that are not full.
    pub fn rest(self) -> impl Iterator<Item = Result<RowGroup>> {
        let layout = self.layout;
        let file_schema = self.file_schema.clone();
        self.open_rows()
            .map(move |open| open.closed(layout, &file_schema))
    }

    /// The rows of the groups that are not full.
    pub fn open_rows(self) -> impl Iterator<Item = OpenRows> {
        let open = self.open.into_iter().filter(|(_, open)| open.rows > 0);
        open.map(|(partition, open)| OpenRows {
            partition,
            batches: open.batches,
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
        let mut columns = Vec::with_capacity(self.partition_columns.len());
        for column in &self.partition_columns {
            let name = batch.schema_ref().field(*column).name();
            let values = batch.column(*column);
            let column = PartitionColumn {
                name,
                folder: encode_path_part(name),
                values,
                text: ArrayFormatter::try_new(values, &options)?,
            };
            columns.push(column.folders()?);
        }
        let rows = rows_by_partition(&columns, batch.num_rows());
        let file_batch = batch.project(&self.file_columns)?;
        rows.into_iter()
            .map(|(partition, rows)| {
                let rows = take_batch(&file_batch, &UInt32Array::from(rows))?;
                Ok((partition, with_own_texts(rows)?))
            })
            .collect()
    }
}

/// Bytes of a batch with all texts as plain values.
fn batch_plain_bytes(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    columns.map(|column| plain_bytes(column)).sum()
}

/// Number of rows, at least one, of which the plain values take so many bytes. A dictionary may stand for thousands of
/// times its bytes.
fn plain_rows_within(batch: &RecordBatch, bytes_max: usize) -> usize {
    let bytes = batch_plain_bytes(batch);
    if bytes <= bytes_max {
        return batch.num_rows();
    }
    let row_bytes = bytes / batch.num_rows().max(1);
    (bytes_max / row_bytes.max(1)).max(1)
}

/// The rows of a partition without dictionaries that are much larger than they: each of 20,000 partitions would count
/// the texts of all rows of its batch, and none would be found to have few rows.
fn with_own_texts(rows: RecordBatch) -> Result<RecordBatch> {
    let mut fields = Vec::with_capacity(rows.num_columns());
    let mut columns = Vec::with_capacity(rows.num_columns());
    for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
        match column.as_any_dictionary_opt() {
            Some(keyed) if plain_bytes(column) < column_bytes(keyed.values()) / 2 => {
                let plain_type = keyed.values().data_type();
                let plain_field = field.as_ref().clone();
                fields.push(Arc::new(plain_field.with_data_type(plain_type.clone())));
                columns.push(cast(column, plain_type)?);
            }
            _ => {
                fields.push(field.clone());
                columns.push(column.clone());
            }
        }
    }
    batch_of_rows(Arc::new(Schema::new(fields)), columns, rows.num_rows())
}

/// A batch of columns in the layouts that sinks write: plain arrays, or dictionaries of strings.
pub fn written_batch(schema: &SchemaRef, columns: &[ArrayRef], rows: usize) -> Result<RecordBatch> {
    let keeps = |of: &DataType, field: &Field| match of {
        DataType::Dictionary(_, value) => {
            **value == DataType::Utf8 && *field.data_type() == DataType::Utf8
        }
        of => of == field.data_type(),
    };
    let mut fields = Vec::new();
    let mut written = Vec::new();
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
fn added_bytes(batch: &RecordBatch, previous: Option<&RecordBatch>) -> usize {
    let columns = batch.columns().iter().enumerate().map(|(at, column)| {
        let Some(keyed) = column.as_any_dictionary_opt() else {
            return column_bytes(column);
        };
        let previous_dictionary =
            previous.and_then(|previous| previous.column(at).as_any_dictionary_opt());
        let is_known = previous_dictionary.is_some_and(|previous_dictionary| {
            Arc::ptr_eq(previous_dictionary.values(), keyed.values())
        });
        let values = if is_known {
            0
        } else {
            keyed.values().get_array_memory_size()
        };
        column_bytes(keyed.keys()) + values
    });
    columns.sum()
}

fn sort(schema: &SchemaRef, batches: &[RecordBatch], by: &[String]) -> Result<RecordBatch> {
    let joined = join_batches(schema, batches)?;
    let mut columns = Vec::with_capacity(by.len());
    for name in by {
        let column = joined
            .column_by_name(name)
            .ok_or_else(|| Fault::internal("a sort column is missing"))?;
        columns.push(column.clone());
    }
    take_batch(&joined, &row_order(&columns)?)
}

/// All rows in one batch. Texts keep their dictionaries where all batches have them.
fn join_batches(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch> {
    if batches.is_empty() {
        return Ok(RecordBatch::new_empty(schema.clone()));
    }
    let mut rows = 0;
    for batch in batches {
        rows += batch.num_rows();
    }
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (index, field) in schema.fields().iter().enumerate() {
        let mut parts = Vec::with_capacity(batches.len());
        for batch in batches {
            parts.push(batch.column(index).clone());
        }
        if !parts
            .iter()
            .all(|part| is_keyed_text(part.data_type(), field))
        {
            for part in &mut parts {
                *part = cast(part, field.data_type())?;
            }
        }
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        columns.push(concat(&parts)?);
    }
    written_batch(schema, &columns, rows)
}

/// True for dictionaries of texts with keys that hold as many texts as a group has rows.
fn is_keyed_text(stored: &DataType, field: &Field) -> bool {
    match stored {
        DataType::Dictionary(key, value) => {
            **key == DataType::Int32
                && **value == DataType::Utf8
                && *field.data_type() == DataType::Utf8
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, Int64Array};
    use arrow::datatypes::Int32Type;

    use super::*;

    fn layout() -> FileLayout {
        FileLayout {
            partition_by: vec!["k".to_owned()],
            sort_by: Vec::new(),
            file_bytes_target: 1 << 30,
            group_rows_max: 1 << 20,
            is_plain: false,
        }
    }

    /// Rows of which each is of another partition than the one before it.
    fn batch(partitions: i64, from: i64, rows: i64) -> RecordBatch {
        let keys = Int64Array::from_iter_values((from..from + rows).map(|row| row % partitions));
        let values = Int64Array::from_iter_values(from..from + rows);
        let columns: [(&str, ArrayRef); 2] = [("k", Arc::new(keys)), ("x", Arc::new(values))];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn limits(open_bytes_max: usize) -> RowGroupLimits {
        RowGroupLimits {
            memory: MemoryBudget::new(1 << 40),
            group_bytes_max: 1 << 30,
            open_bytes_max,
        }
    }

    #[test]
    fn rows_of_many_partitions_lie_in_few_batches() {
        let layout = layout();
        let schema = batch(1, 0, 1).schema();
        let mut groups = RowGroupBuilder::new(&schema, &layout, limits(1 << 30)).unwrap();
        for from in 0..50 {
            assert!(groups.push(batch(100, from * 128, 128)).unwrap().is_empty());
        }
        let mut rows = 0;
        for group in groups.rest() {
            let group = group.unwrap();
            assert!(group.batches.len() <= 2, "{}", group.batches.len());
            let values = group.batches.iter().flat_map(|batch| {
                let values = batch
                    .column(0)
                    .as_primitive::<arrow::datatypes::Int64Type>();
                values.values().to_vec()
            });
            let values: Vec<i64> = values.collect();
            assert!(values.is_sorted(), "{values:?}");
            rows += values.len();
        }
        assert_eq!(rows, 50 * 128);
    }

    /// Each text is of one row, and all rows share a dictionary of them, as row groups of Parquet do.
    #[test]
    fn rows_of_partitions_hold_no_texts_of_others() {
        let layout = layout();
        let rows = 10_000;
        let texts = (0..rows).map(|row| format!("a long text of row {row}"));
        let texts: Vec<String> = texts.collect();
        let texts: DictionaryArray<Int32Type> = texts.iter().map(String::as_str).collect();
        let keys = Int64Array::from_iter_values((0..rows).map(|row| row % 1_000));
        let columns: [(&str, ArrayRef); 2] = [("k", Arc::new(keys)), ("s", Arc::new(texts))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let fields = [
            Field::new("k", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
        ];
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let mut groups = RowGroupBuilder::new(&schema, &layout, limits(4 << 20)).unwrap();
        assert!(groups.push(batch).unwrap().is_empty());
        assert!(groups.open_bytes < 1 << 20, "{}", groups.open_bytes);
        for open in groups.open_rows() {
            assert!(open.plain_bytes() < 1_000, "{}", open.plain_bytes());
            let group = open.closed(&layout, &schema).unwrap();
            assert_eq!(group.batches[0].num_rows(), 10);
        }
    }

    /// A text of a dictionary stands in each row of a file of texts.
    #[test]
    fn groups_of_plain_rows_are_cut_by_the_bytes_of_their_texts() {
        let layout = FileLayout {
            partition_by: Vec::new(),
            is_plain: true,
            ..layout()
        };
        let text = "x".repeat(10_000);
        let texts: DictionaryArray<Int32Type> = vec![text.as_str(); 1_000].into_iter().collect();
        let columns: [(&str, ArrayRef); 1] = [("s", Arc::new(texts))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let fields = vec![Field::new("s", DataType::Utf8, true)];
        let schema = Arc::new(Schema::new(fields));
        let limits = RowGroupLimits {
            group_bytes_max: 1 << 20,
            ..limits(1 << 30)
        };
        let mut groups = RowGroupBuilder::new(&schema, &layout, limits).unwrap();
        let mut cut = groups.push(batch).unwrap();
        for group in groups.rest() {
            cut.push(group.unwrap());
        }
        assert!(cut.len() >= 5, "{} groups", cut.len());
        let sizes = cut
            .iter()
            .map(|group| group.batches.iter().map(RecordBatch::num_rows));
        assert_eq!(sizes.flatten().sum::<usize>(), 1_000);
    }

    #[test]
    fn large_groups_are_closed_when_memory_is_short() {
        let layout = layout();
        let schema = batch(1, 0, 1).schema();
        let mut groups = RowGroupBuilder::new(&schema, &layout, limits(3 << 20)).unwrap();
        let mut closed = 0;
        for from in 0..8 {
            closed += groups.push(batch(2, from << 17, 1 << 17)).unwrap().len();
        }
        assert!(closed > 0);
        assert!(groups.open_bytes <= 3 << 20, "{}", groups.open_bytes);
    }
}
