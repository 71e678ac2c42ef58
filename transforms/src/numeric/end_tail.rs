//! A number beyond the values of a column, which stands for missing ones.

use arrow::array::Array;
use forebay_analyze::{ColumnMoments, QuantileRequest};
use forebay_model::{Finding, Result};
use forebay_plan::AnalyzerRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{ask_quantiles, bad_value, doubles};

/// A number at an end of the values: a model can tell it from them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndTail {
    /// The number from which the distance counts.
    #[serde(default)]
    pub around: TailCenter,
    /// The end of the values.
    #[serde(default)]
    pub side: TailSide,
    /// The distance: in standard deviations (ddof 1) from the mean, or in distances of the quartiles from each other.
    #[serde(default = "fold")]
    pub fold: f64,
}

/// The number from which an end of the values is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TailCenter {
    /// The mean.
    #[default]
    Mean,
    /// The upper quartile for the upper end, the lower one for the lower end.
    Quartiles,
}

/// An end of the values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TailSide {
    /// Above the values.
    #[default]
    Upper,
    /// Below the values.
    Lower,
}

fn fold() -> f64 {
    3.0
}

impl Default for EndTail {
    fn default() -> EndTail {
        EndTail {
            around: TailCenter::default(),
            side: TailSide::default(),
            fold: fold(),
        }
    }
}

impl EndTail {
    /// Refuses what is no distance.
    pub(super) fn check(&self) -> Result<()> {
        if self.fold > 0.0 && self.fold.is_finite() {
            return Ok(());
        }
        let message = format!("`fold` {} is not a distance above 0", self.fold);
        Err(bad_value(message).field("with"))
    }

    /// A request for the numbers of a column that the end is made of.
    pub(super) fn request(
        &self,
        column: &str,
        epsilon: f64,
        exact: bool,
    ) -> Result<AnalyzerRequest> {
        match self.around {
            TailCenter::Mean => Ok(AnalyzerRequest::new(ColumnMoments, [column])),
            TailCenter::Quartiles => {
                let quartiles = QuantileRequest::Probabilities(vec![0.25, 0.75]);
                ask_quantiles(column, quartiles, epsilon, exact)
            }
        }
    }

    /// The number at the end; `None` where too few values were seen, or infinite ones.
    pub(super) fn number(&self, finding: &Finding) -> Result<Option<f64>> {
        let number = match self.around {
            TailCenter::Mean => self.beyond_mean(finding)?,
            TailCenter::Quartiles => self.beyond_quartiles(finding)?,
        };
        Ok(number.filter(|number| number.is_finite()))
    }

    fn beyond_mean(&self, finding: &Finding) -> Result<Option<f64>> {
        let count = finding.number("count")?.unwrap_or(0.0);
        let Some(mean) = finding.number("mean")? else {
            return Ok(None);
        };
        let Some(variance) = finding.number("var")? else {
            return Ok(None);
        };
        // One value has no deviation.
        if count < 2.0 {
            return Ok(None);
        }
        let deviation = (variance * (count / (count - 1.0))).sqrt();
        Ok(Some(match self.side {
            TailSide::Upper => mean + self.fold * deviation,
            TailSide::Lower => mean - self.fold * deviation,
        }))
    }

    fn beyond_quartiles(&self, finding: &Finding) -> Result<Option<f64>> {
        let quartiles = doubles(finding.column("value")?)?;
        if quartiles.len() < 2 || quartiles.null_count() > 0 {
            return Ok(None);
        }
        let lower = quartiles.value(0);
        let upper = quartiles.value(1);
        let distance = self.fold * (upper - lower);
        Ok(Some(match self.side {
            TailSide::Upper => upper + distance,
            TailSide::Lower => lower - distance,
        }))
    }
}
