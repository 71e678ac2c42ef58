//! A source whose rows after a time hold other values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{cast, concat};
use arrow::datatypes::{Field, Schema};
use forebay_contract::{
    ChunkIterator, ConnectorRegistry, ScanRequest, Sink, Source, SourceWrapper, Trainer,
};
use forebay_execute::SourceInput;
use forebay_model::{Chunk, Fault, Result, RowKeys, Span, logical_type, ticks};
use forebay_storage::StorageClient;
use serde_json::Value;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::leak_check::value_sampler::ValueSampler;

/// Number of spans whose first rows are sampled for the values of a column.
const SAMPLED_SPANS: usize = 8;

/// Rows of each.
const SAMPLED_ROWS: usize = 1024;

/// Scrambling of the future of a source: a function of each row's file and position.
pub(super) struct ScramblePlan {
    time: String,
    /// The last tick of the past.
    last: i64,
    pools: BTreeMap<String, ValueSampler>,
}

impl std::fmt::Debug for ScramblePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "scrambled after {}", self.last)
    }
}

impl ScramblePlan {
    /// Samples values of every column that is not fixed.
    pub fn new(
        io: &StorageClient,
        source: &forebay_model::PipelineSource,
        input: &SourceInput,
        last: i64,
        fixed: &BTreeSet<String>,
    ) -> Result<ScramblePlan> {
        let schema = &input.dataset.schema;
        let time = source
            .time
            .clone()
            .ok_or_else(|| Fault::internal("a source without a time has no future"))?;
        let columns: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .filter(|name| !fixed.contains(name))
            .collect();
        let request = ScanRequest {
            columns: columns.clone(),
            schema: schema.clone(),
            pruning: Vec::new(),
            batch_rows: SAMPLED_ROWS,
            row_keys: false,
        };
        let spans = &input.dataset.spans;
        let mut samples: Vec<Vec<ArrayRef>> = vec![Vec::new(); columns.len()];
        let sample_count = spans.len().min(SAMPLED_SPANS);
        for sample_number in 0..sample_count {
            // The last span is among them: there is the future.
            let span = &spans[spans.len() - 1 - sample_number * spans.len() / sample_count];
            let Some(chunk) = input.source.open(io, span, &request)?.next().transpose()? else {
                continue;
            };
            for (sample, column) in samples.iter_mut().zip(chunk.batch.columns()) {
                sample.push(cast(column, &logical_type(column.data_type()))?);
            }
        }
        let mut pools = BTreeMap::new();
        for (name, sample) in columns.into_iter().zip(samples) {
            let parts: Vec<&dyn Array> = sample.iter().map(|part| part.as_ref()).collect();
            if !parts.is_empty() {
                pools.insert(name, ValueSampler::new(&concat(&parts)?, last)?);
            }
        }
        Ok(ScramblePlan { time, last, pools })
    }

    /// The columns that it changes.
    pub fn columns(&self) -> Vec<String> {
        self.pools.keys().cloned().collect()
    }

    /// Scrambles a chunk of a span. The time column is dropped unless it was `asked` for.
    fn scramble_chunk(&self, chunk: Chunk, span: &Span, keeps_time: bool) -> Result<Chunk> {
        let Chunk {
            batch,
            keys,
            file,
            first_row,
            skipped,
            unfit,
        } = chunk;
        let schema = batch.schema();
        let time_index = schema.index_of(&self.time)?;
        let times = ticks(batch.column(time_index))?;
        // The same wherever the root of the data is.
        let relative = span
            .pieces
            .iter()
            .find(|piece| *piece.path == *file)
            .map(|piece| piece.relative.as_str());
        let seed = RowKeys::file_seed(relative.unwrap_or_default());
        let rows = RowKeys::sequence(seed, first_row, batch.num_rows());
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for (index, (field, column)) in schema.fields().iter().zip(batch.columns()).enumerate() {
            if index == time_index && !keeps_time {
                continue;
            }
            let column = match self.pools.get(field.name()) {
                None => column.clone(),
                Some(pool) => {
                    let column_seed = xxh3_64(field.name().as_bytes());
                    let each = rows.as_slice().iter().zip(&times);
                    let randoms: Vec<Option<u64>> = each
                        .map(|(row, time)| {
                            (time? > self.last)
                                .then(|| xxh3_64_with_seed(&row.to_le_bytes(), column_seed))
                        })
                        .collect();
                    pool.scramble(column, &randoms)?
                }
            };
            fields.push(Field::new(field.name(), column.data_type().clone(), true));
            columns.push(column);
        }
        let options =
            arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch =
            RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?;
        Ok(Chunk {
            batch,
            keys,
            file,
            first_row,
            skipped,
            unfit,
        })
    }
}

#[derive(Debug)]
struct ScramblingSource {
    inner: Arc<dyn Source>,
    scramble: Arc<ScramblePlan>,
}

impl SourceWrapper for ScramblingSource {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }

    fn open_span(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        let mut request = request.clone();
        // Statistics in the files describe the original values only.
        request.pruning.clear();
        if !request
            .columns
            .iter()
            .any(|name| self.scramble.pools.contains_key(name))
        {
            return self.inner.open(io, span, &request);
        }
        let keeps_time = request.columns.contains(&self.scramble.time);
        if !keeps_time {
            request.columns.push(self.scramble.time.clone());
        }
        let scramble = self.scramble.clone();
        let span_of = span.clone();
        let chunks = self.inner.open(io, span, &request)?;
        Ok(Box::new(chunks.map(move |chunk| {
            scramble.scramble_chunk(chunk?, &span_of, keeps_time)
        })))
    }
}

/// Connectors that know scrambled sources by the names of the real ones.
pub(super) struct ScramblingConnectors {
    pub inner: Arc<dyn ConnectorRegistry>,
    /// The real format, and the scrambling of its rows.
    pub sources: BTreeMap<String, (String, Arc<ScramblePlan>)>,
}

impl ConnectorRegistry for ScramblingConnectors {
    fn source(&self, format: &str, config: &Value) -> Result<Arc<dyn Source>> {
        let Some((real, scramble)) = self.sources.get(format) else {
            return self.inner.source(format, config);
        };
        Ok(Arc::new(ScramblingSource {
            inner: self.inner.source(real, config)?,
            scramble: scramble.clone(),
        }))
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

    fn trainer(&self, format: &str, config: &Value) -> Result<Arc<dyn Trainer>> {
        self.inner.trainer(format, config)
    }
}
