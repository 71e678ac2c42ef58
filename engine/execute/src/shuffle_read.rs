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
use forebay_cluster::ShufflePlan;
use forebay_commit::StateStore;
use forebay_model::{ContentId, Fault, Result};
use forebay_plan::{GatherOp, MatchDirection, PlanOp, PrecomputedOutputs};
use forebay_threads::lock;

use crate::materialize::{batch_stream, one_time_table};
use crate::restore_order::RestoreOrder;
use crate::shuffle::read_shuffled;
use crate::sorted_outputs::SortedFile;
use crate::sorted_pass::SortedPass;

/// The outputs of one of the windows of a shuffle.
pub struct ShuffleReader {
    groups: Arc<RestoredGroups>,
    /// Its columns among those of all windows.
    columns: Range<usize>,
}

/// The groups that were restored last.
struct RestoredGroups {
    shuffle: ShufflePlan,
    store: StateStore,
    back: RestoreOrder,
    /// One layer of outputs for each direction of a join.
    layers: usize,
    /// The first span of each stream, among the spans of all streams.
    firsts: Vec<usize>,
    /// One group for each reading thread.
    latest: Mutex<VecDeque<(usize, SortedFile)>>,
    most: usize,
}

impl fmt::Debug for ShuffleReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Assembly({}, {:?})",
            self.groups.shuffle.id, self.columns
        )
    }
}

impl ShuffleReader {
    /// The outputs of each window of a complete shuffle.
    pub fn open_all(
        pass: &SortedPass<'_>,
        store: &StateStore,
        shuffle: &ShufflePlan,
    ) -> Result<Vec<ShuffleReader>> {
        let together = shuffle.shared_sort();
        let (flow, schema) = (pass.flow(&together)?, pass.schema(&together)?);
        let back =
            pass.restore_order(shuffle.stand, pass.gather.engine_context()?, schema, flow)?;
        let as_of = match &pass.gather.context.program.bound.ops[shuffle.stand].op {
            PlanOp::Join(join) => join.as_of(),
            _ => None,
        };
        let layers = if as_of.is_some_and(|as_of| as_of.direction == MatchDirection::Nearest) {
            2
        } else {
            1
        };
        let (firsts, latest) = (back.stream_offsets(), Mutex::default());
        let most = pass.gather.context.threads.max(1);
        let (shuffle, store) = (shuffle.clone(), store.clone());
        let groups = Arc::new(RestoredGroups {
            shuffle,
            store,
            back,
            layers,
            firsts,
            latest,
            most,
        });
        Ok(pass
            .output_columns(&together)?
            .into_iter()
            .map(|columns| ShuffleReader {
                groups: groups.clone(),
                columns,
            })
            .collect())
    }

    /// The outputs for the rows of a span of one of the streams that were sorted together.
    pub fn read(&self, stream: usize, span: usize) -> Result<Box<dyn PrecomputedOutputs>> {
        let task = self.groups.firsts[stream] + span;
        self.groups
            .of(task)?
            .select_columns(self.columns.clone())?
            .read(stream, span)
    }
}

impl RestoredGroups {
    /// The outputs of the group that holds a span.
    fn of(&self, task: usize) -> Result<SortedFile> {
        let group = self.shuffle.groups.partition_point(|end| *end <= task);
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

    fn put_back(&self, group: usize) -> Result<SortedFile> {
        let layer = |layer: usize| {
            let stored = |part: usize| {
                let (names, schema) = (
                    vec![ShufflePlan::output_name(layer, group, part)],
                    self.back.schema.clone(),
                );
                let stored = ShuffleStream {
                    store: self.store.clone(),
                    of: self.shuffle.id,
                    names,
                    schema,
                };
                Arc::new(stored) as Arc<dyn PartitionStream>
            };
            let by = || vec![ident(GatherOp::ROW).sort(true, true)];
            let stored = (0..self.shuffle.parts).map(stored).collect();
            let plan = StreamingTable::try_new(self.back.schema.clone(), stored)
                .and_then(|stored| one_time_table("outputs", stored.with_sort_order(by())))
                .and_then(|outputs| LogicalPlanBuilder::from(outputs).sort(by())?.build());
            self.back.write(
                plan.map_err(|error| self.back.fault(error))?,
                false,
                &AtomicBool::new(false),
            )
        };
        let layers = (0..self.layers).map(layer).collect::<Result<Vec<_>>>()?;
        let together = layers.into_iter().reduce(SortedFile::with_other_direction);
        together.ok_or_else(|| Fault::internal("a shuffle without outputs"))
    }
}

/// Outputs that workers committed, as a stream.
pub struct ShuffleStream {
    pub store: StateStore,
    /// The id of the shuffle.
    pub of: ContentId,
    pub names: Vec<String>,
    pub schema: SchemaRef,
}

impl fmt::Debug for ShuffleStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stored({}, {:?})", self.of, self.names)
    }
}

impl PartitionStream for ShuffleStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (store, of, names) = (self.store.clone(), self.of, self.names.clone());
        batch_stream(&self.schema, move |send| {
            for name in names {
                if !read_shuffled(&store, of, &name, send)? {
                    break;
                }
            }
            Ok(())
        })
    }
}
