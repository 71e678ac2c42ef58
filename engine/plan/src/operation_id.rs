//! Operation ids: identify the operations on rows, independent of the rows. Equal ids over equal rows give equal
//! results.

use forebay_model::{ContentId, IdBuilder, Pipeline, Result};
use serde_json::{Value, json};

use crate::{AnalyzerId, BaseDataset, BoundPipeline, ColumnScan, PlanOp};

/// Id of the operations that a scan applies to the rows of its source. `digest` returns the content id of a
/// finding: equal findings give equal ids, whatever rows they came from. `None` if rows of other datasets are
/// involved, whose content is not covered.
pub fn operation_id(
    bound: &BoundPipeline,
    pipeline: &Pipeline,
    scan: &ColumnScan,
    digest: &dyn Fn(AnalyzerId) -> Result<ContentId>,
) -> Result<Option<ContentId>> {
    let BaseDataset::Source(name) = &bound.bases[scan.base] else { return Ok(None) };
    let mut id = IdBuilder::new("shape");
    let schema = &bound.base_schemas[scan.base];
    for column in &scan.columns {
        let data_type = schema.field_with_name(column)?.data_type();
        id.text(column).text(&data_type.to_string());
    }
    add_source_format(&mut id, pipeline, name);
    for stream in &scan.streams {
        id.json(&json!([stream.needed.len(), stream.taps.iter().map(|(_, after)| *after).collect::<Vec<_>>()]));
        for position in &stream.needed {
            let op = &bound.ops[stream.stream.ops[*position]];
            if matches!(op.op, PlanOp::Join(_)) {
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

/// Adds the format and configuration of a source to an id, without its path.
pub(crate) fn add_source_format(id: &mut IdBuilder, pipeline: &Pipeline, source: &str) {
    if let Some(source) = pipeline.source(source) {
        id.text(&source.format).json(&config_without_path(&source.config));
    }
}

/// The configuration of a source or sink without its path, and without the version of a table: both may change.
pub fn config_without_path(config: &Value) -> Value {
    config_without(config, &["path", "version", "timestamp"])
}

/// A configuration without some of its fields.
pub fn config_without(config: &Value, fields: &[&str]) -> Value {
    let mut config = config.clone();
    if let Some(map) = config.as_object_mut() {
        fields.iter().for_each(|field| drop(map.remove(*field)));
    }
    config
}
