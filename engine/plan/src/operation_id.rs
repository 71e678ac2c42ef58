//! Operation ids: identify the operations on rows, independent of the rows. Equal ids over equal rows give equal
//! results.

use forebay_model::{ContentId, IdBuilder, NameIndex, Pipeline, Result};
use serde_json::json;

use crate::row_order::JoinSide;
use crate::{AnalyzerId, BaseDataset, BoundPipeline, ColumnScan, OpId, PlanOp, WindowRowOrder};

/// Id of the operations that a scan applies to the rows of its source or gather. `digest` returns the
/// content id of what rows take from a finding: equal contents give equal ids, even if they were learned
/// from other rows.
/// `None` if rows of other datasets are involved, whose content is not covered. Rows that an as-of
/// join matches in order of time are covered by the spans of the other side.
pub fn operation_id(
    bound: &BoundPipeline,
    pipeline: &Pipeline,
    scan: &ColumnScan,
    row_order: &dyn Fn(OpId) -> WindowRowOrder,
    digest: &dyn Fn(AnalyzerId) -> Result<ContentId>,
) -> Result<Option<ContentId>> {
    let mut id = IdBuilder::new("shape");
    let schema = &bound.base_schemas[scan.base];
    let index = NameIndex::of_fields(schema.fields());
    for column in &scan.columns {
        let data_type = match index.get(column) {
            Some(position) => schema.field(position).data_type(),
            None => schema.field_with_name(column)?.data_type(),
        };
        id.text(column).text(&data_type.to_string());
    }
    match &bound.bases[scan.base] {
        BaseDataset::Source(name) => add_source_format(&mut id, pipeline, name),
        // The gather that made the rows names their spans.
        BaseDataset::Gathered(_) => {
            id.text("gathered");
        }
    }
    for stream in &scan.streams {
        id.json(&json!([
            stream.needed.len(),
            stream
                .taps
                .iter()
                .map(|(_, after)| *after)
                .collect::<Vec<_>>()
        ]));
        for position in &stream.needed {
            let op = &bound.ops[stream.stream.ops[*position]];
            if let PlanOp::Join(join) = &op.op {
                let join_op = stream.stream.ops[*position];
                let in_time_order =
                    join.as_of().is_some() && row_order(join_op) == WindowRowOrder::Time;
                match if in_time_order {
                    join_id(bound, pipeline, join_op, digest)?
                } else {
                    None
                } {
                    Some(joined) => id.id(joined),
                    None => return Ok(None),
                };
            }
            id.id(op.identity);
            for analyzer in &op.asks {
                id.id(digest(*analyzer)?);
            }
        }
    }
    Ok(Some(id.finish()))
}

/// Id of an as-of join: of the operations on the rows of both sides before the join, and of the
/// join itself. `None` unless each side is one stream of rows of a source.
pub fn join_id(
    bound: &BoundPipeline,
    pipeline: &Pipeline,
    op: OpId,
    digest: &dyn Fn(AnalyzerId) -> Result<ContentId>,
) -> Result<Option<ContentId>> {
    let Some(sides) = JoinSide::both(bound, op) else {
        return Ok(None);
    };
    let mut id = IdBuilder::new("joined in order of time");
    id.id(bound.ops[op].identity);
    for JoinSide {
        stream,
        ops,
        columns,
    } in sides
    {
        let BaseDataset::Source(name) = &bound.bases[stream.base] else {
            return Ok(None);
        };
        add_source_format(&mut id, pipeline, name);
        for column in columns {
            let data_type = bound.base_schemas[stream.base]
                .field_with_name(&column)?
                .data_type();
            id.text(&column).text(&data_type.to_string());
        }
        for op in ops {
            let op = &bound.ops[op];
            if op.op.is_over_series() {
                return Ok(None);
            }
            id.id(op.identity);
            for analyzer in &op.asks {
                id.id(digest(*analyzer)?);
            }
        }
    }
    Ok(Some(id.finish()))
}

/// The operations that an as-of join of two sources needs on either side, for its keys, times and columns.
pub fn ops_before_join(bound: &BoundPipeline, op: OpId) -> Vec<OpId> {
    JoinSide::both(bound, op)
        .into_iter()
        .flatten()
        .flat_map(|side| side.ops)
        .collect()
}

/// Adds the format and configuration of a source to an id, without its path.
pub(crate) fn add_source_format(id: &mut IdBuilder, pipeline: &Pipeline, source: &str) {
    if let Some(source) = pipeline.source(source) {
        id.text(&source.format).json(&source.config_without_path());
    }
}
