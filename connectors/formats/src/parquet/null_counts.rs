//! Nulls that footers count.

use arrow::datatypes::{FieldRef, Fields, Schema};
use forebay_model::{FileContent, FileRange, IdBuilder, NameIndex};
use parquet::file::metadata::ParquetMetaData;

use super::notes::FooterSummary;

/// Nulls of each column of a file. Footers count them for plain columns only: a list has fewer nulls than its values.
pub(super) fn null_counts(metadata: &ParquetMetaData, fields: &Fields) -> Vec<Option<u64>> {
    let stored = metadata.file_metadata().schema_descr();
    let mut leaves = vec![None; fields.len()];
    let index = NameIndex::of_fields(fields);
    for leaf in 0..stored.num_columns() {
        let column = stored.column(leaf);
        if let Some(position) = index.get(stored.get_column_root(leaf).name())
            && !fields[position].data_type().is_nested()
            && column.max_rep_level() == 0
        {
            leaves[position] = Some(leaf);
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

/// Total number of nulls of each column of some files. A file without a column has nulls in all of
/// its rows there.
pub(super) fn merged_null_counts<'f>(
    files: impl Iterator<Item = &'f FooterSummary>,
    schema: &Schema,
) -> Vec<Option<u64>> {
    let mut totals = vec![Some(0); schema.fields().len()];
    for file in files {
        let index = NameIndex::of_fields(&file.fields);
        for (total, field) in totals.iter_mut().zip(schema.fields()) {
            let nulls = match index.get(field.name()) {
                Some(position) => file.nulls.get(position).copied().flatten(),
                None => Some(file.groups.iter().map(|group| group.rows).sum()),
            };
            *total = total
                .zip(nulls)
                .map(|(total, nulls): (u64, u64)| total + nulls);
        }
    }
    totals
}

/// The content of a file as its footer describes it. A file has nulls in all rows of a column that
/// it lacks; the values of `partitions` are those of folders.
pub(super) fn file_content(
    piece: &FileRange,
    facts: &FooterSummary,
    schema: &Schema,
    partitions: &[FieldRef],
) -> FileContent {
    let rows: u64 = facts.groups.iter().map(|group| group.rows).sum();
    let index = NameIndex::of_fields(&facts.fields);
    let mut empty_columns = Vec::new();
    for (column, field) in schema.fields().iter().enumerate() {
        let is_of_folders = partitions
            .iter()
            .any(|partition| partition.name() == field.name());
        let nulls = match index.get(field.name()) {
            Some(position) => facts.nulls.get(position).copied().flatten(),
            None => Some(rows),
        };
        if rows > 0 && !is_of_folders && nulls == Some(rows) {
            empty_columns.push(column);
        }
    }
    let mut digest = IdBuilder::new("file content");
    digest
        .id(facts.footer)
        .bytes(&facts.opened.size.to_le_bytes());
    FileContent {
        path: piece.path.clone(),
        digest: digest.finish(),
        empty_columns,
    }
}
