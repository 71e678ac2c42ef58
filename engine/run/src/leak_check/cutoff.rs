//! The time that divides past and future.

use std::num::NonZeroUsize;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_contract::ScanRequest;
use forebay_execute::SourceInput;
use forebay_model::{
    BoundValue, ColumnExtent, DataSplit, Dataset, Pipeline, Result, TimeCutoff, tick_nanoseconds,
    ticks,
};
use forebay_plan::{SqlCompiler, span_extents};
use forebay_storage::StorageClient;

/// Number of times at which a split's condition is evaluated.
const PROBES: i64 = 4096;

/// Times at which a leak check cuts the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CutoffChoice {
    /// One cutoff: a date, a timestamp, or a whole number if times are numbers.
    At(String),
    /// This many cutoffs. The first is the end of the part of the split that is fitted on, or the
    /// middle of the data; the others follow it up to the last row.
    Count(NonZeroUsize),
}

/// The times of a source's rows, in ticks of the column's type.
#[derive(Debug, Clone)]
pub(crate) struct TimeRange {
    pub field: Field,
    pub min: i64,
    pub max: i64,
}

/// Ticks as a column of times.
pub(crate) fn times(ticks: Vec<i64>, data_type: &DataType) -> Result<ArrayRef> {
    let ticks: ArrayRef = Arc::new(Int64Array::from(ticks));
    let ticks = if *data_type == DataType::Date32 {
        cast(&ticks, &DataType::Int32)?
    } else {
        ticks
    };
    Ok(cast(&ticks, data_type)?)
}

/// A tick of a column of times as people write it.
pub(crate) fn time_text(tick: i64, time: &Field) -> Result<String> {
    let times = times(vec![tick], time.data_type())?;
    Ok(ArrayFormatter::try_new(&times, &FormatOptions::default())?
        .value(0)
        .to_string())
}

impl TimeRange {
    /// The end of the part that statistics are fitted on, where the split is by time.
    pub fn split_end(&self, pipeline: &Pipeline, sql: &SqlCompiler) -> Option<Result<TimeCutoff>> {
        let split = pipeline.split.as_ref()?;
        let fitted = pipeline
            .nodes
            .iter()
            .find_map(|node| node.fit_on.as_deref());
        let part = fitted.or_else(|| split.parts().first().copied())?;
        match split {
            DataSplit::Time { parts, ends, .. } => {
                let position = parts.iter().position(|name| name == part)?;
                ends.get(position).map(|end| Ok(TimeCutoff::before(end)))
            }
            DataSplit::Expressions(parts) => {
                let (_, condition) = parts.iter().find(|(name, _)| name == part)?;
                self.end_of(condition, sql).transpose()
            }
            DataSplit::Hash { .. } => None,
        }
    }

    /// Range of a column from the bounds of the spans; `None` if they are not recorded.
    pub fn of_bounds(dataset: &Dataset, time: &str) -> Result<Option<TimeRange>> {
        let field = dataset.schema.field_with_name(time)?.clone();
        let extents = span_extents(dataset, time);
        Ok(
            match extents
                .as_ref()
                .and_then(|extents| ColumnExtent::union(extents.iter().map(Some)))
            {
                Some(ColumnExtent {
                    min: BoundValue::Int(min),
                    max: BoundValue::Int(max),
                    ..
                }) => Some(TimeRange { field, min, max }),
                _ => None,
            },
        )
    }

    /// Range of a column from the bounds of the spans, or by reading the column; `None` where no
    /// row has a time.
    pub fn of(io: &StorageClient, input: &SourceInput, time: &str) -> Result<Option<TimeRange>> {
        if let Some(range) = TimeRange::of_bounds(&input.dataset, time)? {
            return Ok(Some(range));
        }
        let field = input.dataset.schema.field_with_name(time)?.clone();
        let request = ScanRequest::of_columns(vec![time.to_owned()], &input.dataset.schema);
        let mut bounds: Option<(i64, i64)> = None;
        for span in &input.dataset.spans {
            for chunk in input.source.open(io, span, &request)? {
                let times = ticks(chunk?.batch.column(0))?;
                if let (Some(min), Some(max)) =
                    (arrow::compute::min(&times), arrow::compute::max(&times))
                {
                    let (least, greatest) = bounds.unwrap_or((min, max));
                    bounds = Some((least.min(min), greatest.max(max)));
                }
            }
        }
        Ok(bounds.map(|(min, max)| TimeRange { field, min, max }))
    }

    /// A tick of the column in nanoseconds since 1970; the number itself where times are numbers.
    pub fn nanoseconds(&self, tick: i64) -> i128 {
        i128::from(tick) * tick_nanoseconds(self.field.data_type()).unwrap_or(1)
    }

    /// A tick as people write it.
    fn text(&self, tick: i64) -> Result<String> {
        time_text(tick, &self.field)
    }

    /// The first time as people write it.
    pub fn first_text(&self) -> Result<String> {
        self.text(self.min)
    }

    /// `2016-01-01 and 2016-05-22`.
    pub fn range_text(&self) -> String {
        let text = |tick| self.text(tick).unwrap_or_else(|_| tick.to_string());
        format!("{} and {}", text(self.min), text(self.max))
    }

    /// The middle.
    pub fn middle(&self) -> Result<TimeCutoff> {
        Ok(TimeCutoff::after(
            self.text(self.min + (self.max - self.min) / 2)?,
        ))
    }

    /// `count` cuts from `first` to the last row, at equal distances. Each is moved on by a further `1 / count` of the
    /// longest window (in nanoseconds, or ticks; at most of the distance), so that a feature computed per period of that length is cut at
    /// different places of the period. Cuts that have no row after them are left out.
    pub fn cuts_from(
        &self,
        first: TimeCutoff,
        count: usize,
        window: Option<i128>,
    ) -> Result<Vec<TimeCutoff>> {
        let begin = i128::from(first.last_tick(&self.field)?);
        let end = i128::from(self.max);
        let count = count as i128;
        let window = window.map_or(0, |window| {
            window / tick_nanoseconds(self.field.data_type()).unwrap_or(1)
        });
        let step = (end - begin).max(0) / count;
        let mut cuts = vec![first];
        for number in 1..count {
            let moved = number * window.min(step) / count;
            let tick = begin + number * step + moved;
            if begin < tick && tick < end {
                cuts.push(TimeCutoff::after(self.text(tick as i64)?));
            }
        }
        cuts.dedup();
        Ok(cuts)
    }

    /// End of the times for which a condition on the time alone holds, if it holds from the
    /// beginning until then.
    fn end_of(&self, condition: &str, sql: &SqlCompiler) -> Result<Option<TimeCutoff>> {
        let name = self.field.name();
        let schema = Schema::new(vec![self.field.clone()]);
        // A condition on other columns too is none of time.
        let Ok(condition) = sql.condition(condition, &schema) else {
            return Ok(None);
        };
        if condition.reads != [name.clone()] {
            return Ok(None);
        }
        let holds = |ticks: &[i64]| -> Result<Vec<bool>> {
            let rows = (condition.kernel)(
                &[times(ticks.to_vec(), self.field.data_type())?],
                ticks.len(),
            )?;
            let Some(column) = rows.first().and_then(|rows| rows.as_boolean_opt()) else {
                return Ok(Vec::new());
            };
            Ok(column.iter().map(|holds| holds == Some(true)).collect())
        };
        let step = ((self.max - self.min) / PROBES).max(1);
        let mut probes: Vec<i64> = (0..)
            .map(|i| self.min + i * step)
            .take_while(|tick| *tick < self.max)
            .collect();
        probes.push(self.max);
        let held_probes = holds(&probes)?;
        let end = held_probes.iter().take_while(|holds| **holds).count();
        if end == 0 || end == held_probes.len() || held_probes[end..].contains(&true) {
            return Ok(None);
        }
        let mut last = probes[end - 1];
        let mut next = probes[end];
        while next - last > 1 {
            let middle = last + (next - last) / 2;
            if holds(&[middle])?.first() == Some(&true) {
                last = middle;
            } else {
                next = middle;
            }
        }
        Ok(Some(TimeCutoff::after(self.text(last)?)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::temporal_conversions::NANOSECONDS;

    use super::*;

    fn range(data_type: DataType, min: i64, max: i64) -> TimeRange {
        TimeRange {
            field: Field::new("day", data_type, false),
            min,
            max,
        }
    }

    #[test]
    fn cuts_fall_on_different_places_of_a_window() {
        let day = 86_400 * i128::from(NANOSECONDS);
        let cuts = |count, window| -> Vec<i64> {
            let range = range(DataType::Date32, 0, 40);
            let cuts = range
                .cuts_from(TimeCutoff::after("1970-01-21"), count, window)
                .unwrap_or_default();
            cuts.iter()
                .map(|cut| cut.last_tick(&range.field).unwrap_or(-1))
                .collect()
        };
        assert_eq!(cuts(1, None), [20]);
        assert_eq!(cuts(4, None), [20, 25, 30, 35]);
        // The distance is two windows, so each window would be cut at the same place.
        assert_eq!(cuts(2, Some(5 * day)), [20, 32]);
        // A window that is longer than the distance of two cuts.
        assert_eq!(cuts(4, Some(7 * day)), [20, 26, 32, 38]);
        // No row follows the last day.
        assert_eq!(cuts(100, None), [20]);
    }

    #[test]
    fn a_condition_on_time_tells_where_training_ends() {
        let check = |condition: &str, expected: Option<&str>| {
            let found = range(DataType::Date32, 0, 30_000)
                .end_of(condition, &SqlCompiler::default())
                .ok()
                .flatten();
            assert_eq!(found, expected.map(TimeCutoff::after), "{condition}");
        };
        check("day < DATE '2016-04-25'", Some("2016-04-24"));
        check("day <= DATE '2016-04-25'", Some("2016-04-25"));
        check("day >= DATE '2016-04-25'", None);
        check("day < DATE '2016-04-25' OR day > DATE '2016-05-25'", None);
        check("day < DATE '1960-01-01'", None);
        check("store = 'a'", None);
    }
}
