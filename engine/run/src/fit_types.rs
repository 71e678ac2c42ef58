//! The types of the fit for rows that an artifact is applied to.
//!
//! The types of CSV and JSON are those of their first rows, and programs write a column of numbers
//! now as integers and now as floats. An expression such as `x / 2` means something else then.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, make_comparator};
use arrow::compute::{CastOptions, SortOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Schema};
use arrow::util::display::array_value_to_string;
use forebay_contract::{ChunkIterator, ScanRequest, Source, SourceWrapper};
use forebay_execute::SourceInput;
use forebay_model::{
    Chunk, Fault, PipelineSource, Result, Span, TextRules, codes, logical_type, plain_integers,
    type_words,
};
use forebay_storage::StorageClient;
use serde_json::{Map, Value};

use crate::serving_inputs::retyped_field;
use crate::session::Session;
use crate::text_types::exact_type;

/// Formats whose files hold no types.
pub(crate) const FORMATS_WITHOUT_TYPES: [&str; 2] = ["csv", "json"];

impl Session {
    /// The declaration of columns with which files without types are read with those of the fit;
    /// `None` if there is nothing to declare.
    pub(crate) fn types_to_declare(
        &self,
        source: &PipelineSource,
        schema: &Schema,
    ) -> Option<Map<String, Value>> {
        let has_types = !FORMATS_WITHOUT_TYPES.contains(&source.format.as_str());
        if has_types || source.declares_columns() {
            return None;
        }
        if self.fields_of_fit(source, schema).is_empty() {
            return None;
        }
        let fitted_schema = self.attempt.served_inputs.schemas.get(&source.name)?;
        let mut columns = Map::new();
        for field in schema.fields() {
            let fitted = fitted_schema.field_with_name(field.name());
            let data_type = fitted.map_or(field.data_type(), |fitted| fitted.data_type());
            let word = exact_type(&logical_type(data_type))?;
            columns.insert(field.name().clone(), Value::from(word));
        }
        Some(columns)
    }

    /// Columns of a source whose type differs from that of the fit, as they were in the fit.
    pub(crate) fn fields_of_fit(&self, source: &PipelineSource, schema: &Schema) -> Vec<Field> {
        let mut differing = Vec::new();
        let Some(fitted_schema) = self.attempt.served_inputs.schemas.get(&source.name) else {
            return differing;
        };
        for field in schema.fields() {
            let Ok(fitted) = fitted_schema.field_with_name(field.name()) else {
                continue;
            };
            if logical_type(field.data_type()) != logical_type(fitted.data_type()) {
                let data_type = logical_type(fitted.data_type());
                let is_nullable = fitted.is_nullable() || field.is_nullable();
                differing.push(Field::new(field.name(), data_type, is_nullable));
            }
        }
        differing
    }

    /// The source with its columns as types of the fit. Times and keys stay as they are: metadata
    /// about them is of the types of the files.
    pub(crate) fn with_types_of_fit(
        &self,
        source: &PipelineSource,
        input: SourceInput,
    ) -> SourceInput {
        let schema = &input.dataset.schema;
        let mut fitted = self.fields_of_fit(source, schema);
        fitted.retain(|field| {
            source.time.as_ref() != Some(field.name()) && !source.keys.contains(field.name())
        });
        if fitted.is_empty() {
            return input;
        }
        let mut fields = Vec::new();
        let mut read_fields = Vec::new();
        for field in schema.fields() {
            match fitted.iter().find(|fitted| fitted.name() == field.name()) {
                Some(fitted) => {
                    fields.push(Arc::new(retyped_field(fitted)));
                    read_fields.push(field.as_ref().clone());
                }
                None => fields.push(field.clone()),
            }
        }
        let mut dataset = Arc::unwrap_or_clone(input.dataset);
        dataset.schema = Arc::new(Schema::new(fields));
        SourceInput {
            dataset: Arc::new(dataset),
            source: Arc::new(TypesOfFit {
                inner: input.source,
                read_fields,
                fitted,
            }),
            in_time_order: input.in_time_order,
        }
    }
}

/// A source whose columns have the types of the fit.
#[derive(Debug)]
struct TypesOfFit {
    inner: Arc<dyn Source>,
    /// The converted columns, as the files have them.
    read_fields: Vec<Field>,
    /// These columns as they were in the fit.
    fitted: Vec<Field>,
}

impl SourceWrapper for TypesOfFit {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }

    fn open_span(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        let mut fields = Vec::new();
        for field in request.schema.fields() {
            match self
                .read_fields
                .iter()
                .find(|read| read.name() == field.name())
            {
                Some(read) => fields.push(Arc::new(read.clone())),
                None => fields.push(field.clone()),
            }
        }
        let inner = ScanRequest {
            schema: Arc::new(Schema::new(fields)),
            // A condition may be about a column that the files hold as another type.
            pruning: Vec::new(),
            ..request.clone()
        };
        let chunks = self.inner.open(io, span, &inner)?;
        let fitted = self.fitted.clone();
        Ok(Box::new(
            chunks.map(move |chunk| with_fitted_columns(chunk?, &fitted)),
        ))
    }
}

/// A chunk whose columns have these types.
fn with_fitted_columns(chunk: Chunk, fitted: &[Field]) -> Result<Chunk> {
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    let given_schema = chunk.batch.schema();
    for (column, field) in chunk.batch.columns().iter().zip(given_schema.fields()) {
        match fitted.iter().find(|fitted| fitted.name() == field.name()) {
            Some(fitted) => {
                let rules = TextRules::inferred();
                let values = fit_values(column, fitted, rules).map_err(|fault| {
                    let fault = fault.map_rows(|row| Some(row + chunk.first_row));
                    fault.file(chunk.file.as_ref()).hint(
                        "give values of the type that the column had in the fit, or declare or \
                         `cast` the column as the wider type and fit again",
                    )
                })?;
                fields.push(Arc::new(fitted.clone()));
                columns.push(values);
            }
            None => {
                fields.push(field.clone());
                columns.push(column.clone());
            }
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(chunk.batch.num_rows()));
    let schema = Arc::new(Schema::new(fields));
    Ok(Chunk {
        batch: RecordBatch::try_new_with_options(schema, columns, &options)?,
        ..chunk
    })
}

/// A column as another type. A value that the type does not hold is a fault, but that floats may
/// lose digits. Texts are read by the rules.
pub(crate) fn fit_values(column: &ArrayRef, field: &Field, rules: TextRules) -> Result<ArrayRef> {
    if logical_type(column.data_type()) == DataType::Utf8 {
        return read_texts(column, field, rules);
    }
    // A number is no time without a format: it may count days, seconds or others.
    if is_time_beside_number(column.data_type(), field.data_type()) {
        return Err(type_fault(column, field));
    }
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let fitted = cast_with_options(column, field.data_type(), &strict)
        .map_err(|error| type_fault(column, field).cause(error))?;
    if field.data_type().is_floating() || *field.data_type() == DataType::Utf8 {
        return Ok(fitted);
    }
    let back = cast_with_options(&fitted, column.data_type(), &strict)
        .map_err(|error| type_fault(column, field).cause(error))?;
    let values = without_negative_zeros(column);
    let compare = make_comparator(&values, &back, SortOptions::default())
        .map_err(|error| type_fault(column, field).cause(error))?;
    let changed = (0..values.len()).find(|row| compare(*row, *row) != Ordering::Equal);
    let Some(row) = changed else {
        return Ok(fitted);
    };
    let message = format!(
        "`{}` has the value {}, which {} does not hold",
        field.name(),
        array_value_to_string(column, row)?,
        type_words(field.data_type())
    );
    Err(Fault::new(codes::COLUMN_TYPE, message)
        .column(field.name())
        .rows([row as u64]))
}

/// True if one type holds times, and the other one numbers or booleans.
fn is_time_beside_number(first: &DataType, second: &DataType) -> bool {
    (first.is_temporal() && is_number_type(second))
        || (is_number_type(first) && second.is_temporal())
}

fn is_number_type(data_type: &DataType) -> bool {
    data_type.is_numeric() || *data_type == DataType::Boolean
}

fn type_fault(column: &ArrayRef, field: &Field) -> Fault {
    let message = format!(
        "`{}` is {}, not {}",
        field.name(),
        type_words(column.data_type()),
        type_words(field.data_type())
    );
    Fault::new(codes::COLUMN_TYPE, message).column(field.name())
}

/// Floats whose zeros have one sign, so that they equal the zeros that integers give.
fn without_negative_zeros(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>();
            Arc::new(values.unary::<_, Float32Type>(|value| value + 0.0))
        }
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            Arc::new(values.unary::<_, Float64Type>(|value| value + 0.0))
        }
        _ => column.clone(),
    }
}

/// Texts as values of a column's type.
fn read_texts(column: &ArrayRef, field: &Field, rules: TextRules) -> Result<ArrayRef> {
    let texts = arrow::compute::cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let whole = field
        .data_type()
        .is_integer()
        .then(|| plain_integers(texts));
    let texts = whole.as_ref().unwrap_or(texts);
    rules.read_all(texts, field.data_type()).map_err(|row| {
        let message = format!(
            "`{}`: {}",
            field.name(),
            rules.problem(texts.value(row), field.data_type())
        );
        Fault::new(codes::COLUMN_TYPE, message).column(field.name())
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, Float64Array, Int64Array, StringArray};
    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn values_that_a_type_does_not_hold_are_refused() {
        let floats = |values: Vec<f64>| -> ArrayRef { Arc::new(Float64Array::from(values)) };
        let micros = |values: Vec<i64>| -> ArrayRef {
            Arc::new(arrow::array::TimestampMicrosecondArray::from(values))
        };
        let cases: [(ArrayRef, DataType, Option<&str>); 13] = [
            (
                Arc::new(Int64Array::from(vec![19_783])),
                DataType::Date32,
                Some("int64, not"),
            ),
            (
                Arc::new(Date32Array::from(vec![19_783])),
                DataType::Int32,
                Some("not int32"),
            ),
            (floats(vec![1.0, -0.0]), DataType::Int64, None),
            (floats(vec![1.0, 2.7]), DataType::Int64, Some("2.7")),
            (floats(vec![f64::NAN]), DataType::Int64, Some("not")),
            (floats(vec![0.1]), DataType::Float32, None),
            (Arc::new(Int64Array::from(vec![3])), DataType::Utf8, None),
            (
                Arc::new(Int64Array::from(vec![2])),
                DataType::Boolean,
                Some("2"),
            ),
            (
                Arc::new(StringArray::from(vec!["2.7"])),
                DataType::Int64,
                Some("2.7"),
            ),
            (
                Arc::new(StringArray::from(vec!["2.0"])),
                DataType::Int64,
                None,
            ),
            (
                Arc::new(StringArray::from(vec!["007"])),
                DataType::Int64,
                Some("zeros"),
            ),
            (micros(vec![86_400_000_000]), DataType::Date32, None),
            (
                micros(vec![86_400_000_001]),
                DataType::Date32,
                Some("1970-01-02"),
            ),
        ];
        for (column, data_type, refused) in cases {
            let field = Field::new("x", data_type.clone(), true);
            match (fit_values(&column, &field, TextRules::inferred()), refused) {
                (Ok(values), None) => assert_eq!(*values.data_type(), data_type),
                (Err(fault), Some(word)) => {
                    assert!(fault.message().contains(word), "{}", fault.message());
                }
                (result, _) => panic!("{column:?} as {data_type}: {result:?}"),
            }
        }
        let dates: ArrayRef = Arc::new(Date32Array::from(vec![1]));
        let field = Field::new("x", DataType::Timestamp(TimeUnit::Microsecond, None), true);
        assert!(fit_values(&dates, &field, TextRules::inferred()).is_ok());
    }
}
