//! Keeps one row of each key. The keys are read first, which decides the rows to keep; then the rows are read in order.
//! Only keys are held or spilled, and nothing is sorted back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{SchemaRef, UInt64Type};
use arrow::row::{RowConverter, SortField};
use forebay_analyze::FirstRows;
use forebay_model::{Fault, MemoryRequest, Result, canonical_keys, catch_panic};
use forebay_plan::NodeFlow;
use forebay_threads::{parallel_map, poisoned_lock};

use crate::materialize::{FlowSpans, MaterializePass, QUEUE_BATCHES, ROW_BITS};

/// Masks the row of a position, without the span's number.
const ROW_MASK: u64 = (1 << ROW_BITS) - 1;

/// Bitmaps of the kept rows by the number of their span.
type KeptRows = BTreeMap<u64, Vec<u64>>;

impl MaterializePass<'_> {
    /// The columns of a flow's rows, once all findings are known.
    pub fn one_per_key_schema(&self, flow: &NodeFlow) -> Result<SchemaRef> {
        let spans = self.spans(flow, &column_names(flow))?;
        let columns: Vec<usize> = (0..spans.schema.fields().len() - 1).collect();
        Ok(Arc::new(spans.schema.project(&columns)?))
    }

    /// Passes the kept rows of a flow to `take`, in order; returns their number.
    pub fn one_per_key(
        &self,
        flow: &NodeFlow,
        keys: &[String],
        last: bool,
        take: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<u64> {
        let stays = self.select_rows(&self.spans(flow, keys)?, last)?;
        let spans = self.spans(flow, &column_names(flow))?;
        let (spans, stays) = (&spans, &stays);
        let mut rows = 0;
        std::thread::scope(|scope| {
            let (sender, batches) = sync_channel(QUEUE_BATCHES);
            let reader = scope.spawn(move || {
                let mut send = |batch| sender.send(filter_kept(&batch, stays)).is_ok();
                catch_panic(|| self.read(spans, 0..spans.len(), &mut send))
            });
            for batch in batches {
                let batch = batch?;
                rows += batch.num_rows() as u64;
                self.memory.check()?;
                take(batch)?;
            }
            reader.join().unwrap_or_else(|_| Err(poisoned_lock()))
        })?;
        Ok(rows)
    }

    /// Reads the keys of all rows and decides which rows to keep.
    fn select_rows(&self, spans: &FlowSpans, last: bool) -> Result<KeptRows> {
        let threads = if spans.is_ordered() { 1 } else { self.threads.clamp(1, spans.len().max(1)) };
        let scratch = self.scratch.scratch_with_budget(self.memory, self.memory.engine_bytes() / 2 / threads);
        let share = spans.len().div_ceil(threads).max(1);
        let keys = spans.schema.fields().len() - 1;
        let fields = spans.schema.fields().iter().take(keys);
        let fields: Vec<SortField> = fields.map(|field| SortField::new(field.data_type().clone())).collect();
        let read = |number: usize| {
            let (converter, mut first) = (RowConverter::new(fields.clone())?, FirstRows::new(&scratch, last));
            let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
            let mut add = |batch: &RecordBatch| {
                let columns = batch.columns()[..keys].iter().map(canonical_keys).collect::<Result<Vec<_>>>()?;
                let rows = converter.convert_columns(&columns)?;
                let positions = batch.column(keys).as_primitive::<UInt64Type>().values();
                for (row, position) in rows.iter().zip(positions) {
                    first.add(row.as_ref(), *position)?;
                }
                ends.extend(positions.last().map(|last| (last >> ROW_BITS, (last & ROW_MASK) + 1)));
                self.memory.check()
            };
            let mut added = Ok(());
            self.read(spans, number * share..((number + 1) * share).min(spans.len()), &mut |batch| {
                added = add(&batch);
                added.is_ok()
            })?;
            added?;
            Ok((first, ends))
        };
        let read = parallel_map(threads, spans.len().div_ceil(share), &read)?;
        let (mut all, mut stays) = (FirstRows::new(&scratch, last), KeptRows::new());
        for (first, ends) in read {
            let words = ends.into_iter().map(|(span, rows)| (span, (rows as usize).div_ceil(64)));
            let words: Vec<(u64, usize)> = words.collect();
            let bytes: usize = words.iter().map(|(_, words)| words * size_of::<u64>()).sum();
            scratch.admit(MemoryRequest { now: bytes, later: 0 })?;
            stays.extend(words.into_iter().map(|(span, words)| (span, vec![0; words])));
            all.merge(first)?;
        }
        all.for_each(|position| {
            let row = position & ROW_MASK;
            let word = stays.get_mut(&(position >> ROW_BITS)).and_then(|words| words.get_mut(row as usize / 64));
            *word.ok_or_else(|| Fault::internal("a row that was not read"))? |= 1 << (row % 64);
            Ok(())
        })?;
        Ok(stays)
    }
}

fn column_names(flow: &NodeFlow) -> Vec<String> {
    flow.schema.fields().iter().map(|field| field.name().clone()).collect()
}

/// The kept rows of a batch, without their positions.
fn filter_kept(batch: &RecordBatch, stays: &KeptRows) -> Result<RecordBatch> {
    let columns: Vec<usize> = (0..batch.num_columns() - 1).collect();
    let positions: &ArrayRef = batch.column(batch.num_columns() - 1);
    let is_staying = |position: &u64| {
        let row = position & ROW_MASK;
        let word = stays.get(&(position >> ROW_BITS)).and_then(|words| words.get(row as usize / 64));
        word.is_some_and(|word| word >> (row % 64) & 1 == 1)
    };
    let mask: BooleanArray =
        positions.as_primitive::<UInt64Type>().values().iter().map(|row| Some(is_staying(row))).collect();
    Ok(filter_record_batch(&batch.project(&columns)?, &mask)?)
}
