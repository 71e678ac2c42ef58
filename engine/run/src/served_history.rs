//! The history that applying an artifact needs: rows must not be published whose windows had none.

use std::cell::RefCell;
use std::collections::BTreeMap;

use forebay_commit::Artifact;
use forebay_execute::SourceInput;
use forebay_model::{
    Fault, Interval, NodeInput, Pipeline, PipelineSink, Result, codes, tick_nanoseconds,
};
use forebay_plan::{
    BaseDataset, BoundPipeline, FUTURE_PART, OpStream, SourceHistory, needed_history,
};
use forebay_window::HistoryReach;

use crate::leak_check::{TimeRange, time_text};
use crate::session::{Session, first_tick};

/// An application of an artifact to given rows.
pub(crate) struct ServedHistory<'a> {
    pub session: &'a Session,
    pub pipeline: &'a Pipeline,
    pub bound: &'a BoundPipeline,
    pub sources: &'a BTreeMap<String, SourceInput>,
    pub artifact: &'a Artifact,
    pub interval: Option<&'a Interval>,
    /// The times of sources that were looked at.
    pub ranges: RefCell<BTreeMap<String, Option<TimeRange>>>,
}

/// The rows of a source that are given, and the first time that is written.
struct GivenRows<'a> {
    source: &'a str,
    range: TimeRange,
    /// Nanoseconds of a tick; 1 where times are numbers.
    tick: i128,
    /// In ticks of the source.
    written_from: i64,
    is_future: bool,
}

impl ServedHistory<'_> {
    /// Refuses sinks whose rows lack history. History is whole where the given rows begin no later than those of the
    /// fit, where they reach back as far as the windows, or where the caller says so.
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
            let columns: Vec<String> = flow
                .schema
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect();
            let looks_at_rows = |label: &str| self.is_windowed_query(label);
            let needed = needed_history(self.bound, &streams, &columns, &looks_at_rows);
            for (source, history) in needed {
                if history.reach == HistoryReach::NONE {
                    continue;
                }
                let Some(given) = self.given_rows(sink, &streams, &source)? else {
                    continue;
                };
                if self.lacks_history(&given, history.reach)? {
                    faults.push(self.fault(&given, &history)?.at(sink.at.as_ref()));
                }
            }
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    /// True for a gather that is a query with windows, which have no known reach.
    fn is_windowed_query(&self, label: &str) -> bool {
        let node = label
            .strip_suffix(".sql")
            .and_then(|name| self.pipeline.node(name));
        match node.map(|node| &node.input) {
            Some(NodeInput::Sql(query)) => query
                .to_ascii_lowercase()
                .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
                .any(|word| word == "over"),
            _ => false,
        }
    }

    /// The rows of a source that are given; `None` where it has none, or where they tell no time.
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
        let (Some(time), Some(input)) = (time, self.sources.get(source)) else {
            return Ok(None);
        };
        if let Some(known) = self.ranges.borrow().get(source) {
            return Ok(known.clone());
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

    fn lacks_history(&self, given: &GivenRows<'_>, reach: HistoryReach) -> Result<bool> {
        // Windows see what they saw in the fit.
        if let Some(begin) = self.artifact.origin.begins.get(given.source)
            && given.range.min < first_tick(begin, &given.range.field)?.saturating_add(1)
        {
            return Ok(false);
        }
        let HistoryReach::Ticks(nanoseconds) = reach else {
            return Ok(true);
        };
        let begin = i128::from(given.range.min) * given.tick;
        let written_from = i128::from(given.written_from) * given.tick;
        Ok(begin + i128::from(nanoseconds) > written_from)
    }

    fn fault(&self, given: &GivenRows<'_>, history: &SourceHistory) -> Result<Fault> {
        let GivenRows {
            source,
            range,
            tick,
            written_from,
            is_future,
        } = given;
        let steps: Vec<String> = history
            .steps
            .iter()
            .map(|step| format!("`{step}`"))
            .collect();
        let reach = match history.reach {
            HistoryReach::Ticks(length) => {
                let is_time = tick_nanoseconds(range.field.data_type()).is_some();
                length_text(length, is_time)
            }
            HistoryReach::Rows(rows) => format!("{rows} rows of each series, however old,"),
            HistoryReach::Everything => "all earlier rows".to_owned(),
        };
        let begin = time_text(range.min, &range.field)?;
        let written = if *is_future {
            "the rows of the future".to_owned()
        } else {
            format!("rows from {} on", time_text(*written_from, &range.field)?)
        };
        let message = format!(
            "{written} lack history: windows ({}) reach back {reach} in `{source}`, and its given rows begin at {begin}",
            steps.join(", ")
        );
        let given_too = if *is_future || self.interval.is_some() {
            format!("`--source {source}=HISTORY`")
        } else {
            let from = time_text(*written_from, &range.field)?;
            format!(
                "`--source {source}=HISTORY --rows-from {from}`, which reads the rows before that time and does not \
                 write them"
            )
        };
        let hint = format!(
            "give the earlier rows, too: {given_too}. If the given rows are all that there is of their series, add \
             `--whole-history`. In Python: `rows_from`, `whole_history`"
        );
        let mut fault = Fault::new(codes::NO_HISTORY, message).hint(hint);
        if let HistoryReach::Ticks(length) = history.reach {
            let ticks = (i128::from(length) + tick - 1).div_euclid(*tick);
            let first_whole = i64::try_from(i128::from(range.min) + ticks).unwrap_or(i64::MAX);
            if first_whole <= range.max && !is_future && self.interval.is_none() {
                let first_whole = time_text(first_whole, &range.field)?;
                fault = fault.note(format!(
                    "rows from {first_whole} on have their history: `--rows-from {first_whole}` writes those"
                ));
            }
        }
        if let Some(begin) = self.artifact.origin.begins.get(*source) {
            fault = fault.note(format!("the rows of the fit begin at {begin}"));
        }
        Ok(fault)
    }
}

/// A length of time in its greatest whole unit; a number of steps where times are numbers.
fn length_text(length: i64, is_time: bool) -> String {
    const UNITS: [(i64, &str); 6] = [
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
