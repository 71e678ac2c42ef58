//! Nulls that footers count.

use arrow::datatypes::{Fields, Schema};
use parquet::file::metadata::ParquetMetaData;

use super::notes::FooterSummary;

/// Nulls of each column of a file. Footers count them for plain columns only: a list has fewer nulls than its values.
pub(super) fn null_counts(metadata: &ParquetMetaData, fields: &Fields) -> Vec<Option<u64>> {
    let stored = metadata.file_metadata().schema_descr();
    let mut leaves = vec![None; fields.len()];
    for leaf in 0..stored.num_columns() {
        let column = stored.column(leaf);
        let found = fields.find(stored.get_column_root(leaf).name());
        if let Some((place, field)) = found
            && !field.data_type().is_nested()
            && column.max_rep_level() == 0
        {
            leaves[place] = Some(leaf);
        }
    }
    let of_leaf = |leaf: usize| {
        let groups = metadata.row_groups().iter();
        let counts = groups.map(|group| {
            if group.num_rows() == 0 {
                return Some(0);
            }
            group.column(leaf).statistics()?.null_count_opt()
        });
        counts.sum()
    };
    leaves
        .into_iter()
        .map(|leaf| leaf.and_then(of_leaf))
        .collect()
}

/// Nulls of each column of some files together. A file without a column has nulls in all of its rows there.
pub(super) fn merged_null_counts<'f>(
    files: impl Iterator<Item = &'f FooterSummary> + Clone,
    schema: &Schema,
) -> Vec<Option<u64>> {
    let of_file = |file: &FooterSummary, column: &str| match file.fields.find(column) {
        Some((place, _)) => file.nulls.get(place).copied().flatten(),
        None => Some(file.groups.iter().map(|group| group.rows).sum()),
    };
    let of_column = |column: &str| files.clone().map(|file| of_file(file, column)).sum();
    schema
        .fields()
        .iter()
        .map(|field| of_column(field.name()))
        .collect()
}
