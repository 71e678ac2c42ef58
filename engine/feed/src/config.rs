//! Configuration of mini-batches, from a spec or a caller.

use crate::{CategoricalType, DenseType, NonFinite, OrderMode, RemainderPolicy, SampleOrder};
use forebay_model::{Fault, Pipeline, Result, codes};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Default window of a shuffle, in bytes of rows. It does not depend on the
/// machine: ranks on several machines must agree on the order.
const WINDOW_BYTES_DEFAULT: u64 = 512 << 20;

/// A shuffle mixes so many rows at least, or as many as so many bytes hold: with less, blocks would be so small that
/// reading them costs more than their rows.
const WINDOW_ROWS_MIN: u64 = 1 << 16;
const WINDOW_BYTES_MIN: u64 = 16 << 20;

/// A window holds so many blocks at least, where blocks can be cut; twice as many are mixed, which makes a shuffle
/// better than 0.95 of a true permutation.
const BLOCKS_IN_WINDOW: u64 = 16;

/// Rows of a batch unless told otherwise.
const BATCH_ROWS_DEFAULT: u32 = 8192;

/// Contents of mini-batches for training: `forebay feed SPEC` shows them, and the Python
/// package delivers them. An output that a run has written is read where one holds the rows;
/// otherwise the sources are, and the steps are done on the way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Feed")]
pub struct FeedConfig {
    /// The step or source whose rows are delivered; without it, what the first sink writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Delivers the rows of this part of the split only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Rows of several steps or sources, mixed by weight, in place of `from`; all have the same columns.
    /// A member that ends before the others begins again with its first row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<MixSource>,
    /// Rows of an epoch of a mixture; without it, as many as deliver every row at least once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub epoch_rows: Option<u64>,
    /// Dense features, side by side in this order; without them, all columns of numbers that are
    /// nothing else, but for times and keys. Patterns (`x_*`) and types (`type:float`) stand for all columns that match,
    /// but for the label and those that other settings name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense: Option<Vec<FeatureColumn>>,
    /// Categorical features, ids already; without them, the whole numbers that `vocabulary`,
    /// `ordinal`, `hash_bucket`, `cross` and the steps that make buckets give. Patterns stand for all columns that match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub categorical: Option<Vec<FeatureColumn>>,
    /// The label; without it, the column of the pipeline's `label`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<FeatureColumn>,
    /// The weight of each row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<FeatureColumn>,
    /// Replaces missing values of dense features; without it, a missing value is a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<f64>,
    /// Replaces missing categorical features; without it, a missing id is a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_id: Option<i32>,
    /// The type of dense features.
    pub dense_type: DenseType,
    /// The type of categorical features.
    pub categorical_type: CategoricalType,
    /// Treatment of dense values, labels and weights that are not finite.
    pub non_finite: NonFinite,
    /// Makes each row a sequence: the last steps of its series up to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<FeedSeries>,
    /// Keeps what is read of a remote store on a local disk, so that epochs after the first do not read it
    /// again. Without it, every epoch does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<FeedCache>,
    /// The order of rows.
    pub order: FeedOrder,
    /// Rows that a shuffle mixes; without it, as many as 512 MiB hold. At least 65536 rows are mixed, or as many as
    /// 16 MiB hold where these are fewer. Another window is another order. Row groups of local files that have more
    /// than a sixteenth of its rows are read in parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub window_rows: Option<u64>,
    /// Rows of a batch: 8192 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub batch_rows: Option<u32>,
    /// Treatment of rows that do not fill a last step: `drop` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<RemainderPolicy>,
    /// Columns that a trainer reads as they are, such as those that name the groups of its models. Batches do not
    /// have them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    #[setters(skip)]
    pub beside: Vec<String>,
    /// Passes missing numbers to a trainer as NaN.
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(skip)]
    pub missing_numbers: bool,
    /// Passes the label to a trainer as it is, such as names of classes. Batches cannot be made of it.
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(skip)]
    #[setters(skip)]
    pub label_as_is: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Sequences. Dense and categorical features and the mask get one more dimension, the steps; label and
/// weight are those of the row itself, which is the last step. Where a series has fewer rows, the first
/// steps are 0 and so is their mask. Rows that a part of the split leaves out are steps of those that
/// follow. The rows must lie series by series (sorted by keys and time) or in order of time. Rows with the same keys and
/// the same time are counted: with `within` they are refused, else a warning tells of them, unless the source declares
/// `duplicates`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
pub struct FeedSeries {
    /// Most rows of the series, the row itself included.
    #[schemars(range(min = 1))]
    pub steps: u32,
    /// The columns that tell series apart; without them, those of the first source that has `keys`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// The column of times; without it, that of the first source that has a `time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Longest time that steps may lie back, such as `28d`, or `28t` for a time of integers. Rows in order
    /// of time need it: so much is read before each block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

/// A cache on a local disk. It holds the bytes of the columns that are read as they are stored
/// (compressed); objects that change are read again. All feeds on a machine may share one. A full cache keeps its
/// entries, and each epoch reads from the store what does not fit. Entries that are not used for several epochs, such as
/// those of objects that changed, make room for others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FeedCache {
    /// The directory.
    pub path: String,
    /// Its bytes at most, of all feeds that share it together.
    #[schemars(range(min = 1))]
    pub bytes_max: u64,
}

/// Rows that are mixed with others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixSource {
    /// The step or source.
    pub from: String,
    /// Delivers the rows of this part of the split only; without it, of the feed's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Share of these rows, relative to the weights of the others: of weights 3 and 1, three
    /// rows of the first are delivered for one of the second.
    #[schemars(range(min = 1))]
    pub weight: u32,
}

/// A column, or a column and more about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FeatureColumn {
    /// Its name.
    Column(String),
    /// Its name, and more.
    Detailed(DetailedFeature),
}

/// A column and more about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetailedFeature {
    /// Its name.
    pub column: String,
    /// Values per row, for columns of lists; lists of one fixed length tell it themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub width: Option<u32>,
    /// Replaces a missing value; without it, a missing value is a fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<f64>,
}

/// The order of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FeedOrder {
    /// Shuffled, another way in each epoch.
    #[default]
    Shuffled,
    /// As they lie.
    Sequential,
    /// Row groups by their times, which must not overlap.
    Time,
}

impl FeatureColumn {
    /// The column's name.
    pub fn column(&self) -> &str {
        match self {
            FeatureColumn::Column(column) => column,
            FeatureColumn::Detailed(feature) => &feature.column,
        }
    }

    /// The feature with another column.
    pub fn with_column(&self, column: &str) -> FeatureColumn {
        match self {
            FeatureColumn::Column(_) => FeatureColumn::from(column),
            FeatureColumn::Detailed(feature) => FeatureColumn::Detailed(DetailedFeature {
                column: column.to_owned(),
                ..feature.clone()
            }),
        }
    }
}

impl From<&str> for FeatureColumn {
    fn from(column: &str) -> FeatureColumn {
        FeatureColumn::Column(column.to_owned())
    }
}

impl FeedConfig {
    /// The pipeline's `feed`; the defaults where it has none.
    pub fn from_pipeline(pipeline: &Pipeline) -> Result<FeedConfig> {
        let Some(feed) = &pipeline.feed else {
            return Ok(FeedConfig::default());
        };
        FeedConfig::from_json(feed.config.clone()).map_err(|fault| fault.at(feed.at.as_ref()))
    }

    /// Reads JSON; options that are left out have their defaults.
    pub fn from_json(config: serde_json::Value) -> Result<FeedConfig> {
        serde_json::from_value(config).map_err(|error| {
            Fault::new(codes::BAD_VALUE, format!("`feed` cannot be read: {error}"))
        })
    }

    /// Rows of a batch.
    pub fn rows_per_batch(&self) -> u32 {
        self.batch_rows.unwrap_or(BATCH_ROWS_DEFAULT)
    }

    /// Rows that a shuffle mixes, if each takes `row_bytes`. A window of the whole data is not
    /// rounded: it is the same for all windows beyond.
    pub fn shuffle_window(&self, row_bytes: usize) -> u64 {
        let rows_min = (WINDOW_BYTES_MIN / row_bytes.max(1) as u64).clamp(1, WINDOW_ROWS_MIN);
        self.wanted_window(row_bytes).max(rows_min)
    }

    /// The window as it was configured, without the lower limit.
    pub fn wanted_window(&self, row_bytes: usize) -> u64 {
        self.window_rows
            .unwrap_or(WINDOW_BYTES_DEFAULT / row_bytes.max(1) as u64)
    }

    /// Rows of a block at most, where it can be cut: enough blocks fit the window to mix their rows. `None` where
    /// nothing is shuffled.
    pub fn block_rows_max(&self, row_bytes: usize) -> Option<u64> {
        if self.order != FeedOrder::Shuffled {
            return None;
        }
        let rows = self.shuffle_window(row_bytes) / BLOCKS_IN_WINDOW;
        Some(rows.max(1))
    }

    /// The order of rows that take so many bytes in a window.
    pub fn sample_order(&self, seed: u64, row_bytes: usize) -> SampleOrder {
        match self.order {
            FeedOrder::Shuffled => SampleOrder::shuffled(seed, self.shuffle_window(row_bytes)),
            FeedOrder::Sequential => SampleOrder::sequential(),
            FeedOrder::Time => SampleOrder {
                mode: OrderMode::Time,
                ..SampleOrder::sequential()
            },
        }
    }
}
