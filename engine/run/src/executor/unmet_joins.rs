//! Joins that found no row. An anti join is one of them: it keeps all rows where no key meets,
//! be it that there is nothing to remove or that the keys are written otherwise.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;
use arrow::util::display::array_value_to_string;
use forebay_analyze::KeyRange;
use forebay_model::{Fault, Finding, Result, codes, logical_type};
use forebay_plan::{
    AnalyzerRequest, BoundAnalyzer, GatherBy, GatherOp, JoinOp, NodeFlow, OpId, OpStream, PlanOp,
};

use super::RunExecutor;

/// The two sides of a join.
struct JoinSides {
    /// The step or source that is looked up.
    other: String,
    here: Vec<OpStream>,
    there: Vec<OpStream>,
    /// Columns here and there that have to meet, and their type there.
    keys: Vec<(String, String, DataType)>,
}

impl RunExecutor<'_> {
    /// Warns of joins that looked for rows and found none, with the range of the keys on both sides.
    pub(crate) fn report_unmet_joins(&self) -> Result<()> {
        if self.joins.is_empty() {
            return Ok(());
        }
        let mut labels = BTreeSet::new();
        for (id, op) in self.program.bound.ops.iter().enumerate() {
            if !is_join(&op.op) || !self.joins.is_unmet(op.join_bit()) {
                continue;
            }
            if labels.insert(op.label.as_str())
                && let Some(sides) = self.join_sides(id)
            {
                self.report_unmet_join(id, &sides)?;
            }
        }
        Ok(())
    }

    fn report_unmet_join(&self, id: OpId, sides: &JoinSides) -> Result<()> {
        let op = &self.program.bound.ops[id];
        let analyzer = |ask, streams: &[OpStream]| BoundAnalyzer {
            op: id,
            ask,
            streams: streams.to_vec(),
            part: None,
            carried: None,
            held: None,
        };
        let mut analyzers = Vec::new();
        for (column, other_column, data_type) in &sides.keys {
            let range = || KeyRange {
                keys: vec![data_type.clone()],
            };
            analyzers.push(analyzer(
                AnalyzerRequest::new(range(), [column]),
                &sides.here,
            ));
            analyzers.push(analyzer(
                AnalyzerRequest::new(range(), [other_column]),
                &sides.there,
            ));
        }
        let ranges = self.learn_extra(analyzers)?;
        let mut texts = Vec::new();
        for ((column, other_column, _), pair) in sides.keys.iter().zip(ranges.chunks(2)) {
            let [of_here, of_there] = pair else {
                continue;
            };
            texts.push(format!(
                "`{column}` {} in the rows, `{other_column}` {} in `{}`",
                range_text(of_here)?,
                range_text(of_there)?,
                sides.other
            ));
        }
        let message = format!(
            "`{}` finds no row of `{}` for any row: {}",
            op.label,
            sides.other,
            texts.join("; ")
        );
        let hint = "look at the keys of both sides: their spelling, types, zones and times";
        self.session
            .warn(&Fault::new(codes::EMPTY, message).hint(hint));
        Ok(())
    }

    fn join_sides(&self, id: OpId) -> Option<JoinSides> {
        let bound = &self.program.bound;
        match &bound.ops[id].op {
            PlanOp::Map(map) => {
                let ask = &bound.asks[*bound.ops[id].asks.first()?];
                let other = ask.ask.of.clone()?;
                let flow = bound.flows.get(&other)?;
                let mut keys = Vec::new();
                for (column, other_column) in map.reads.iter().zip(&ask.ask.inputs) {
                    let key_type = type_of(flow, other_column)?;
                    keys.push((column.clone(), other_column.clone(), key_type));
                }
                Some(JoinSides {
                    other,
                    here: self.streams_before(id)?,
                    there: flow.streams.clone(),
                    keys,
                })
            }
            PlanOp::Join(join) => {
                let input = bound.window_inputs.get(&id)?;
                let other_side = bound.join_inputs.get(&id)?;
                sides_of(join, input, other_side)
            }
            PlanOp::Gather(GatherOp {
                lower: GatherBy::Join { join, .. },
                ..
            }) => {
                let inputs = bound.gather_inputs.get(&id)?;
                let [(_, input), (_, other_side)] = inputs.as_slice() else {
                    return None;
                };
                sides_of(join, input, other_side)
            }
            _ => None,
        }
    }

    /// The rows of an operation over single rows.
    fn streams_before(&self, id: OpId) -> Option<Vec<OpStream>> {
        self.program.bound.flows.values().find_map(|flow| {
            let mut streams = Vec::new();
            for stream in &flow.streams {
                if let Some(end) = stream.ops.iter().position(|op| *op == id) {
                    streams.push(OpStream {
                        base: stream.base,
                        ops: stream.ops.first(end),
                    });
                }
            }
            (!streams.is_empty()).then_some(streams)
        })
    }
}

fn is_join(op: &PlanOp) -> bool {
    match op {
        PlanOp::Map(map) => map.finds_rows,
        PlanOp::Join(_) => true,
        PlanOp::Gather(gather) => matches!(gather.lower, GatherBy::Join { .. }),
        _ => false,
    }
}

fn sides_of(join: &JoinOp, input: &NodeFlow, other_side: &NodeFlow) -> Option<JoinSides> {
    let mut keys = Vec::new();
    for (column, other) in join.columns_here().zip(join.columns_there()) {
        keys.push((column.clone(), other.clone(), type_of(other_side, other)?));
    }
    Some(JoinSides {
        other: join.other.clone(),
        here: input.streams.clone(),
        there: other_side.streams.clone(),
        keys,
    })
}

fn type_of(flow: &NodeFlow, column: &str) -> Option<DataType> {
    let field = flow.schema.field_with_name(column).ok()?;
    Some(logical_type(field.data_type()))
}

/// The values of a range in words.
fn range_text(range: &Finding) -> Result<String> {
    if range.rows() == 0 {
        return Ok("has no values".to_owned());
    }
    let column = range.column("key1")?;
    Ok(format!(
        "runs from {} to {}",
        array_value_to_string(column, 0)?,
        array_value_to_string(column, 1)?
    ))
}
