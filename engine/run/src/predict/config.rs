//! What a spec says about a forecast.

use forebay_model::{ConfigError, ConfigResult};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Writes what a model of the same run predicts for the rows of the future, after its training, and publishes it as one
/// whole: readers see the forecast before or this one.
///
/// In: a step with `future_rows`, and a `train` sink. Out, in this order: the keys of the series and the time, as they
/// came from the source; `columns`; `step`, the number of steps beyond what is known; the prediction, and its quantiles
/// where the model has some (`prediction_q10`, ...); `known_until`, the time up to which data were known; `model` and
/// `artifact`, the ids of what predicted. Rows come in order of time, then of keys.
///
/// Before anything is published, the files are read back: there are exactly as many rows as series times steps, no
/// series has a time twice, and no prediction is null or not finite. Quantiles of a row that cross are sorted, and the
/// summary counts such rows. Otherwise the run fails, and readers keep what they have. A model predicts no further than
/// the horizon of the pipeline's `label`: rows beyond it are refused before the run begins. So is a label that a step
/// behind `future_rows` computes. A column that the label lists as `known`, and that has no value in rows of the future,
/// is a fault with its counts and the last time for which it is known.
///
/// ```yaml
/// steps:
///   features:
///     from: sales
///     do:
///       - filter: "qty IS NOT NULL"
///       - future_rows: { horizon: 7d, every: 1d }
///       - lag: { columns: [qty], by: [7d, 14d] }
///       - select: [date, store, item, qty, "qty_lag_*"]
/// label: { column: qty, horizon: 7d }
/// sinks:
///   trees: { from: features, train: { path: out/trees, model: gbdt, label: qty } }
///   forecast: { from: features, predict: { model: trees, where: future, path: out/forecast, min: 0 } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
pub struct PredictConfig {
    /// The `train` sink whose model predicts.
    #[setters(skip)]
    pub model: String,
    /// Which rows are predicted.
    #[serde(default)]
    #[setters(skip)]
    pub r#where: PredictedRows,
    /// The directory of the forecast.
    #[setters(skip)]
    pub path: String,
    /// The format of its files.
    #[serde(default)]
    pub format: ForecastFormat,
    /// Source columns that are written beside keys and time, as they were in the row of the future: those that
    /// `future_rows` carries on.
    #[serde(default)]
    pub columns: Vec<String>,
    /// What the column of predictions is called.
    #[serde(default = "prediction")]
    pub name: String,
    /// The least prediction: smaller ones become it, and the summary counts them. Demand has `min: 0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The greatest prediction: greater ones become it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// What becomes of columns that the label lists as `known`, where rows of the future have no value for them.
    #[serde(default, skip_serializing_if = "MissingKnown::is_error")]
    pub missing: MissingKnown,
    /// How long a season is, such as `7d`, in the unit of the horizon. The rung `naive` of a deadline's ladder repeats
    /// the label of the last known season: of the same weekday, say. A series that has no value there gets that of a
    /// season before, up to four seasons further back, else 0. Its quantiles are those of the last five known seasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub season: Option<String>,
}

fn prediction() -> String {
    "prediction".to_owned()
}

/// Which rows are predicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PredictedRows {
    /// Those that `future_rows` adds.
    #[default]
    Future,
}

/// What becomes of known columns without a value in rows of the future.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingKnown {
    /// Nothing of the run is published, unless the model says with `missing` what missing numbers become.
    #[default]
    Error,
    /// The model predicts without them.
    Accept,
}

impl MissingKnown {
    fn is_error(&self) -> bool {
        *self == MissingKnown::Error
    }
}

/// The format of a forecast.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForecastFormat {
    /// Parquet.
    #[default]
    Parquet,
    /// CSV with a header.
    Csv,
}

impl ForecastFormat {
    /// The name of the sink that writes it.
    pub fn name(self) -> &'static str {
        match self {
            ForecastFormat::Parquet => "parquet",
            ForecastFormat::Csv => "csv",
        }
    }
}

impl PredictConfig {
    /// A forecast of a model, with defaults.
    pub fn new(model: impl Into<String>, path: impl Into<String>) -> PredictConfig {
        PredictConfig {
            model: model.into(),
            r#where: PredictedRows::default(),
            path: path.into(),
            format: ForecastFormat::default(),
            columns: Vec::new(),
            name: prediction(),
            min: None,
            max: None,
            missing: MissingKnown::default(),
            season: None,
        }
    }

    /// Why the configuration is wrong, and where.
    pub fn check(&self) -> ConfigResult<()> {
        let wrong = |field: &str, message: String| Err(ConfigError::at(field, message));
        for (field, bound) in [("min", self.min), ("max", self.max)] {
            if bound.is_some_and(|bound| !(bound as f32).is_finite()) {
                return wrong(field, "a bound is a finite number".to_owned());
            }
        }
        match (self.min, self.max) {
            (Some(min), Some(max)) if min > max => {
                wrong("max", format!("{max} is less than `min: {min}`"))
            }
            _ if self.path.is_empty() => wrong("path", "the path is empty".to_owned()),
            _ if self.name.is_empty() => wrong("name", "the name is empty".to_owned()),
            _ => Ok(()),
        }
    }
}
