//! The spans of a pass in order, and how far back the rows lie that affect each of them.

use forebay_model::{ColumnExtent, ContentId, IdBuilder, Result};
use forebay_plan::{
    ChainWindow, ColumnScan, OpChain, OpId, OpStream, PlanOp, WindowRowOrder, base_column,
    span_extents,
};
use forebay_window::WindowReach;

use super::{OrderedScan, PendingUnits, SpanRef};
use crate::halo::HaloIndex;
use crate::span_index::{SpanDependency, SpanIndex};

/// The spans of a pass in order, with the ids of their contents.
pub struct SpanTimeline {
    pub tasks: Vec<SpanRef>,
    pub history: SpanIndex,
}

impl SpanTimeline {
    /// Whether the output of a span depends on all spans before it.
    pub fn needs_all(&self) -> bool {
        matches!(self.history.past, SpanDependency::Everything)
    }
}

impl OrderedScan<'_> {
    /// All spans in order, with their ids.
    pub fn timeline(&self) -> Result<SpanTimeline> {
        let tasks = self.span_refs()?;
        let digests = self.context.span_digests(self.scans)?;
        let past = match self.is_ordered() {
            true => self
                .halo_index(&tasks)?
                .map_or(SpanDependency::Everything, SpanDependency::Halos),
            false => SpanDependency::Nothing,
        };
        // Sorted rows may depend on spans behind them.
        let windows = self.chains.iter().flat_map(|chain| chain.windows());
        let sorted: Vec<OpId> = windows
            .filter(|window| window.row_order == WindowRowOrder::Sorted)
            .map(|window| window.op)
            .collect();
        let sorted = (!sorted.is_empty()).then(|| {
            let mut id = IdBuilder::new("ways");
            sorted.iter().for_each(|op| {
                id.bytes(&op.to_le_bytes());
            });
            id.finish()
        });
        let windows = self.chains.iter().flat_map(|chain| chain.windows());
        let joins = windows.filter_map(|window| self.context.state.time_join(window));
        let joined = joins.map(|join| join.joined_spans(tasks.len())).collect();
        Ok(SpanTimeline {
            history: SpanIndex::new(digests, past, sorted).with_joined(joined),
            tasks,
        })
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

    /// The spans that affect each other; `None` where all may, or where the statistics of the spans do not tell.
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
        let same = reaches.windows(2).all(|pair| pair[0] == pair[1]);
        let Some(reach) = reaches.pop().filter(|_| same) else {
            return Ok(None);
        };
        let (Some((column, _)), WindowReach::Ticks(distances)) = (column, reach) else {
            return Ok(None);
        };
        let mut extents: Vec<ColumnExtent> = Vec::with_capacity(tasks.len());
        for scan in self.scans {
            let dataset = &self.context.input(scan.base)?.dataset;
            let Some(own) = span_extents(dataset, &column) else {
                return Ok(None);
            };
            extents.extend(own);
        }
        // The order of the spans has not been checked where rows come in order of keys.
        let follow = extents.windows(2).all(|pair| pair[0].max <= pair[1].min);
        Ok(follow.then(|| HaloIndex::new(extents, distances)))
    }

    /// How far the windows of a scan reach together, and the column that measures the distance, which all scans share.
    /// `None` where they reach all rows, or where no base column measures the distance.
    fn scan_reach(
        &self,
        scan: &ColumnScan,
        chain: &OpChain,
        column: &mut Option<(String, WindowRowOrder)>,
    ) -> Result<Option<WindowReach>> {
        let mut reach = WindowReach::same_time();
        let [stream] = scan.streams.as_slice() else {
            return Ok(None);
        };
        for ChainWindow {
            op,
            row_order,
            plan,
        } in chain.windows()
        {
            let (PlanOp::Window(window), Some(plan)) =
                (&self.context.program.bound.ops[*op].op, plan)
            else {
                continue;
            };
            let by = match (row_order, plan.reach()) {
                (WindowRowOrder::Sorted, _) => continue,
                // The reaches of windows over windows add up.
                (WindowRowOrder::Time, WindowReach::Unbounded) => return Ok(None),
                (WindowRowOrder::Time, own) => {
                    reach = reach.compose(own);
                    &window.time
                }
                (WindowRowOrder::Key, _) => match window.keys.first() {
                    Some(key) => key,
                    None => return Ok(None),
                },
            };
            let position = stream
                .stream
                .ops
                .iter()
                .position(|known| known == op)
                .unwrap_or(0);
            let before = OpStream {
                base: scan.base,
                ops: stream.stream.ops[..position].to_vec(),
            };
            let Some(base) = base_column(&self.context.program.bound, &before, by) else {
                return Ok(None);
            };
            if *column.get_or_insert((base.clone(), *row_order)) != (base, *row_order) {
                return Ok(None);
            }
        }
        Ok(Some(reach))
    }
}
