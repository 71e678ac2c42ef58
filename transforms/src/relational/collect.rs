//! All rows of a small table, kept in memory for joins.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow::row::{RowConverter, SortField};
use forebay_model::{
    AdmittedMemory, Analyzer, AnalyzerInput, Fault, Finding, MemoryRequest, Result, ScratchSpace,
    StateDecoder, StateEncoder, codes, is_unsized_vector, logical_type,
};
use serde_json::{Value, json};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Bytes of a stored state that are read at a time. Smaller states do not ask for memory.
const DECODED_BLOCK_BYTES: usize = 4 << 20;

/// Every row of some columns, in row order. The finding is the whole table; it has to fit the
/// state's budget, else the run stops and says so.
#[derive(Debug, Clone)]
pub struct CollectRows {
    /// Names and types of the columns, in the order in which they are asked.
    pub columns: Vec<(String, DataType)>,
}

/// State of [`CollectRows`]: the rows.
pub struct CollectState {
    batches: Vec<RecordBatch>,
    bytes: usize,
    scratch: Arc<dyn ScratchSpace>,
}

impl CollectState {
    /// The columns of the rows, or those that were declared where there is none.
    fn schema(&self, of: &CollectRows) -> SchemaRef {
        self.batches
            .first()
            .map_or_else(|| of.schema(), RecordBatch::schema)
    }
}

/// The type of a column that comes with this one: a vector's width may have been learned.
fn resolved_type(declared: &Field, actual: &DataType) -> DataType {
    if is_unsized_vector(declared.data_type()) {
        logical_type(actual)
    } else {
        declared.data_type().clone()
    }
}

impl CollectRows {
    fn schema(&self) -> SchemaRef {
        let fields = self
            .columns
            .iter()
            .map(|(name, data_type)| Field::new(name, logical_type(data_type), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// The columns as they come: the width of a vector is known once it has been learned.
    fn schema_of(&self, columns: &[ArrayRef]) -> SchemaRef {
        let declared = self.schema();
        let fields = declared.fields().iter().zip(columns);
        let fields = fields.map(|(field, column)| {
            field
                .as_ref()
                .clone()
                .with_data_type(resolved_type(field, column.data_type()))
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// True if stored columns are these.
    fn matches_schema(&self, stored: &Schema) -> bool {
        let declared = self.schema();
        let same = |(declared_field, stored): (&Arc<Field>, &Arc<Field>)| {
            declared_field.name() == stored.name()
                && resolved_type(declared_field, stored.data_type()) == *stored.data_type()
        };
        declared.fields().len() == stored.fields().len()
            && declared.fields().iter().zip(stored.fields()).all(same)
    }

    fn append_batch(&self, state: &mut CollectState, batch: RecordBatch) -> Result<()> {
        let bytes: usize = batch
            .columns()
            .iter()
            .map(|column| column.to_data().get_slice_memory_size())
            .sum::<Result<_, _>>()?;
        state.bytes += bytes;
        let budget_bytes = state.scratch.budget_bytes();
        if state.bytes > budget_bytes {
            let message = format!("the table to join holds more than {budget_bytes} bytes");
            return Err(Fault::new(codes::MEMORY, message).hint(
                "raise `--memory`, select fewer of its columns, or set `strategy: shuffle`",
            ));
        }
        if batch.num_rows() > 0 {
            state.batches.push(batch);
        }
        Ok(())
    }
}

impl Analyzer for CollectRows {
    type State = CollectState;

    fn kind(&self) -> &'static str {
        "collect"
    }

    fn config(&self) -> Value {
        let columns = self
            .columns
            .iter()
            .map(|(name, data_type)| json!([name, logical_type(data_type).to_string()]));
        json!({ "columns": columns.collect::<Vec<_>>() })
    }

    fn order_free(&self) -> bool {
        false
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<CollectState> {
        Ok(CollectState {
            batches: Vec::new(),
            bytes: 0,
            scratch: scratch.clone(),
        })
    }

    fn update(&self, state: &mut CollectState, input: &AnalyzerInput<'_>) -> Result<()> {
        let schema = self.schema_of(input.columns);
        let columns = input.columns.iter().zip(schema.fields());
        let columns = columns
            .map(|(column, field)| canonical_column(column, field.data_type()))
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(input.rows));
        self.append_batch(
            state,
            RecordBatch::try_new_with_options(schema, columns, &options)?,
        )
    }

    fn merge(&self, state: &mut CollectState, later_state: CollectState) -> Result<()> {
        for batch in later_state.batches {
            self.append_batch(state, batch)?;
        }
        Ok(())
    }

    fn encode(&self, state: &mut CollectState, out: &mut dyn Write) -> Result<()> {
        // The rows in one piece now; then the join's index of them, and the artifact's copy.
        let _admitted = state.scratch.admit(MemoryRequest {
            now: 2 * state.bytes,
            later: 2 * state.bytes,
        })?;
        // One batch, whatever came in how many; its buffers hold nothing but the values.
        let schema = state.schema(self);
        let whole = concat_batches(&schema, &state.batches)?;
        let columns = whole
            .columns()
            .iter()
            .map(|column| canonical_column(column, column.data_type()));
        let options = RecordBatchOptions::new().with_row_count(Some(whole.num_rows()));
        let whole = RecordBatch::try_new_with_options(
            schema.clone(),
            columns.collect::<Result<_>>()?,
            &options,
        )?;
        state.batches = vec![whole.clone()];
        let write = |out: &mut dyn Write| -> Result<()> {
            let mut writer = StreamWriter::try_new(out, &schema)?;
            writer.write(&whole)?;
            Ok(writer.finish()?)
        };
        // Written twice, as a copy of all rows is more than there may be memory for.
        let mut digest = DigestWriter::default();
        write(&mut digest)?;
        let mut encoder = StateEncoder(out);
        encoder.u64(digest.hash.digest())?;
        encoder.varint(digest.bytes)?;
        write(encoder.0)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<CollectState> {
        let fault = || Fault::new(codes::CORRUPT, "a state holds rows that cannot be read");
        let corrupt = |error| fault().cause(error);
        let mut state = Analyzer::zero(self, scratch)?;
        // Arrow's reader panics on bytes that are damaged, so they are checked before.
        let hash = StateDecoder(input).u64()?;
        let length = StateDecoder(input).length(isize::MAX as usize)?;
        let mut bytes = Vec::new();
        let mut admitted = AdmittedMemory::default();
        // The length may be damaged: memory is asked for as the bytes come.
        while bytes.len() < length {
            let block = DECODED_BLOCK_BYTES.min(length - bytes.len());
            if bytes.capacity() < bytes.len() + block {
                let grown = length.min(2 * (bytes.len() + block));
                let request = MemoryRequest {
                    now: grown,
                    later: 0,
                };
                if grown > DECODED_BLOCK_BYTES {
                    admitted.renew(|| scratch.admit(request))?;
                }
                bytes.reserve_exact(grown - bytes.len());
            }
            let read = (&mut *input).take(block as u64).read_to_end(&mut bytes);
            if read.map_err(|error| fault().cause(error))? < block {
                break;
            }
        }
        if bytes.len() != length || xxh3_64(&bytes) != hash {
            return Err(fault());
        }
        let reader = StreamReader::try_new(bytes.as_slice(), None).map_err(corrupt)?;
        if !self.matches_schema(&reader.schema()) {
            return Err(Fault::new(
                codes::CORRUPT,
                "a state holds rows of other columns",
            ));
        }
        for batch in reader {
            self.append_batch(&mut state, batch.map_err(corrupt)?)?;
        }
        Ok(state)
    }

    fn finish(&self, state: CollectState) -> Result<Finding> {
        Ok(Finding::new(concat_batches(
            &state.schema(self),
            &state.batches,
        )?))
    }

    fn size_bytes(&self, state: &CollectState) -> usize {
        state.bytes
    }
}

/// The hash and the length of what is written.
#[derive(Default)]
struct DigestWriter {
    hash: Xxh3,
    bytes: u64,
}

impl Write for DigestWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The column in its logical type, with nothing in its buffers but its values: what lies under a
/// null is not the same in every layout.
fn canonical_column(column: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    let column = if column.data_type() == target {
        column
    } else {
        &cast(column, target)?
    };
    match target {
        DataType::Boolean if column.null_count() == 0 => {
            let bits: Vec<bool> = column.as_boolean().values().iter().collect();
            Ok(Arc::new(BooleanArray::from(bits)))
        }
        other if column.null_count() > 0 || other.is_nested() => {
            let converter = RowConverter::new(vec![SortField::new(target.clone())])?;
            let rows = converter.convert_columns(std::slice::from_ref(column))?;
            let mut columns = converter.convert_rows(&rows)?;
            columns
                .pop()
                .ok_or_else(|| Fault::internal("a column was lost"))
        }
        _ => Ok(column.clone()),
    }
}
