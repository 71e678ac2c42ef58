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
        rest: &str,
    ) -> Result<String> {
        let quantile = if let SeriesStatistic::Quantile(q) = statistic {
            format!("_p{q}")
        } else {
            String::new()
        };
        Ok(format!(
            "{kind}_{}_lag{}{quantile}{rest}",
            statistic.snake(),
            self.periods(gap)?
        ))
    }

    /// A length in periods.
    pub fn periods(&self, length: LengthSpec) -> Result<i64> {
        let ticks = match length {
            LengthSpec::Rows(rows) => return Ok(rows as i64),
            LengthSpec::Time(..) | LengthSpec::Unreadable(_) => length.ticks(self.time)?,
        };
        let every = match (self.every, &self.time.data_type) {
            (Some(every), _) => every.ticks(self.time)?.max(1),
            (None, DataType::Date64 | DataType::Timestamp(..)) => {
                return Err(bad_value(format!(
                    "`names: mlforecast` counts periods, and `{length}` is a time"
                ))
                .hint("declare the period in `gaps`, such as `error: { every: 1d }`"));
            }
            (None, _) => 1,
        };
        match ticks % every {
            0 => Ok(ticks / every),
            _ => Err(bad_value(format!(
                "`{length}` is no whole number of the periods that `gaps` declares"
            ))),
        }
    }
}
