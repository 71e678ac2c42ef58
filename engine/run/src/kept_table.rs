//! Tables that a program holds in memory, kept as files that sources read.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use arrow::array::RecordBatchReader;
use forebay_commit::KEPT_TABLES;
use forebay_contract::literal_path;
use forebay_model::{ContentId, Fault, IdBuilder, Result, codes};
use forebay_storage::ScratchDir;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::session::Session;

/// Encoded bytes after which a row group ends: a writer holds them in memory.
const GROUP_BYTES_MAX: usize = 64 << 20;

/// Bytes of a file that are hashed at a time.
const HASHED_BYTES: usize = 1 << 20;

impl Session {
    /// Keeps the rows of a table in the state directory, as a Parquet file that is named after its content: equal
    /// tables are one file. The rows are read once, in bounded memory. Returns the path for a source. `cache gc`
    /// removes the file when it is old.
    ///
    /// Types that Parquet does not have, and errors of the table itself, are faults.
    pub fn keep_table(&self, table: Box<dyn RecordBatchReader + Send>) -> Result<String> {
        let state = self.state()?;
        let scratch = ScratchDir::new(Some(&state), self.watch.clone())?;
        let written = scratch.path().join("table.parquet");
        self.write_table(table, &written)?;
        let name = format!("{KEPT_TABLES}/{}.parquet", content_of(&written)?);
        let location = state.join(&name);
        if self.io.head(&location)?.is_none() {
            self.io.upload_durable(&location, &written)?;
        }
        Ok(literal_path(&location.shown))
    }

    fn write_table(&self, table: Box<dyn RecordBatchReader + Send>, path: &Path) -> Result<()> {
        let file = File::create(path).map_err(|error| unwritten(path, error))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::LZ4_RAW)
            .build();
        let mut writer = ArrowWriter::try_new(file, table.schema(), Some(properties))
            .map_err(no_parquet_table)?;
        for batch in table {
            self.interrupt.check()?;
            let batch = batch.map_err(|error| {
                Fault::new(codes::BAD_VALUE, "the table cannot be read").cause(error)
            })?;
            writer.write(&batch).map_err(no_parquet_table)?;
            if writer.in_progress_size() > GROUP_BYTES_MAX {
                writer.flush().map_err(no_parquet_table)?;
            }
        }
        writer.close().map_err(no_parquet_table)?;
        Ok(())
    }
}

/// Id of the bytes of a file.
fn content_of(path: &Path) -> Result<ContentId> {
    let mut file = File::open(path).map_err(|error| unwritten(path, error))?;
    let mut id = IdBuilder::new("kept table");
    let mut bytes = vec![0; HASHED_BYTES];
    loop {
        let count = file
            .read(&mut bytes)
            .map_err(|error| unwritten(path, error))?;
        if count == 0 {
            return Ok(id.finish());
        }
        id.bytes(&bytes[..count]);
    }
}

fn unwritten(path: &Path, error: std::io::Error) -> Fault {
    Fault::disk("a table cannot be kept", error).file(path.display().to_string())
}

/// Fault of a table that could not be written: the disk's, or that of a type.
fn no_parquet_table(error: ParquetError) -> Fault {
    let message = "the table cannot be kept as Parquet";
    if let ParquetError::External(source) = error {
        return match source.downcast::<std::io::Error>() {
            Ok(error) => Fault::disk(message, *error),
            Err(source) => Fault::new(codes::BAD_VALUE, message).cause(source),
        };
    }
    Fault::new(codes::BAD_VALUE, message)
        .cause(error)
        .hint("cast columns of types that Parquet does not have")
}
