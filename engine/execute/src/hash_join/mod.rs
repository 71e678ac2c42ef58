//! Joins by equal keys, of sides of any size. If the other side fits into its share of the memory, it becomes a hash
//! table, which the rows of this side are looked up in. Else both sides are partitioned by a hash of the key, and are
//! joined one partition after the other. The outputs are sorted back to the order of this side's rows.

mod partitions;
mod probe;
mod table;

use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use forebay_model::{Fault, Result};
use forebay_plan::{GatherOp, JoinBy, JoinOp, OpId, duplicate_key_fault};
use forebay_storage::ScratchDir;
use forebay_storage::failpoint::test_bytes;
use forebay_threads::{lock, parallel_map, poisoned_lock};

use self::partitions::{
    BLOCKS_BYTES_MAX, PARTITIONS, PartitionSize, PartitionWriter, PartitionedRows, StoredPartitions,
};
use self::probe::{JoinOutputs, ProbeRows, ProbedTable};
use self::table::{ENTRY_BYTES, JoinTable, SameKeys};
use crate::external_sort::{BatchIter, SortSpec, SpillingSorter, merge_runs};
use crate::join_keys::{EncodedKeys, JoinKeys};
use crate::materialize::MaterializePass;
use crate::sorted_pass::{OpenedPlan, SortedPass};

/// Column with the position of the other side's row, where rows multiply.
const MATCH: &str = "__match";

/// A join by equal keys.
pub struct HashJoin<'a> {
    pub pass: &'a SortedPass<'a>,
    pub op: OpId,
    pub join: &'a JoinOp,
    /// The keys of this side, in the types in which they are compared.
    pub keys: &'a [(String, DataType)],
    /// Those of the other side.
    pub other_keys: &'a [(String, DataType)],
    /// What comes out for a row.
    pub rows: RowsPerMatch,
}

/// The rows that come out for a row of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsPerMatch {
    /// One, with nulls where nothing matches.
    One,
    /// One for each match; `unmatched` tells whether a row without a match stays, with nulls.
    Each { unmatched: bool },
}

/// The outputs of a join of which each row has one: the flag, the columns, the row's position.
pub fn join_schema(join: &JoinOp) -> SchemaRef {
    let outputs = join.writes().map(|field| field.clone().with_nullable(true));
    Arc::new(Schema::new(
        outputs
            .chain([Field::new(GatherOp::ROW, DataType::UInt64, false)])
            .collect::<Vec<_>>(),
    ))
}

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

/// Where the outputs of a join go.
struct JoinResults<'a> {
    outputs: &'a JoinOutputs,
    sorted: &'a OutputSorters<'a>,
}

impl HashJoin<'_> {
    /// The outputs in the order of rows.
    pub fn run(&self, here: &LogicalPlan, there: &LogicalPlan) -> Result<BatchIter> {
        let side = |plan: &LogicalPlan, keys: &[(String, DataType)]| -> Result<JoinSide> {
            let plan = self.pass.open_plan(self.op, plan)?;
            let keys = JoinKeys::new(plan.schema(), keys)?;
            Ok(JoinSide { plan, keys })
        };
        let (here, there) = (side(here, self.keys)?, side(there, self.other_keys)?);
        let outputs = JoinOutputs::new(self, there.plan.schema())?;
        let sorted = OutputSorters::new(self, &outputs.schema);
        let results = JoinResults {
            outputs: &outputs,
            sorted: &sorted,
        };
        match self.partition(&there, self.table_bytes() / 2)? {
            Sides::Held(batches) => self.join_in_memory(&here, &there, batches, &results)?,
            Sides::Stored(stored) => {
                let left = PartitionedSide {
                    stored: self.partition_all(&here)?,
                    side: here,
                };
                self.join_partitions(
                    &left,
                    &PartitionedSide {
                        stored,
                        side: there,
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
                .map(|place| (place, SortOptions::default()))
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
            let held = rows.into_iter().flat_map(|rows| match rows {
                PartitionedRows::Held(batches) => batches,
                PartitionedRows::Stored(_) => Vec::new(),
            });
            return Ok(Sides::Held(held.collect()));
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
        here: &JoinSide,
        there: &JoinSide,
        batches: Vec<RecordBatch>,
        results: &JoinResults<'_>,
    ) -> Result<()> {
        let mut table = JoinTable::with_room(batches.iter().map(RecordBatch::num_rows).sum());
        for batch in batches {
            self.add_rows(&mut table, there, batch, results.outputs, |_| true)?;
        }
        if self.checks_here() {
            table.check_met();
        }
        let probed = ProbedTable {
            table: &table,
            outputs: results.outputs,
        };
        let probe = |number: usize| {
            let batches = self.pass.stream_batches(&here.plan, number)?;
            results
                .sorted
                .add(ProbeRows::new(self, &here.keys, probed, batches, |_| true))
        };
        parallel_map(self.threads(), here.plan.streams(), &probe).map(drop)
    }

    fn add_rows(
        &self,
        table: &mut JoinTable,
        there: &JoinSide,
        batch: RecordBatch,
        outputs: &JoinOutputs,
        keep: impl Fn(u64) -> bool,
    ) -> Result<()> {
        let encoded = there.keys.encode(&batch)?;
        let refuse =
            |row: usize| duplicate_key_fault(&self.join.other, &there.keys.text(&batch, row));
        table.push(
            &there.keys,
            encoded,
            outputs.values(&batch)?,
            self.same_keys(),
            keep,
            refuse,
        )
    }

    fn join_partitions(
        &self,
        here: &PartitionedSide,
        there: &PartitionedSide,
        results: &JoinResults<'_>,
    ) -> Result<()> {
        let need = |part: usize| {
            let size = there
                .stored
                .iter()
                .fold(PartitionSize::default(), |sum, stored| PartitionSize {
                    rows: sum.rows + stored.sizes[part].rows,
                    bytes: sum.bytes + stored.sizes[part].bytes,
                });
            // A row, its encoded key and its entry.
            (size.bytes + size.bytes / 2) as usize + size.rows as usize * ENTRY_BYTES
        };
        let needs: Vec<usize> = (0..PARTITIONS).map(need).collect();
        let budget = self.table_bytes();
        let most = needs.iter().copied().max().unwrap_or(0).max(1);
        let threads = (budget / most).clamp(1, self.threads());
        let share = budget / threads;
        let join = |part: usize| {
            // Keys that have to be unique are looked for twice, so that all rows of a key must be in one table.
            let pieces = match self.same_keys() {
                SameKeys::Refused => needs[part].div_ceil(share).max(1) as u64,
                SameKeys::Kept | SameKeys::Dropped => 1,
            };
            let piece = |piece| PartitionPiece {
                partition: part,
                pieces,
                piece,
                table_bytes: share,
            };
            (0..pieces)
                .map(piece)
                .try_for_each(|piece| self.join_piece(here, there, piece, results))
        };
        parallel_map(threads, PARTITIONS, &join).map(drop)
    }

    /// Joins the keys of a partition that belong to one piece of it. If its rows exceed the share and need not be in one
    /// table, they are taken a block at a time: a key may have more rows than memory.
    fn join_piece(
        &self,
        here: &PartitionedSide,
        there: &PartitionedSide,
        own: PartitionPiece,
        results: &JoinResults<'_>,
    ) -> Result<()> {
        // Other bits than those that choose the partition.
        let keep = |hash: u64| own.pieces == 1 || (hash >> 46) % own.pieces == own.piece;
        let read = |stored: &[StoredPartitions]| -> Result<BatchIter> {
            let streams = stored
                .iter()
                .map(|stored| stored.read(own.partition))
                .collect::<Result<Vec<_>>>()?;
            Ok(Box::new(streams.into_iter().flatten()))
        };
        let rows_of_partition: u64 = there
            .stored
            .iter()
            .map(|stored| stored.sizes[own.partition].rows)
            .sum();
        let rows_of_piece = rows_of_partition.div_ceil(own.pieces) as usize;
        let mut rows = read(&there.stored)?;
        let mut is_first = true;
        let mut matched = Vec::new();
        loop {
            let mut table = JoinTable::with_room(rows_of_piece.min(own.table_bytes / ENTRY_BYTES));
            let mut more = false;
            for batch in rows.by_ref() {
                self.add_rows(&mut table, &there.side, batch?, results.outputs, keep)?;
                self.pass.gather.context.memory.check()?;
                self.pass.check_cancelled()?;
                if self.same_keys() != SameKeys::Refused && table.bytes() > own.table_bytes {
                    more = true;
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
            let mut probe =
                ProbeRows::new(self, &here.side.keys, probed, read(&here.stored)?, keep);
            if !is_first || more {
                probe.remember_matches(&mut matched, !more);
            }
            results.sorted.add(probe)?;
            if !more {
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
        let (order, idle) = (join.order(schema), Mutex::default());
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
                SpillingSorter::new(&self.order, self.scratch, self.budget_bytes / self.threads)?
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
