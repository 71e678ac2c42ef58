//! Encoding of rows that are sent to a training host: the bytes of batches.

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use forebay_model::{Fault, Result, codes};

/// Bytes of a piece of rows, about.
pub const PIECE_BYTES: u64 = 1 << 20;

/// Pieces of a batch.
pub fn split_batch(batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> {
    let row_bytes = (batch.get_array_memory_size() / batch.num_rows().max(1)).max(1);
    let rows = (PIECE_BYTES as usize / row_bytes).max(1);
    (0..batch.num_rows())
        .step_by(rows)
        .map(move |first| batch.slice(first, rows.min(batch.num_rows() - first)))
}

/// The bytes of a batch.
pub fn encode_rows(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(batch)?;
    Ok(writer.into_inner()?)
}

/// The batch that the bytes are.
pub fn decode_rows(mut bytes: Buffer) -> Result<RecordBatch> {
    let broken = || Fault::new(codes::CORRUPT, "a worker's rows cannot be read");
    let batch = StreamDecoder::new()
        .decode(&mut bytes)
        .map_err(|error| broken().cause(error))?;
    batch.ok_or_else(broken)
}
