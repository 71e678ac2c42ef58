//! Late data: intervals that are there already, and whose files may have changed since.

use std::collections::BTreeMap;

use forebay_commit::Manifest;
use forebay_model::{Fault, Interval, Pipeline, PipelineSource, Result, codes};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::deadline::parse_duration;
use crate::session::Session;

impl Session {
    /// The intervals that outputs show, and that end at a time or less than the pipeline's lookback
    /// before it; in order of time.
    pub fn intervals_in_lookback(
        &self,
        pipeline: &Pipeline,
        before: &str,
    ) -> Result<Vec<Interval>> {
        let Some((source, lookback)) = longest_lookback(pipeline) else {
            return Ok(Vec::new());
        };
        let wrong = |text: &str| {
            let message = format!(
                "`{text}` is no date or timestamp, so `lookback` cannot reach back from it"
            );
            Fault::new(codes::UNSUPPORTED, message).at(source.at.as_ref())
        };
        let end = parse_datetime(before).ok_or_else(|| wrong(before))?;
        let begin = end.checked_sub(lookback).map_err(|_| wrong(before))?;
        let mut found = BTreeMap::new();
        for sink in 0..pipeline.sinks.len() {
            let out = self.output(pipeline, sink)?;
            for stretch in Manifest::read(&self.io, &out)?
                .into_iter()
                .flat_map(|visible| visible.intervals)
            {
                let to = parse_datetime(&stretch.to).ok_or_else(|| wrong(&stretch.to))?;
                if begin < to && to <= end {
                    found.insert(
                        to,
                        Interval {
                            from: stretch.from,
                            to: stretch.to,
                        },
                    );
                }
            }
        }
        Ok(found.into_values().collect())
    }
}

/// The longest lookback, and whose it is.
fn longest_lookback(pipeline: &Pipeline) -> Option<(&PipelineSource, SignedDuration)> {
    let lookbacks = pipeline.sources.iter().filter_map(|source| {
        let length = parse_duration(source.lookback.as_deref()?)?;
        Some((source, SignedDuration::try_from(length).ok()?))
    });
    lookbacks.max_by_key(|(_, length)| *length)
}

/// Dates and timestamps; those of a zone in UTC.
fn parse_datetime(text: &str) -> Option<DateTime> {
    let instant = text
        .parse::<Timestamp>()
        .map(|instant| TimeZone::UTC.to_datetime(instant));
    instant.or_else(|_| text.parse()).ok()
}
