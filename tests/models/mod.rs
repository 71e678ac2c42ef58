//! Models: networks, trees, classes, series and estimators, night after night.

mod boosted_trees;
mod classes;
mod python_estimators;
mod series_models;
mod training_cadence;
mod trainings;
mod warm_starts;
