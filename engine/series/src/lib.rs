//! Statistical models of single series: values at equal steps go in, and forecasts of any later step come out.
//!
//! `theta` fits a model, after it has taken away a `season`; `ets` fits several forms, each by `minimize`, and selects
//! one. A `forecast` is all that a prediction needs of a series. Each fit is a function of its values alone.
//! `ensemble_weights` are those of several models, from their errors. `reconcile` makes forecasts of a hierarchy add
//! up.

pub mod ensemble_weights;
pub mod ets;
pub mod forecast;
pub mod growing_line;
mod minimize;
pub mod reconcile;
mod season;
#[cfg(test)]
mod testing;
pub mod theta;
