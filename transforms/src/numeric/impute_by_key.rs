//! Missing values of a key, filled by a number of its other values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Float64Array};
use arrow::compute::cast;
use arrow::compute::kernels::zip::zip;
use arrow::datatypes::{DataType, Field};
use forebay_contract::NumberExpr;
use forebay_model::{Fault, Result};
use forebay_plan::{AnalyzerRequest, LoweredMap, MapOp, WrittenNulls};

use super::missing_indicator::missing_mask;
use crate::shared::{KeyIndex, doubles, finding_at, portable_by_keys};

/// A number of each key, and that of all rows.
pub(super) struct KeyNumberRequests {
    pub by_key: AnalyzerRequest,
    /// The column of the number in the finding of the keys.
    pub key_number: &'static str,
    pub total: AnalyzerRequest,
    /// The column of the number in the finding of all rows.
    pub total_number: &'static str,
}

/// Fills a column by the number of each row's key, else by that of all rows. `reads` are the column and its keys.
pub(super) fn fill_by_key(reads: Vec<String>, output: Field, requests: KeyNumberRequests) -> MapOp {
    let key_count = reads.len().saturating_sub(1);
    let fits = output.data_type().clone();
    let KeyNumberRequests {
        by_key,
        key_number,
        total,
        total_number,
    } = requests;
    let map = MapOp::fitted(reads, [output], [by_key, total], move |findings| {
        let keyed = finding_at(findings, 0)?;
        let key_columns = keyed.table().columns()[..key_count].to_vec();
        let numbers = Arc::new(KeyNumbers {
            index: KeyIndex::new(&key_columns, |_, _| Ok(()))?,
            numbers: doubles(keyed.column(key_number)?)?,
            total: finding_at(findings, 1)?.number(total_number)?,
        });
        let numbers_of_keys = numbers.clone();
        let fits = fits.clone();
        let is_portable = fits.is_floating();
        let filled = LoweredMap::new(move |inputs, _| {
            let Some((column, keys)) = inputs.split_first() else {
                return Err(Fault::internal("there is no column to fill"));
            };
            Ok(vec![numbers.fill(column, keys, &fits)?])
        });
        if !is_portable {
            return Ok(filled);
        }
        Ok(filled.portable_within_limits(move || {
            let mut expressions = Vec::with_capacity(numbers_of_keys.numbers.len());
            for row in 0..numbers_of_keys.numbers.len() {
                expressions.push(filled_with(numbers_of_keys.of_key(Some(row as u32))));
            }
            portable_by_keys(
                &key_columns,
                expressions,
                filled_with(numbers_of_keys.total),
            )
        }))
    });
    map.written_nulls(WrittenNulls::Filled)
}

/// A number in the place of missing ones, in terms that exports have. Without a number, they stay missing.
fn filled_with(number: Option<f64>) -> NumberExpr {
    NumberExpr::Input.coalesce(number.unwrap_or(f64::NAN))
}

/// Learned numbers, null or `None` where nothing was seen.
struct KeyNumbers {
    index: KeyIndex,
    numbers: Float64Array,
    total: Option<f64>,
}

impl KeyNumbers {
    /// The number that fills a missing value of a key.
    fn of_key(&self, row: Option<u32>) -> Option<f64> {
        let row = row.map(|row| row as usize);
        let row = row.filter(|row| self.numbers.is_valid(*row));
        row.map_or(self.total, |row| Some(self.numbers.value(row)))
    }

    fn fill(&self, column: &ArrayRef, keys: &[ArrayRef], fits: &DataType) -> Result<ArrayRef> {
        let column = cast(column, fits)?;
        let missing = missing_mask(&column)?;
        if missing.true_count() == 0 {
            return Ok(column);
        }
        let key_rows = self.index.find(keys)?;
        let fills: Float64Array = key_rows.into_iter().map(|row| self.of_key(row)).collect();
        // A missing value without a number stays as it is.
        let is_filled: Vec<bool> = missing
            .values()
            .iter()
            .enumerate()
            .map(|(row, is_missing)| is_missing && fills.is_valid(row))
            .collect();
        let fills = cast(&fills, fits)?;
        Ok(zip(&BooleanArray::from(is_filled), &fills, &column)?)
    }
}
