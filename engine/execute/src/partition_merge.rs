//! Rows of many partitions, merged over spans before they are encoded.
//!
//! A span may have a few rows of each of many partitions. Encoded span by span, they would become a file of each span and
//! partition: more files exist than can be open. So the few rows of a partition wait for those of later spans.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use forebay_contract::FileLayout;
use forebay_model::{Result, column_bytes, plain_batch};
use forebay_storage::MemoryBudget;

use crate::row_groups::{OpenRows, RowGroup};

/// Rows of a partition wait if a span has less than these bytes of them. More are worth a row group of their own.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// Waiting partitions that are written at a time. Their rows are copied for that.
const WRITTEN_AT_ONCE: usize = 1024;

/// Bytes of a waiting partition besides its rows: its name, and its place in a map.
const PARTITION_BYTES: usize = 256;

/// The few rows that a span has of each of some partitions, one partition behind the other.
pub struct PartitionRun {
    rows: RecordBatch,
    /// Partitions, with their numbers of rows.
    partitions: Vec<(String, usize)>,
    bytes: usize,
}

impl PartitionRun {
    /// Joins open rows.
    pub fn new(schema: &SchemaRef, open: Vec<OpenRows>) -> Result<PartitionRun> {
        let mut batches = Vec::new();
        let mut partitions = Vec::with_capacity(open.len());
        for OpenRows {
            partition,
            batches: of_partition,
        } in open
        {
            let mut rows = 0;
            for batch in of_partition {
                rows += batch.num_rows();
                // Batches that hold texts as dictionaries stand beside others that do not.
                batches.push(plain_batch(schema, &batch)?);
            }
            partitions.push((partition, rows));
        }
        let rows = concat_batches(schema, &batches)?;
        let columns = rows.columns().iter();
        let bytes = columns.map(|column| column_bytes(column)).sum();
        Ok(PartitionRun {
            rows,
            partitions,
            bytes,
        })
    }

    /// Bytes of the rows.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// True if so few rows wait for others of their partition.
    pub fn takes(open: &OpenRows) -> bool {
        open.plain_bytes() < WAITING_BYTES_MAX
    }
}

/// Consecutive rows of a run.
#[derive(Debug, Clone, Copy)]
struct RunSlice {
    run: usize,
    from: usize,
    rows: usize,
}

#[derive(Debug, Default)]
struct WaitingRows {
    slices: Vec<RunSlice>,
    rows: usize,
}

/// Receives row groups in the order in which they are to be written.
type WriteGroupsFn<'f> = &'f mut dyn FnMut(Vec<RowGroup>) -> Result<()>;

/// Rows that wait for others of their partitions.
pub struct PartitionMerger<'a> {
    layout: &'a FileLayout,
    schema: SchemaRef,
    memory: MemoryBudget,
    /// The rows of all waiting partitions, span by span.
    runs: Vec<RecordBatch>,
    waiting: BTreeMap<String, WaitingRows>,
    bytes: usize,
}

impl<'a> PartitionMerger<'a> {
    pub fn new(layout: &'a FileLayout, schema: SchemaRef, memory: MemoryBudget) -> Self {
        PartitionMerger {
            layout,
            schema,
            memory,
            runs: Vec::new(),
            waiting: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Adds the rows of a span. Groups that are full are written, and all of them where memory is short.
    pub fn add(&mut self, run: PartitionRun, write: WriteGroupsFn<'_>) -> Result<()> {
        let mut from = 0;
        let mut full = Vec::new();
        for (partition, rows) in run.partitions {
            let is_full = self
                .waiting
                .get(&partition)
                .is_some_and(|waiting| waiting.rows + rows > self.layout.group_rows_max);
            if is_full {
                full.extend(self.take(&partition)?);
            }
            if !self.waiting.contains_key(&partition) {
                self.bytes += PARTITION_BYTES;
            }
            let waiting = self.waiting.entry(partition).or_default();
            waiting.slices.push(RunSlice {
                run: self.runs.len(),
                from,
                rows,
            });
            waiting.rows += rows;
            self.bytes += size_of::<RunSlice>();
            from += rows;
        }
        self.runs.push(run.rows);
        self.bytes += run.bytes;
        write(full)?;
        let is_short = self.memory.shortage(run.bytes as u64).is_some();
        if is_short || self.bytes > self.memory.waiting_bytes() {
            self.write_all(write)?;
        }
        Ok(())
    }

    /// Takes out the rows of a partition.
    pub fn take(&mut self, partition: &str) -> Result<Option<RowGroup>> {
        let waiting = self.waiting.remove_entry(partition);
        waiting
            .map(|(partition, waiting)| self.group_of(partition, &waiting))
            .transpose()
    }

    /// Writes all rows that wait.
    pub fn write_all(&mut self, write: WriteGroupsFn<'_>) -> Result<()> {
        let mut groups = Vec::new();
        for (partition, waiting) in std::mem::take(&mut self.waiting) {
            groups.push(self.group_of(partition, &waiting)?);
            if groups.len() == WRITTEN_AT_ONCE {
                write(std::mem::take(&mut groups))?;
            }
        }
        write(groups)?;
        self.runs.clear();
        self.bytes = 0;
        Ok(())
    }

    fn group_of(&self, partition: String, waiting: &WaitingRows) -> Result<RowGroup> {
        let mut batches = Vec::with_capacity(waiting.slices.len());
        for slice in &waiting.slices {
            batches.push(self.runs[slice.run].slice(slice.from, slice.rows));
        }
        let rows = concat_batches(&self.schema, &batches)?;
        RowGroup::new(self.layout, &self.schema, partition, vec![rows])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
    use arrow::datatypes::Int64Type;
    use arrow::error::ArrowError;

    use super::*;

    fn layout(group_rows_max: usize) -> FileLayout {
        FileLayout {
            partition_by: vec!["k".to_owned()],
            sort_by: Vec::new(),
            file_bytes_target: 1 << 30,
            group_rows_max,
            is_plain: false,
        }
    }

    fn rows(values: std::ops::Range<i64>) -> std::result::Result<RecordBatch, ArrowError> {
        let texts = StringArray::from_iter_values(values.clone().map(|value| format!("t{value}")));
        let columns: [(&str, ArrayRef); 2] = [
            ("x", Arc::new(Int64Array::from_iter_values(values))),
            ("t", Arc::new(texts)),
        ];
        RecordBatch::try_from_iter(columns)
    }

    /// Two rows of each of some partitions; the rows of span `span` are numbered from 1,000 times it.
    fn run(span: i64, partitions: i64) -> PartitionRun {
        let open = (0..partitions).map(|partition| {
            let from = 1_000 * span + 2 * partition;
            OpenRows {
                partition: format!("k={partition}"),
                batches: vec![rows(from..from + 2).unwrap()],
            }
        });
        PartitionRun::new(&rows(0..1).unwrap().schema(), open.collect()).unwrap()
    }

    type WrittenGroups = Vec<(String, Vec<i64>)>;

    fn written(groups: Vec<RowGroup>, to: &mut WrittenGroups) {
        for group in groups {
            let values = group.batches[0].column(0).as_primitive::<Int64Type>();
            to.push((group.partition, values.values().to_vec()));
        }
    }

    #[test]
    fn rows_of_a_partition_are_merged_in_the_order_of_spans() {
        let layout = layout(1 << 20);
        let schema = rows(0..1).unwrap().schema();
        let mut merger = PartitionMerger::new(&layout, schema, MemoryBudget::new(1 << 40));
        let mut groups = Vec::new();
        for span in 0..3 {
            merger
                .add(run(span, 2), &mut |full| {
                    written(full, &mut groups);
                    Ok(())
                })
                .unwrap();
        }
        assert!(groups.is_empty());
        let first = merger.take("k=0").unwrap();
        written(first.into_iter().collect(), &mut groups);
        assert!(merger.take("k=0").unwrap().is_none());
        merger
            .write_all(&mut |rest| {
                written(rest, &mut groups);
                Ok(())
            })
            .unwrap();
        let expected = [
            ("k=0".to_owned(), vec![0, 1, 1000, 1001, 2000, 2001]),
            ("k=1".to_owned(), vec![2, 3, 1002, 1003, 2002, 2003]),
        ];
        assert_eq!(groups, expected);
    }

    #[test]
    fn full_groups_and_all_groups_beyond_the_memory_are_written() {
        let layout = layout(3);
        let schema = rows(0..1).unwrap().schema();
        let mut groups = Vec::new();
        let mut merger = PartitionMerger::new(&layout, schema.clone(), MemoryBudget::new(1 << 40));
        for span in 0..2 {
            merger
                .add(run(span, 1), &mut |full| {
                    written(full, &mut groups);
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(groups, [("k=0".to_owned(), vec![0, 1])]);
        // A limit of some bytes holds no rows.
        let mut merger = PartitionMerger::new(&layout, schema, MemoryBudget::new(64));
        groups.clear();
        merger
            .add(run(0, 3), &mut |all| {
                written(all, &mut groups);
                Ok(())
            })
            .unwrap();
        assert_eq!(groups.len(), 3);
        assert!(merger.runs.is_empty() && merger.waiting.is_empty());
    }
}
