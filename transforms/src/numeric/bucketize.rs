//! `bucketize`: buckets of about equal size.

use arrow::datatypes::DataType;
use forebay_analyze::QuantileRequest as Wanted;
use forebay_model::Result;
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::buckets::bucket_indices;
use crate::shared::{ask_quantiles, bad_value, finding_at, output_field};

/// The index of the bucket, of `q` buckets of about equal size: the number of boundaries that are
/// not above x.
///
/// In: columns of numbers. Out: `int32`, 0 to `q - 1`. Boundary k is `sorted[floor(n * k / q)]`
/// within the rank error; boundaries may be equal. Null stays null, NaN goes into the last bucket
/// and does not count, infinities count. Nothing seen: bucket 0. State: a sample of about
/// `7.3 / epsilon^2` rows of 16 bytes (exact up to that many rows), or the distinct values,
/// spilled beyond the budget. Follows tf.Transform's `bucketize`.
///
/// ```yaml
/// - bucketize: { columns: [price], q: 4, suffix: _bucket }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn bucketize(columns, q), example = r#"bucketize(["price"], 10).exact(true)"#)]
pub struct Bucketize {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// How many buckets; at least 2.
    pub q: u32,
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

/// A question for the boundaries of `q` buckets.
pub(super) fn ask_buckets(
    column: &str,
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
    ask_quantiles(
        column,
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
        let each = scope
            .numeric_columns(&self.columns)?
            .into_iter()
            .map(|field| {
                let ask = ask_buckets(field.name(), self.q, self.epsilon, self.exact)?;
                let output = output_field(field, &self.suffix, DataType::Int32);
                Ok(PlanOp::Map(MapOp::fitted(
                    [field.name()],
                    [output],
                    [ask],
                    move |findings| {
                        let boundaries = finding_at(findings, 0)?.numbers("boundary")?;
                        Ok(LoweredMap::unary(move |column| {
                            bucket_indices(column, &boundaries)
                        }))
                    },
                )))
            });
        each.collect()
    }
}
