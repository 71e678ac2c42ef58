//! Sources that end after their first rows.

use std::sync::Arc;

use forebay_model::{Chunk, Dataset, Result, RowKeys, Span};
use forebay_storage::{ChunkIterator, ScanRequest, Sink, Source, StorageClient};
use serde_json::Value;

use crate::connector_registry::ConnectorRegistry;

/// Connectors whose sources end after so many rows. They neither train nor predict.
pub(super) struct SampledConnectors {
    pub inner: Arc<dyn ConnectorRegistry>,
    pub rows: u64,
}

impl ConnectorRegistry for SampledConnectors {
    fn source(&self, format: &str, config: &Value) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(SampledSource { inner: self.inner.source(format, config)?, rows: self.rows }))
    }

    fn canonical(&self, format: &str, config: Value) -> Result<Value> {
        self.inner.canonical(format, config)
    }

    fn sink(&self, format: &str, config: &Value) -> Result<Arc<dyn Sink>> {
        self.inner.sink(format, config)
    }

    fn format_of_name(&self, name: &str) -> Option<&'static str> {
        self.inner.format_of_name(name)
    }
}

/// The first spans of a source that hold enough rows, and so many rows of each piece of them.
#[derive(Debug)]
struct SampledSource {
    inner: Arc<dyn Source>,
    rows: u64,
}

impl Source for SampledSource {
    fn discover(&self, io: &StorageClient, watch: &[String]) -> Result<Dataset> {
        let mut dataset = self.inner.discover(io, watch)?;
        let mut rows = 0;
        dataset.spans.retain(|span| {
            let is_wanted = rows < self.rows;
            // A span that does not tell its rows may hold them all.
            rows = rows.saturating_add(span.rows().unwrap_or(self.rows));
            is_wanted
        });
        // What is cut does not tell its rows.
        for piece in dataset.spans.iter_mut().flat_map(|span| &mut span.pieces) {
            piece.rows = piece.rows.filter(|rows| *rows <= self.rows);
        }
        Ok(dataset)
    }

    fn open(&self, io: &StorageClient, span: &Span, request: &ScanRequest) -> Result<ChunkIterator> {
        // Each pass must see the same rows, whatever it could skip.
        let request = ScanRequest { pruning: Vec::new(), ..request.clone() };
        let mut left = self.rows.saturating_mul(span.pieces.len() as u64) as usize;
        let chunks = self.inner.open(io, span, &request)?.map_while(move |chunk| match chunk {
            Ok(_) if left == 0 => None,
            Ok(chunk) => {
                let chunk = first_rows(chunk, left);
                left -= chunk.batch.num_rows();
                Some(Ok(chunk))
            }
            Err(fault) => Some(Err(fault)),
        });
        Ok(Box::new(chunks))
    }
}

fn first_rows(chunk: Chunk, rows: usize) -> Chunk {
    if chunk.batch.num_rows() <= rows {
        return chunk;
    }
    let keys = chunk.keys.map(|keys| RowKeys::from_keys(keys.as_slice().iter().take(rows).copied()));
    Chunk { batch: chunk.batch.slice(0, rows), keys, ..chunk }
}
