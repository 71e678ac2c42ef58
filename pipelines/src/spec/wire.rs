//! The document as YAML has it. Only here do the engine's nouns meet serde and JSON Schema.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use forebay_connectors::ColumnTypes;
use forebay_model::{DayRule, DayRules, DuplicateRows, LateFacts};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};

use super::compat::YamlCompat;
use super::name::NAME_PATTERN;

/// A parameter: `${name}` in a text stands for its value. In SQL it is a value and no more: inside quotes
/// any text stands for itself, quotes in it included; outside of quotes stand numbers, booleans, dates,
/// timestamps, and names of letters, digits and `_`, and any other text is a fault.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Param")]
pub(super) struct YamlParam {
    /// Type of the parameter's values.
    #[serde(rename = "type")]
    pub kind: ParamType,
    /// The value when none is given on the command line.
    #[serde(default)]
    #[allow(dead_code, reason = "read from the tree, where it has a place")]
    pub default: Option<serde_json::Value>,
    /// Purpose of the parameter.
    #[serde(default)]
    #[allow(dead_code, reason = "for readers of the spec")]
    pub description: Option<String>,
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ParamType {
    /// A path or URL.
    Path,
    /// Any text.
    String,
    /// A day, such as 2016-05-22.
    Date,
    /// A moment, such as 2016-05-22T06:30:00.
    Timestamp,
    /// A length of time, such as 7d.
    Duration,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
}

/// A dataset to read: one format and what Forebay needs to know of its columns.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Source")]
pub(super) struct YamlSource {
    /// The event-time column. Files whose times do not overlap are read in order of time; others in the order of
    /// their names. A column of texts or whole numbers is given with the format in which its times are written:
    /// `{ column: day, format: "%Y%m%d" }`.
    #[serde(default)]
    pub time: Option<YamlTime>,
    /// The columns that identify a series.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Treatment of rows that have the same keys and the same time. By default, windows by time
    /// refuse them, since a key may be missing, and windows by rows warn of them; sequences of a feed
    /// do as windows.
    #[serde(default)]
    pub duplicates: Option<YamlDuplicates>,
    /// Condition that a run waits for before it reads.
    #[serde(default)]
    pub ready: Option<YamlReadiness>,
    /// Time before an interval within which files may still change, such as 3d: a run of an
    /// interval checks earlier intervals that end within this time before it, and writes them again
    /// if their files have changed.
    #[serde(default)]
    pub lookback: Option<String>,
    /// Treatment of days that have not come, have come twice, or have a column without values. By
    /// default, the summary warns of them.
    #[serde(default)]
    pub days: Option<YamlDays>,
}

/// Treatment of days that a run notices in the metadata of the files of a source with a time: of
/// Parquet files, of Delta tables, and of folders named by their day. A run of an interval looks at
/// the days of the interval, and others at all days; only those of the last four weeks are refused.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Days")]
pub(super) struct YamlDays {
    /// Days without any row, where the same weekday has rows in the weeks before and after: in the
    /// middle of the data, and from their end to the end of the interval or to yesterday. Data that
    /// end more than four weeks ago are not late. With `error` and `warn`, the times of files that do
    /// not record them are read; without a rule, nothing is said of these.
    #[serde(default)]
    pub late: Option<YamlDayRule>,
    /// Days of which several files hold the same rows, by the metadata of these: copies under other
    /// names. Of Parquet files; refused at others.
    #[serde(default)]
    pub duplicate: Option<YamlDayRule>,
    /// Days on which a column is null throughout that has values on each of up to 28 days before.
    /// Of Parquet files; refused at others.
    #[serde(default)]
    pub empty: Option<YamlDayRule>,
}

/// Treatment of a kind of days.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "DayRule")]
pub(super) enum YamlDayRule {
    /// Refuse them (FB0216).
    Error,
    /// Name them in the summary.
    Warn,
    /// Say nothing.
    Allow,
}

impl From<YamlDayRule> for DayRule {
    fn from(rule: YamlDayRule) -> DayRule {
        match rule {
            YamlDayRule::Error => DayRule::Error,
            YamlDayRule::Warn => DayRule::Warn,
            YamlDayRule::Allow => DayRule::Allow,
        }
    }
}

impl From<YamlDays> for DayRules {
    fn from(days: YamlDays) -> DayRules {
        DayRules {
            late: days.late.map(DayRule::from).unwrap_or_default(),
            duplicate: days.duplicate.map(DayRule::from).unwrap_or_default(),
            empty: days.empty.map(DayRule::from).unwrap_or_default(),
        }
    }
}

/// The event-time column of a source.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Time")]
pub(super) enum YamlTime {
    /// A column of dates, timestamps or numbers.
    Column(String),
    /// A column of texts or whole numbers that are dates or times by a format.
    Formatted(YamlFormattedTime),
}

impl YamlTime {
    /// Name of the column.
    pub fn column(self) -> String {
        match self {
            YamlTime::Column(column) => column,
            YamlTime::Formatted(time) => time.column,
        }
    }
}

/// A column of texts or whole numbers that are dates or times by a format. It stands for the column under `formats` of the
/// source.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FormattedTime")]
pub(super) struct YamlFormattedTime {
    /// The column.
    pub column: String,
    /// The way in which its dates or times are written, with the directives of `strftime`: `%Y%m%d`.
    #[allow(
        dead_code,
        reason = "read from the tree, into the formats of the source"
    )]
    pub format: String,
}

/// Treatment of rows with the same keys and the same time in windows over series.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Duplicates")]
pub(super) enum YamlDuplicates {
    /// Refuse them (FB0212).
    Error,
    /// Count them in a warning.
    Warn,
    /// Take rows of one time in the order in which they are read.
    Allow,
}

impl From<YamlDuplicates> for DuplicateRows {
    fn from(duplicates: YamlDuplicates) -> DuplicateRows {
        match duplicates {
            YamlDuplicates::Error => DuplicateRows::Error,
            YamlDuplicates::Warn => DuplicateRows::Warn,
            YamlDuplicates::Allow => DuplicateRows::Allow,
        }
    }
}

/// Condition for a source to be complete; all given fields must hold. A run waits for it, and exits
/// with 75 if it is not met in time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Ready")]
pub(super) struct YamlReadiness {
    /// A file that is there when the data are: a path or URL, such as data/demand/_SUCCESS.
    #[serde(default)]
    pub marker: Option<String>,
    /// Minimum number of files.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub files: Option<u64>,
    /// The youngest file is at least so old, such as 10m.
    #[serde(default)]
    pub min_age: Option<String>,
    /// Maximum time to wait, such as 2h; without it, a run checks once.
    #[serde(default)]
    pub timeout: Option<String>,
}

/// Time at which a run should end, and the permitted degradations. The end is forecast from the
/// costs of earlier runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Deadline")]
pub(super) struct YamlDeadline {
    /// A time of day by the machine's clock (06:30, the next one), an instant (2026-11-21T06:30:00Z), or
    /// a length of time from the run's begin (45m). `--deadline` comes before it; without either there
    /// is no deadline.
    #[serde(default)]
    pub by: Option<String>,
    /// Degradations of a run that would be late, from the mildest to the last; each includes those
    /// before. Without it, a run warns and continues.
    #[serde(default)]
    pub ladder: Vec<YamlRung>,
    /// Reaction to a missed deadline.
    #[serde(default)]
    pub on_deadline: OnDeadline,
    /// A URL that gets a POST of JSON when the deadline is at risk.
    #[serde(default)]
    pub webhook: Option<String>,
}

/// Something that makes a run shorter.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Rung")]
pub(super) enum YamlRung {
    /// Leave out the steps and sinks that are optional.
    SkipOptional,
    /// Learn no more: findings that are missing are those of the newest artifact.
    ReuseStates,
    /// Write with the newest artifact as it is; what was written with it stands. Forecasts are those of the newest
    /// models.
    LastModel,
    /// Publish what the last known season says as the forecasts of `predict` sinks, and nothing else: it takes seconds,
    /// and needs neither statistics nor a model. The sinks say the `season`.
    Naive,
}

/// Reaction to a missed deadline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnDeadline {
    /// The run says so and goes on.
    #[default]
    Warn,
    /// The run stops with exit code 75.
    Fail,
}

/// A step: its input, and transforms that are applied in order.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    { "required": ["from"] },
    { "required": ["union"] },
    { "required": ["sql"] }
]))]
#[schemars(rename = "Step")]
pub(super) struct YamlStep {
    /// The step or source that it reads.
    #[serde(default)]
    pub from: Option<String>,
    /// Steps or sources with equal columns: their rows in this order.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub union: Option<Vec<String>>,
    /// A SQL query over steps and sources by name. It reads and does nothing else; functions that
    /// change from run to run (`random`, `now`, `current_date`) are refused. Floats come in with
    /// one zero and one NaN: -0.0 is 0.0.
    #[serde(default)]
    #[schemars(extend("format" = "sql-query"))]
    pub sql: Option<String>,
    /// The part of the split from which its transforms learn; all rows when absent.
    #[serde(default)]
    pub fit_on: Option<String>,
    /// True if its transforms may learn from no rows. Otherwise a statistic of no rows is a fault.
    #[serde(default)]
    pub allow_empty: bool,
    /// Policy of refitting its transforms: `always` (the default), `never`, `weekly`, a duration of
    /// the data's time such as `7d`, `drift above 0.1`, or `30d or drift above 0.1`. Until then the
    /// findings of an earlier run are used.
    #[serde(default)]
    pub refit: Option<String>,
    /// Time before its row at which the data of a column of the query ends, such as `7d`; a number
    /// without a unit counts rows. For columns that the query computes over other rows, whose age
    /// the check of leaks cannot prove.
    #[serde(default)]
    pub data_age: BTreeMap<String, String>,
    /// The tool whose numbers and names its transforms give, instead of that of the spec.
    #[serde(default)]
    #[allow(
        dead_code,
        reason = "read from the tree, before transforms are checked"
    )]
    pub compat: Option<YamlCompat>,
    /// True if a run that would be late may leave it out (`skip_optional`); its readers must be
    /// optional too.
    #[serde(default)]
    pub optional: bool,
    /// Transforms in order.
    #[serde(default, rename = "do")]
    #[allow(dead_code, reason = "read from the tree, where each has a place")]
    pub transforms: Vec<AnyTransform>,
}

/// Stands for the choice of all transforms, which is filled in from the registry.
#[derive(Debug)]
pub(super) struct AnyTransform;

impl<'de> Deserialize<'de> for AnyTransform {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| AnyTransform)
    }
}

impl JsonSchema for AnyTransform {
    fn schema_name() -> Cow<'static, str> {
        "AnyTransform".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

/// A test of a step: rows of the sources that it reads, and the rows that it makes of them. `forebay test` runs it
/// without any data. Statistics are learned from the given rows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{ "required": ["expect"] }, { "required": ["fault"] }]))]
#[schemars(rename = "Test")]
pub(super) struct YamlTest {
    /// The step.
    pub step: String,
    /// Rows by source. Columns that a row lacks are null.
    pub given: NamedMap<Vec<serde_json::Map<String, serde_json::Value>>>,
    /// Types of columns by source. Without it, whole numbers are `int64`, other numbers `float64`, days `date`, moments
    /// `timestamp`, and other texts `string`.
    #[serde(default = "no_types")]
    pub types: NamedMap<ColumnTypes>,
    /// A condition on the rows of the step to compare.
    #[serde(default, rename = "where")]
    pub condition: Option<SqlExpression>,
    /// The rows, in order. Columns that a row does not name are not compared.
    #[serde(default)]
    pub expect: Option<Vec<serde_json::Map<String, serde_json::Value>>>,
    /// The code of the fault that the step ends with, such as FB0206.
    #[serde(default)]
    pub fault: Option<String>,
    /// The largest difference of numbers, relative to the larger one where this exceeds 1.
    #[serde(default = "tolerance")]
    #[schemars(range(min = 0))]
    pub tolerance: f64,
}

fn no_types() -> NamedMap<ColumnTypes> {
    NamedMap(Vec::new())
}

fn tolerance() -> f64 {
    1e-6
}

/// The step whose rows are served one by one. The artifact of a run then keeps what windows need of the rows before, for
/// each series, as of the last row: `forebay apply` and `predict`, `ServingModel` and Python's `artifact.apply` compute
/// later rows without the history.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Serving")]
pub(super) struct YamlServing {
    /// The step.
    pub from: String,
    /// Treatment of facts that are appended late, not later than the newest of their series:
    /// `refuse` when left out.
    #[serde(default)]
    pub late: YamlLateFacts,
}

/// Treatment of facts that are appended late.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "LateFacts")]
pub(super) enum YamlLateFacts {
    /// Refuse them (FB0212).
    #[default]
    Refuse,
    /// Replay the facts of the series since the run in order of time. Facts that are not later than the rows of the run
    /// are refused.
    Replay,
}

impl From<YamlLateFacts> for LateFacts {
    fn from(late: YamlLateFacts) -> LateFacts {
        match late {
            YamlLateFacts::Refuse => LateFacts::Refuse,
            YamlLateFacts::Replay => LateFacts::Replay,
        }
    }
}

/// The column that is predicted, and its horizon. Neither a `feed` nor a training takes this column
/// as a feature. With `horizon`, sinks with this column are checked: a feature that uses younger
/// data is a fault that names its path.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Label")]
pub(super) struct YamlLabel {
    /// The column that is predicted, in the row of the time that it is predicted for.
    pub column: String,
    /// Time of the prediction before that time: 1d, 12h; a number without a unit counts rows.
    /// Without it, the ages of features are not checked.
    #[serde(default)]
    pub horizon: Option<String>,
    /// Columns that are known by then although they depend on the row's time, such as planned
    /// prices.
    #[serde(default)]
    pub known: Vec<String>,
}

/// Division of rows into parts such as `train` and `validation`: [`YamlTimeSplit`],
/// [`YamlHashSplit`], or a condition for each part.
#[derive(Debug)]
pub(super) struct YamlSplit;

impl JsonSchema for YamlSplit {
    fn schema_name() -> Cow<'static, str> {
        "Split".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let time = generator.subschema_for::<YamlTimeSplit>();
        let hash = generator.subschema_for::<YamlHashSplit>();
        let expressions = generator.subschema_for::<NamedMap<SqlExpression>>();
        let object_with = |name: &str, schema: Schema| {
            json_schema!({
                "type": "object",
                "properties": { name: schema },
                "required": [name],
                "additionalProperties": false,
            })
        };
        json_schema!({
            "title": "kind of split",
            "description": "How rows are divided into parts such as `train` and `validation`: a \
                            SQL condition for each part, `by_time` or `by_hash`.",
            "anyOf": [object_with("by_time", time), object_with("by_hash", hash), expressions],
        })
    }
}

/// Consecutive ranges of time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ByTime")]
pub(super) struct YamlTimeSplit {
    /// The time column.
    pub column: String,
    /// Names in order of time.
    #[schemars(length(min = 1))]
    pub parts: Vec<SpecName>,
    /// End of each part but the last; the end belongs to the next part. A date, a timestamp, or `last 28d`: the last 28
    /// days up to the newest time of the data, as each run finds it.
    pub ends: Vec<String>,
    /// A length of time such as 7d: rows so close before an end belong to no part.
    #[serde(default)]
    pub embargo: Option<String>,
}

/// Parts by a hash of key columns: a key stays in its part as data grows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ByHash")]
pub(super) struct YamlHashSplit {
    /// The key columns.
    #[schemars(length(min = 1))]
    pub keys: Vec<String>,
    /// Each part's share; together 1.
    pub parts: NamedMap<SplitFraction>,
    /// Changes which keys go where.
    #[serde(default)]
    pub seed: u64,
}

/// More than 0, at most 1.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(super) struct SplitFraction(
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0))] pub f64,
);

/// Output that is committed: a step or source and a format.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Sink")]
pub(super) struct YamlSink {
    /// The step or source to write.
    pub from: String,
    /// Writes the rows of this part of the split only.
    #[serde(default)]
    pub split: Option<String>,
    /// Writes the rows that an `expect` of the step takes out by `policy: quarantine`, as they were there, with the
    /// columns `violated_rule` and `violating_value`.
    #[serde(default)]
    pub quarantined: bool,
    /// True if a run that would be late may leave it out (`skip_optional`): readers then see the
    /// earlier output.
    #[serde(default)]
    pub optional: bool,
}

/// A snake_case name.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct SpecName(pub String);

impl JsonSchema for SpecName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": NAME_PATTERN })
    }
}

/// A SQL expression.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct SqlExpression(pub String);

impl JsonSchema for SqlExpression {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Sql".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "sql" })
    }
}

/// A map from snake_case names, in the order of the spec.
#[derive(Debug)]
pub(super) struct NamedMap<T>(pub Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NamedMap<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamedMapVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for NamedMapVisitor<T> {
            type Value = NamedMap<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedMap<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(NamedMap(entries))
            }
        }

        deserializer.deserialize_map(NamedMapVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for NamedMap<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Named_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "propertyNames": { "pattern": NAME_PATTERN },
            "additionalProperties": generator.subschema_for::<T>(),
        })
    }
}
