//! The transforms that a spec can name, one file each.
//!
//! A transform's value is its configuration. A function of its name in a spec makes one, and options are chained:
//! `lag(["qty"]).by(["7d"])`. Each page (columns in and out, state and its bound,
//! what becomes of null, NaN and infinities, faults) is the doc comment of its struct, from which
//! the JSON Schema takes its descriptions.

pub mod categorical;
pub mod columns;
mod examples;
pub mod functions;
pub mod numeric;
pub mod relational;
pub mod rows;
mod shared;
pub mod text;
pub mod time;

pub use categorical::*;
pub use columns::*;
pub use examples::TRANSFORM_EXAMPLES;
pub use functions::*;
pub use numeric::*;
pub use relational::{
    Aggregate, AggregateByTime, AggregateExpression, AggregateList, AggregateQuantile,
    AggregateTopK, AggregateWeightedMean, AggregateWeightedQuantile, AsOfDirection, AsOfJoin,
    Dedupe, DedupeKeep, Join, JoinCardinality, JoinKind, JoinStrategy, ListOverflow, agg,
    aggregate, as_of_join, dedupe, join,
};
pub use rows::*;
pub use text::*;
pub use time::*;

use forebay_plan::TransformRegistry;

/// All transforms.
pub fn registry() -> TransformRegistry {
    let mut registry = TransformRegistry::new();
    registry
        .register::<categorical::FeatureCross>()
        .register::<categorical::FrequencyEncoding>()
        .register::<categorical::GroupRare>()
        .register::<categorical::HashBucket>()
        .register::<categorical::MultiHot>()
        .register::<categorical::OneHot>()
        .register::<categorical::OrdinalEncoder>()
        .register::<categorical::TargetEncoding>()
        .register::<categorical::VocabularyEncoder>()
        .register::<columns::CastColumns>()
        .register::<columns::DeriveColumns>()
        .register::<columns::DropColumns>()
        .register::<columns::ProfileColumns>()
        .register::<columns::RenameColumns>()
        .register::<columns::SelectColumns>()
        .register::<functions::CommandFunction>()
        .register::<functions::PythonEstimator>()
        .register::<functions::PythonFunction>()
        .register::<numeric::Impute>()
        .register::<numeric::MinMax>()
        .register::<numeric::ApplyBuckets>()
        .register::<numeric::Bucketize>()
        .register::<numeric::Clip>()
        .register::<numeric::GAndH>()
        .register::<numeric::Geohash>()
        .register::<numeric::KBins>()
        .register::<numeric::KeepBest>()
        .register::<numeric::KnnImpute>()
        .register::<numeric::ListStatistics>()
        .register::<numeric::Log1p>()
        .register::<numeric::MaxAbs>()
        .register::<numeric::MissingIndicator>()
        .register::<numeric::NormalQuantiles>()
        .register::<numeric::Normalize>()
        .register::<numeric::PlaceDistance>()
        .register::<numeric::PolynomialProducts>()
        .register::<numeric::PowerTransform>()
        .register::<numeric::PrincipalComponents>()
        .register::<numeric::QuantileRanks>()
        .register::<numeric::RobustScale>()
        .register::<numeric::SplineBasis>()
        .register::<numeric::Standardize>()
        .register::<numeric::Winsorize>()
        .register::<relational::Aggregate>()
        .register::<relational::AsOfJoin>()
        .register::<relational::Dedupe>()
        .register::<relational::Join>()
        .register::<rows::ExpectRows>()
        .register::<rows::Explode>()
        .register::<rows::FilterRows>()
        .register::<rows::FutureRows>()
        .register::<rows::RowSample>()
        .register::<rows::Violations>()
        .register::<text::BagOfTokens>()
        .register::<text::Ngrams>()
        .register::<text::NormalizeText>()
        .register::<text::TfIdf>()
        .register::<time::CalendarFeatures>()
        .register::<time::DateParts>()
        .register::<time::SeriesDiff>()
        .register::<time::EwmWindow>()
        .register::<time::ExpandingWindow>()
        .register::<time::FillForward>()
        .register::<time::ForecastFeature>()
        .register::<time::Interpolate>()
        .register::<time::SeriesLag>()
        .register::<time::PctChange>()
        .register::<time::PooledWindow>()
        .register::<time::RollingWindow>()
        .register::<time::SeasonalIndex>()
        .register::<time::SeasonalRolling>()
        .register::<time::TargetTransform>();
    registry
}
