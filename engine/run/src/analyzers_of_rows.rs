//! Analyzers whose findings determine rows.

use std::collections::BTreeSet;

use forebay_model::Pipeline;
use forebay_plan::{
    AnalyzerId, BoundPipeline, NodeFlow, OpId, all_columns, part_column, upstream_analyzers,
};

/// The analyzers whose findings determine the rows of a gather.
pub(crate) fn asks_before_gather(bound: &BoundPipeline, op: OpId) -> BTreeSet<AnalyzerId> {
    let inputs = bound.gather_inputs.get(&op).into_iter().flatten();
    let columns_of_rows = inputs.flat_map(|(_, flow)| all_columns(flow));
    let columns_of_analyzers = bound.ops[op]
        .asks
        .iter()
        .flat_map(|ask| bound.asks[*ask].needed_columns());
    let columns = columns_of_rows.chain(columns_of_analyzers).collect();
    let mut analyzers = upstream_analyzers(bound, columns);
    analyzers.extend(&bound.ops[op].asks);
    analyzers
}

/// The analyzers whose findings determine the rows of a sink.
pub(crate) fn asks_before_sink(
    bound: &BoundPipeline,
    pipeline: &Pipeline,
    sink: usize,
) -> BTreeSet<AnalyzerId> {
    let sink = &pipeline.sinks[sink];
    let flow = bound.flows.get(&sink.from).map(|flow| {
        let (streams, _) = flow.streams_of(sink.split.as_deref());
        NodeFlow {
            streams,
            ..flow.clone()
        }
    });
    let mut needed = flow.as_ref().map(all_columns).unwrap_or_default();
    let part = sink.split.as_deref().map(part_column);
    for (_, columns) in &mut needed {
        columns.extend(part.clone());
    }
    upstream_analyzers(bound, needed)
}
