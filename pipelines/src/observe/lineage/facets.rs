//! Facets of OpenLineage events, each with the version of its schema.

use forebay_run::{ColumnProfile, DatasetProfile, ExpectationReport};
use serde_json::{Map, Value, json};

/// Producer of events.
pub(super) const PRODUCER: &str = concat!(
    "https://github.com/forebay/forebay/tree/v",
    env!("CARGO_PKG_VERSION")
);

/// Base of the schemas' URLs.
const SPEC: &str = "https://openlineage.io/spec";

/// The schema of an event.
pub(super) fn event_schema() -> String {
    format!("{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent")
}

/// Name and version of the schema of a facet in OpenLineage.
fn schema(facet: &str) -> &str {
    match facet {
        "nominalTime" => "1-0-1/NominalTimeRunFacet",
        "parent" => "1-2-0/ParentRunFacet",
        "processing_engine" => "1-1-1/ProcessingEngineRunFacet",
        "errorMessage" => "1-0-1/ErrorMessageRunFacet",
        "jobType" => "2-0-4/JobTypeJobFacet",
        "schema" => "1-2-0/SchemaDatasetFacet",
        "columnLineage" => "1-2-0/ColumnLineageDatasetFacet",
        "outputStatistics" => "1-0-2/OutputStatisticsOutputDatasetFacet",
        "dataQualityMetrics" => "1-0-3/DataQualityMetricsInputDatasetFacet",
        "dataQualityAssertions" => "1-1-0/DataQualityAssertionsDatasetFacet",
        other => other,
    }
}

/// Facets by name.
#[derive(Debug, Default)]
pub(super) struct Facets(Map<String, Value>);

impl Facets {
    /// Adds a facet.
    pub fn add(&mut self, name: &str, mut body: Value) {
        let (version, kind) = schema(name).split_once('/').unwrap_or_default();
        body["_producer"] = PRODUCER.into();
        body["_schemaURL"] = format!("{SPEC}/facets/{version}/{kind}.json#/$defs/{kind}").into();
        self.0.insert(name.to_owned(), body);
    }

    /// Adds names and types of columns, if there are any.
    pub fn add_schema<'a>(&mut self, columns: impl Iterator<Item = (&'a str, &'a str)>) {
        let fields: Vec<Value> = columns
            .map(|(name, kind)| json!({ "name": name, "type": kind }))
            .collect();
        if !fields.is_empty() {
            self.add("schema", json!({ "fields": fields }));
        }
    }

    /// Adds the results of rules, if there are any.
    pub fn add_assertions(&mut self, rules: &[&ExpectationReport]) {
        let assertion = |rule: &&ExpectationReport| {
            let kind = rule.rule.split(':').next().unwrap_or_default();
            let kind = match kind {
                "rows" => "row_count",
                "fresh" => "freshness",
                "sql" => "custom_sql",
                other => other,
            };
            let mut assertion =
                json!({ "assertion": kind, "name": rule.rule, "success": rule.holds });
            if !rule.found.is_empty() {
                assertion["actual"] = rule.found.as_str().into();
            }
            if let Some(column) = column_of(&rule.rule) {
                assertion["column"] = column.into();
            }
            assertion
        };
        if !rules.is_empty() {
            self.add(
                "dataQualityAssertions",
                json!({ "assertions": rules.iter().map(assertion).collect::<Vec<_>>() }),
            );
        }
    }

    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

/// The column that a rule is about, where it names one.
fn column_of(rule: &str) -> Option<&str> {
    let (kind, arguments) = rule.split_once(": ")?;
    let column = arguments.split([' ', ',', ':']).next()?;
    let is_one = ["not_null", "range", "in_set", "fresh", "unique"].contains(&kind)
        && !arguments.contains(',');
    (is_one && !column.is_empty()).then_some(column)
}

/// Metrics of an input: its size, and the statistics of its columns from a profile.
pub(super) fn quality_metrics(
    rows: Option<u64>,
    bytes: u64,
    files: usize,
    profile: Option<&DatasetProfile>,
) -> Value {
    let columns = profile
        .map(|profile| profile.columns.as_slice())
        .unwrap_or_default();
    let columns: Map<String, Value> = columns
        .iter()
        .map(|column| (column.name.clone(), column_metrics(column)))
        .collect();
    let mut metrics = json!({ "bytes": bytes, "fileCount": files, "columnMetrics": columns });
    if let Some(rows) = rows {
        metrics["rowCount"] = rows.into();
    }
    metrics
}

fn column_metrics(column: &ColumnProfile) -> Value {
    let mut metrics = json!({ "nullCount": column.nulls });
    if let Some(distinct) = column.distinct {
        metrics["distinctCount"] = distinct.into();
    }
    let Some(numeric) = &column.numeric else {
        return metrics;
    };
    metrics["count"] = json!(numeric.count as f64);
    for (name, value) in [("min", numeric.min), ("max", numeric.max)] {
        if let Some(value) = value {
            metrics[name] = value.into();
        }
    }
    if let Some(mean) = numeric.mean {
        metrics["sum"] = json!(mean * numeric.count as f64);
    }
    if let [_, ..] = numeric.quantiles.as_slice() {
        let last = numeric.quantiles.len() - 1;
        let quantile = |percent: usize| {
            (
                format!("{}", percent as f64 / 100.0),
                numeric.quantiles[percent * last / 100],
            )
        };
        metrics["quantiles"] = json!(
            [25, 50, 75]
                .map(quantile)
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>()
        );
    }
    metrics
}
