//! Features that equal the label.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Float64Type};
use forebay_contract::FeedSource;
use forebay_feed::{
    BatchFeatures, CategoricalType, DenseType, FeatureField, Feed, FeedBatch, FeedConfig,
    InspectBatch, PartRole, RemainderPolicy, SampleOrder,
};
use forebay_model::{Fault, Pipeline, Result, SpecLocation, codes};
use forebay_plan::BoundPipeline;
use forebay_storage::{Event, EventListener};

use crate::feed::features::choose_features;
use crate::feed::feed_rows;
use crate::preview_options::PreviewOptions;
use crate::session::Session;
use crate::training_checks::label_column;

/// Rows of a step that are compared before anything runs.
const CHECKED_ROWS: usize = 1000;

/// Rows of each source that these are computed from.
const SAMPLE_ROWS: u64 = 10_000;

/// Columns of numbers or ids whose values are those of the label in all rows of the first batch, in the order of the
/// files.
pub(crate) fn label_copies(rows: &FeedSource) -> Result<Vec<String>> {
    let mut config = rows.config(0)?;
    config.order = SampleOrder::sequential();
    config.last = RemainderPolicy::Short;
    // Values that cannot be fed are the training's to report.
    let Some(Ok(batch)) = Feed::start(config)?.next() else {
        return Ok(Vec::new());
    };
    Ok(copies_in_batch(&rows.features, &batch))
}

/// Columns of numbers or ids whose values are those of the label in all rows of a batch. A label with one value there
/// tells nothing. Of a sequence, the last step is compared: it is the row that has the label.
fn copies_in_batch(features: &BatchFeatures, batch: &FeedBatch) -> Vec<String> {
    let labels = of_rows(batch, batch.numbers::<f32>(PartRole::Label));
    let first = labels.first().copied().unwrap_or_default();
    if labels.iter().all(|label| *label == first) {
        return Vec::new();
    }
    let mut copies = Vec::new();
    let steps = features.steps();
    if features.dense_type == DenseType::F32 {
        let dense = of_rows(batch, batch.numbers::<f32>(PartRole::Dense));
        let columns = LastSteps::of(dense, labels, steps);
        columns.collect_copies(&features.dense, &mut copies);
    }
    let ids: Vec<f32> = match features.categorical_type {
        CategoricalType::I32 => of_rows(batch, batch.numbers::<i32>(PartRole::Categorical))
            .iter()
            .map(|id| *id as f32)
            .collect(),
        CategoricalType::I64 => of_rows(batch, batch.numbers::<i64>(PartRole::Categorical))
            .iter()
            .map(|id| *id as f32)
            .collect(),
    };
    LastSteps::of(&ids, labels, steps).collect_copies(&features.categorical, &mut copies);
    copies
}

/// Warns, once, of features that equal the label in all rows of the first batch that is delivered.
pub(crate) fn inspect_first_batch(
    features: &BatchFeatures,
    listener: &Arc<dyn EventListener>,
) -> Option<InspectBatch> {
    let label = features.label.as_ref()?.column.clone();
    let features = features.clone();
    let listener = listener.clone();
    let is_done = AtomicBool::new(false);
    Some(Arc::new(move |batch: &FeedBatch| {
        if is_done.swap(true, Ordering::Relaxed) {
            return;
        }
        for column in copies_in_batch(&features, batch) {
            let warning = copy_warning(&column, &label, "the feed");
            let hint = warning.hint_text().unwrap_or_default();
            let message = format!("{}; {hint}", warning.message());
            listener.on_event(Event::Warning { message });
        }
    }))
}

/// The warning of a feature that equals the label, among the features of a training or a feed.
pub(crate) fn copy_warning(column: &str, label: &str, subject: &str) -> Fault {
    let message = format!(
        "the feature `{column}` of {subject} equals the label `{label}` \
         in all rows that were compared"
    );
    let hint = "leave it out if it is known only when the label is";
    Fault::new(codes::LEAKAGE, message)
        .column(column)
        .hint(hint)
}

/// The values of the rows of a batch, without those that fill it up.
fn of_rows<'b, T>(batch: &FeedBatch, values: &'b [T]) -> &'b [T] {
    &values[..values.len() / batch.shape_rows().max(1) * batch.rows()]
}

/// The features of the last step of each row, beside the labels.
struct LastSteps<'b> {
    /// The values of a batch, row after row, and of each row step after step.
    values: &'b [f32],
    labels: &'b [f32],
    /// Values of a row.
    width: usize,
    /// Place of the last step's first value in a row.
    first: usize,
}

impl<'b> LastSteps<'b> {
    fn of(values: &'b [f32], labels: &'b [f32], steps: usize) -> LastSteps<'b> {
        let width = values.len() / labels.len().max(1);
        LastSteps {
            values,
            labels,
            width,
            first: width - width / steps.max(1),
        }
    }

    fn collect_copies(&self, fields: &[FeatureField], copies: &mut Vec<String>) {
        let mut column = self.first;
        for field in fields {
            if field.width == 1 && self.is_copy(column) {
                copies.push(field.column.clone());
            }
            column += field.width as usize;
        }
    }

    /// True if a column has the label's value in all rows.
    fn is_copy(&self, column: usize) -> bool {
        let mut labels = self.labels.iter().enumerate();
        column < self.width
            && labels.all(|(row, label)| self.values[row * self.width + column] == *label)
    }
}

/// A training or a feed whose features are compared with its label.
struct ComparedFeatures<'a> {
    /// Name of the consumer in warnings.
    of: String,
    from: String,
    label: String,
    features: Vec<String>,
    at: Option<&'a SpecLocation>,
}

impl Session {
    /// Warns of features that equal the label in the first rows of their step. Rows that cannot be computed from the
    /// first rows of the sources are not compared.
    pub(crate) fn warn_of_label_copies(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
    ) -> Vec<Fault> {
        let mut warnings = Vec::new();
        for compared in self.compared_features(pipeline, bound) {
            let options = PreviewOptions {
                rows: CHECKED_ROWS,
                sample_rows: SAMPLE_ROWS,
                ..PreviewOptions::default()
            };
            let preview = self.preview_of_first_rows(pipeline, &compared.from, &options);
            let Ok(preview) = preview else {
                continue;
            };
            for column in copies_in_rows(&preview.batches, &compared.label, &compared.features) {
                let warning = copy_warning(&column, &compared.label, &compared.of);
                warnings.push(warning.at(compared.at));
            }
        }
        warnings
    }

    fn compared_features<'a>(
        &self,
        pipeline: &'a Pipeline,
        bound: &BoundPipeline,
    ) -> Vec<ComparedFeatures<'a>> {
        let mut compared = Vec::new();
        for training in &pipeline.trainings {
            let Ok(config) = self.trainer(training).map(|trainer| trainer.feed()) else {
                continue;
            };
            let Ok(label) = label_column(pipeline, &config) else {
                continue;
            };
            let without_feed = Pipeline {
                feed: None,
                ..pipeline.clone()
            };
            compared.push(ComparedFeatures {
                of: format!("`{}`", training.name),
                features: feature_names(&without_feed, bound, &training.from, &config),
                from: training.from.clone(),
                label,
                at: training.at.as_ref(),
            });
        }
        if let Some(feed) = &pipeline.feed
            && let Ok(config) = FeedConfig::from_json(feed.config.clone())
            && let Ok((from, _)) = feed_rows(pipeline, &config)
            && let Ok(label) = label_column(pipeline, &config)
        {
            compared.push(ComparedFeatures {
                of: "the feed".to_owned(),
                features: feature_names(pipeline, bound, &from, &config),
                from,
                label,
                at: feed.at.as_ref(),
            });
        }
        compared
    }
}

/// The columns of numbers or ids that a model or a feed takes of a step.
fn feature_names(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    from: &str,
    config: &FeedConfig,
) -> Vec<String> {
    let Some(flow) = bound.flows.get(from) else {
        return Vec::new();
    };
    let Ok(features) = choose_features(pipeline, bound, &flow.schema, config) else {
        return Vec::new();
    };
    let fields = features.dense.into_iter().chain(features.categorical);
    fields.map(|field| field.column).collect()
}

/// Columns whose values are those of the label in all rows. A label with one value tells nothing.
fn copies_in_rows(batches: &[RecordBatch], label: &str, features: &[String]) -> Vec<String> {
    let Some(first) = batches.first() else {
        return Vec::new();
    };
    let Ok(rows) = concat_batches(first.schema_ref(), batches) else {
        return Vec::new();
    };
    let Some(labels) = numbers_of(&rows, label) else {
        return Vec::new();
    };
    let label_values = || labels.iter().flatten();
    if label_values().all(|value| Some(value) == label_values().next()) {
        return Vec::new();
    }
    let is_copy = |name: &&String| {
        let values = numbers_of(&rows, name);
        name.as_str() != label && values.is_some_and(|values| values == labels)
    };
    features.iter().filter(is_copy).cloned().collect()
}

/// The values of a column of numbers or booleans.
fn numbers_of(rows: &RecordBatch, name: &str) -> Option<Vec<Option<f64>>> {
    let column: &ArrayRef = rows.column_by_name(name)?;
    let data_type = column.data_type();
    if !data_type.is_numeric() && *data_type != DataType::Boolean {
        return None;
    }
    let values = cast(column, &DataType::Float64).ok()?;
    Some(values.as_primitive::<Float64Type>().iter().collect())
}
