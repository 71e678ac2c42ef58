//! Configuration of a hierarchy of forecasts in a spec.

use forebay_model::{ConfigError, ConfigResult};
use forebay_series::reconcile::ReconcileMethod;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::learned_on_folds::{FOLD_ERRORS, fold_count};

/// Forecasts of upper levels with which a forecast is made to add up: those of the series that it sums up. Models may be
/// of any kind. Both are published as reconciled: bounds hold for the lowest level, and the forecasts of upper levels
/// are sums of its forecasts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForecastReconcile {
    /// The `predict` sinks of upper levels. The keys of their series are some of the keys of this forecast; a series
    /// without keys is the sum of all.
    pub with: Vec<String>,
    /// The method. `mint_shrink` learns the covariance of errors on folds of a backtest within the run.
    #[serde(default)]
    pub method: ReconcileMethod,
    /// Number of folds that `mint_shrink` learns on: 3 when left out. Each trains and forecasts once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folds: Option<u32>,
    /// Length between the times from which folds forecast, such as `28d`: the horizon when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
}

impl ForecastReconcile {
    /// True if errors on folds decide the forecasts.
    pub fn learns(&self) -> bool {
        self.method == ReconcileMethod::MintShrink
    }

    /// Number of folds that errors are learned on.
    pub fn fold_count(&self) -> usize {
        fold_count(self.folds)
    }

    /// The name of the method, as specs have it.
    pub fn method_text(&self) -> &'static str {
        match self.method {
            ReconcileMethod::BottomUp => "bottom_up",
            ReconcileMethod::Ols => "ols",
            ReconcileMethod::MintShrink => "mint_shrink",
        }
    }

    /// Checks the configuration. The error names the wrong field.
    pub(crate) fn check(&self) -> ConfigResult<()> {
        if self.with.is_empty() {
            let message = "name the `predict` sinks of upper levels, `with: [by_store, total]`";
            return Err(ConfigError::at("reconcile.with", message));
        }
        for (number, name) in self.with.iter().enumerate() {
            if self.with[..number].contains(name) {
                let message = format!("`{name}` is named twice");
                return Err(ConfigError::at("reconcile.with", message));
            }
        }
        FOLD_ERRORS.check_settings(self.learns(), self.folds, self.every.as_deref())
    }
}
