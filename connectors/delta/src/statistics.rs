//! Statistics of a file's values in the log.

use arrow::compute::kernels::cast_utils::{Parser, string_to_timestamp_nanos};
use arrow::datatypes::{DataType, Date32Type, TimeUnit};
use forebay_model::{BoundValue, ColumnExtent};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Nanoseconds of a microsecond, in which tables count.
const TICK_NANOSECONDS: i64 = 1000;

/// Ticks by which a bound may exceed the recorded one: many logs truncate bounds in time to
/// milliseconds, so a maximum with at most `CUT_DIGITS` digits may lie up to this many microseconds
/// later.
const CUT_TICKS: i64 = 999;
const CUT_DIGITS: usize = 3;

/// Statistics of a file, by the names of columns in the log.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileStatistics {
    pub(super) num_records: Option<u64>,
    min_values: Map<String, Value>,
    max_values: Map<String, Value>,
    null_count: Map<String, Value>,
}

impl FileStatistics {
    /// Parses statistics; unreadable ones give no facts.
    pub(super) fn parse(text: Option<&str>) -> FileStatistics {
        text.and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// The nulls of a column.
    pub(super) fn nulls(&self, logged: &str) -> Option<u64> {
        self.null_count.get(logged).and_then(Value::as_u64)
    }

    /// True if a column is null in all rows.
    pub(super) fn is_all_null(&self, logged: &str) -> bool {
        let nulls = self.null_count.get(logged).and_then(Value::as_u64);
        self.num_records.is_some_and(|rows| nulls == Some(rows))
    }

    /// The extent of a column of a type.
    pub(super) fn extent(&self, logged: &str, data_type: &DataType) -> Option<ColumnExtent> {
        let min = bound(self.min_values.get(logged)?, data_type, 0)?;
        let max = bound(self.max_values.get(logged)?, data_type, CUT_TICKS)?;
        let nulls = self.null_count.get(logged).and_then(Value::as_u64) != Some(0);
        (min <= max).then_some(ColumnExtent { min, max, nulls })
    }
}

/// A bound, where values of the type have an order that all programs share.
fn bound(value: &Value, data_type: &DataType, cut: i64) -> Option<BoundValue> {
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            value.as_i64().map(BoundValue::Int)
        }
        DataType::Date32 => Some(BoundValue::Int(Date32Type::parse(value.as_str()?)?.into())),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let text = value.as_str()?;
            let nanos = string_to_timestamp_nanos(text).ok()?;
            let digits = text.split_once('.').map_or(0, |(_, fraction)| {
                fraction.bytes().take_while(u8::is_ascii_digit).count()
            });
            let cut = if digits > CUT_DIGITS { 0 } else { cut };
            Some(BoundValue::Int(
                nanos.div_euclid(TICK_NANOSECONDS).checked_add(cut)?,
            ))
        }
        DataType::Utf8 => Some(BoundValue::Text(value.as_str()?.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_in_the_types_of_the_table() {
        let text = r#"{"numRecords":3,
            "minValues":{"i":-4,"d":"2024-02-29",
                "t":"2024-01-01T00:00:00.001Z","u":"2024-01-01T00:00:00.001000Z",
                "s":"a","f":0.5,"odd":9},
            "maxValues":{"i":7,"d":"2024-03-01",
                "t":"2024-01-01T00:00:00.001Z","u":"2024-01-01T00:00:00.001000Z",
                "s":"b","f":1.5,"odd":1},
            "nullCount":{"i":0,"d":1,"s":0}}"#;
        let found = FileStatistics::parse(Some(text));
        assert_eq!(found.num_records, Some(3));
        let extent = |min, max, nulls| Some(ColumnExtent { min, max, nulls });
        let int = BoundValue::Int;
        let text = |text: &str| BoundValue::Text(text.to_owned());
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let tick = 1_704_067_200_001_000;
        for (column, data_type, expected) in [
            ("i", DataType::Int32, extent(int(-4), int(7), false)),
            ("d", DataType::Date32, extent(int(19782), int(19783), true)),
            ("t", time.clone(), extent(int(tick), int(tick + 999), true)),
            ("u", time, extent(int(tick), int(tick), true)),
            ("s", DataType::Utf8, extent(text("a"), text("b"), false)),
            ("f", DataType::Float64, None),
            ("odd", DataType::Int64, None),
            ("absent", DataType::Int64, None),
        ] {
            assert_eq!(found.extent(column, &data_type), expected, "{column}");
        }
        assert!(FileStatistics::parse(Some("no JSON")).num_records.is_none());
    }
}
