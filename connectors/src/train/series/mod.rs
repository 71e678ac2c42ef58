//! Models of single series, which forecast each from its own values alone.
//!
//! `history` reads the values of each series and puts them on a `grid` of equal steps. `theta` fits a model, after it
//! has taken away a `season`; `ets` fits several forms, each by `minimize`, and selects one. `fit` is a model by any
//! `method`, `fitted` those of one series. An `ensemble` combines several, with `ensemble_weights` that folds teach, as
//! they teach the widths of `intervals`. The series of a `hierarchy` have models at all levels, and `reconcile` makes
//! their forecasts add up. `forecast` is all that a prediction needs of a series, and `model` holds those of all. Each
//! series is fitted by one thread, so threads change no bit.

mod config;
mod ensemble;
mod ensemble_weights;
mod ets;
mod fit;
mod fitted;
mod forecast;
mod grid;
mod growing_line;
mod hierarchy;
mod history;
mod intervals;
mod method;
mod minimize;
mod model;
mod progress;
mod reconcile;
mod reconcile_config;
mod reconciled;
mod season;
mod theta;
mod trainer;
mod training;

pub use config::SeriesModelConfig;
pub use ensemble::{EnsembleCard, EnsembleWeights};
pub use intervals::{SeriesIntervalCard, SeriesIntervals};
pub use method::SeriesMethod;
pub(super) use model::SeriesForecasts;
pub use model::{SeriesCard, SeriesModelKind};
pub use reconcile::ReconcileMethod;
pub use reconcile_config::ReconcileConfig;
pub use theta::ThetaVariant;

/// Changes whenever the same configuration and rows would give another model.
const VERSION: u32 = 1;
