//! The files of a table before a commit, and those that the commit replaces.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{AsArray, BooleanArray, BooleanBufferBuilder, RecordBatch};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, Int64Type};
use forebay_formats::{hive, ordered_points};
use forebay_model::{BoundValue, Fault, Result, codes};

use crate::place::{decode, is_below_table};
use crate::snapshot::{LoggedFile, TableSnapshot};
use crate::statistics::FileStatistics;

use super::schema::WrittenColumns;
use super::table_types::table_ticks;

/// The files of a version, by their paths below the table.
pub(super) fn live_files(table: &TableSnapshot) -> Result<BTreeMap<String, LoggedFile>> {
    let mut files = BTreeMap::new();
    table.for_each_file(|file| {
        files.insert(decode(&file.path)?, file);
        Ok(())
    })?;
    Ok(files)
}

/// The times of rows that a commit replaces.
pub(super) struct ReplacedInterval {
    pub(super) column: String,
    data_type: DataType,
    /// First tick in the unit of the table.
    pub(super) first: i64,
    pub(super) last: i64,
}

/// Rows that an interval does not hold.
pub(super) struct OutsideRows {
    pub(super) before: RecordBatch,
    pub(super) after: RecordBatch,
}

/// Position of a file relative to an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilePosition {
    Inside,
    Outside,
    /// The file has rows of the interval and may have others.
    Both,
    /// The log does not decide it.
    Unknown,
}

impl ReplacedInterval {
    /// An interval in the unit that a column has in the rows.
    pub(super) fn new(
        columns: &WrittenColumns,
        of_rows: &DataType,
        column: &str,
        ticks: (i64, i64),
    ) -> Result<Self> {
        let data_type = columns.schema.field_with_name(column)?.data_type().clone();
        let (first, last) = table_ticks(of_rows, ticks.0, ticks.1);
        Ok(ReplacedInterval {
            column: column.to_owned(),
            data_type,
            first,
            last,
        })
    }

    /// The rows of a batch that lie before it, nulls among them, and those that lie after it.
    pub(super) fn outside(&self, rows: &RecordBatch) -> Result<OutsideRows> {
        let times = rows
            .column_by_name(&self.column)
            .ok_or_else(|| Fault::internal("rows without their times"))?;
        let ticks = cast(times, &DataType::Int64)?;
        let mut is_before = BooleanBufferBuilder::new(rows.num_rows());
        let mut is_after = BooleanBufferBuilder::new(rows.num_rows());
        for tick in ticks.as_primitive::<Int64Type>() {
            is_before.append(tick.is_none_or(|tick| tick < self.first));
            is_after.append(tick.is_some_and(|tick| tick > self.last));
        }
        let is_before = BooleanArray::new(is_before.finish(), None);
        let is_after = BooleanArray::new(is_after.finish(), None);
        Ok(OutsideRows {
            before: filter_record_batch(rows, &is_before)?,
            after: filter_record_batch(rows, &is_after)?,
        })
    }

    /// Position of a file relative to the interval, by its partition values or its statistics.
    pub(super) fn position(
        &self,
        partition: &BTreeMap<String, Option<String>>,
        statistics: Option<&str>,
    ) -> FilePosition {
        let Some(value) = partition.get(&self.column) else {
            return self.position_of_statistics(&FileStatistics::parse(statistics));
        };
        // All rows of the file have the value of its folder; no interval holds nulls.
        let Some(value) = value.as_deref().filter(|value| !value.is_empty()) else {
            return FilePosition::Outside;
        };
        match self.point(value) {
            Some(point) => self.position_of_extent(&point, &point, false),
            None => FilePosition::Unknown,
        }
    }

    fn position_of_statistics(&self, statistics: &FileStatistics) -> FilePosition {
        if statistics.is_all_null(&self.column) {
            return FilePosition::Outside;
        }
        match statistics.extent(&self.column, &self.data_type) {
            Some(extent) => self.position_of_extent(&extent.min, &extent.max, extent.nulls),
            None => FilePosition::Unknown,
        }
    }

    fn position_of_extent(&self, min: &BoundValue, max: &BoundValue, nulls: bool) -> FilePosition {
        let BoundValue::Int(min) = min else {
            return FilePosition::Unknown;
        };
        let BoundValue::Int(max) = max else {
            return FilePosition::Unknown;
        };
        if *max < self.first || *min > self.last {
            return FilePosition::Outside;
        }
        if *min >= self.first && *max <= self.last && !nulls {
            return FilePosition::Inside;
        }
        FilePosition::Both
    }

    /// The time of a folder's name.
    fn point(&self, value: &str) -> Option<BoundValue> {
        let value = hive::partition_scalar(value, &self.data_type).ok()?;
        ordered_points(&value, &self.data_type)?.pop()?
    }
}

/// The files that a commit takes out of the table.
#[derive(Default)]
pub(super) struct ReplacedFiles<'f> {
    /// Files all of whose rows are replaced.
    pub(super) whole: Vec<&'f LoggedFile>,
    /// Files that may hold other rows, too, by their paths below the table.
    pub(super) divided: BTreeMap<&'f str, &'f LoggedFile>,
}

/// Finds the files that a commit removes from the table: all, or those of an interval, except for
/// those that it keeps.
pub(super) fn replaced_files<'f>(
    live: &'f BTreeMap<String, LoggedFile>,
    unchanged: &BTreeSet<&str>,
    interval: Option<&ReplacedInterval>,
) -> Result<ReplacedFiles<'f>> {
    let mut replaced = ReplacedFiles::default();
    for (path, file) in live
        .iter()
        .filter(|(path, _)| !unchanged.contains(path.as_str()))
    {
        let Some(interval) = interval else {
            replaced.whole.push(file);
            continue;
        };
        match interval.position(&file.partition, file.statistics.as_deref()) {
            FilePosition::Outside => {}
            FilePosition::Inside => replaced.whole.push(file),
            // The value of a folder is that of all rows of a file.
            FilePosition::Both | FilePosition::Unknown
                if file.partition.contains_key(&interval.column) =>
            {
                let message = format!(
                    "the log of the Delta table gives no time for `{}` of a file",
                    interval.column
                );
                let fault = Fault::new(codes::OUTPUT_CLASH, message)
                    .file(path)
                    .column(&interval.column);
                return Err(fault.hint(
                    "let the program that wrote the file write its partition value as a time",
                ));
            }
            FilePosition::Both | FilePosition::Unknown if !is_below_table(&file.path) => {
                let message = "a file that the Delta table shares with another one holds rows of \
                               the interval, and others";
                let fault = Fault::new(codes::OUTPUT_CLASH, message).file(path);
                return Err(fault.hint(
                    "let the program that made the table copy its files, or write to another table",
                ));
            }
            FilePosition::Both | FilePosition::Unknown => {
                replaced.divided.insert(path, file);
            }
        }
    }
    Ok(replaced)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Date32Array, Int64Array};
    use arrow::datatypes::{Field, Schema};

    use super::*;

    #[test]
    fn files_lie_inside_an_interval_or_outside() {
        let schema = Schema::new(vec![
            Field::new("day", DataType::Date32, true),
            Field::new("x", DataType::Int64, true),
        ]);
        let columns = WrittenColumns::new(&schema, &[]).unwrap();
        let interval =
            ReplacedInterval::new(&columns, &DataType::Date32, "day", (19782, 19783)).unwrap();
        let statistics = |min: &str, max: &str, nulls: u64| {
            format!(
                r#"{{"minValues":{{"day":"{min}"}},"maxValues":{{"day":"{max}"}},
                "nullCount":{{"day":{nulls}}}}}"#
            )
        };
        let none = BTreeMap::new();
        for (min, max, nulls, expected) in [
            ("2024-02-29", "2024-03-01", 0, FilePosition::Inside),
            ("2024-02-29", "2024-03-01", 1, FilePosition::Both),
            ("2024-02-28", "2024-02-29", 0, FilePosition::Both),
            ("2024-02-27", "2024-02-28", 1, FilePosition::Outside),
            ("2024-03-02", "2024-03-02", 0, FilePosition::Outside),
        ] {
            assert_eq!(
                interval.position(&none, Some(&statistics(min, max, nulls))),
                expected,
                "{min} {max}"
            );
        }
        assert_eq!(interval.position(&none, None), FilePosition::Unknown);
        let all_null = r#"{"numRecords":2,"minValues":{},"maxValues":{},"nullCount":{"day":2}}"#;
        assert_eq!(
            interval.position(&none, Some(all_null)),
            FilePosition::Outside
        );
        let days: ArrayRef = Arc::new(Date32Array::from(vec![
            Some(19784),
            Some(19781),
            None,
            Some(19783),
            Some(19782),
        ]));
        let order: ArrayRef = Arc::new(Int64Array::from_iter_values(0..5));
        let outside = interval
            .outside(&RecordBatch::try_from_iter([("day", days), ("x", order)]).unwrap())
            .unwrap();
        let order = |rows: &RecordBatch| rows["x"].as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(
            (order(&outside.before), order(&outside.after)),
            (vec![1, 2], vec![0])
        );
        for (value, expected) in [
            (Some("2024-03-01"), FilePosition::Inside),
            (Some("2024-03-02"), FilePosition::Outside),
            (None, FilePosition::Outside),
        ] {
            let partition = BTreeMap::from([("day".to_owned(), value.map(str::to_owned))]);
            assert_eq!(interval.position(&partition, None), expected, "{value:?}");
        }
    }

    #[test]
    fn files_of_other_tables_are_replaced_whole_or_not_at_all() {
        let schema = Schema::new(vec![Field::new("day", DataType::Date32, true)]);
        let columns = WrittenColumns::new(&schema, &[]).unwrap();
        let days = (19783, 19783);
        let interval = ReplacedInterval::new(&columns, &DataType::Date32, "day", days).unwrap();
        let file = |path: &str, max: &str| LoggedFile {
            path: path.to_owned(),
            bytes: 1,
            modified: 0,
            partition: BTreeMap::new(),
            deleted: None,
            statistics: Some(
                serde_json::json!({
                    "minValues": { "day": "2024-03-01" },
                    "maxValues": { "day": max },
                    "nullCount": { "day": 0 },
                })
                .to_string(),
            ),
        };
        for path in ["../b/a.parquet", "s3://lake/a.parquet", "/b/a.parquet"] {
            let inside = BTreeMap::from([(path.to_owned(), file(path, "2024-03-01"))]);
            let replaced = replaced_files(&inside, &BTreeSet::new(), Some(&interval)).unwrap();
            assert_eq!(replaced.whole.len(), 1, "{path}");
            let divided = BTreeMap::from([(path.to_owned(), file(path, "2024-03-02"))]);
            let refused = replaced_files(&divided, &BTreeSet::new(), Some(&interval));
            let fault = refused.map(drop).unwrap_err();
            assert_eq!(fault.code(), codes::OUTPUT_CLASH, "{path}: {fault}");
        }
    }
}
