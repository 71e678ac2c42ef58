//! Sources that give a sample of their rows.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use forebay_model::{Chunk, DataSplit, Dataset, Fault, Result, RowKeys, Span};
use forebay_plan::{SqlCompiler, split_operation};
use forebay_storage::{ChunkIterator, ScanRequest, Sink, Source, StorageClient};
use serde_json::Value;

use crate::connector_registry::{ConnectorRegistry, ReadModelFile};
use crate::predict::ModelPredictor;
use crate::training::Trainer;

/// Which rows of a source are read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RowSample {
    /// The first ones.
    First(u64),
    /// Those of a share of the series; of all rows, where there are no keys.
    Share { share: f64, keys: Vec<String> },
}

/// Connectors whose sources of some configurations give a sample; all others give all rows.
pub(crate) struct SampledConnectors {
    pub inner: Arc<dyn ConnectorRegistry>,
    pub samples: Vec<(Value, RowSample)>,
}

impl ConnectorRegistry for SampledConnectors {
    fn source(&self, format: &str, config: &Value) -> Result<Arc<dyn Source>> {
        let inner = self.inner.source(format, config)?;
        Ok(
            match self.samples.iter().find(|(sampled, _)| sampled == config) {
                Some((_, sample)) => Arc::new(SampledSource {
                    inner,
                    sample: sample.clone(),
                }),
                None => inner,
            },
        )
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

    fn trainer(&self, format: &str, config: &Value) -> Result<Arc<dyn Trainer>> {
        self.inner.trainer(format, config)
    }

    fn predictor(&self, files: ReadModelFile<'_>) -> Result<Arc<dyn ModelPredictor>> {
        self.inner.predictor(files)
    }
}

/// A sample of a source.
#[derive(Debug)]
struct SampledSource {
    inner: Arc<dyn Source>,
    sample: RowSample,
}

impl Source for SampledSource {
    fn discover(&self, io: &StorageClient, watch: &[String]) -> Result<Dataset> {
        let mut dataset = self.inner.discover(io, watch)?;
        if let RowSample::First(wanted) = self.sample {
            let mut rows = 0;
            dataset.spans.retain(|span| {
                let is_wanted = rows < wanted;
                // A span that does not tell its rows may hold them all.
                rows = rows.saturating_add(span.rows().unwrap_or(wanted));
                is_wanted
            });
        }
        // What is cut does not tell its rows.
        let is_whole =
            |rows: &u64| matches!(self.sample, RowSample::First(wanted) if *rows <= wanted);
        for piece in dataset.spans.iter_mut().flat_map(|span| &mut span.pieces) {
            piece.rows = piece.rows.filter(is_whole);
        }
        Ok(dataset)
    }

    fn open(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        // Each pass must see the same rows, whatever it could skip.
        let request = ScanRequest {
            pruning: Vec::new(),
            ..request.clone()
        };
        match &self.sample {
            RowSample::First(rows) => self.open_first(io, span, &request, *rows),
            RowSample::Share { share, keys } if keys.is_empty() => {
                self.open_rows(io, span, &request, *share)
            }
            RowSample::Share { share, keys } => self.open_series(io, span, request, *share, keys),
        }
    }
}

impl SampledSource {
    /// So many rows of each piece.
    fn open_first(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
        rows: u64,
    ) -> Result<ChunkIterator> {
        let mut left = rows.saturating_mul(span.pieces.len() as u64) as usize;
        let chunks = self
            .inner
            .open(io, span, request)?
            .map_while(move |chunk| match chunk {
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

    /// Rows whose key, a hash of file and position, is among the least.
    fn open_rows(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
        share: f64,
    ) -> Result<ChunkIterator> {
        let wants_keys = request.row_keys;
        let request = ScanRequest {
            row_keys: true,
            ..request.clone()
        };
        let last = (share * u64::MAX as f64) as u64;
        let chunks = self.inner.open(io, span, &request)?.map(move |chunk| {
            let chunk = chunk?;
            let keys = chunk
                .keys
                .as_ref()
                .ok_or_else(|| Fault::internal("a source gives no keys of rows"))?;
            let mask: BooleanArray = keys
                .as_slice()
                .iter()
                .map(|key| Some(*key <= last))
                .collect();
            let chunk = filtered(chunk, &mask)?;
            Ok(if wants_keys {
                chunk
            } else {
                Chunk {
                    keys: None,
                    ..chunk
                }
            })
        });
        Ok(Box::new(chunks))
    }

    /// Rows of series whose keys have a small hash.
    fn open_series(
        &self,
        io: &StorageClient,
        span: &Span,
        mut request: ScanRequest,
        share: f64,
        keys: &[String],
    ) -> Result<ChunkIterator> {
        let split = DataSplit::by_hash(keys, [("sample", share), ("rest", 1.0 - share)]);
        let choose =
            (split_operation(&split, &request.schema, &SqlCompiler::default())?.lower)(&[])?;
        let wanted: Vec<usize> = (0..request.columns.len()).collect();
        for key in keys {
            if !request.columns.contains(key) {
                request.columns.push(key.clone());
            }
        }
        let keys = keys.to_vec();
        let chunks = self.inner.open(io, span, &request)?.map(move |chunk| {
            let chunk = chunk?;
            let column = |key: &String| chunk.batch.column_by_name(key).cloned();
            let columns = keys.iter().map(column).collect::<Option<Vec<_>>>();
            let columns = columns.ok_or_else(|| Fault::internal("a source lacks its keys"))?;
            let parts = (choose.kernel)(&columns, chunk.batch.num_rows())?;
            let mask = parts
                .first()
                .ok_or_else(|| Fault::internal("a split without parts"))?
                .as_boolean()
                .clone();
            let batch = chunk.batch.project(&wanted)?;
            filtered(Chunk { batch, ..chunk }, &mask)
        });
        Ok(Box::new(chunks))
    }
}

fn filtered(chunk: Chunk, mask: &BooleanArray) -> Result<Chunk> {
    let batch = filter_record_batch(&chunk.batch, mask)?;
    let keys = chunk.keys.map(|keys| keys.filter(mask));
    Ok(Chunk {
        batch,
        keys,
        ..chunk
    })
}

fn first_rows(chunk: Chunk, rows: usize) -> Chunk {
    if chunk.batch.num_rows() <= rows {
        return chunk;
    }
    let keys = chunk
        .keys
        .map(|keys| RowKeys::from_keys(keys.as_slice().iter().take(rows).copied()));
    let batch: RecordBatch = chunk.batch.slice(0, rows);
    Chunk {
        batch,
        keys,
        ..chunk
    }
}
