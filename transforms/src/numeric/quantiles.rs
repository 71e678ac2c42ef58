//! `quantiles`: the rank of a value among the data.

use forebay_contract::PortableMap;
use forebay_model::Result;
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp, Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bucketize::ask_buckets;
use super::buckets::interpolated_rank;
use crate::shared::{check_weight, finding_at, float_type, map_doubles, output_field};

/// The rank of x in [0, 1], interpolated between the `q - 1` boundaries of `q` buckets.
///
/// In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. Below the
/// first boundary 0, at or above the last 1, NaN 0.5; null stays null. NaN does not count,
/// infinities do: beside an infinite boundary it is the rank of the boundary below. Nothing seen: 0.5.
/// State: as for `bucketize`, and so are the boundaries of rows with a `weight`.
/// Follows tf.Transform's `apply_buckets_with_interpolation`, and its `quantiles` with `weights`.
///
/// ```yaml
/// - quantiles: { columns: [price], suffix: _rank }
/// - quantiles: { columns: [price], weight: qty, suffix: _rank_of_sold }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn quantiles(columns), example = r#"quantiles(["price"]).q(1000)"#)]
pub struct QuantileRanks {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// How many buckets the boundaries make; at least 2.
    #[serde(default = "hundred")]
    pub q: u32,
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

fn hundred() -> u32 {
    100
}

impl ConfiguredTransform for QuantileRanks {
    const NAME: &'static str = "quantiles";
}

impl Transform for QuantileRanks {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let fields = scope.numeric_columns(&self.columns)?;
        let weight = self.weight.as_deref();
        check_weight(scope, weight, &fields)?;
        let each = fields.into_iter().map(|field| {
            let ask = ask_buckets(field.name(), weight, self.q, self.epsilon, self.exact)?;
            let out = float_type(field.data_type());
            let output = output_field(field, &self.suffix, out.clone());
            Ok(PlanOp::Map(MapOp::fitted(
                [field.name()],
                [output],
                [ask],
                move |findings| {
                    let boundaries = finding_at(findings, 0)?.numbers("boundary")?;
                    let edges = boundaries.clone();
                    let is_portable = are_portable(&boundaries);
                    let out = out.clone();
                    let ranks = LoweredMap::unary(move |column| {
                        map_doubles(column, &out, |x| interpolated_rank(&boundaries, x))
                    });
                    if !is_portable {
                        return Ok(ranks);
                    }
                    Ok(ranks.portable(move || PortableMap::Ranks(edges.clone())))
                },
            )))
        });
        each.collect()
    }
}

/// True for boundaries whose distances, times their number, a double holds: other runtimes divide by them.
fn are_portable(boundaries: &[f64]) -> bool {
    let intervals = boundaries.len() as f64;
    boundaries.windows(2).all(|pair| {
        let is_finite = pair.iter().all(|boundary| boundary.is_finite());
        !is_finite || ((pair[1] - pair[0]) * intervals).is_finite()
    })
}
