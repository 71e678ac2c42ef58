//! Profile of a column.

use std::collections::BTreeMap;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, UInt64Type};
use forebay_model::{
    ContentId, Fault, Finding, IdBuilder, Result, codes, logical_type, type_text_label,
};
use serde::{Deserialize, Serialize};

use super::distribution::QuantileTable;
use crate::leak_check::time_text;

/// Bins of the histogram of a numeric column.
const HISTOGRAM_BINS: usize = 20;

/// Profile of a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnProfile {
    /// The column.
    pub name: String,
    /// Arrow's name of the type.
    pub r#type: String,
    /// Rows, nulls among them.
    pub rows: u64,
    /// Rows without a value. NaN is a value.
    pub nulls: u64,
    /// Distinct values, without null and NaN; `None` for types that are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct: Option<u64>,
    /// True if `distinct` is exact; else its standard error is 0.8 %.
    #[serde(default)]
    pub distinct_is_exact: bool,
    /// Profile of numbers and booleans (as 0 and 1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numeric: Option<NumericProfile>,
    /// Profile of dates and times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeProfile>,
    /// Lengths of texts, in characters, and of lists, in elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<LengthProfile>,
    /// A few values as text, without null and NaN: the five with the least hashes, so that the same values give the same
    /// examples. Of lists the first elements, of binary values the first bytes in hexadecimal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// The most frequent values of texts, booleans and integers of one byte: by count, then by value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frequent: Vec<FrequentValue>,
}

/// Numbers. NaN counts in `nans` alone; statistics are over the other values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NumericProfile {
    /// Values that are neither null nor NaN.
    pub count: u64,
    /// NaN.
    pub nans: u64,
    /// Infinities of both signs.
    pub infinities: u64,
    /// 0 and -0.0.
    pub zeros: u64,
    /// Values below 0.
    pub negatives: u64,
    /// The mean; like the other statistics, `None` where there are no values or it is not finite.
    pub mean: Option<f64>,
    /// The standard deviation of a sample: the squares are divided by `count - 1`, as in pandas.
    pub std: Option<f64>,
    /// The least.
    pub min: Option<f64>,
    /// The greatest.
    pub max: Option<f64>,
    /// The quantiles 0, 0.01 to 1; empty where there is no value, and for booleans. Infinite ones are the least and the
    /// greatest double.
    pub quantiles: Vec<f64>,
    /// Bins of equal width over the finite values, from the quantiles.
    pub histogram: Vec<HistogramBin>,
}

/// A bin of a histogram: values from `lower` on and below `upper`; the last bin has the greatest value, too.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HistogramBin {
    /// Lower end of the bin.
    pub lower: f64,
    /// Upper end of the bin.
    pub upper: f64,
    /// The share of values in it.
    pub share: f64,
}

/// Dates and times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeProfile {
    /// The first.
    pub first: Option<String>,
    /// The last.
    pub last: Option<String>,
}

/// Lengths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LengthProfile {
    /// The least.
    pub min: Option<u64>,
    /// The mean.
    pub mean: Option<f64>,
    /// The greatest.
    pub max: Option<u64>,
}

/// A value and how often it comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrequentValue {
    /// The value as text.
    pub value: String,
    /// Number of rows with the value.
    pub count: u64,
}

impl ColumnProfile {
    /// Builds the profile from the findings about the column, by kind of analyzer.
    pub(crate) fn read(
        field: &Field,
        findings: &BTreeMap<&str, &Finding>,
    ) -> Result<ColumnProfile> {
        let number = |analyzer: &str, name: &str| number_of(findings, analyzer, name);
        let count = |analyzer: &str, name: &str| count_of(findings, analyzer, name);
        let data_type = logical_type(field.data_type());
        let frequent = match findings.get("vocabulary") {
            Some(finding) => frequent_values(finding)?,
            None => Vec::new(),
        };
        let rows = count("counts", "rows")?.unwrap_or(0);
        let nulls = count("counts", "nulls")?.unwrap_or(0);
        // The frequent values are all values if fewer were found than requested.
        let listed: u64 = frequent.iter().map(|value| value.count).sum();
        let is_whole = findings.contains_key("vocabulary") && listed == rows - nulls.min(rows);
        let estimate =
            number("distinct_count", "estimate")?.map(|estimate| estimate.round() as u64);
        let mut profile = ColumnProfile {
            name: field.name().clone(),
            r#type: data_type.to_string(),
            rows,
            nulls,
            distinct: if is_whole {
                Some(frequent.len() as u64)
            } else {
                estimate
            },
            distinct_is_exact: is_whole,
            numeric: None,
            time: None,
            length: None,
            examples: examples_of(findings)?,
            frequent,
        };
        if data_type.is_temporal() {
            profile.time = Some(TimeProfile {
                first: optional_time_text(number("moments", "min")?, field)?,
                last: optional_time_text(number("moments", "max")?, field)?,
            });
        } else if findings.contains_key("moments") {
            let values = count("moments", "count")?.unwrap_or(0);
            let quantiles = match findings.get("quantiles") {
                // JSON has no infinities.
                Some(finding) if values > 0 => finding
                    .numbers("value")?
                    .into_iter()
                    .map(|x| x.clamp(f64::MIN, f64::MAX))
                    .collect(),
                _ => Vec::new(),
            };
            let mean = number("moments", "mean")?;
            let min = number("moments", "min")?;
            let max = number("moments", "max")?;
            let freedom = values.saturating_sub(1);
            let var = number("moments", "var")?.filter(|_| freedom > 0);
            profile.numeric = Some(NumericProfile {
                count: values,
                nans: count("moments", "nans")?.unwrap_or(0),
                infinities: count("moments", "infinities")?.unwrap_or(0),
                zeros: count("shape", "zeros")?.unwrap_or(0),
                negatives: count("shape", "negatives")?.unwrap_or(0),
                mean: mean.filter(|mean| mean.is_finite()),
                std: var
                    .map(|var| (var * (values as f64 / freedom as f64)).sqrt())
                    .filter(|std| std.is_finite()),
                min: min.filter(|min| min.is_finite()),
                max: max.filter(|max| max.is_finite()),
                histogram: histogram(&quantiles),
                quantiles,
            });
        } else if findings.contains_key("shape") {
            let lengths = number("shape", "lengths")?.unwrap_or(0.0);
            profile.length = Some(LengthProfile {
                min: count("shape", "length_min")?,
                max: count("shape", "length_max")?,
                mean: number("shape", "length_sum")?
                    .filter(|_| lengths > 0.0)
                    .map(|sum| sum / lengths),
            });
        }
        Ok(profile)
    }

    /// Id of the profile's content.
    pub(crate) fn id(&self) -> Result<ContentId> {
        let fields = serde_json::to_value(self)
            .map_err(|error| Fault::internal("a profile").cause(error))?;
        let mut id = IdBuilder::new("column profile");
        id.json(&fields);
        Ok(id.finish())
    }

    /// Profile of a column without any facts.
    pub(crate) fn empty(name: &str, r#type: &str) -> ColumnProfile {
        ColumnProfile {
            name: name.to_owned(),
            r#type: r#type.to_owned(),
            rows: 0,
            nulls: 0,
            distinct: None,
            distinct_is_exact: false,
            numeric: None,
            time: None,
            length: None,
            examples: Vec::new(),
            frequent: Vec::new(),
        }
    }

    /// The rows that a value may have that is not among the frequent ones.
    pub(super) fn unlisted_max(&self) -> u64 {
        let least = self
            .frequent
            .iter()
            .map(|value| value.count)
            .min()
            .unwrap_or(0);
        if self.distinct_is_exact { 0 } else { least }
    }

    /// Type of the column as specs spell it, such as `string` and `date`.
    pub fn type_label(&self) -> String {
        type_text_label(&self.r#type)
    }

    /// The share of rows without a value, NaN included.
    pub(super) fn missing_share(&self) -> f64 {
        let nans = self.numeric.as_ref().map_or(0, |numeric| numeric.nans);
        if self.rows == 0 {
            0.0
        } else {
            (self.nulls + nans) as f64 / self.rows as f64
        }
    }
}

fn number_of(
    findings: &BTreeMap<&str, &Finding>,
    analyzer: &str,
    name: &str,
) -> Result<Option<f64>> {
    match findings.get(analyzer) {
        Some(finding) => finding.number(name),
        None => Ok(None),
    }
}

fn count_of(
    findings: &BTreeMap<&str, &Finding>,
    analyzer: &str,
    name: &str,
) -> Result<Option<u64>> {
    let number = number_of(findings, analyzer, name)?;
    Ok(number.map(|number| number as u64))
}

fn optional_time_text(tick: Option<f64>, field: &Field) -> Result<Option<String>> {
    tick.map(|tick| time_text(tick as i64, field)).transpose()
}

fn examples_of(findings: &BTreeMap<&str, &Finding>) -> Result<Vec<String>> {
    let finding = findings
        .get("distinct_count")
        .or_else(|| findings.get("examples"));
    finding.map_or_else(|| Ok(Vec::new()), |finding| examples(finding))
}

fn examples(finding: &Finding) -> Result<Vec<String>> {
    // Artifacts of earlier versions have none.
    let Some(column) = finding.table().column_by_name("examples") else {
        return Ok(Vec::new());
    };
    let text = column.as_string::<i32>();
    let broken = |error: serde_json::Error| {
        Fault::new(codes::CORRUPT, "examples cannot be read").cause(error)
    };
    text.iter().flatten().next().map_or_else(
        || Ok(Vec::new()),
        |text| serde_json::from_str(text).map_err(broken),
    )
}

fn frequent_values(finding: &Finding) -> Result<Vec<FrequentValue>> {
    let tokens = cast(finding.column("token")?, &DataType::LargeUtf8)?;
    let counts = finding.column("count")?.as_primitive::<UInt64Type>();
    let values = tokens.as_string::<i64>().iter().zip(counts.values());
    Ok(values
        .map(|(value, count)| FrequentValue {
            value: value.unwrap_or_default().to_owned(),
            count: *count,
        })
        .collect())
}

/// Bins of equal width between the least and the greatest finite quantile.
fn histogram(quantiles: &[f64]) -> Vec<HistogramBin> {
    let mut finite = quantiles
        .iter()
        .copied()
        .filter(|quantile| quantile.abs() < f64::MAX);
    let Some(least) = finite.next() else {
        return Vec::new();
    };
    let greatest = finite.next_back().unwrap_or(least);
    let table = QuantileTable(quantiles);
    let bins = if greatest > least { HISTOGRAM_BINS } else { 1 };
    let width = greatest - least;
    let mut histogram = Vec::with_capacity(bins);
    let mut lower = least;
    for bin in 1..=bins {
        let is_last = bin == bins;
        let upper = if is_last {
            greatest
        } else {
            least + width * (bin as f64 / bins as f64)
        };
        // The last bin has the greatest value, too.
        let end = if is_last {
            table.share_up_to(upper)
        } else {
            table.share_below(upper)
        };
        histogram.push(HistogramBin {
            lower,
            upper,
            share: (end - table.share_below(lower)).max(0.0),
        });
        lower = upper;
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_of_quantiles_adds_up() {
        let quantiles: Vec<f64> = (0..=100)
            .map(|part| if part < 40 { 0.0 } else { f64::from(part) })
            .collect();
        let bins = histogram(&quantiles);
        assert_eq!(bins.len(), HISTOGRAM_BINS);
        let sum: f64 = bins.iter().map(|bin| bin.share).sum();
        assert!(
            (sum - 1.0).abs() < 1e-12 && bins[0].share >= 0.39,
            "{bins:?}"
        );
        assert_eq!(
            histogram(&[2.0, 2.0]),
            [HistogramBin {
                lower: 2.0,
                upper: 2.0,
                share: 1.0
            }]
        );
        assert!(histogram(&[f64::MIN, f64::MAX]).is_empty());
    }
}
