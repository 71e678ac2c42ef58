//! Times of type INT96.
//!
//! They are read in microseconds, which is what Spark and Hive write: in nanoseconds, times after 2262 or before 1677
//! would wrap around, and 9999-12-31, the usual end of an open row, would lie in 1816. The decoder cuts finer digits off,
//! so such columns are decoded in both units, and digits that microseconds do not hold are a fault.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, FieldRef, Fields, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType,
    TimestampNanosecondType,
};
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;
use forebay_model::{Fault, Result, codes};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
};
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::ParquetMetaData;

use crate::guard::catch_decode_panic;

use super::chunks::build_reader;
use super::fetch::PageSource;

/// Nanoseconds of a microsecond.
const NANOSECONDS: i64 = 1_000;

/// The leaves of type INT96.
pub(super) fn int96_leaves(metadata: &ParquetMetaData) -> Vec<usize> {
    let columns = metadata.file_metadata().schema_descr().columns();
    (0..columns.len())
        .filter(|leaf| columns[*leaf].physical_type() == PhysicalType::INT96)
        .collect()
}

/// The schema with times of type INT96 in microseconds.
pub(super) fn with_microseconds(schema: &SchemaRef, metadata: &ParquetMetaData) -> SchemaRef {
    let int96 = int96_leaves(metadata);
    if int96.is_empty() {
        return schema.clone();
    }
    let mut leaf = 0;
    let fields: Fields = schema
        .fields()
        .iter()
        .map(|field| field_with_microseconds(field, &int96, &mut leaf))
        .collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// A field whose first leaf is `leaf`, which becomes the leaf behind it.
fn field_with_microseconds(field: &FieldRef, int96: &[usize], leaf: &mut usize) -> FieldRef {
    let of = match field.data_type() {
        DataType::Struct(fields) => {
            let fields = fields.iter();
            DataType::Struct(
                fields
                    .map(|field| field_with_microseconds(field, int96, leaf))
                    .collect(),
            )
        }
        DataType::List(item) => DataType::List(field_with_microseconds(item, int96, leaf)),
        DataType::LargeList(item) => {
            DataType::LargeList(field_with_microseconds(item, int96, leaf))
        }
        DataType::FixedSizeList(item, width) => {
            DataType::FixedSizeList(field_with_microseconds(item, int96, leaf), *width)
        }
        DataType::Map(entries, sorted) => {
            DataType::Map(field_with_microseconds(entries, int96, leaf), *sorted)
        }
        other => {
            let at = *leaf;
            *leaf += 1;
            match other {
                DataType::Timestamp(_, zone) if int96.contains(&at) => {
                    DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
                }
                _ => other.clone(),
            }
        }
    };
    Arc::new(field.as_ref().clone().with_data_type(of))
}

/// The columns in nanoseconds, batch by batch.
pub(super) struct NanosecondReader(ParquetRecordBatchReader);

impl NanosecondReader {
    /// Reads those of the leaves that are of type INT96; `None` where there are none.
    pub(super) fn open(
        pages: &PageSource,
        metadata: &Arc<ParquetMetaData>,
        is_read: impl Fn(usize) -> bool,
        group: usize,
        row_range: Option<(u64, u64)>,
        batch_rows: usize,
    ) -> Result<Option<NanosecondReader>, ArrowError> {
        let mut leaves = int96_leaves(metadata);
        leaves.retain(|leaf| is_read(*leaf));
        if leaves.is_empty() {
            return Ok(None);
        }
        let stored = metadata.file_metadata().schema_descr();
        let mask = ProjectionMask::leaves(stored, leaves);
        let layout = ArrowReaderMetadata::try_new(metadata.clone(), ArrowReaderOptions::new())?;
        let reader = build_reader(pages.clone(), layout, mask, group, row_range, batch_rows)?;
        Ok(Some(NanosecondReader(reader)))
    }

    /// Checks the next batch, which was decoded in microseconds and begins with a row of the file.
    pub(super) fn check(&mut self, decoded: &RecordBatch, first_row: u64) -> Result<()> {
        let Some(fine) = catch_decode_panic(|| self.0.next().transpose())? else {
            return Ok(());
        };
        for (field, fine) in fine.schema().fields().iter().zip(fine.columns()) {
            let Some(coarse) = decoded.column_by_name(field.name()) else {
                continue;
            };
            let Some((value, row)) = first_cut(coarse, fine)? else {
                continue;
            };
            let message = format!(
                "`{value}` has digits below the microsecond, and times of type INT96 are read in microseconds"
            );
            let mut fault = Fault::new(codes::BAD_ROW, message)
                .column(field.name())
                .hint("write the column as a timestamp in nanoseconds instead of INT96");
            if !field.data_type().is_nested() {
                fault = fault.rows([first_row + row as u64]);
            }
            return Err(fault);
        }
        Ok(())
    }
}

/// The first time of which microseconds lack digits, and its place.
fn first_cut(coarse: &ArrayRef, fine: &ArrayRef) -> Result<Option<(String, usize)>> {
    match (coarse.data_type(), fine.data_type()) {
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let coarse = coarse.as_struct();
            for (field, fine) in fields.iter().zip(fine.as_struct().columns()) {
                let cut = match coarse.column_by_name(field.name()) {
                    Some(coarse) => first_cut(coarse, fine)?,
                    None => None,
                };
                if cut.is_some() {
                    return Ok(cut);
                }
            }
            Ok(None)
        }
        (DataType::List(_), DataType::List(_)) => first_cut(
            coarse.as_list::<i32>().values(),
            fine.as_list::<i32>().values(),
        ),
        (
            DataType::Timestamp(TimeUnit::Microsecond, _),
            DataType::Timestamp(TimeUnit::Nanosecond, _),
        ) => {
            let coarse = coarse.as_primitive::<TimestampMicrosecondType>();
            let ticks = fine.as_primitive::<TimestampNanosecondType>();
            // Both wrap around in the same way, so that far times agree, too.
            let is_cut = |row: &usize| {
                coarse.is_valid(*row)
                    && coarse.value(*row).wrapping_mul(NANOSECONDS) != ticks.value(*row)
            };
            match (0..coarse.len()).find(is_cut) {
                Some(row) => Ok(Some((array_value_to_string(fine, row)?, row))),
                None => Ok(None),
            }
        }
        _ => Ok(None),
    }
}
