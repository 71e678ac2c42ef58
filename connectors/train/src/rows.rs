//! Converts batches to inputs of a model, and collects facts about the rows before a training.

use forebay_contract::{FeedSource, TrainingContext};
use forebay_feed::{
    FeatureField, Feed, FeedBatch, FeedCache, FeedConfig, FeedOrder, LoadCounts, PartRole,
    SampleOrder,
};
use forebay_model::{Fault, Result, RowChange, codes};

use super::class_metrics::ClassMetrics;
use super::compute::SliceWorkspace;
use super::config::{MISSING_ID, TrainConfig};
use super::constants::warn_of_constants;
use super::metrics::{ModelMetrics, PredictionMetrics};
use super::model_input::{ModelInput, SLICE_ROWS};
use super::network::{EmbeddingTable, ModelShape};
use super::parallel::for_each_parallel;
use super::row_changes::{RowsRead, validation_step};
use super::scale::{InputScale, SAMPLE_ROWS, ScaleSample};
use super::state::TrainingState;

/// Largest default width of an embedding, for columns without a configured width.
const EMBEDDING_WIDTH_MAX: usize = 600;

/// The rows of a batch.
pub fn model_input(batch: &FeedBatch) -> ModelInput<'_> {
    let rows = batch.rows();
    fn part<T: bytemuck::AnyBitPattern>(batch: &FeedBatch, role: PartRole) -> &[T] {
        let values = batch.numbers::<T>(role);
        &values[..values.len() / batch.shape_rows().max(1) * batch.rows()]
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

/// Shape of a model for some rows, which determine the number of ids. A model that continues an
/// earlier one has at least its ids, and its widths. `outputs` is the number of results of a row.
pub fn model_shape(
    config: &TrainConfig,
    context: &TrainingContext<'_>,
    earlier: Option<&ModelShape>,
    outputs: usize,
) -> Result<ModelShape> {
    let features = &context.rows.features;
    if features.dense.is_empty() && features.categorical.is_empty() {
        let fault = Fault::new(
            codes::EMPTY,
            "there is nothing to learn from: no column is a number",
        );
        return Err(fault.hint("name columns under `dense` or `categorical`"));
    }
    let added = config.adds_ids();
    let ids = count_ids(
        context,
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
        let earlier_table = earlier.and_then(|earlier| earlier.embeddings.get(number));
        let ids = earlier_table.map_or(ids, |table| ids.max(table.rows - 1));
        let configured = config
            .embeddings
            .get(&field.column)
            .map(|width| *width as usize);
        let fixed = earlier_table.map(|table| table.width).or(configured);
        let rule = ((1.6 * (ids as f64).powf(0.56)).round() as usize).clamp(1, EMBEDDING_WIDTH_MAX);
        let width = if added {
            outputs
        } else {
            fixed.unwrap_or(rule)
        };
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
        outputs,
    };
    check_memory(&shape, config.rows_per_batch(), context.memory_bytes)?;
    Ok(shape)
}

/// Arrays of the size of the parameters: parameters, gradients, the moments of AdamW, the best
/// parameters, and a checkpoint of all.
const COPIES: u64 = 8;

fn layers_len(shape: &ModelShape) -> u64 {
    shape.layers().last().map_or(0, |layer| layer.biases.end) as u64
}

fn table_len(embedding: &EmbeddingTable) -> u64 {
    embedding.rows as u64 * embedding.width as u64
}

fn parameters_bytes(shape: &ModelShape) -> u64 {
    (layers_len(shape) + shape.embeddings.iter().map(table_len).sum::<u64>()) * 4 * COPIES
}

/// Bytes of the results of a batch, and of their slopes.
fn results_bytes(shape: &ModelShape, batch_rows: u32) -> u64 {
    let slices = u64::from(batch_rows).div_ceil(SLICE_ROWS as u64);
    (slices * SLICE_ROWS as u64 * 4 * 2).saturating_mul(shape.outputs as u64)
}

/// Bytes that the training of a model holds in addition to its rows.
pub fn training_bytes(shape: &ModelShape, batch_rows: u32) -> u64 {
    parameters_bytes(shape).saturating_add(results_bytes(shape, batch_rows))
}

fn check_memory(shape: &ModelShape, batch_rows: u32, memory_bytes: u64) -> Result<()> {
    let layers = layers_len(shape);
    let bytes = training_bytes(shape, batch_rows);
    if bytes <= memory_bytes / 2 {
        return Ok(());
    }
    let message = format!(
        "the training would hold {} MiB of parameters and results, and may hold {}",
        bytes >> 20,
        memory_bytes >> 21
    );
    let fault = Fault::new(codes::MEMORY, message);
    if results_bytes(shape, batch_rows) > parameters_bytes(shape) {
        return Err(fault.hint(format!(
            "a batch has {batch_rows} rows with {} results each: make `batch_rows` smaller, group \
             rare classes (`group_rare`), or raise --memory",
            shape.outputs
        )));
    }
    let embeddings = shape.embeddings.iter();
    let largest = embeddings.max_by_key(|embedding| table_len(embedding));
    Err(match largest {
        Some(largest) if table_len(largest) > layers => {
            fault.column(&largest.column).hint(format!(
                "`{}` alone has {} ids: give it a smaller width under `embeddings`, fewer ids \
                 (`min_count`, `top_k`, `hash_bucket`), or raise --memory",
                largest.column,
                largest.rows - 1
            ))
        }
        _ => fault.hint("make `hidden` smaller, or raise --memory"),
    })
}

/// For each column, one more than its largest id: of the rows to learn from where they are a
/// selection, as the run before counted all others.
fn count_ids(
    context: &TrainingContext<'_>,
    fields: &[FeatureField],
    cache: Option<&FeedCache>,
    selected: bool,
) -> Result<Vec<usize>> {
    if fields.is_empty() {
        return Ok(Vec::new());
    }
    let fed = if selected {
        context.rows.clone()
    } else {
        let columns = fields.iter().map(|field| field.column.as_str().into());
        context.feed_columns(FeedConfig {
            dense: Some(Vec::new()),
            categorical: Some(columns.collect()),
            missing_id: Some(MISSING_ID),
            categorical_type: forebay_feed::CategoricalType::I32,
            cache: cache.cloned(),
            order: FeedOrder::Sequential,
            ..FeedConfig::default()
        })?
    };
    let width: usize = fields.iter().map(|field| field.width as usize).sum();
    let mut largest_ids = vec![-1; fields.len()];
    for_each_batch(&fed, context, &mut |batch| {
        let ids = batch.numbers::<i32>(PartRole::Categorical);
        for row in ids.chunks_exact(width) {
            let mut row_ids = row;
            for (largest, field) in largest_ids.iter_mut().zip(fields) {
                let (column_ids, remainder) = row_ids.split_at(field.width as usize);
                for id in column_ids {
                    *largest = (*largest).max(*id);
                }
                row_ids = remainder;
            }
        }
        Ok(())
    })?;
    // Missing ids are negative: a column without any other has no id at all.
    let mut counts = Vec::with_capacity(largest_ids.len());
    for id in largest_ids {
        counts.push((i64::from(id) + 1).max(0) as usize);
    }
    Ok(counts)
}

/// Calls `work` for all rows once, in stored order. Returns the counts of changed values.
fn for_each_batch(
    fed: &FeedSource,
    context: &TrainingContext<'_>,
    work: &mut dyn FnMut(&FeedBatch) -> Result<()>,
) -> Result<LoadCounts> {
    let mut config = fed.config(0)?;
    config.order = SampleOrder::sequential();
    config.last = forebay_feed::RemainderPolicy::Short;
    let mut feed = Feed::start(config)?;
    for batch in feed.by_ref() {
        context.check()?;
        work(&batch?)?;
    }
    Ok(feed.load_counts())
}

/// Rows of a batch that count.
pub fn counted_rows(rows: &ModelInput<'_>) -> u64 {
    if rows.mask.is_empty() {
        return rows.rows as u64;
    }
    rows.mask.iter().filter(|mask| **mask != 0).count() as u64
}

/// Reads all rows once more, and counts those that a training learns from and the values that it changes. For trainings
/// that continued within their first epoch, whose feed has not read all of its rows.
pub fn count_again(context: &TrainingContext<'_>, config: &TrainConfig) -> Result<RowsRead> {
    let mut rows = 0;
    let counts = for_each_batch(context.rows, context, &mut |batch| {
        rows += counted_rows(&model_input(batch));
        Ok(())
    })?;
    let features = &context.rows.features;
    let policy = config.non_finite.feed_policy();
    Ok(RowsRead::new(
        rows,
        context.sink(),
        features,
        &counts,
        policy,
    ))
}

/// Scales of a sample of the rows: the first ones in the order in which the training reads them.
pub fn sample_scale(
    context: &TrainingContext<'_>,
    config: &TrainConfig,
    shape: &ModelShape,
) -> Result<InputScale> {
    let batch_rows = config.rows_per_batch();
    let mut feed_config = context.rows.config(config.seed)?;
    feed_config.memory_max = Some(
        context
            .memory_bytes
            .saturating_sub(training_bytes(shape, batch_rows)),
    );
    feed_config.batch_rows = batch_rows;
    // The feed of the training reports on its rows.
    feed_config.on_first_batch = None;
    feed_config.on_duplicates = None;
    let mut sample = ScaleSample::new(shape.dense_width());
    for batch in Feed::start(feed_config)? {
        context.check()?;
        sample.add(&model_input(&batch?));
        if sample.rows >= SAMPLE_ROWS {
            break;
        }
    }
    let constants = sample.constant_columns(&context.rows.features.dense);
    let rows = format!("all of the first {} rows", sample.rows);
    warn_of_constants(context, &constants, &rows);
    Ok(sample.finish())
}

/// Positions of columns among the numbers of a row; columns that are no numbers are left out.
pub fn naive_places(dense: &[FeatureField], naive: &[String]) -> Vec<(String, usize)> {
    let mut positions = Vec::new();
    let mut position = 0;
    for field in dense {
        if field.width == 1 && naive.contains(&field.column) {
            positions.push((field.column.clone(), position));
        }
        position += field.width as usize;
    }
    positions
}

/// Measures of the model on the validation rows, and their counts.
pub fn evaluate(
    fed: &FeedSource,
    context: &TrainingContext<'_>,
    config: &TrainConfig,
    state: &TrainingState,
) -> Result<(ModelMetrics, RowsRead)> {
    let shape = &state.shape;
    let parameters = state.data_parameters();
    let mut metrics = if config.learns_classes() {
        ModelMetrics::Classes(ClassMetrics::new(state.class_log_shares()))
    } else {
        let naive = naive_places(&fed.features.dense, &context.naive);
        ModelMetrics::Numbers(PredictionMetrics::new(config.loss_function(), naive))
    };
    let threads = context.threads.max(1);
    let mut slices: Vec<SliceWorkspace> = Vec::with_capacity(threads);
    let mut counted = 0;
    let counts = for_each_batch(fed, context, &mut |batch| {
        let rows = model_input(batch);
        counted += counted_rows(&rows);
        // Results are held for as many slices as there are threads: of many classes, they are larger than the rows.
        for first in (0..rows.slices()).step_by(threads) {
            let count = threads.min(rows.slices() - first);
            while slices.len() < count {
                slices.push(SliceWorkspace::new(shape));
            }
            let slices = &mut slices[..count];
            for_each_parallel(threads, slices, |number, slice| {
                slice.forward(shape, &parameters, &rows.slice(first + number))
            });
            for (number, slice) in slices.iter().enumerate() {
                let rows = rows.slice(first + number);
                metrics.add(&rows, slice.outputs(rows.rows));
            }
        }
        Ok(())
    })?;
    let step = validation_step(context.sink());
    let policy = config.non_finite.feed_policy();
    let unknown = metrics.unknown_rows();
    let mut read = RowsRead::new(counted - unknown, &step, &fed.features, &counts, policy);
    read.changes.record(&step, RowChange::UnknownClass, unknown);
    Ok((metrics, read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_many_classes_count_as_memory() {
        let memory_bytes = 512 << 20;
        for (outputs, batch_rows, fits) in [
            (1, 1 << 20, true),
            (1_000, 8_192, true),
            (1_000, 65_536, false),
            (10, 65_536, true),
        ] {
            let shape = ModelShape {
                dense: vec![FeatureField::new("x")],
                embeddings: Vec::new(),
                hidden: vec![8],
                added: false,
                outputs,
            };
            match check_memory(&shape, batch_rows, memory_bytes) {
                Ok(()) => assert!(fits, "{outputs} {batch_rows}"),
                Err(fault) => {
                    assert!(!fits, "{outputs} {batch_rows}");
                    assert_eq!(fault.code(), codes::MEMORY);
                    assert!(fault.hint_text().unwrap().contains("`batch_rows`"));
                }
            }
        }
    }
}
