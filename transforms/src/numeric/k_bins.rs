//! `k_bins`: bins of equal width, of equal size, around centers, or of like labels.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use forebay_analyze::{ColumnClusters, ColumnMoments, QuantileRequest as Wanted, SampledStatistic};
use forebay_contract::PortableMap;
use forebay_model::{Fault, Finding, Result, codes, lerp, type_words};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::buckets::bucket_indices;
use super::tree_bins::TreeBins;
use crate::shared::{
    ask_weighted_quantiles, bad_value, check_weight, doubles, finding_at, output_field, output_name,
};
use crate::time::hide_helper_columns;

/// The index of the bin, of `bins` bins of equal width between the minimum and the maximum, of
/// about equal size, around the centers of clusters, or with labels as equal as possible.
///
/// In: columns of numbers. Out: `int32`, 0 to `bins - 1`; values outside the range that was learned
/// fall into the outer bins. Null stays null, NaN goes into the last bin and does not count.
/// An infinity leaves no bins of equal width and is a fault when fitting. One distinct value, or
/// nothing seen: bin 0. Edges of bins of equal size that are equal, the minimum and the maximum
/// among them, become one. `k_means` finds the centers in one pass, in a sample that is all rows up to
/// about `7.3 / epsilon^2`; infinities do not count, and fewer distinct values than bins have a bin each.
/// State: 6 KiB, or a sample as for `bucketize`. Follows scikit-learn's `KBinsDiscretizer`.
///
/// `strategy: tree` grows a decision tree over each column by itself. It adds the edge that lowers the sum of squared
/// distances between a `label` and its mean in each bin most, until there are `bins` bins or no edge lowers it. The
/// label is a number or boolean; rows where it is null or NaN do not count, and an infinite one is a fault.
/// Edges are tried at the least values of `1 / epsilon` buckets of about equal size, which takes two passes, and with
/// `exact` in the middle between any two values. State: a sample, and some 300 bytes for each bucket, or for each
/// distinct value with `exact`, spilled beyond the budget; a table of some 150 bytes each has to fit memory. With
/// `exact`, follows scikit-learn's `DecisionTreeRegressor` with `max_leaf_nodes`, and its `DecisionTreeClassifier` for
/// two classes. Edges know the labels of the rows that they are learned from: with a split, set `fit_on: train`.
///
/// `strategy: quantile` takes a `weight`. Edges are then the first values with which at least each share of the weight is
/// passed, without interpolation, as scikit-learn's `sample_weight` with `quantile_method="inverted_cdf"`. The outer edges,
/// which merge edges that are equal to them, are the least and the greatest value with a weight. Rows that do not count,
/// faults and the state are as for `bucketize` with `weight`.
///
/// ```yaml
/// - k_bins: { columns: [price], bins: 5, suffix: _bin }
/// - k_bins: { columns: [price], bins: 5, strategy: tree, label: qty, min_rows: 100, suffix: _like }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn k_bins(columns, bins),
    example = r#"k_bins(["price"], 8).strategy(BinStrategy::Quantile)"#
)]
pub struct KBins {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// Number of bins; at least 2, and at most 1,000 with `k_means` and `tree`.
    pub bins: u32,
    /// Where the edges are.
    #[serde(default)]
    pub strategy: BinStrategy,
    /// The column of labels for `tree`, of numbers or booleans, which is not among `columns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The column of the weights of rows for `quantile`, which is not among `columns`; where left out, each row counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// Least number of rows with a label in a bin of `tree`; 1 where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rows: Option<u64>,
    /// The rank error of edges that a sample gives, as a share of the rows; where left out, `1 / bins` but at
    /// most 0.01, and for `tree` 1 / 256.
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
    /// Where a decision tree over the column divides the labels.
    Tree,
}

/// Most clusters, and most leaves of a tree. The time to fill empty clusters grows with their square.
const CLUSTERS_MAX: u32 = 1_000;

/// Rank error of the buckets between which a tree tries edges.
const TREE_EPSILON: f64 = 1.0 / 256.0;

impl ConfiguredTransform for KBins {
    const NAME: &'static str = "k_bins";
}

impl Transform for KBins {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        self.check_bins()?;
        self.check_label(scope)?;
        let fields = scope.numeric_columns(&self.columns)?;
        self.check_weight(scope, &fields)?;
        let mut ops = Vec::new();
        let mut names = Vec::new();
        let mut has_helpers = false;
        for field in fields {
            if self.label.as_ref() == Some(field.name()) {
                let message = "`columns` hold the label, which tells everything of itself";
                return Err(bad_value(message).column(field.name()));
            }
            if self.strategy == BinStrategy::Tree
                && let Some(buckets_op) = self.tree()?.buckets_op(field)?
            {
                ops.push(buckets_op);
                has_helpers = true;
            }
            ops.push(self.bins_op(field)?);
            names.push(output_name(field.name(), &self.suffix));
        }
        if has_helpers {
            ops.push(hide_helper_columns(scope, names));
        }
        Ok(ops)
    }
}

impl KBins {
    fn check_bins(&self) -> Result<()> {
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
        if bins > CLUSTERS_MAX && self.strategy == BinStrategy::Tree {
            let message = format!("`bins` {bins} are more than {CLUSTERS_MAX} leaves of a tree");
            let fault = bad_value(message).field("bins");
            return Err(fault.hint("set another `strategy`, or fewer `bins`"));
        }
        if self.exact && self.strategy == BinStrategy::KMeans {
            let fault = bad_value("centers of clusters are not exact").field("exact");
            return Err(fault.hint("leave `exact` out, and lower `epsilon` for a larger sample"));
        }
        Ok(())
    }

    /// Refuses a label that is no number, and fields that belong to other strategies.
    fn check_label(&self, scope: &BindScope<'_>) -> Result<()> {
        if self.strategy != BinStrategy::Tree {
            for (field, is_set) in [
                ("label", self.label.is_some()),
                ("min_rows", self.min_rows.is_some()),
            ] {
                if is_set {
                    let fault = bad_value(format!("`{field}` is for `strategy: tree`"));
                    let hint = format!("set `strategy: tree`, or leave out `{field}`");
                    return Err(fault.field(field).hint(hint));
                }
            }
            return Ok(());
        }
        if self.min_rows == Some(0) {
            let fault = bad_value("`min_rows: 0` leaves bins without a label");
            return Err(fault.field("min_rows").hint("set 1 or more"));
        }
        let name = self.tree()?.label;
        let data_type = scope.field(name)?.data_type();
        if data_type.is_numeric() || *data_type == DataType::Boolean {
            return Ok(());
        }
        let words = type_words(data_type);
        let message = format!("the label `{name}` is {words}, not a number or boolean");
        Err(Fault::new(codes::COLUMN_TYPE, message)
            .column(name)
            .hint("`derive` a boolean for one of its classes before this step"))
    }

    /// Refuses a weight that is no number, and one of another strategy.
    fn check_weight(&self, scope: &BindScope<'_>, fields: &[&Field]) -> Result<()> {
        if self.weight.is_some() && self.strategy != BinStrategy::Quantile {
            let fault = bad_value("`weight` is for `strategy: quantile`").field("weight");
            return Err(fault.hint("set `strategy: quantile`, or leave out `weight`"));
        }
        check_weight(scope, self.weight.as_deref(), fields)
    }

    /// The tree that divides a column; a fault without a label.
    fn tree(&self) -> Result<TreeBins<'_>> {
        let Some(label) = &self.label else {
            let message = "`strategy: tree` divides a column by a `label`, and there is none";
            return Err(Fault::new(codes::MISSING_FIELD, message)
                .field("label")
                .hint("name the column of labels, or set another `strategy`"));
        };
        Ok(TreeBins {
            label,
            bins: self.bins,
            min_rows: self.min_rows.unwrap_or(1),
            epsilon: self.epsilon.unwrap_or(TREE_EPSILON),
            exact: self.exact,
        })
    }

    /// Writes the bins of a column.
    fn bins_op(&self, field: &Field) -> Result<PlanOp> {
        let requests = self.requests(field)?;
        let output = output_field(field, &self.suffix, DataType::Int32);
        let config = self.clone();
        let column = field.clone();
        let map = MapOp::fitted([field.name()], [output], requests, move |findings| {
            let edges = config.edges(findings, &column)?;
            let boundaries = edges.clone();
            let map = LoweredMap::unary(move |column| bucket_indices(column, &edges));
            Ok(map.portable(move || PortableMap::Bins(boundaries.clone())))
        });
        Ok(PlanOp::Map(map))
    }

    /// Requests for the numbers that edges of a column are made of.
    fn requests(&self, field: &Field) -> Result<Vec<AnalyzerRequest>> {
        let column = field.name();
        let bins = self.bins;
        Ok(match self.strategy {
            BinStrategy::Uniform => vec![AnalyzerRequest::new(ColumnMoments, [column])],
            BinStrategy::Quantile => {
                let shares = (0..=bins).map(|k| f64::from(k) / f64::from(bins));
                let request = Wanted::Probabilities(shares.collect());
                let epsilon = self.sample_epsilon();
                let weight = self.weight.as_deref();
                let exact = self.exact;
                vec![ask_weighted_quantiles(
                    column, weight, request, epsilon, exact,
                )?]
            }
            BinStrategy::KMeans => vec![self.ask_clusters(column)?],
            BinStrategy::Tree => self.tree()?.requests(field)?,
        })
    }

    /// The edges between the bins of a column.
    fn edges(&self, findings: &[Arc<Finding>], field: &Field) -> Result<Vec<f64>> {
        let finding = finding_at(findings, 0)?;
        match self.strategy {
            BinStrategy::Uniform => uniform_edges(finding, self.bins, field.name()),
            BinStrategy::Quantile => quantile_edges(finding),
            BinStrategy::KMeans => cluster_edges(finding),
            BinStrategy::Tree => self.tree()?.edges(findings, field.data_type()),
        }
    }

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
        let fault = Fault::new(
            codes::NOT_FINITE,
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
