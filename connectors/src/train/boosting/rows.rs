//! From the rows of a feed to tables.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use forebay_feed::{BatchFeatures, FeatureField, id_values, real_values};
use forebay_model::{Fault, Result, codes};
use forebay_run::{FeedSource, TrainingContext};
use forebay_threads::parallel_map;
use std::ops::ControlFlow;

use super::loss::Objective;
use super::table::FeatureTable;
use crate::train::config::OnNonFinite;

/// The values that name a group: nulls are values of their own.
pub type GroupName = Vec<Option<String>>;

/// Rows that were read together.
pub struct ReadRows {
    pub table: FeatureTable,
    /// The columns that name groups, as text.
    pub groups: Vec<ArrayRef>,
    /// Rows that were left out.
    pub skipped: u64,
}

/// What is done with labels and weights.
#[derive(Clone, Copy)]
pub struct LabelPolicy {
    pub objective: Objective,
    pub non_finite: OnNonFinite,
}

/// Reads all rows once, and hands them over in their order.
pub fn read_rows(
    fed: &FeedSource,
    course: &TrainingContext<'_>,
    policy: LabelPolicy,
    take: &mut dyn FnMut(ReadRows) -> Result<()>,
) -> Result<()> {
    let columns = fed.features.columns();
    for blocks in &fed.blocks {
        let count = blocks.dataset().blocks();
        let together = course.threads.max(1);
        for first in (0..count).step_by(together) {
            course.check()?;
            let read = parallel_map(together, together.min(count - first), &|at| {
                let block = (first + at) as u32;
                let (mut parts, mut failed) = (Vec::new(), None);
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
    let (dense, rest) = columns
        .split_at_checked(features.dense.len())
        .ok_or_else(too_few)?;
    let ids = rest.get(..features.categorical.len()).ok_or_else(too_few)?;
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

/// Columns that name groups, as text.
pub fn group_columns(columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    columns
        .iter()
        .map(|column| Ok(cast(column, &DataType::Utf8)?))
        .collect()
}

/// The values that name the group of a row.
pub fn group_name(columns: &[ArrayRef], row: usize) -> GroupName {
    let value = |column: &ArrayRef| {
        let text = column.as_string_opt::<i32>()?;
        text.is_valid(row).then(|| text.value(row).to_owned())
    };
    columns.iter().map(value).collect()
}

fn too_few() -> Fault {
    Fault::internal("the source gave fewer columns than it was asked for")
}

/// Puts a column's values to their place in each row.
fn interleave<T: Copy>(
    all: &mut [T],
    row_width: usize,
    at: &mut usize,
    width: usize,
    values: &[T],
) {
    for (row, values) in all
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
    let mut rest = columns
        .iter()
        .skip(features.dense.len() + features.categorical.len());
    let mut keep = vec![true; batch.num_rows()];
    if let Some(label) = &features.label {
        table.labels = real_values(label, rest.next().ok_or_else(too_few)?)?;
        check_finite(label, &mut table.labels, &mut keep, policy.non_finite)?;
        let refused =
            |(row, value): (usize, &f32)| Some((row, *value, policy.objective.refuse(*value)?));
        if let Some((row, value, reason)) = table.labels.iter().enumerate().find_map(refused) {
            let fault = Fault::new(codes::BAD_ROW, format!("the label {value} {reason}"));
            let fault = fault.column(&label.column).rows([row as u64]);
            return Err(fault.hint("filter such rows, or choose `loss: squared_error`"));
        }
    }
    if let Some(weight) = &features.weight {
        table.weights = real_values(weight, rest.next().ok_or_else(too_few)?)?;
        check_finite(weight, &mut table.weights, &mut keep, policy.non_finite)?;
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
    let rest: Vec<ArrayRef> = rest.cloned().collect();
    let mut groups = group_columns(&rest)?;
    let skipped = keep.iter().filter(|keep| !**keep).count() as u64;
    if skipped > 0 {
        let mut kept = FeatureTable::new(table.numbers, table.ids);
        (0..keep.len())
            .filter(|row| keep[*row])
            .for_each(|row| kept.push_row(&table, row));
        table = kept;
        let mask = arrow::array::BooleanArray::from(keep);
        groups = groups
            .iter()
            .map(|column| Ok(arrow::compute::filter(column, &mask)?))
            .collect::<Result<_>>()?;
    }
    Ok(ReadRows {
        table,
        groups,
        skipped,
    })
}

fn check_finite(
    field: &FeatureField,
    values: &mut [f32],
    keep: &mut [bool],
    policy: OnNonFinite,
) -> Result<()> {
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
    bad.into_iter().for_each(|row| values[row] = 0.0);
    Ok(())
}
