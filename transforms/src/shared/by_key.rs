//! Statistics of one column, over everything or for each key, and scaling by them.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, UInt64Type};
use forebay_analyze::{ColumnMoments, GroupedMoments};
use forebay_model::{Fault, Finding, Result};
use forebay_plan::{AnalyzerRequest, BindScope, LoweredMap, MapOp, PlanOp, WrittenNulls};

use super::{KeyIndex, finding_at, float_type, map_doubles, map_doubles_with_row, output_field};

/// What was learned about a group of values; `None` where nothing was seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeyedMoments {
    pub count: u64,
    pub mean: Option<f64>,
    pub var: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
}

/// An operation that scales one column of numbers by its moments. `scaler` turns the moments into
/// numbers and `scale` applies them to a value; a key that was never seen takes `unseen`.
pub(crate) fn scale_by_moments<S: Copy + Send + Sync + 'static>(
    scope: &BindScope<'_>,
    field: &Field,
    by: &[String],
    suffix: &Option<String>,
    scaler: impl Fn(&KeyedMoments) -> Result<S> + Send + Sync + 'static,
    unseen: S,
    scale: impl Fn(S, f64) -> f64 + Copy + Send + Sync + 'static,
) -> Result<PlanOp> {
    let out = float_type(field.data_type());
    let column = field.name().clone();
    let scaler =
        move |learned: &KeyedMoments| scaler(learned).map_err(|fault: Fault| fault.column(&column));
    let output = output_field(field, suffix, out.clone());
    let reads: Vec<String> = std::iter::once(field.name()).chain(by).cloned().collect();
    if by.is_empty() {
        return Ok(PlanOp::Map(MapOp::fitted(
            reads.clone(),
            [output],
            [AnalyzerRequest::new(ColumnMoments, reads)],
            move |findings| {
                let of_all = scaler(
                    read_moments(finding_at(findings, 0)?)?
                        .first()
                        .unwrap_or(&KeyedMoments::default()),
                )?;
                let out = out.clone();
                Ok(LoweredMap::unary(move |column| {
                    map_doubles(column, &out, |value| scale(of_all, value))
                }))
            },
        )));
    }
    let keys: Vec<DataType> = by
        .iter()
        .map(|key| Ok(scope.field(key)?.data_type().clone()))
        .collect::<Result<_>>()?;
    let nulls = WrittenNulls::Of(field.name().clone());
    let scaled = MapOp::fitted(
        reads.clone(),
        [output],
        [AnalyzerRequest::new(GroupedMoments { keys }, reads)],
        move |findings| {
            let finding = finding_at(findings, 0)?;
            let keys = finding
                .table()
                .columns()
                .iter()
                .take(key_column_count(finding))
                .cloned()
                .collect::<Vec<_>>();
            let index = KeyIndex::new(&keys, |_, _| Ok(()))?;
            let scalers: Vec<S> = read_moments(finding)?
                .iter()
                .map(&scaler)
                .collect::<Result<_>>()?;
            let out = out.clone();
            Ok(LoweredMap::new(move |inputs, _| {
                let Some((column, keys)) = inputs.split_first() else {
                    return Ok(Vec::new());
                };
                let found = index.find(keys)?;
                let of_row = |row: usize| {
                    found
                        .get(row)
                        .copied()
                        .flatten()
                        .and_then(|id| scalers.get(id as usize))
                        .copied()
                        .unwrap_or(unseen)
                };
                Ok(vec![map_doubles_with_row(column, &out, |row, value| {
                    scale(of_row(row), value)
                })?])
            }))
        },
    );
    Ok(PlanOp::Map(scaled.written_nulls(nulls)))
}

/// The key columns of a finding come first and are called `key1`, `key2`, ...
fn key_column_count(finding: &Finding) -> usize {
    finding
        .table()
        .schema_ref()
        .fields()
        .iter()
        .take_while(|field| field.name().starts_with("key"))
        .count()
}

fn read_moments(finding: &Arc<Finding>) -> Result<Vec<KeyedMoments>> {
    let counts = finding.column("count")?.as_primitive::<UInt64Type>();
    let number = |name: &str| -> Result<Vec<Option<f64>>> {
        let column: &ArrayRef = finding.column(name)?;
        Ok(super::doubles(column)?.iter().collect())
    };
    let (mean, var, min, max) = (
        number("mean")?,
        number("var")?,
        number("min")?,
        number("max")?,
    );
    Ok((0..counts.len())
        .map(|row| KeyedMoments {
            count: counts.value(row),
            mean: mean[row],
            var: var[row],
            min: min[row],
            max: max[row],
        })
        .collect())
}
