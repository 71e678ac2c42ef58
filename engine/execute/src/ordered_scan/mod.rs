//! The rows of a pass in order: spans one after another, read through chains of operations whose windows remember the
//! rows before.

mod ranges;
mod read;
mod relay;
mod run;
mod timeline;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_model::{Chunk, Fault, Result};
use forebay_plan::{Carry, ColumnScan, OpChain, OpId, WindowRowOrder};
use forebay_window::WindowPlan;

pub use self::ranges::{ADVANCE_SHARE, PartitionStrategy, RangePlan, lane_of_range};
pub use self::relay::WindowRestore;
pub use self::run::{CheckpointHook, RangeExecution, UnitResults};
pub use self::timeline::{PendingUnits, SpanTimeline};
use crate::chunk_groups::ChunkGroups;
use crate::chunk_source::{RangeReader, ReadMode, SpanRef};
use crate::pass_context::PassContext;
use crate::read_ahead::ReadAhead;
use crate::run_state::{group_bytes_max, group_rows_max};

/// The window state, and the source of the next rows.
pub struct ScanCursor<'g> {
    pub carry: &'g mut Carry,
    pub reads: &'g dyn RangeReader,
}

/// Receives consecutive chunks of a scan.
pub type ScanChunksFn<'f> = &'f mut dyn FnMut(usize, &[Chunk], &mut Carry) -> Result<()>;

/// The scans of a pass with their chains, as one sequence of rows.
pub struct OrderedScan<'a> {
    pub context: PassContext<'a>,
    pub scans: &'a [ColumnScan],
    /// The first scan whose rows count. The scans before it only warm up window state.
    pub first_scan: usize,
    pub chains: Vec<&'a OpChain>,
    /// Share of the computation on its rows that a range does itself if idle threads take over the
    /// rest.
    pub computing: f64,
    /// The spans that are read next.
    pub ahead: ReadAhead<(SpanRef, ReadMode)>,
}

impl OrderedScan<'_> {
    /// All spans in order.
    pub fn span_refs(&self) -> Result<Vec<SpanRef>> {
        let mut tasks = Vec::new();
        for (index, scan) in self.scans.iter().enumerate() {
            let spans = self.context.input(scan.base)?.dataset.spans.len();
            tasks.extend((0..spans).map(|span| SpanRef { scan: index, span }));
        }
        Ok(tasks)
    }

    /// True if the output of a row depends on the rows before it.
    pub fn is_ordered(&self) -> bool {
        self.chains.iter().any(|chain| chain.is_ordered())
    }

    /// The windows whose state is checkpointed; `None` where there are none, or where the rows of some do not come in
    /// order of time. As-of joins in order of time keep their own states.
    pub fn checkpointed_windows(&self) -> Option<BTreeMap<OpId, Arc<WindowPlan>>> {
        let mut windows = BTreeMap::new();
        for chain in &self.chains {
            for window in chain.windows() {
                if window.row_order != WindowRowOrder::Time {
                    return None;
                }
                if let Some(plan) = &window.plan {
                    windows.insert(window.op, plan.clone());
                }
            }
        }
        (!windows.is_empty()).then_some(windows)
    }

    /// Attaches the outputs of sorted windows to the rows of a span.
    pub fn attach_sorted(&self, task: SpanRef, carry: &mut Carry) -> Result<()> {
        let Some(stream) = self.scans[task.scan].streams.first() else {
            return Err(Fault::internal("a scan without a stream"));
        };
        let chain = self.chains[task.scan];
        for sorted in self.context.sorted_for(&stream.stream, chain)? {
            sorted.attach(task.span, carry)?;
        }
        Ok(())
    }

    /// Advances the window state over the rows of some spans; false if the pass was stopped.
    pub fn advance_over(
        &self,
        tasks: &[SpanRef],
        cursor: ScanCursor<'_>,
        stop: &AtomicBool,
    ) -> Result<bool> {
        self.for_each_chunk_group(
            tasks,
            ReadMode::Remembered,
            cursor,
            stop,
            &mut |scan, chunks, carry| {
                let advanced = self.chains[scan].advance(chunks, carry);
                advanced.map_err(|fault| self.context.state.record_order_failure(carry, fault))?;
                self.context.memory.check()
            },
        )
    }

    /// Passes the chunks of some spans to `take`, with their scans, in groups; false if the pass was stopped.
    pub fn for_each_chunk_group(
        &self,
        tasks: &[SpanRef],
        columns: ReadMode,
        cursor: ScanCursor<'_>,
        stop: &AtomicBool,
        take: ScanChunksFn<'_>,
    ) -> Result<bool> {
        let ScanCursor { carry, reads } = cursor;
        let context = &self.context;
        for tasks in tasks.chunk_by(|task, next| task.scan == next.scan) {
            let scan = tasks[0].scan;
            let chain = self.chains[scan];
            let batch_rows = self.chunk_rows_max(chain);
            let groups = ChunkGroups {
                tasks,
                rows_max: group_rows_max(batch_rows, chain, context.memory, context.threads),
                bytes_max: group_bytes_max(context.memory, context.threads),
                stop,
                memory: context.memory,
            };
            let whole = groups.for_each(
                carry,
                &mut |task, carry| {
                    self.attach_sorted(*task, carry)?;
                    reads.chunks(*task, columns)
                },
                &mut |chunks, carry| take(scan, chunks, carry),
            )?;
            if !whole {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn chunk_rows_max(&self, chain: &OpChain) -> usize {
        self.context.chunk_rows_max([chain].into_iter())
    }
}
