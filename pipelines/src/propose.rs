//! Proposes a first spec for some data, from the schema and the first rows.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_analyze::MonthSteps;
use forebay_connectors::CsvFindings;
use forebay_model::{
    BoundValue, ColumnClock, ColumnExtent, Dataset, Result, TextRules, TimeFormat, logical_type,
    tick_nanoseconds, type_label,
};
use forebay_plan::sql_name;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::present::{printable, units};
use crate::spec;

/// Maximum number of columns that together identify a series.
const KEYS_MAX: usize = 3;

/// Columns that are tried as keys.
const KEY_CANDIDATES_MAX: usize = 8;

/// Values up to which a text becomes one column for each.
const ONE_HOT_MAX: usize = 12;

/// The share of time that is trained on.
const TRAIN_SHARE: f64 = 0.8;

/// Words that may stand for null in a column of numbers.
const WORDS_MAX: usize = 3;

/// Length of such a word.
const WORD_BYTES_MAX: usize = 16;

/// Last words of names of whole numbers that are codes.
const CODE_WORDS: [&str; 12] = [
    "code", "zip", "zipcode", "postcode", "tract", "area", "zone", "region", "district", "type",
    "class", "category",
];

/// Formats of dates and times that people write, beside ISO 8601.
const TIME_FORMATS: [&str; 14] = [
    "%Y%m%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%Y/%m/%d",
    "%d %b %Y",
    "%d-%b-%Y",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y %H:%M:%S",
    "%d/%m/%Y %H:%M",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M",
    "%m/%d/%Y %H:%M:%S",
];

/// Seconds since 1970, from 2001 to 2100.
const UNIX_SECONDS: std::ops::Range<i64> = 1_000_000_000..4_102_444_800;

const DAY: i128 = 86_400_000_000_000;

const MONTHS_PER_YEAR: i128 = 12;

/// Facts about a column from the first rows.
struct ColumnFacts {
    name: String,
    data_type: DataType,
    nulls: usize,
    distinct: usize,
    values: Vec<Option<String>>,
}

/// Data that a spec is proposed for.
pub(crate) struct DataSample<'a> {
    pub name: &'a str,
    pub format: &'static str,
    pub path: &'a str,
    pub dialect: &'a CsvFindings,
    pub label: Option<&'a str>,
    pub dataset: &'a Dataset,
    pub batches: &'a [RecordBatch],
    /// True if these are all rows.
    pub whole: bool,
    /// Number of files that the rows are from.
    pub files: usize,
}

/// Event time, keys and frequency.
#[derive(Default)]
struct SeriesGuess {
    time: Option<String>,
    keys: Vec<String>,
    /// True if keys and time together identify rows.
    unique: bool,
    step: Option<TimeStep>,
}

/// Distance between consecutive times of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeStep {
    Months(i128),
    Nanoseconds(i128),
}

impl DataSample<'_> {
    /// The column that would be the event time.
    pub fn time_column(batches: &[RecordBatch]) -> Option<String> {
        let schema = batches.first()?.schema();
        for (index, field) in schema.fields().iter().enumerate() {
            let is_time = matches!(
                field.data_type(),
                DataType::Date32 | DataType::Timestamp(..)
            );
            let mut columns = batches.iter().map(|batch| batch.column(index));
            if is_time && columns.all(|column| column.null_count() == 0) {
                return Some(field.name().clone());
            }
        }
        None
    }

    /// The text of the spec.
    pub fn spec(&self) -> Result<String> {
        let facts = self.facts()?;
        let rows = facts.first().map_or(0, |column| column.values.len());
        let series = self.series(&facts, rows)?;
        let mut text = String::from(
            "# Made by `forebay new`: change what you like, then `forebay check` and `forebay \
             run`.\n#\n",
        );
        text += &self.label_advice(&facts, &series, rows);
        for finding in &self.dialect.findings {
            text += &format!("# In its files, {finding}.\n");
        }
        if let Some(left_out) = self.dataset.left_out.text() {
            text += &format!("# {}.\n", printable(&left_out));
        }
        text += &self.column_table(&facts, &series, rows);
        text += &self.source_section(&series);
        let name = self.name;
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
            for step in steps.iter() {
                text += &format!("      - {step}\n");
            }
        }
        if let Some(label) = self.label {
            text += &format!("\nlabel: {{ column: {} }}\n", quoted(label));
        }
        if let Some((time, end)) = split {
            text += &format!(
                "\nsplit:\n  by_time: {{ column: {}, parts: [train, validation], ends: \
                 [\"{end}\"] }}\n",
                quoted(time)
            );
        }
        text +=
            &format!("\nsinks:\n  table: {{ from: features, parquet: {{ path: out/{name} }} }}\n");
        spec::format(&text, name)
    }

    /// Comment that says how a label is named; empty where one is, or no column could be one.
    fn label_advice(&self, facts: &[ColumnFacts], series: &SeriesGuess, rows: usize) -> String {
        if self.label.is_some() {
            return String::new();
        }
        let mut columns = facts.iter();
        let Some(number) = columns.find(|column| self.may_be_label(column, series, rows)) else {
            return String::new();
        };
        format!(
            "# `--label COLUMN` names what is predicted, such as `--label {}`: it gets lags and \
             means of the\n# time before where there are series, and is not changed itself.\n#\n",
            printable(&number.name)
        )
    }

    /// Comment with the facts of each column.
    fn column_table(&self, facts: &[ColumnFacts], series: &SeriesGuess, rows: usize) -> String {
        // A line end in a name must not end the comment.
        let mut names = Vec::with_capacity(facts.len());
        let mut width = 0;
        for column in facts {
            let name = printable(&column.name);
            width = width.max(name.chars().count());
            names.push(name);
        }
        let mut text = format!("# Columns, by {}:\n", self.sample_words(rows));
        for (column, name) in facts.iter().zip(&names) {
            let role = match self.role(column, series, rows) {
                Some(role) => format!(", {role}"),
                None => String::new(),
            };
            text += &format!(
                "#   {name:width$}  {:9}  {}% null, {} distinct{role}\n",
                type_label(&column.data_type),
                percent_text(column.nulls, rows),
                units::grouped(column.distinct as u64),
            );
        }
        text
    }

    /// The rows that facts are from, in words.
    fn sample_words(&self, rows: usize) -> String {
        let rows = units::rows(rows as u64);
        if self.whole {
            rows
        } else if self.files == 1 {
            format!("the first {rows}")
        } else {
            format!("{rows} of {} files", self.files)
        }
    }

    /// The head of the spec and its source.
    fn source_section(&self, series: &SeriesGuess) -> String {
        let name = self.name;
        let format = self.format;
        let mut options = format!("path: {}", quoted(self.path));
        for (option, value) in &self.dialect.options {
            options += &format!(", {option}: {value}");
        }
        let mut text = format!(
            "version: 1\nname: {name}\n\nsources:\n  {name}:\n    {format}: {{ {options} }}\n"
        );
        if let Some(time) = &series.time {
            text += &format!("    time: {}\n", quoted(time));
        }
        if !series.keys.is_empty() {
            text += &format!("    keys: [{}]\n", listed(&series.keys));
        }
        text
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
                for row in 0..column.len() {
                    let is_valid = column.is_valid(row);
                    values.push(is_valid.then(|| texts.value(row).to_string()));
                }
            }
            let present: Vec<&String> = values.iter().flatten().collect();
            let nulls = values.len() - present.len();
            let distinct = BTreeSet::from_iter(present).len();
            facts.push(ColumnFacts {
                name: field.name().clone(),
                data_type: logical_type(field.data_type()),
                nulls,
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
        let candidates = self.key_candidates(facts);
        let time_facts = find_column(facts, &time);
        let step = self.time_step(&time)?;
        let mut series = SeriesGuess {
            time: Some(time),
            step,
            ..SeriesGuess::default()
        };
        for keys in subsets(&candidates, KEYS_MAX) {
            if is_unique(&keys, time_facts, rows) {
                series.unique = true;
                series.keys = keys.iter().map(|column| column.name.clone()).collect();
                break;
            }
        }
        Ok(series)
    }

    /// Columns that may be keys, the likeliest first.
    fn key_candidates<'c>(&self, facts: &'c [ColumnFacts]) -> Vec<&'c ColumnFacts> {
        let mut candidates: Vec<&ColumnFacts> = Vec::new();
        for column in facts {
            if self.may_be_key(column) {
                candidates.push(column);
            }
        }
        // Names and texts are likelier keys than other whole numbers.
        candidates.sort_by_key(|column| {
            let is_text = column.data_type == DataType::Utf8;
            (!is_id_name(&column.name), !is_text)
        });
        candidates.truncate(KEY_CANDIDATES_MAX);
        candidates
    }

    fn may_be_key(&self, column: &ColumnFacts) -> bool {
        let is_kind = column.data_type == DataType::Utf8 || column.data_type.is_integer();
        let is_label = self.label == Some(column.name.as_str());
        is_kind && column.nulls == 0 && column.distinct > 1 && !is_label
    }

    /// The number of months between times that lie whole months apart, else the commonest distance of neighbouring
    /// times.
    fn time_step(&self, time: &str) -> Result<Option<TimeStep>> {
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
        let data_type = self.dataset.schema.field_with_name(time)?.data_type();
        if let Some(clock) = ColumnClock::of(&logical_type(data_type))? {
            let mut steps = MonthSteps::default();
            for tick in &ticks {
                steps.push(clock.place_in_month(*tick));
            }
            if let Some(months) = steps.months().filter(|months| *months > 0) {
                return Ok(Some(TimeStep::Months(months.into())));
            }
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
        let step = step.or(is_date.then_some(DAY));
        Ok(step.map(TimeStep::Nanoseconds))
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
        let BoundValue::Int(first) = extent.min else {
            return None;
        };
        let BoundValue::Int(last) = extent.max else {
            return None;
        };
        let first = i128::from(first) * nanoseconds;
        let last = i128::from(last) * nanoseconds;
        let end = first + ((last - first) as f64 * TRAIN_SHARE) as i128;
        let end = end - end.rem_euclid(DAY);
        let at = Timestamp::from_nanosecond(end).ok()?;
        (end > first).then(|| at.to_zoned(TimeZone::UTC).date().to_string())
    }

    /// Role of a column that no step changes.
    fn role(
        &self,
        column: &ColumnFacts,
        series: &SeriesGuess,
        rows: usize,
    ) -> Option<Cow<'static, str>> {
        if Some(column.name.as_str()) == self.label {
            return Some("the label".into());
        }
        if series.time.as_ref() == Some(&column.name) {
            return Some("the time".into());
        }
        if series.keys.contains(&column.name) {
            return Some("a key".into());
        }
        match column.distinct {
            0 => Some("left alone: it is empty".into()),
            1 => Some("left alone: it has one value".into()),
            _ if column.is_text_time() => {
                Some("left alone: its texts are dates or times, which `columns` can declare".into())
            }
            _ if column.is_formatted_time() => Some(
                "left alone: it looks like dates or times, whose format `formats` can declare"
                    .into(),
            ),
            _ => column
                .mixed_role(self.format)
                .map(Cow::<str>::from)
                .or_else(|| column.value_role(rows).map(Cow::<str>::from)),
        }
    }

    /// True if a column could be the label.
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
        let mut steps = Vec::new();
        if let Some(label) = self.label.and_then(|label| find_column(facts, label)) {
            // Rows to be scored have no label.
            if label.nulls > 0 {
                steps.push(label_filter(&label.name));
            }
            if label.is_number() && series.unique {
                steps.extend(label_windows(&label.name, series.step));
            }
        }
        let mut imputed = Vec::new();
        let mut standardized = Vec::new();
        let mut one_hot = Vec::new();
        let mut vocabulary = Vec::new();
        for column in facts {
            if self.role(column, series, rows).is_some() {
                continue;
            }
            if column.is_number() && column.nulls > 0 {
                imputed.push(column.name.clone());
            }
            if column.is_number() && column.distinct > 2 {
                standardized.push(column.name.clone());
            }
            if column.is_category() && column.distinct <= ONE_HOT_MAX {
                one_hot.push(column.name.clone());
            }
            if column.is_category() && column.distinct > ONE_HOT_MAX {
                vocabulary.push(column.name.clone());
            }
        }
        steps.extend(step_of("impute", &imputed, ", with: median"));
        steps.extend(step_of("standardize", &standardized, ""));
        steps.extend(step_of("one_hot", &one_hot, ""));
        let options = ", min_count: 2, oov_buckets: 1";
        steps.extend(step_of("vocabulary", &vocabulary, options));
        steps
    }
}

/// A step over some columns; `None` without any.
fn step_of(kind: &str, columns: &[String], options: &str) -> Option<String> {
    if columns.is_empty() {
        return None;
    }
    let columns = listed(columns);
    Some(format!("{kind}: {{ columns: [{columns}]{options} }}"))
}

/// A filter of the rows that have a label.
fn label_filter(label: &str) -> String {
    let condition = format!("{} IS NOT NULL", short_sql_name(label));
    let needs_escapes = condition.contains("${") || condition.contains(char::is_control);
    let scalar = if needs_escapes {
        quoted(&condition)
    } else {
        format!("'{}'", condition.replace('\'', "''"))
    };
    format!("filter: {{ sql: {scalar}, when: learning }}")
}

/// A column in SQL, in quotes where its name needs them.
fn short_sql_name(name: &str) -> String {
    let mut letters = name.chars();
    if letters.all(|letter| letter.is_ascii_lowercase() || letter == '_') {
        name.to_owned()
    } else {
        sql_name(name)
    }
}

/// Lags and means of a label over seasons; none where specs have no such length of time.
fn label_windows(label: &str, step: Option<TimeStep>) -> Vec<String> {
    let Some(step) = step else {
        return Vec::new();
    };
    let season_steps = season_of(step);
    let Some(step_length) = length_text(step, 1) else {
        return Vec::new();
    };
    let Some(season) = length_text(step, season_steps) else {
        return Vec::new();
    };
    let Some(four_seasons) = length_text(step, 4 * season_steps) else {
        return Vec::new();
    };
    let label = quoted(label);
    let lag = format!("lag: {{ columns: [{label}], by: [{step_length}, {season}] }}");
    let rolling = format!(
        "rolling: {{ columns: [{label}], compute: [mean], over: [{season}, {four_seasons}], \
         gap: {step_length} }}"
    );
    vec![lag, rolling]
}

/// Share of missing values in percent.
fn percent_text(nulls: usize, rows: usize) -> String {
    let percent = 100.0 * nulls as f64 / rows.max(1) as f64;
    if percent > 0.0 && percent < 0.1 {
        "<0.1".to_owned()
    } else {
        format!("{percent:.1}")
    }
}

impl ColumnFacts {
    /// True if its numbers measure something.
    fn is_number(&self) -> bool {
        self.data_type.is_numeric() && !self.is_code()
    }

    /// True if its values are names.
    fn is_category(&self) -> bool {
        self.data_type == DataType::Utf8 || self.is_code()
    }

    /// True if its whole numbers are names, such as districts: their order and distance have no
    /// meaning.
    fn is_code(&self) -> bool {
        self.data_type.is_integer() && ends_with_word(&self.name, &CODE_WORDS)
    }

    /// True if it holds seconds since 1970 and its name suggests a time.
    fn is_unix_time(&self) -> bool {
        let is_time_name = ends_with_word(&self.name, &["timestamp", "time", "ts", "epoch"]);
        if !is_time_name || !self.data_type.is_integer() {
            return false;
        }
        for text in self.values.iter().flatten() {
            let number = text.parse::<i64>();
            if !number.is_ok_and(|seconds| UNIX_SECONDS.contains(&seconds)) {
                return false;
            }
        }
        true
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

    /// True if all of its texts or whole numbers are dates or times in one of the formats that people write.
    fn is_formatted_time(&self) -> bool {
        let is_kind = self.data_type == DataType::Utf8 || self.data_type.is_integer();
        let Some(first) = self.values.iter().flatten().next().filter(|_| is_kind) else {
            return false;
        };
        // Most columns are none by their first value.
        let first = StringArray::from(vec![first.as_str()]);
        let texts = StringArray::from_iter(self.values.iter().map(Option::as_deref));
        let formats = TIME_FORMATS.iter().map(|text| TimeFormat::parse(text));
        formats.flatten().any(|format| {
            format.read(&first).lost.is_empty() && format.read(&texts).lost.is_empty()
        })
    }

    /// Role of a column by its values or its name, where these are no dates.
    fn value_role(&self, rows: usize) -> Option<&'static str> {
        if self.is_id(rows) {
            Some("left alone: an id")
        } else if self.is_unix_time() {
            Some("left alone: it looks like a time in seconds since 1970")
        } else {
            None
        }
    }

    /// Role of a column of texts that would be numbers or dates but for some of them.
    fn mixed_role(&self, format: &str) -> Option<String> {
        if self.data_type != DataType::Utf8 {
            return None;
        }
        let texts = StringArray::from_iter(self.values.iter().map(Option::as_deref));
        if let Some(words) = self.words_among_numbers(&texts) {
            let remedy = match format {
                "csv" => "`nulls` can declare",
                _ => "`cast` with `on_error: missing` makes null",
            };
            return Some(format!(
                "left alone: numbers, but for {words}, which {remedy}"
            ));
        }
        let time_format = self.second_time_format(&texts)?;
        let column = short_sql_name(&self.name);
        Some(format!(
            "left alone: dates in two forms, which `derive` can read: coalesce(try_cast({column} \
             AS DATE), to_date({column}, '{time_format}'))"
        ))
    }

    /// The words in a column of which nearly all other texts are numbers.
    fn words_among_numbers(&self, texts: &StringArray) -> Option<String> {
        let lost = TextRules::inferred().read(texts, &DataType::Float64).lost;
        let present = self.values.len() - self.nulls;
        if lost.is_empty() || lost.len() * 10 > present {
            return None;
        }
        let mut words: BTreeSet<&str> = BTreeSet::new();
        for row in lost {
            let word = texts.value(row);
            // A code such as `007` or `12a` is a value, and so is a sentence.
            let is_word = word.len() <= WORD_BYTES_MAX
                && !word.contains(|letter: char| letter.is_ascii_digit() || letter.is_control());
            words.insert(word);
            if !is_word || words.len() > WORDS_MAX {
                return None;
            }
        }
        let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        Some(words.join(" and "))
    }

    /// The format of the dates that are not written as in ISO 8601, where some of them are.
    fn second_time_format(&self, texts: &StringArray) -> Option<&'static str> {
        let lost = TextRules::inferred().read(texts, &DataType::Date32).lost;
        let present = self.values.len() - self.nulls;
        if lost.is_empty() || lost.len() == present {
            return None;
        }
        let others = StringArray::from_iter_values(lost.iter().map(|row| texts.value(*row)));
        let mut date_formats = TIME_FORMATS.iter().filter(|text| !text.contains("%H"));
        date_formats
            .find(|text| {
                TimeFormat::parse(text).is_ok_and(|format| format.read(&others).lost.is_empty())
            })
            .copied()
    }

    /// True if it identifies rows or objects, by its name or because hardly a value is repeated.
    fn is_id(&self, rows: usize) -> bool {
        let is_kind = self.data_type == DataType::Utf8 || self.data_type.is_integer();
        is_kind && (is_id_name(&self.name) || (rows >= 50 && self.distinct * 20 > rows * 19))
    }
}

/// True if a name is one of some words, or ends with one behind an underscore.
fn ends_with_word(name: &str, words: &[&str]) -> bool {
    let name = name.to_lowercase();
    for word in words {
        if name == *word || name.ends_with(&format!("_{word}")) {
            return true;
        }
    }
    false
}

fn is_id_name(name: &str) -> bool {
    let name = name.to_lowercase();
    name == "id" || name.ends_with("_id") || name.ends_with("_key") || name == "uuid"
}

/// True if no two rows have the same keys and time.
fn is_unique(keys: &[&ColumnFacts], time: Option<&ColumnFacts>, rows: usize) -> bool {
    let columns: Vec<&ColumnFacts> = keys.iter().copied().chain(time).collect();
    let mut seen = BTreeSet::new();
    for row in 0..rows {
        let values = columns.iter().map(|column| column.values[row].as_deref());
        if !seen.insert(values.collect::<Vec<_>>()) {
            return false;
        }
    }
    true
}

/// Subsets of up to `max` items, the smallest first.
fn subsets<'c>(items: &[&'c ColumnFacts], max: usize) -> Vec<Vec<&'c ColumnFacts>> {
    let mut sets: Vec<Vec<&ColumnFacts>> = vec![Vec::new()];
    for item in items {
        let mut longer_sets = Vec::new();
        for set in &sets {
            if set.len() < max {
                let mut longer = set.clone();
                longer.push(*item);
                longer_sets.push(longer);
            }
        }
        sets.extend(longer_sets);
    }
    sets.sort_by_key(Vec::len);
    sets
}

/// Steps of a season: a day of hours, else a week.
fn season_of(step: TimeStep) -> i128 {
    match step {
        TimeStep::Months(months) => (MONTHS_PER_YEAR / months).max(2),
        TimeStep::Nanoseconds(step) if step < DAY && DAY % step == 0 => DAY / step,
        TimeStep::Nanoseconds(_) => 7,
    }
}

/// A number of steps as a length of time that specs have.
fn length_text(step: TimeStep, count: i128) -> Option<String> {
    let month_units = [(MONTHS_PER_YEAR, "y"), (3, "q"), (1, "mo")];
    let exact_units = [
        (DAY, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
    ];
    let (length, units) = match step {
        TimeStep::Months(months) => (months * count, month_units.as_slice()),
        TimeStep::Nanoseconds(nanoseconds) => (nanoseconds * count, exact_units.as_slice()),
    };
    let (unit, word) = units
        .iter()
        .find(|(unit, _)| length >= *unit && length % unit == 0)?;
    Some(format!("{}{word}", length / unit))
}

fn listed(names: &[String]) -> String {
    let quoted_names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    quoted_names.join(", ")
}

/// A YAML scalar: quoted where plain text could mean something else.
fn quoted(text: &str) -> String {
    if is_plain(text) {
        text.to_owned()
    } else {
        // A spec has `$${` where the text `${` is meant.
        serde_json::Value::from(text.replace("${", "$${")).to_string()
    }
}

/// True if YAML reads a text without quotes as it is.
fn is_plain(text: &str) -> bool {
    let is_word = matches!(
        text,
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    let mut letters = text.chars();
    let has_plain_letters =
        letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '.' | '-'));
    !is_word && has_plain_letters && text.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn find_column<'c>(facts: &'c [ColumnFacts], name: &str) -> Option<&'c ColumnFacts> {
    facts.iter().find(|column| column.name == name)
}
