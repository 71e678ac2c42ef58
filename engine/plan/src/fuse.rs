//! Fusion of analyzers into write passes.

use crate::lanes::is_continued;
use crate::slice::{SliceTarget, StreamIndexes, slice_stream};
use crate::{AnalyzerId, BoundPipeline, ColumnScan, PlanOp, ScanStream, SinkWork};

/// The scan of a sink that also feeds analyzers. It includes those of `analyzers` whose
/// operations the written stream already runs, except for additional maps. Analyzers that need row
/// keys are excluded. `None` if no analyzer qualifies.
pub fn fuse_learn_into_write(
    bound: &BoundPipeline,
    work: &SinkWork,
    analyzers: impl IntoIterator<Item = AnalyzerId>,
) -> Option<ColumnScan> {
    let [scan] = work.scans.as_slice() else {
        return None;
    };
    let [written_scan] = scan.streams.as_slice() else {
        return None;
    };
    let written = written_scan.stream.ops.len();
    let mut stream = written_scan.stream.clone();
    let mut taps = Vec::new();
    let mut indexes = StreamIndexes::default();
    for analyzer in analyzers {
        let bound_analyzer = &bound.asks[analyzer];
        let [learned_stream] = bound_analyzer.streams.as_slice() else {
            continue;
        };
        let is_there = |position: &usize| match &bound.ops[learned_stream.ops[*position]].op {
            PlanOp::Map(_) => true,
            _ => *position < written && written_scan.needed.binary_search(position).is_ok(),
        };
        let needs_keys = bound_analyzer.ask.analyzer.needs_row_keys();
        if needs_keys || !is_continued(learned_stream, &stream) {
            continue;
        }
        let op_count = learned_stream.ops.len();
        let target = bound_analyzer.slice_target(op_count);
        let slice = indexes.of(bound, learned_stream).slice(&[target]);
        if slice.ops.iter().all(is_there) {
            taps.push((analyzer, op_count));
            if op_count > stream.ops.len() {
                stream = learned_stream.clone();
            }
        }
    }
    let columns = work
        .columns
        .iter()
        .chain(&work.part)
        .map(String::as_str)
        .collect();
    let tap_targets = taps
        .iter()
        .map(|(analyzer, position)| bound.asks[*analyzer].slice_target(*position));
    let targets: Vec<SliceTarget<'_>> = tap_targets
        .chain([SliceTarget {
            after: written,
            columns,
        }])
        .collect();
    let slice = slice_stream(bound, &stream, &targets);
    let streams = vec![ScanStream {
        stream,
        needed: slice.ops,
        taps,
    }];
    (!streams[0].taps.is_empty()).then_some(ColumnScan {
        base: scan.base,
        columns: slice.columns,
        streams,
    })
}
