//! Which columns a batch consists of.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::{DataType, Schema, TimeUnit};
use forebay_feed::{
    BatchFeatures, FeatureColumn, FeatureField, FeedConfig, FeedSeries, SequenceOptions,
};
use forebay_model::{Fault, Pipeline, Result, codes, type_words};
use forebay_plan::{BoundPipeline, id_columns, is_ids, is_number, unknown_column};

use crate::deadline::parse_duration;

/// The column that the blocks of sequences add.
const DELIVERED: &str = "delivered";

/// The features that the configuration names; where it names none, the defaults.
pub(crate) fn choose_features(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    schema: &Schema,
    config: &FeedConfig,
) -> Result<BatchFeatures> {
    let label = config
        .label
        .clone()
        .or_else(|| default_label(pipeline, schema));
    let named = [&label, &config.weight].into_iter().flatten();
    let named = named
        .chain(config.dense.iter().flatten())
        .chain(config.categorical.iter().flatten());
    let beside = config.beside.iter().map(String::as_str);
    let named: BTreeSet<&str> = named.map(FeatureColumn::column).chain(beside).collect();
    let mut faults = label_among_features(label.as_ref(), config);
    let ids = id_columns(bound);
    let free = schema
        .fields()
        .iter()
        .filter(|field| !named.contains(field.name().as_str()));
    let (categorical, others): (Vec<_>, Vec<_>) =
        free.partition(|field| ids.contains(field.name()) && is_ids(field.data_type()));
    let is_amount = |name: &str| {
        let mut of_sources = pipeline
            .sources
            .iter()
            .flat_map(|source| source.keys.iter().chain(&source.time));
        !of_sources.any(|known| known == name)
    };
    let dense = others
        .into_iter()
        .filter(|field| is_number(field.data_type()) && is_amount(field.name()));
    let names = |fields: Vec<&str>| {
        fields
            .into_iter()
            .map(FeatureColumn::from)
            .collect::<Vec<_>>()
    };
    let dense = config
        .dense
        .clone()
        .unwrap_or_else(|| names(dense.map(|field| field.name().as_str()).collect()));
    let categorical = config.categorical.clone().unwrap_or_else(|| {
        names(
            categorical
                .into_iter()
                .map(|field| field.name().as_str())
                .collect(),
        )
    });
    let mut fields = |features: &[FeatureColumn], missing: Option<f64>| -> Vec<FeatureField> {
        let fields = features
            .iter()
            .filter_map(|feature| match field(feature, schema, missing) {
                Ok(field) => Some(field),
                Err(fault) => {
                    faults.push(fault);
                    None
                }
            });
        fields.collect()
    };
    let mut features = BatchFeatures {
        dense: fields(&dense, config.missing),
        dense_type: config.dense_type,
        categorical: fields(&categorical, config.missing_id.map(f64::from)),
        categorical_type: config.categorical_type,
        label: fields(label.as_slice(), None).pop(),
        weight: fields(config.weight.as_slice(), None).pop(),
        beside: config.beside.clone(),
        series: None,
        non_finite: config.non_finite,
    };
    faults.extend(
        config
            .beside
            .iter()
            .filter_map(|name| check_plain_column(name, schema).err()),
    );
    if faults.is_empty() && features.columns().is_empty() {
        let fault = Fault::new(
            codes::EMPTY,
            "no column is a number, so there is nothing to feed",
        );
        faults.push(fault.hint("name the columns under `feed`: `dense`, `categorical`, `label`"));
    }
    if let Some(wanted) = &config.series {
        match resolve_series(pipeline, schema, wanted) {
            Ok(series) => features.series = Some(series),
            Err(fault) => faults.push(fault),
        }
    }
    let at = pipeline.feed.as_ref().and_then(|feed| feed.at.as_ref());
    Fault::combine(faults.into_iter().map(|fault| fault.at(at)).collect()).map_or(Ok(features), Err)
}

/// Which rows belong together, by what the feed says or the sources do.
fn resolve_series(
    pipeline: &Pipeline,
    schema: &Schema,
    wanted: &FeedSeries,
) -> Result<SequenceOptions> {
    let needed = |what: &str, field: &str| {
        Fault::new(codes::MISSING_FIELD, format!("`series` needs the {what}")).hint(format!(
            "add `{field}` to `series`, or declare it at the source"
        ))
    };
    let of_sources = || {
        pipeline
            .sources
            .iter()
            .map(|source| source.keys.clone())
            .find(|keys| !keys.is_empty())
    };
    let keys = wanted.keys.clone().or_else(of_sources);
    let keys = keys.ok_or_else(|| needed("columns that tell series apart", "keys"))?;
    let of_sources = || {
        pipeline
            .sources
            .iter()
            .find_map(|source| source.time.clone())
    };
    let time = wanted
        .time
        .clone()
        .or_else(of_sources)
        .ok_or_else(|| needed("column of times", "time"))?;
    for name in keys.iter().chain([&time]) {
        check_plain_column(name, schema)?;
    }
    if wanted.steps == 0 {
        return Err(
            Fault::new(codes::BAD_VALUE, "sequences of no steps hold nothing")
                .hint("set `steps` to 1 or more"),
        );
    }
    let data_type = schema.field_with_name(&time)?.data_type().clone();
    let within = wanted
        .within
        .as_deref()
        .map(|text| parse_ticks(text, &time, &data_type))
        .transpose()?;
    Ok(SequenceOptions {
        steps: wanted.steps,
        keys,
        time: Some(time),
        within,
        delivered: Some(DELIVERED.to_owned()),
    })
}

/// Refuses columns of lists and structs as names of series and groups.
fn check_plain_column(name: &str, schema: &Schema) -> Result<()> {
    let field = schema
        .field_with_name(name)
        .map_err(|_| unknown_column(name, schema))?;
    if field.data_type().is_nested() {
        let message = format!(
            "`{name}` is {}, which cannot tell series apart",
            field.data_type()
        );
        return Err(Fault::new(codes::COLUMN_TYPE, message).column(name));
    }
    Ok(())
}

/// A length of time in ticks of the time column.
fn parse_ticks(text: &str, time: &str, data_type: &DataType) -> Result<i64> {
    let bad = |message: String, hint: &str| Fault::new(codes::BAD_VALUE, message).hint(hint);
    let of_integers = text
        .strip_suffix('t')
        .and_then(|count| count.parse::<i64>().ok());
    if data_type.is_integer() {
        let message = format!("`within: {text}` cannot be told from `{time}`, which is an integer");
        return of_integers
            .ok_or_else(|| bad(message, "count its steps with the unit `t`, such as `28t`"));
    }
    let per_second: i128 = match data_type {
        DataType::Date32 => 0,
        DataType::Timestamp(TimeUnit::Second, _) => 1,
        DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 1_000_000_000,
        _ => {
            let message = format!("`{time}` is {}, which is no time", type_words(data_type));
            return Err(Fault::new(codes::COLUMN_TYPE, message).column(time));
        }
    };
    let seconds = parse_duration(text).map(|length| i128::from(length.as_secs()));
    let seconds = seconds.ok_or_else(|| {
        bad(
            format!("`within: {text}` is no length of time"),
            "write 28d, 12h or 2w",
        )
    })?;
    let ticks = if per_second == 0 {
        seconds / 86_400
    } else {
        seconds * per_second
    };
    i64::try_from(ticks).map_err(|_| {
        bad(
            format!("`within: {text}` is longer than `{time}` can tell"),
            "shorten it",
        )
    })
}

/// A fault for each list of features that names the label.
fn label_among_features(label: Option<&FeatureColumn>, config: &FeedConfig) -> Vec<Fault> {
    let Some(label) = label.map(FeatureColumn::column) else {
        return Vec::new();
    };
    let lists = [
        ("dense", &config.dense),
        ("categorical", &config.categorical),
    ];
    let mut faults = Vec::new();
    for (field, features) in lists {
        let mut names = features.iter().flatten().map(FeatureColumn::column);
        if names.any(|name| name == label) {
            let message =
                format!("`{label}` is the label, and `{field}` lists it among the features");
            let hint = format!("take it out of `{field}`; a `lag` of it may stay");
            faults.push(
                Fault::new(codes::LEAKAGE, message)
                    .column(label)
                    .field(field)
                    .hint(hint),
            );
        }
    }
    faults
}

/// Refuses the label of a training among the features of a feed that names no label.
pub(crate) fn refuse_predicted_features(
    features: &BatchFeatures,
    predicted: &BTreeMap<String, String>,
) -> Result<()> {
    if features.label.is_some() {
        return Ok(());
    }
    let lists = [
        ("dense", &features.dense),
        ("categorical", &features.categorical),
    ];
    let mut faults = Vec::new();
    for (list, fields) in lists {
        for field in fields {
            let Some(training) = predicted.get(&field.column) else {
                continue;
            };
            let column = &field.column;
            let message = format!(
                "`{column}` is the label of `{training}`, and the feed has it among its `{list}` features"
            );
            let hint = format!(
                "declare `label: {{ column: {column} }}`, or name the feed's columns: `label`, `dense`, `categorical`"
            );
            faults.push(
                Fault::new(codes::LEAKAGE, message)
                    .column(column)
                    .hint(hint),
            );
        }
    }
    Fault::combine(faults).map_or(Ok(()), Err)
}

/// The label of the pipeline, where these rows have it.
fn default_label(pipeline: &Pipeline, schema: &Schema) -> Option<FeatureColumn> {
    let column = &pipeline.label.as_ref()?.column;
    schema
        .field_with_name(column)
        .ok()
        .map(|_| FeatureColumn::Column(column.clone()))
}

fn field(feature: &FeatureColumn, schema: &Schema, missing: Option<f64>) -> Result<FeatureField> {
    let name = feature.column();
    let Ok(column) = schema.field_with_name(name) else {
        return Err(unknown_column(name, schema));
    };
    let stored = match column.data_type() {
        DataType::FixedSizeList(_, width) => *width as u32,
        _ => 1,
    };
    let (width, own) = match feature {
        FeatureColumn::Column(_) => (stored, None),
        FeatureColumn::Detailed(more) => (more.width.unwrap_or(stored), more.missing),
    };
    if width == 0 {
        return Err(
            Fault::new(codes::BAD_VALUE, format!("`{name}` has a width of 0")).column(name),
        );
    }
    Ok(FeatureField {
        width,
        missing: own.or(missing),
        ..FeatureField::new(name)
    })
}
