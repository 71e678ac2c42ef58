//! Reads files that clients send in requests. A client may send damaged bytes: decoding stays within the memory of
//! readers, and never ends the program.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use forebay_model::{Fault, Result, codes, first_repeated};
use forebay_storage::StorageClient;

use crate::{arrow as arrow_format, parquet};

/// Formats of files in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFormat {
    /// An Arrow stream, or an Arrow file.
    Arrow,
    /// A Parquet file.
    Parquet,
}

/// Rows of a request, as they are decoded.
pub(crate) struct RequestRows {
    pub(crate) schema: SchemaRef,
    pub(crate) batches: Box<dyn Iterator<Item = Result<RecordBatch>> + Send>,
}

/// Decodes the rows of a request; `None` where it has more than `rows_max`. What decoding takes is asked of the memory of
/// `io`'s readers.
pub fn read_request(
    io: &StorageClient,
    format: RequestFormat,
    bytes: Bytes,
    rows_max: usize,
) -> Result<Option<RecordBatch>> {
    let RequestRows { schema, batches } = match format {
        RequestFormat::Arrow => arrow_format::open_request(io, bytes)?,
        RequestFormat::Parquet => parquet::open_request(io, bytes)?,
    };
    let names = schema.fields().iter().map(|field| field.name().as_str());
    if let Some(name) = first_repeated(names) {
        let message = format!("two columns of the request are called `{name}`");
        return Err(Fault::new(codes::DUPLICATE, message)
            .column(name)
            .hint("rename one of them, or leave it out"));
    }
    let mut decoded = Vec::new();
    let mut rows = 0;
    for batch in batches {
        let batch = batch?;
        rows += batch.num_rows();
        if rows > rows_max {
            return Ok(None);
        }
        decoded.push(batch);
    }
    // Texts may have come with their dictionaries.
    let schema = decoded.first().map_or(schema, RecordBatch::schema);
    let whole = concat_batches(&schema, &decoded);
    let whole = whole.map_err(|error| {
        Fault::new(
            codes::CORRUPT,
            "the rows of the request do not fit together",
        )
        .cause(error)
    })?;
    Ok(Some(whole))
}
