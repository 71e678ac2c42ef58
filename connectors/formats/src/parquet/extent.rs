//! Extents of watched columns by row group.

use arrow::array::ArrayRef;
use arrow::datatypes::Schema;
use forebay_model::{ColumnExtent, logical_type};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::basic::{ColumnOrder, SortOrder, Type};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use crate::files::extent::ordered_points;

/// A column's extent in each row group, as points of the type that the file gives it.
pub fn row_group_extents(
    metadata: &ParquetMetaData,
    schema: &Schema,
    column: &str,
) -> Vec<Option<ColumnExtent>> {
    known_extents(metadata, schema, column).unwrap_or_else(|| vec![None; metadata.num_row_groups()])
}

fn known_extents(
    metadata: &ParquetMetaData,
    schema: &Schema,
    column: &str,
) -> Option<Vec<Option<ColumnExtent>>> {
    let (_, field) = schema.fields().find(column)?;
    let logical = logical_type(field.data_type());
    let file = metadata.file_metadata();
    let converter = StatisticsConverter::try_new(column, schema, file.schema_descr()).ok()?;
    let leaf = converter.parquet_column_index()?;
    let groups = metadata.row_groups();
    let points =
        |values: parquet::errors::Result<ArrayRef>| ordered_points(&values.ok()?, &logical);
    let mins = points(converter.row_group_mins(groups))?;
    let maxes = points(converter.row_group_maxes(groups))?;
    let extent = |((group, min), max): ((&RowGroupMetaData, _), _)| {
        let min = min?;
        let max = max?;
        let nulls = group.column(leaf).statistics()?.null_count_opt() != Some(0);
        (bounds_are_ordered(metadata, group, leaf) && min <= max).then_some(ColumnExtent {
            min,
            max,
            nulls,
        })
    };
    Some(groups.iter().zip(mins).zip(maxes).map(extent).collect())
}

/// True if the bounds that a footer gives for a stored column are in the order of the column's
/// type.
///
/// The first versions of Parquet ordered all bounds as signed bytes, and did not say so. Writers have always agreed on
/// the order of booleans and of signed integers only.
pub(super) fn bounds_are_ordered(
    metadata: &ParquetMetaData,
    group: &RowGroupMetaData,
    leaf: usize,
) -> bool {
    let column = group.column(leaf);
    let Some(statistics) = column.statistics() else {
        return false;
    };
    let descriptor = column.column_descr();
    match descriptor.physical_type() {
        Type::BOOLEAN => true,
        Type::INT32 | Type::INT64 if descriptor.sort_order() == SortOrder::SIGNED => true,
        _ => {
            let order = metadata
                .file_metadata()
                .column_orders()
                .and_then(|orders| orders.get(leaf));
            let is_defined = matches!(
                order,
                Some(ColumnOrder::TYPE_DEFINED_ORDER(
                    SortOrder::SIGNED | SortOrder::UNSIGNED
                ))
            );
            is_defined && !statistics.is_min_max_deprecated()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field};
    use forebay_model::BoundValue;
    use parquet::arrow::ArrowSchemaConverter;
    use parquet::data_type::ByteArray;
    use parquet::file::metadata::{ColumnChunkMetaData, FileMetaData};
    use parquet::file::statistics::{Statistics, ValueStatistics};

    use super::*;

    fn found(
        data_type: DataType,
        defined: bool,
        statistics: Option<Statistics>,
    ) -> Option<ColumnExtent> {
        let schema = Schema::new(vec![Field::new("x", data_type, true)]);
        let stored = Arc::new(ArrowSchemaConverter::new().convert(&schema).unwrap());
        let mut column = ColumnChunkMetaData::builder(stored.column(0)).set_num_values(1);
        if let Some(statistics) = statistics {
            column = column.set_statistics(statistics);
        }
        let group = RowGroupMetaData::builder(stored.clone()).set_num_rows(1);
        let group = group
            .add_column_metadata(column.build().unwrap())
            .build()
            .unwrap();
        let orders = defined.then(|| {
            vec![ColumnOrder::TYPE_DEFINED_ORDER(
                stored.column(0).sort_order(),
            )]
        });
        let file = FileMetaData::new(2, 1, None, None, stored, orders);
        row_group_extents(&ParquetMetaData::new(file, vec![group]), &schema, "x")[0].clone()
    }

    #[test]
    fn only_bounds_that_hold_are_taken() {
        let ints =
            |min, max, old| Some(Statistics::int32(Some(min), Some(max), None, Some(0), old));
        let texts = |min: &str, max: &str, old, exact| {
            let bytes = |text: &str| Some(ByteArray::from(text.as_bytes().to_vec()));
            let values = ValueStatistics::new(bytes(min), bytes(max), None, Some(0), old);
            Some(Statistics::from(
                values.with_max_is_exact(exact).with_min_is_exact(exact),
            ))
        };
        let extent = |min, max| {
            Some(ColumnExtent {
                min,
                max,
                nulls: false,
            })
        };
        let int = BoundValue::Int;
        let text = |text: &str| BoundValue::Text(text.to_owned());
        let cases = [
            (
                DataType::Int32,
                true,
                ints(-3, 4, false),
                extent(int(-3), int(4)),
            ),
            // Old statistics are in signed order: right for these, wrong for others.
            (
                DataType::Int32,
                false,
                ints(-3, 4, true),
                extent(int(-3), int(4)),
            ),
            (
                DataType::Date32,
                false,
                ints(-3, 4, true),
                extent(int(-3), int(4)),
            ),
            (
                DataType::UInt32,
                true,
                ints(3, -1, false),
                extent(int(3), int(u32::MAX.into())),
            ),
            (DataType::UInt32, true, ints(-1, 3, true), None),
            (DataType::UInt32, false, ints(3, 4, false), None),
            (
                DataType::Utf8,
                true,
                texts("a", "b", false, true),
                extent(text("a"), text("b")),
            ),
            (
                DataType::Utf8,
                true,
                texts("a", "c", false, false),
                extent(text("a"), text("c")),
            ),
            (DataType::Utf8, true, texts("a", "b", true, true), None),
            (DataType::Utf8, false, texts("a", "b", false, true), None),
            (
                DataType::Utf8,
                true,
                texts("a", &"b".repeat(1000), false, true),
                None,
            ),
            // Nonsense, half of it, and nothing.
            (DataType::Int32, true, ints(4, -3, false), None),
            (
                DataType::Int32,
                true,
                Some(Statistics::int32(Some(1), None, None, Some(0), false)),
                None,
            ),
            (DataType::Int32, true, None, None),
        ];
        for (data_type, defined, statistics, expected) in cases {
            let told = format!("{data_type} {statistics:?}");
            assert_eq!(found(data_type, defined, statistics), expected, "{told}");
        }
    }
}
