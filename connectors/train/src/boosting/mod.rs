//! Gradient-boosted decision trees: one model over all rows, or one for each group of rows.
//!
//! `rows` reads, `partitions` divides rows by group, `trainer` trains the groups that have changed,
//! `fit` the models of one group. The trees themselves: `bins` and `matrix` make bins of features,
//! `grow` grows a tree over `histogram`s with the best `split`s, `boost` adds trees up. Each sum is
//! computed in the order of rows by one thread, so threads change no bit.
//!
//! `gathered_rows` keeps the rows to learn from in memory, or their features on disk (`spilled_table`), and their bins
//! with them (`matrix`, `disk_bins`). Trees grow over `bin_blocks`, which come from either.
//!
//! A label of classes has trees for each: `class_boost` adds them up, and `class_trainer` trains one model of them over
//! all rows.

mod bin_blocks;
mod bins;
mod boost;
mod checkpoint;
mod class_boost;
mod class_trainer;
mod column_fallback;
mod config;
mod constant_columns;
mod disk_bins;
mod earlier_trees;
mod encode;
mod fallback;
mod fallback_kind;
mod fit;
mod gathered_rows;
mod grow;
mod growing_tree;
mod histogram;
mod importance;
mod intervals;
mod learn_rows;
mod loss;
mod matrix;
mod memory;
mod model;
mod part;
mod partitions;
mod rows;
mod sample;
mod spilled_table;
mod split;
mod start;
mod steps;
mod summary;
mod table;
mod trainer;
mod training;
mod training_files;
mod tree;

pub use column_fallback::ColumnFallback;
pub use config::{BoostedModelKind, BoostingConfig};
pub use fallback_kind::GroupFallbackKind;
pub use intervals::{ForecastIntervals, IntervalMethod, IntervalScale};
pub use loss::BoostingLoss;
pub(super) use loss::Objective;
pub(super) use model::ModelOutput;
pub use model::{BoostedModel, BoostingCard, ErrorSums, GroupModelCard};
pub use steps::{ForecastStrategy, StepModels};
pub(super) use tree::{RegressionTree, SplitNode, SplitRule, TreeEnsemble};

/// Changes whenever the same configuration and rows would give other predictions. A part of the file that predictions do
/// not use, such as the rows of leaves, leaves it as it is: models keep their ids, and older ones lack the part.
const VERSION: u32 = 4;
