//! The columns of JSON files, and their types.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, FieldRef, Fields, Schema};
use arrow::error::ArrowError;
use arrow::json::reader::infer_json_schema_from_iterator;
use forebay_model::{Fault, NameIndex, Result, TextRules, codes};
use forebay_storage::StorageClient;
use serde_json::Value;

use crate::files::list::ListedFile;
use crate::files::rows;

use super::reader::{JsonLineReader, decode, line_fault, numbers_as_text, without_listed_nulls};

/// Maximum number of files that are read for the types of columns.
pub(super) const FILES_MAX: usize = 16;

/// Number of lines that are decoded together for the types of numbers.
const LINES_TOGETHER: usize = 1024;

/// Bytes of such lines, with the last one.
const LINES_BYTES_TARGET: usize = 1 << 20;

/// The columns that the first rows have.
pub(super) fn fields(io: &StorageClient, files: &[ListedFile], rows_max: usize) -> Result<Fields> {
    let first = files.first().map_or("", |file| file.path.as_str());
    let mut sample = JsonSample::new(io, files, rows_max);
    let values = std::iter::from_fn(|| sample.next_object().transpose());
    let external = |fault: Fault| ArrowError::ExternalError(Box::new(fault));
    let values = values.map(|value| value.map(without_listed_nulls).map_err(external));
    let schema = infer_json_schema_from_iterator(values);
    let schema = schema.map_err(|error| unreadable_fault(error, &sample))?;
    if schema.fields().is_empty() {
        return Err(
            Fault::new(codes::NO_INPUT, "the files are empty: there are no columns").file(first),
        );
    }
    let possible = exact_types(schema.fields(), JsonSample::new(io, files, rows_max))?;
    let fields = schema.fields().iter().map(|field| {
        let of = column_type(field.data_type(), field.name(), &possible);
        Arc::new(field.as_ref().clone().with_data_type(of))
    });
    Ok(fields.collect())
}

fn unreadable_fault(error: ArrowError, sample: &JsonSample<'_>) -> Fault {
    match error {
        ArrowError::ExternalError(error) if error.is::<Fault>() => {
            match error.downcast::<Fault>() {
                Ok(fault) => *fault,
                Err(_) => Fault::internal("a fault is no fault"),
            }
        }
        error => sample
            .placed(Fault::new(
                codes::BAD_ROW,
                "the rows up to this one have no common types",
            ))
            .cause(error)
            .hint("declare the types under `columns`"),
    }
}

/// A type that all sinks take: fields without any value are texts, and so are empty objects. Numbers that were taken for
/// floats have the first of their possible types.
fn column_type(of: &DataType, path: &str, possible: &BTreeMap<String, Vec<DataType>>) -> DataType {
    let inside = |field: &FieldRef| {
        let of = column_type(
            field.data_type(),
            &format!("{path}.{}", field.name()),
            possible,
        );
        Arc::new(
            field
                .as_ref()
                .clone()
                .with_data_type(of)
                .with_nullable(true),
        )
    };
    match of {
        DataType::Null => DataType::Utf8,
        DataType::Struct(fields) if fields.is_empty() => DataType::Utf8,
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inside).collect()),
        DataType::List(field) => DataType::List(inside(field)),
        of if of.is_floating() => possible
            .get(path)
            .and_then(|types| types.first().cloned())
            .unwrap_or(DataType::Utf8),
        other => other.clone(),
    }
}

/// The types that hold all digits of the numbers that were taken for floats, by their paths.
fn exact_types(
    fields: &Fields,
    mut sample: JsonSample<'_>,
) -> Result<BTreeMap<String, Vec<DataType>>> {
    let mut possible = BTreeMap::new();
    let texts = |field: &FieldRef| {
        let texts = numbers_as_text(field.data_type(), &DataType::is_floating);
        (texts != *field.data_type())
            .then(|| Arc::new(field.as_ref().clone().with_data_type(texts)))
    };
    let schema = Arc::new(Schema::new(
        fields.iter().filter_map(texts).collect::<Fields>(),
    ));
    if schema.fields().is_empty() {
        return Ok(possible);
    }
    let index = NameIndex::of_fields(fields);
    while let Some((text, lines)) = sample.next_lines(LINES_TOGETHER)? {
        let batch = decode(&text, &schema, lines, false)?;
        for (field, column) in schema.fields().iter().zip(batch.columns()) {
            if let Some(position) = index.get(field.name()) {
                let of = fields[position].data_type();
                retain_exact_types(of, field.name(), column, &mut possible);
            }
        }
    }
    Ok(possible)
}

/// Drops the types that do not hold some numbers.
fn retain_exact_types(
    of: &DataType,
    path: &str,
    column: &ArrayRef,
    possible: &mut BTreeMap<String, Vec<DataType>>,
) {
    match of {
        DataType::Struct(fields) => {
            let Some(objects) = column.as_struct_opt() else {
                return;
            };
            for (field, column) in fields.iter().zip(objects.columns()) {
                let path = format!("{path}.{}", field.name());
                retain_exact_types(field.data_type(), &path, column, possible);
            }
        }
        DataType::List(field) => {
            if let Some(lists) = column.as_list_opt::<i32>() {
                let path = format!("{path}.{}", field.name());
                retain_exact_types(field.data_type(), &path, lists.values(), possible);
            }
        }
        of if of.is_floating() => {
            let Some(texts) = column.as_string_opt::<i32>() else {
                return;
            };
            let types = possible
                .entry(path.to_owned())
                .or_insert_with(|| vec![DataType::UInt64, DataType::Float64]);
            types.retain(|candidate| TextRules::inferred().all_read(texts, candidate));
        }
        _ => {}
    }
}

/// The first lines of some files.
struct JsonSample<'a> {
    io: &'a StorageClient,
    files: std::slice::Iter<'a, ListedFile>,
    open: Option<JsonLineReader>,
    place: Option<(Arc<str>, u64)>,
    rows_left: usize,
}

impl<'a> JsonSample<'a> {
    fn new(io: &'a StorageClient, files: &'a [ListedFile], rows_max: usize) -> Self {
        JsonSample {
            io,
            files: files.iter(),
            open: None,
            place: None,
            rows_left: rows_max,
        }
    }

    /// A fault of the line that was read last.
    fn placed(&self, fault: Fault) -> Fault {
        match (&self.place, &self.open) {
            (Some((_, row)), Some(open)) => open.locate(*row, fault),
            (Some((path, row)), None) => fault.file(path.as_ref()).rows([*row]),
            (None, _) => fault,
        }
    }

    fn next_object(&mut self) -> Result<Option<Value>> {
        let Some(line) = self.next_line()? else {
            return Ok(None);
        };
        match serde_json::from_slice::<Value>(&line) {
            Ok(object @ Value::Object(_)) => Ok(Some(object)),
            Ok(Value::Array(_)) => Err(self.placed(array_fault())),
            Ok(_) => {
                let fault = Fault::new(codes::BAD_ROW, "the line is not a JSON object");
                Err(self.placed(fault.hint("each line must be one JSON object")))
            }
            Err(error) => Err(self.placed(line_fault(&line, error))),
        }
    }

    /// Some lines, and their number.
    fn next_lines(&mut self, lines_max: usize) -> Result<Option<(Vec<u8>, usize)>> {
        let mut text = Vec::new();
        let mut lines = 0;
        while lines < lines_max && text.len() < LINES_BYTES_TARGET {
            let Some(line) = self.next_line()? else { break };
            text.extend_from_slice(&line);
            text.push(b'\n');
            lines += 1;
        }
        Ok((lines > 0).then_some((text, lines)))
    }

    fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        while self.rows_left > 0 {
            let Some(open) = &mut self.open else {
                let Some(file) = self.files.next() else {
                    return Ok(None);
                };
                let file = rows::open(self.io, file)?;
                let lines = JsonLineReader::open(&file, &[], 1, TextRules::inferred())?;
                self.open = Some(lines);
                continue;
            };
            self.place = Some(open.place());
            match open.line()? {
                Some(line) => {
                    self.rows_left -= 1;
                    return Ok(Some(line.to_vec()));
                }
                None => self.open = None,
            }
        }
        Ok(None)
    }
}

fn array_fault() -> Fault {
    Fault::new(
        codes::BAD_ROW,
        "the line is a JSON array, and not one object",
    )
    .hint("write its objects as lines, as `jq -c '.[]'` does")
}
