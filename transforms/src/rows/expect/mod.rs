//! `expect`: what the rows of a step must be.

mod bind;
mod construct;
mod rule;
mod violations;

use std::fmt;

use forebay_plan::{ConfiguredTransform, ExpectationPolicy};
use forebay_setters::Setters;
use indexmap::IndexMap;
use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::construct::ExpectedRange;
pub use self::violations::{Violations, add_quarantined_step, violations};

use crate::time::LengthSpec;

/// Expects something of the rows at this place: of a source where it comes first, of a sink where it comes last. Rows
/// stay as they are, but for those that `policy: quarantine` takes out.
///
/// Each item is one rule, with `policy` (`fail`, `warn` or `quarantine`) and `at_most`, the share of rows that may violate
/// it (`0.1%`). Rules: `not_null` and `unique` (columns; NaN is a value), `range` (least and greatest value, or null for no
/// bound), `in_set` (values), `sql` (a condition on a row), `rows` (least and greatest number of rows, and the greatest
/// `change` since the last run), `fresh` (greatest age of the last time of a column, at the time of the run or the end of
/// its interval), `drift` (how far the distribution of columns may be from that of a part of the split, of the last run, or
/// of the trailing week: Jensen-Shannon divergence and share of rows without a value). A null violates `not_null` alone; in
/// `unique`, it is a value. NaN is above every range. Without an earlier run, what is compared with one holds. Small
/// samples do not alarm: what chance exceeds once in a thousand times is no drift.
///
/// `trailing_week` compares with the rows of the runs that published on the seven days before the day of this run: the last
/// day of its interval, or today (UTC). Of several runs on one day, the last one counts. A run compares its new
/// rows at this place: those of files that no run of an earlier day had read. Behind windows, joins, aggregates and queries
/// it compares all rows, and so it does where no new file has any, but the rows are others than in the last run: of a
/// history in such files, keep the rows of the night by a `filter` before.
///
/// A rule judges the known rows. With `where: future`, it judges those that a `future_rows` before it adds: whether a plan
/// that is joined reaches as far, say. It takes no rows out then, and says nothing of distributions.
///
/// Rules are checked in the passes that learn, before anything is published. Where one with `policy: fail` does not hold,
/// nothing of the run is published (FB0216, exit 65). The fault names the rule, the number of rows, the ten most frequent
/// values that violate it, and the first ten rows with their files: these rows are read once more to find them.
///
/// `apply` and `predict` check `not_null`, `range`, `in_set`, `sql` and `unique` on the given rows, but for rules about
/// the label and columns that only the label needs. `rows`, `fresh` and `drift` are about the rows of runs.
///
/// Rules with `policy: quarantine` come first, wherever they are listed: rows that violate one of `not_null`, `range`,
/// `in_set` and `sql` are taken out before anything else is learned, checked or computed, and are counted. A sink with
/// `quarantined: true` writes them, with the rule and the value. Where they are more than `at_most`, nothing is published.
/// Rows of the future pass them. Rows that are scored pass those about the label, which they do not have yet; rows that
/// are only history do not.
///
/// State: counts; for `drift` the state of `profile`; for `unique` all distinct keys with their counts, spilled beyond the budget.
///
/// ```yaml
/// - expect:
///     - { unique: [store, item, date] }
///     - { range: { qty: [0, 1000] }, policy: warn }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(transparent)]
#[schemars(rename = "Expect")]
#[setters(
    fn expect(rules),
    example = r#"expect([RowExpectation::not_null(["price"]), RowExpectation::range("qty", 0..=1000)])"#
)]
pub struct ExpectRows(pub Vec<RowExpectation>);

/// One rule, and what happens when it does not hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields, default)]
pub struct RowExpectation {
    /// Columns that have a value in every row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[setters(skip)]
    pub not_null: Vec<String>,
    /// Columns whose values together come once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[setters(skip)]
    pub unique: Vec<String>,
    /// The least and the greatest value by column: numbers, dates or timestamps; null for no bound.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    #[setters(skip)]
    pub range: IndexMap<String, [Option<ExpectedValue>; 2]>,
    /// The values that a column may have.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    #[setters(skip)]
    pub in_set: IndexMap<String, Vec<ExpectedValue>>,
    /// A condition that holds for every row. Where it is null, it counts as held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "sql"))]
    #[setters(skip)]
    pub sql: Option<String>,
    /// How many rows there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setters(skip)]
    pub rows: Option<ExpectedRows>,
    /// How old the last time of a column may be, such as `2d`.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    #[setters(skip)]
    pub fresh: IndexMap<String, LengthSpec>,
    /// How far distributions may be from others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setters(skip)]
    pub drift: Option<ExpectedDrift>,
    /// Which rows it judges.
    #[serde(skip_serializing_if = "JudgedRows::is_known")]
    pub r#where: JudgedRows,
    /// What happens when the rule does not hold.
    pub policy: FailurePolicy,
    /// The share of rows that may violate the rule, such as `0.1%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Share>,
    /// Names of rules of this item about the label, which rows that are scored pass. Set where an artifact is applied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    #[setters(skip)]
    pub of_labels: Vec<String>,
    /// The time from which on rows are scored; left out, all are. Set where an artifact is applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[setters(skip)]
    pub history_until: Option<String>,
}

/// What happens when a rule does not hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailurePolicy {
    /// Nothing of the run is published.
    #[default]
    Fail,
    /// The summary and an event tell of it.
    Warn,
    /// Rows that violate it are taken out, and written by a sink with `quarantined: true`.
    Quarantine,
}

/// Which rows a rule judges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JudgedRows {
    /// The rows of the data.
    #[default]
    Known,
    /// Those that `future_rows` adds.
    Future,
}

impl JudgedRows {
    fn is_known(&self) -> bool {
        *self == JudgedRows::Known
    }
}

/// A value of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ExpectedValue {
    /// True or false.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A text, a date or a timestamp.
    Text(String),
}

/// How many rows there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectedRows {
    /// At least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// At most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// How far it may be from the number of another run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<ExpectedChange>,
}

/// How far a number may be from that of another run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectedChange {
    /// The other run.
    pub from: OtherRun,
    /// The greatest difference, as a share of the other run's number, such as `20%`.
    pub within: Share,
}

/// A run to compare with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OtherRun {
    /// The last run of this pipeline that published.
    #[default]
    LastRun,
}

/// How far the distributions of columns may be from others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn drift(columns, against))]
pub struct ExpectedDrift {
    /// The columns.
    pub columns: Vec<String>,
    /// The part of the split that is compared; all rows where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// What it is compared with: a part of the split, `last_run`, or `trailing_week` (the runs of the seven days before).
    pub against: String,
    /// Greatest Jensen-Shannon divergence, in bits: 0 to 1.
    #[serde(default = "default_js")]
    pub js: Share,
    /// Greatest change of the share of rows without a value.
    #[serde(default = "default_missing")]
    pub missing: Share,
}

fn default_js() -> Share {
    Share(0.1)
}

fn default_missing() -> Share {
    Share(0.05)
}

/// A share, from 0 to 1: a number, or a text such as `0.1%`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Share(pub f64);

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}%", 100.0 * self.0)
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Share(f64),
            Text(String),
        }
        let share = match Written::deserialize(deserializer)? {
            Written::Share(share) => Some(share),
            Written::Text(text) => text
                .trim()
                .strip_suffix('%')
                .and_then(|number| number.trim().parse().ok())
                .map(|percent: f64| percent / 100.0),
        };
        share
            .filter(|share| (0.0..=1.0).contains(share))
            .map(Share)
            .ok_or_else(|| {
                serde::de::Error::custom("this is a share from 0 to 1: write 0.1% or 0.001")
            })
    }
}

impl JsonSchema for Share {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Share".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        json_schema!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 1 },
            { "type": "string", "pattern": r"^\s*[0-9]*\.?[0-9]+\s*%\s*$" }
        ] })
    }
}

impl From<FailurePolicy> for ExpectationPolicy {
    fn from(policy: FailurePolicy) -> Self {
        match policy {
            FailurePolicy::Fail => ExpectationPolicy::Fail,
            FailurePolicy::Warn => ExpectationPolicy::Warn,
            FailurePolicy::Quarantine => ExpectationPolicy::Quarantine,
        }
    }
}

impl ConfiguredTransform for ExpectRows {
    const NAME: &'static str = "expect";
}
