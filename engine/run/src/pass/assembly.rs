//! Reads the outputs of a shuffle. Workers computed outputs for the rows of some keys each; this restores the order of
//! all rows, one group of spans at a time.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{LogicalPlanBuilder, ident};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::streaming::PartitionStream;
use forebay_model::{Fault, Id, Result};
use forebay_plan::{Direction, Gather, Given, Op};

use super::exchange::{Exchange, read_stored};
use super::gather::{stream_of, table};
use super::lock;
use super::sorted::{Back, Sorted, SortedPass};
use crate::commit::Store;

/// The outputs of one of the windows of a shuffle.
pub(crate) struct Assembly {
    groups: Arc<Groups>,
    /// Its columns among those of all windows.
    columns: Range<usize>,
}

/// The groups that were restored last.
struct Groups {
    exchange: Exchange,
    store: Store,
    back: Back,
    /// One layer of outputs for each direction of a join.
    layers: usize,
    /// The first span of each stream, among the spans of all streams.
    firsts: Vec<usize>,
    /// One group for each reading thread.
    latest: Mutex<VecDeque<(usize, Sorted)>>,
    most: usize,
}

impl fmt::Debug for Assembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Assembly({}, {:?})", self.groups.exchange.id, self.columns)
    }
}

impl Assembly {
    /// The outputs of each window of a complete shuffle.
    pub fn all(pass: &SortedPass<'_>, store: &Store, exchange: &Exchange) -> Result<Vec<Assembly>> {
        let together = exchange.together();
        let (flow, schema) = (pass.flow(&together)?, pass.schema(&together)?);
        let back = pass.back(exchange.stand, pass.gather.context()?, schema, flow)?;
        let nearest = |op: &Op| matches!(op, Op::AsOf(join) if matches!(join.direction, Direction::Nearest));
        let layers = if nearest(&pass.gather.program.bound.ops[exchange.stand].op) { 2 } else { 1 };
        let (firsts, latest) = (back.firsts(), Mutex::default());
        let most = pass.gather.threads.max(1);
        let (exchange, store) = (exchange.clone(), store.clone());
        let groups = Arc::new(Groups { exchange, store, back, layers, firsts, latest, most });
        Ok(pass.parts(&together)?.into_iter().map(|columns| Assembly { groups: groups.clone(), columns }).collect())
    }

    /// The outputs for the rows of a span of one of the streams that were sorted together.
    pub fn read(&self, stream: usize, span: usize) -> Result<Box<dyn Given>> {
        let task = self.groups.firsts[stream] + span;
        self.groups.of(task)?.part(self.columns.clone())?.read(stream, span)
    }
}

impl Groups {
    /// The outputs of the group that holds a span.
    fn of(&self, task: usize) -> Result<Sorted> {
        let group = self.exchange.groups.partition_point(|end| *end <= task);
        // Threads that need the same group wait for it under this lock.
        let mut latest = lock(&self.latest)?;
        if let Some((_, sorted)) = latest.iter().find(|(known, _)| *known == group) {
            return Ok(sorted.clone());
        }
        latest.truncate(self.most - 1);
        let sorted = self.put_back(group)?;
        latest.push_front((group, sorted.clone()));
        Ok(sorted)
    }

    fn put_back(&self, group: usize) -> Result<Sorted> {
        let layer = |layer: usize| {
            let stored = |part: usize| {
                let (names, schema) = (vec![Exchange::output(layer, group, part)], self.back.schema.clone());
                let stored = Stored { store: self.store.clone(), of: self.exchange.id, names, schema };
                Arc::new(stored) as Arc<dyn PartitionStream>
            };
            let by = || vec![ident(Gather::ROW).sort(true, true)];
            let stored = (0..self.exchange.parts).map(stored).collect();
            let plan = StreamingTable::try_new(self.back.schema.clone(), stored)
                .and_then(|stored| table("outputs", stored.with_sort_order(by())))
                .and_then(|outputs| LogicalPlanBuilder::from(outputs).sort(by())?.build());
            self.back.write(plan.map_err(|error| self.back.fault(error))?, false, &AtomicBool::new(false))
        };
        let layers = (0..self.layers).map(layer).collect::<Result<Vec<_>>>()?;
        let together = layers.into_iter().reduce(Sorted::or_nearer);
        together.ok_or_else(|| Fault::internal("an exchange without outputs"))
    }
}

/// Outputs that workers committed, as a stream.
pub(super) struct Stored {
    pub store: Store,
    /// The id of the shuffle.
    pub of: Id,
    pub names: Vec<String>,
    pub schema: SchemaRef,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stored({}, {:?})", self.of, self.names)
    }
}

impl PartitionStream for Stored {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (store, of, names) = (self.store.clone(), self.of, self.names.clone());
        stream_of(&self.schema, move |send| {
            for name in names {
                if !read_stored(&store, of, &name, send)? {
                    break;
                }
            }
            Ok(())
        })
    }
}
