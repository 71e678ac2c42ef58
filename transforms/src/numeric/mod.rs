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

pub use apply_buckets::ApplyBuckets;
pub use bucketize::Bucketize;
pub use clip::Clip;
pub use impute::{ConstantValue, Impute, ImputeStrategy};
pub use k_bins::{BinStrategy, KBins};
pub use log1p::Log1p;
pub use min_max::{MinMax, ZeroRange};
pub use quantiles::QuantileRanks;
pub use robust_scale::RobustScale;
pub use standardize::{Standardize, ZeroVariance};
