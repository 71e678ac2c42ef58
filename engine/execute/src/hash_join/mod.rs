//! Joins by equal keys, of sides of any size. If the other side fits into its share of the memory, it becomes a hash
//! table, which the rows of this side are looked up in. Else both sides are partitioned by a hash of the key, and are
//! joined one partition after the other. The outputs are sorted back to the order of this side's rows.

mod join;
mod partitions;
mod probe;
mod schema;
mod table;

use std::sync::Mutex;

use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use forebay_model::{Fault, Result};
use forebay_plan::{JoinBy, duplicate_key_fault};
use forebay_storage::ScratchDir;
use forebay_storage::failpoint::test_bytes;
use forebay_threads::{lock, parallel_map, poisoned_lock};

pub use self::join::{HashJoin, RowsPerMatch};
use self::partitions::{
    BLOCKS_BYTES_MAX, PARTITIONS, PartitionWriter, PartitionedRows, StoredPartitions,
};
use self::probe::{JoinOutputs, ProbeRows, ProbedTable};
pub use self::schema::join_schema;
use self::table::{ENTRY_BYTES, JoinTable, SameKeys};
use crate::batch_iter::BatchIter;
use crate::external_sort::{SpillingSorter, merge_runs};
use crate::join_keys::{EncodedKeys, JoinKeys};
use crate::materialize::MaterializePass;
use crate::sort_keys::SortSpec;
use crate::sorted_pass::OpenedPlan;

/// The rows of a side, opened to be read.
struct JoinSide {
    plan: OpenedPlan,
    keys: JoinKeys,
}

/// A side whose rows are stored in partitions.
struct PartitionedSide {
    side: JoinSide,
    stored: Vec<StoredPartitions>,
}

/// A part of the keys of a partition, which are joined together.
#[derive(Clone, Copy)]
struct PartitionPiece {
    partition: usize,
    /// The number of pieces of the partition.
    pieces: u64,
    piece: u64,
    /// The limit of the bytes of a table.
    table_bytes: usize,
}

/// Destination of the outputs of a join.
struct JoinResults<'a> {
    outputs: &'a JoinOutputs,
    sorted: &'a OutputSorters<'a>,
}

impl HashJoin<'_> {
    /// The outputs in the order of rows.
    pub fn run(&self, own_plan: &LogicalPlan, other_plan: &LogicalPlan) -> Result<BatchIter> {
        let side = |plan: &LogicalPlan, keys: &[(String, DataType)]| -> Result<JoinSide> {
            let plan = self.pass.open_plan(self.op, plan)?;
            let keys = JoinKeys::new(plan.schema(), keys)?;
            Ok(JoinSide { plan, keys })
        };
        let own_side = side(own_plan, self.keys)?;
        let other_side = side(other_plan, self.other_keys)?;
        let outputs = JoinOutputs::new(self, other_side.plan.schema())?;
        let sorted = OutputSorters::new(self, &outputs.schema);
        let results = JoinResults {
            outputs: &outputs,
            sorted: &sorted,
        };
        // If the other side fits into memory, this side is read once and not stored.
        match self.partition(&other_side, self.table_bytes() / 2)? {
            Sides::Held(batches) => {
                self.join_in_memory(&own_side, &other_side, batches, &results)?
            }
            Sides::Stored(stored) => {
                let own_partitions = PartitionedSide {
                    stored: self.partition_all(&own_side)?,
                    side: own_side,
                };
                self.join_partitions(
                    &own_partitions,
                    &PartitionedSide {
                        stored,
                        side: other_side,
                    },
                    &results,
                )?;
            }
        }
        sorted.merge()
    }

    /// The memory of hash tables, and of rows while they are partitioned.
    fn table_bytes(&self) -> usize {
        let usual = self.pass.gather.context.memory.engine_bytes() / 2;
        test_bytes("FOREBAY_JOIN_BYTES")
            .map_or(usual, |bytes| bytes as usize)
            .max(1)
    }

    fn threads(&self) -> usize {
        self.pass.gather.context.threads.max(1)
    }

    fn order(&self, schema: &SchemaRef) -> SortSpec {
        let last = schema.fields().len() - 1;
        let by = match self.rows {
            RowsPerMatch::One => vec![last],
            RowsPerMatch::Each { .. } => vec![last, last - 1],
        };
        SortSpec::new(
            schema.clone(),
            &by.into_iter()
                .map(|index| (index, SortOptions::default()))
                .collect::<Vec<_>>(),
        )
    }

    fn same_keys(&self) -> SameKeys {
        match (&self.join.by, self.rows) {
            (JoinBy::Equality(checks), _) if checks.unique_there => SameKeys::Refused,
            (_, RowsPerMatch::One) => SameKeys::Dropped,
            (_, RowsPerMatch::Each { .. }) => SameKeys::Kept,
        }
    }

    fn checks_here(&self) -> bool {
        matches!(self.join.by, JoinBy::Equality(checks) if checks.unique_here)
    }

    /// The other side's rows with whole keys: in memory if they fit `budget_bytes`.
    fn partition(&self, side: &JoinSide, budget_bytes: usize) -> Result<Sides> {
        let share = budget_bytes / side.plan.streams().max(1);
        let whole_keys = |keys: &EncodedKeys, row| keys.is_valid(row);
        let rows = self.partition_streams(side, share, whole_keys, PartitionWriter::finish)?;
        if rows
            .iter()
            .all(|rows| matches!(rows, PartitionedRows::Held(_)))
        {
            let batches = rows.into_iter().flat_map(|rows| match rows {
                PartitionedRows::Held(batches) => batches,
                PartitionedRows::Stored(_) => Vec::new(),
            });
            return Ok(Sides::Held(batches.collect()));
        }
        let store = |rows: PartitionedRows| match rows {
            PartitionedRows::Stored(stored) => Ok(stored),
            PartitionedRows::Held(batches) => {
                let mut writer =
                    PartitionWriter::new(side.plan.schema(), self.pass.gather.scratch, share);
                for batch in batches {
                    writer.push(&batch, &side.keys.encode(&batch)?, |_| true)?;
                }
                writer.finish_stored()
            }
        };
        Ok(Sides::Stored(
            rows.into_iter().map(store).collect::<Result<_>>()?,
        ))
    }

    /// This side's rows, those with null keys among them.
    fn partition_all(&self, side: &JoinSide) -> Result<Vec<StoredPartitions>> {
        let share = (self.table_bytes() / side.plan.streams().max(1)).min(BLOCKS_BYTES_MAX);
        self.partition_streams(side, share, |_, _| true, PartitionWriter::finish_stored)
    }

    /// Partitions the rows of each stream for which `keep` returns true, holding no more than `share` bytes of each.
    fn partition_streams<T: Send>(
        &self,
        side: &JoinSide,
        share: usize,
        keep: impl Fn(&EncodedKeys, usize) -> bool + Sync,
        finish: impl Fn(PartitionWriter) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let partition = |number: usize| {
            let mut writer =
                PartitionWriter::new(side.plan.schema(), self.pass.gather.scratch, share);
            self.pass.read_stream(&side.plan, number, &mut |batch| {
                let keys = side.keys.encode(batch)?;
                writer.push(batch, &keys, |row| keep(&keys, row))
            })?;
            finish(writer)
        };
        parallel_map(self.threads(), side.plan.streams(), &partition)
    }

    /// Looks up the rows of this side, which are not partitioned.
    fn join_in_memory(
        &self,
        own_side: &JoinSide,
        other_side: &JoinSide,
        batches: Vec<RecordBatch>,
        results: &JoinResults<'_>,
    ) -> Result<()> {
        let mut table = JoinTable::with_room(batches.iter().map(RecordBatch::num_rows).sum());
        for batch in batches {
            self.add_rows(&mut table, other_side, batch, results.outputs, |_| true)?;
        }
        if self.checks_here() {
            table.check_met();
        }
        let probed = ProbedTable {
            table: &table,
            outputs: results.outputs,
        };
        let probe = |number: usize| {
            let batches = self.pass.stream_batches(&own_side.plan, number)?;
            results.sorted.add(ProbeRows::new(
                self,
                &own_side.keys,
                probed,
                batches,
                |_| true,
            ))
        };
        parallel_map(self.threads(), own_side.plan.streams(), &probe).map(drop)
    }

    fn add_rows(
        &self,
        table: &mut JoinTable,
        other_side: &JoinSide,
        batch: RecordBatch,
        outputs: &JoinOutputs,
        keep: impl Fn(u64) -> bool,
    ) -> Result<()> {
        let encoded = other_side.keys.encode(&batch)?;
        let refuse =
            |row: usize| duplicate_key_fault(&self.join.other, &other_side.keys.text(&batch, row));
        table.push(
            &other_side.keys,
            encoded,
            outputs.values(&batch)?,
            self.same_keys(),
            keep,
            refuse,
        )
    }

    fn join_partitions(
        &self,
        own_side: &PartitionedSide,
        other_side: &PartitionedSide,
        results: &JoinResults<'_>,
    ) -> Result<()> {
        let needs: Vec<usize> = (0..PARTITIONS)
            .map(|partition| table_bytes_needed(other_side, partition))
            .collect();
        let budget = self.table_bytes();
        let most = needs.iter().copied().max().unwrap_or(0).max(1);
        let threads = (budget / most).clamp(1, self.threads());
        let share = budget / threads;
        let join = |partition: usize| {
            // Keys that have to be unique are looked for twice, so that all rows of a key must be
            // in one table.
            let pieces = match self.same_keys() {
                SameKeys::Refused => needs[partition].div_ceil(share).max(1) as u64,
                SameKeys::Kept | SameKeys::Dropped => 1,
            };
            for piece in 0..pieces {
                let piece = PartitionPiece {
                    partition,
                    pieces,
                    piece,
                    table_bytes: share,
                };
                self.join_piece(own_side, other_side, piece, results)?;
            }
            Ok(())
        };
        parallel_map(threads, PARTITIONS, &join).map(drop)
    }

    /// Joins the keys of a partition that belong to one piece of it. If its rows exceed the share and need not be in one
    /// table, they are taken a block at a time: a key may have more rows than memory.
    fn join_piece(
        &self,
        own_side: &PartitionedSide,
        other_side: &PartitionedSide,
        partition_piece: PartitionPiece,
        results: &JoinResults<'_>,
    ) -> Result<()> {
        // Other bits than those that choose the partition.
        let keep = |hash: u64| {
            partition_piece.pieces == 1
                || (hash >> 46) % partition_piece.pieces == partition_piece.piece
        };
        let read = |stored: &[StoredPartitions]| -> Result<BatchIter> {
            let streams = stored
                .iter()
                .map(|stored| stored.read(partition_piece.partition))
                .collect::<Result<Vec<_>>>()?;
            Ok(Box::new(streams.into_iter().flatten()))
        };
        let rows_of_partition: u64 = other_side
            .stored
            .iter()
            .map(|stored| stored.sizes[partition_piece.partition].rows)
            .sum();
        let rows_of_piece = rows_of_partition.div_ceil(partition_piece.pieces) as usize;
        let mut rows = read(&other_side.stored)?;
        let mut is_first = true;
        let mut matched = Vec::new();
        loop {
            let mut table =
                JoinTable::with_room(rows_of_piece.min(partition_piece.table_bytes / ENTRY_BYTES));
            let mut has_more = false;
            for batch in rows.by_ref() {
                self.add_rows(&mut table, &other_side.side, batch?, results.outputs, keep)?;
                self.pass.gather.context.memory.check()?;
                self.pass.check_cancelled()?;
                if self.same_keys() != SameKeys::Refused
                    && table.bytes() > partition_piece.table_bytes
                {
                    has_more = true;
                    break;
                }
            }
            if self.checks_here() {
                table.check_met();
            }
            let probed = ProbedTable {
                table: &table,
                outputs: results.outputs,
            };
            let mut probe = ProbeRows::new(
                self,
                &own_side.side.keys,
                probed,
                read(&own_side.stored)?,
                keep,
            );
            if !is_first || has_more {
                probe.remember_matches(&mut matched, !has_more);
            }
            results.sorted.add(probe)?;
            if !has_more {
                return Ok(());
            }
            is_first = false;
        }
    }

    /// The fault of the join, at its step.
    fn place(&self, fault: Fault) -> Fault {
        let op = &self.pass.gather.context.program.bound.ops[self.op];
        fault.step(&op.label).at(op.at.as_ref())
    }
}

/// Sorts outputs back to the order of rows: a sorter for each thread that joins.
struct OutputSorters<'a> {
    scratch: &'a ScratchDir,
    order: SortSpec,
    budget_bytes: usize,
    threads: usize,
    idle: Mutex<Vec<SpillingSorter>>,
}

impl<'a> OutputSorters<'a> {
    fn new(join: &HashJoin<'a>, schema: &SchemaRef) -> OutputSorters<'a> {
        let MaterializePass {
            scratch, context, ..
        } = join.pass.gather;
        let order = join.order(schema);
        let idle = Mutex::default();
        OutputSorters {
            scratch,
            order,
            budget_bytes: context.memory.engine_bytes() / 2,
            threads: context.threads.max(1),
            idle,
        }
    }

    fn add(&self, outputs: impl Iterator<Item = Result<RecordBatch>>) -> Result<()> {
        let idle = lock(&self.idle)?.pop();
        let mut sorter = match idle {
            Some(sorter) => sorter,
            None => {
                let share = self.budget_bytes / self.threads;
                SpillingSorter::new(&self.order, self.scratch, share)?.one_of(self.threads)
            }
        };
        for batch in outputs {
            sorter.push(&batch?)?;
        }
        lock(&self.idle)?.push(sorter);
        Ok(())
    }

    fn merge(self) -> Result<BatchIter> {
        let sorters = self.idle.into_inner().map_err(|_| poisoned_lock())?;
        let sorters: Vec<Mutex<Option<SpillingSorter>>> = sorters
            .into_iter()
            .map(|sorter| Mutex::new(Some(sorter)))
            .collect();
        let finish = |number: usize| match lock(&sorters[number])?.take() {
            Some(sorter) => sorter.finish(),
            None => Ok(Vec::new()),
        };
        let runs = parallel_map(self.threads, sorters.len(), &finish)?;
        merge_runs(
            &self.order,
            runs.into_iter().flatten().collect(),
            self.scratch,
            self.budget_bytes,
        )
    }
}

/// The rows of the other side.
enum Sides {
    Held(Vec<RecordBatch>),
    Stored(Vec<StoredPartitions>),
}

/// Bytes of a table of all rows of a partition.
fn table_bytes_needed(side: &PartitionedSide, partition: usize) -> usize {
    let mut rows = 0;
    let mut bytes = 0;
    for stored in &side.stored {
        rows += stored.sizes[partition].rows;
        bytes += stored.sizes[partition].bytes;
    }
    // A row, its encoded key and its entry.
    (bytes + bytes / 2) as usize + rows as usize * ENTRY_BYTES
}
