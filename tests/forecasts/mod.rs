//! Forecasts: rows of the future, quantiles and intervals, levels, ensembles and scores.

mod backtests;
mod conformal_intervals;
mod fallbacks;
mod forecast_features;
mod future_rows;
mod learned_weights;
mod models_by_step;
mod nightly_forecasts;
mod planned_values;
pub mod quantiles;
mod reconciled_forecasts;
mod recursive_forecasts;
mod scores;
mod transformed_targets;
