//! Profile of series in time.

use arrow::datatypes::{DataType, Field, TimeUnit};
use forebay_model::{
    CalendarUnit, DAY_NANOSECONDS, Fault, Finding, Result, TimeLength, tick_nanoseconds,
};
use serde::{Deserialize, Serialize};

use crate::leak_check::time_text;

/// The series of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeriesProfile {
    /// The column of times.
    pub time: String,
    /// The columns that identify a series.
    pub keys: Vec<String>,
    /// The column whose values other than 0 are demands; without it, each row is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand: Option<String>,
    /// Series.
    pub series: u64,
    /// Rows that have a time.
    pub rows: u64,
    /// Rows of the shortest series, of the mean and of the longest.
    pub rows_per_series: [f64; 3],
    /// The first time.
    pub first: Option<String>,
    /// The last time.
    pub last: Option<String>,
    /// The greatest length that divides all distances between times of the same series, such as `1d`; months, quarters
    /// or years where all times of each series lie whole months apart; a number where times are numbers. None where no
    /// series has two times.
    pub period: Option<String>,
    /// Rows a period on average, from the first time to the last.
    pub rows_per_period: Option<f64>,
    /// Periods without a row between the first and the last row of a series, summed over series.
    pub gaps: u64,
    /// Series with gaps.
    pub series_with_gaps: u64,
    /// Series with 1.32 periods a demand and more.
    pub intermittent: u64,
    /// Share of the intermittent series among all series.
    pub intermittent_share: f64,
}

impl SeriesProfile {
    /// Reads the finding of the analyzer of series, and that of the clocks in the zone of their times, if there is one:
    /// periods of whole days and of months are those of such clocks. `inputs` are its columns: the time, the demand and the keys.
    pub(super) fn read(
        finding: &Finding,
        local: Option<&Finding>,
        inputs: &[&Field],
        key_count: usize,
    ) -> Result<SeriesProfile> {
        let (columns, keys) = inputs
            .split_at_checked(inputs.len().saturating_sub(key_count))
            .unwrap_or_default();
        let (time, demand) = columns
            .split_first()
            .ok_or_else(|| Fault::internal("series without a time"))?;
        // Ticks of nanoseconds have more digits than doubles.
        let first = finding.integer("first")?;
        let last = finding.integer("last")?;
        let finding = match local {
            Some(local) if has_calendar_period(local, time.data_type())? => local,
            _ => finding,
        };
        let count = |name: &str| Ok::<_, Fault>(finding.number(name)?.unwrap_or(0.0) as u64);
        let period = finding.integer("period")?;
        let period_months = finding.integer("period_months")?;
        let series = count("series")?;
        let rows = count("rows")?;
        let intermittent = count("intermittent")?;
        let tick_span = finding.integer("first")?.zip(finding.integer("last")?);
        let tick_span = tick_span.map(|(first, last)| last.abs_diff(first));
        let span_months = finding.integer("span_months")?;
        let periods = match (period_months, period) {
            (Some(months), _) => span_months.map(|span| span as u64 / months as u64 + 1),
            (None, Some(ticks)) => tick_span.map(|span| span / ticks as u64 + 1),
            (None, None) => None,
        };
        let period = match period_months {
            Some(months) => months_text(months),
            None => period.map(|period| period_text(period, time.data_type())),
        };
        let share = |of: u64| {
            if series == 0 {
                0.0
            } else {
                of as f64 / series as f64
            }
        };
        Ok(SeriesProfile {
            time: time.name().clone(),
            keys: keys.iter().map(|key| key.name().clone()).collect(),
            demand: demand.first().map(|demand| demand.name().clone()),
            series,
            rows,
            rows_per_series: [
                count("rows_min")? as f64,
                share(rows),
                count("rows_max")? as f64,
            ],
            first: optional_time_text(first, time)?,
            last: optional_time_text(last, time)?,
            period,
            rows_per_period: periods.map(|periods| rows as f64 / periods as f64),
            gaps: count("gaps")?,
            series_with_gaps: count("series_with_gaps")?,
            intermittent,
            intermittent_share: share(intermittent),
        })
    }
}

/// True if the period of series is a number of days or months.
fn has_calendar_period(finding: &Finding, time: &DataType) -> Result<bool> {
    if finding.integer("period_months")?.is_some() {
        return Ok(true);
    }
    let tick = tick_nanoseconds(time).unwrap_or(1);
    let period = finding.integer("period")?;
    Ok(period.is_some_and(|period| i128::from(period) * tick % DAY_NANOSECONDS == 0))
}

/// A number of months as a length of time in the longest unit that holds it whole.
fn months_text(months: i64) -> Option<String> {
    let units = [
        (CalendarUnit::Year, 12),
        (CalendarUnit::Quarter, 3),
        (CalendarUnit::Month, 1),
    ];
    let (unit, unit_months) = units.into_iter().find(|(_, unit)| months % unit == 0)?;
    let count = u32::try_from(months / unit_months).ok()?;
    Some(TimeLength::Calendar { count, unit }.to_string())
}

/// A number of ticks as a length of time in the longest unit that holds it whole.
fn period_text(ticks: i64, time: &DataType) -> String {
    const SECOND: i128 = 1_000_000_000;
    let nanos = match time {
        DataType::Date32 => 86_400 * SECOND,
        DataType::Date64
        | DataType::Timestamp(TimeUnit::Millisecond, _)
        | DataType::Time32(TimeUnit::Millisecond) => SECOND / 1_000,
        DataType::Timestamp(TimeUnit::Second, _) | DataType::Time32(_) => SECOND,
        DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Time64(TimeUnit::Microsecond) => {
            SECOND / 1_000_000
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Time64(_) => 1,
        _ => return ticks.to_string(),
    };
    let length = i128::from(ticks) * nanos;
    let units = [
        ("d", 86_400 * SECOND),
        ("h", 3_600 * SECOND),
        ("m", 60 * SECOND),
        ("s", SECOND),
    ];
    let units = units.into_iter().chain([
        ("ms", SECOND / 1_000),
        ("us", SECOND / 1_000_000),
        ("ns", 1),
    ]);
    let whole = units.into_iter().find(|(_, unit)| length % unit == 0);
    whole.map_or_else(
        || ticks.to_string(),
        |(name, unit)| format!("{}{name}", length / unit),
    )
}

fn optional_time_text(tick: Option<i64>, time: &Field) -> Result<Option<String>> {
    tick.map(|tick| time_text(tick, time)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_have_the_longest_whole_unit() {
        for (months, text) in [(1, "1mo"), (3, "1q"), (4, "4mo"), (6, "2q"), (24, "2y")] {
            assert_eq!(months_text(months).as_deref(), Some(text));
        }
    }

    #[test]
    fn periods_have_the_longest_whole_unit() {
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        for (ticks, time, text) in [
            (7, &DataType::Date32, "7d"),
            (3_600_000_000, &micros, "1h"),
            (90_000_000, &micros, "90s"),
            (1, &micros, "1us"),
            (86_400_000, &DataType::Date64, "1d"),
            (12, &DataType::Int32, "12"),
        ] {
            assert_eq!(period_text(ticks, time), text, "{ticks} {time}");
        }
    }
}
