//! Analyzers whose findings determine the values of columns.

use std::collections::BTreeSet;

use crate::slice::StreamIndexes;
use crate::{AnalyzerId, BaseDataset, BoundAnalyzer, BoundPipeline, NodeFlow, OpStream, PlanOp};

/// Columns at the end of a stream.
pub type NeededColumns = (OpStream, Vec<String>);

/// All columns of a flow.
pub fn all_columns(flow: &NodeFlow) -> Vec<NeededColumns> {
    let columns = flow.column_names();
    flow.streams
        .iter()
        .map(|stream| (stream.clone(), columns.clone()))
        .collect()
}

impl BoundAnalyzer {
    /// The columns that it reads.
    pub fn needed_columns(&self) -> Vec<NeededColumns> {
        let columns: Vec<String> = self.ask.inputs.iter().chain(&self.part).cloned().collect();
        self.streams
            .iter()
            .map(|stream| (stream.clone(), columns.clone()))
            .collect()
    }
}

/// Analyzers whose findings determine the values of some columns.
pub fn upstream_analyzers(
    bound: &BoundPipeline,
    mut open: Vec<NeededColumns>,
) -> BTreeSet<AnalyzerId> {
    let mut analyzers = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut indexes = StreamIndexes::default();
    while let Some((stream, columns)) = open.pop() {
        if let BaseDataset::Gathered(op) = &bound.bases[stream.base]
            && seen.insert(*op)
        {
            let inputs = bound.gather_inputs.get(op).into_iter().flatten();
            open.extend(inputs.flat_map(|(_, flow)| all_columns(flow)));
            for analyzer in &bound.ops[*op].asks {
                if analyzers.insert(*analyzer) {
                    open.extend(bound.asks[*analyzer].needed_columns());
                }
            }
        }
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let index = indexes.of(bound, &stream);
        for position in index.slice_for_columns(stream.ops.len(), &columns).0 {
            let op = stream.ops[position];
            if let (PlanOp::Join(join), Some(flow)) =
                (&bound.ops[op].op, bound.join_inputs.get(&op))
                && seen.insert(op)
            {
                let other_columns: Vec<String> = join.columns_there().cloned().collect();
                open.extend(
                    flow.streams
                        .iter()
                        .map(|stream| (stream.clone(), other_columns.clone())),
                );
                let stream_before = OpStream {
                    base: stream.base,
                    ops: stream.ops.first(position),
                };
                open.push((stream_before, join.columns_here().cloned().collect()));
            }
            for analyzer in &bound.ops[op].asks {
                if analyzers.insert(*analyzer) {
                    open.extend(bound.asks[*analyzer].needed_columns());
                }
            }
        }
    }
    analyzers
}
