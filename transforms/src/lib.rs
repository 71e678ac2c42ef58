//! The transforms that a spec can name, one file each.
//!
//! A transform's value is its configuration. Each page (columns in and out, state and its bound,
//! what becomes of null, NaN and infinities, faults) is the doc comment of its struct, from which
//! the JSON Schema takes its descriptions.

pub mod categorical;
pub mod columns;
pub mod numeric;
pub mod relational;
pub mod rows;
mod shared;
pub mod time;

pub use categorical::*;
pub use columns::*;
pub use numeric::*;
pub use relational::{Aggregate, AsOfDirection, AsOfJoin, Cardinality, Compute, Dedupe, How, Join};
pub use rows::*;
pub use time::*;

use forebay_plan::Registry;

/// All transforms.
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    registry
        .register::<categorical::Cross>()
        .register::<categorical::HashBucket>()
        .register::<categorical::MultiHot>()
        .register::<categorical::OneHot>()
        .register::<categorical::Ordinal>()
        .register::<categorical::Vocabulary>()
        .register::<columns::Cast>()
        .register::<columns::Derive>()
        .register::<columns::DropColumns>()
        .register::<columns::Rename>()
        .register::<columns::Select>()
        .register::<numeric::Impute>()
        .register::<numeric::MinMax>()
        .register::<numeric::ApplyBuckets>()
        .register::<numeric::Bucketize>()
        .register::<numeric::Clip>()
        .register::<numeric::KBins>()
        .register::<numeric::Log1p>()
        .register::<numeric::Quantiles>()
        .register::<numeric::RobustScale>()
        .register::<numeric::Standardize>()
        .register::<relational::Aggregate>()
        .register::<relational::AsOfJoin>()
        .register::<relational::Dedupe>()
        .register::<relational::Join>()
        .register::<rows::Explode>()
        .register::<rows::Filter>()
        .register::<time::DateParts>()
        .register::<time::Diff>()
        .register::<time::Ewm>()
        .register::<time::Expanding>()
        .register::<time::FillForward>()
        .register::<time::Interpolate>()
        .register::<time::Lag>()
        .register::<time::PctChange>()
        .register::<time::Pooled>()
        .register::<time::Rolling>()
        .register::<time::SeasonalIndex>()
        .register::<time::SeasonalRolling>();
    registry
}
