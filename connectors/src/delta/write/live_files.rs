//! The files of a table before a commit, and which of them it replaces.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, Int64Type};
use forebay_model::{BoundValue, Fault, Result, codes};

use crate::delta::place::decode;
use crate::delta::snapshot::{LoggedFile, TableSnapshot};
use crate::delta::statistics::FileStatistics;
use crate::files::extent::ordered_points;
use crate::files::hive;

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
    /// In the unit of the table.
    pub(super) first: i64,
    pub(super) last: i64,
}

/// Rows that an interval does not hold.
pub(super) struct OutsideRows {
    pub(super) before: RecordBatch,
    pub(super) after: RecordBatch,
}

/// How a file lies to an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilePosition {
    Inside,
    Outside,
    /// It has rows of the interval and may have others.
    Both,
    /// The log does not tell.
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
        let ticks = ticks.as_primitive::<Int64Type>();
        let select = |is_wanted: &dyn Fn(Option<i64>) -> bool| -> Result<RecordBatch> {
            let wanted: BooleanArray = ticks.iter().map(|tick| Some(is_wanted(tick))).collect();
            Ok(filter_record_batch(rows, &wanted)?)
        };
        let before = select(&|tick| tick.is_none_or(|tick| tick < self.first))?;
        Ok(OutsideRows {
            before,
            after: select(&|tick| tick.is_some_and(|tick| tick > self.last))?,
        })
    }

    /// How a file lies to it, by its partition values or its statistics.
    pub(super) fn position(
        &self,
        partition: &BTreeMap<String, Option<String>>,
        statistics: Option<&str>,
    ) -> FilePosition {
        let extent = match partition.get(&self.column) {
            Some(value) => {
                let Some(value) = value.as_deref().filter(|value| !value.is_empty()) else {
                    return FilePosition::Outside;
                };
                let one = hive::partition_scalar(value, &self.data_type).ok();
                let point = one.and_then(|one| ordered_points(&one, &self.data_type)?.pop()?);
                point.map(|point| (point.clone(), point, false))
            }
            None => {
                let statistics = FileStatistics::parse(statistics);
                if statistics.is_all_null(&self.column) {
                    return FilePosition::Outside;
                }
                let extent = statistics.extent(&self.column, &self.data_type);
                extent.map(|extent| (extent.min, extent.max, extent.nulls))
            }
        };
        match extent {
            Some((BoundValue::Int(min), BoundValue::Int(max), nulls)) => {
                if max < self.first || min > self.last {
                    FilePosition::Outside
                } else if min >= self.first && max <= self.last && !nulls {
                    FilePosition::Inside
                } else {
                    FilePosition::Both
                }
            }
            _ => FilePosition::Unknown,
        }
    }
}

/// The files that a commit takes out of the table.
#[derive(Default)]
pub(super) struct ReplacedFiles<'f> {
    /// Those all of whose rows it replaces.
    pub(super) whole: Vec<&'f LoggedFile>,
    /// Those that may hold other rows, too, by their paths below the table.
    pub(super) divided: BTreeMap<&'f str, &'f LoggedFile>,
}

/// Finds the files that a commit takes out of the table: all, or those of an interval, but for those that it keeps.
pub(super) fn replaced_files<'f>(
    live: &'f BTreeMap<String, LoggedFile>,
    kept: &BTreeSet<&str>,
    interval: Option<&ReplacedInterval>,
) -> Result<ReplacedFiles<'f>> {
    let mut replaced = ReplacedFiles::default();
    for (path, file) in live
        .iter()
        .filter(|(path, _)| !kept.contains(path.as_str()))
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
            FilePosition::Both | FilePosition::Unknown if file.path.contains("://") => {
                let message = "a file that the Delta table shares with another one holds rows of the interval, and others";
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
                r#"{{"minValues":{{"day":"{min}"}},"maxValues":{{"day":"{max}"}},"nullCount":{{"day":{nulls}}}}}"#
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
}
