//! Boundaries of a split by time that are counted from the newest time of the data.
//!
//! A run replaces them by times as soon as its sources are discovered: everything after that, the artifact and the
//! workers included, knows the times alone.

use std::collections::{BTreeMap, BTreeSet};

use forebay_execute::SourceInput;
use forebay_model::{
    ColumnClock, DataSplit, Fault, Interval, Pipeline, Result, TimeCutoff, TimeLength, codes,
    last_length,
};
use forebay_plan::{BoundPipeline, OpStream, section_location};

use crate::leak_check::{TimeRange, time_text};
use crate::refit::base_sources;
use crate::session::{Session, datasets};

impl Session {
    /// The split with times in place of boundaries such as `last 28d`; as it is where it has none of these. The newest
    /// time is that of the rows that the run knows: those before the end of its interval.
    pub(crate) fn resolve_split(
        &self,
        pipeline: &Pipeline,
        inputs: &BTreeMap<String, SourceInput>,
        interval: Option<&Interval>,
    ) -> Result<Option<DataSplit>> {
        let Some(split) = pipeline.split.clone().filter(DataSplit::is_relative) else {
            return Ok(pipeline.split.clone());
        };
        let DataSplit::Time {
            column,
            parts,
            ends,
            embargo,
        } = split
        else {
            return Ok(pipeline.split.clone());
        };
        // The run binds the pipeline again, and reports what it refuses.
        let Ok(bound) = self.bind_steps(pipeline, &datasets(inputs)) else {
            return Ok(pipeline.split.clone());
        };
        let end = interval
            .map(|interval| TimeCutoff::before(&interval.to))
            .or_else(|| self.as_of.clone());
        let at = pipeline
            .sources
            .first()
            .and_then(|source| source.at.as_ref());
        let ends = self
            .newest_time(pipeline, &bound, inputs, end.as_ref())
            .and_then(|newest| newest.split_ends(&ends))
            .map_err(|fault| fault.at(section_location(at, "split").as_ref()))?;
        Ok(Some(DataSplit::Time {
            column,
            parts,
            ends,
            embargo,
        }))
    }

    /// The newest time of the rows that the split divides.
    fn newest_time(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        inputs: &BTreeMap<String, SourceInput>,
        end: Option<&TimeCutoff>,
    ) -> Result<TimeRange> {
        let mut newest: Option<TimeRange> = None;
        let mut is_timed = false;
        for name in divided_sources(pipeline, bound) {
            let time = pipeline
                .source(&name)
                .and_then(|source| source.time.as_ref());
            let Some(time) = time else { continue };
            let Some(input) = inputs.get(&name) else {
                continue;
            };
            is_timed = true;
            let Some(mut range) = TimeRange::of(&self.io, input, time)? else {
                continue;
            };
            // The metadata of a file tell the times of all its rows, also of those after the end.
            if let Some(end) = end {
                range.max = range.max.min(end.last_tick(&range.field)?);
            }
            newest = match newest {
                Some(newest) if !ends_later(&range, &newest) => Some(newest),
                _ => Some(range),
            };
        }
        if let Some(newest) = newest {
            return Ok(newest);
        }
        if is_timed {
            let message = "the split counts from the newest time of the data, \
                           and no row has a time";
            return Err(Fault::new(codes::EMPTY, message));
        }
        let message = "the split counts from the newest time of the data, \
                       and no source of its rows declares its `time`";
        Err(Fault::new(codes::MISSING_FIELD, message)
            .hint("name the column of times: `time: date`"))
    }
}

/// True if a range ends after another one, which may have other ticks.
fn ends_later(range: &TimeRange, other: &TimeRange) -> bool {
    range.nanoseconds(range.max) > other.nanoseconds(other.max)
}

/// The sources of the rows that a pipeline takes parts of, without those that joins look up.
fn divided_sources(pipeline: &Pipeline, bound: &BoundPipeline) -> BTreeSet<String> {
    let mut names: Vec<&String> = Vec::new();
    for node in &pipeline.nodes {
        if node.fit_on.is_some() {
            names.push(&node.name);
        }
    }
    for sink in &pipeline.sinks {
        if sink.split.is_some() {
            names.push(&sink.from);
        }
    }
    for training in &pipeline.trainings {
        names.push(&training.from);
    }
    if names.is_empty() {
        names.extend(bound.flows.keys());
    }
    let mut streams: Vec<&OpStream> = Vec::new();
    for name in names {
        if let Some(flow) = bound.flows.get(name)
            && flow.parts
        {
            streams.extend(&flow.streams);
        }
    }
    base_sources(bound, streams)
}

/// The time at which a part of a split ends.
struct SplitEnd {
    /// The first tick behind the part.
    tick: i64,
    text: String,
}

impl TimeRange {
    /// The boundaries of a split whose data end with this range, as times in order.
    fn split_ends(&self, ends: &[String]) -> Result<Vec<String>> {
        let mut times = Vec::new();
        let mut last: Option<i64> = None;
        for end in ends {
            let SplitEnd { tick, text } = self.end_of_part(end)?;
            if last.is_some_and(|last| last >= tick) {
                let message = format!(
                    "the end `{end}` of the split is {text}, \
                     and does not come after the one before it"
                );
                return Err(Fault::new(codes::BAD_VALUE, message)
                    .hint("write the ends in order of time, or more data"));
            }
            last = Some(tick);
            times.push(text);
        }
        Ok(times)
    }

    /// A boundary of a split, as a time.
    fn end_of_part(&self, end: &str) -> Result<SplitEnd> {
        if let Some(length) = last_length(end) {
            let tick = self.begin_of_last(end, length)?;
            let text = time_text(tick, &self.field)?;
            return Ok(SplitEnd { tick, text });
        }
        let last_before = TimeCutoff::before(end).last_tick(&self.field)?;
        Ok(SplitEnd {
            tick: last_before.saturating_add(1),
            text: end.to_owned(),
        })
    }

    /// The first tick of the last part of the range that is so long.
    fn begin_of_last(
        &self,
        end: &str,
        length: std::result::Result<TimeLength, String>,
    ) -> Result<i64> {
        let length = length.map_err(|message| Fault::new(codes::BAD_VALUE, message))?;
        let data_type = self.field.data_type();
        let clock = ColumnClock::of(data_type)?;
        let span = length.distance(self.field.name(), data_type)?.span();
        let Some(last_earlier) = clock.and_then(|clock| clock.earlier(self.max, span)) else {
            let message = format!("the end `{end}` of the split lies before all times");
            return Err(Fault::new(codes::BAD_VALUE, message));
        };
        Ok(last_earlier.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, TimeUnit};

    use super::*;

    fn range(data_type: DataType, max: i64) -> TimeRange {
        TimeRange {
            field: Field::new("date", data_type, true),
            min: 0,
            max,
        }
    }

    #[test]
    fn ends_count_from_the_newest_time() {
        let days = range(DataType::Date32, 16_942);
        let zone = DataType::Timestamp(TimeUnit::Second, Some("Europe/Berlin".into()));
        // 23:00 of 2024-04-02 in Berlin, after the clock went forward on 31 March.
        let local = range(zone, 1_712_091_600);
        let seconds = range(DataType::Timestamp(TimeUnit::Second, None), 86_400 * 40);
        let cases: [(&TimeRange, &[&str], &[&str]); 6] = [
            // 16942 is 2016-05-21: the last 28 days begin on 24 April.
            (&days, &["last 28d"], &["2016-04-24"]),
            (
                &days,
                &["last 1mo", "last 7d"],
                &["2016-04-22", "2016-05-15"],
            ),
            (
                &days,
                &["2016-01-01", "last 4w"],
                &["2016-01-01", "2016-04-24"],
            ),
            (&days, &["last 1d"], &["2016-05-21"]),
            (&local, &["last 7d"], &["2024-03-26T23:00:01+01:00"]),
            (&seconds, &["last 36h"], &["1970-02-08T12:00:01"]),
        ];
        for (range, ends, expected) in cases {
            let ends: Vec<String> = ends.iter().map(|end| (*end).to_owned()).collect();
            assert_eq!(range.split_ends(&ends).unwrap(), expected, "{ends:?}");
        }
    }

    #[test]
    fn ends_out_of_order_are_refused() {
        let days = range(DataType::Date32, 16_942);
        for (ends, part) in [
            (["2016-05-01", "last 28d"], "does not come after"),
            (["last 7d", "last 1mo"], "does not come after"),
            (["last 12h", "last 1d"], "whole number of days"),
        ] {
            let fault = days.split_ends(&ends.map(str::to_owned)).unwrap_err();
            assert!(fault.message().contains(part), "{ends:?}: {fault}");
        }
    }
}
