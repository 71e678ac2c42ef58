//! What is done with rows, named apart from the rows: equal shapes over equal rows give equal rows.

use forebay_model::{Id, IdBuilder, Pipeline, Result};
use serde_json::{Value, json};

use crate::{AskId, Base, Bound, Op, Scan};

/// Names what a scan does with the rows of its source. `digest` gives the content of what was
/// learned: statistics that stay the same leave the shape as it is, from whatever rows they come.
/// `None` where rows of other datasets take part, whose content a shape does not know.
pub fn shape(
    bound: &Bound,
    pipeline: &Pipeline,
    scan: &Scan,
    digest: &dyn Fn(AskId) -> Result<Id>,
) -> Result<Option<Id>> {
    let Base::Source(name) = &bound.bases[scan.base] else { return Ok(None) };
    let mut id = IdBuilder::new("shape");
    let schema = &bound.base_schemas[scan.base];
    for column in &scan.columns {
        let data_type = schema.field_with_name(column)?.data_type();
        id.text(column).text(&data_type.to_string());
    }
    name_reading(&mut id, pipeline, name);
    for stream in &scan.streams {
        id.json(&json!([stream.needed.len(), stream.taps.iter().map(|(_, after)| *after).collect::<Vec<_>>()]));
        for position in &stream.needed {
            let op = &bound.ops[stream.stream.ops[*position]];
            if matches!(op.op, Op::AsOf(_)) {
                return Ok(None);
            }
            id.id(op.identity);
            for ask in &op.asks {
                id.id(digest(*ask)?);
            }
        }
    }
    Ok(Some(id.finish()))
}

/// Adds to a name how a source is read, wherever it lies.
pub(crate) fn name_reading(id: &mut IdBuilder, pipeline: &Pipeline, source: &str) {
    if let Some(source) = pipeline.source(source) {
        id.text(&source.format).json(&without_place(&source.config));
    }
}

/// What a source or a sink is told, but for where its files lie: they may move.
pub fn without_place(config: &Value) -> Value {
    let mut config = config.clone();
    if let Some(map) = config.as_object_mut() {
        map.remove("path");
    }
    config
}
