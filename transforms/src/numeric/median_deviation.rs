//! Distances from the median, and their median.

use arrow::datatypes::{DataType, Field};
use forebay_model::{Finding, Result};
use forebay_plan::{AnalyzerRequest, LoweredMap, MapOp, PlanOp};

use crate::shared::{doubles, finding_at, map_doubles};

/// The median absolute deviation of a normal distribution with the standard deviation 1.
const NORMAL_MAD: f64 = 0.674_489_750_196_081_7;

/// The name of the column of distances, which its step hides again.
pub(super) fn deviation_name(column: &str) -> String {
    format!("__{column}_deviation")
}

/// Writes the distance of each value from the median, which is the first quantile of the request.
pub(super) fn deviation_op(field: &Field, median: AnalyzerRequest) -> PlanOp {
    let name = deviation_name(field.name());
    let output = Field::new(name, DataType::Float64, field.is_nullable());
    let map = MapOp::fitted([field.name()], [output], [median], |findings| {
        let median = first_quantile(finding_at(findings, 0)?)?.unwrap_or(0.0);
        Ok(LoweredMap::unary(move |column| {
            map_doubles(column, &DataType::Float64, |x| (x - median).abs())
        }))
    });
    PlanOp::Map(map)
}

/// The standard deviation of a normal distribution with this median of distances; `None` where nothing was seen.
pub(super) fn normal_deviation(distances: &Finding) -> Result<Option<f64>> {
    Ok(first_quantile(distances)?.map(|deviation| deviation / NORMAL_MAD))
}

/// The first quantile of a finding; `None` where nothing was seen.
pub(super) fn first_quantile(finding: &Finding) -> Result<Option<f64>> {
    let quantiles = doubles(finding.column("value")?)?;
    Ok(quantiles.iter().next().flatten())
}
