//! All rows of a small table, kept in memory for joins.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow::row::{RowConverter, SortField};
use forebay_model::{Analyzer, Decoder, Encoder, Fault, Finding, Input, Result, Scratch, codes, logical_type};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

/// Every row of some columns, in row order. The finding is the whole table; it has to fit the
/// state's budget, else the run stops and says so.
#[derive(Debug, Clone)]
pub struct Collect {
    /// Names and types of the columns, in the order in which they are asked.
    pub columns: Vec<(String, DataType)>,
}

/// What [`Collect`] knows: the rows.
pub struct CollectState {
    batches: Vec<RecordBatch>,
    bytes: usize,
    budget_bytes: usize,
}

impl Collect {
    fn schema(&self) -> SchemaRef {
        let fields = self.columns.iter().map(|(name, data_type)| Field::new(name, logical_type(data_type), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn push(&self, state: &mut CollectState, batch: RecordBatch) -> Result<()> {
        let bytes: usize =
            batch.columns().iter().map(|column| column.to_data().get_slice_memory_size()).sum::<Result<_, _>>()?;
        state.bytes += bytes;
        if state.bytes > state.budget_bytes {
            let message = format!("the table to join holds more than {} bytes", state.budget_bytes);
            return Err(Fault::new(codes::MEMORY, message)
                .hint("raise `--memory`, select fewer of its columns, or join by a SQL query"));
        }
        if batch.num_rows() > 0 {
            state.batches.push(batch);
        }
        Ok(())
    }
}

impl Analyzer for Collect {
    type State = CollectState;

    fn kind(&self) -> &'static str {
        "collect"
    }

    fn config(&self) -> Value {
        let columns = self.columns.iter().map(|(name, data_type)| json!([name, logical_type(data_type).to_string()]));
        json!({ "columns": columns.collect::<Vec<_>>() })
    }

    fn order_free(&self) -> bool {
        false
    }

    fn zero(&self, scratch: &Arc<dyn Scratch>) -> Result<CollectState> {
        Ok(CollectState { batches: Vec::new(), bytes: 0, budget_bytes: scratch.budget_bytes() })
    }

    fn update(&self, state: &mut CollectState, input: &Input<'_>) -> Result<()> {
        let schema = self.schema();
        let columns = input.columns.iter().zip(schema.fields());
        let columns =
            columns.map(|(column, field)| canonical(column, field.data_type())).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(input.rows));
        self.push(state, RecordBatch::try_new_with_options(schema, columns, &options)?)
    }

    fn merge(&self, state: &mut CollectState, later: CollectState) -> Result<()> {
        later.batches.into_iter().try_for_each(|batch| self.push(state, batch))
    }

    fn encode(&self, state: &mut CollectState, out: &mut dyn Write) -> Result<()> {
        // One batch, whatever came in how many; its buffers hold nothing but the values.
        let whole = concat_batches(&self.schema(), &state.batches)?;
        let columns = whole.columns().iter().map(|column| canonical(column, column.data_type()));
        let options = RecordBatchOptions::new().with_row_count(Some(whole.num_rows()));
        let whole = RecordBatch::try_new_with_options(self.schema(), columns.collect::<Result<_>>()?, &options)?;
        state.batches = vec![whole.clone()];
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, &self.schema())?;
        writer.write(&whole)?;
        writer.finish()?;
        drop(writer);
        let mut out = Encoder(out);
        out.u64(xxh3_64(&bytes))?;
        out.bytes(&bytes)
    }

    fn decode(&self, input: &mut dyn Read, scratch: &Arc<dyn Scratch>) -> Result<CollectState> {
        let fault = || Fault::new(codes::CORRUPT, "a state holds rows that cannot be read");
        let corrupt = |error| fault().cause(error);
        let mut state = Analyzer::zero(self, scratch)?;
        // Arrow's reader panics on bytes that are damaged, so they are checked before.
        let hash = Decoder(input).u64()?;
        let length = Decoder(input).length(isize::MAX as usize)?;
        let mut bytes = Vec::new();
        input.take(length as u64).read_to_end(&mut bytes).map_err(|error| fault().cause(error))?;
        if bytes.len() != length || xxh3_64(&bytes) != hash {
            return Err(fault());
        }
        let reader = StreamReader::try_new(bytes.as_slice(), None).map_err(corrupt)?;
        if reader.schema() != self.schema() {
            return Err(Fault::new(codes::CORRUPT, "a state holds rows of other columns"));
        }
        for batch in reader {
            self.push(&mut state, batch.map_err(corrupt)?)?;
        }
        Ok(state)
    }

    fn finish(&self, state: CollectState) -> Result<Finding> {
        Ok(Finding::new(concat_batches(&self.schema(), &state.batches)?))
    }

    fn size_bytes(&self, state: &CollectState) -> usize {
        state.bytes
    }
}

/// The column in its logical type, with nothing in its buffers but its values: what lies under a
/// null is not the same in every layout.
fn canonical(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef> {
    let column = if column.data_type() == wanted { column } else { &cast(column, wanted)? };
    match wanted {
        DataType::Boolean if column.null_count() == 0 => {
            let bits: Vec<bool> = column.as_boolean().values().iter().collect();
            Ok(Arc::new(BooleanArray::from(bits)))
        }
        other if column.null_count() > 0 || other.is_nested() => {
            let converter = RowConverter::new(vec![SortField::new(wanted.clone())])?;
            let rows = converter.convert_columns(std::slice::from_ref(column))?;
            let mut columns = converter.convert_rows(&rows)?;
            columns.pop().ok_or_else(|| Fault::internal("a column was lost"))
        }
        _ => Ok(column.clone()),
    }
}
