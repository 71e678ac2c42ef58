//! Fusion of analyzers into write passes.

use crate::program::{ColumnScan, ScanStream, SinkWork};
use crate::slice::{SliceTarget, slice_stream};
use crate::{AnalyzerId, BoundPipeline, PlanOp};

/// The scan of a sink that also feeds analyzers. It includes those of `asks` whose operations the written stream
/// already runs, except for additional maps. Analyzers that need row keys are excluded. `None` if no analyzer
/// qualifies.
pub fn fuse_learn_into_write(
    bound: &BoundPipeline,
    work: &SinkWork,
    asks: impl IntoIterator<Item = AnalyzerId>,
) -> Option<ColumnScan> {
    let [scan] = work.scans.as_slice() else {
        return None;
    };
    let [own] = scan.streams.as_slice() else {
        return None;
    };
    let written = own.stream.ops.len();
    let (mut stream, mut taps) = (own.stream.clone(), Vec::new());
    for ask in asks {
        let question = &bound.asks[ask];
        let [asked] = question.streams.as_slice() else {
            continue;
        };
        let both = asked.ops.len().min(stream.ops.len());
        let is_there = |position: &usize| match &bound.ops[asked.ops[*position]].op {
            PlanOp::Map(_) => true,
            _ => *position < written && own.needed.contains(position),
        };
        let continues = asked.base == stream.base && asked.ops[..both] == stream.ops[..both];
        let needs_keys = question.ask.analyzer.needs_row_keys();
        if continues
            && !needs_keys
            && slice_stream(bound, asked, &[question.slice_target(asked.ops.len())])
                .ops
                .iter()
                .all(is_there)
        {
            taps.push((ask, asked.ops.len()));
            stream = if asked.ops.len() > both {
                asked.clone()
            } else {
                stream
            };
        }
    }
    let columns = work
        .columns
        .iter()
        .chain(&work.part)
        .map(String::as_str)
        .collect();
    let asked = taps
        .iter()
        .map(|(ask, after)| bound.asks[*ask].slice_target(*after));
    let all: Vec<SliceTarget<'_>> = asked
        .chain([SliceTarget {
            after: written,
            columns,
        }])
        .collect();
    let slice = slice_stream(bound, &stream, &all);
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
