//! Statistics of a file's values for the log, from the file's footer.

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::temporal_conversions::{date32_to_datetime, timestamp_us_to_datetime};
use forebay_formats::row_group_extents;
use forebay_model::BoundValue;
use parquet::file::metadata::ParquetMetaData;
use serde_json::{Map, Value, json};

/// Columns that have statistics, from the first on. Columns of times have them wherever they are: intervals are
/// replaced by them.
const COLUMNS_MAX: usize = 32;

/// The statistics of a file. Bounds of floats are left out: they would hide NaN, which other programs order.
pub(super) fn file_statistics(metadata: &ParquetMetaData, schema: &Schema, rows: u64) -> String {
    let mut mins = Map::new();
    let mut maxes = Map::new();
    let mut nulls = Map::new();
    for (at, field) in schema.fields().iter().enumerate() {
        let is_time = matches!(
            field.data_type(),
            DataType::Date32 | DataType::Timestamp(..)
        );
        if (at >= COLUMNS_MAX && !is_time) || field.data_type().is_nested() {
            continue;
        }
        if let Some(count) = null_count(metadata, field.name()) {
            nulls.insert(field.name().clone(), count.into());
        }
        if let Some(bounds) = column_bounds(metadata, schema, field) {
            mins.insert(field.name().clone(), bounds.min);
            maxes.insert(field.name().clone(), bounds.max);
        }
    }
    json!({ "numRecords": rows, "minValues": mins, "maxValues": maxes, "nullCount": nulls })
        .to_string()
}

/// The least and the greatest value of a column, as the log writes them.
struct ColumnBounds {
    min: Value,
    max: Value,
}

/// Bounds of a column; `None` if a row group has none, or the log has no form for them.
fn column_bounds(
    metadata: &ParquetMetaData,
    schema: &Schema,
    field: &Field,
) -> Option<ColumnBounds> {
    let mut extents = Vec::new();
    for extent in row_group_extents(metadata, schema, field.name()) {
        extents.push(extent?);
    }
    let min = extents.iter().map(|extent| &extent.min).min()?;
    let max = extents.iter().map(|extent| &extent.max).max()?;
    Some(ColumnBounds {
        min: bound_value(min, field.data_type())?,
        max: bound_value(max, field.data_type())?,
    })
}

fn null_count(metadata: &ParquetMetaData, column: &str) -> Option<u64> {
    let roots = metadata.file_metadata().schema_descr();
    let leaf =
        (0..roots.num_columns()).find(|leaf| roots.get_column_root(*leaf).name() == column)?;
    let mut count = 0;
    for group in metadata.row_groups() {
        count += group.column(leaf).statistics()?.null_count_opt()?;
    }
    Some(count)
}

fn bound_value(bound: &BoundValue, data_type: &DataType) -> Option<Value> {
    let tick = match bound {
        BoundValue::Text(text) => return Some(json!(text)),
        BoundValue::Int(tick) => *tick,
    };
    Some(match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => json!(tick),
        DataType::Date32 => json!(
            date32_to_datetime(i32::try_from(tick).ok()?)?
                .format("%Y-%m-%d")
                .to_string()
        ),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let time = timestamp_us_to_datetime(tick)?.format("%Y-%m-%dT%H:%M:%S%.6f");
            let suffix = if zone.is_some() { "Z" } else { "" };
            json!(format!("{time}{suffix}"))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_written_as_other_programs_read_them() {
        let time =
            |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        for (tick, data_type, expected) in [
            (-4, DataType::Int16, Some(json!(-4))),
            (19782, DataType::Date32, Some(json!("2024-02-29"))),
            (
                -1,
                time(Some("UTC")),
                Some(json!("1969-12-31T23:59:59.999999Z")),
            ),
            (
                1_704_067_200_001_000,
                time(None),
                Some(json!("2024-01-01T00:00:00.001000")),
            ),
            (1, DataType::Boolean, None),
        ] {
            assert_eq!(
                bound_value(&BoundValue::Int(tick), &data_type),
                expected,
                "{data_type}"
            );
        }
    }
}
