//! The decoder of some rows of a row group.

use arrow::error::ArrowError;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, RowGroups, RowSelection, RowSelector,
};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels};

use super::checked_pages::CheckedRowGroup;
use super::page_gate::GatedPages;
use crate::guard::catch_decode_panic;

/// A reader of some rows of a row group.
pub(super) fn build_reader(
    pages: GatedPages,
    layout: ArrowReaderMetadata,
    mask: ProjectionMask,
    group: usize,
    row_range: Option<(u64, u64)>,
    batch_rows: usize,
) -> Result<ParquetRecordBatchReader, ArrowError> {
    let selection = row_range.map(|(from, to)| {
        let skipped = RowSelector::skip(from as usize);
        RowSelection::from(vec![skipped, RowSelector::select((to - from) as usize)])
    });
    catch_decode_panic(|| {
        let row_group = CheckedRowGroup {
            pages,
            metadata: layout.metadata().clone(),
            group,
        };
        let levels = parquet_to_arrow_field_levels(
            layout.parquet_schema(),
            mask,
            Some(layout.schema().fields()),
        )?;
        let batch_rows = batch_rows.min(row_group.num_rows());
        let reader = ParquetRecordBatchReader::try_new_with_row_groups(
            &levels, &row_group, batch_rows, selection,
        )?;
        Ok(reader)
    })
}
