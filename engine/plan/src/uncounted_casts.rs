//! Values that queries turn to null, and that no step counts: warnings of `check` and of runs.

use std::collections::BTreeSet;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use forebay_model::{Fault, codes};

use crate::tried_casts::add_tried_casts;
use crate::{BoundOp, BoundPipeline, GatherOp, PlanOp};

/// Queries that compute values by `try_cast`: the query engine counts none of those that become null.
pub fn uncounted_casts(bound: &BoundPipeline) -> Vec<Fault> {
    let mut seen = BTreeSet::new();
    let mut warnings = Vec::new();
    for op in &bound.ops {
        let PlanOp::Gather(GatherOp {
            query: Some(query), ..
        }) = &op.op
        else {
            continue;
        };
        for text in tried_in_query(&query.plan) {
            if seen.insert((op.label.as_str(), text.clone())) {
                warnings.push(uncounted_cast(op, &text));
            }
        }
    }
    warnings
}

/// The casts of a query, but those of its conditions: rows that a condition removes are counted.
fn tried_in_query(plan: &LogicalPlan) -> Vec<String> {
    let mut texts = Vec::new();
    // The closures give no error.
    let _ = plan.apply_with_subqueries(|node| {
        if matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_)) {
            return Ok(TreeNodeRecursion::Continue);
        }
        node.apply_expressions(|expression| {
            add_tried_casts(expression, &mut texts);
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(TreeNodeRecursion::Continue)
    });
    texts
}

fn uncounted_cast(op: &BoundOp, text: &str) -> Fault {
    let message = format!(
        "`{}` computes `{text}`: values that it turns to null are not counted",
        op.label
    );
    let hint = "cast in a step before the query, which counts them: by `derive`, or by `cast` with \
                `on_error: missing`";
    Fault::new(codes::EXPRESSION, message)
        .hint(hint)
        .at(op.at.as_ref())
}
