//! Writing Parquet.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, FieldRef, Fields, Schema,
    SchemaRef, TimeUnit,
};
use arrow::util::display::array_value_to_string;
use forebay_contract::{EncodedBatch, EncodedPiece, FileLayout, FileWriter, Sink, SinkFormat};
use forebay_model::{Fault, Result, codes, logical_type, type_words};
use parquet::arrow::arrow_writer::{ArrowRowGroupWriterFactory, compute_leaves};
use parquet::arrow::{ArrowSchemaConverter, add_encoded_arrow_schema_to_metadata};
use parquet::basic::{self, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, SchemaDescriptor};

use super::annotations::{annotated, without_annotations};
use super::checksums::{FooterChecksumWriter, GeneralPages, footer_checksum_pair};
use super::config::{ParquetCompression, ParquetSink};
use super::deltas::{AnyDeltaColumn, delta_column};
use super::intervals::is_whole_interval;
use super::pages::EncodedPages;
use super::{numbers, words};
use crate::files::nested_types::{find_type, is_union, plain_layout, replace_types};

/// The configured sink.
#[derive(Debug)]
pub struct ParquetEncoder {
    config: ParquetSink,
}

impl SinkFormat for ParquetSink {
    fn sink(self) -> Arc<dyn Sink> {
        Arc::new(ParquetEncoder::new(self))
    }
}

impl ParquetEncoder {
    /// A sink of this configuration.
    pub fn new(config: ParquetSink) -> Self {
        ParquetEncoder { config }
    }

    /// The types that files have in the place of others.
    fn stored_types(&self) -> TypeReplacement {
        if self.config.widens_decimals {
            shown_type
        } else if self.config.keeps_seconds {
            in_days
        } else {
            stored_type
        }
    }

    fn properties(&self, schema: &Schema) -> WriterProperties {
        let builder = WriterProperties::builder()
            .set_compression(self.compression())
            .set_max_row_group_row_count(Some(self.config.group_rows_max))
            .set_dictionary_enabled(false);
        let builder = schema.fields().iter().fold(builder, |builder, field| {
            stored_columns(field, vec![field.name().clone()])
                .into_iter()
                .fold(builder, |builder, (path, data_type)| {
                    choose_encoding(builder, ColumnPath::new(path), &data_type)
                })
        });
        let mut properties = builder.build();
        let mut noted = without_annotations(schema);
        if !self.config.keeps_seconds {
            // Readers of Arrow find a zone only beside the unit of the file.
            noted = with_types(&noted, in_milliseconds);
        }
        if self.config.widens_decimals {
            noted = with_types(&noted, in_all_digits);
        }
        add_encoded_arrow_schema_to_metadata(&noted, &mut properties);
        properties
    }
}

/// Paths of the stored columns of a field that is no list or map; those keep the defaults.
fn stored_columns(field: &Field, path: Vec<String>) -> Vec<(Vec<String>, DataType)> {
    match field.data_type() {
        DataType::Struct(fields) => fields
            .iter()
            .flat_map(|field| {
                stored_columns(
                    field,
                    path.iter().cloned().chain([field.name().clone()]).collect(),
                )
            })
            .collect(),
        other => vec![(path, other.clone())],
    }
}

/// Dictionaries are for strings: there readers gain by them, and the writer falls back to plain
/// pages when a dictionary grows too large. Whole numbers are packed as differences: next to a
/// dictionary 1.3 to 2 times as fast to write, mostly no larger and about as fast to read (except
/// where values hardly ever change); next to plain pages under Snappy about half as large or less,
/// and twice as fast to read. Floats stay plain where they do not repeat ([`numbers`]).
/// `examples/encodings.rs` measures these.
fn choose_encoding(
    builder: WriterPropertiesBuilder,
    path: ColumnPath,
    data_type: &DataType,
) -> WriterPropertiesBuilder {
    use DataType::*;
    match data_type {
        Utf8 | LargeUtf8 | Utf8View | Dictionary(..) => {
            builder.set_column_dictionary_enabled(path, true)
        }
        of if of.is_integer() => builder.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
        Date32 | Time32(_) | Time64(_) | Timestamp(..) => {
            builder.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
        }
        _ => builder,
    }
}

/// A function that gives another type for some types.
type TypeReplacement = fn(&DataType) -> Option<DataType>;

/// A schema with other types, at any depth.
fn with_types(schema: &Schema, replacement: TypeReplacement) -> Schema {
    let fields = schema.fields().iter();
    let replaced = fields.map(|field| replace_types(field, replacement));
    Schema::new(replaced.collect::<Fields>())
}

/// The type that files have in the place of one that Parquet does not know: it has no seconds, and no dates in
/// milliseconds, and other programs would read these as bare integers.
fn stored_type(data_type: &DataType) -> Option<DataType> {
    in_days(data_type).or_else(|| in_milliseconds(data_type))
}

/// The type of days for a date in milliseconds. Readers of Arrow find its own type in the file's metadata.
fn in_days(data_type: &DataType) -> Option<DataType> {
    (*data_type == DataType::Date64).then_some(DataType::Date32)
}

/// The type that files of shown rows have in the place of one that Parquet does not know.
fn shown_type(data_type: &DataType) -> Option<DataType> {
    in_days(data_type).or_else(|| in_all_digits(data_type))
}

/// The decimal of scale 0 that holds all digits of a decimal of a negative scale, where there is one.
fn in_all_digits(data_type: &DataType) -> Option<DataType> {
    let (DataType::Decimal32(digits, scale)
    | DataType::Decimal64(digits, scale)
    | DataType::Decimal128(digits, scale)
    | DataType::Decimal256(digits, scale)) = data_type
    else {
        return None;
    };
    if *scale >= 0 {
        return None;
    }
    let all_digits = digits.checked_add(scale.unsigned_abs())?;
    if all_digits <= DECIMAL128_MAX_PRECISION {
        return Some(DataType::Decimal128(all_digits, 0));
    }
    let is_wide = all_digits <= DECIMAL256_MAX_PRECISION;
    is_wide.then_some(DataType::Decimal256(all_digits, 0))
}

/// A type of seconds in milliseconds.
fn in_milliseconds(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Timestamp(TimeUnit::Second, zone) => {
            Some(DataType::Timestamp(TimeUnit::Millisecond, zone.clone()))
        }
        DataType::Time32(TimeUnit::Second) => Some(DataType::Time32(TimeUnit::Millisecond)),
        _ => None,
    }
}

/// The columns of a file, with the logical types that its schema notes.
fn stored_columns_of(
    schema: &Schema,
    replacement: TypeReplacement,
) -> Result<SchemaDescriptor, ParquetError> {
    // The converter ends the program at unions, and takes lengths that the encoder does not.
    for field in schema.fields() {
        if let Some(part) = find_type(field.data_type(), is_unheld) {
            return Err(ParquetError::NYI(format!("columns of {part}")));
        }
    }
    let columns = ArrowSchemaConverter::new().convert(&with_types(schema, replacement))?;
    annotated(columns, schema)
}

/// True for types that Parquet has no columns for.
fn is_unheld(data_type: &DataType) -> bool {
    is_union(data_type) || is_whole_interval(data_type)
}

/// Refuses a column of a type that files cannot have.
fn check_column(field: &FieldRef, replacement: TypeReplacement) -> Result<()> {
    match stored_columns_of(&Schema::new(vec![field.clone()]), replacement) {
        Ok(_) => Ok(()),
        Err(error) => Err(type_fault(error, field)),
    }
}

/// An array in the type that its values are stored in, mostly as it is.
fn to_stored_type(array: &ArrayRef, replacement: TypeReplacement) -> Result<ArrayRef> {
    let plain = plain_layout(array.data_type());
    let field: FieldRef = Arc::new(Field::new("", plain.clone(), true));
    let stored_field = replace_types(&field, replacement);
    let is_converted = *stored_field.data_type() != plain;
    let is_keyed = matches!(array.data_type(), DataType::Dictionary(..));
    if plain != *array.data_type() && (is_converted || !is_keyed) {
        // Runs, views of lists, and dictionaries inside of other types.
        return to_stored_type(&cast(array, &plain)?, replacement);
    }
    if !is_converted {
        return Ok(array.clone());
    }
    let stored = cast(array, stored_field.data_type())?;
    // A value that the stored type cannot hold comes back as null or as another one.
    let back = cast(&stored, array.data_type())?;
    if back.as_ref() == array.as_ref() {
        return Ok(stored);
    }
    let changed = (0..array.len()).find(|row| back.slice(*row, 1) != array.slice(*row, 1));
    Err(unstored_fault(array, changed.unwrap_or(0)))
}

/// Views of texts or bytes without the keys of their dictionary, with which the general writer ends the program.
fn without_keyed_views(array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Dictionary(_, values)
            if matches!(values.as_ref(), DataType::Utf8View | DataType::BinaryView) =>
        {
            Ok(cast(array, values)?)
        }
        _ => Ok(array.clone()),
    }
}

/// The fault for a value that the type in which it would be stored cannot hold.
fn unstored_fault(array: &ArrayRef, row: usize) -> Fault {
    let value = array_value_to_string(array, row);
    let value = value.unwrap_or_else(|_| "beyond the calendar".to_owned());
    let message = format!(
        "a value of type {} cannot be stored as Parquet has it, in whole days or milliseconds: \
         {value}",
        array.data_type()
    );
    Fault::new(codes::BAD_ROW, message).hint("cast the column to another type before it is written")
}

/// The schema that all rows of a file are written in: logical types, without schema metadata.
fn logical_schema(schema: &SchemaRef) -> SchemaRef {
    let plain = |field: &FieldRef| {
        let plain = Field::new(
            field.name(),
            logical_type(&plain_layout(field.data_type())),
            field.is_nullable(),
        );
        plain.with_metadata(field.metadata().clone())
    };
    Arc::new(Schema::new(
        schema.fields().iter().map(plain).collect::<Fields>(),
    ))
}

/// The fault for a column of a type that files cannot have.
fn type_fault(error: ParquetError, field: &Field) -> Fault {
    let message = format!(
        "`{}` is {}, which Parquet cannot hold",
        field.name(),
        type_words(field.data_type())
    );
    Fault::new(codes::UNSUPPORTED, message)
        .column(field.name())
        .cause(error)
        .hint("cast the column to another type, or leave it out")
}

pub(super) fn write_fault(error: ParquetError) -> Fault {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(error) => Fault::disk("the file cannot be written", *error),
            Err(cause) => Fault::new(codes::STORAGE, "the file cannot be written").cause(cause),
        },
        ParquetError::NYI(feature) => Fault::new(
            codes::UNSUPPORTED,
            format!("Parquet cannot hold this: {feature}"),
        ),
        other => Fault::internal("rows cannot be written as Parquet").cause(other),
    }
}

impl Sink for ParquetEncoder {
    fn path(&self) -> &str {
        &self.config.path
    }

    fn extension(&self) -> &'static str {
        "parquet"
    }

    fn layout(&self) -> FileLayout {
        FileLayout {
            partition_by: self.config.partition_by.clone(),
            sort_by: self.config.sort_by.clone(),
            file_bytes_target: self.config.file_bytes_target,
            group_rows_max: self.config.group_rows_max,
            is_plain: false,
        }
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        let replacement = self.stored_types();
        let mut fields = schema.fields().iter();
        fields.try_for_each(|field| check_column(field, replacement))
    }

    /// Each column is one; where there are none, nothing is.
    fn pieces(&self, schema: &SchemaRef) -> usize {
        schema.fields().len().max(1)
    }

    fn encode_piece(
        &self,
        schema: &SchemaRef,
        batches: &[RecordBatch],
        piece: usize,
    ) -> Result<EncodedPiece> {
        if schema.fields().is_empty() {
            return Ok(ColumnChunks::piece(Vec::new()));
        }
        let logical = logical_schema(&Arc::new(schema.project(&[piece])?));
        let schema = Arc::new(with_types(&logical, self.stored_types()));
        let field = &schema.fields()[0];
        // The types of gathered rows are known at the first batch.
        check_column(field, self.stored_types())?;
        let arrays = batches
            .iter()
            .map(|batch| to_stored_type(batch.column(piece), self.stored_types()));
        let arrays = arrays
            .collect::<Result<Vec<_>>>()
            .map_err(|fault| fault.column(field.name()))?;
        let chunks = match self
            .encode_compact(&schema, arrays.iter())
            .map_err(write_fault)?
        {
            Some(pages) => vec![pages],
            None => self
                .encode_general(&schema, arrays.iter())
                .map_err(|fault| fault.column(field.name()))?,
        };
        Ok(ColumnChunks::piece(chunks))
    }

    fn open_writer(
        &self,
        schema: &SchemaRef,
        out: Box<dyn Write + Send>,
    ) -> Result<Box<dyn FileWriter>> {
        Ok(Box::new(ParquetFileWriter {
            writer: self.file_writer(&logical_schema(schema), out)?,
        }))
    }
}

impl ParquetEncoder {
    /// Encodes the column of a schema where a dictionary pays, or as differences; `None` is for the general writer.
    fn encode_compact<'a>(
        &self,
        schema: &SchemaRef,
        arrays: impl Iterator<Item = &'a ArrayRef> + Clone,
    ) -> Result<Option<EncodedPages>, ParquetError> {
        let stored = stored_columns_of(schema, self.stored_types())?;
        let compression = self.compression();
        if stored.num_columns() != 1 || !EncodedPages::supports(&stored.column(0), compression) {
            return Ok(None);
        }
        let column = stored.column(0);
        if let Some(keyed) =
            words::encode_strings(arrays.clone()).or_else(|| numbers::encode_floats(arrays.clone()))
        {
            return EncodedPages::encode_rows(keyed, column, compression).map(Some);
        }
        let pages = delta_column(arrays).map(|deltas| match deltas {
            AnyDeltaColumn::Narrow(rows) => EncodedPages::encode_rows(rows, column, compression),
            AnyDeltaColumn::Wide(rows) => EncodedPages::encode_rows(rows, column, compression),
        });
        pages.transpose()
    }

    /// Encodes the column of a schema, each of its leaves.
    fn encode_general<'a>(
        &self,
        schema: &SchemaRef,
        arrays: impl Iterator<Item = &'a ArrayRef>,
    ) -> Result<Vec<EncodedPages>> {
        let writer = self.file_writer(schema, Box::new(std::io::sink()))?;
        let written = GeneralPages::default();
        let factory = ArrowRowGroupWriterFactory::new(&writer, schema.clone());
        let factory = factory.with_page_store_factory(Arc::new(written.clone()));
        let mut leaves = factory.create_column_writers(0).map_err(write_fault)?;
        let field = schema.field(0);
        for array in arrays {
            let array = &without_keyed_views(array)?;
            // The array's own layout is encoded: keys of a dictionary need not become text.
            let field = Field::new(field.name(), array.data_type().clone(), field.is_nullable());
            for (writer, leaf) in leaves
                .iter_mut()
                .zip(compute_leaves(&field, array).map_err(write_fault)?)
            {
                writer.write(&leaf).map_err(write_fault)?;
            }
        }
        let closed = leaves
            .into_iter()
            .map(|leaf| Ok(leaf.close()?.close().clone()))
            .collect::<Result<Vec<_>, _>>();
        let closed = closed.map_err(write_fault)?;
        let written = written.take().map_err(write_fault)?;
        let chunks = written
            .into_iter()
            .zip(closed)
            .map(|(pages, closed)| EncodedPages::from_general(pages, closed));
        chunks.collect::<Result<_, _>>().map_err(write_fault)
    }

    fn compression(&self) -> basic::Compression {
        match self.config.compression {
            ParquetCompression::Snappy => basic::Compression::SNAPPY,
            ParquetCompression::Zstd => basic::Compression::ZSTD(ZstdLevel::default()),
            ParquetCompression::Lz4 => basic::Compression::LZ4_RAW,
            ParquetCompression::None => basic::Compression::UNCOMPRESSED,
        }
    }

    fn file_writer(
        &self,
        schema: &SchemaRef,
        out: Box<dyn Write + Send>,
    ) -> Result<SerializedFileWriter<FooterChecksumWriter>> {
        let stored = stored_columns_of(schema, self.stored_types()).map_err(write_fault)?;
        let properties = Arc::new(self.properties(schema));
        let writer = SerializedFileWriter::new(
            FooterChecksumWriter::new(out),
            stored.root_schema_ptr(),
            properties,
        );
        let mut writer = writer.map_err(write_fault)?;
        writer.append_key_value_metadata(footer_checksum_pair());
        Ok(writer)
    }
}

/// Writes a file of one row group, and returns its bytes.
#[cfg(test)]
pub(super) fn write_row_group(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    compression: ParquetCompression,
) -> bytes::Bytes {
    let sink = ParquetEncoder::new(ParquetSink {
        compression,
        ..ParquetSink::at("out")
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut out = sink
        .open_writer(schema, Box::new(file.reopen().unwrap()))
        .unwrap();
    out.append(sink.encode(schema, batches).unwrap()).unwrap();
    out.finish().unwrap();
    std::fs::read(file.path()).unwrap().into()
}

/// The stored columns of one column of a row group.
pub(super) struct ColumnChunks(Vec<EncodedPages>);

impl ColumnChunks {
    pub(super) fn piece(chunks: Vec<EncodedPages>) -> EncodedPiece {
        EncodedPiece {
            bytes: chunks.iter().map(EncodedPages::size).sum(),
            payload: Box::new(ColumnChunks(chunks)),
        }
    }
}

struct ParquetFileWriter {
    writer: SerializedFileWriter<FooterChecksumWriter>,
}

impl FileWriter for ParquetFileWriter {
    fn append(&mut self, part: EncodedBatch) -> Result<()> {
        if part.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(write_fault)?;
        for piece in part.pieces {
            let chunks = piece.payload.downcast::<ColumnChunks>();
            for pages in chunks
                .map_err(|_| Fault::internal("the rows were encoded by another sink"))?
                .0
            {
                let (bytes, closed) = pages.into_parts();
                group.append_column(&bytes, closed).map_err(write_fault)?;
            }
        }
        group.close().map_err(write_fault)?;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.writer.inner_mut().hold_back();
        self.writer.finish().map_err(write_fault)?;
        self.writer
            .inner_mut()
            .finish()
            .map_err(|error| write_fault(ParquetError::External(Box::new(error))))
    }
}
