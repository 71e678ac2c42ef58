//! Reads the outputs of a shuffle. Workers computed outputs for the rows of some keys each; this restores the order of
//! all rows, one group of spans at a time.

use std::collections::VecDeque;
use std::fmt;
use std::io::BufReader;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, ident};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::streaming::PartitionStream;
use forebay_cluster::ShufflePlan;
use forebay_commit::StateStore;
use forebay_model::{ContentId, Fault, Result, codes};
use forebay_plan::{GatherOp, MatchDirection, PlanOp, PrecomputedOutputs};
use forebay_threads::lock;

use crate::materialize::{batch_stream, one_time_table};
use crate::restore_order::RestoreOrder;
use crate::sorted_file::SortedFile;
use crate::sorted_outputs::SortedOutputs;
use crate::sorted_pass::SortedPass;

/// The outputs of one of the windows of a shuffle.
pub struct ShuffleReader {
    groups: Arc<RestoredGroups>,
    /// Range of its columns among those of all windows.
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
        let shared_sort = shuffle.shared_sort();
        let flow = pass.flow(&shared_sort)?;
        let schema = pass.schema(&shared_sort)?;
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
        let firsts = back.stream_offsets();
        let latest = Mutex::default();
        let most = pass.gather.context.threads.max(1);
        let shuffle = shuffle.clone();
        let store = store.clone();
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
            .output_columns(&shared_sort)?
            .into_iter()
            .map(|columns| ShuffleReader {
                groups: groups.clone(),
                columns,
            })
            .collect())
    }
}

impl SortedOutputs for ShuffleReader {
    fn read(self: Arc<Self>, stream: usize, span: usize) -> Result<Box<dyn PrecomputedOutputs>> {
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
        if let Some((_, sorted)) = latest
            .iter()
            .find(|(cached_group, _)| *cached_group == group)
        {
            return Ok(sorted.clone());
        }
        latest.truncate(self.most - 1);
        let sorted = self.put_back(group)?;
        latest.push_front((group, sorted.clone()));
        Ok(sorted)
    }

    fn put_back(&self, group: usize) -> Result<SortedFile> {
        let layers = (0..self.layers)
            .map(|layer| self.read_layer(layer, group))
            .collect::<Result<Vec<_>>>()?;
        let sorted_file = layers.into_iter().reduce(SortedFile::with_other_direction);
        sorted_file.ok_or_else(|| Fault::internal("a shuffle without outputs"))
    }

    /// Puts the outputs of one layer back into the order of the rows.
    fn read_layer(&self, layer: usize, group: usize) -> Result<SortedFile> {
        let mut parts: Vec<Arc<dyn PartitionStream>> = Vec::new();
        for part in 0..self.shuffle.parts {
            parts.push(Arc::new(ShuffleStream {
                store: self.store.clone(),
                of: self.shuffle.id,
                names: vec![ShufflePlan::output_name(layer, group, part)],
                schema: self.back.schema.clone(),
            }));
        }
        let plan = sort_by_row(self.back.schema.clone(), parts);
        let plan = plan.map_err(|error| self.back.fault(error))?;
        self.back.write(plan, false, &AtomicBool::new(false))
    }
}

/// Merges partitions, each of which is sorted by the position of the row.
fn sort_by_row(
    schema: SchemaRef,
    parts: Vec<Arc<dyn PartitionStream>>,
) -> Result<LogicalPlan, DataFusionError> {
    let order = vec![ident(GatherOp::ROW).sort(true, true)];
    let table = StreamingTable::try_new(schema, parts)?.with_sort_order(order.clone());
    let outputs = one_time_table("outputs", table)?;
    LogicalPlanBuilder::from(outputs).sort(order)?.build()
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
        let store = self.store.clone();
        let of = self.of;
        let names = self.names.clone();
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

/// Reads rows that another worker committed; stops when `take` returns false.
pub fn read_shuffled(
    store: &StateStore,
    of: ContentId,
    name: &str,
    take: &mut dyn FnMut(RecordBatch) -> bool,
) -> Result<bool> {
    let mut failed = None;
    let content = store.get_shared(of, name, |input| {
        let mut input = BufReader::with_capacity(1 << 16, input);
        // A worker without rows committed an empty file.
        if std::io::BufRead::fill_buf(&mut input).is_ok_and(<[u8]>::is_empty) {
            return Ok(true);
        }
        for batch in StreamReader::try_new(input, None)? {
            if !take(batch.inspect_err(|error| failed = Some(error.to_string()))?) {
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    content.ok_or_else(|| {
        let fault = lost_exchange(of, name);
        match failed {
            Some(failed) => fault.note(failed),
            None => fault,
        }
    })
}

/// The fault for an exchanged object that is absent or broken.
pub fn lost_exchange(of: ContentId, name: &str) -> Fault {
    let message = format!("rows of a shuffle between workers ({of}/{name}) are gone");
    Fault::new(codes::STORAGE, message).hint("nothing is lost: run the same command again")
}
