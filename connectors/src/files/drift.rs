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
    let plain = |field: &FieldRef| {
        let plain = Field::new(
            field.name(),
            logical_type(&plain_layout(field.data_type())),
            field.is_nullable(),
        );
        Arc::new(plain.with_metadata(lasting_notes(field)))
    };
    with_wide_decimals(&fields.iter().map(plain).collect())
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
        let Ok(mut known) = self.0.lock() else {
            return fields;
        };
        if let Some(same) = known.iter().find(|same| **same == fields) {
            return same.clone();
        }
        known.push(fields.clone());
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
        let known = self.distinct.iter().position(|known| *known == fields);
        let at = known.unwrap_or_else(|| {
            self.distinct.push(fields);
            self.distinct.len() - 1
        });
        self.files.push((path.to_owned(), at));
    }

    /// Refuses files in which several columns of those that `is_read` selects have one name: the
    /// choice would be ambiguous.
    pub(crate) fn refuse_duplicate_columns(&self, is_read: impl Fn(&str) -> bool) -> Result<()> {
        let twin = |fields: &Fields| {
            let names = fields.iter().map(|field| field.name().as_str());
            first_repeated(names.filter(|name| is_read(name))).map(str::to_owned)
        };
        for (at, fields) in self.distinct.iter().enumerate() {
            let Some(name) = twin(fields) else { continue };
            let file = self
                .files
                .iter()
                .find(|(_, schema)| *schema == at)
                .map_or("", |(path, _)| path.as_str());
            return Err(
                Fault::new(codes::DUPLICATE, format!("two columns are called `{name}`"))
                    .file(file)
                    .column(name)
                    .hint("rename one of them where the file is written"),
            );
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
        let found = self.differences(0, policy);
        if found.iter().any(|lines| !lines.is_empty()) {
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
            let fields = fields.iter();
            distinct.push(
                fields
                    .map(|field| replace_types(field, instant_of))
                    .collect(),
            );
        }
        FileSchemas {
            distinct,
            files: self.files.clone(),
        }
    }

    /// The columns of all files, whose differences are permitted, in their common types.
    fn merge_types(&self, first: &Fields, policy: &SchemaPolicy) -> Fields {
        let mut merged: Vec<Field> = first.iter().map(|field| field.as_ref().clone()).collect();
        let mut merged_names: HashSet<String> =
            merged.iter().map(|field| field.name().clone()).collect();
        for fields in &self.distinct[1..] {
            let index = NameIndex::of_fields(fields);
            for field in &mut merged {
                match index.get(field.name()).map(|position| &fields[position]) {
                    Some(other) => {
                        let wide = common_type(field.data_type(), other.data_type())
                            .map_or_else(|_| field.data_type().clone(), |common| common.data_type);
                        let nullable = field.is_nullable() || other.is_nullable();
                        let mut notes = field.metadata().clone();
                        // What only some files note does not hold of the column.
                        notes.retain(|key, value| other.metadata().get(key) == Some(value));
                        *field = Field::new(field.name(), wide, nullable).with_metadata(notes);
                    }
                    None => *field = field.clone().with_nullable(true),
                }
            }
            for field in fields {
                if policy.added.includes() && merged_names.insert(field.name().clone()) {
                    merged.push(field.as_ref().clone().with_nullable(true));
                }
            }
        }
        merged.into()
    }

    /// Differences of each distinct schema from one of them: (column, sentence).
    fn differences(&self, reference: usize, policy: &SchemaPolicy) -> Vec<Vec<String>> {
        let expected = &self.distinct[reference];
        let expected_names = NameIndex::of_fields(expected);
        // Types are compared with the widest so far, so that widening works in any order.
        let mut widest: Vec<DataType> = expected
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        let compare = |fields: &Fields| {
            let mut lines = Vec::new();
            let index = NameIndex::of_fields(fields);
            for (i, field) in expected.iter().enumerate() {
                let name = field.name();
                match index.get(name).map(|position| &fields[position]) {
                    None if policy.missing == MissingColumnPolicy::Fault => {
                        lines.push(format!("column `{name}` is missing"))
                    }
                    None => {}
                    Some(other) => {
                        let differs = || {
                            format!(
                                "column `{name}` is {}, expected {}",
                                type_words(other.data_type()),
                                type_words(field.data_type())
                            )
                        };
                        match common_type(&widest[i], other.data_type()) {
                            Ok(common) if policy.widening || !common.is_wider => {
                                widest[i] = common.data_type;
                            }
                            Ok(_) => lines.push(format!("{} (`widening` takes both)", differs())),
                            Err(reason) => lines.push(format!("{}: {reason}", differs())),
                        }
                        if !policy.nullable && other.is_nullable() != field.is_nullable() {
                            let may = |field: &Field| {
                                if field.is_nullable() {
                                    "may be null"
                                } else {
                                    "is never null"
                                }
                            };
                            lines.push(format!(
                                "column `{name}` {}, expected that it {}",
                                may(other),
                                may(field)
                            ));
                        }
                    }
                }
            }
            for field in fields
                .iter()
                .filter(|_| policy.added == AddedColumnPolicy::Fault)
            {
                if !expected_names.contains(field.name()) {
                    lines.push(format!(
                        "column `{}` ({}) is not expected",
                        field.name(),
                        type_label(field.data_type())
                    ));
                }
            }
            lines
        };
        self.distinct.iter().map(compare).collect()
    }

    fn drift_fault(&self, policy: &SchemaPolicy) -> Fault {
        // Compared with the most common schema, one odd file is one line, at any position.
        let count = |at: usize| {
            self.files
                .iter()
                .filter(|(_, schema)| *schema == at)
                .count()
        };
        let common = (0..self.distinct.len())
            .max_by_key(|at| (count(*at), usize::MAX - at))
            .unwrap_or(0);
        let reference = [common, 0]
            .into_iter()
            .find(|at| {
                self.differences(*at, policy)
                    .iter()
                    .any(|lines| !lines.is_empty())
            })
            .unwrap_or(0);
        let found = self.differences(reference, policy);
        let odd: Vec<_> = self
            .files
            .iter()
            .filter(|(_, at)| !found[*at].is_empty())
            .collect();
        let model = self
            .files
            .iter()
            .find(|(_, at)| *at == reference)
            .map_or("", |(path, _)| path.as_str());
        let message = format!(
            "{} of {} files differ from the schema of {model}",
            odd.len(),
            self.files.len()
        );
        let mut fault = Fault::new(codes::SCHEMA_DRIFT, message);
        if let Some((path, _)) = odd.first() {
            fault = fault.file(path);
        }
        let lines: Vec<String> = odd
            .iter()
            .flat_map(|(path, at)| found[*at].iter().map(move |line| format!("{path}: {line}")))
            .collect();
        for line in lines.iter().take(LINES_MAX) {
            fault = fault.note(line);
        }
        if lines.len() > LINES_MAX {
            fault = fault.note(format!("and {} more differences", lines.len() - LINES_MAX));
        }
        fault.hint(drift_hint(&lines))
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
    let helpful: Vec<&str> = options
        .iter()
        .filter(|(words, _)| lines.iter().any(|line| line.contains(words)))
        .map(|(_, option)| *option)
        .collect();
    if helpful.is_empty() {
        return "correct these files, read those of each kind as a source of their own, or leave the column out under \
                `columns`"
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
