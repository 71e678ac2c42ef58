//! The rules of `expect` steps, as the operations of a bound pipeline.

use std::collections::{BTreeMap, BTreeSet};

use forebay_plan::{
    BaseDataset, BoundOp, BoundPipeline, Expectation, ExpectationPolicy, OpId, OpStream, PlanOp,
    VIOLATION_PREFIX,
};

/// Rules of some streams: the operation, its stream, and its position there.
pub(crate) type RulesOfStreams = BTreeMap<OpId, (OpStream, usize)>;

/// Expectation of an operation about its rows.
pub(crate) fn expectation_of(op: &BoundOp) -> Option<&Expectation> {
    match &op.op {
        PlanOp::Map(map) => map.expectation.as_ref(),
        _ => None,
    }
}

/// The rules of some streams, and of those that lead to them.
pub(crate) fn rules_of_streams(bound: &BoundPipeline, streams: Vec<OpStream>) -> RulesOfStreams {
    let mut open = streams;
    let mut seen = BTreeSet::new();
    let mut rules = RulesOfStreams::new();
    while let Some(stream) = open.pop() {
        for (position, op) in stream.ops.iter().enumerate() {
            if expectation_of(&bound.ops[*op]).is_some() {
                rules.insert(*op, (stream.clone(), position));
            }
        }
        let BaseDataset::Gathered(op) = &bound.bases[stream.base] else {
            continue;
        };
        if seen.insert(*op) {
            let inputs = bound.gather_inputs.get(op).into_iter().flatten();
            for (_, flow) in inputs {
                open.extend(flow.streams.iter().cloned());
            }
        }
    }
    rules
}

/// The names of all rules that take rows out.
pub(crate) fn quarantines(bound: &BoundPipeline) -> BTreeSet<String> {
    let expectations = bound.ops.iter().filter_map(expectation_of);
    let names = expectations
        .filter(|expectation| expectation.policy == ExpectationPolicy::Quarantine)
        .map(|expectation| expectation.name.clone());
    names.collect()
}

/// The names of rules that take rows out because of values of some columns.
pub(crate) fn quarantines_by(
    bound: &BoundPipeline,
    columns: &BTreeSet<String>,
) -> BTreeSet<String> {
    let mut streams = Vec::new();
    for flow in bound.flows.values() {
        streams.extend(flow.streams.iter().cloned());
    }
    let mut names = BTreeSet::new();
    for (op, (stream, position)) in rules_of_streams(bound, streams) {
        let Some(expectation) = expectation_of(&bound.ops[op]) else {
            continue;
        };
        if expectation.policy != ExpectationPolicy::Quarantine {
            continue;
        }
        let reads = columns_of_rule(bound, op, &stream, position).unwrap_or_default();
        if reads.iter().any(|column| columns.contains(column)) {
            names.insert(expectation.name.clone());
        }
    }
    names
}

/// The columns that a rule about values or keys looks at; `None` of another rule.
pub(crate) fn columns_of_rule(
    bound: &BoundPipeline,
    op: OpId,
    stream: &OpStream,
    position: usize,
) -> Option<Vec<String>> {
    let mut inputs = bound.ops[op]
        .asks
        .iter()
        .flat_map(|ask| &bound.asks[*ask].ask.inputs);
    let violations = inputs.find(|input| input.starts_with(VIOLATION_PREFIX))?;
    // Each step has hidden columns of the same names: the last one before the rule is its own.
    for earlier in stream.ops.iter().take(position).rev() {
        if let PlanOp::Map(map) = &bound.ops[*earlier].op
            && map.is_written(violations)
        {
            return Some(map.reads.clone());
        }
    }
    None
}
