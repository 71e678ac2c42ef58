//! `k_bins`: bins of equal width, of equal size, or around centers.

use arrow::datatypes::DataType;
use forebay_analyze::{ColumnClusters, ColumnMoments, QuantileRequest as Wanted, SampledStatistic};
use forebay_model::{Finding, Result, lerp};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::buckets::bucket_indices;
use crate::shared::{ask_quantiles, bad_value, doubles, finding_at, output_field};

/// The index of the bin, of `bins` bins of equal width between the minimum and the maximum, of
/// about equal size, or around the centers of clusters.
///
/// In: columns of numbers. Out: `int32`, 0 to `bins - 1`; values outside the range that was learned
/// fall into the outer bins. Null stays null, NaN goes into the last bin and does not count.
/// An infinity leaves no bins of equal width and is a fault when fitting. One distinct value, or
/// nothing seen: bin 0. Edges of bins of equal size that are equal, the minimum and the maximum
/// among them, become one. `k_means` finds the centers in one pass, in a sample that is all rows up to
/// about `7.3 / epsilon^2`; infinities do not count, and fewer distinct values than bins have a bin each.
/// State: 6 KiB, or a sample as for `bucketize`. Follows scikit-learn's `KBinsDiscretizer`.
///
/// ```yaml
/// - k_bins: { columns: [price], bins: 5, suffix: _bin }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn k_bins(columns, bins), example = r#"k_bins(["price"], 8).strategy(BinStrategy::Quantile)"#)]
pub struct KBins {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// Number of bins; at least 2, and at most 1,000 with `k_means`.
    pub bins: u32,
    /// Where the edges are.
    #[serde(default)]
    pub strategy: BinStrategy,
    /// The rank error of edges that a sample gives, as a share of the rows; where left out, `1 / bins` but at
    /// most 0.01.
    #[serde(default)]
    pub epsilon: Option<f64>,
    /// Takes the edges exactly; the state then grows with the distinct values.
    #[serde(default)]
    pub exact: bool,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

/// Where the edges of bins are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BinStrategy {
    /// At equal distances between the minimum and the maximum.
    #[default]
    Uniform,
    /// At quantiles, interpolated linearly.
    Quantile,
    /// In the middle between the centers of clusters, which are the means of the values that are nearest to them.
    KMeans,
}

/// Most clusters. The time to fill empty ones grows with their square.
const CLUSTERS_MAX: u32 = 1_000;

impl ConfiguredTransform for KBins {
    const NAME: &'static str = "k_bins";
}

impl Transform for KBins {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let bins = self.bins;
        if !(2..=1 << 20).contains(&bins) {
            return Err(bad_value(format!(
                "`bins` {bins} is not between 2 and {}",
                1 << 20
            )));
        }
        if bins > CLUSTERS_MAX && self.strategy == BinStrategy::KMeans {
            let message = format!("`bins` {bins} are more than {CLUSTERS_MAX} clusters");
            let fault = bad_value(message).field("bins");
            return Err(fault.hint("set another `strategy`, or fewer `bins`"));
        }
        if self.exact && self.strategy == BinStrategy::KMeans {
            let fault = bad_value("centers of clusters are not exact").field("exact");
            return Err(fault.hint("leave `exact` out, and lower `epsilon` for a larger sample"));
        }
        let each = scope
            .numeric_columns(&self.columns)?
            .into_iter()
            .map(|field| {
                let strategy = self.strategy;
                let name = field.name().clone();
                let ask = match strategy {
                    BinStrategy::Uniform => AnalyzerRequest::new(ColumnMoments, [field.name()]),
                    BinStrategy::Quantile => {
                        let shares = (0..=bins).map(|k| f64::from(k) / f64::from(bins));
                        let request = Wanted::Probabilities(shares.collect());
                        ask_quantiles(field.name(), request, self.sample_epsilon(), self.exact)?
                    }
                    BinStrategy::KMeans => self.ask_clusters(field.name())?,
                };
                let output = output_field(field, &self.suffix, DataType::Int32);
                Ok(PlanOp::Map(MapOp::fitted(
                    [field.name()],
                    [output],
                    [ask],
                    move |findings| {
                        let finding = finding_at(findings, 0)?;
                        let edges = match strategy {
                            BinStrategy::Uniform => uniform_edges(finding, bins, &name)?,
                            BinStrategy::Quantile => quantile_edges(finding)?,
                            BinStrategy::KMeans => cluster_edges(finding)?,
                        };
                        Ok(LoweredMap::unary(move |column| {
                            bucket_indices(column, &edges)
                        }))
                    },
                )))
            });
        each.collect()
    }
}

impl KBins {
    /// The rank error of the sample.
    fn sample_epsilon(&self) -> f64 {
        let default = (1.0 / f64::from(self.bins)).min(0.01);
        self.epsilon.unwrap_or(default)
    }

    /// A question for the centers of clusters of a column.
    fn ask_clusters(&self, column: &str) -> Result<AnalyzerRequest> {
        let epsilon = self.sample_epsilon();
        if !(epsilon > 0.0 && epsilon < 1.0) {
            let message = format!("`epsilon` {epsilon} is not between 0 and 1");
            return Err(bad_value(message).field("epsilon"));
        }
        let clusters = SampledStatistic(ColumnClusters {
            clusters: self.bins,
            epsilon,
        });
        Ok(AnalyzerRequest::new(clusters, [column]))
    }
}

fn uniform_edges(finding: &Finding, bins: u32, name: &str) -> Result<Vec<f64>> {
    let Some(min) = finding.number("min")? else {
        return Ok(Vec::new());
    };
    let Some(max) = finding.number("max")? else {
        return Ok(Vec::new());
    };
    if !min.is_finite() || !max.is_finite() {
        let fault = forebay_model::Fault::new(
            forebay_model::codes::NOT_FINITE,
            format!("`{name}` has infinite values, between which there are no bins of equal width"),
        );
        return Err(fault
            .column(name)
            .hint("`clip` before this step, or set `strategy: quantile`"));
    }
    // As numpy.linspace does, where the distance does not overflow.
    let bins_wide = f64::from(bins);
    let width = (max - min) / f64::from(bins);
    let edge = |k: u32| {
        if width.is_finite() {
            f64::from(k) * width + min
        } else {
            lerp(min, max, f64::from(k) / bins_wide)
        }
    };
    Ok(dedup_edges((1..bins).map(edge).filter(|edge| *edge > min)))
}

/// The inner edges of bins of about equal size. Artifacts of earlier programs hold no others.
fn quantile_edges(finding: &Finding) -> Result<Vec<f64>> {
    let probabilities = finding.numbers("probability")?;
    let values = doubles(finding.column("value")?)?;
    let edges = values.iter().flatten();
    Ok(if probabilities.first() == Some(&0.0) {
        inner_edges(edges)
    } else {
        dedup_edges(edges)
    })
}

/// The middles between neighbouring centers.
fn cluster_edges(finding: &Finding) -> Result<Vec<f64>> {
    let centers = finding.numbers("center")?;
    let middles = centers
        .windows(2)
        .map(|pair| f64::midpoint(pair[0], pair[1]));
    Ok(dedup_edges(middles))
}

/// The edges between the least and the greatest one, of which each counts once.
fn inner_edges(edges: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut edges = dedup_edges(edges);
    edges.truncate(edges.len().saturating_sub(1));
    edges.drain(..edges.len().min(1));
    edges
}

fn dedup_edges(edges: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut edges: Vec<f64> = edges.collect();
    edges.dedup();
    edges
}
