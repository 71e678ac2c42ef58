//! `explode`: one row for each element of a list.

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, UInt64Array};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field};
use forebay_model::{Fault, Result, codes, column_bytes, type_words};
use forebay_plan::{
    BindScope, ConfiguredTransform, ExpandOp, ExpandedRows, PlanOp, Transform, admit_output,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::shared::element_field;

/// Bytes of the positions of a new row: of its row, and of its element before and behind a conversion.
const ROW_BYTES: usize = size_of::<u32>() + 2 * size_of::<Option<u64>>();

/// One row for each element of a list, in order; all other columns are repeated.
///
/// In: a column of lists. Out: the column with the elements' type. Null elements stay. A row whose
/// list is null or empty goes, or stays with null where `keep_empty` is set; the change in the
/// number of rows is counted as `expanded`. Learns nothing. Follows Spark's `explode` and
/// `explode_outer`.
///
/// ```yaml
/// - explode: { column: tags }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn explode(column), example = r#"explode("items").keep_empty(true)"#)]
pub struct Explode {
    /// The column of lists.
    pub column: String,
    /// Keeps rows whose list is null or empty, with null as the element.
    #[serde(default)]
    pub keep_empty: bool,
}

impl ConfiguredTransform for Explode {
    const NAME: &'static str = "explode";
}

impl Transform for Explode {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let field = scope.field(&self.column)?;
        let Some(element) = element_field(field.data_type()) else {
            let message = format!(
                "`{}` is {}, not a list",
                field.name(),
                type_words(field.data_type())
            );
            return Err(Fault::new(codes::COLUMN_TYPE, message).column(field.name()));
        };
        let keep_empty = self.keep_empty;
        let nullable = element.is_nullable() || keep_empty;
        let output = Field::new(
            field.name(),
            forebay_model::logical_type(element.data_type()),
            nullable,
        );
        Ok(vec![PlanOp::Expand(ExpandOp {
            reads: vec![field.name().clone()],
            writes: vec![output],
            kernel: Arc::new(move |inputs, _| {
                let column = inputs
                    .first()
                    .ok_or_else(|| Fault::internal("a list to explode is missing"))?;
                explode_list(column, keep_empty)
            }),
        })])
    }
}

fn explode_list(column: &ArrayRef, keep_empty: bool) -> Result<ExpandedRows> {
    let element = element_field(column.data_type()).ok_or_else(|| Fault::internal("not a list"))?;
    let list = DataType::LargeList(Arc::new(element.clone()));
    let column = if *column.data_type() == list {
        column
    } else {
        &cast(column, &list)?
    };
    let lists = column.as_list::<i64>();
    // A part of a column has all values of the column.
    let offsets = lists.value_offsets();
    let first = offsets.first().copied().unwrap_or(0);
    let items = (offsets.last().copied().unwrap_or(first) - first) as usize;
    let rows_max = items.saturating_add(lists.len());
    let values_bytes = column_bytes(lists.values().slice(first as usize, items).as_ref());
    admit_output(
        rows_max
            .saturating_mul(ROW_BYTES)
            .saturating_add(values_bytes),
    )?;
    let mut picks: Vec<u32> = Vec::with_capacity(rows_max);
    let mut elements: Vec<Option<u64>> = Vec::with_capacity(rows_max);
    for (row, ends) in lists.offsets().windows(2).enumerate() {
        let first_pick = picks.len();
        if lists.is_valid(row) {
            elements.extend((ends[0] as u64..ends[1] as u64).map(Some));
            picks.resize(elements.len(), row as u32);
        }
        if keep_empty && picks.len() == first_pick {
            picks.push(row as u32);
            elements.push(None);
        }
    }
    let column = take(lists.values(), &UInt64Array::from(elements), None)?;
    Ok(ExpandedRows {
        picks: UInt32Array::from(picks),
        columns: vec![column],
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray};
    use arrow::buffer::OffsetBuffer;

    use super::*;

    #[test]
    fn a_part_of_a_column_explodes_its_own_lists() {
        let item = Arc::new(Field::new_list_field(DataType::Int64, true));
        let offsets = OffsetBuffer::from_lengths([2, 0, 3]);
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4, 5]));
        let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, values, None));
        let exploded = explode_list(&lists.slice(1, 2), true).unwrap();
        assert_eq!(exploded.picks.values(), &[0, 1, 1, 1]);
        let expected = Int64Array::from(vec![None, Some(3), Some(4), Some(5)]);
        assert_eq!(exploded.columns[0].as_ref(), &expected as &dyn Array);
    }

    #[test]
    fn lists_beyond_any_memory_are_refused_before_they_are_copied() {
        // A run without a limit refuses more than a GiB.
        let item = Arc::new(Field::new_list_field(DataType::Null, true));
        let values: ArrayRef = Arc::new(arrow::array::NullArray::new(100_000_000));
        let offsets = OffsetBuffer::from_lengths([100_000_000]);
        let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, values, None));
        let fault = explode_list(&lists, false).map(drop).unwrap_err();
        assert_eq!(fault.code(), codes::MEMORY);
    }
}
