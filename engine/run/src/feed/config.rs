//! What a spec or a caller says about mini-batches.

use forebay_feed::{Last, Mode, NonFinite, Order, Real, Whole};
use forebay_model::{Fault, Pipeline, Result, codes};
use serde::{Deserialize, Serialize};

/// Bytes of the rows that a shuffle mixes, where nobody gives a window. It does not depend on the
/// machine: ranks on several machines must agree on the order.
const WINDOW_BYTES_DEFAULT: u64 = 512 << 20;

/// Rows of a batch unless told otherwise.
const BATCH_ROWS_DEFAULT: u32 = 8192;

/// Which rows and columns are fed, and how.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FeedConfig {
    /// The step or source whose rows are delivered; without it, what the first sink writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Delivers the rows of this part of the split only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Several steps or sources, mixed, in place of `from`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<Mixed>,
    /// Rows of an epoch of a mixture; without it, as many as deliver every row at least once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_rows: Option<u64>,
    /// Dense features; without them, all numeric columns that are nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense: Option<Vec<Feature>>,
    /// Categorical features; without them, the ids of vocabularies and the like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub categorical: Option<Vec<Feature>>,
    /// The label; without it, the pipeline's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Feature>,
    /// The weight of each row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Feature>,
    /// What missing values of dense features become; without it, they are a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<f64>,
    /// What missing categorical features become; without it, they are a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_id: Option<i32>,
    /// The type of dense features.
    pub dense_type: Real,
    /// The type of categorical features.
    pub categorical_type: Whole,
    /// What becomes of values that are not finite.
    pub non_finite: NonFinite,
    /// Each row comes with the rows before it in its series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<FeedSeries>,
    /// Keeps what is read of a remote store, for later epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<FeedCache>,
    /// The order of rows.
    pub order: FeedOrder,
    /// How many rows a shuffle mixes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_rows: Option<u64>,
    /// Rows of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_rows: Option<u32>,
    /// What becomes of rows that do not fill a last step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Last>,
}

/// Sequences: the last steps of a series up to a row.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedSeries {
    /// How many rows at most, the row itself included.
    pub steps: u32,
    /// The columns that tell series apart; without them, the keys of the first source that has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// The column of times; without it, the time of the first source that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// How far back in time steps may lie, such as `28d`, or `28t` for a time of integers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

/// A cache on a local disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedCache {
    /// The directory.
    pub path: String,
    /// Its bytes at most.
    pub bytes_max: u64,
}

/// Rows that are mixed with others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixed {
    /// The step or source.
    pub from: String,
    /// The part of the split; without it, the feed's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// How many rows are delivered for those of the others.
    pub weight: u32,
}

/// A column, or a column and more about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Feature {
    /// Its name.
    Column(String),
    /// Its name, and more.
    Detailed(DetailedFeature),
}

/// A column and more about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetailedFeature {
    /// Its name.
    pub column: String,
    /// Values per row; those of a column of lists of one length are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// What a missing value becomes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<f64>,
}

/// The order of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedOrder {
    /// Another one in each epoch.
    #[default]
    Shuffled,
    /// As they lie.
    Sequential,
    /// Blocks by their times.
    Time,
}

impl Feature {
    /// The column's name.
    pub fn column(&self) -> &str {
        match self {
            Feature::Column(column) => column,
            Feature::Detailed(feature) => &feature.column,
        }
    }
}

impl From<&str> for Feature {
    fn from(column: &str) -> Feature {
        Feature::Column(column.to_owned())
    }
}

impl FeedConfig {
    /// What the pipeline's `feed` says; the defaults where it has none.
    pub fn of(pipeline: &Pipeline) -> Result<FeedConfig> {
        let Some(feed) = &pipeline.feed else { return Ok(FeedConfig::default()) };
        FeedConfig::read(feed.config.clone()).map_err(|fault| fault.at(feed.at.as_ref()))
    }

    /// From JSON, with all defaults.
    pub fn read(config: serde_json::Value) -> Result<FeedConfig> {
        serde_json::from_value(config)
            .map_err(|error| Fault::new(codes::BAD_VALUE, format!("`feed` cannot be read: {error}")))
    }

    /// Rows of a batch.
    pub fn batch_rows(&self) -> u32 {
        self.batch_rows.unwrap_or(BATCH_ROWS_DEFAULT)
    }

    /// How many rows a shuffle mixes, of which each takes so many bytes. A window of the whole data is not
    /// rounded: it is the same for all windows beyond.
    pub(super) fn window(&self, row_bytes: usize) -> u64 {
        self.window_rows.unwrap_or(WINDOW_BYTES_DEFAULT / row_bytes.max(1) as u64)
    }

    /// The order of rows that take so many bytes in a window.
    pub(super) fn order(&self, seed: u64, row_bytes: usize) -> Order {
        match self.order {
            FeedOrder::Shuffled => Order::shuffled(seed, self.window(row_bytes)),
            FeedOrder::Sequential => Order::sequential(),
            FeedOrder::Time => Order { mode: Mode::Time, ..Order::sequential() },
        }
    }
}
