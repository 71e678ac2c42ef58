//! Models of single series, which forecast each from its own values alone.
//!
//! `history` reads the values of each series and puts them on a `grid` of equal steps. The models are those of
//! `engine/series`: `fit` is a model by any `method`, `fitted` those of one series. An `ensemble` combines several, with
//! weights that folds teach, as they teach the widths of `intervals`. The series of a `hierarchy` have models at all
//! levels, and their forecasts are `reconciled`, so that they add up. `model` holds the forecasts of all series. Each
//! series is fitted by one thread, so threads change no bit.

mod config;
mod ensemble;
mod fit;
mod fitted;
mod grid;
mod hierarchy;
mod history;
mod intervals;
mod method;
mod model;
mod progress;
mod reconcile_config;
mod reconciled;
mod trainer;
mod training;

pub use config::SeriesModelConfig;
pub use ensemble::{EnsembleCard, EnsembleWeights};
pub use forebay_series::reconcile::ReconcileMethod;
pub use forebay_series::theta::ThetaVariant;
pub use intervals::{SeriesIntervalCard, SeriesIntervals};
pub use method::SeriesMethod;
pub(super) use model::SeriesForecasts;
pub use model::{SeriesCard, SeriesModelKind};
pub use reconcile_config::ReconcileConfig;

/// Changes whenever the same configuration and rows would give another model.
const VERSION: u32 = 1;
