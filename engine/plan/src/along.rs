//! Fusion of analyzers into write passes.

use crate::program::{Scan, ScanStream, SinkWork};
use crate::slice::{Wanted, slice};
use crate::{AskId, Bound, Op};

/// The scan of a sink that also feeds analyzers. It includes those of `asks` whose operations the written stream
/// already runs, except for additional maps. Analyzers that need row keys are excluded. `None` if no analyzer
/// qualifies.
pub fn asked_along(bound: &Bound, work: &SinkWork, asks: impl IntoIterator<Item = AskId>) -> Option<Scan> {
    let [scan] = work.scans.as_slice() else { return None };
    let [own] = scan.streams.as_slice() else { return None };
    let written = own.stream.ops.len();
    let (mut stream, mut taps) = (own.stream.clone(), Vec::new());
    for ask in asks {
        let question = &bound.asks[ask];
        let [asked] = question.streams.as_slice() else { continue };
        let both = asked.ops.len().min(stream.ops.len());
        let is_there = |position: &usize| match &bound.ops[asked.ops[*position]].op {
            Op::Map(_) => true,
            _ => *position < written && own.needed.contains(position),
        };
        let continues = asked.base == stream.base && asked.ops[..both] == stream.ops[..both];
        let needs_keys = question.ask.analyzer.needs_row_keys();
        if continues && !needs_keys && slice(bound, asked, &[question.wanted(asked.ops.len())]).ops.iter().all(is_there)
        {
            taps.push((ask, asked.ops.len()));
            stream = if asked.ops.len() > both { asked.clone() } else { stream };
        }
    }
    let columns = work.columns.iter().chain(&work.part).map(String::as_str).collect();
    let asked = taps.iter().map(|(ask, after)| bound.asks[*ask].wanted(*after));
    let all: Vec<Wanted<'_>> = asked.chain([Wanted { after: written, columns }]).collect();
    let slice = slice(bound, &stream, &all);
    let streams = vec![ScanStream { stream, needed: slice.ops, taps }];
    (!streams[0].taps.is_empty()).then_some(Scan { base: scan.base, columns: slice.columns, streams })
}
