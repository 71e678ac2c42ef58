//! The keys of one side of a join as byte strings that are equal where the keys are.

use arrow::array::{Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use arrow::row::{RowConverter, Rows, SortField};
use arrow::util::display::array_value_to_string;
use forebay_model::{Result, canonical_keys};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Workers divide rows by the hash without a seed. The parts of a worker's rows must not depend on that hash.
const SEED: u64 = 0x6a6f_696e;

/// Key columns of a side, and the types in which they are compared.
pub struct JoinKeys {
    names: Vec<String>,
    columns: Vec<(usize, DataType)>,
    converter: RowConverter,
}

/// The keys of a batch.
pub struct EncodedKeys {
    pub rows: Rows,
    pub hashes: Vec<u64>,
    /// Rows without a null in their key; `None` if there is no null.
    valid: Option<NullBuffer>,
}

impl EncodedKeys {
    /// Whether a row's key may match.
    pub fn is_valid(&self, row: usize) -> bool {
        self.valid.as_ref().is_none_or(|valid| valid.is_valid(row))
    }
}

impl JoinKeys {
    pub fn new(schema: &Schema, keys: &[(String, DataType)]) -> Result<JoinKeys> {
        let columns = keys.iter().map(|(name, data_type)| Ok((schema.index_of(name)?, data_type.clone())));
        let fields = keys.iter().map(|(_, data_type)| SortField::new(data_type.clone())).collect();
        Ok(JoinKeys {
            names: keys.iter().map(|(name, _)| name.clone()).collect(),
            columns: columns.collect::<Result<_>>()?,
            converter: RowConverter::new(fields)?,
        })
    }

    /// The hash of an encoded key.
    pub fn hash(key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, SEED)
    }

    /// Copies some of the keys of a batch.
    pub fn copy_rows(&self, keys: &Rows, picks: &[u32]) -> Rows {
        let bytes = picks.iter().map(|row| keys.row(*row as usize).as_ref().len()).sum();
        let mut copied = self.converter.empty_rows(picks.len(), bytes);
        picks.iter().for_each(|row| copied.push(keys.row(*row as usize)));
        copied
    }

    pub fn encode(&self, batch: &RecordBatch) -> Result<EncodedKeys> {
        let mut valid = None;
        let mut columns = Vec::new();
        for (place, data_type) in &self.columns {
            let column = canonical_keys(&cast(batch.column(*place), data_type)?)?;
            valid = NullBuffer::union(valid.as_ref(), column.logical_nulls().as_ref());
            columns.push(column);
        }
        let rows = self.converter.convert_columns(&columns)?;
        let hashes = rows.iter().map(|key| Self::hash(key.as_ref())).collect();
        Ok(EncodedKeys { rows, hashes, valid })
    }

    /// The key of a row, for a fault.
    pub fn text(&self, batch: &RecordBatch, row: usize) -> String {
        let value = |place: usize| array_value_to_string(batch.column(place), row).unwrap_or_default();
        let named =
            self.names.iter().zip(&self.columns).map(|(name, (place, _))| format!("{name} = {}", value(*place)));
        named.collect::<Vec<_>>().join(", ")
    }
}
