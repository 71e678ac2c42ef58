//! The shuffle: workers sort rows together by key. Each first partitions the rows of some spans by their keys. Then
//! each receives all rows of some keys, computes over them in order, and commits the outputs for the writers. Exchanged
//! rows lie in the state directory under content-addressed ids.

use std::io::{BufWriter, Seek, Write};
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::StreamWriter;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::streaming::PartitionStream;
use forebay_cluster::{RunSpec, ShufflePlan, TaskEvent, TaskKind, TaskSpec, run_range};
use forebay_commit::StateStore;
use forebay_model::{ContentId, Fault, IdBuilder, Result, SeriesCounts, take_batch};
use forebay_plan::{OpId, SharedSort, WindowRowOrder};
use forebay_storage::ScratchDir;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::xxh3_64;

use crate::cluster_handle::RemoteExecutor;
use crate::external_sort::compressed_ipc;
use crate::join_keys::JoinKeys;
use crate::materialize::{one_time_table, schema_with_positions};
use crate::pass_context::PassContext;
use crate::range_bytes::range_bytes_min;
use crate::series_counts::warn_of_counts;
use crate::shuffle_read::ShuffleStream;
use crate::sorted_pass::{SortInput, SortedPass};

/// Rows of a batch that is committed for another worker, at most.
const BATCH_ROWS: usize = 8192;

/// Runs of spans, and partitions of keys, for each task slot of the workers.
pub const SHARES_PER_SLOT: usize = 3;

/// Partitions and groups at most. A partitioning task holds a file and a batch of each partition, and each partition
/// has an object for each group.
pub const PARTS_MAX: usize = 64;

/// Version of the exchanged files.
const VERSION: u32 = 2;

/// Plans the shuffle of rows that are sorted together.
fn plan_shuffle(
    pass: &SortedPass<'_>,
    shared_sort: &SharedSort,
    run_spec: &RunSpec,
    slots: usize,
) -> Result<ShufflePlan> {
    let mut runs = Vec::new();
    let mut total = 0;
    let mut groups = Vec::new();
    for side in pass.sort_inputs(shared_sort)? {
        let spans = pass.gather.spans(side.flow, &side.columns)?;
        let bytes = spans.bytes();
        // Earlier windows depend on all rows before: one task reads everything.
        runs.push(cut_runs(
            &bytes,
            if spans.is_ordered() {
                1
            } else {
                slots * SHARES_PER_SLOT
            },
        ));
        total += bytes.iter().sum::<u64>();
        if side.number == 0 {
            groups = cut_runs(&bytes, (slots * SHARES_PER_SLOT).min(PARTS_MAX));
        }
    }
    let parts = task_count(total, (slots * SHARES_PER_SLOT).min(PARTS_MAX));
    let SharedSort { windows, stand } = shared_sort.clone();
    let division = json!([windows, stand, runs, parts, groups]);
    Ok(ShufflePlan {
        id: exchange_id("exchange", &pass.gather.context, run_spec, &division),
        windows,
        stand,
        runs,
        parts,
        groups,
    })
}

/// The id of exchanged rows. It holds everything that determines them: an object of an earlier
/// attempt is equal, or has another name.
pub fn exchange_id(
    kind: &str,
    context: &PassContext<'_>,
    run_spec: &RunSpec,
    division: &Value,
) -> ContentId {
    let mut row_orders: Vec<(OpId, WindowRowOrder)> = Vec::new();
    for (op, row_order) in &context.state.row_orders {
        row_orders.push((*op, *row_order));
    }
    // The findings known when the run began do not change the rows.
    let run_spec = RunSpec {
        known: Default::default(),
        ..run_spec.clone()
    };
    // Code that steps run lies outside of the spec.
    let mut operations = Vec::new();
    for op in &context.program.bound.ops {
        operations.push(op.identity);
    }
    let mut id = IdBuilder::new(kind);
    id.json(&json!([
        VERSION,
        env!("CARGO_PKG_VERSION"),
        run_spec,
        operations,
        row_orders,
        division
    ]));
    id.finish()
}

/// A worker's share of a shuffle.
pub struct ShuffleStage<'a> {
    pub plan: &'a ShufflePlan,
    pub pass: &'a SortedPass<'a>,
    pub store: &'a StateStore,
}

impl ShuffleStage<'_> {
    /// Partitions the rows of a run of spans by their keys.
    pub fn partition(&self, number: usize, which: usize) -> Result<()> {
        // The mark is written last: an attempt that finds it has nothing left to do.
        let done = format!("divided-{number}-{which}");
        if self
            .store
            .get_shared(self.plan.id, &done, |_| Ok(()))?
            .is_some()
        {
            return Ok(());
        }
        let sides = self.pass.sort_inputs(&self.plan.shared_sort())?;
        let strange = || Fault::internal("a shuffle of other rows");
        let side = sides.get(number).ok_or_else(strange)?;
        let runs = self.plan.runs.get(number).ok_or_else(strange)?;
        let spans = self.pass.gather.spans(side.flow, &side.columns)?;
        // Workers list the spans themselves: the plan of other spans would exchange other rows.
        if runs.last().copied().unwrap_or(0) != spans.bytes().len() {
            return Err(strange());
        }
        let gather = &self.pass.gather;
        let share = gather.context.memory.rows_bytes() / gather.context.threads.max(1);
        let mut divider =
            HashPartitioner::new(side, &spans.schema, self.plan.parts, gather.scratch, share)?;
        let mut pushed = Ok(());
        self.pass
            .gather
            .read(&spans, run_range(runs, which), &mut |batch| {
                pushed = self
                    .pass
                    .check_cancelled()
                    .and_then(|()| divider.push(&batch));
                pushed.is_ok()
            })?;
        pushed?;
        let failed = |error| Fault::disk("rows for another worker cannot be written", error);
        // One object for each partition, so that a worker reads only the rows of its keys.
        for (part, mut file) in divider.finish()?.into_iter().enumerate() {
            self.store.put_shared(
                self.plan.id,
                &rows_name(number, which, part),
                self.pass.gather.scratch,
                &mut |out| {
                    file.rewind().map_err(failed)?;
                    std::io::copy(&mut file, out).map(drop).map_err(failed)
                },
            )?;
        }
        self.store
            .put_shared(self.plan.id, &done, self.pass.gather.scratch, &mut |_| {
                Ok(())
            })
    }

    /// Computes over the rows of a partition; returns the counts of the windows.
    pub fn reduce(&self, part: usize) -> Result<SeriesCounts> {
        let failed = |error| Fault::disk("rows for another worker cannot be written", error);
        let done = format!("computed-{part}");
        let stored_counts = self.store.get_shared(self.plan.id, &done, |input| {
            let mut counts = [[0; 8]; 2];
            input
                .read_exact(counts.as_flattened_mut())
                .map_err(failed)?;
            let [gaps, duplicates] = counts.map(u64::from_le_bytes);
            Ok(SeriesCounts { gaps, duplicates })
        })?;
        if let Some(counts) = stored_counts {
            return Ok(counts);
        }
        let (sorted, counts) = self.pass.sort(&self.plan.shared_sort(), &|side| {
            self.partition_table(side, part)
        })?;
        for (layer, sorted) in sorted.directions().into_iter().enumerate() {
            // Outputs go back to the order of spans: a reader of a group fetches one object of each
            // partition.
            for group in 0..self.plan.groups.len() {
                let name = ShufflePlan::output_name(layer, group, part);
                self.store.put_shared(
                    self.plan.id,
                    &name,
                    self.pass.gather.scratch,
                    &mut |out| {
                        let mut writer: Option<StreamWriter<&mut dyn Write>> = None;
                        let mut out = Some(out);
                        for batch in sorted.read_spans(self.plan.group(group))? {
                            let batch = batch?;
                            if let Some(out) = out.take() {
                                writer = Some(StreamWriter::try_new_with_options(
                                    out,
                                    &batch.schema(),
                                    compressed_ipc()?,
                                )?);
                            }
                            writer
                                .iter_mut()
                                .try_for_each(|writer| writer.write(&batch))?;
                        }
                        writer.iter_mut().try_for_each(StreamWriter::finish)?;
                        Ok(())
                    },
                )?;
            }
        }
        self.store
            .put_shared(self.plan.id, &done, self.pass.gather.scratch, &mut |out| {
                let numbers = [counts.gaps, counts.duplicates].map(u64::to_le_bytes);
                out.write_all(numbers.as_flattened()).map_err(failed)
            })?;
        Ok(counts)
    }

    /// The rows of a partition on one side, as a table.
    fn partition_table(&self, side: &SortInput<'_>, part: usize) -> Result<LogicalPlan> {
        let schema = schema_with_positions(side.flow, &side.columns)?;
        let names: Vec<String> = (0..self.plan.runs[side.number].len())
            .map(|run| rows_name(side.number, run, part))
            .collect();
        let share = names
            .len()
            .div_ceil(self.pass.gather.context.threads.max(1))
            .max(1);
        let stored = |names: &[String]| {
            let stored = ShuffleStream {
                store: self.store.clone(),
                of: self.plan.id,
                names: names.to_vec(),
                schema: schema.clone(),
            };
            Arc::new(stored) as Arc<dyn PartitionStream>
        };
        let partitions = if names.is_empty() {
            vec![stored(&[])]
        } else {
            names.chunks(share).map(stored).collect()
        };
        let placed = |error| self.pass.engine_fault_at(error, self.plan.stand);
        one_time_table(
            side.name,
            StreamingTable::try_new(schema.clone(), partitions).map_err(placed)?,
        )
        .map_err(placed)
    }
}

impl RemoteExecutor<'_> {
    /// Partitions the rows by key on workers, then sorts them and computes over them.
    pub fn shuffle(&self, pass: &SortedPass<'_>, shared_sort: &SharedSort) -> Result<ShufflePlan> {
        let run_state = pass.gather.context.state;
        let shuffle = plan_shuffle(
            pass,
            shared_sort,
            self.run_spec,
            self.cluster.wait_for_slots(self.interrupt)?,
        )?;
        let mut common = self.stage_context(run_state);
        common.shuffles.push(shuffle.clone());
        let sides = shuffle.runs.iter().enumerate();
        let divide = sides.flat_map(|(side, runs)| {
            (0..runs.len()).map(move |run| TaskKind::Divide { side, run })
        });
        let compute = (0..shuffle.parts).map(|part| TaskKind::Compute { part });
        let mut counts = SeriesCounts::default();
        // Two waves: a partition needs the rows of all runs before it is computed.
        for whats in [divide.collect::<Vec<_>>(), compute.collect()] {
            let task = |kind| TaskSpec {
                cost: 1,
                after: None,
                what: kind,
            };
            let tasks = whats.into_iter().map(task).collect();
            let done = self.run_tasks(&common, tasks, run_state, &mut |event| {
                if let TaskEvent::Done {
                    counts: counted, ..
                } = event
                {
                    counts.add(counted);
                }
                Ok(())
            });
            done.map_err(|failure| failure.fault)?;
        }
        warn_of_counts(self.watch, counts);
        Ok(shuffle)
    }
}

/// Partitions rows by the hash of their keys, with a file for each partition.
struct HashPartitioner {
    keys: JoinKeys,
    schema: SchemaRef,
    /// The memory of rows that wait for others of their partition.
    budget_bytes: usize,
    /// A batch of each partition. Their rows depend on the width of the first ones.
    waiting: Vec<BatchCoalescer>,
    parts: Vec<StreamWriter<BufWriter<NamedTempFile>>>,
}

impl HashPartitioner {
    fn new(
        side: &SortInput<'_>,
        schema: &SchemaRef,
        parts: usize,
        scratch: &ScratchDir,
        budget_bytes: usize,
    ) -> Result<HashPartitioner> {
        let keys = JoinKeys::new(schema, &side.keys)?;
        let part = |_| {
            let file = BufWriter::with_capacity(1 << 16, scratch.file()?);
            Ok(StreamWriter::try_new_with_options(
                file,
                schema,
                compressed_ipc()?,
            )?)
        };
        let parts = (0..parts).map(part).collect::<Result<_>>()?;
        Ok(HashPartitioner {
            keys,
            schema: schema.clone(),
            budget_bytes,
            waiting: Vec::new(),
            parts,
        })
    }

    fn start(&mut self, batch: &RecordBatch) {
        let row_bytes = batch.get_array_memory_size() / batch.num_rows().max(1);
        let rows =
            (self.budget_bytes / self.parts.len().max(1) / row_bytes.max(1)).clamp(1, BATCH_ROWS);
        self.waiting = self
            .parts
            .iter()
            .map(|_| BatchCoalescer::new(self.schema.clone(), rows))
            .collect();
    }

    fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.waiting.is_empty() && batch.num_rows() > 0 {
            self.start(batch);
        }
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.parts.len()];
        if self.keys.is_empty() {
            rows[0].extend(0..batch.num_rows() as u32);
        } else {
            for (row, key) in self.keys.rows(batch)?.iter().enumerate() {
                rows[(xxh3_64(key.as_ref()) % self.parts.len() as u64) as usize].push(row as u32);
            }
        }
        let parts = self.waiting.iter_mut().zip(&mut self.parts);
        for ((coalescer, writer), rows) in parts.zip(rows).filter(|(_, rows)| !rows.is_empty()) {
            coalescer.push_batch(take_batch(batch, &UInt32Array::from(rows))?)?;
            while let Some(batch) = coalescer.next_completed_batch() {
                writer.write(&batch)?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<NamedTempFile>> {
        let failed =
            |error: std::io::Error| Fault::disk("rows for another worker cannot be written", error);
        let mut waiting = self.waiting.into_iter();
        let finish = |mut writer: StreamWriter<BufWriter<NamedTempFile>>| {
            if let Some(mut coalescer) = waiting.next() {
                coalescer.finish_buffered_batch()?;
                while let Some(batch) = coalescer.next_completed_batch() {
                    writer.write(&batch)?;
                }
            }
            writer.finish()?;
            writer
                .into_inner()?
                .into_inner()
                .map_err(|error| failed(error.into_error()))
        };
        self.parts.into_iter().map(finish).collect()
    }
}

fn rows_name(side: usize, run: usize, part: usize) -> String {
    format!("rows-{side}-{run}-{part}")
}

/// The number of tasks that is worth the overhead, at most `most`.
pub fn task_count(bytes: u64, most: usize) -> usize {
    ((bytes / range_bytes_min()) as usize).clamp(1, most.max(1))
}

/// Divides spans into runs of about the same size; returns their ends.
pub fn cut_runs(bytes: &[u64], most: usize) -> Vec<usize> {
    let total: u64 = bytes.iter().sum();
    let run_bytes = total.div_ceil(task_count(total, most) as u64).max(1);
    let mut ends = Vec::new();
    let mut seen = 0;
    for (span, bytes) in bytes.iter().enumerate() {
        seen += bytes;
        if seen >= run_bytes * (ends.len() as u64 + 1) {
            ends.push(span + 1);
        }
    }
    if ends.last() != Some(&bytes.len()) && !bytes.is_empty() {
        ends.push(bytes.len());
    }
    ends
}
