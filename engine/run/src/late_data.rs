//! Late data: published intervals whose files may have changed since.

use std::collections::BTreeMap;

use forebay_commit::Manifest;
use forebay_model::{
    DAY_NANOSECONDS, Fault, Interval, Pipeline, PipelineSource, Result, TimeLength, codes,
    parse_duration,
};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};

use crate::session::Session;

impl Session {
    /// The intervals that outputs show, and that end at a time or less than the pipeline's lookback
    /// before it; in order of time.
    pub fn intervals_in_lookback(
        &self,
        pipeline: &Pipeline,
        begin_of_interval: &str,
    ) -> Result<Vec<Interval>> {
        let mut earliest: Option<(&PipelineSource, DateTime)> = None;
        for source in &pipeline.sources {
            let Some(lookback) = source.lookback.as_deref().and_then(lookback_span) else {
                continue;
            };
            let end = parse_datetime(begin_of_interval)
                .ok_or_else(|| wrong(source, begin_of_interval))?;
            let begin = end
                .checked_sub(lookback)
                .map_err(|_| wrong(source, begin_of_interval))?;
            if earliest.is_none_or(|(_, earliest_begin)| begin < earliest_begin) {
                earliest = Some((source, begin));
            }
        }
        let Some((source, begin)) = earliest else {
            return Ok(Vec::new());
        };
        let end =
            parse_datetime(begin_of_interval).ok_or_else(|| wrong(source, begin_of_interval))?;
        let mut intervals = BTreeMap::new();
        for sink in 0..pipeline.sinks.len() {
            let out = self.output(pipeline, sink)?;
            let Some(visible) = Manifest::read(&self.io, &out)? else {
                continue;
            };
            for entry in visible.intervals {
                let to = parse_datetime(&entry.to).ok_or_else(|| wrong(source, &entry.to))?;
                if begin < to && to <= end {
                    let interval = Interval {
                        from: entry.from,
                        to: entry.to,
                    };
                    intervals.insert(to, interval);
                }
            }
        }
        Ok(intervals.into_values().collect())
    }
}

/// A lookback in civil time: days and longer lengths are of the calendar.
fn lookback_span(text: &str) -> Option<Span> {
    if let Ok(length @ TimeLength::Calendar { .. }) = text.parse() {
        let (months, nanoseconds) = length.months_and_nanoseconds();
        let days = i64::try_from(nanoseconds / DAY_NANOSECONDS).ok()?;
        return Span::new().try_months(months).ok()?.try_days(days).ok();
    }
    let length = SignedDuration::try_from(parse_duration(text)?).ok()?;
    Span::try_from(length).ok()
}

/// The fault of a time from which no lookback can be counted.
fn wrong(source: &PipelineSource, text: &str) -> Fault {
    let message =
        format!("`{text}` is no date or timestamp, so `lookback` cannot reach back from it");
    Fault::new(codes::UNSUPPORTED, message).at(source.at.as_ref())
}

/// Dates and timestamps; those of a zone in UTC.
fn parse_datetime(text: &str) -> Option<DateTime> {
    let instant = text
        .parse::<Timestamp>()
        .map(|instant| TimeZone::UTC.to_datetime(instant));
    instant.or_else(|_| text.parse()).ok()
}
