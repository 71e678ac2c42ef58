//! `bucketize`: buckets of about equal size.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int32Array};
use arrow::datatypes::{DataType, Field, Int32Type};
use forebay_analyze::{GroupedQuantiles, QuantileRequest as Wanted};
use forebay_contract::PortableMap;
use forebay_model::{Fault, Finding, Result};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    RowMark, Transform, WrittenNulls,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::buckets::bucket_indices;
use crate::shared::{
    KeyIndex, ask_weighted_quantiles, bad_value, check_weight, doubles, finding_at, mark_values,
    output_field,
};

/// The index of the bucket, of `q` buckets of about equal size: the number of boundaries that are
/// not above x.
///
/// In: columns of numbers. Out: `int32`, 0 to `q - 1`. Boundary k is `sorted[floor(n * k / q)]`
/// within the rank error; boundaries may be equal. Null stays null, NaN goes into the last bucket
/// and does not count, infinities count. Nothing seen: bucket 0. State: a sample of about
/// `7.3 / epsilon^2` rows of 16 bytes (exact up to that many rows), or the distinct values,
/// spilled beyond the budget. Follows tf.Transform's `bucketize`.
///
/// With `by`, a value falls between the boundaries of its key, exact quantiles that are interpolated linearly; `q` is then
/// at most 1,000. A key that was not seen gives -1; null is a key. State: the distinct values of each key, spilled beyond
/// the budget; the boundaries have to fit memory. Follows tf.Transform's `bucketize_per_key`, whose quantiles are
/// approximate.
///
/// With `weight`, buckets have about equal sums of weights: boundary k is the first value with which more than `k / q` of
/// the weight is passed, within the rank error as a share of the weight. Rows without a weight (null or NaN) and weights of
/// 0 do not count; a weight that is negative, infinite, below 1e-200 or above 1e200 is a fault when fitting. State: a sample
/// of as many rows, of 56 bytes, which is exact up to as many rows, or the distinct values with the exact sums of their
/// weights. Applying reads no weights. Follows tf.Transform's `bucketize` with `weights`. With `by` and `weight`, boundary k
/// of a key is the first value with which at least `k / q` of its weight is passed.
///
/// ```yaml
/// - bucketize: { columns: [price], q: 4, suffix: _bucket }
/// - bucketize: { columns: [price], q: 4, weight: qty, suffix: _sold }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn bucketize(columns, q), example = r#"bucketize(["price"], 10).exact(true)"#)]
pub struct Bucketize {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// How many buckets; at least 2.
    pub q: u32,
    /// Key columns: boundaries are learned for each of their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// The column of the weights of rows, which is not among `columns`; where left out, each row counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// The rank error of boundaries, as a share of the rows; where left out, `1 / q` but at most
    /// 0.01.
    #[serde(default)]
    pub epsilon: Option<f64>,
    /// Takes the boundaries exactly; the state then grows with the distinct values.
    #[serde(default)]
    pub exact: bool,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

/// A question for the boundaries of `q` buckets, of equal sums of weights where rows have them.
pub(super) fn ask_buckets(
    column: &str,
    weight: Option<&str>,
    q: u32,
    epsilon: Option<f64>,
    exact: bool,
) -> Result<AnalyzerRequest> {
    if !(2..=1 << 20).contains(&q) {
        return Err(bad_value(format!(
            "`q` {q} is not between 2 and {}",
            1 << 20
        )));
    }
    ask_weighted_quantiles(
        column,
        weight,
        Wanted::Buckets(q),
        epsilon.unwrap_or((1.0 / f64::from(q)).min(0.01)),
        exact,
    )
}

impl ConfiguredTransform for Bucketize {
    const NAME: &'static str = "bucketize";
}

impl Transform for Bucketize {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if !self.by.is_empty() {
            return self.bind_by_key(scope);
        }
        let fields = scope.numeric_columns(&self.columns)?;
        let weight = self.weight.as_deref();
        check_weight(scope, weight, &fields)?;
        let each = fields.into_iter().map(|field| {
            let ask = ask_buckets(field.name(), weight, self.q, self.epsilon, self.exact)?;
            let output = output_field(field, &self.suffix, DataType::Int32);
            Ok(PlanOp::Map(MapOp::fitted(
                [field.name()],
                [output],
                [ask],
                move |findings| {
                    let boundaries = finding_at(findings, 0)?.numbers("boundary")?;
                    let edges = boundaries.clone();
                    let map = LoweredMap::unary(move |column| bucket_indices(column, &boundaries));
                    Ok(map.portable(move || PortableMap::Bins(edges.clone())))
                },
            )))
        });
        each.collect()
    }
}

/// Most buckets of a key.
const KEY_BUCKETS_MAX: u32 = 1_000;

/// The bucket of a key that was not seen.
const UNSEEN_KEY: i32 = -1;

impl Bucketize {
    fn bind_by_key(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if !(2..=KEY_BUCKETS_MAX).contains(&self.q) {
            let message = format!("`q` {} is not between 2 and {KEY_BUCKETS_MAX}", self.q);
            return Err(bad_value(message).field("q"));
        }
        if self.epsilon.is_some() {
            let fault = bad_value("boundaries of keys are exact").field("epsilon");
            return Err(fault.hint("leave out `epsilon`, or `by`"));
        }
        let mut key_types = Vec::new();
        for key in &self.by {
            key_types.push(scope.field(key)?.data_type().clone());
        }
        let fields = scope.numeric_columns(&self.columns)?;
        check_weight(scope, self.weight.as_deref(), &fields)?;
        let mut ops = Vec::new();
        for field in fields {
            ops.push(PlanOp::Map(self.map_by_key(field, &key_types)?));
        }
        Ok(ops)
    }

    fn map_by_key(&self, field: &Field, key_types: &[DataType]) -> Result<MapOp> {
        let shares = (1..self.q).map(|k| f64::from(k) / f64::from(self.q));
        let shares: Vec<f64> = shares.collect();
        let mut reads = vec![field.name().clone()];
        reads.extend_from_slice(&self.by);
        let request = match &self.weight {
            None => AnalyzerRequest::new(GroupedQuantiles::new(key_types, &shares)?, reads.clone()),
            Some(weight) => {
                let quantiles = GroupedQuantiles::weighted(key_types, weight, &shares)?;
                let mut inputs = reads.clone();
                inputs.insert(1, weight.clone());
                AnalyzerRequest::new(quantiles, inputs)
            }
        };
        let output = output_field(field, &self.suffix, DataType::Int32);
        let key_count = self.by.len();
        let map = MapOp::fitted(reads, [output], [request], move |findings| {
            let boundaries = KeyBoundaries::of(finding_at(findings, 0)?, key_count)?;
            Ok(LoweredMap::new(move |inputs, _| {
                let Some((values, keys)) = inputs.split_first() else {
                    return Err(Fault::internal("buckets received no column"));
                };
                let buckets = boundaries.buckets(values, keys)?;
                let marks = mark_values::<Int32Type>(&buckets, |bucket| bucket == UNSEEN_KEY)?;
                Ok(vec![buckets, marks])
            }))
        });
        let map = map.written_nulls(WrittenNulls::Of(field.name().clone()));
        Ok(map.marking([RowMark::Unknown]))
    }
}

/// The boundaries of each key, as they were learned.
struct KeyBoundaries {
    index: KeyIndex,
    /// Each boundary of all rows of the index, in ascending order; null for a key without values.
    boundaries: Vec<Float64Array>,
}

impl KeyBoundaries {
    fn of(finding: &Finding, key_count: usize) -> Result<KeyBoundaries> {
        let (keys, quantiles) = finding.table().columns().split_at(key_count);
        let index = KeyIndex::new(keys, |_, _| Ok(()))?;
        let mut boundaries = Vec::with_capacity(quantiles.len());
        for quantile in quantiles {
            boundaries.push(doubles(quantile)?);
        }
        Ok(KeyBoundaries { index, boundaries })
    }

    /// The number of boundaries of a key that are not above a value; NaN goes last.
    fn bucket(&self, key_row: usize, value: f64) -> i32 {
        let has_values = self
            .boundaries
            .first()
            .is_some_and(|boundary| boundary.is_valid(key_row));
        if !has_values {
            return 0;
        }
        if value.is_nan() {
            return self.boundaries.len() as i32;
        }
        let is_reached = |boundary: &Float64Array| boundary.value(key_row) <= value;
        self.boundaries.partition_point(is_reached) as i32
    }

    /// The bucket of each value among those of its key.
    fn buckets(&self, values: &ArrayRef, keys: &[ArrayRef]) -> Result<ArrayRef> {
        let key_rows = self.index.find(keys)?;
        let values = doubles(values)?;
        let mut buckets = Vec::with_capacity(values.len());
        for (value, key_row) in values.values().iter().zip(key_rows) {
            buckets.push(match key_row {
                Some(row) => self.bucket(row as usize, *value),
                None => UNSEEN_KEY,
            });
        }
        Ok(Arc::new(Int32Array::new(
            buckets.into(),
            values.nulls().cloned(),
        )))
    }
}
