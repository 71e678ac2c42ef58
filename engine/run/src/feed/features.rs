//! Chooses the columns of a batch.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::{DataType, FieldRef, Schema, TimeUnit};
use forebay_contract::is_pattern;
use forebay_feed::{
    BatchFeatures, FeatureColumn, FeatureField, FeedConfig, FeedSeries, SequenceOptions,
};
use forebay_model::{
    CIVIL_BUSINESS_DAYS_HINT, DuplicateRows, Fault, Pipeline, Result, business_days_hint, codes,
    parse_duration, type_words,
};
use forebay_plan::{BoundPipeline, ColumnSelector, id_columns, is_ids, is_number, unknown_column};

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
    let mut pattern_faults = Vec::new();
    let config = &without_patterns(config, label.as_ref(), schema, &mut pattern_faults);
    let named = [&label, &config.weight].into_iter().flatten();
    let named = named
        .chain(config.dense.iter().flatten())
        .chain(config.categorical.iter().flatten());
    let extra_columns = config.beside.iter().map(String::as_str);
    let named: BTreeSet<&str> = named
        .map(FeatureColumn::column)
        .chain(extra_columns)
        .collect();
    let mut faults = label_among_features(label.as_ref(), config);
    faults.extend(pattern_faults);
    let ids = id_columns(bound);
    let free = schema
        .fields()
        .iter()
        .filter(|field| !named.contains(field.name().as_str()));
    let (categorical, others): (Vec<_>, Vec<_>) =
        free.partition(|field| ids.contains(field.name()) && is_ids(field.data_type()));
    let dense = others
        .into_iter()
        .filter(|field| is_number(field.data_type()) && !is_key_or_time(pipeline, field.name()));
    let dense = config
        .dense
        .clone()
        .unwrap_or_else(|| dense.map(feature_of_field).collect());
    let categorical = config
        .categorical
        .clone()
        .unwrap_or_else(|| categorical.into_iter().map(feature_of_field).collect());
    let mut fields = |features: &[FeatureColumn], missing: Option<f64>| -> Vec<FeatureField> {
        let mut fields = Vec::with_capacity(features.len());
        for feature in features {
            match field(feature, schema, missing) {
                Ok(field) => fields.push(field),
                Err(fault) => faults.push(fault),
            }
        }
        fields
    };
    let mut features = BatchFeatures {
        dense: fields(&dense, config.missing),
        dense_type: config.dense_type,
        categorical: fields(&categorical, config.missing_id.map(f64::from)),
        categorical_type: config.categorical_type,
        label: fields(label.as_slice(), None).pop(),
        label_as_is: config.label_as_is,
        weight: fields(config.weight.as_slice(), None).pop(),
        beside: config.beside.clone(),
        series: None,
        non_finite: config.non_finite,
    };
    for name in &config.beside {
        faults.extend(check_plain_column(name, schema).err());
    }
    for feature in &dense {
        faults.extend(FeatureKind::Number.type_fault(feature, schema));
    }
    for feature in &categorical {
        faults.extend(FeatureKind::Id.type_fault(feature, schema));
    }
    if faults.is_empty() && features.columns().is_empty() {
        let fault = Fault::new(
            codes::EMPTY,
            "no column is a number, so there is nothing to feed",
        );
        faults.push(fault.hint("name the columns under `feed`: `dense`, `categorical`, `label`"));
    }
    if let Some(declared) = &config.series {
        match resolve_series(pipeline, schema, declared) {
            Ok(series) => features.series = Some(series),
            Err(fault) => faults.push(fault),
        }
    }
    let at = pipeline.feed.as_ref().and_then(|feed| feed.at.as_ref());
    let faults = faults.into_iter().map(|fault| fault.at(at));
    match Fault::combine(faults.collect()) {
        Some(fault) => Err(fault),
        None => Ok(features),
    }
}

/// Kind of the values of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeatureKind {
    Number,
    Id,
}

impl FeatureKind {
    fn words(self) -> &'static str {
        match self {
            FeatureKind::Number => "a number",
            FeatureKind::Id => "an id",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            FeatureKind::Number => {
                "make numbers of it before, or ids with `vocabulary` or `hash_bucket`, listed \
                 under `categorical`"
            }
            FeatureKind::Id => "make ids of it with `vocabulary` or `hash_bucket` before",
        }
    }

    /// True if batches hold values of a type as this kind.
    fn takes(self, data_type: &DataType) -> bool {
        match data_type {
            DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item) => {
                self.takes(item.data_type())
            }
            DataType::Dictionary(_, values) => self.takes(values),
            DataType::RunEndEncoded(_, values) => self.takes(values.data_type()),
            DataType::Boolean | DataType::Date32 | DataType::Null => true,
            data_type if data_type.is_integer() => true,
            data_type => self == FeatureKind::Number && data_type.is_numeric(),
        }
    }

    /// A fault for a feature of another type, which the first batch would be refused for.
    fn type_fault(self, feature: &FeatureColumn, schema: &Schema) -> Option<Fault> {
        let name = feature.column();
        // A name that is not there has a fault already.
        let field = schema.field_with_name(name).ok()?;
        if self.takes(field.data_type()) {
            return None;
        }
        let message = format!(
            "`{name}` is {}, and not {}",
            type_words(field.data_type()),
            self.words()
        );
        let fault = Fault::new(codes::COLUMN_TYPE, message).column(name);
        Some(fault.hint(self.hint()))
    }
}

fn feature_of_field(field: &FieldRef) -> FeatureColumn {
    FeatureColumn::from(field.name().as_str())
}

/// True for a key or time of a source: it tells rows apart, and is no amount.
fn is_key_or_time(pipeline: &Pipeline, name: &str) -> bool {
    let mut columns = pipeline
        .sources
        .iter()
        .flat_map(|source| source.keys.iter().chain(&source.time));
    columns.any(|column| column == name)
}

/// The configuration with the columns of `schema` in place of patterns among its features. A pattern leaves out the label
/// and what the other settings name. One that matches no column is a fault.
fn without_patterns(
    config: &FeedConfig,
    label: Option<&FeatureColumn>,
    schema: &Schema,
    faults: &mut Vec<Fault>,
) -> FeedConfig {
    let mut named = BTreeSet::new();
    for features in [&config.dense, &config.categorical].into_iter().flatten() {
        named.extend(features.iter().map(FeatureColumn::column));
    }
    named.extend(
        label
            .into_iter()
            .chain(&config.weight)
            .map(FeatureColumn::column),
    );
    named.extend(config.beside.iter().map(String::as_str));
    let dense = config.dense.as_ref();
    let categorical = config.categorical.as_ref();
    FeedConfig {
        dense: dense.map(|features| replace_patterns(features, &named, schema, faults)),
        categorical: categorical.map(|features| replace_patterns(features, &named, schema, faults)),
        ..config.clone()
    }
}

/// Features with the columns of `schema` in place of patterns, but for the columns in `named`.
fn replace_patterns(
    features: &[FeatureColumn],
    named: &BTreeSet<&str>,
    schema: &Schema,
    faults: &mut Vec<Fault>,
) -> Vec<FeatureColumn> {
    let mut columns: Vec<FeatureColumn> = Vec::new();
    for feature in features {
        let name = feature.column();
        if !is_pattern(name) || schema.field_with_name(name).is_ok() {
            columns.push(feature.clone());
            continue;
        }
        let fields = match ColumnSelector::from(name).resolve(schema) {
            Ok(fields) => fields,
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        };
        for field in fields {
            let name = field.name().as_str();
            let is_there = columns.iter().any(|column| column.column() == name);
            if !named.contains(name) && !is_there {
                columns.push(feature.with_column(name));
            }
        }
    }
    columns
}

/// The series whose rows belong together: those that the feed declares, else those of the sources.
fn resolve_series(
    pipeline: &Pipeline,
    schema: &Schema,
    series: &FeedSeries,
) -> Result<SequenceOptions> {
    let needed = |missing: &str, field: &str| {
        Fault::new(
            codes::MISSING_FIELD,
            format!("`series` needs the {missing}"),
        )
        .hint(format!(
            "add `{field}` to `series`, or declare it at the source"
        ))
    };
    let mut sources = pipeline.sources.iter();
    let source_keys = sources.find(|source| !source.keys.is_empty());
    let source_keys = source_keys.map(|source| &source.keys);
    let keys = series.keys.as_ref().or(source_keys).cloned();
    let keys = keys.ok_or_else(|| needed("columns that tell series apart", "keys"))?;
    let mut source_times = pipeline.sources.iter().flat_map(|source| &source.time);
    let time = series.time.as_ref().or(source_times.next()).cloned();
    let time = time.ok_or_else(|| needed("column of times", "time"))?;
    for name in keys.iter().chain([&time]) {
        check_plain_column(name, schema)?;
    }
    if series.steps == 0 {
        return Err(
            Fault::new(codes::BAD_VALUE, "sequences of no steps hold nothing")
                .hint("set `steps` to 1 or more"),
        );
    }
    let data_type = schema.field_with_name(&time)?.data_type().clone();
    let within = series
        .within
        .as_deref()
        .map(|text| parse_ticks(text, &time, &data_type))
        .transpose()?;
    let duplicates = duplicate_policy(pipeline, &keys, &time, within.is_some());
    Ok(SequenceOptions {
        steps: series.steps,
        keys,
        time: Some(time),
        within,
        delivered: Some(DELIVERED.to_owned()),
        duplicates,
    })
}

/// Treatment of rows with the same keys and the same time, as windows have it: that of the source; else sequences of a
/// length of time refuse them, and sequences of a number of rows warn. Series of other columns than those of the source
/// warn.
fn duplicate_policy(
    pipeline: &Pipeline,
    keys: &[String],
    time: &str,
    by_time: bool,
) -> DuplicateRows {
    let by_default = if by_time {
        DuplicateRows::Error
    } else {
        DuplicateRows::Warn
    };
    let declaring = pipeline
        .sources
        .iter()
        .find(|source| !source.keys.is_empty());
    let Some(source) = declaring else {
        return by_default;
    };
    let policy = source.duplicates.unwrap_or(by_default);
    if source.keys == keys && source.time.as_deref() == Some(time) {
        policy
    } else {
        policy.min(DuplicateRows::Warn)
    }
}

/// Refuses columns of lists and structs as names of series and groups.
fn check_plain_column(name: &str, schema: &Schema) -> Result<()> {
    let field = schema
        .field_with_name(name)
        .map_err(|_| unknown_column(name, schema))?;
    if field.data_type().is_nested() {
        let message = format!(
            "`{name}` is {}, which cannot tell series apart",
            type_words(field.data_type())
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
            match business_days_hint(text) {
                Some(_) => CIVIL_BUSINESS_DAYS_HINT,
                None => "write 28d, 12h or 2w",
            },
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
                "`{column}` is the label of `{training}`, and the feed has it among its `{list}` \
                 features"
            );
            let hint = format!(
                "declare `label: {{ column: {column} }}`, or name the feed's columns: `label`, \
                 `dense`, `categorical`"
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

/// The columns that a feed names. Their types and widths can depend on findings, and are not
/// checked.
pub(crate) fn check_feed(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    from: &str,
    config: &FeedConfig,
) -> Result<()> {
    let Some(flow) = bound.flows.get(from) else {
        return Ok(());
    };
    let faults = choose_features(pipeline, bound, &flow.schema, config)
        .err()
        .into_iter()
        .flat_map(Fault::into_each);
    // Widths may be known only once something is learned; names and types are known before.
    let codes_of_columns = [codes::UNKNOWN_COLUMN, codes::LEAKAGE, codes::COLUMN_TYPE];
    let faults = faults.filter(|fault| codes_of_columns.contains(&fault.code()));
    Fault::combine(faults.collect()).map_or(Ok(()), Err)
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
    let (width, feature_missing) = match feature {
        FeatureColumn::Column(_) => (stored, None),
        FeatureColumn::Detailed(options) => (options.width.unwrap_or(stored), options.missing),
    };
    if width == 0 {
        return Err(
            Fault::new(codes::BAD_VALUE, format!("`{name}` has a width of 0")).column(name),
        );
    }
    Ok(FeatureField {
        width,
        missing: feature_missing.or(missing),
        ..FeatureField::new(name)
    })
}
