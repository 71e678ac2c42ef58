//! Writing JSON lines.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, ListArray, OffsetSizeTrait,
    PrimitiveArray, RecordBatch, StructArray,
};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, FieldRef, Float32Type, Float64Type, Schema, SchemaRef,
};
use arrow::error::ArrowError;
use arrow::json::writer::{LineDelimited, NullableEncoder, WriterBuilder};
use arrow::json::{Encoder, EncoderFactory, EncoderOptions};
use forebay_contract::{EncodedPiece, FileLayout, FileWriter, Sink, SinkFormat};
use forebay_model::{Fault, RECORD_BYTES_MAX, Result};
use serde::Serialize;

use crate::files::packed::TextCompression;
use crate::files::readable::{
    has_text_form, no_form_fault, readable_column, record_too_long_fault,
};

use super::config::JsonSink;

/// Digits that a double always holds.
const EXACT_DIGITS: u8 = 15;

/// The configured sink.
#[derive(Debug)]
pub(super) struct JsonEncoder {
    config: JsonSink,
}

impl SinkFormat for JsonSink {
    fn sink(self) -> Arc<dyn Sink> {
        Arc::new(JsonEncoder::new(self))
    }
}

impl JsonEncoder {
    pub(super) fn new(config: JsonSink) -> Self {
        JsonEncoder { config }
    }
}

impl Sink for JsonEncoder {
    fn path(&self) -> &str {
        &self.config.path
    }

    fn extension(&self) -> &'static str {
        match self.config.compression {
            TextCompression::None => "jsonl",
            TextCompression::Gzip => "jsonl.gz",
            TextCompression::Zstd => "jsonl.zst",
        }
    }

    fn layout(&self) -> FileLayout {
        FileLayout {
            partition_by: self.config.partition_by.clone(),
            sort_by: self.config.sort_by.clone(),
            file_bytes_target: self.config.file_bytes_target,
            group_rows_max: self.config.group_rows_max,
            is_plain: true,
        }
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        for field in schema.fields() {
            if let Some(of) = formless(field.data_type()) {
                return Err(no_form_fault(field.name(), of, "JSON"));
            }
        }
        Ok(())
    }

    fn encode_piece(
        &self,
        schema: &SchemaRef,
        batches: &[RecordBatch],
        _: usize,
    ) -> Result<EncodedPiece> {
        self.check_schema(schema)?;
        // A field that is left out of a row would be one that readers do not know.
        let mut writer = WriterBuilder::new()
            .with_explicit_nulls(true)
            .with_encoder_factory(Arc::new(WordsForNoNumbers))
            .build::<_, LineDelimited>(Vec::new());
        for batch in batches {
            writer
                .write(&json_batch(batch)?)
                .map_err(|error| Fault::internal("rows cannot be written as JSON").cause(error))?;
        }
        let text = writer.into_inner();
        check_line_lengths(&text)?;
        self.config.compression.encode(text)
    }

    fn open_writer(
        &self,
        schema: &SchemaRef,
        out: Box<dyn Write + Send>,
    ) -> Result<Box<dyn FileWriter>> {
        self.check_schema(schema)?;
        self.config.compression.open_writer(out, Vec::new())
    }
}

/// The part of a type that has no form in JSON.
fn formless(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => formless(item.data_type()),
        DataType::Struct(fields) if !fields.is_empty() => {
            fields.iter().find_map(|field| formless(field.data_type()))
        }
        other => (!has_text_form(other)).then_some(other),
    }
}

fn check_line_lengths(text: &[u8]) -> Result<()> {
    if text.len() < RECORD_BYTES_MAX {
        return Ok(());
    }
    let mut lines = text.split(|byte| *byte == b'\n');
    match lines.find(|line| line.len() + 1 > RECORD_BYTES_MAX) {
        Some(line) => Err(record_too_long_fault(line.len())),
        None => Ok(()),
    }
}

/// Rows in the types that the writer writes exactly.
fn json_batch(batch: &RecordBatch) -> Result<RecordBatch> {
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let column = json_column(column).map_err(|fault| fault.column(field.name()))?;
        fields.push(Field::new(field.name(), column.data_type().clone(), true));
        columns.push(column);
    }
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

/// A column in a type that the writer writes exactly, at all depths.
fn json_column(column: &ArrayRef) -> Result<ArrayRef> {
    match column.data_type() {
        DataType::List(_) => json_lists(column.as_list::<i32>()),
        DataType::LargeList(_) => json_lists(column.as_list::<i64>()),
        DataType::FixedSizeList(_, width) => {
            let lists = column.as_fixed_size_list();
            let values = json_column(lists.values())?;
            let item = item_field(&values);
            Ok(Arc::new(FixedSizeListArray::try_new_with_length(
                item,
                *width,
                values,
                lists.nulls().cloned(),
                lists.len(),
            )?))
        }
        DataType::Map(..) => {
            let maps = column.as_map();
            let entries: ArrayRef = Arc::new(maps.entries().clone());
            let entries = json_column(&entries)?;
            Ok(Arc::new(ListArray::try_new(
                item_field(&entries),
                maps.offsets().clone(),
                entries,
                maps.nulls().cloned(),
            )?))
        }
        DataType::Struct(_) => {
            let objects = column.as_struct();
            let values = objects
                .columns()
                .iter()
                .map(json_column)
                .collect::<Result<Vec<_>>>()?;
            let fields =
                objects.fields().iter().zip(&values).map(|(field, values)| {
                    Field::new(field.name(), values.data_type().clone(), true)
                });
            Ok(Arc::new(StructArray::try_new(
                fields.collect(),
                values,
                objects.nulls().cloned(),
            )?))
        }
        // Numbers of more digits are rounded by most readers, also by ours where no type is declared. Of a negative scale,
        // the writer gives zero several digits.
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale)
            if *precision <= EXACT_DIGITS && *scale >= 0 =>
        {
            readable_column(column)?;
            Ok(column.clone())
        }
        _ => readable_column(column),
    }
}

fn json_lists<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Result<ArrayRef> {
    let values = json_column(lists.values())?;
    Ok(Arc::new(GenericListArray::<O>::try_new(
        item_field(&values),
        lists.offsets().clone(),
        values,
        lists.nulls().cloned(),
    )?))
}

fn item_field(values: &ArrayRef) -> FieldRef {
    Arc::new(Field::new_list_field(values.data_type().clone(), true))
}

/// Writes floats that are no numbers as words; Arrow's encoders would make them null.
#[derive(Debug)]
struct WordsForNoNumbers;

impl EncoderFactory for WordsForNoNumbers {
    fn make_default_encoder<'a>(
        &self,
        _: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        // Also where all are numbers: how rows were divided must not show in the forms of their numbers.
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::Float32 => Box::new(FloatEncoder(array.as_primitive::<Float32Type>())),
            DataType::Float64 => Box::new(FloatEncoder(array.as_primitive::<Float64Type>())),
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

struct FloatEncoder<'a, T: ArrowPrimitiveType>(&'a PrimitiveArray<T>);

impl<T: ArrowPrimitiveType> Encoder for FloatEncoder<'_, T>
where
    T::Native: Into<f64> + Serialize,
{
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let float = self.0.value(row);
        let value: f64 = float.into();
        if value.is_nan() {
            out.extend_from_slice(b"\"NaN\"");
        } else if value == f64::INFINITY {
            out.extend_from_slice(b"\"Infinity\"");
        } else if value == f64::NEG_INFINITY {
            out.extend_from_slice(b"\"-Infinity\"");
        } else {
            // The shortest digits that tell all bits; writing to memory does not fail.
            let _ = serde_json::to_writer(out, &float);
        }
    }
}
