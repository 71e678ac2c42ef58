//! Times of type INT96.
//!
//! They are read in microseconds, which is what Spark and Hive write: in nanoseconds, times after 2262 or before 1677
//! would wrap around, and 9999-12-31, the usual end of an open row, would lie in 1816. A source may ask for nanoseconds.
//! The decoder cuts finer digits off and wraps around, so such columns are decoded in both units, and a time that the unit
//! of the source does not hold is a fault.

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

use super::group_decoder::build_reader;
use super::page_gate::GatedPages;

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

/// Times of type INT96 in the unit in which they are not decoded, batch by batch.
pub(super) struct NanosecondReader {
    pages: GatedPages,
    metadata: Arc<ParquetMetaData>,
    leaves: Vec<usize>,
    group: usize,
    row_range: Option<(u64, u64)>,
    batch_rows: usize,
    /// Opened for the first batch, which tells the unit.
    reader: Option<ParquetRecordBatchReader>,
}

impl NanosecondReader {
    /// Reads those of the leaves that are of type INT96; `None` where there are none.
    pub(super) fn open(
        pages: &GatedPages,
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
        Ok(Some(NanosecondReader {
            pages: pages.clone(),
            metadata: metadata.clone(),
            leaves,
            group,
            row_range,
            batch_rows,
            reader: None,
        }))
    }

    /// A reader of the unit in which a batch is not decoded.
    fn other_reader(&self, decoded: &RecordBatch) -> Result<ParquetRecordBatchReader, ArrowError> {
        let fine = ArrowReaderMetadata::try_new(self.metadata.clone(), ArrowReaderOptions::new())?;
        let names = self.root_names();
        let is_fine = names.iter().all(|name| {
            let field = fine.schema().field_with_name(name);
            field.is_ok_and(|field| {
                let decoded = decoded.column_by_name(name);
                decoded.is_none_or(|decoded| decoded.data_type() == field.data_type())
            })
        });
        let layout = if is_fine {
            let coarse = with_microseconds(fine.schema(), &self.metadata);
            let options = ArrowReaderOptions::new().with_schema(coarse);
            ArrowReaderMetadata::try_new(self.metadata.clone(), options)?
        } else {
            fine
        };
        let stored = self.metadata.file_metadata().schema_descr();
        let mask = ProjectionMask::leaves(stored, self.leaves.clone());
        let pages = self.pages.clone();
        build_reader(
            pages,
            layout,
            mask,
            self.group,
            self.row_range,
            self.batch_rows,
        )
    }

    /// The names of the columns of its leaves.
    fn root_names(&self) -> Vec<&str> {
        let stored = self.metadata.file_metadata().schema_descr();
        let roots = self.leaves.iter();
        roots
            .map(|leaf| stored.get_column_root(*leaf).name())
            .collect()
    }

    /// Checks the next batch, which begins with a row of the file.
    pub(super) fn check(&mut self, decoded: &RecordBatch, first_row: u64) -> Result<()> {
        if self.reader.is_none() {
            self.reader = Some(self.other_reader(decoded)?);
        }
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        let Some(other) = catch_decode_panic(|| reader.next().transpose())? else {
            return Ok(());
        };
        for (field, other) in other.schema().fields().iter().zip(other.columns()) {
            let Some(column) = decoded.column_by_name(field.name()) else {
                continue;
            };
            let Some(misfit) = first_misfit(column, other)? else {
                continue;
            };
            let mut fault = misfit.fault().column(field.name());
            if !field.data_type().is_nested() {
                fault = fault.rows([first_row + misfit.row as u64]);
            }
            return Err(fault);
        }
        Ok(())
    }
}

/// A time that the unit in which times are decoded does not hold.
struct Misfit {
    value: String,
    row: usize,
    /// True if it has finer digits, false if it is too far.
    is_finer: bool,
}

impl Misfit {
    fn fault(&self) -> Fault {
        let value = &self.value;
        if self.is_finer {
            let message = format!(
                "`{value}` has digits below the microsecond, and times of type INT96 are read in \
                 microseconds"
            );
            let fault = Fault::new(codes::BAD_ROW, message);
            return fault.hint(
                "set `int96: nanoseconds` at the source to read such times in nanoseconds, from \
                 1677 to 2262",
            );
        }
        let message =
            format!("`{value}` is too far for nanoseconds, in which times of type INT96 are read");
        let fault = Fault::new(codes::BAD_ROW, message);
        fault.hint("leave out `int96: nanoseconds` to read such times in microseconds")
    }
}

/// The first time of a column that its unit does not hold; `other` has the times in the other unit.
fn first_misfit(column: &ArrayRef, other: &ArrayRef) -> Result<Option<Misfit>> {
    match (column.data_type(), other.data_type()) {
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let column = column.as_struct();
            for (field, other) in fields.iter().zip(other.as_struct().columns()) {
                let misfit = match column.column_by_name(field.name()) {
                    Some(column) => first_misfit(column, other)?,
                    None => None,
                };
                if misfit.is_some() {
                    return Ok(misfit);
                }
            }
            Ok(None)
        }
        (DataType::List(_), DataType::List(_)) => first_misfit(
            column.as_list::<i32>().values(),
            other.as_list::<i32>().values(),
        ),
        (
            DataType::Timestamp(TimeUnit::Microsecond, _),
            DataType::Timestamp(TimeUnit::Nanosecond, _),
        ) => first_difference(column, other, true),
        (
            DataType::Timestamp(TimeUnit::Nanosecond, _),
            DataType::Timestamp(TimeUnit::Microsecond, _),
        ) => first_difference(other, column, false),
        _ => Ok(None),
    }
}

/// The first time that has digits which microseconds do not hold, or that is too far for nanoseconds.
fn first_difference(
    microseconds: &ArrayRef,
    nanoseconds: &ArrayRef,
    is_finer: bool,
) -> Result<Option<Misfit>> {
    let coarse = microseconds.as_primitive::<TimestampMicrosecondType>();
    let fine = nanoseconds.as_primitive::<TimestampNanosecondType>();
    let is_misfit = |row: &usize| {
        if coarse.is_null(*row) {
            return false;
        }
        if is_finer {
            // Both wrap around in the same way, so that far times agree, too.
            return coarse.value(*row).wrapping_mul(NANOSECONDS) != fine.value(*row);
        }
        fine.value(*row).div_euclid(NANOSECONDS) != coarse.value(*row)
    };
    let Some(row) = (0..coarse.len()).find(is_misfit) else {
        return Ok(None);
    };
    let exact = if is_finer { nanoseconds } else { microseconds };
    Ok(Some(Misfit {
        value: array_value_to_string(exact, row)?,
        row,
        is_finer,
    }))
}
