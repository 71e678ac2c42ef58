//! The analyzers whose findings decide what columns hold.

use std::collections::BTreeSet;

use crate::slice::slice_for_columns;
use crate::{AnalyzerId, BaseDataset, BoundAnalyzer, BoundPipeline, NodeFlow, OpStream, PlanOp};

/// Columns at the end of a stream.
pub type NeededColumns = (OpStream, Vec<String>);

/// All columns of a flow.
pub fn all_columns(flow: &NodeFlow) -> Vec<NeededColumns> {
    let columns: Vec<String> = flow
        .schema
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
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

/// The analyzers whose findings decide what some columns hold.
pub fn upstream_analyzers(
    bound: &BoundPipeline,
    mut open: Vec<NeededColumns>,
) -> BTreeSet<AnalyzerId> {
    let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
    while let Some((stream, columns)) = open.pop() {
        if let BaseDataset::Gathered(op) = &bound.bases[stream.base]
            && seen.insert(*op)
        {
            let inputs = bound.gather_inputs.get(op).into_iter().flatten();
            open.extend(inputs.flat_map(|(_, flow)| all_columns(flow)));
            for ask in &bound.ops[*op].asks {
                if found.insert(*ask) {
                    open.extend(bound.asks[*ask].needed_columns());
                }
            }
        }
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        for position in slice_for_columns(bound, &stream, &columns).0 {
            let op = stream.ops[position];
            if let (PlanOp::Join(join), Some(flow)) =
                (&bound.ops[op].op, bound.join_inputs.get(&op))
                && seen.insert(op)
            {
                let there: Vec<String> = join.columns_there().cloned().collect();
                open.extend(
                    flow.streams
                        .iter()
                        .map(|stream| (stream.clone(), there.clone())),
                );
                let here = OpStream {
                    base: stream.base,
                    ops: stream.ops[..position].to_vec(),
                };
                open.push((here, join.columns_here().cloned().collect()));
            }
            for ask in &bound.ops[op].asks {
                if found.insert(*ask) {
                    open.extend(bound.asks[*ask].needed_columns());
                }
            }
        }
    }
    found
}
