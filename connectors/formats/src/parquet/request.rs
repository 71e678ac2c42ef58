//! Rows of a Parquet file that came in a request.

use bytes::Bytes;
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageClient;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;

use super::file_batches::FileBatches;
use super::int96::with_microseconds;
use crate::guard::catch_decode_panic;
use crate::requests::RequestRows;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

/// Opens the file.
pub(crate) fn open_request(io: &StorageClient, bytes: Bytes) -> Result<RequestRows> {
    let file = FileBatches::of_request(io, "the request", bytes)?;
    let metadata = file.metadata();
    let layout = catch_decode_panic::<_, ParquetError>(|| {
        let plain = ArrowReaderMetadata::try_new(metadata.clone(), ArrowReaderOptions::new())?;
        let schema = with_microseconds(plain.schema(), &metadata);
        let options = ArrowReaderOptions::new().with_schema(schema);
        ArrowReaderMetadata::try_new(metadata.clone(), options)
    });
    let layout = layout.map_err(|error| {
        Fault::new(codes::CORRUPT, "the footer cannot be understood").cause(error)
    })?;
    Ok(RequestRows {
        schema: layout.schema().clone(),
        batches: Box::new(file.rows(layout, None, BATCH_ROWS)),
    })
}
