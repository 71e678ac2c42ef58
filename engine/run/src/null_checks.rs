//! Warnings of columns that can be null where a training or a feed refuses nulls.

use std::collections::BTreeMap;

use forebay_feed::{BatchFeatures, FeatureField, FeedConfig};
use forebay_model::{Dataset, Fault, Pipeline, SpecLocation, codes};
use forebay_plan::{BoundPipeline, NodeFlow, NullOrigin, null_origin};

use crate::feed::features::choose_features;
use crate::session::Session;

/// Columns of one reason that a warning names.
const COLUMNS_LISTED_MAX: usize = 8;

/// A reader of rows that refuses nulls.
struct BatchReader<'a> {
    /// The reader as the subject of a sentence.
    name: String,
    /// The option that replaces missing numbers.
    option: &'static str,
    from: &'a str,
    config: &'a FeedConfig,
    at: Option<&'a SpecLocation>,
}

/// A column with nulls that its reader refuses.
struct RefusedColumn {
    name: String,
    origin: NullOrigin,
}

impl Session {
    /// Trainings over columns that can be null, whose `missing` option is not set.
    pub(crate) fn null_warnings_of_trainings(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        datasets: &BTreeMap<String, Dataset>,
    ) -> Vec<Fault> {
        let mut warnings = Vec::new();
        for training in &pipeline.trainings {
            let Ok(trainer) = self.trainer(training) else {
                continue;
            };
            let reader = BatchReader {
                name: format!("`{}` trains on", training.name),
                option: "`missing: 0` in `train`",
                from: &training.from,
                config: &trainer.feed(),
                at: training.at.as_ref(),
            };
            warnings.extend(reader.warnings(pipeline, bound, datasets));
        }
        warnings
    }
}

/// The `feed` of a pipeline, where it delivers columns that can be null.
pub(crate) fn null_warnings_of_feed(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    datasets: &BTreeMap<String, Dataset>,
) -> Vec<Fault> {
    let Some(feed) = &pipeline.feed else {
        return Vec::new();
    };
    let Ok(config) = FeedConfig::from_pipeline(pipeline) else {
        return Vec::new();
    };
    let first_sink = pipeline.sinks.first().map(|sink| &sink.from);
    let mut steps: Vec<&String> = config.mix.iter().map(|part| &part.from).collect();
    if steps.is_empty() {
        steps.extend(config.from.as_ref().or(first_sink));
    }
    let mut warnings = Vec::new();
    for from in steps {
        let reader = BatchReader {
            name: "`feed` delivers".to_owned(),
            option: "`missing: 0` in `feed`",
            from,
            config: &config,
            at: feed.at.as_ref(),
        };
        warnings.extend(reader.warnings(pipeline, bound, datasets));
    }
    warnings
}

impl BatchReader<'_> {
    /// A warning for the features, and one for label and weight: a missing label cannot be
    /// replaced.
    fn warnings(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        datasets: &BTreeMap<String, Dataset>,
    ) -> Vec<Fault> {
        let Some(flow) = bound.flows.get(self.from) else {
            return Vec::new();
        };
        // Where a width is learned, columns are not known before.
        let Ok(features) = choose_features(pipeline, bound, &flow.schema, self.config) else {
            return Vec::new();
        };
        let rows = ReadRows {
            bound,
            datasets,
            flow,
        };
        let numbers = rows.columns_with_nulls(self.refused_numbers(&features));
        let ids = rows.columns_with_nulls(unfilled(&features.categorical));
        let targets = features.label.iter().chain(&features.weight).collect();
        let targets = rows.columns_with_nulls(targets);
        let fill = format!(
            "fill them before, as by `impute: {{ columns: [{}], with: median }}`, or set {}",
            first_name(&numbers),
            self.option
        );
        let name_ids = "fill them before `vocabulary`, \
                        as by `impute: { columns: [...], with: { constant: none } }`, \
                        or set `missing_id: 0` in `feed`";
        let filter = format!(
            "take such rows out, as by `filter: \"{} IS NOT NULL\"`",
            first_name(&targets)
        );
        [
            (numbers, fill),
            (ids, name_ids.to_owned()),
            (targets, filter),
        ]
        .into_iter()
        .filter_map(|(columns, hint)| self.warning(&columns, hint))
        .collect()
    }

    /// The columns of numbers for which no value stands in.
    fn refused_numbers<'f>(&self, features: &'f BatchFeatures) -> Vec<&'f FeatureField> {
        if self.config.missing_numbers {
            return Vec::new();
        }
        unfilled(&features.dense)
    }

    fn warning(&self, columns: &[RefusedColumn], hint: String) -> Option<Fault> {
        let (first, others) = columns.split_first()?;
        let message = if others.is_empty() {
            format!(
                "{} `{}`, which can be null: {}",
                self.name, first.name, first.origin.reason
            )
        } else {
            format!(
                "{} {} columns that can be null: {}",
                self.name,
                columns.len(),
                listed_by_reason(columns)
            )
        };
        let fault = Fault::new(codes::BAD_ROW, message);
        let fault = if others.is_empty() {
            fault.column(&first.name)
        } else {
            fault
        };
        Some(fault.hint(hint).at(self.at))
    }
}

/// The rows that a reader gets.
struct ReadRows<'a> {
    bound: &'a BoundPipeline,
    datasets: &'a BTreeMap<String, Dataset>,
    flow: &'a NodeFlow,
}

impl ReadRows<'_> {
    /// The columns among some fields that can be null.
    fn columns_with_nulls(&self, fields: Vec<&FeatureField>) -> Vec<RefusedColumn> {
        let mut columns = Vec::new();
        for field in fields {
            let origin = null_origin(self.bound, self.datasets, self.flow, &field.column);
            if let Some(origin) = origin {
                columns.push(RefusedColumn {
                    name: field.column.clone(),
                    origin,
                });
            }
        }
        columns
    }
}

/// The name of the first column.
fn first_name(columns: &[RefusedColumn]) -> &str {
    columns.first().map_or("", |column| &column.name)
}

/// Names of columns, grouped by reason: `a` and 2 more (reason); `b` (another reason).
fn listed_by_reason(columns: &[RefusedColumn]) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for column in columns {
        let reason = column.origin.reason.as_str();
        match groups.iter_mut().find(|(shared, _)| *shared == reason) {
            Some((_, names)) => names.push(&column.name),
            None => groups.push((reason, vec![&column.name])),
        }
    }
    let listed = groups.iter().map(|(reason, names)| {
        let listed_names: Vec<String> = names
            .iter()
            .take(COLUMNS_LISTED_MAX)
            .map(|name| format!("`{name}`"))
            .collect();
        let others = match names.len() - listed_names.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        format!("{}{others} ({reason})", listed_names.join(", "))
    });
    listed.collect::<Vec<_>>().join("; ")
}

/// The fields that refuse nulls.
fn unfilled(fields: &[FeatureField]) -> Vec<&FeatureField> {
    fields
        .iter()
        .filter(|field| field.missing.is_none())
        .collect()
}
