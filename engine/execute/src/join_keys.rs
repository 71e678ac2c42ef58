//! The keys of rows as byte strings that are equal where the keys are.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use arrow::row::{RowConverter, Rows, SortField};
use forebay_model::{Fault, Result, canonical_keys};
use forebay_plan::{JoinOp, key_text};
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
    /// True if a row's key may match.
    pub fn is_valid(&self, row: usize) -> bool {
        self.valid.as_ref().is_none_or(|valid| valid.is_valid(row))
    }
}

impl JoinKeys {
    pub fn new(schema: &Schema, keys: &[(String, DataType)]) -> Result<JoinKeys> {
        let columns = keys
            .iter()
            .map(|(name, data_type)| Ok((schema.index_of(name)?, data_type.clone())));
        let fields = keys
            .iter()
            .map(|(_, data_type)| SortField::new(data_type.clone()))
            .collect();
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
        let bytes = picks
            .iter()
            .map(|row| keys.row(*row as usize).as_ref().len())
            .sum();
        let mut copied = self.converter.empty_rows(picks.len(), bytes);
        picks
            .iter()
            .for_each(|row| copied.push(keys.row(*row as usize)));
        copied
    }

    /// True if there is no key column.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The key columns of a batch, in the types in which they are compared, with one form of each value.
    fn columns_of(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let column = |(index, data_type): &(usize, DataType)| {
            canonical_keys(&cast(batch.column(*index), data_type)?)
        };
        self.columns.iter().map(column).collect()
    }

    /// The keys of a batch, nulls among them.
    pub fn rows(&self, batch: &RecordBatch) -> Result<Rows> {
        Ok(self.converter.convert_columns(&self.columns_of(batch)?)?)
    }

    /// The keys of a batch, their hashes, and which of them may match.
    pub fn encode(&self, batch: &RecordBatch) -> Result<EncodedKeys> {
        let columns = self.columns_of(batch)?;
        let valid = columns
            .iter()
            .fold(None, |valid: Option<NullBuffer>, column| {
                NullBuffer::union(valid.as_ref(), column.logical_nulls().as_ref())
            });
        let rows = self.converter.convert_columns(&columns)?;
        let hashes = rows.iter().map(|key| Self::hash(key.as_ref())).collect();
        Ok(EncodedKeys {
            rows,
            hashes,
            valid,
        })
    }

    /// The key of a row, for a fault.
    pub fn text(&self, batch: &RecordBatch, row: usize) -> String {
        key_text(
            self.names
                .iter()
                .map(String::as_str)
                .zip(self.columns.iter().map(|(index, _)| batch.column(*index))),
            row,
        )
    }
}

/// Keys of one side, with the types in which they are compared.
type TypedKeys = Vec<(String, DataType)>;

/// The keys of both sides of a join, with the types in which they are compared.
pub fn typed_join_keys(
    join: &JoinOp,
    own_schema: &Schema,
    other_schema: &Schema,
) -> Result<(TypedKeys, TypedKeys)> {
    let key_pairs = join.keys.iter().map(|(own_key, other)| {
        let types = (
            own_schema.field_with_name(own_key)?.data_type(),
            other_schema.field_with_name(other)?.data_type(),
        );
        let common = JoinOp::key_type(types.0, types.1);
        let common =
            common.ok_or_else(|| Fault::internal("keys of a join that cannot be compared"))?;
        Ok(((own_key.clone(), common.clone()), (other.clone(), common)))
    });
    Ok(key_pairs.collect::<Result<Vec<_>>>()?.into_iter().unzip())
}

pub fn distinct<'n>(names: impl IntoIterator<Item = &'n String>) -> Vec<String> {
    let mut columns: Vec<String> = Vec::new();
    for name in names {
        if !columns.contains(name) {
            columns.push(name.clone());
        }
    }
    columns
}
