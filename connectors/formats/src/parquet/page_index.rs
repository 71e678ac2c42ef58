//! Parts of row groups, by the index of their pages.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use forebay_model::{Fault, Result};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader,
    RowGroupMetaData,
};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::schema::types::{SchemaDescriptor, Type};

use super::file_chunk_reader::FileChunkReader;
use super::footer::Footer;
use super::page_index_cache::IndexedRowGroup;
use crate::guard::catch_decode_panic;

/// Bytes of the index of one row group that are read at most. A file that claims more is read without its index.
const INDEX_BYTES_MAX: u64 = 16 << 20;

/// True if a file has the positions of the pages of these stored columns. Pages then begin with
/// whole rows.
pub(super) fn has_page_index(group: &RowGroupMetaData, leaves: &[usize]) -> bool {
    leaves
        .iter()
        .all(|leaf| index_range(group, *leaf).is_some())
}

fn index_range(group: &RowGroupMetaData, leaf: usize) -> Option<Range<u64>> {
    let column = group.column(leaf);
    let start = u64::try_from(column.offset_index_offset()?).ok()?;
    let length = u64::try_from(column.offset_index_length()?)
        .ok()
        .filter(|length| *length > 0)?;
    Some(start..start.checked_add(length)?)
}

/// Reads where the pages of stored columns of a row group lie.
pub(super) fn read_page_index(
    file: &FileChunkReader<'_>,
    footer: &Footer,
    group: usize,
    leaves: &[usize],
) -> Result<IndexedRowGroup> {
    let whole = footer.metadata.row_group(group);
    let ranges: Option<Vec<Range<u64>>> = leaves
        .iter()
        .map(|leaf| index_range(whole, *leaf))
        .collect();
    let Some(ranges) = ranges.filter(|ranges| !ranges.is_empty()) else {
        return Ok(None);
    };
    let start = ranges.iter().map(|range| range.start).min().unwrap_or(0);
    let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
    if end - start > INDEX_BYTES_MAX || end > file.size {
        return Ok(None);
    }
    let read = catch_decode_panic::<_, ParquetError>(|| {
        let mut reader =
            ParquetMetaDataReader::new_with_metadata(narrowed_metadata(footer, group, leaves)?)
                .with_column_index_policy(PageIndexPolicy::Skip)
                .with_offset_index_policy(PageIndexPolicy::Required);
        reader.read_page_indexes(file)?;
        reader.finish()
    });
    match read {
        Ok(metadata) if is_sound(&metadata) => Ok(Some(Arc::new(metadata))),
        // What cannot be understood is done without.
        Err(ParquetError::External(error)) => match error.downcast::<Fault>() {
            Ok(fault) => Err(*fault),
            Err(_) => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Metadata of a file, reduced to some columns of one row group.
fn narrowed_metadata(
    footer: &Footer,
    group: usize,
    leaves: &[usize],
) -> parquet::errors::Result<ParquetMetaData> {
    let stored = footer.metadata.file_metadata();
    let whole = footer.metadata.row_group(group);
    let schema = stored.schema_descr();
    let fields = schema.root_schema().get_fields();
    let fields = wanted_roots(footer, leaves)
        .into_iter()
        .map(|root| fields[root].clone())
        .collect();
    let root = Type::group_type_builder(schema.root_schema().name())
        .with_fields(fields)
        .build()?;
    let schema = Arc::new(SchemaDescriptor::new(Arc::new(root)));
    let columns = leaves
        .iter()
        .map(|leaf| whole.column(*leaf).clone())
        .collect();
    let row_group = RowGroupMetaData::builder(schema.clone()).set_num_rows(whole.num_rows());
    let row_group = row_group
        .set_total_byte_size(whole.total_byte_size())
        .set_column_metadata(columns)
        .build()?;
    let created_by = stored.created_by().map(str::to_owned);
    let file = FileMetaData::new(
        stored.version(),
        whole.num_rows(),
        created_by,
        None,
        schema,
        None,
    );
    Ok(ParquetMetaData::new(file, vec![row_group]))
}

/// The columns that stored columns belong to, by number.
pub(super) fn wanted_roots(footer: &Footer, leaves: &[usize]) -> BTreeSet<usize> {
    let schema = footer.metadata.file_metadata().schema_descr();
    leaves
        .iter()
        .map(|leaf| schema.get_column_root_idx(*leaf))
        .collect()
}

/// The pages of each column of the only row group.
fn page_lists(metadata: &ParquetMetaData) -> impl Iterator<Item = &[PageLocation]> {
    let groups = metadata.offset_index().into_iter().flatten();
    groups
        .flatten()
        .map(|column| column.page_locations.as_slice())
}

/// True if the pages of each column follow each other inside of the column, from its first row on.
fn is_sound(metadata: &ParquetMetaData) -> bool {
    let group = metadata.row_group(0);
    let mut columns = 0;
    for (column, pages) in group.columns().iter().zip(page_lists(metadata)) {
        if !is_column_sound(column, group.num_rows(), pages) {
            return false;
        }
        columns += 1;
    }
    columns == group.num_columns()
}

fn is_column_sound(column: &ColumnChunkMetaData, rows: i64, pages: &[PageLocation]) -> bool {
    let [first, ..] = pages else {
        return false;
    };
    let last = &pages[pages.len() - 1];
    if first.first_row_index != 0 || last.first_row_index >= rows {
        return false;
    }
    let is_in_order = pages.windows(2).all(|pair| {
        let end = pair[0].offset + i64::from(pair[0].compressed_page_size);
        pair[0].first_row_index < pair[1].first_row_index && end <= pair[1].offset
    });
    let (start, length) = column.byte_range();
    let column_bytes = start..start + length;
    is_in_order && pages.iter().all(|page| lies_within(page, &column_bytes))
}

fn lies_within(page: &PageLocation, bytes: &Range<u64>) -> bool {
    let size = i64::from(page.compressed_page_size);
    let Some(end) = page.offset.checked_add(size) else {
        return false;
    };
    size > 0 && page.offset >= bytes.start as i64 && end as u64 <= bytes.end
}

/// The bytes that hold some rows of the only row group: of each column its dictionary and the pages with these rows.
pub(super) fn page_ranges(metadata: &ParquetMetaData, rows: &Range<u64>) -> Vec<Range<u64>> {
    let group = metadata.row_group(0);
    let mut ranges = Vec::new();
    for (column, pages) in group.columns().iter().zip(page_lists(metadata)) {
        let start = column.byte_range().0;
        let first_page = pages.first().map_or(0, |page| page.offset as u64);
        if start < first_page {
            ranges.push(start..first_page);
        }
        let ends = pages
            .iter()
            .skip(1)
            .map(|page| page.first_row_index as u64)
            .chain([group.num_rows() as u64]);
        let holds = |(page, end): &(&PageLocation, u64)| {
            (page.first_row_index as u64) < rows.end && *end > rows.start
        };
        let held_pages: Vec<&PageLocation> = pages
            .iter()
            .zip(ends)
            .filter(holds)
            .map(|(page, _)| page)
            .collect();
        if let (Some(first), Some(last)) = (held_pages.first(), held_pages.last()) {
            ranges.push(
                first.offset as u64..(last.offset + i64::from(last.compressed_page_size)) as u64,
            );
        }
    }
    ranges
}
