//! From batches to what a model takes, and what must be known of the rows before a training.

use forebay_feed::{FeatureField, Feed, FeedBatch, PartRole, SampleOrder};
use forebay_model::{Fault, Result, codes};
use forebay_run::{FeedCache, FeedConfig, FeedOrder, FeedSource, TrainingContext};

use super::compute::{ModelInput, SliceWorkspace};
use super::config::{MISSING_ID, TrainConfig};
use super::gradient::for_each_parallel;
use super::metrics::PredictionMetrics;
use super::network::{EmbeddingTable, ModelParameters, ModelShape};

/// Largest default width of an embedding, for columns without a configured width.
const EMBEDDING_WIDTH_MAX: usize = 600;

/// The rows of a batch.
pub fn model_input(batch: &FeedBatch) -> ModelInput<'_> {
    let rows = batch.rows();
    fn part<T: bytemuck::AnyBitPattern>(batch: &FeedBatch, role: PartRole) -> &[T] {
        let all = batch.numbers::<T>(role);
        &all[..all.len() / batch.shape_rows().max(1) * batch.rows()]
    }
    ModelInput {
        rows,
        dense: part(batch, PartRole::Dense),
        ids: part(batch, PartRole::Categorical),
        labels: part(batch, PartRole::Label),
        weights: part(batch, PartRole::Weight),
        mask: part(batch, PartRole::Mask),
    }
}

/// The shape of a model for some rows: how many ids there are is looked up in them. One that goes on from an earlier
/// model has at least its ids, and its widths.
pub fn model_shape(
    config: &TrainConfig,
    course: &TrainingContext<'_>,
    earlier: Option<&ModelShape>,
) -> Result<ModelShape> {
    let features = &course.rows.features;
    if features.dense.is_empty() && features.categorical.is_empty() {
        let fault = Fault::new(
            codes::EMPTY,
            "there is nothing to learn from: no column is a number",
        );
        return Err(fault.hint("name columns under `dense` or `categorical`"));
    }
    let added = config.adds_ids();
    let ids = count_ids(
        course,
        &features.categorical,
        config.cache.as_ref(),
        earlier.is_some(),
    )?;
    for column in config.embeddings.keys() {
        if !features
            .categorical
            .iter()
            .any(|field| field.column == *column)
        {
            let message = format!(
                "`embeddings` names `{column}`, which is not among the categorical columns"
            );
            return Err(Fault::new(codes::UNKNOWN_COLUMN, message).column(column));
        }
    }
    let mut embeddings = Vec::new();
    for (number, (field, ids)) in features.categorical.iter().zip(ids).enumerate() {
        let before = earlier.and_then(|earlier| earlier.embeddings.get(number));
        let ids = before.map_or(ids, |before| ids.max(before.rows - 1));
        let given = config
            .embeddings
            .get(&field.column)
            .map(|width| *width as usize);
        let given = before.map(|before| before.width).or(given);
        let rule = ((1.6 * (ids as f64).powf(0.56)).round() as usize).clamp(1, EMBEDDING_WIDTH_MAX);
        let width = if added { 1 } else { given.unwrap_or(rule) };
        embeddings.push(EmbeddingTable {
            column: field.column.clone(),
            ids: field.width as usize,
            rows: ids + 1,
            width,
        });
    }
    let shape = ModelShape {
        dense: features.dense.clone(),
        embeddings,
        hidden: config.hidden_widths(),
        added,
    };
    check_memory(&shape, course.memory_bytes)?;
    Ok(shape)
}

/// Parameters, their gradients, what AdamW remembers of them, the best ones, and a checkpoint of all.
const COPIES: u64 = 8;

fn layers_len(shape: &ModelShape) -> u64 {
    shape.layers().last().map_or(0, |layer| layer.biases.end) as u64
}

fn table_len(embedding: &EmbeddingTable) -> u64 {
    embedding.rows as u64 * embedding.width as u64
}

/// Bytes that the training of a model holds beside its rows.
pub fn training_bytes(shape: &ModelShape) -> u64 {
    (layers_len(shape) + shape.embeddings.iter().map(table_len).sum::<u64>()) * 4 * COPIES
}

fn check_memory(shape: &ModelShape, memory_bytes: u64) -> Result<()> {
    let (layers, bytes) = (layers_len(shape), training_bytes(shape));
    if bytes <= memory_bytes / 2 {
        return Ok(());
    }
    let message = format!(
        "the training would hold {} MiB of parameters, and may hold {}",
        bytes >> 20,
        memory_bytes >> 21
    );
    let fault = Fault::new(codes::MEMORY, message);
    Err(match shape.embeddings.iter().max_by_key(|embedding| table_len(embedding)) {
        Some(largest) if table_len(largest) > layers => fault.column(&largest.column).hint(format!(
            "`{}` alone has {} ids: give it a smaller width under `embeddings`, fewer ids (`min_count`, `top_k`, \
             `hash_bucket`), or raise --memory",
            largest.column,
            largest.rows - 1
        )),
        _ => fault.hint("make `hidden` smaller, or raise --memory"),
    })
}

/// For each column, one more than its largest id: of the rows to learn from where they are a selection, as the run
/// before counted all others.
fn count_ids(
    course: &TrainingContext<'_>,
    fields: &[FeatureField],
    cache: Option<&FeedCache>,
    selected: bool,
) -> Result<Vec<usize>> {
    if fields.is_empty() {
        return Ok(Vec::new());
    }
    let fed = match selected {
        true => course.rows.clone(),
        false => course.feed_columns(FeedConfig {
            dense: Some(Vec::new()),
            categorical: Some(
                fields
                    .iter()
                    .map(|field| field.column.as_str().into())
                    .collect(),
            ),
            missing_id: Some(MISSING_ID),
            categorical_type: forebay_feed::CategoricalType::I32,
            cache: cache.cloned(),
            order: FeedOrder::Sequential,
            ..FeedConfig::default()
        })?,
    };
    let mut largest = vec![-1; fields.len()];
    for_each_batch(&fed, course, &mut |batch| {
        let ids = batch.numbers::<i32>(PartRole::Categorical);
        let width: usize = fields.iter().map(|field| field.width as usize).sum();
        for row in ids.chunks_exact(width) {
            let mut rest = row;
            for (largest, field) in largest.iter_mut().zip(fields) {
                let (own, after) = rest.split_at(field.width as usize);
                *largest = own.iter().copied().fold(*largest, i32::max);
                rest = after;
            }
        }
        Ok(())
    })?;
    Ok(largest
        .into_iter()
        .map(|id| (i64::from(id) + 1).max(0) as usize)
        .collect())
}

/// All rows once, as they lie.
fn for_each_batch(
    fed: &FeedSource,
    course: &TrainingContext<'_>,
    work: &mut dyn FnMut(&FeedBatch) -> Result<()>,
) -> Result<()> {
    let mut config = fed.config(0)?;
    config.order = SampleOrder::sequential();
    config.last = forebay_feed::RemainderPolicy::Short;
    for batch in Feed::start(config)? {
        course.check()?;
        work(&batch?)?;
    }
    Ok(())
}

/// The places of columns among the numbers of a row; those that are not among them are left out.
pub fn naive_places(dense: &[FeatureField], naive: &[String]) -> Vec<(String, usize)> {
    let mut places = Vec::new();
    let mut place = 0;
    for field in dense {
        if field.width == 1 && naive.contains(&field.column) {
            places.push((field.column.clone(), place));
        }
        place += field.width as usize;
    }
    places
}

/// How good the model is on some rows.
pub fn evaluate(
    fed: &FeedSource,
    course: &TrainingContext<'_>,
    config: &TrainConfig,
    shape: &ModelShape,
    parameters: &ModelParameters,
) -> Result<PredictionMetrics> {
    let naive = naive_places(&fed.features.dense, &course.naive);
    let mut metrics = PredictionMetrics::new(config.loss_function(), naive);
    let mut slices: Vec<SliceWorkspace> = Vec::new();
    for_each_batch(fed, course, &mut |batch| {
        let rows = model_input(batch);
        while slices.len() < rows.slices() {
            slices.push(SliceWorkspace::new(shape));
        }
        let slices = &mut slices[..rows.slices()];
        for_each_parallel(course.threads, slices, |number, slice| {
            slice.forward(shape, parameters, &rows.slice(number))
        });
        for (number, slice) in slices.iter().enumerate() {
            let rows = rows.slice(number);
            metrics.add(&rows, slice.outputs(rows.rows));
        }
        Ok(())
    })?;
    Ok(metrics)
}
