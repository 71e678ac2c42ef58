//! Unifies the schemas of many files.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use forebay_model::{
    Fault, NameIndex, Result, codes, first_repeated, lasting_notes, logical_type, type_label,
    type_words,
};

use super::common_type::{ONE_HAS_A_ZONE, common_type};
use super::nested_types::{plain_layout, replace_types, with_wide_decimals};
use super::policy::{
    AddedColumnPolicy, LocalTimePolicy, MissingColumnPolicy, SchemaPolicy, TimeUnitPolicy,
};

/// Lines of a fault's table at most.
const LINES_MAX: usize = 1000;

/// Schema in logical types and without metadata, by which files are compared.
pub(crate) fn logical_fields(fields: &Fields) -> Fields {
    with_wide_decimals(&fields.iter().map(logical_field).collect())
}

fn logical_field(field: &FieldRef) -> FieldRef {
    let data_type = logical_type(&plain_layout(field.data_type()));
    let plain = Field::new(field.name(), data_type, field.is_nullable());
    Arc::new(plain.with_metadata(lasting_notes(field)))
}

/// Fields whose times in nanoseconds, at any depth, are in microseconds.
fn in_microseconds(fields: &Fields) -> Fields {
    let changed = fields
        .iter()
        .map(|field| replace_types(field, microseconds_of));
    changed.collect()
}

fn microseconds_of(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
        }
        _ => None,
    }
}

fn instant_of(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Timestamp(unit, None) => Some(DataType::Timestamp(*unit, Some("UTC".into()))),
        _ => None,
    }
}

/// Keeps one copy of equal schemas: a hundred thousand files mostly have the same.
#[derive(Debug, Default)]
pub(crate) struct SchemaInterner(Mutex<Vec<Fields>>);

impl SchemaInterner {
    /// The copy that is kept of this schema.
    pub(crate) fn one(&self, fields: Fields) -> Fields {
        let Ok(mut schemas) = self.0.lock() else {
            return fields;
        };
        if let Some(same) = schemas.iter().find(|same| **same == fields) {
            return same.clone();
        }
        schemas.push(fields.clone());
        fields
    }
}

/// Distinct schemas, and for each file the one that it has.
#[derive(Debug, Default)]
pub(crate) struct FileSchemas {
    distinct: Vec<Fields>,
    files: Vec<(String, usize)>,
}

impl FileSchemas {
    /// Adds the next file, with the columns of it that are read.
    pub(crate) fn add(&mut self, path: &str, fields: Fields) {
        let position = self.distinct.iter().position(|schema| *schema == fields);
        let schema = match position {
            Some(schema) => schema,
            None => {
                self.distinct.push(fields);
                self.distinct.len() - 1
            }
        };
        self.files.push((path.to_owned(), schema));
    }

    /// Refuses files in which several columns of those that `is_read` selects have one name: the
    /// choice would be ambiguous.
    pub(crate) fn refuse_duplicate_columns(&self, is_read: impl Fn(&str) -> bool) -> Result<()> {
        for (schema, fields) in self.distinct.iter().enumerate() {
            let names = fields.iter().map(|field| field.name().as_str());
            let Some(name) = first_repeated(names.filter(|name| is_read(name))) else {
                continue;
            };
            let message = format!("two columns are called `{name}`");
            let fault = Fault::new(codes::DUPLICATE, message)
                .file(self.first_path_of(schema))
                .column(name);
            return Err(fault.hint("rename one of them where the file is written"));
        }
        Ok(())
    }

    /// The schema that all files are read as. One fault names every file that differs beyond
    /// the policy.
    pub(crate) fn merge(&self, policy: &SchemaPolicy) -> Result<Fields> {
        if policy.local_times == LocalTimePolicy::Utc {
            let policy = SchemaPolicy {
                local_times: LocalTimePolicy::Keep,
                ..policy.clone()
            };
            return self.with_instants().merge(&policy);
        }
        let Some(first) = self.distinct.first() else {
            return Ok(Fields::empty());
        };
        let differences = self.differences(0, policy);
        if differences.iter().any(|lines| !lines.is_empty()) {
            return Err(self.drift_fault(policy));
        }
        let merged = self.merge_types(first, policy);
        Ok(match policy.times {
            TimeUnitPolicy::Finest => merged,
            TimeUnitPolicy::Microseconds => in_microseconds(&merged),
        })
    }

    /// Its schemas, with times without a zone as instants in UTC.
    fn with_instants(&self) -> FileSchemas {
        let mut distinct = Vec::with_capacity(self.distinct.len());
        for fields in &self.distinct {
            let instants = fields.iter().map(|field| replace_types(field, instant_of));
            distinct.push(instants.collect());
        }
        FileSchemas {
            distinct,
            files: self.files.clone(),
        }
    }

    /// The columns of all files, whose differences are permitted, in their common types.
    fn merge_types(&self, first: &Fields, policy: &SchemaPolicy) -> Fields {
        let mut merged: Vec<Field> = Vec::with_capacity(first.len());
        let mut merged_names: HashSet<String> = HashSet::new();
        for field in first {
            merged.push(field.as_ref().clone());
            merged_names.insert(field.name().clone());
        }
        for fields in &self.distinct[1..] {
            let index = NameIndex::of_fields(fields);
            for field in &mut merged {
                *field = match index.get(field.name()) {
                    Some(position) => common_field(field, &fields[position]),
                    None => field.clone().with_nullable(true),
                };
            }
            for field in fields {
                if policy.added.includes() && merged_names.insert(field.name().clone()) {
                    merged.push(field.as_ref().clone().with_nullable(true));
                }
            }
        }
        merged.into()
    }

    /// Differences of each distinct schema from one of them, as sentences.
    fn differences(&self, reference: usize, policy: &SchemaPolicy) -> Vec<Vec<String>> {
        let mut comparison = SchemaComparison::new(&self.distinct[reference], policy);
        let mut differences = Vec::with_capacity(self.distinct.len());
        for fields in &self.distinct {
            differences.push(comparison.compare(fields));
        }
        differences
    }

    fn drift_fault(&self, policy: &SchemaPolicy) -> Fault {
        let reference = self.reference(policy);
        let differences = self.differences(reference, policy);
        let mut first_path = None;
        let mut odd_files = 0_usize;
        let mut lines = Vec::new();
        for (path, schema) in &self.files {
            let sentences = &differences[*schema];
            if sentences.is_empty() {
                continue;
            }
            odd_files += 1;
            if first_path.is_none() {
                first_path = Some(path);
            }
            for sentence in sentences {
                lines.push(format!("{path}: {sentence}"));
            }
        }
        let message = format!(
            "{odd_files} of {} files differ from the schema of {}",
            self.files.len(),
            self.first_path_of(reference)
        );
        let mut fault = Fault::new(codes::SCHEMA_DRIFT, message);
        if let Some(path) = first_path {
            fault = fault.file(path);
        }
        for line in lines.iter().take(LINES_MAX) {
            fault = fault.note(line);
        }
        if lines.len() > LINES_MAX {
            fault = fault.note(format!("and {} more differences", lines.len() - LINES_MAX));
        }
        fault.hint(drift_hint(&lines))
    }

    /// The schema that a fault compares others with. With the most common one, one odd file is one
    /// line, at any position. The first is taken where no schema differs from the most common one.
    fn reference(&self, policy: &SchemaPolicy) -> usize {
        let most_common = self.most_common();
        let differences = self.differences(most_common, policy);
        if differences.iter().any(|lines| !lines.is_empty()) {
            most_common
        } else {
            0
        }
    }

    /// The schema of most files; of several, the first.
    fn most_common(&self) -> usize {
        let mut counts = vec![0_usize; self.distinct.len()];
        for (_, schema) in &self.files {
            counts[*schema] += 1;
        }
        let mut most_common = 0;
        for (schema, count) in counts.iter().enumerate() {
            if *count > counts[most_common] {
                most_common = schema;
            }
        }
        most_common
    }

    /// The first file with a schema.
    fn first_path_of(&self, schema: usize) -> &str {
        for (path, file_schema) in &self.files {
            if *file_schema == schema {
                return path;
            }
        }
        ""
    }
}

/// A column that holds the values of two, whose differences are permitted.
fn common_field(field: &Field, other: &Field) -> Field {
    let data_type = match common_type(field.data_type(), other.data_type()) {
        Ok(common) => common.data_type,
        Err(_) => field.data_type().clone(),
    };
    let is_nullable = field.is_nullable() || other.is_nullable();
    let mut notes = field.metadata().clone();
    // A note of some files only does not hold of the column.
    notes.retain(|key, value| other.metadata().get(key) == Some(value));
    Field::new(field.name(), data_type, is_nullable).with_metadata(notes)
}

/// Comparison of schemas with an expected one.
struct SchemaComparison<'a> {
    expected: &'a Fields,
    expected_names: NameIndex<'a>,
    policy: &'a SchemaPolicy,
    /// The widest type so far of each expected column, so that widening works in any order.
    widest: Vec<DataType>,
}

impl<'a> SchemaComparison<'a> {
    fn new(expected: &'a Fields, policy: &'a SchemaPolicy) -> SchemaComparison<'a> {
        let types = expected.iter().map(|field| field.data_type().clone());
        SchemaComparison {
            expected,
            expected_names: NameIndex::of_fields(expected),
            policy,
            widest: types.collect(),
        }
    }

    /// Differences that the policy does not permit, as sentences.
    fn compare(&mut self, fields: &Fields) -> Vec<String> {
        let mut lines = Vec::new();
        let index = NameIndex::of_fields(fields);
        let expected = self.expected;
        for (column, field) in expected.iter().enumerate() {
            if let Some(position) = index.get(field.name()) {
                self.compare_column(column, &fields[position], &mut lines);
            } else if self.policy.missing == MissingColumnPolicy::Fault {
                lines.push(format!("column `{}` is missing", field.name()));
            }
        }
        if self.policy.added != AddedColumnPolicy::Fault {
            return lines;
        }
        for field in fields {
            if !self.expected_names.contains(field.name()) {
                lines.push(format!(
                    "column `{}` ({}) is not expected",
                    field.name(),
                    type_label(field.data_type())
                ));
            }
        }
        lines
    }

    fn compare_column(&mut self, column: usize, other: &Field, lines: &mut Vec<String>) {
        let expected = self.expected;
        let field = &expected[column];
        match common_type(&self.widest[column], other.data_type()) {
            Ok(common) if self.policy.widening || !common.is_wider => {
                self.widest[column] = common.data_type;
            }
            Ok(_) => {
                let difference = type_difference(field, other);
                lines.push(format!("{difference} (`widening` takes both)"));
            }
            Err(reason) => lines.push(format!("{}: {reason}", type_difference(field, other))),
        }
        if !self.policy.nullable && other.is_nullable() != field.is_nullable() {
            lines.push(format!(
                "column `{}` {}, expected that it {}",
                field.name(),
                null_words(other),
                null_words(field)
            ));
        }
    }
}

fn type_difference(expected: &Field, other: &Field) -> String {
    format!(
        "column `{}` is {}, expected {}",
        expected.name(),
        type_words(other.data_type()),
        type_words(expected.data_type())
    )
}

fn null_words(field: &Field) -> &'static str {
    if field.is_nullable() {
        "may be null"
    } else {
        "is never null"
    }
}

/// The options that take the differences, as far as there are such options.
fn drift_hint(lines: &[String]) -> String {
    let options = [
        ("(`widening` takes both)", "`schema: { widening: true }`"),
        (
            ONE_HAS_A_ZONE,
            "`schema: { local_times: utc }`, where times without a zone are those of UTC",
        ),
        ("` is missing", "`missing`"),
        (") is not expected", "`added`"),
    ];
    let mut helpful = Vec::new();
    for (words, option) in options {
        if lines.iter().any(|line| line.contains(words)) {
            helpful.push(option);
        }
    }
    if helpful.is_empty() {
        return "correct these files, read those of each kind as a source of their own, or leave \
                the column out under `columns`"
            .to_owned();
    }
    format!(
        "correct these files, or state at the source which differences are fine: {}",
        helpful.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use DataType::*;

    #[test]
    fn every_file_that_differs_is_listed() {
        let fields = |data_type: DataType| Fields::from(vec![Field::new("x", data_type, true)]);
        let mut schemas = FileSchemas::default();
        schemas.add("a", fields(Utf8));
        schemas.add("b", fields(Int64));
        schemas.add("c", fields(Int64));
        schemas.add("d", fields(Int32));
        let fault = schemas.merge(&SchemaPolicy::default()).unwrap_err();
        assert_eq!(
            fault.notes(),
            [
                "a: column `x` is a string, expected int64: they are different things",
                "d: column `x` is int32, expected int64 (`widening` takes both)"
            ]
        );
        let mut schemas = FileSchemas::default();
        schemas.add("c", fields(Int64));
        schemas.add("d", fields(Int32));
        let wide = schemas
            .merge(&SchemaPolicy {
                widening: true,
                ..SchemaPolicy::default()
            })
            .unwrap();
        assert_eq!(wide[0].data_type(), &Int64);
    }
}
