//! Features that equal the label.

use forebay_feed::{FeatureField, Feed, FeedBatch, PartRole, SampleOrder};
use forebay_model::Result;

use crate::feed::FeedSource;

/// Columns of numbers or ids whose values are those of the label in all rows of the first batch, in the order of the
/// files. A label with one value there tells nothing.
pub(crate) fn label_copies(rows: &FeedSource) -> Result<Vec<String>> {
    if rows.features.series.is_some() {
        return Ok(Vec::new());
    }
    let mut config = rows.config(0)?;
    config.order = SampleOrder::sequential();
    config.last = forebay_feed::RemainderPolicy::Short;
    // Values that cannot be fed are the training's to report.
    let Some(Ok(batch)) = Feed::start(config)?.next() else {
        return Ok(Vec::new());
    };
    let features = &rows.features;
    let labels = of_rows(&batch, batch.numbers::<f32>(PartRole::Label));
    let first = labels.first().copied().unwrap_or_default();
    if labels.iter().all(|label| *label == first) {
        return Ok(Vec::new());
    }
    let mut copies = Vec::new();
    if features.dense_type == forebay_feed::DenseType::F32 {
        let dense = of_rows(&batch, batch.numbers::<f32>(PartRole::Dense));
        collect_copies(&features.dense, dense, labels, &mut copies);
    }
    if features.categorical_type == forebay_feed::CategoricalType::I32 {
        let ids: Vec<f32> = of_rows(&batch, batch.numbers::<i32>(PartRole::Categorical))
            .iter()
            .map(|id| *id as f32)
            .collect();
        collect_copies(&features.categorical, &ids, labels, &mut copies);
    }
    Ok(copies)
}

/// The values of the rows of a batch, without those that fill it up.
fn of_rows<'b, T>(batch: &FeedBatch, all: &'b [T]) -> &'b [T] {
    &all[..all.len() / batch.shape_rows().max(1) * batch.rows()]
}

fn collect_copies(
    fields: &[FeatureField],
    values: &[f32],
    labels: &[f32],
    copies: &mut Vec<String>,
) {
    let width = values.len() / labels.len().max(1);
    let mut place = 0;
    for field in fields {
        let is_copy = |place: usize| {
            labels
                .iter()
                .enumerate()
                .all(|(row, label)| values[row * width + place] == *label)
        };
        if field.width == 1 && is_copy(place) {
            copies.push(field.column.clone());
        }
        place += field.width as usize;
    }
}
