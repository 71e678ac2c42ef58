//! A first spec for some data: what an expert would begin with, from the schema and the first rows.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_connectors::CsvDialect;
use forebay_model::{
    BoundValue, ColumnExtent, Dataset, Result, TextRules, logical_type, tick_nanoseconds,
};
use forebay_plan::sql_name;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::present::rows::type_name;
use crate::present::units;
use crate::spec;

/// Columns that together tell series apart, at most.
const KEYS_MAX: usize = 3;

/// Columns that are tried as keys.
const KEY_CANDIDATES_MAX: usize = 8;

/// Values up to which a text becomes one column for each.
const ONE_HOT_MAX: usize = 12;

/// The share of time that is trained on.
const TRAIN_SHARE: f64 = 0.8;

/// Last words of names of whole numbers that are codes.
const CODE_WORDS: [&str; 12] = [
    "code", "zip", "zipcode", "postcode", "tract", "area", "zone", "region", "district", "type",
    "class", "category",
];

/// Seconds since 1970, from 2001 to 2100.
const UNIX_SECONDS: std::ops::Range<i64> = 1_000_000_000..4_102_444_800;

const DAY: i128 = 86_400_000_000_000;

/// What the first rows tell of a column.
struct ColumnFacts {
    name: String,
    data_type: DataType,
    nulls: usize,
    distinct: usize,
    values: Vec<Option<String>>,
}

/// What a spec is proposed from.
pub(crate) struct DataSample<'a> {
    pub name: &'a str,
    pub format: &'static str,
    pub path: &'a str,
    pub dialect: &'a CsvDialect,
    pub label: Option<&'a str>,
    pub dataset: &'a Dataset,
    pub batches: &'a [RecordBatch],
    /// Whether these are all rows.
    pub whole: bool,
    /// From how many files they are.
    pub files: usize,
}

/// Event time, keys and frequency.
#[derive(Default)]
struct SeriesGuess {
    time: Option<String>,
    keys: Vec<String>,
    /// Whether keys and time together tell rows apart.
    unique: bool,
    /// Between two times of the data, in nanoseconds.
    step: Option<i128>,
}

impl DataSample<'_> {
    /// The column that would be the event time.
    pub fn time_column(batches: &[RecordBatch]) -> Option<String> {
        let schema = batches.first()?.schema();
        let is_filled = |index: usize| {
            batches
                .iter()
                .all(|batch| batch.column(index).null_count() == 0)
        };
        let fields = schema.fields().iter().enumerate();
        let mut times = fields.filter(|(index, field)| {
            let is_time = matches!(
                field.data_type(),
                DataType::Date32 | DataType::Timestamp(..)
            );
            is_time && is_filled(*index)
        });
        times.next().map(|(_, field)| field.name().clone())
    }

    /// The text of the spec.
    pub fn spec(&self) -> Result<String> {
        let facts = self.facts()?;
        let rows = facts.first().map_or(0, |column| column.values.len());
        let series = self.series(&facts, rows)?;
        let mut text = String::from(
            "# Made by `forebay new`: change what you like, then `forebay check` and `forebay run`.\n#\n",
        );
        let shown = match (self.whole, self.files) {
            (true, _) => units::rows(rows as u64),
            (false, 1) => format!("the first {}", units::rows(rows as u64)),
            (false, files) => format!("{} of {files} files", units::rows(rows as u64)),
        };
        if let (None, Some(number)) = (
            self.label,
            facts
                .iter()
                .find(|column| self.may_be_label(column, &series, rows)),
        ) {
            text += &format!(
                "# `--label COLUMN` names what is predicted, such as `--label {}`: it gets lags and means of the\n# time before where there are series, and is not changed itself.\n#\n",
                number.name
            );
        }
        for finding in &self.dialect.findings {
            text += &format!("# In its files, {finding}.\n");
        }
        text += &format!("# Columns, by {shown}:\n");
        let width = facts
            .iter()
            .map(|column| column.name.chars().count())
            .max()
            .unwrap_or(0);
        for column in &facts {
            let share = match 100.0 * column.nulls as f64 / rows.max(1) as f64 {
                share if share > 0.0 && share < 0.1 => "<0.1".to_owned(),
                share => format!("{share:.1}"),
            };
            text += &format!(
                "#   {:width$}  {:9}  {share}% null, {} distinct{}\n",
                column.name,
                type_name(&column.data_type),
                units::grouped(column.distinct as u64),
                self.role(column, &series, rows)
                    .map_or_else(String::new, |role| format!(", {role}")),
            );
        }
        let (name, format) = (self.name, self.format);
        let mut options = format!("path: {}", quoted(self.path));
        for (option, value) in &self.dialect.options {
            options += &format!(", {option}: {value}");
        }
        text += &format!(
            "version: 1\nname: {name}\n\nsources:\n  {name}:\n    {format}: {{ {options} }}\n"
        );
        if let Some(time) = &series.time {
            text += &format!("    time: {}\n", quoted(time));
        }
        if !series.keys.is_empty() {
            text += &format!("    keys: [{}]\n", listed(&series.keys));
        }
        let split = series
            .time
            .as_ref()
            .and_then(|time| Some((time, self.train_end(time)?)));
        text += &format!("\nsteps:\n  features:\n    from: {name}\n");
        if split.is_some() {
            text += "    fit_on: train\n";
        }
        let steps = self.steps(&facts, &series, rows);
        if !steps.is_empty() {
            text += "    do:\n";
            steps
                .iter()
                .for_each(|step| text += &format!("      - {step}\n"));
        }
        if let Some(label) = self.label {
            text += &format!("\nlabel: {{ column: {} }}\n", quoted(label));
        }
        if let Some((time, end)) = split {
            text += &format!(
                "\nsplit:\n  by_time: {{ column: {}, parts: [train, validation], ends: [\"{end}\"] }}\n",
                quoted(time)
            );
        }
        text +=
            &format!("\nsinks:\n  table: {{ from: features, parquet: {{ path: out/{name} }} }}\n");
        spec::format(&text, name)
    }

    fn facts(&self) -> Result<Vec<ColumnFacts>> {
        let Some(first) = self.batches.first() else {
            return Ok(Vec::new());
        };
        let options = FormatOptions::default();
        let mut facts = Vec::new();
        for (index, field) in first.schema().fields().iter().enumerate() {
            let mut values = Vec::new();
            for batch in self.batches {
                let column = batch.column(index);
                let texts = ArrayFormatter::try_new(column.as_ref(), &options)?;
                let text = |row| column.is_valid(row).then(|| texts.value(row).to_string());
                values.extend((0..column.len()).map(text));
            }
            let distinct = values.iter().flatten().collect::<BTreeSet<_>>().len();
            facts.push(ColumnFacts {
                name: field.name().clone(),
                data_type: logical_type(field.data_type()),
                nulls: values.iter().filter(|value| value.is_none()).count(),
                distinct,
                values,
            });
        }
        Ok(facts)
    }

    fn series(&self, facts: &[ColumnFacts], rows: usize) -> Result<SeriesGuess> {
        let Some(time) = DataSample::time_column(self.batches) else {
            return Ok(SeriesGuess::default());
        };
        let by_name: BTreeMap<&str, &ColumnFacts> = facts
            .iter()
            .map(|column| (column.name.as_str(), column))
            .collect();
        let is_key = |column: &&ColumnFacts| {
            let is_kind = column.data_type == DataType::Utf8 || column.data_type.is_integer();
            is_kind
                && column.nulls == 0
                && column.distinct > 1
                && Some(column.name.as_str()) != self.label
        };
        let mut candidates: Vec<&ColumnFacts> = facts.iter().filter(is_key).collect();
        candidates.sort_by_key(|column| {
            (
                !is_id_name(&column.name),
                column.data_type != DataType::Utf8,
            )
        });
        candidates.truncate(KEY_CANDIDATES_MAX);
        let is_unique = |keys: &[&ColumnFacts]| {
            let mut seen = BTreeSet::new();
            (0..rows).all(|row| {
                let key = keys
                    .iter()
                    .copied()
                    .chain(by_name.get(time.as_str()).copied());
                seen.insert(
                    key.map(|column| column.values[row].as_deref())
                        .collect::<Vec<_>>(),
                )
            })
        };
        let found = subsets(&candidates, KEYS_MAX)
            .into_iter()
            .find(|keys| is_unique(keys));
        let unique = found.is_some();
        let keys = found
            .unwrap_or_default()
            .iter()
            .map(|column| column.name.clone())
            .collect();
        let step = self.time_step(&time)?;
        Ok(SeriesGuess {
            time: Some(time),
            keys,
            unique,
            step,
        })
    }

    /// The commonest distance of neighbouring times.
    fn time_step(&self, time: &str) -> Result<Option<i128>> {
        let mut ticks: BTreeSet<i64> = BTreeSet::new();
        let mut nanoseconds = 1;
        for column in self
            .batches
            .iter()
            .filter_map(|batch| batch.column_by_name(time))
        {
            nanoseconds = tick_nanoseconds(column.data_type()).unwrap_or(1);
            let column = match column.data_type() {
                DataType::Date32 => cast(&cast(column, &DataType::Int32)?, &DataType::Int64)?,
                _ => cast(column, &DataType::Int64)?,
            };
            ticks.extend(column.as_primitive::<Int64Type>().iter().flatten());
        }
        let ordered: Vec<i64> = ticks.into_iter().collect();
        let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
        for pair in ordered.windows(2) {
            *counts.entry(pair[1] - pair[0]).or_default() += 1;
        }
        let commonest = counts
            .into_iter()
            .max_by_key(|(step, count)| (*count, -*step));
        let step = commonest.map(|(step, _)| i128::from(step) * nanoseconds);
        // The first rows may all be of one day.
        let is_date = nanoseconds == DAY;
        Ok(step.or(is_date.then_some(DAY)))
    }

    /// The day on which the training part ends.
    fn train_end(&self, time: &str) -> Option<String> {
        let nanoseconds =
            tick_nanoseconds(self.dataset.schema.field_with_name(time).ok()?.data_type())?;
        let watched = self.dataset.watched.iter().position(|name| name == time)?;
        let extents: Vec<Option<ColumnExtent>> = self
            .dataset
            .spans
            .iter()
            .map(|span| span.extent(watched))
            .collect();
        let extent = ColumnExtent::union(extents.iter().map(Option::as_ref))?;
        let (BoundValue::Int(first), BoundValue::Int(last)) = (extent.min, extent.max) else {
            return None;
        };
        let (first, last) = (
            i128::from(first) * nanoseconds,
            i128::from(last) * nanoseconds,
        );
        let end = first + ((last - first) as f64 * TRAIN_SHARE) as i128;
        let end = end - end.rem_euclid(DAY);
        let at = Timestamp::from_nanosecond(end).ok()?;
        (end > first).then(|| at.to_zoned(TimeZone::UTC).date().to_string())
    }

    /// What a column is, where no step changes it.
    fn role(
        &self,
        column: &ColumnFacts,
        series: &SeriesGuess,
        rows: usize,
    ) -> Option<&'static str> {
        if Some(column.name.as_str()) == self.label {
            return Some("the label");
        }
        if series.time.as_ref() == Some(&column.name) {
            return Some("the time");
        }
        if series.keys.contains(&column.name) {
            return Some("a key");
        }
        match column.distinct {
            0 => Some("left alone: it is empty"),
            1 => Some("left alone: it has one value"),
            _ if column.is_text_time() => {
                Some("left alone: its texts are dates or times, which `columns` can declare")
            }
            _ if column.is_id(rows) => Some("left alone: an id"),
            _ if column.is_unix_time() => {
                Some("left alone: it looks like a time in seconds since 1970")
            }
            _ => None,
        }
    }

    /// Whether a column could be what is predicted.
    fn may_be_label(&self, column: &ColumnFacts, series: &SeriesGuess, rows: usize) -> bool {
        let name = column.name.to_lowercase();
        let is_calendar = ["year", "month", "day", "hour", "minute", "second", "time"]
            .iter()
            .any(|word| name.ends_with(word));
        column.data_type.is_numeric()
            && !is_calendar
            && !column.is_code()
            && self.role(column, series, rows).is_none()
    }

    fn steps(&self, facts: &[ColumnFacts], series: &SeriesGuess, rows: usize) -> Vec<String> {
        let features: Vec<&ColumnFacts> = facts
            .iter()
            .filter(|column| self.role(column, series, rows).is_none())
            .collect();
        let names = |accepts: &dyn Fn(&ColumnFacts) -> bool| -> Vec<String> {
            features
                .iter()
                .filter(|column| accepts(column))
                .map(|column| column.name.clone())
                .collect()
        };
        let is_number = |column: &ColumnFacts| column.data_type.is_numeric() && !column.is_code();
        let is_text = |column: &ColumnFacts| column.data_type == DataType::Utf8 || column.is_code();
        let mut steps = Vec::new();
        let label = self
            .label
            .and_then(|label| facts.iter().find(|column| column.name == label));
        if let Some(label) = label.filter(|label| label.nulls > 0) {
            // Rows to be scored have no label.
            let is_word = |letter: char| letter.is_ascii_lowercase() || letter == '_';
            let name = if label.name.chars().all(is_word) {
                label.name.clone()
            } else {
                sql_name(&label.name)
            };
            let condition = format!("{name} IS NOT NULL").replace('\'', "''");
            steps.push(format!("filter: {{ sql: '{condition}', when: learning }}"));
        }
        let length = |count: i128| series.step.and_then(|step| length_text(step * count));
        let season = series.step.map_or(1, season_of);
        if let (Some(label), true) = (label.filter(|label| is_number(label)), series.unique)
            && let (Some(one), Some(season), Some(four)) =
                (length(1), length(season), length(4 * season))
        {
            let label = quoted(&label.name);
            steps.push(format!(
                "lag: {{ columns: [{label}], by: [{one}, {season}] }}"
            ));
            steps.push(format!(
                "rolling: {{ columns: [{label}], compute: [mean], over: [{season}, {four}], gap: {one} }}"
            ));
        }
        let mut add = |columns: Vec<String>, step: &dyn Fn(String) -> String| {
            if !columns.is_empty() {
                steps.push(step(listed(&columns)));
            }
        };
        add(
            names(&|column| is_number(column) && column.nulls > 0),
            &|columns| format!("impute: {{ columns: [{columns}], with: median }}"),
        );
        add(
            names(&|column| is_number(column) && column.distinct > 2),
            &|columns| format!("standardize: {{ columns: [{columns}] }}"),
        );
        add(
            names(&|column| is_text(column) && column.distinct <= ONE_HOT_MAX),
            &|columns| format!("one_hot: {{ columns: [{columns}] }}"),
        );
        add(
            names(&|column| is_text(column) && column.distinct > ONE_HOT_MAX),
            &|columns| {
                format!("vocabulary: {{ columns: [{columns}], min_count: 2, oov_buckets: 1 }}")
            },
        );
        steps
    }
}

impl ColumnFacts {
    /// Whether its whole numbers name things, such as districts: their order and distance have no meaning.
    fn is_code(&self) -> bool {
        let name = self.name.to_lowercase();
        self.data_type.is_integer()
            && CODE_WORDS
                .iter()
                .any(|word| name == *word || name.ends_with(&format!("_{word}")))
    }

    /// Whether it holds seconds since 1970 under a name that says so.
    fn is_unix_time(&self) -> bool {
        let name = self.name.to_lowercase();
        let is_time_name = ["timestamp", "time", "ts", "epoch"]
            .iter()
            .any(|word| name == *word || name.ends_with(&format!("_{word}")));
        let seconds = |text: &String| {
            text.parse::<i64>()
                .is_ok_and(|value| UNIX_SECONDS.contains(&value))
        };
        is_time_name && self.data_type.is_integer() && self.values.iter().flatten().all(seconds)
    }

    /// True if all of its texts are dates or times, as those of JSON can be.
    fn is_text_time(&self) -> bool {
        let texts = StringArray::from_iter(self.values.iter().map(Option::as_deref));
        let types = [
            DataType::Timestamp(TimeUnit::Nanosecond, None),
            DataType::Timestamp(TimeUnit::Microsecond, None),
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ];
        let are_read = |of: &DataType| TextRules::inferred().all_read(&texts, of);
        self.data_type == DataType::Utf8 && self.distinct > 0 && types.iter().any(are_read)
    }

    /// Whether it names rows or things, by its name or because hardly a value comes twice.
    fn is_id(&self, rows: usize) -> bool {
        let is_kind = self.data_type == DataType::Utf8 || self.data_type.is_integer();
        is_kind && (is_id_name(&self.name) || (rows >= 50 && self.distinct * 20 > rows * 19))
    }
}

fn is_id_name(name: &str) -> bool {
    let name = name.to_lowercase();
    name == "id" || name.ends_with("_id") || name.ends_with("_key") || name == "uuid"
}

/// Subsets of up to `max` items, the smallest first.
fn subsets<'c>(items: &[&'c ColumnFacts], max: usize) -> Vec<Vec<&'c ColumnFacts>> {
    let mut all: Vec<Vec<&ColumnFacts>> = vec![Vec::new()];
    for item in items {
        let longer: Vec<Vec<&ColumnFacts>> = all
            .iter()
            .filter(|set| set.len() < max)
            .map(|set| set.iter().copied().chain([*item]).collect())
            .collect();
        all.extend(longer);
    }
    all.sort_by_key(Vec::len);
    all
}

/// Steps of a season: a day of hours, else a week.
fn season_of(step: i128) -> i128 {
    if step < DAY && DAY % step == 0 {
        DAY / step
    } else {
        7
    }
}

/// A length of time as specs write it.
fn length_text(nanoseconds: i128) -> Option<String> {
    let units = [
        (DAY, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
    ];
    let (unit, word) = units
        .into_iter()
        .find(|(unit, _)| nanoseconds >= *unit && nanoseconds % unit == 0)?;
    Some(format!("{}{word}", nanoseconds / unit))
}

fn listed(names: &[String]) -> String {
    names
        .iter()
        .map(|name| quoted(name))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A YAML scalar: quoted where plain text could mean something else.
fn quoted(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '.' | '-'))
        && !matches!(
            text,
            "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if plain {
        text.to_owned()
    } else {
        serde_json::Value::from(text).to_string()
    }
}
