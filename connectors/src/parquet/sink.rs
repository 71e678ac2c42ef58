//! Writing Parquet.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Date64Type, Field, FieldRef, Fields, Schema, SchemaRef};
use forebay_model::{Fault, Result, codes, logical_type};
use forebay_storage::{EncodedBatch, EncodedPiece, FileLayout, FileWriter, Sink};
use parquet::arrow::arrow_writer::{ArrowRowGroupWriterFactory, compute_leaves};
use parquet::arrow::{ArrowSchemaConverter, add_encoded_arrow_schema_to_metadata};
use parquet::basic::{self, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use super::checksums::{FooterChecksumWriter, GeneralPages, footer_checksum_pair};
use super::config::{ParquetCompression, ParquetSink};
use super::deltas::{AnyDeltaColumn, delta_column};
use super::pages::EncodedPages;
use super::{numbers, words};

const MILLISECONDS_PER_DAY: i64 = 86_400_000;

/// The configured sink.
#[derive(Debug)]
pub(crate) struct ParquetEncoder {
    config: ParquetSink,
}

impl ParquetEncoder {
    pub(crate) fn new(config: ParquetSink) -> Self {
        ParquetEncoder { config }
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
        add_encoded_arrow_schema_to_metadata(schema, &mut properties);
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

/// A schema as Parquet holds it: it knows no dates in milliseconds, and other programs would read these as bare
/// integers. Readers of Arrow find the type of such a column in the file's metadata.
fn stored(written: &Schema) -> Schema {
    let stored = |field: &FieldRef| match field.data_type() {
        DataType::Date64 => Arc::new(field.as_ref().clone().with_data_type(DataType::Date32)),
        _ => field.clone(),
    };
    Schema::new(written.fields().iter().map(stored).collect::<Fields>())
}

/// An array of values that are stored as a type, mostly as it is.
fn to_stored_type(array: &ArrayRef, stored: &DataType) -> Result<ArrayRef> {
    let Some(dates) = array
        .as_primitive_opt::<Date64Type>()
        .filter(|_| *stored == DataType::Date32)
    else {
        return Ok(array.clone());
    };
    if let Some(millis) = dates
        .iter()
        .flatten()
        .find(|millis| millis % MILLISECONDS_PER_DAY != 0)
    {
        let message = format!(
            "a value of type {} is no whole day: {millis} ms",
            DataType::Date64
        );
        return Err(Fault::new(codes::BAD_ROW, message)
            .hint("cast the column to a timestamp before it is written"));
    }
    Ok(cast_with_options(
        array,
        stored,
        &CastOptions {
            safe: false,
            ..CastOptions::default()
        },
    )?)
}

/// What all rows of a file are written as: logical types, without schema metadata.
fn logical_schema(schema: &SchemaRef) -> SchemaRef {
    let plain = |field: &FieldRef| {
        let plain = Field::new(
            field.name(),
            logical_type(field.data_type()),
            field.is_nullable(),
        );
        plain.with_metadata(field.metadata().clone())
    };
    Arc::new(Schema::new(
        schema.fields().iter().map(plain).collect::<Fields>(),
    ))
}

pub(super) fn write_fault(error: ParquetError) -> Fault {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(error) => Fault::disk("the file cannot be written", *error),
            Err(cause) => Fault::new(codes::STORAGE, "the file cannot be written").cause(cause),
        },
        ParquetError::NYI(what) => Fault::new(
            codes::UNSUPPORTED,
            format!("Parquet cannot hold this: {what}"),
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
        }
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
        let schema = Arc::new(stored(&logical_schema(&Arc::new(
            schema.project(&[piece])?,
        ))));
        let field = schema.field(0);
        let arrays = batches
            .iter()
            .map(|batch| to_stored_type(batch.column(piece), field.data_type()));
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
        let stored = ArrowSchemaConverter::new().convert(schema)?;
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
        let (closed, written) = (
            closed.map_err(write_fault)?,
            written.take().map_err(write_fault)?,
        );
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
        let stored = ArrowSchemaConverter::new()
            .convert(&stored(schema))
            .map_err(write_fault)?;
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

/// Writes a row group, and gives the file.
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
