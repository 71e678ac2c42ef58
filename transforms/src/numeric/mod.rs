//! Numbers: scaling, filling, cutting into buckets.

mod apply_buckets;
mod bucketize;
mod buckets;
mod clip;
mod impute;
mod k_bins;
mod log1p;
mod min_max;
mod quantiles;
mod robust_scale;
mod standardize;

pub use apply_buckets::{ApplyBuckets, apply_buckets};
pub use bucketize::{Bucketize, bucketize};
pub use clip::{Clip, clip};
pub use impute::{ConstantValue, Impute, ImputeStrategy, impute};
pub use k_bins::{BinStrategy, KBins, k_bins};
pub use log1p::{Log1p, log1p};
pub use min_max::{MinMax, ZeroRange, min_max};
pub use quantiles::{QuantileRanks, quantiles};
pub use robust_scale::{RobustScale, robust_scale};
pub use standardize::{Standardize, ZeroVariance, standardize};
