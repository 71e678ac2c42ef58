//! Sources that give a sample of their rows.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use forebay_contract::{
    ChunkIterator, ConnectorRegistry, ModelPredictor, ReadModelFile, ScanRequest, Sink, Source,
    Trainer,
};
use forebay_model::{Chunk, DataSplit, Dataset, Fault, FileRange, Result, RowKeys, Span};
use forebay_plan::{SqlCompiler, split_operation};
use forebay_storage::StorageClient;
use serde_json::Value;

/// Rows of a batch while the rows of a piece are counted.
const COUNTED_ROWS: usize = 8192;

/// The rows of a source that are read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RowSample {
    /// The first ones.
    First(u64),
    /// The rows of a share of the series; of all rows, where there are no keys.
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

    fn intermediate_format(&self) -> &'static str {
        self.inner.intermediate_format()
    }

    fn exact_format(&self) -> Option<&'static str> {
        self.inner.exact_format()
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
    fn discover(&self, io: &StorageClient, watched: &[String]) -> Result<Dataset> {
        let mut dataset = self.inner.discover(io, watched)?;
        match self.sample {
            RowSample::First(rows) => self.keep_first(io, &mut dataset, rows)?,
            RowSample::Share { .. } => {
                for piece in dataset.spans.iter_mut().flat_map(|span| &mut span.pieces) {
                    piece.rows = None;
                }
            }
        }
        Ok(dataset)
    }

    fn paths(&self) -> Vec<String> {
        self.inner.paths()
    }

    fn open(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        // Each pass must see the same rows, so none may be pruned.
        let request = ScanRequest {
            pruning: Vec::new(),
            ..request.clone()
        };
        match &self.sample {
            RowSample::First(_) => self.open_first(io, span, &request),
            RowSample::Share { share, keys } if keys.is_empty() => {
                self.open_rows(io, span, &request, *share)
            }
            RowSample::Share { share, keys } => self.open_series(io, span, request, *share, keys),
        }
    }
}

impl SampledSource {
    /// Keeps the pieces that hold the first rows. Each of them records the number of its rows to
    /// read, so that the sample is the same for any division of pieces among spans and threads.
    fn keep_first(
        &self,
        io: &StorageClient,
        dataset: &mut Dataset,
        rows_wanted: u64,
    ) -> Result<()> {
        let mut missing = rows_wanted;
        for span in std::mem::take(&mut dataset.spans) {
            let mut pieces = Vec::new();
            for mut piece in span.pieces {
                if missing == 0 {
                    break;
                }
                let rows = match piece.rows {
                    Some(rows) => rows,
                    None => self.count_rows(io, dataset, &piece, missing)?,
                };
                let sampled = rows.min(missing);
                let first = piece.row_range.map_or(0, |(first, _)| first);
                // The range makes the number of rows a part of the span's id.
                piece.row_range = Some((first, first + sampled));
                piece.rows = Some(sampled);
                missing -= sampled;
                pieces.push(piece);
            }
            if !pieces.is_empty() {
                dataset.spans.push(Span { pieces });
            }
        }
        Ok(())
    }

    /// Counts the rows of a piece whose format does not record their number, up to `enough`.
    fn count_rows(
        &self,
        io: &StorageClient,
        dataset: &Dataset,
        piece: &FileRange,
        enough: u64,
    ) -> Result<u64> {
        let names = dataset.schema.fields().iter().map(|field| field.name());
        let request = ScanRequest {
            columns: names.take(1).cloned().collect(),
            schema: dataset.schema.clone(),
            pruning: Vec::new(),
            batch_rows: COUNTED_ROWS,
            row_keys: false,
        };
        let span = Span {
            pieces: vec![piece.clone()],
        };
        let mut rows = 0;
        for chunk in self.inner.open(io, &span, &request)? {
            rows += chunk?.batch.num_rows() as u64;
            if rows >= enough {
                break;
            }
        }
        Ok(rows)
    }

    /// The rows that `keep_first` has assigned to each piece.
    fn open_first(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        let inner = self.inner.clone();
        let io = io.clone();
        let request = request.clone();
        let chunks_of = move |piece: FileRange| -> ChunkIterator {
            match open_sampled_piece(inner.as_ref(), &io, &piece, &request) {
                Ok(chunks) => chunks,
                Err(fault) => Box::new(std::iter::once(Err(fault))),
            }
        };
        Ok(Box::new(
            span.pieces.clone().into_iter().flat_map(chunks_of),
        ))
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
        let requested: Vec<usize> = (0..request.columns.len()).collect();
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
            let batch = chunk.batch.project(&requested)?;
            filtered(Chunk { batch, ..chunk }, &mask)
        });
        Ok(Box::new(chunks))
    }
}

/// The rows of a piece that are in the sample.
fn open_sampled_piece(
    source: &dyn Source,
    io: &StorageClient,
    piece: &FileRange,
    request: &ScanRequest,
) -> Result<ChunkIterator> {
    let rows = piece
        .rows
        .ok_or_else(|| Fault::internal("a piece of a sample without its rows"))?;
    // The reader would take the rows of the sample for those of the file. It knows ranges of rows only of row groups
    // that were divided before.
    let range = piece.row_range.filter(|(first, _)| *first > 0);
    let whole = FileRange {
        rows: None,
        row_range: range,
        ..piece.clone()
    };
    let span = Span {
        pieces: vec![whole],
    };
    let chunks = source.open(io, &span, request)?;
    Ok(Box::new(first_chunks(chunks, rows as usize)))
}

/// The first rows of some chunks.
fn first_chunks(
    chunks: ChunkIterator,
    mut missing: usize,
) -> impl Iterator<Item = Result<Chunk>> + Send {
    chunks.map_while(move |chunk| match chunk {
        Ok(_) if missing == 0 => None,
        Ok(chunk) => {
            let chunk = first_rows(chunk, missing);
            missing -= chunk.batch.num_rows();
            Some(Ok(chunk))
        }
        Err(fault) => Some(Err(fault)),
    })
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
