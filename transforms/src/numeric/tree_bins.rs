//! Bins that a decision tree over one column divides.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int32Type};
use forebay_analyze::{GroupedMoments, QuantileRequest};
use forebay_model::{Fault, Finding, Result, codes};
use forebay_plan::{AnalyzerRequest, LoweredMap, MapOp, PlanOp};

use crate::shared::{ask_quantiles, bad_value, doubles, finding_at, keyed_moments};

/// Least part of the variation of the labels' means that an edge has to explain, and of a gain that another has to
/// exceed; less is rounding.
const PART_MIN: f64 = 1e-12;

/// Most buckets between which edges are tried.
const BUCKETS_MAX: u32 = 1 << 16;

/// The bucket of NaN, which counts in no bin.
const NO_BUCKET: i32 = -1;

/// Bins of one column that have labels as equal as possible.
///
/// The tree grows at the leaf whose best division lowers the sum of squared distances from the means of labels most, as
/// scikit-learn's does with `max_leaf_nodes`. For boolean labels, this is the order of Gini's impurity.
#[derive(Debug, Clone, Copy)]
pub(super) struct TreeBins<'a> {
    pub label: &'a str,
    pub bins: u32,
    /// Least number of rows with a label in a bin.
    pub min_rows: u64,
    /// Rank error of the buckets between which edges are tried.
    pub epsilon: f64,
    /// Tries an edge between any two values.
    pub exact: bool,
}

impl TreeBins<'_> {
    /// Writes the buckets between which edges of a column are tried. Its step hides them again. `None` where any two
    /// values have an edge between them.
    pub fn buckets_op(&self, field: &Field) -> Result<Option<PlanOp>> {
        if self.exact {
            return Ok(None);
        }
        let output = Field::new(
            bucket_name(field.name()),
            DataType::Int32,
            field.is_nullable(),
        );
        let request = self.ask_boundaries(field.name())?;
        let map = MapOp::fitted([field.name()], [output], [request], |findings| {
            let boundaries = finding_at(findings, 0)?.numbers("boundary")?;
            Ok(LoweredMap::unary(move |column| {
                number_buckets(column, &boundaries)
            }))
        });
        Ok(Some(PlanOp::Map(map)))
    }

    /// Requests for the numbers that edges of a column are made of.
    pub fn requests(&self, field: &Field) -> Result<Vec<AnalyzerRequest>> {
        let column = field.name();
        if self.exact {
            return Ok(vec![self.ask_labels(column, field.data_type())]);
        }
        Ok(vec![
            self.ask_boundaries(column)?,
            self.ask_labels(&bucket_name(column), &DataType::Int32),
        ])
    }

    /// The edges of the bins of a column, in ascending order. The bin of a value is the number of edges that are not
    /// above it.
    pub fn edges(&self, findings: &[Arc<Finding>], data_type: &DataType) -> Result<Vec<f64>> {
        let first = finding_at(findings, 0)?;
        if self.exact {
            let groups = labels_by_key(first, data_type)?;
            let mut edges = Vec::new();
            for start in self.divide(&groups)? {
                edges.push(edge_between(groups[start - 1].key, groups[start].key));
            }
            return Ok(edges);
        }
        let boundaries = first.numbers("boundary")?;
        let mut groups = labels_by_key(finding_at(findings, 1)?, &DataType::Int32)?;
        groups.retain(|group| group.key != f64::from(NO_BUCKET));
        let mut edges = Vec::new();
        for start in self.divide(&groups)? {
            // Values of bucket k are at or above boundary k - 1.
            let boundary = (groups[start].key as usize).checked_sub(1);
            let edge = boundary.and_then(|boundary| boundaries.get(boundary));
            edges.push(*edge.ok_or_else(|| Fault::internal("a bucket has no boundary"))?);
        }
        Ok(edges)
    }

    fn ask_boundaries(&self, column: &str) -> Result<AnalyzerRequest> {
        if !(self.epsilon > 0.0 && self.epsilon < 1.0) {
            let message = format!("`epsilon` {} is not between 0 and 1", self.epsilon);
            return Err(bad_value(message).field("epsilon"));
        }
        let buckets = (1.0 / self.epsilon).ceil() as u32;
        let buckets = buckets.clamp(self.bins, BUCKETS_MAX);
        let request = QuantileRequest::Buckets(buckets);
        ask_quantiles(column, request, self.epsilon, false)
    }

    fn ask_labels(&self, key: &str, key_type: &DataType) -> AnalyzerRequest {
        let moments = GroupedMoments {
            keys: vec![key_type.clone()],
        };
        AnalyzerRequest::new(moments, [self.label, key])
    }

    /// Positions of the groups with which the bins but the first one start, in ascending order.
    fn divide(&self, groups: &[LabelGroup]) -> Result<Vec<usize>> {
        let Some(sums) = centered_sums(groups) else {
            let message = format!(
                "the label `{}` has values that are infinite or too far from each other",
                self.label
            );
            return Err(Fault::new(codes::NOT_FINITE, message)
                .column(self.label)
                .hint("`clip` the label before this step, or filter such rows"));
        };
        let tree = LabelTree {
            min_rows: self.min_rows as f64,
            min_gain: PART_MIN * variation(&sums),
            sums,
        };
        Ok(tree.grow(self.bins as usize))
    }
}

/// The name of the column of buckets, which its step hides again.
fn bucket_name(column: &str) -> String {
    format!("__{column}_bucket")
}

/// For each value the number of boundaries that are not above it.
fn number_buckets(column: &ArrayRef, boundaries: &[f64]) -> Result<ArrayRef> {
    let bucket = |x: f64| {
        if x.is_nan() {
            return NO_BUCKET;
        }
        boundaries.partition_point(|boundary| *boundary <= x) as i32
    };
    let buckets: Int32Array = doubles(column)?.unary::<_, Int32Type>(bucket);
    Ok(Arc::new(buckets))
}

/// Labels of rows with one value, or in one bucket.
#[derive(Debug, Clone, Copy)]
struct LabelGroup {
    key: f64,
    rows: f64,
    mean: f64,
}

/// Groups in ascending order of their keys, which are of this type. Rows without a key are left out.
fn labels_by_key(finding: &Finding, key_type: &DataType) -> Result<Vec<LabelGroup>> {
    // Keys of numbers with a fraction come as text.
    let keys = doubles(&cast(finding.column("key1")?, key_type)?)?;
    let mut groups: Vec<LabelGroup> = Vec::with_capacity(finding.rows());
    for (key, moments) in keys.iter().zip(keyed_moments(finding)?) {
        if let Some(key) = key
            && let Some(mean) = moments.mean
            && !key.is_nan()
        {
            groups.push(LabelGroup {
                key,
                rows: moments.count as f64,
                mean,
            });
        }
    }
    groups.sort_by(|a, b| a.key.total_cmp(&b.key));
    // Large integers may be one double.
    groups.dedup_by(|group, earlier| {
        let is_same = group.key == earlier.key;
        if is_same {
            let rows = earlier.rows + group.rows;
            earlier.mean += (group.mean - earlier.mean) * (group.rows / rows);
            earlier.rows = rows;
        }
        is_same
    });
    Ok(groups)
}

/// The start of the bin of `upper`, where an edge divides it from `lower`. The middle of both is in the bin of `lower`,
/// as in scikit-learn.
fn edge_between(lower: f64, upper: f64) -> f64 {
    let edge = f64::midpoint(lower, upper).next_up();
    // Neighbouring doubles have nothing between them, and two infinities have no middle.
    if edge > lower && edge <= upper {
        edge
    } else {
        upper
    }
}

/// Number of rows, and the sum of their labels' distances from the mean of all, in units of the greatest distance.
#[derive(Debug, Clone, Copy, Default)]
struct LabelSum {
    rows: f64,
    sum: f64,
}

impl LabelSum {
    fn plus(self, other: LabelSum) -> LabelSum {
        LabelSum {
            rows: self.rows + other.rows,
            sum: self.sum + other.sum,
        }
    }

    fn minus(self, other: LabelSum) -> LabelSum {
        LabelSum {
            rows: self.rows - other.rows,
            sum: self.sum - other.sum,
        }
    }

    /// By how much two means instead of one lower the sum of squared distances.
    fn gain(self, other: LabelSum) -> f64 {
        let apart = self.sum / self.rows - other.sum / other.rows;
        self.rows * other.rows / (self.rows + other.rows) * apart * apart
    }
}

/// Sums of the groups; `None` where distances of labels are no numbers.
fn centered_sums(groups: &[LabelGroup]) -> Option<Vec<LabelSum>> {
    let rows: f64 = groups.iter().map(|group| group.rows).sum();
    // Shares first: a sum of large labels may be beyond doubles.
    let mean: f64 = groups
        .iter()
        .map(|group| group.mean * (group.rows / rows))
        .sum();
    let mut greatest: f64 = 0.0;
    for group in groups {
        let distance = (group.mean - mean).abs();
        if !distance.is_finite() {
            return None;
        }
        greatest = greatest.max(distance);
    }
    let unit = if greatest > 0.0 { greatest } else { 1.0 };
    let mut sums = Vec::with_capacity(groups.len());
    for group in groups {
        sums.push(LabelSum {
            rows: group.rows,
            sum: (group.mean - mean) / unit * group.rows,
        });
    }
    Some(sums)
}

/// Sum of the squared distances of the groups' means from the mean of all.
fn variation(sums: &[LabelSum]) -> f64 {
    sums.iter()
        .map(|group| group.sum * group.sum / group.rows)
        .sum()
}

/// The best division of a leaf.
#[derive(Debug)]
struct Division {
    groups: Range<usize>,
    /// The first group of the upper side.
    start: usize,
    gain: f64,
}

/// A tree over groups of rows, in order of their values.
struct LabelTree {
    sums: Vec<LabelSum>,
    min_rows: f64,
    min_gain: f64,
}

impl LabelTree {
    /// The first groups of the leaves but the first one, of at most `leaves` leaves.
    fn grow(&self, leaves: usize) -> Vec<usize> {
        let mut starts = Vec::new();
        let mut divisions: Vec<Division> = Vec::new();
        divisions.extend(self.best_division(0..self.sums.len()));
        while starts.len() + 1 < leaves {
            let Some(index) = greatest_gain(&divisions) else {
                break;
            };
            let division = divisions.remove(index);
            starts.push(division.start);
            let lower = self.best_division(division.groups.start..division.start);
            let upper = self.best_division(division.start..division.groups.end);
            // In order of the values, so that of equal gains the lower values are divided first.
            for side in [upper, lower].into_iter().flatten() {
                divisions.insert(index, side);
            }
        }
        starts.sort_unstable();
        starts
    }

    /// The division of a leaf with the greatest gain, the first of equal ones; `None` where none is worth an edge.
    fn best_division(&self, groups: Range<usize>) -> Option<Division> {
        let mut total = LabelSum::default();
        for group in &self.sums[groups.clone()] {
            total = total.plus(*group);
        }
        let mut best: Option<Division> = None;
        let mut lower = LabelSum::default();
        for start in groups.start + 1..groups.end {
            lower = lower.plus(self.sums[start - 1]);
            let upper = total.minus(lower);
            if lower.rows < self.min_rows || upper.rows < self.min_rows {
                continue;
            }
            let gain = lower.gain(upper);
            let is_best = match &best {
                Some(best) => is_greater(gain, best.gain),
                None => gain > self.min_gain,
            };
            if is_best {
                best = Some(Division {
                    groups: groups.clone(),
                    start,
                    gain,
                });
            }
        }
        best
    }
}

/// True for a gain that is greater than another by more than rounding.
fn is_greater(gain: f64, other: f64) -> bool {
    gain > other * (1.0 + PART_MIN)
}

/// The index of the division with the greatest gain, the first of equal ones.
fn greatest_gain(divisions: &[Division]) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (index, division) in divisions.iter().enumerate() {
        if best.is_none_or(|best| is_greater(division.gain, divisions[best].gain)) {
            best = Some(index);
        }
    }
    best
}
