//! Rows of an Arrow stream or file that came in a request.

use std::sync::Arc;

use bytes::Bytes;
use forebay_model::Result;
use forebay_storage::StorageClient;

use super::reader;
use crate::files::blob::FileHandle;
use crate::files::drift::logical_fields;
use crate::files::input_file::InputFile;
use crate::requests::RequestRows;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

/// Opens the stream.
pub(crate) fn open_request(io: &StorageClient, bytes: Bytes) -> Result<RequestRows> {
    let file = InputFile {
        path: Arc::from("the request"),
        size: bytes.len() as u64,
        blob: FileHandle::Memory(bytes),
        part: None,
        memory: io.read_memory().clone(),
    };
    let schema = reader::schema(&file)?;
    let fields = logical_fields(schema.fields());
    let (_, batches) = reader::rows(&file, &fields, BATCH_ROWS)?;
    Ok(RequestRows {
        schema: Arc::new(arrow::datatypes::Schema::new(fields)),
        batches: Box::new(batches.map(|batch| batch.map(|batch| batch.rows))),
    })
}
