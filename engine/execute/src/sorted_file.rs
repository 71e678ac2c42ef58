//! Files of outputs of windows and joins over sorted rows, in the order of the rows.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_empty_array};
use arrow::compute::concat;
use arrow::compute::kernels::zip::zip;
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::ipc::reader::FileReader;
use forebay_model::{Fault, Result, column_bytes};
use forebay_plan::{GrowingOutput, PrecomputedOutputs, TakenOutputs, admit_output, settle_output};
use tempfile::TempPath;

use crate::sorted_outputs::SortedOutputs;

/// The outputs of a window in the order of its rows: columns of a file whose batches end where spans end.
#[derive(Debug, Clone)]
pub struct SortedFile {
    pub path: Arc<TempPath>,
    pub schema: SchemaRef,
    pub columns: Range<usize>,
    /// Batches of each span in the file, by the number of the span among those of all streams.
    pub batches: Arc<BTreeMap<usize, BatchRange>>,
    /// The first span of each stream, among the spans of all streams.
    pub firsts: Arc<Vec<usize>>,
    pub kind: SortedKind,
}

/// Consecutive batches of a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct BatchRange {
    pub first: usize,
    pub count: usize,
}

/// The operation of the outputs.
#[derive(Debug, Clone)]
pub enum SortedKind {
    /// Outputs of a window, or of a join by equal keys.
    Plain,
    /// An as-of join, with the distance to the matched row as the first column.
    AsOf,
    /// An as-of join in both directions; holds the other direction.
    Nearest(Box<SortedFile>),
}

impl SortedOutputs for SortedFile {
    fn read(self: Arc<Self>, stream: usize, span: usize) -> Result<Box<dyn PrecomputedOutputs>> {
        SortedFile::read(&self, stream, span)
    }

    fn is_local(&self) -> bool {
        true
    }
}

impl SortedFile {
    /// Adds the outputs of the other direction; the nearer match counts.
    pub fn with_other_direction(self, forward: SortedFile) -> SortedFile {
        SortedFile {
            kind: SortedKind::Nearest(Box::new(forward)),
            ..self
        }
    }

    /// The files: one for each direction.
    pub fn directions(&self) -> Vec<&SortedFile> {
        match &self.kind {
            SortedKind::Nearest(forward) => vec![self, forward],
            _ => vec![self],
        }
    }

    /// All batches of consecutive spans.
    pub fn read_spans(
        &self,
        tasks: Range<usize>,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<>> {
        let (first, count) =
            self.batches
                .range(tasks)
                .fold((None, 0), |(first, count), (_, batch_range)| {
                    (first.or(Some(batch_range.first)), count + batch_range.count)
                });
        let mut reader = open(&self.path, None)?;
        if let Some(first) = first {
            reader.set_index(first)?;
        }
        Ok(reader.take(count).map(|batch| Ok(batch?)))
    }

    /// The columns of one of several windows.
    pub fn select_columns(&self, columns: Range<usize>) -> Result<SortedFile> {
        let schema = Arc::new(self.schema.project(&columns.clone().collect::<Vec<_>>())?);
        Ok(SortedFile {
            schema,
            columns,
            ..self.clone()
        })
    }

    /// The outputs for the rows of a span of one of the streams that were sorted together.
    pub fn read(&self, stream: usize, span: usize) -> Result<Box<dyn PrecomputedOutputs>> {
        let rows = self.rows(stream, span)?;
        Ok(match &self.kind {
            SortedKind::Plain => Box::new(rows),
            SortedKind::AsOf => Box::new(AsOfRows {
                before: rows,
                after: None,
            }),
            SortedKind::Nearest(forward) => Box::new(AsOfRows {
                before: rows,
                after: Some(forward.rows(stream, span)?),
            }),
        })
    }

    fn rows(&self, stream: usize, span: usize) -> Result<SortedRows> {
        let BatchRange {
            first,
            count: batches_left,
        } = self
            .batches
            .get(&(self.firsts[stream] + span))
            .copied()
            .unwrap_or_default();
        let reader = match batches_left {
            0 => None,
            _ => {
                let mut reader = open(&self.path, Some(self.columns.clone().collect()))?;
                reader.set_index(first)?;
                Some(reader)
            }
        };
        Ok(SortedRows {
            reader,
            schema: self.schema.clone(),
            left: batches_left,
            batch: None,
        })
    }
}

/// The outputs for the rows of one span.
pub struct SortedRows {
    /// Opened at the first batch, if there is one.
    reader: Option<FileReader<File>>,
    schema: SchemaRef,
    left: usize,
    batch: Option<RecordBatch>,
}

/// Opens a file of batches. A batch is one read: a buffer would read the next one, too, and lose it at the seek between
/// them.
fn open(path: &Path, columns: Option<Vec<usize>>) -> Result<FileReader<File>> {
    let file =
        File::open(path).map_err(|error| Fault::disk("sorted rows cannot be read", error))?;
    Ok(FileReader::try_new(file, columns)?)
}

impl PrecomputedOutputs for SortedRows {
    fn take(&mut self, rows: usize, emit: &[bool]) -> Result<TakenOutputs> {
        let SortedRows {
            reader,
            left: batches_left,
            batch,
            schema,
        } = self;
        let too_few = || Fault::internal("there are fewer sorted rows than rows");
        let parts = next_rows(rows, batch, &mut || {
            *batches_left = batches_left.checked_sub(1).ok_or_else(too_few)?;
            Ok(reader
                .as_mut()
                .and_then(Iterator::next)
                .ok_or_else(too_few)??)
        })?;
        let emitted = emit
            .iter()
            .enumerate()
            .filter(|(_, emit)| **emit)
            .map(|(index, _)| index);
        let columns = select_outputs(&parts, schema, emitted)?;
        Ok(TakenOutputs::of_columns(columns))
    }
}

/// The next rows of consecutive batches. `remainder` is the unread part of the previous batch.
pub fn next_rows(
    rows: usize,
    remainder: &mut Option<RecordBatch>,
    next: &mut dyn FnMut() -> Result<RecordBatch>,
) -> Result<Vec<RecordBatch>> {
    let mut parts: Vec<RecordBatch> = Vec::new();
    let mut missing = rows;
    // Joined texts may be long, and the batches of a chunk become one.
    let mut output = GrowingOutput::default();
    let mut output_bytes = 0;
    while missing > 0 {
        let batch = remainder.take().map_or_else(&mut *next, Ok)?;
        let head = missing.min(batch.num_rows());
        let part = batch.slice(0, head);
        for column in part.columns() {
            let bytes = column_bytes(column);
            output.grow(bytes)?;
            output_bytes += bytes;
        }
        // The next batch may wait for other threads, which must not wait for this one.
        settle_output();
        parts.push(part);
        if head < batch.num_rows() {
            *remainder = Some(batch.slice(head, batch.num_rows() - head));
        }
        missing -= head;
    }
    if parts.len() > 1 {
        admit_output(output_bytes)?;
    }
    Ok(parts)
}

/// Some columns of consecutive batches.
pub fn select_outputs(
    parts: &[RecordBatch],
    schema: &SchemaRef,
    columns: impl Iterator<Item = usize>,
) -> Result<Vec<ArrayRef>> {
    let column = |index: usize| match parts {
        [part] => Ok(part.column(index).clone()),
        [] => Ok(new_empty_array(schema.field(index).data_type())),
        parts => {
            let columns: Vec<&dyn Array> = parts
                .iter()
                .map(|part| part.column(index).as_ref())
                .collect();
            Ok(concat(&columns)?)
        }
    };
    columns.map(column).collect()
}

/// The outputs of an as-of join for the rows of one span; with two directions, the nearer match.
pub struct AsOfRows {
    pub before: SortedRows,
    pub after: Option<SortedRows>,
}

impl PrecomputedOutputs for AsOfRows {
    fn take(&mut self, rows: usize, emit: &[bool]) -> Result<TakenOutputs> {
        // The distance is the first column of the files. It is null in rows without a match.
        let emitted: Vec<bool> = std::iter::once(true).chain(emit.iter().copied()).collect();
        let mut backward = self.before.take(rows, &emitted)?.columns;
        let Some(forward_reader) = &mut self.after else {
            let distances = backward.remove(0);
            return Ok(TakenOutputs {
                columns: backward,
                unmatched: Some(distances.null_count() as u64),
            });
        };
        let forward = forward_reader.take(rows, &emitted)?.columns;
        let distance = |columns: &[ArrayRef]| -> Vec<Option<i64>> {
            columns
                .first()
                .map(|column| column.as_primitive::<Int64Type>().iter().collect())
                .unwrap_or_default()
        };
        let pairs = distance(&backward).into_iter().zip(distance(&forward));
        let mut unmatched = 0;
        let mut earlier = Vec::with_capacity(rows);
        for (backward_distance, forward_distance) in pairs {
            earlier.push(match (backward_distance, forward_distance) {
                (Some(backward_distance), Some(forward_distance)) => {
                    backward_distance <= forward_distance
                }
                (_, forward_distance) => forward_distance.is_none(),
            });
            unmatched += u64::from(backward_distance.is_none() && forward_distance.is_none());
        }
        let earlier = BooleanArray::from(earlier);
        let nearer =
            backward
                .iter()
                .zip(&forward)
                .skip(1)
                .map(|(backward_column, forward_column)| {
                    Ok(zip(&earlier, backward_column, forward_column)?)
                });
        Ok(TakenOutputs {
            columns: nearer.collect::<Result<_>>()?,
            unmatched: Some(unmatched),
        })
    }
}
