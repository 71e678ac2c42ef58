//! The history that applying an artifact needs: rows must not be published whose windows had none.

use std::cell::RefCell;
use std::collections::BTreeMap;

use forebay_commit::Artifact;
use forebay_execute::SourceInput;
use forebay_model::{
    Fault, Interval, Pipeline, PipelineSink, Result, codes, tick_nanoseconds, ticks,
};
use forebay_plan::{
    BaseDataset, BoundPipeline, FUTURE_PART, HistoryBuckets, OpStream, SourceHistory,
    needed_history,
};
use forebay_window::HistoryReach;

use crate::leak_check::{TimeRange, time_text, times};
use crate::session::{Session, first_tick};

/// An application of an artifact to given rows.
pub(crate) struct ServedHistory<'a> {
    pub session: &'a Session,
    pub pipeline: &'a Pipeline,
    pub bound: &'a BoundPipeline,
    pub sources: &'a BTreeMap<String, SourceInput>,
    pub artifact: &'a Artifact,
    pub interval: Option<&'a Interval>,
    /// Time ranges of sources that were read already.
    pub ranges: RefCell<BTreeMap<String, Option<TimeRange>>>,
}

/// The rows of a source that are given, and the first time that is written.
struct GivenRows<'a> {
    source: &'a str,
    range: TimeRange,
    /// Nanoseconds of a tick; 1 where times are numbers.
    tick: i128,
    /// First written time, in ticks of the source.
    written_from: i64,
    is_future: bool,
}

impl GivenRows<'_> {
    /// True if the given rows begin later than rows from a time on need.
    fn is_short(&self, history: &SourceHistory, from: i64) -> Result<bool> {
        let HistoryReach::Ticks(distance) = history.reach else {
            return Ok(true);
        };
        let from = match &history.buckets {
            Some(buckets) => self.bucket_start(buckets, from)?,
            None => i128::from(from) * self.tick,
        };
        let begin = i128::from(self.range.min) * self.tick;
        Ok(begin + i128::from(distance) > from)
    }

    /// The begin of the bucket of a time, in nanoseconds; in whole numbers where times are numbers.
    fn bucket_start(&self, buckets: &HistoryBuckets, time: i64) -> Result<i128> {
        let data_type = self.range.field.data_type();
        if buckets.time != *data_type {
            return Ok(i128::from(time) * self.tick - buckets.most());
        }
        let starts = buckets.bucket.starts(&times(vec![time], data_type)?)?;
        Ok(i128::from(ticks(&starts)?.value(0)) * self.tick)
    }

    /// The first time from which on rows have their history; `None` if no time bounds it.
    fn first_whole(&self, history: &SourceHistory) -> Result<Option<i64>> {
        let HistoryReach::Ticks(distance) = history.reach else {
            return Ok(None);
        };
        let begin = i128::from(self.range.min) * self.tick;
        let reached = begin + i128::from(distance);
        let whole_ticks = (reached + self.tick - 1).div_euclid(self.tick);
        let Ok(first) = i64::try_from(whole_ticks) else {
            return Ok(None);
        };
        let Some(buckets) = history.buckets.as_ref() else {
            return Ok(Some(first));
        };
        if !self.is_short(history, first)? {
            return Ok(Some(first));
        }
        // The bucket behind the one that the given rows begin in.
        let behind = reached + buckets.most();
        let Ok(behind) = i64::try_from(behind.div_euclid(self.tick)) else {
            return Ok(None);
        };
        let start = self.bucket_start(buckets, behind)?.div_euclid(self.tick);
        let start = i64::try_from(start).unwrap_or(i64::MAX);
        Ok((!self.is_short(history, start)?).then_some(start))
    }
}

impl ServedHistory<'_> {
    /// Refuses sinks whose rows lack history. History is whole if the given rows begin no later
    /// than those of the fit, if they reach back as far as the windows, or if the caller declares
    /// it.
    pub fn check(&self) -> Result<()> {
        if self.session.served.whole_history {
            return Ok(());
        }
        let mut faults = Vec::new();
        for sink in &self.pipeline.sinks {
            let Some(flow) = self.bound.flows.get(&sink.from) else {
                continue;
            };
            let streams = flow.streams_of(sink.split.as_deref()).0;
            let columns = flow.column_names();
            let needed = needed_history(self.pipeline, self.bound, &streams, &columns);
            for history in needed {
                if !history.looks_back() {
                    continue;
                }
                let Some(given_rows) = self.given_rows(sink, &streams, &history.source)? else {
                    continue;
                };
                if self.lacks_history(&given_rows, &history)? {
                    faults.push(self.fault(&given_rows, &history)?.at(sink.at.as_ref()));
                }
            }
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    /// The given rows of a source; `None` if there are none, or if they have no time.
    fn given_rows<'s>(
        &self,
        sink: &PipelineSink,
        streams: &[OpStream],
        source: &'s str,
    ) -> Result<Option<GivenRows<'s>>> {
        let Some(range) = self.range(source)? else {
            return Ok(None);
        };
        let tick = tick_nanoseconds(range.field.data_type()).unwrap_or(1);
        let is_future = sink.split.as_deref() == Some(FUTURE_PART);
        let from = self.interval.map(|interval| interval.from.as_str()).or(self
            .session
            .served
            .from
            .as_deref());
        let written_from = match from {
            _ if is_future => range.max.saturating_add(1),
            Some(from) => first_tick(from, &range.field)?,
            None => {
                let first = self.first_row(streams)?;
                first
                    .and_then(|first| i64::try_from(first.div_euclid(tick)).ok())
                    .unwrap_or(range.min)
            }
        };
        Ok(Some(GivenRows {
            source,
            range,
            tick,
            written_from,
            is_future,
        }))
    }

    fn range(&self, source: &str) -> Result<Option<TimeRange>> {
        let declared = self.pipeline.source(source);
        let time = declared.and_then(|source| source.time.as_ref());
        let Some(time) = time else {
            return Ok(None);
        };
        let Some(input) = self.sources.get(source) else {
            return Ok(None);
        };
        if let Some(range) = self.ranges.borrow().get(source) {
            return Ok(range.clone());
        }
        let range = TimeRange::of(&self.session.io, input, time)?;
        self.ranges
            .borrow_mut()
            .insert(source.to_owned(), range.clone());
        Ok(range)
    }

    /// The time of the first row of the sources whose rows are written, in nanoseconds.
    fn first_row(&self, streams: &[OpStream]) -> Result<Option<i128>> {
        let mut first: Option<i128> = None;
        let mut open: Vec<&OpStream> = streams.iter().collect();
        while let Some(stream) = open.pop() {
            match &self.bound.bases[stream.base] {
                BaseDataset::Source(source) => {
                    if let Some(range) = self.range(source)? {
                        let tick = tick_nanoseconds(range.field.data_type()).unwrap_or(1);
                        let begin = i128::from(range.min) * tick;
                        first = Some(first.map_or(begin, |first| first.min(begin)));
                    }
                }
                BaseDataset::Gathered(op) => {
                    let inputs = self.bound.gather_inputs.get(op).into_iter().flatten();
                    open.extend(inputs.flat_map(|(_, flow)| &flow.streams));
                }
            }
        }
        Ok(first)
    }

    fn lacks_history(&self, given_rows: &GivenRows<'_>, history: &SourceHistory) -> Result<bool> {
        // Windows see what they saw in the fit.
        if let Some(begin) = self.artifact.origin.begins.get(given_rows.source)
            && given_rows.range.min < first_tick(begin, &given_rows.range.field)?.saturating_add(1)
        {
            return Ok(false);
        }
        given_rows.is_short(history, given_rows.written_from)
    }

    fn fault(&self, given_rows: &GivenRows<'_>, history: &SourceHistory) -> Result<Fault> {
        let GivenRows {
            source,
            range,
            written_from,
            is_future,
            ..
        } = given_rows;
        let steps: Vec<String> = history
            .steps
            .iter()
            .map(|step| format!("`{step}`"))
            .collect();
        let is_time = tick_nanoseconds(range.field.data_type()).is_some();
        let reach = match (history.reach, &history.buckets) {
            (HistoryReach::NONE, Some(buckets)) => bucket_text(buckets, is_time),
            (HistoryReach::Ticks(length), None) => length_text(i128::from(length), is_time),
            (HistoryReach::Ticks(length), Some(buckets)) => {
                let length = length_text(i128::from(length), is_time);
                format!("{length} before {}", bucket_text(buckets, is_time))
            }
            (HistoryReach::Rows(rows), _) => {
                format!("{rows} rows of each series, however old,")
            }
            (HistoryReach::Everything, _) => "all earlier rows".to_owned(),
        };
        let begin = time_text(range.min, &range.field)?;
        let written = if *is_future {
            "the rows of the future".to_owned()
        } else {
            format!("rows from {} on", time_text(*written_from, &range.field)?)
        };
        let message = format!(
            "{written} lack history: steps ({}) reach back {reach} in `{source}`, \
             and its given rows begin at {begin}",
            steps.join(", ")
        );
        let given_too = if *is_future || self.interval.is_some() {
            format!("`--source {source}=HISTORY`")
        } else {
            let from = time_text(*written_from, &range.field)?;
            format!(
                "`--source {source}=HISTORY --rows-from {from}`, which reads the rows before that \
                 time and does not \
                 write them"
            )
        };
        let hint = format!(
            "give the earlier rows, too: {given_too}. If the given rows are all that there is of \
             their series, add \
             `--whole-history`. In Python: `rows_from`, `whole_history`"
        );
        let mut fault = Fault::new(codes::NO_HISTORY, message).hint(hint);
        if let Some(first_whole) = given_rows.first_whole(history)?
            && first_whole <= range.max
            && !is_future
            && self.interval.is_none()
        {
            let first_whole = time_text(first_whole, &range.field)?;
            fault = fault.note(format!(
                "rows from {first_whole} on have their history: `--rows-from {first_whole}` writes \
                 those"
            ));
        }
        let note = match self.artifact.origin.begins.get(*source) {
            Some(begin) => format!("the rows of the fit begin at {begin}"),
            None => "the artifact does not record when the rows of the fit begin: if these rows \
                     begin no later, add `--whole-history`"
                .to_owned(),
        };
        Ok(fault.note(note))
    }
}

/// The begin of a bucket, for people.
fn bucket_text(buckets: &HistoryBuckets, is_time: bool) -> String {
    let length = length_text(buckets.most(), is_time);
    format!("to the begin of their bucket of up to {length}")
}

/// A length of time in its greatest whole unit; a number of steps where times are numbers.
fn length_text(length: i128, is_time: bool) -> String {
    const UNITS: [(i128, &str); 6] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
    ];
    if !is_time {
        return format!("{length} steps");
    }
    UNITS
        .iter()
        .find(|(unit, _)| length % unit == 0)
        .map_or_else(
            || format!("{length}ns"),
            |(unit, name)| format!("{}{name}", length / unit),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_their_greatest_whole_unit() {
        let hour = 3_600_000_000_000;
        let cases = [
            (7 * 24 * hour, "7d"),
            (36 * hour, "36h"),
            (90_000_000_000, "90s"),
            (1, "1ns"),
        ];
        for (length, expected) in cases {
            assert_eq!(length_text(length, true), expected);
        }
        assert_eq!(length_text(7, false), "7 steps");
    }
}
