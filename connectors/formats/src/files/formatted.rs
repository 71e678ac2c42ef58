//! Sources whose columns of texts or whole numbers are dates and times by a format.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use forebay_contract::{ChunkIterator, ScanRequest, Source, SourceWrapper};
use forebay_model::{
    Chunk, Dataset, Fault, Result, Span, TimeFormat, UnfitValues, codes, logical_type, type_words,
};
use forebay_storage::StorageClient;

use super::OnReadError;
use super::texts::{check_format_columns, parse_formats, unfit_values};

/// A source some of whose columns are read by formats.
#[derive(Debug)]
struct FormattedSource {
    inner: Arc<dyn Source>,
    formats: BTreeMap<String, TimeFormat>,
    on_error: OnReadError,
    /// The columns as they are in the files, once they are known.
    written: Mutex<Option<SchemaRef>>,
}

/// A source with its columns of dates and times read by their formats. The configuration has been checked.
pub fn with_formats(
    inner: Arc<dyn Source>,
    formats: &BTreeMap<String, String>,
    on_error: OnReadError,
) -> Arc<dyn Source> {
    match parse_formats(formats) {
        Ok(formats) if !formats.is_empty() => Arc::new(FormattedSource {
            inner,
            formats,
            on_error,
            written: Mutex::default(),
        }),
        _ => inner,
    }
}

impl SourceWrapper for FormattedSource {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }

    fn wrap_dataset(&self, mut dataset: Dataset) -> Result<Dataset> {
        let fields = dataset.schema.fields();
        check_format_columns(self.formats.keys(), fields)?;
        let given_fields = fields.iter().map(|field| self.given_field(field, &dataset));
        let given_schema = Schema::new(given_fields.collect::<Result<Vec<FieldRef>>>()?);
        self.convert_extents(&mut dataset);
        for (at, field) in given_schema.fields().iter().enumerate() {
            // Values that become null are met when they are read.
            if self.formats.contains_key(field.name())
                && self.on_error.makes_null(field.name())
                && let Some(count) = dataset.null_counts.get_mut(at)
            {
                *count = None;
            }
        }
        if let Ok(mut written) = self.written.lock() {
            *written = Some(dataset.schema.clone());
        }
        dataset.schema = Arc::new(given_schema);
        Ok(dataset)
    }

    fn open_span(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        let mut written = request.clone();
        written.schema = self.written_schema(&request.schema)?;
        let chunks = self.inner.open(io, span, &written)?;
        let is_read = request
            .columns
            .iter()
            .any(|column| self.formats.contains_key(column));
        if !is_read {
            return Ok(chunks);
        }
        let reader = FormatReader {
            formats: self.formats.clone(),
            on_error: self.on_error.clone(),
            relatives: span
                .pieces
                .iter()
                .map(|piece| (piece.path.clone(), piece.relative.clone()))
                .collect(),
        };
        Ok(Box::new(chunks.map(move |chunk| reader.read(chunk?))))
    }
}

impl FormattedSource {
    /// A column with the type that its format gives.
    fn given_field(&self, field: &FieldRef, dataset: &Dataset) -> Result<FieldRef> {
        let Some(format) = self.formats.get(field.name()) else {
            return Ok(field.clone());
        };
        let of = field.data_type();
        if format.takes(of) {
            let is_nullable = field.is_nullable() || self.on_error.makes_null(field.name());
            let given_field = Field::new(field.name(), format.data_type(), is_nullable);
            return Ok(Arc::new(given_field));
        }
        let message = format!(
            "`{}` is {}, and its format `{}` reads texts and whole numbers",
            field.name(),
            type_words(of),
            format.text()
        );
        let fault = Fault::new(codes::COLUMN_TYPE, message).column(field.name());
        let file = dataset
            .spans
            .iter()
            .flat_map(|span| &span.pieces)
            .map(|piece| piece.path.as_str())
            .next();
        let fault = match file {
            Some(file) => fault.file(file),
            None => fault,
        };
        Err(fault.hint(if of.is_temporal() {
            "leave out the format: the column has its type without one"
        } else {
            "leave out the format, and `cast` the column in a step"
        }))
    }

    /// Sets the extents of columns with a format to those of their dates and times.
    fn convert_extents(&self, dataset: &mut Dataset) {
        for (watched, name) in dataset.watched.iter().enumerate() {
            let Some(format) = self.formats.get(name) else {
                continue;
            };
            let is_nulled = self.on_error.makes_null(name);
            for piece in dataset.spans.iter_mut().flat_map(|span| &mut span.pieces) {
                let Some(extent) = piece.extents.get_mut(watched) else {
                    continue;
                };
                *extent = extent.as_ref().and_then(|extent| format.extent(extent));
                if let Some(extent) = extent {
                    extent.nulls |= is_nulled;
                }
            }
        }
    }

    /// The schema of a request with the columns as they are in the files.
    fn written_schema(&self, schema: &Schema) -> Result<SchemaRef> {
        let written = self.written.lock().ok().and_then(|written| written.clone());
        let written = written
            .ok_or_else(|| Fault::internal("a source with formats is read before it is listed"))?;
        let columns = schema.fields().iter();
        let fields = columns.map(|field| match written.fields().find(field.name()) {
            Some((_, written)) if self.formats.contains_key(field.name()) => written.clone(),
            _ => field.clone(),
        });
        Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    }
}

/// Reads the columns of chunks by their formats.
struct FormatReader {
    formats: BTreeMap<String, TimeFormat>,
    on_error: OnReadError,
    /// Paths below the source's root by the paths of files: counts are kept with results, which do not depend on where
    /// files lie.
    relatives: BTreeMap<String, String>,
}

impl FormatReader {
    fn read(&self, mut chunk: Chunk) -> Result<Chunk> {
        let schema = chunk.batch.schema();
        let mut unfit = Vec::new();
        let mut fields = Vec::with_capacity(schema.fields().len());
        let mut columns = Vec::with_capacity(schema.fields().len());
        for (field, column) in schema.fields().iter().zip(chunk.batch.columns()) {
            let Some(format) = self.formats.get(field.name()) else {
                fields.push(field.clone());
                columns.push(column.clone());
                continue;
            };
            fields.push(Arc::new(Field::new(field.name(), format.data_type(), true)));
            columns.push(self.read_column(&chunk, field.name(), column, format, &mut unfit)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(chunk.batch.num_rows()));
        chunk.batch =
            RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?;
        chunk.unfit.extend(unfit);
        Ok(chunk)
    }

    fn read_column(
        &self,
        chunk: &Chunk,
        name: &str,
        column: &ArrayRef,
        format: &TimeFormat,
        unfit: &mut Vec<UnfitValues>,
    ) -> Result<ArrayRef> {
        let texts = format.texts_of(column)?;
        let read = format.read(&texts);
        let Some(row) = read.lost.first() else {
            return Ok(read.values);
        };
        if self.on_error.makes_null(name) {
            let file = self.relatives.get(chunk.file.as_ref());
            let file = file.map_or(chunk.file.as_ref(), String::as_str);
            let values = unfit_values(name, &texts, &read.lost, file, chunk.first_row);
            unfit.push(values);
            return Ok(read.values);
        }
        let of = logical_type(column.data_type());
        Err(
            Fault::new(codes::BAD_ROW, format.problem(texts.value(*row)))
                .file(chunk.file.as_ref())
                .column(name)
                .rows([chunk.first_row + *row as u64])
                .hint(format!(
                    "mend the format, set `on_error: missing` to make such values null, or leave \
                     out the format: the column is then {}",
                    type_words(&of)
                )),
        )
    }
}
