//! The centers of clusters of one column.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array};
use forebay_model::{Finding, Result};
use serde_json::{Value, json};

use crate::sampled_statistic::SampleStatistic;

/// The centers of clusters of one numeric column: each value is in the cluster of the nearest center, and a center is
/// the mean of its cluster.
///
/// Lloyd's iterations (IEEE Transactions on Information Theory 28, 1982) from the middles of ranges of equal width,
/// until no value changes its cluster, at most 300. A cluster that loses all values continues with the value farthest
/// from its center. `SampledStatistic` computes it from the sample of `SampledQuantiles`: all values up to about
/// `7.3 / epsilon^2` rows. Nulls, NaN and infinities do not count.
///
/// The finding has one column, `center` (Float64), in ascending order: at most as many rows as there are clusters and
/// distinct values.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnClusters {
    /// Number of clusters.
    pub clusters: u32,
    /// Largest rank error of the sample, as a share of the rows.
    pub epsilon: f64,
}

/// Most iterations; scikit-learn's number.
const ITERATIONS_MAX: usize = 300;

impl ColumnClusters {
    /// The centers of sorted finite values.
    fn centers(&self, values: &[f64]) -> Vec<f64> {
        let mut distinct = values.to_vec();
        distinct.dedup();
        if distinct.len() <= self.clusters as usize {
            return distinct;
        }
        let mut centers = middles(&distinct, self.clusters);
        let mut ends = cluster_ends(values, &centers);
        for _ in 0..ITERATIONS_MAX {
            centers = means(values, &centers, &ends);
            let next_ends = cluster_ends(values, &centers);
            if next_ends == ends {
                break;
            }
            ends = next_ends;
        }
        centers.dedup();
        centers
    }
}

/// The middles of ranges of equal width between the least and the greatest of sorted values.
fn middles(values: &[f64], count: u32) -> Vec<f64> {
    let least = values.first().copied().unwrap_or(0.0);
    let greatest = values.last().copied().unwrap_or(0.0);
    let parts = 2.0 * f64::from(count);
    let mut middles = Vec::with_capacity(count as usize);
    for index in 0..count {
        // Shares of both, since the distance of the two may be beyond doubles.
        let share = (2.0 * f64::from(index) + 1.0) / parts;
        middles.push(least * (1.0 - share) + greatest * share);
    }
    middles
}

/// The end of each cluster among sorted values. Of two centers at equal distance the lower one counts.
fn cluster_ends(values: &[f64], centers: &[f64]) -> Vec<usize> {
    let mut ends = Vec::with_capacity(centers.len());
    for pair in centers.windows(2) {
        let edge = f64::midpoint(pair[0], pair[1]);
        ends.push(values.partition_point(|value| *value <= edge));
    }
    ends.push(values.len());
    ends
}

/// The value of a cluster that is farthest from its center: it lies at one of the ends. Of several at equal distance the
/// lowest counts.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FarEnd {
    /// Bits of the distance, which are in the order of distances.
    distance: u64,
    cluster: Reverse<usize>,
    is_first: bool,
}

impl FarEnd {
    /// The far end of a cluster; `None` if the cluster would lose its only value.
    fn of(index: usize, cluster: &[f64], center: f64) -> Option<FarEnd> {
        let [first, .., last] = cluster else {
            return None;
        };
        let to_first = (first - center).abs();
        let to_last = (last - center).abs();
        Some(FarEnd {
            distance: to_first.max(to_last).to_bits(),
            cluster: Reverse(index),
            is_first: to_first >= to_last,
        })
    }
}

/// The means of clusters, in ascending order. Each cluster without values takes the one that is farthest from its
/// center out of another cluster.
fn means(values: &[f64], centers: &[f64], ends: &[usize]) -> Vec<f64> {
    let mut begin = 0;
    let mut clusters: Vec<&[f64]> = Vec::with_capacity(ends.len());
    for end in ends {
        clusters.push(&values[begin..*end]);
        begin = *end;
    }
    let empty_count = clusters.iter().filter(|cluster| cluster.is_empty()).count();
    let mut means = Vec::with_capacity(centers.len());
    let mut far_ends = BinaryHeap::new();
    if empty_count > 0 {
        for (index, cluster) in clusters.iter().enumerate() {
            far_ends.extend(FarEnd::of(index, cluster, centers[index]));
        }
    }
    for _ in 0..empty_count {
        let Some(far_end) = far_ends.pop() else {
            break;
        };
        let Reverse(index) = far_end.cluster;
        let cluster = &mut clusters[index];
        let value = if far_end.is_first {
            cluster.split_off_first()
        } else {
            cluster.split_off_last()
        };
        means.extend(value);
        far_ends.extend(FarEnd::of(index, cluster, centers[index]));
    }
    for cluster in clusters {
        if !cluster.is_empty() {
            let count = cluster.len() as f64;
            means.push(cluster.iter().map(|value| value / count).sum::<f64>());
        }
    }
    means.sort_by(f64::total_cmp);
    means
}

impl SampleStatistic for ColumnClusters {
    fn kind(&self) -> &'static str {
        "column_clusters"
    }

    fn config(&self) -> Value {
        json!({ "clusters": self.clusters, "epsilon": self.epsilon })
    }

    fn epsilon(&self) -> f64 {
        self.epsilon
    }

    fn finding(&self, mut values: Vec<f64>) -> Result<Finding> {
        values.retain(|value| value.is_finite());
        let centers = Float64Array::from(self.centers(&values));
        Finding::of([("center", Arc::new(centers) as ArrayRef)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn centers(clusters: u32, values: &[f64]) -> Vec<f64> {
        let fit = ColumnClusters {
            clusters,
            epsilon: 0.01,
        };
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        fit.centers(&values)
    }

    #[test]
    fn centers_are_means_of_the_nearest_values() {
        let separate = [0.0, 1.0, 2.0, 20.0, 21.0, 22.0, 50.0, 52.0];
        assert_eq!(centers(3, &separate), [1.0, 21.0, 51.0]);
        // The middle range has no values: its cluster begins with 0, the value farthest from its center.
        let two_heaps = [0.0, 1.0, 11.0, 12.0, 60.0, 60.0];
        assert_eq!(centers(3, &two_heaps), [0.5, 11.5, 60.0]);
        assert_eq!(centers(3, &[7.0, 7.0]), [7.0]);
        assert_eq!(centers(3, &[]), [0.0; 0]);
        assert_eq!(centers(2, &[f64::MIN, 0.0, f64::MAX]).len(), 2);
    }

    #[test]
    fn clusters_without_values_take_the_farthest_ones() {
        // Nearly all values are in the first of the ranges of equal width.
        let mut values: Vec<f64> = (0..4_000).map(f64::from).collect();
        values.push(1e9);
        let centers = centers(2_000, &values);
        assert_eq!(centers.len(), 2_000);
        assert!(centers.is_sorted());
        assert_eq!(centers.last(), Some(&1e9));
    }

    #[test]
    fn middles_of_any_values_are_numbers_in_order() {
        assert_eq!(middles(&[0.0, 60.0], 2), [15.0, 45.0]);
        let of_all = middles(&[f64::MIN, f64::MAX], 4);
        assert!(of_all.iter().all(|middle| middle.is_finite()), "{of_all:?}");
        assert!(of_all.is_sorted(), "{of_all:?}");
    }
}
