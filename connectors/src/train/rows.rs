//! From batches to what a model takes, and what must be known of the rows before a training.

use forebay_feed::{Batch, Feed, Field, Order, Role};
use forebay_model::{Fault, Result, codes};
use forebay_run::{Course, Fed, FeedCache, FeedConfig, FeedOrder};

use super::compute::{Rows, Workspace};
use super::config::{MISSING_ID, ModelKind, Train};
use super::gradient::in_parallel;
use super::metrics::Metrics;
use super::network::{Embedding, Parameters, Shape};

/// Widths of embeddings nobody gave a width are at most this.
const EMBEDDING_WIDTH_MAX: usize = 600;

/// The rows of a batch.
pub fn rows_of(batch: &Batch) -> Rows<'_> {
    let rows = batch.rows();
    fn part<T: bytemuck::AnyBitPattern>(batch: &Batch, role: Role) -> &[T] {
        let all = batch.numbers::<T>(role);
        &all[..all.len() / batch.shape_rows().max(1) * batch.rows()]
    }
    Rows {
        rows,
        dense: part(batch, Role::Dense),
        ids: part(batch, Role::Categorical),
        labels: part(batch, Role::Label),
        weights: part(batch, Role::Weight),
        mask: part(batch, Role::Mask),
    }
}

/// The shape of a model for some rows: how many ids there are is looked up in them.
pub fn shape(config: &Train, course: &Course<'_>) -> Result<Shape> {
    let features = &course.rows.features;
    if features.dense.is_empty() && features.categorical.is_empty() {
        let fault = Fault::new(codes::EMPTY, "there is nothing to learn from: no column is a number");
        return Err(fault.hint("name columns under `dense` or `categorical`"));
    }
    let added = config.model != ModelKind::Mlp;
    let ids = count_ids(course, &features.categorical, config.cache.as_ref())?;
    for column in config.embeddings.keys() {
        if !features.categorical.iter().any(|field| field.column == *column) {
            let message = format!("`embeddings` names `{column}`, which is not among the categorical columns");
            return Err(Fault::new(codes::UNKNOWN_COLUMN, message).column(column));
        }
    }
    let mut embeddings = Vec::new();
    for (field, ids) in features.categorical.iter().zip(ids) {
        let given = config.embeddings.get(&field.column).map(|width| *width as usize);
        let rule = ((1.6 * (ids as f64).powf(0.56)).round() as usize).clamp(1, EMBEDDING_WIDTH_MAX);
        let width = if added { 1 } else { given.unwrap_or(rule) };
        embeddings.push(Embedding { column: field.column.clone(), ids: field.width as usize, rows: ids + 1, width });
    }
    let shape = Shape { dense: features.dense.clone(), embeddings, hidden: config.hidden(), added };
    check_memory(&shape, course.memory_bytes)?;
    Ok(shape)
}

/// Parameters, their gradients, what AdamW remembers of them, the best ones, and a checkpoint of all.
const COPIES: u64 = 8;

fn layers_len(shape: &Shape) -> u64 {
    shape.layers().last().map_or(0, |layer| layer.biases.end) as u64
}

fn table_len(embedding: &Embedding) -> u64 {
    embedding.rows as u64 * embedding.width as u64
}

/// Bytes that the training of a model holds beside its rows.
pub fn held_bytes(shape: &Shape) -> u64 {
    (layers_len(shape) + shape.embeddings.iter().map(table_len).sum::<u64>()) * 4 * COPIES
}

fn check_memory(shape: &Shape, memory_bytes: u64) -> Result<()> {
    let (layers, bytes) = (layers_len(shape), held_bytes(shape));
    if bytes <= memory_bytes / 2 {
        return Ok(());
    }
    let message =
        format!("the training would hold {} MiB of parameters, and may hold {}", bytes >> 20, memory_bytes >> 21);
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

/// For each column, one more than its largest id.
fn count_ids(course: &Course<'_>, fields: &[Field], cache: Option<&FeedCache>) -> Result<Vec<usize>> {
    if fields.is_empty() {
        return Ok(Vec::new());
    }
    let fed = course.columns(FeedConfig {
        dense: Some(Vec::new()),
        categorical: Some(fields.iter().map(|field| field.column.as_str().into()).collect()),
        missing_id: Some(MISSING_ID),
        categorical_type: forebay_feed::Whole::I32,
        cache: cache.cloned(),
        order: FeedOrder::Sequential,
        ..FeedConfig::default()
    })?;
    let mut largest = vec![-1; fields.len()];
    each(&fed, course, &mut |batch| {
        let ids = batch.numbers::<i32>(Role::Categorical);
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
    Ok(largest.into_iter().map(|id| (i64::from(id) + 1).max(0) as usize).collect())
}

/// All rows once, as they lie.
fn each(fed: &Fed, course: &Course<'_>, work: &mut dyn FnMut(&Batch) -> Result<()>) -> Result<()> {
    let mut config = fed.config(0)?;
    config.order = Order::sequential();
    config.last = forebay_feed::Last::Short;
    for batch in Feed::start(config)? {
        course.check()?;
        work(&batch?)?;
    }
    Ok(())
}

/// How good the model is on some rows.
pub fn evaluate(
    fed: &Fed,
    course: &Course<'_>,
    config: &Train,
    (shape, parameters): (&Shape, &Parameters),
) -> Result<Metrics> {
    let mut metrics = Metrics::new(config.loss());
    let mut slices: Vec<Workspace> = Vec::new();
    each(fed, course, &mut |batch| {
        let rows = rows_of(batch);
        while slices.len() < rows.slices() {
            slices.push(Workspace::new(shape));
        }
        let slices = &mut slices[..rows.slices()];
        in_parallel(course.threads, slices, |number, slice| slice.forward(shape, parameters, &rows.slice(number)));
        for (number, slice) in slices.iter().enumerate() {
            let rows = rows.slice(number);
            metrics.add(&rows, slice.outputs(rows.rows));
        }
        Ok(())
    })?;
    Ok(metrics)
}
