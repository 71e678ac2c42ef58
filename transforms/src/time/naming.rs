//! Names of window features.

use arrow::datatypes::DataType;
use forebay_model::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::{LengthSpec, TimeColumn};
use super::{GapPolicy, SeriesStatistic};
use crate::shared::bad_value;

/// How the new columns are called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FeatureNaming {
    /// `qty_lag_7d`, `qty_mean_28d`.
    #[default]
    Default,
    /// As mlforecast calls them: `lag7`, `rolling_mean_lag1_window_size28`, in periods; with the
    /// column's name before it where there are several columns.
    Mlforecast,
}

/// Makes the names of one step's columns.
pub(super) struct FeatureNamer<'a> {
    naming: FeatureNaming,
    several: bool,
    time: &'a TimeColumn,
    every: Option<LengthSpec>,
}

impl<'a> FeatureNamer<'a> {
    pub fn new(
        naming: FeatureNaming,
        columns: usize,
        time: &'a TimeColumn,
        gaps: Option<&GapPolicy>,
    ) -> Self {
        FeatureNamer {
            naming,
            several: columns > 1,
            time,
            every: gaps.and_then(GapPolicy::every),
        }
    }

    /// The name of a feature of a column, with what mlforecast calls it.
    pub fn column_name(
        &self,
        column: &str,
        usual: String,
        peer: impl FnOnce(&Self) -> Result<String>,
    ) -> Result<String> {
        Ok(match (self.naming, self.several) {
            (FeatureNaming::Default, _) => format!("{column}_{usual}"),
            (FeatureNaming::Mlforecast, true) => format!("{column}_{}", peer(self)?),
            (FeatureNaming::Mlforecast, false) => peer(self)?,
        })
    }

    /// mlforecast's name of a statistic; its lag is where the window ends.
    pub fn mlforecast_name(
        &self,
        kind: &str,
        statistic: SeriesStatistic,
        gap: LengthSpec,
        suffix: &str,
    ) -> Result<String> {
        let quantile = if let SeriesStatistic::Quantile(q) = statistic {
            format!("_p{q}")
        } else {
            String::new()
        };
        Ok(format!(
            "{kind}_{}_lag{}{quantile}{suffix}",
            statistic.snake(),
            self.periods(gap)?
        ))
    }

    /// A length in periods.
    pub fn periods(&self, length: LengthSpec) -> Result<i64> {
        if let LengthSpec::Rows(rows) = length {
            return Ok(rows as i64);
        }
        let periods = match (self.every, &self.time.data_type) {
            (Some(every), _) => {
                let periods = length.periods_of(every, self.time)?;
                periods
                    .filter(|(_, is_whole)| *is_whole)
                    .map(|(count, _)| count)
            }
            (None, DataType::Date64 | DataType::Timestamp(..)) => {
                return Err(bad_value(format!(
                    "`names: mlforecast` counts periods, and `{length}` is a time"
                ))
                .hint("declare the period in `gaps`, such as `error: { every: 1d }`"));
            }
            (None, _) => Some(length.ticks(self.time)?),
        };
        match periods {
            Some(periods) => Ok(periods),
            None => Err(bad_value(format!(
                "`{length}` is no whole number of the periods that `gaps` declares"
            ))),
        }
    }
}
