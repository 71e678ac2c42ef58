//! Converts the rows of a feed to tables.

use arrow::array::{ArrayRef, RecordBatch};
use forebay_contract::{FeedSource, TrainingContext};
use forebay_feed::{
    BatchFeatures, FeatureField, LoadCounts, filled_values, id_values, real_values,
};
use forebay_model::{Fault, Result, codes};
use forebay_threads::parallel_map;
use std::ops::ControlFlow;

use super::loss::Objective;
use super::table::FeatureTable;
use crate::classes::ClassLabels;
use crate::config::OnNonFinite;
use crate::group_names::group_columns;

/// Rows that were read together.
pub struct ReadRows {
    pub table: FeatureTable,
    /// The classes of the rows, where the label is one: the table's labels are 0 then.
    pub classes: Option<ClassLabels>,
    /// The columns that name groups, as text.
    pub groups: Vec<ArrayRef>,
    /// Rows that were left out, and values that were changed.
    pub counts: LoadCounts,
}

/// Treatment of labels and weights.
#[derive(Clone, Copy)]
pub struct LabelPolicy {
    /// `None` of labels that are classes.
    pub objective: Option<Objective>,
    pub non_finite: OnNonFinite,
}

/// Reads all rows once, and hands them over in their order.
pub fn read_rows(
    fed: &FeedSource,
    context: &TrainingContext<'_>,
    policy: LabelPolicy,
    take: &mut dyn FnMut(ReadRows) -> Result<()>,
) -> Result<()> {
    let columns = fed.features.columns();
    for blocks in &fed.blocks {
        let count = blocks.dataset().blocks();
        let blocks_at_once = context.threads.max(1);
        for first in (0..count).step_by(blocks_at_once) {
            context.check()?;
            let read = parallel_map(blocks_at_once, blocks_at_once.min(count - first), &|at| {
                let block = (first + at) as u32;
                let mut parts = Vec::new();
                let mut failed = None;
                blocks.read(block, &columns, &mut |batch| match to_rows(
                    &fed.features,
                    &batch,
                    policy,
                ) {
                    Ok(rows) => {
                        parts.push(rows);
                        ControlFlow::Continue(())
                    }
                    Err(fault) => {
                        failed = Some(blocks.locate_fault(block, fault));
                        ControlFlow::Break(())
                    }
                })?;
                failed.map_or(Ok(parts), Err)
            })?;
            read.into_iter().flatten().try_for_each(&mut *take)?;
        }
    }
    Ok(())
}

/// The features of columns, which come in the order of [`BatchFeatures::columns`]; no labels.
pub fn feature_table(
    features: &BatchFeatures,
    columns: &[ArrayRef],
    rows: usize,
) -> Result<FeatureTable> {
    let width = |fields: &[FeatureField]| fields.iter().map(|field| field.width as usize).sum();
    let mut table = FeatureTable::new(width(&features.dense), width(&features.categorical));
    let (dense, other_columns) = columns
        .split_at_checked(features.dense.len())
        .ok_or_else(too_few)?;
    let ids = other_columns
        .get(..features.categorical.len())
        .ok_or_else(too_few)?;
    table.dense = vec![0.0; rows * table.numbers];
    table.categories = vec![0; rows * table.ids];
    let mut at = 0;
    for (field, column) in features.dense.iter().zip(dense) {
        let field = FeatureField {
            missing: Some(field.missing.unwrap_or(f64::NAN)),
            ..field.clone()
        };
        interleave(
            &mut table.dense,
            table.numbers,
            &mut at,
            field.width as usize,
            &real_values(&field, column)?,
        );
    }
    at = 0;
    for (field, column) in features.categorical.iter().zip(ids) {
        interleave(
            &mut table.categories,
            table.ids,
            &mut at,
            field.width as usize,
            &id_values(field, column)?,
        );
    }
    Ok(table)
}

fn too_few() -> Fault {
    Fault::internal("the source gave fewer columns than it was asked for")
}

/// Writes a column's values to their positions in each row.
fn interleave<T: Copy>(
    target: &mut [T],
    row_width: usize,
    at: &mut usize,
    width: usize,
    values: &[T],
) {
    for (row, values) in target
        .chunks_exact_mut(row_width)
        .zip(values.chunks_exact(width))
    {
        row[*at..*at + width].copy_from_slice(values);
    }
    *at += width;
}

fn to_rows(features: &BatchFeatures, batch: &RecordBatch, policy: LabelPolicy) -> Result<ReadRows> {
    let columns = batch.columns();
    let mut table = feature_table(features, columns, batch.num_rows())?;
    let mut columns_left = columns
        .iter()
        .skip(features.dense.len() + features.categorical.len());
    let mut keep = vec![true; batch.num_rows()];
    let mut counts = LoadCounts::default();
    for (field, column) in features.dense.iter().zip(columns) {
        counts.filled.push(filled_values(field, column)?);
    }
    counts.values.filled = counts.filled.iter().sum();
    let mut classes = None;
    if let Some(label) = &features.label
        && features.label_as_is
    {
        let column = columns_left.next().ok_or_else(too_few)?;
        classes = Some(ClassLabels::read(&label.column, column)?);
        table.labels = vec![0.0; batch.num_rows()];
    } else if let Some(label) = &features.label {
        table.labels = real_values(label, columns_left.next().ok_or_else(too_few)?)?;
        let changed = check_finite(label, &mut table.labels, &mut keep, policy.non_finite)?;
        counts.values.non_finite += changed;
        let refused =
            |(row, value): (usize, &f32)| Some((row, *value, policy.objective?.refuse(*value)?));
        if let Some((row, value, reason)) = table.labels.iter().enumerate().find_map(refused) {
            let fault = Fault::new(codes::BAD_ROW, format!("the label {value} {reason}"));
            let fault = fault.column(&label.column).rows([row as u64]);
            return Err(fault.hint("filter such rows, or choose `loss: squared_error`"));
        }
    }
    if let Some(weight) = &features.weight {
        table.weights = real_values(weight, columns_left.next().ok_or_else(too_few)?)?;
        let changed = check_finite(weight, &mut table.weights, &mut keep, policy.non_finite)?;
        counts.values.non_finite += changed;
        if let Some(row) = table.weights.iter().position(|weight| *weight < 0.0) {
            let fault = Fault::new(
                codes::BAD_ROW,
                format!("the weight {} is negative", table.weights[row]),
            );
            return Err(fault
                .column(&weight.column)
                .rows([row as u64])
                .hint("filter such rows"));
        }
    }
    let group_arrays: Vec<ArrayRef> = columns_left.cloned().collect();
    let mut groups = group_columns(&group_arrays)?;
    counts.values.skipped = keep.iter().filter(|keep| !**keep).count() as u64;
    if counts.values.skipped > 0 {
        let mut loaded = FeatureTable::new(table.numbers, table.ids);
        for row in (0..keep.len()).filter(|row| keep[*row]) {
            loaded.push_row(&table, row);
        }
        table = loaded;
        let mask = arrow::array::BooleanArray::from(keep);
        groups = groups
            .iter()
            .map(|column| Ok(arrow::compute::filter(column, &mask)?))
            .collect::<Result<_>>()?;
        if let Some(labels) = &mut classes {
            labels.retain(&mask)?;
        }
    }
    Ok(ReadRows {
        table,
        classes,
        groups,
        counts,
    })
}

/// Number of values that are not finite. They become 0, and their rows are left out, or they are a fault.
fn check_finite(
    field: &FeatureField,
    values: &mut [f32],
    keep: &mut [bool],
    policy: OnNonFinite,
) -> Result<u64> {
    let bad: Vec<usize> = (0..values.len())
        .filter(|row| !values[*row].is_finite())
        .collect();
    match policy {
        OnNonFinite::Fail if !bad.is_empty() => {
            let message = format!(
                "`{}` has {} values that are not finite",
                field.column,
                bad.len()
            );
            let fault = Fault::new(codes::NOT_FINITE, message).column(&field.column);
            let fault = fault.rows(bad.into_iter().map(|row| row as u64));
            return Err(fault.hint(
                "`clip` or `impute` the column before, or set `non_finite` to `skip` or `zero`",
            ));
        }
        OnNonFinite::Skip => bad.iter().for_each(|row| keep[*row] = false),
        OnNonFinite::Fail | OnNonFinite::Zero => {}
    }
    let count = bad.len() as u64;
    for row in bad {
        values[row] = 0.0;
    }
    Ok(count)
}
