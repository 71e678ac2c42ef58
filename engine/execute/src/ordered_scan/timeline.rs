//! The spans of a pass in order, and how far back the rows lie that affect each of them.

use forebay_commit::StateStore;
use forebay_model::{ColumnExtent, ContentId, IdBuilder, Result};
use forebay_plan::{
    ChainWindow, ColumnScan, OpChain, OpStream, PlanOp, WindowRowOrder, base_column, span_extents,
};
use forebay_storage::ScratchDir;
use forebay_window::WindowReach;

use super::OrderedScan;
use crate::chunk_source::SpanRef;
use crate::halo::HaloIndex;
use crate::span_index::{SpanDependency, SpanIndex, WorkUnit};

/// The spans of a pass in order, with the ids of their contents.
pub struct SpanTimeline {
    pub tasks: Vec<SpanRef>,
    pub history: SpanIndex,
}

/// The work units of a pass that are to be executed, and where their window states are kept.
#[derive(Clone, Copy)]
pub struct PendingUnits<'a> {
    pub line: &'a SpanTimeline,
    /// Id of the operation on the rows of each span.
    pub operation: ContentId,
    pub store: &'a StateStore,
    pub scratch: &'a ScratchDir,
    pub units: &'a [WorkUnit],
}

impl SpanTimeline {
    /// True if the output of a span depends on all spans before it.
    pub fn needs_all(&self) -> bool {
        matches!(self.history.past, SpanDependency::Everything)
    }
}

impl OrderedScan<'_> {
    /// All spans in order, with their ids.
    pub fn timeline(&self) -> Result<SpanTimeline> {
        let tasks = self.span_refs()?;
        let digests = self.context.span_digests(self.scans)?;
        let mut past = SpanDependency::Nothing;
        if self.is_ordered() {
            past = match self.halo_index(&tasks)? {
                Some(halos) => SpanDependency::Halos(halos),
                None => SpanDependency::Everything,
            };
        }
        let mut joined = Vec::new();
        for chain in &self.chains {
            for window in chain.windows() {
                joined.extend(self.context.state.joined_spans(window, tasks.len()));
            }
        }
        let history = SpanIndex::new(digests, past, self.sorted_id()).with_joined(joined);
        Ok(SpanTimeline { history, tasks })
    }

    /// The id of the windows with sorted rows, which may depend on spans behind them; `None` without such windows.
    fn sorted_id(&self) -> Option<ContentId> {
        let mut id = IdBuilder::new("ways");
        let mut has_sorted = false;
        for chain in &self.chains {
            for window in chain.windows() {
                if window.row_order == WindowRowOrder::Sorted {
                    id.bytes(&window.op.to_le_bytes());
                    has_sorted = true;
                }
            }
        }
        has_sorted.then(|| id.finish())
    }

    /// Finds the checkpoint of the window state before a span: its id and its bytes.
    pub fn find_checkpoint<'k>(
        &self,
        pending: &PendingUnits<'k>,
    ) -> impl Fn(usize) -> Result<Option<(ContentId, u64)>> + use<'k> {
        let has_windows = self.checkpointed_windows().is_some();
        let PendingUnits {
            line,
            operation,
            store,
            ..
        } = *pending;
        move |task| {
            let id = line.history.carry_id(operation, task);
            let bytes = if has_windows {
                store.carry_bytes(id)?
            } else {
                None
            };
            Ok(bytes.map(|bytes| (id, bytes)))
        }
    }

    /// The spans that affect each other; `None` if all may, or if the statistics of the spans do
    /// not decide it.
    fn halo_index(&self, tasks: &[SpanRef]) -> Result<Option<HaloIndex>> {
        // Future rows continue the history, through the same windows.
        if self.scans.len() > 1 && self.first_scan == 0 {
            return Ok(None);
        }
        let mut column: Option<(String, WindowRowOrder)> = None;
        let mut reaches = Vec::new();
        for (scan, chain) in self.scans.iter().zip(&self.chains) {
            match self.scan_reach(scan, chain, &mut column)? {
                Some(reach) => reaches.push(reach),
                None => return Ok(None),
            }
        }
        let are_alike = reaches.windows(2).all(|pair| pair[0] == pair[1]);
        if !are_alike {
            return Ok(None);
        }
        let Some(WindowReach::Ticks(distances)) = reaches.pop() else {
            return Ok(None);
        };
        let Some((column, _)) = column else {
            return Ok(None);
        };
        let mut extents: Vec<ColumnExtent> = Vec::with_capacity(tasks.len());
        for scan in self.scans {
            let dataset = &self.context.input(scan.base)?.dataset;
            let Some(scan_extents) = span_extents(dataset, &column) else {
                return Ok(None);
            };
            extents.extend(scan_extents);
        }
        // The order of the spans has not been checked where rows come in order of keys.
        let is_ascending = extents.windows(2).all(|pair| pair[0].max <= pair[1].min);
        Ok(is_ascending.then(|| HaloIndex::new(extents, distances)))
    }

    /// Combined reach of the windows of a scan, and the column that measures the distance, which
    /// all scans share. `None` where they reach all rows, or where no base column measures the
    /// distance.
    fn scan_reach(
        &self,
        scan: &ColumnScan,
        chain: &OpChain,
        column: &mut Option<(String, WindowRowOrder)>,
    ) -> Result<Option<WindowReach>> {
        let bound = &self.context.program.bound;
        let mut reach = WindowReach::same_time();
        let [stream] = scan.streams.as_slice() else {
            return Ok(None);
        };
        for ChainWindow {
            op,
            row_order,
            plan,
            ..
        } in chain.windows()
        {
            let PlanOp::Window(window) = &bound.ops[*op].op else {
                continue;
            };
            let Some(plan) = plan else {
                continue;
            };
            let by = match (row_order, plan.reach()) {
                (WindowRowOrder::Sorted, _) => continue,
                // The reaches of windows over windows add up.
                (WindowRowOrder::Time, WindowReach::Unbounded) => return Ok(None),
                (WindowRowOrder::Time, window_reach) => {
                    reach = reach.compose(window_reach);
                    &window.time
                }
                (WindowRowOrder::Key, _) => match window.keys.first() {
                    Some(key) => key,
                    None => return Ok(None),
                },
            };
            let mut ops = stream.stream.ops.iter();
            let position = ops.position(|other_op| other_op == op).unwrap_or(0);
            let stream_before = OpStream {
                base: scan.base,
                ops: stream.stream.ops.first(position),
            };
            let Some(base) = base_column(bound, &stream_before, by) else {
                return Ok(None);
            };
            let measured = (base, *row_order);
            if *column.get_or_insert(measured.clone()) != measured {
                return Ok(None);
            }
        }
        Ok(Some(reach))
    }
}
