//! JSON lines as batches.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use forebay_model::{Fault, Result, codes};

use crate::files::rows::{Batches, OpenFile};
use crate::files::stream::{self, BUFFER_BYTES};

/// The longest line in bytes: a longer one is a file that is not made of lines.
const LINE_BYTES_MAX: usize = 64 << 20;

/// Bytes of lines per batch, whatever the number of rows: long lines must not fill the memory.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// All wanted columns count as there: an object without the field gives null.
pub(super) fn rows(file: &OpenFile, wanted: &[FieldRef], batch_rows: usize) -> Result<(Vec<String>, Batches)> {
    let stream = stream::open(&file.blob, &file.path, file.size)?;
    let fields: Fields = wanted.iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
    let lines = Lines {
        stream: BufReader::with_capacity(BUFFER_BYTES, stream),
        path: file.path.clone(),
        schema: Arc::new(Schema::new(fields)),
        batch_rows,
        first_row: 0,
        text: Vec::new(),
        ends: Vec::new(),
    };
    Ok((wanted.iter().map(|field| field.name().clone()).collect(), Box::new(lines)))
}

struct Lines {
    stream: BufReader<Box<dyn Read + Send>>,
    path: Arc<str>,
    schema: SchemaRef,
    batch_rows: usize,
    first_row: u64,
    /// The lines of one batch, and where each of them ends.
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Lines {
    /// Takes in lines for one batch; blank ones are no rows.
    fn fill(&mut self) -> Result<()> {
        self.text.clear();
        self.ends.clear();
        while self.ends.len() < self.batch_rows && self.text.len() < BATCH_BYTES_MAX {
            let start = self.text.len();
            let mut limited = (&mut self.stream).take(LINE_BYTES_MAX as u64);
            let read = limited.read_until(b'\n', &mut self.text).map_err(|error| stream::broken(&self.path, error))?;
            if read == 0 {
                break;
            }
            if read == LINE_BYTES_MAX {
                return Err(self.bad(self.ends.len(), format!("the line has more than {LINE_BYTES_MAX} bytes")));
            }
            if self.first_row == 0 && self.ends.is_empty() && self.text.starts_with(b"\xef\xbb\xbf") {
                self.text.drain(..3);
            }
            match self.text[start..].iter().all(u8::is_ascii_whitespace) {
                true => self.text.truncate(start),
                false => self.ends.push(self.text.len()),
            }
        }
        Ok(())
    }

    fn bad(&self, row: usize, message: impl Into<String>) -> Fault {
        Fault::new(codes::BAD_ROW, message).file(self.path.as_ref()).rows([self.first_row + row as u64])
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        self.fill()?;
        let rows = self.ends.len();
        if rows == 0 {
            return Ok(None);
        }
        let batch = match self.schema.fields().is_empty() {
            true => {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(self.schema.clone(), Vec::new(), &options)?
            }
            false => decode(&self.text, &self.schema, rows).map_err(|error| self.culprit(error))?,
        };
        self.first_row += rows as u64;
        Ok(Some(batch))
    }

    /// The line, and the column where one column alone fails.
    fn culprit(&self, error: ArrowError) -> Fault {
        let mut start = 0;
        for (row, end) in self.ends.iter().enumerate() {
            let line = &self.text[start..*end];
            start = *end;
            let Err(error) = decode(line, &self.schema, 1) else { continue };
            let fault = self.bad(row, "the line cannot be read as the columns' types").cause(error);
            let alone = |field: &&FieldRef| decode(line, &Arc::new(Schema::new(vec![(*field).clone()])), 1).is_err();
            let columns: Vec<&FieldRef> = self.schema.fields().iter().filter(alone).collect();
            return match columns.as_slice() {
                [one] if self.schema.fields().len() > 1 => fault.column(one.name()),
                _ => fault,
            };
        }
        Fault::new(codes::BAD_ROW, "the lines cannot be read").file(self.path.as_ref()).cause(error)
    }
}

impl Iterator for Lines {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        self.batch().transpose()
    }
}

fn decode(text: &[u8], schema: &SchemaRef, rows: usize) -> Result<RecordBatch, ArrowError> {
    let mut decoder = ReaderBuilder::new(schema.clone()).with_batch_size(rows).build_decoder()?;
    let read = decoder.decode(text)?;
    if decoder.has_partial_record() {
        return Err(ArrowError::JsonError("the object has no end".to_owned()));
    }
    let rest = text.get(read..).unwrap_or_default();
    let batch = decoder.flush()?.unwrap_or_else(|| RecordBatch::new_empty(schema.clone()));
    if batch.num_rows() != rows || !rest.iter().all(u8::is_ascii_whitespace) {
        return Err(ArrowError::JsonError("a line must hold one object".to_owned()));
    }
    Ok(batch)
}
