//! Steps because of which a new day changes rows of earlier days.

use serde::Serialize;

use crate::{AnalyzerId, BaseDataset, BoundPipeline, ColumnScan, PlanOp, needed_ops};

/// A step because of which a night may write the rows of earlier days again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainRewrite {
    /// The step.
    pub step: String,
    /// The case in which all rows are written again.
    pub when: &'static str,
}

/// The steps on the way to a sink that let a night write all rows again, in their order. Statistics that an earlier run
/// holds are none of them.
pub(crate) fn rewriting_steps(bound: &BoundPipeline, scans: &[ColumnScan]) -> Vec<ExplainRewrite> {
    let mut steps = Vec::new();
    for scan in scans {
        if let BaseDataset::Gathered(op) = &bound.bases[scan.base] {
            let when = "when any row changed: it needs all rows at once";
            add_step(&mut steps, &bound.ops[*op].label, when);
        }
    }
    for op in needed_ops(scans) {
        let op = &bound.ops[op];
        match &op.op {
            PlanOp::Join(join) if join.as_of().is_none() => {
                let when = "when any row changed: it joins all rows by key";
                add_step(&mut steps, &op.label, when);
            }
            PlanOp::Series(_) => {
                let when = "when any row changed: it is given whole series";
                add_step(&mut steps, &op.label, when);
            }
            // Rules and profiles change no row.
            PlanOp::Map(map) if !map.writes.is_empty() => {
                for analyzer in &op.asks {
                    if bound.asks[*analyzer].held.is_none() {
                        add_step(&mut steps, &op.label, statistics_case(bound, *analyzer));
                    }
                }
            }
            _ => {}
        }
    }
    steps
}

/// The case in which a statistic changes all rows.
fn statistics_case(bound: &BoundPipeline, analyzer: AnalyzerId) -> &'static str {
    let request = &bound.asks[analyzer].ask;
    if request.of.is_some() {
        "when the rows that it looks up changed"
    } else if !bound.can_hold(analyzer) {
        "when its statistics by time changed"
    } else if request.row_columns.is_some() {
        "when its tokens, their order or its range changed"
    } else {
        "when what it learned changed: `refit` holds it"
    }
}

fn add_step(steps: &mut Vec<ExplainRewrite>, label: &str, when: &'static str) {
    let step = ExplainRewrite {
        step: label.to_owned(),
        when,
    };
    if !steps.contains(&step) {
        steps.push(step);
    }
}
