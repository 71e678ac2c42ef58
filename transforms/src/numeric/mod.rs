//! Numbers: scaling, filling, cutting into buckets.

mod impute;
mod min_max;
mod standardize;

pub use impute::{Fill, Impute, Scalar};
pub use min_max::{MinMax, ZeroRange};
pub use standardize::{Standardize, ZeroVariance};
