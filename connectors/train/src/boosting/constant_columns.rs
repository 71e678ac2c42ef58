//! Columns from which trees learn nothing.

use forebay_feed::FeatureField;
use forebay_model::Result;

use super::learn_rows::LearnRows;
use super::table::number_index;

/// A column that has one value in all rows so far.
struct ConstantColumn<'f, T> {
    name: &'f str,
    /// Index among the numbers of a row, or among its ids.
    index: usize,
    /// `None` before the first row.
    value: Option<T>,
}

impl<T: Copy> ConstantColumn<'_, T> {
    /// True if the column has the same value in more rows, of `width` values each.
    fn continues(&mut self, values: &[T], width: usize, equals: fn(T, T) -> bool) -> bool {
        let first = self.value.or_else(|| values.get(self.index).copied());
        self.value = first;
        let Some(first) = first else {
            return false;
        };
        let mut column = values.iter().skip(self.index).step_by(width);
        column.all(|value| equals(*value, first))
    }
}

/// Names of single columns with one value in all rows, or none in any: numbers, then ids. A table of one row has no such
/// columns.
pub fn constant_columns<'f>(
    rows: &dyn LearnRows,
    dense: &'f [FeatureField],
    categorical: &'f [FeatureField],
) -> Result<Vec<&'f str>> {
    if rows.rows() < 2 {
        return Ok(Vec::new());
    }
    let mut numbers = single_columns::<f32>(dense);
    let mut ids = single_columns::<i32>(categorical);
    rows.for_each_block(&mut |_, block| {
        numbers.retain_mut(|column| column.continues(&block.dense, block.numbers, equal_numbers));
        ids.retain_mut(|column| column.continues(&block.categories, block.ids, equal_ids));
        Ok(())
    })?;
    let numbers = numbers.iter().map(|column| column.name);
    let ids = ids.iter().map(|column| column.name);
    Ok(numbers.chain(ids).collect())
}

fn single_columns<T>(fields: &[FeatureField]) -> Vec<ConstantColumn<'_, T>> {
    let mut columns = Vec::new();
    for field in fields {
        if let Some(index) = number_index(fields, &field.column) {
            columns.push(ConstantColumn {
                name: &field.column,
                index,
                value: None,
            });
        }
    }
    columns
}

fn equal_numbers(a: f32, b: f32) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

fn equal_ids(a: i32, b: i32) -> bool {
    a == b
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boosting::table::FeatureTable;

    #[test]
    fn columns_with_one_value_are_named() {
        let fields = |names: &[&str]| -> Vec<FeatureField> {
            names.iter().map(|name| FeatureField::new(*name)).collect()
        };
        let dense = fields(&["price", "zero", "none"]);
        let categorical = fields(&["shop", "item"]);
        let table = FeatureTable {
            dense: vec![1.0, 0.0, f32::NAN, 2.0, -0.0, f32::NAN],
            categories: vec![3, 1, 3, 2],
            labels: vec![0.0, 1.0],
            ..FeatureTable::new(3, 2)
        };
        let constant = constant_columns(&table, &dense, &categorical).unwrap();
        assert_eq!(constant, ["zero", "none", "shop"]);
        let one_row = FeatureTable {
            dense: vec![1.0, 0.0, 1.0],
            categories: vec![3, 1],
            labels: vec![0.0],
            ..FeatureTable::new(3, 2)
        };
        let constant = constant_columns(&one_row, &dense, &categorical).unwrap();
        assert!(constant.is_empty());
    }
}
