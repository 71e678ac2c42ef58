//! Days of sources that have not come, have come twice, or have a column without values.
//!
//! They are found in the metadata of files, before any row is read: in the bounds of the time, the
//! digests of footers and the counts of nulls. The same files give the same days on any number of
//! threads and workers.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::{DataType, Field};
use forebay_contract::ScanRequest;
use forebay_execute::SourceInput;
use forebay_model::{
    BoundValue, ColumnClock, ColumnExtent, ContentId, Dataset, DayRule, Fault, FileContent,
    FileRange, Interval, Pipeline, PipelineSource, Result, codes, ticks,
};
use forebay_storage::StorageClient;
use jiff::Timestamp;

use crate::day_report::{DayProblem, DayReport};
use crate::leak_check::time_text;
use crate::session::Session;

/// Days that a report names, the newest ones.
const DAYS_LISTED_MAX: usize = 5;

/// Columns, or groups of files, that a report names for a day.
const DETAILS_LISTED_MAX: usize = 5;

/// Days before the last one that are refused, where the spec says so, and with which a day is
/// compared. A longer gap ends a history, and a longer stretch without values is how a column is.
const RECENT_DAYS: i64 = 28;

const WEEK: i64 = 7;

/// Days with values after which one without any is an exception.
const VALUED_DAYS_MIN: usize = 7;

/// Days of a history of less than a week that has one gap.
const OTHER_DAYS_MIN: i64 = 4;

impl Session {
    /// The days of the sources of a run that are late, duplicate or empty, as far as metadata tell.
    /// Warns of them, and fails where a source declares them errors.
    pub(crate) fn source_days(
        &self,
        pipeline: &Pipeline,
        inputs: &BTreeMap<String, SourceInput>,
        interval: Option<&Interval>,
    ) -> Result<Vec<DayReport>> {
        let mut reports = Vec::new();
        let mut faults = Vec::new();
        for source in &pipeline.sources {
            let Some(input) = inputs.get(&source.name) else {
                continue;
            };
            faults.extend(untold_rules(source, &input.dataset, DayRule::Error));
            for problem in untold_rules(source, &input.dataset, DayRule::Warn) {
                self.warn(&problem);
            }
            let label = pipeline.label.as_ref().map(|label| label.column.as_str());
            let Some(mut days) = SourceDays::new(source, &input.dataset, label, interval)? else {
                continue;
            };
            let are_times_read = matches!(source.days.late, DayRule::Warn | DayRule::Error);
            if days.covered.is_none() && are_times_read {
                days.read(&self.io, input)?;
            }
            for kind in [DayProblem::Late, DayProblem::Duplicate, DayProblem::Empty] {
                let rule = kind.rule(source);
                let mut noted = match rule {
                    DayRule::Allow => continue,
                    DayRule::WarnIfKnown | DayRule::Warn | DayRule::Error => days.noted(kind),
                };
                noted.retain(|noted| days.is_in_scope(noted.day));
                if noted.is_empty() {
                    continue;
                }
                noted.sort();
                let report = DayReport::new(&source.name, kind, &noted)?;
                let problem = Fault::new(codes::EXPECTATION, report.text()).hint(report.hint());
                let is_refused = noted.iter().any(|noted| days.is_recent(noted.day));
                if rule == DayRule::Error && is_refused {
                    faults.push(problem.at(source.at.as_ref()));
                } else {
                    self.warn(&problem);
                }
                reports.push(report);
            }
        }
        Fault::combine(faults).map_or(Ok(reports), Err)
    }
}

/// The faults of the kinds of days of a source that have a rule, where nothing tells such days.
pub(crate) fn untold_rules(
    source: &PipelineSource,
    dataset: &Dataset,
    rule: DayRule,
) -> Vec<Fault> {
    let has_rows = dataset.spans.iter().any(|span| !span.pieces.is_empty());
    let mut faults = Vec::new();
    for kind in [DayProblem::Late, DayProblem::Duplicate, DayProblem::Empty] {
        let is_judged_by_files = kind != DayProblem::Late;
        if kind.rule(source) != rule {
            continue;
        }
        let reason = if !has_days(source, dataset) {
            "rows without a `time` of dates or times have no days"
        } else if is_judged_by_files && dataset.files.is_empty() && has_rows {
            "only the footers of Parquet files tell such days"
        } else {
            continue;
        };
        let name = kind.name();
        let message = format!(
            "source `{}`: `days.{name}` cannot be judged: {reason}",
            source.name
        );
        let hint = match kind {
            DayProblem::Late => "declare such a `time`, or leave out `late`",
            DayProblem::Duplicate => {
                "leave out `duplicate`, and declare `unique` in `expect` of the step that reads \
                 the source"
            }
            DayProblem::Empty => {
                "leave out `empty`, and declare `not_null` in `expect` of the step that reads the \
                 source"
            }
        };
        let fault = Fault::new(codes::UNSUPPORTED, message).hint(hint);
        faults.push(fault.at(source.at.as_ref()));
    }
    faults
}

/// True if the rows of a source have days.
fn has_days(source: &PipelineSource, dataset: &Dataset) -> bool {
    let Some(time) = &source.time else {
        return false;
    };
    match dataset.schema.field_with_name(time) {
        Ok(field) => !ColumnClock::of(field.data_type()).is_ok_and(|clock| clock.is_none()),
        // The pipeline is refused for it where it is bound.
        Err(_) => true,
    }
}

impl DayProblem {
    /// The treatment of such days of a source.
    fn rule(self, source: &PipelineSource) -> DayRule {
        match self {
            DayProblem::Late => source.days.late,
            DayProblem::Duplicate => source.days.duplicate,
            DayProblem::Empty => source.days.empty,
        }
    }
}

/// A day of which something is noted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NotedDay {
    /// Counted from 1970.
    day: i64,
    /// Its column or files.
    detail: Option<String>,
}

impl DayReport {
    fn new(source: &str, kind: DayProblem, noted: &[NotedDay]) -> Result<DayReport> {
        let mut details: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
        for noted in noted {
            let of_day = details.entry(noted.day).or_default();
            of_day.extend(noted.detail.as_deref());
        }
        let first = details.len().saturating_sub(DAYS_LISTED_MAX);
        let mut newest = Vec::with_capacity(DAYS_LISTED_MAX);
        for (day, details) in details.iter().skip(first) {
            newest.push(day_text(*day, details)?);
        }
        Ok(DayReport {
            source: source.to_owned(),
            kind,
            days: details.len() as u64,
            newest,
        })
    }
}

/// A day with its columns or files.
fn day_text(day: i64, details: &[&str]) -> Result<String> {
    let day = time_text(day, &Field::new("day", DataType::Date32, false))?;
    if details.is_empty() {
        return Ok(day);
    }
    let hidden = details.len().saturating_sub(DETAILS_LISTED_MAX);
    let listed = details[..details.len() - hidden].join(" and ");
    Ok(match hidden {
        0 => format!("{day}: {listed}"),
        _ => format!("{day}: {listed} and {hidden} more"),
    })
}

/// Digest and folder values that files of the same rows have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FileRows<'d> {
    digest: ContentId,
    partition: &'d [(String, String)],
}

/// Days from a first to a last one, counted from 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct DayRange {
    first: i64,
    last: i64,
}

impl DayRange {
    /// Number of its days.
    fn days(self) -> i64 {
        self.last - self.first + 1
    }

    fn contains(self, day: i64) -> bool {
        (self.first..=self.last).contains(&day)
    }
}

/// A file with the days of its rows.
#[derive(Debug)]
struct FileDays<'d> {
    name: &'d str,
    partition: &'d [(String, String)],
    days: DayRange,
    content: Option<&'d FileContent>,
}

/// The days of a source.
#[derive(Debug)]
struct SourceDays<'d> {
    /// Days with rows, in order and without neighbors. `None` where the days of some rows are not
    /// known.
    covered: Option<Vec<DayRange>>,
    files: Vec<FileDays<'d>>,
    /// Names of the columns.
    columns: Vec<&'d str>,
    /// Index of the label among the columns.
    label: Option<usize>,
    /// The days of the interval, if the run has one.
    interval: Option<DayRange>,
    /// The column of times.
    time: String,
    clock: ColumnClock,
    /// The last day with rows.
    newest: i64,
    /// The last day that has ended.
    ended: i64,
}

impl<'d> SourceDays<'d> {
    /// The days of a source with a time; `None` where none is known.
    fn new(
        source: &PipelineSource,
        dataset: &'d Dataset,
        label: Option<&str>,
        interval: Option<&Interval>,
    ) -> Result<Option<SourceDays<'d>>> {
        let Some(time) = &source.time else {
            return Ok(None);
        };
        let Ok(field) = dataset.schema.field_with_name(time) else {
            return Ok(None);
        };
        let Some(clock) = ColumnClock::of(field.data_type())? else {
            return Ok(None);
        };
        let watched = dataset.watched.iter().position(|name| name == time);
        let interval = match interval {
            Some(interval) => {
                let (first, last) = interval.ticks(field)?;
                day_range(&clock, first, last)
            }
            None => None,
        };
        let contents: BTreeMap<&str, &FileContent> = dataset
            .files
            .iter()
            .map(|content| (content.path.as_str(), content))
            .collect();
        let mut files: BTreeMap<&str, FileDays<'d>> = BTreeMap::new();
        let mut ranges = Vec::new();
        let mut is_complete = true;
        for piece in dataset.spans.iter().flat_map(|span| &span.pieces) {
            if piece.rows == Some(0) {
                continue;
            }
            let days = watched.and_then(|watched| piece_days(piece, watched, &clock));
            let Some(mut days) = days else {
                is_complete = false;
                continue;
            };
            // The rows after the interval have not come for this run.
            if let Some(interval) = interval {
                if days.first > interval.last {
                    continue;
                }
                days.last = days.last.min(interval.last);
            }
            ranges.push(days);
            let file = files.entry(&piece.path).or_insert(FileDays {
                name: &piece.relative,
                partition: &piece.partition,
                days,
                content: contents.get(piece.path.as_str()).copied(),
            });
            file.days.first = file.days.first.min(days.first);
            file.days.last = file.days.last.max(days.last);
        }
        let covered = merged(ranges);
        let newest = covered.last().map(|range| range.last);
        if newest.is_none() && is_complete {
            return Ok(None);
        }
        let newest = newest.unwrap_or(i64::MIN);
        let now = Timestamp::now().as_nanosecond().div_euclid(clock.tick());
        let today = i64::try_from(now).ok().and_then(|now| clock.day(now));
        let ended = match interval {
            Some(interval) => interval.last,
            None => today.map_or(newest, |today| today - 1),
        };
        Ok(Some(SourceDays {
            covered: is_complete.then_some(covered),
            files: files.into_values().collect(),
            columns: column_names(dataset),
            label: label.and_then(|label| dataset.schema.index_of(label).ok()),
            interval,
            time: time.clone(),
            clock,
            newest,
            ended,
        }))
    }

    /// Reads the times of all rows, since a day without any is refused, and the metadata do not tell
    /// the days.
    fn read(&mut self, io: &StorageClient, input: &SourceInput) -> Result<()> {
        let request = ScanRequest::of_columns(vec![self.time.clone()], &input.dataset.schema);
        let mut days = BTreeSet::new();
        for span in &input.dataset.spans {
            let mut last_time = None;
            for chunk in input.source.open(io, span, &request)? {
                for time in ticks(chunk?.batch.column(0))?.iter().flatten() {
                    // Rows of one time often follow each other.
                    if last_time.replace(time) != Some(time) {
                        days.extend(self.clock.day(time));
                    }
                }
            }
        }
        if let Some(interval) = self.interval {
            days.retain(|day| *day <= interval.last);
        }
        let mut ranges = Vec::with_capacity(days.len());
        for day in days {
            ranges.push(DayRange {
                first: day,
                last: day,
            });
        }
        let covered = merged(ranges);
        if let Some(last) = covered.last() {
            self.newest = last.last;
        }
        self.covered = Some(covered);
        Ok(())
    }

    fn noted(&self, kind: DayProblem) -> Vec<NotedDay> {
        match kind {
            DayProblem::Late => self.late(),
            DayProblem::Duplicate => self.duplicates(),
            DayProblem::Empty => self.empties(),
        }
    }

    /// True for a day that the run looks at.
    fn is_in_scope(&self, day: i64) -> bool {
        self.interval.is_none_or(|interval| interval.contains(day))
    }

    /// True for a day that is refused where the spec says so.
    fn is_recent(&self, day: i64) -> bool {
        self.interval.is_some() || day > self.newest.saturating_sub(RECENT_DAYS)
    }

    /// Days without rows on which rows are usual.
    fn late(&self) -> Vec<NotedDay> {
        let covered = self.covered.as_deref().unwrap_or_default();
        let mut gaps = Vec::new();
        for pair in covered.windows(2) {
            gaps.push(DayRange {
                first: pair[0].last + 1,
                last: pair[1].first - 1,
            });
        }
        if !covered.is_empty() && self.newest < self.ended {
            gaps.push(DayRange {
                first: self.newest + 1,
                last: self.ended,
            });
        }
        let mut noted = Vec::new();
        for gap in gaps {
            if gap.days() > RECENT_DAYS {
                continue;
            }
            for day in gap.first..=gap.last {
                if is_usual(day, gap, covered) {
                    noted.push(NotedDay { day, detail: None });
                }
            }
        }
        noted
    }

    /// Days of which several files hold the same rows: the last day of each such group of files.
    fn duplicates(&self) -> Vec<NotedDay> {
        let mut groups: BTreeMap<FileRows<'_>, Vec<&FileDays<'_>>> = BTreeMap::new();
        for file in &self.files {
            if let Some(content) = file.content {
                let rows = FileRows {
                    digest: content.digest,
                    partition: file.partition,
                };
                groups.entry(rows).or_default().push(file);
            }
        }
        let mut noted = Vec::new();
        for files in groups.into_values().filter(|files| files.len() > 1) {
            let names: Vec<String> = files
                .iter()
                .map(|file| format!("`{}`", file.name))
                .collect();
            noted.push(NotedDay {
                day: files[0].days.last,
                detail: Some(names.join(" and ")),
            });
        }
        noted
    }

    /// Days on which a column is null throughout, after days on which it has values.
    fn empties(&self) -> Vec<NotedDay> {
        let mut by_day: BTreeMap<i64, DayFiles> = BTreeMap::new();
        let mut long_files = Vec::new();
        let mut columns = BTreeSet::new();
        for file in &self.files {
            // A file of a long time does not tell on which of its days a column has values.
            if file.days.days() > RECENT_DAYS {
                long_files.push(file.days);
                continue;
            }
            let empty_columns = file
                .content
                .map(|content| content.empty_columns.as_slice())
                .unwrap_or_default();
            columns.extend(empty_columns.iter().copied());
            for day in file.days.first..=file.days.last {
                let files = by_day.entry(day).or_default();
                files.count += 1;
                for column in empty_columns {
                    *files.empty.entry(*column).or_default() += 1;
                }
            }
        }
        let long_files = merged(long_files);
        by_day.retain(|day, _| !is_covered(*day, &long_files));
        let mut noted = Vec::new();
        for column in columns {
            let name = self.columns.get(column).copied().unwrap_or_default();
            let days: Vec<(i64, bool)> = by_day
                .iter()
                .map(|(day, files)| (*day, files.has_values(column)))
                .collect();
            // Rows that are planned for several days ahead have no label yet.
            let planned = match self.label {
                Some(label) if label == column => planned_days(&days),
                _ => 0,
            };
            for day in exceptional_days(&days[..days.len() - planned]) {
                noted.push(NotedDay {
                    day,
                    detail: Some(format!("`{name}`")),
                });
            }
        }
        noted
    }
}

/// Files with rows of a day.
#[derive(Debug, Default)]
struct DayFiles {
    count: u64,
    /// Files in which a column is null throughout, by column.
    empty: BTreeMap<usize, u64>,
}

impl DayFiles {
    fn has_values(&self, column: usize) -> bool {
        self.empty.get(&column).copied().unwrap_or_default() < self.count
    }
}

fn column_names(dataset: &Dataset) -> Vec<&str> {
    let fields = dataset.schema.fields();
    fields.iter().map(|field| field.name().as_str()).collect()
}

/// The days of two ticks; `None` beyond the calendar.
fn day_range(clock: &ColumnClock, first: i64, last: i64) -> Option<DayRange> {
    Some(DayRange {
        first: clock.day(first)?,
        last: clock.day(last)?,
    })
}

/// The days of a piece of a file, from the bounds of its times.
fn piece_days(piece: &FileRange, watched: usize, clock: &ColumnClock) -> Option<DayRange> {
    match piece.extents.get(watched)?.as_ref()? {
        ColumnExtent {
            min: BoundValue::Int(min),
            max: BoundValue::Int(max),
            ..
        } => day_range(clock, *min, *max),
        _ => None,
    }
}

/// Ranges in order, with those that overlap or follow each other as one.
fn merged(mut ranges: Vec<DayRange>) -> Vec<DayRange> {
    ranges.sort_unstable();
    let mut merged: Vec<DayRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.first <= last.last + 1 => last.last = last.last.max(range.last),
            _ => merged.push(range),
        }
    }
    merged
}

/// True if one of some ranges in order has the day.
fn is_covered(day: i64, covered: &[DayRange]) -> bool {
    let following = covered.partition_point(|range| range.first <= day);
    covered[..following]
        .last()
        .is_some_and(|range| range.contains(day))
}

/// True if rows are usual on a day of a gap: on three of four equal weekdays of the four weeks
/// before and after it. Where the history is too short to have one, rows are usual if each other
/// day has some.
fn is_usual(day: i64, gap: DayRange, covered: &[DayRange]) -> bool {
    let Some(first) = covered.first() else {
        return false;
    };
    let last = covered.last().unwrap_or(first);
    let history = DayRange {
        first: first.first,
        last: last.last,
    };
    let mut weekdays = 0;
    let mut with_rows = 0;
    for distance in (WEEK..=RECENT_DAYS).step_by(WEEK as usize) {
        for other in [day - distance, day + distance] {
            if history.contains(other) && !gap.contains(other) {
                weekdays += 1;
                with_rows += i64::from(is_covered(other, covered));
            }
        }
    }
    if weekdays > 0 {
        return 4 * with_rows >= 3 * weekdays;
    }
    let is_only_gap = covered.len() == 2 && gap.days() == 1 && history.contains(day);
    is_only_gap && history.days() > OTHER_DAYS_MIN
}

/// Number of days at the end without values, where they are several.
fn planned_days(days: &[(i64, bool)]) -> usize {
    let empty = days.iter().rev().take_while(|(_, has_values)| !has_values);
    match empty.count() {
        1 => 0,
        count => count,
    }
}

/// The days without values, of days in order with whether they have any, that follow days which all
/// have some: up to four weeks of days, and for as long at most.
fn exceptional_days(days: &[(i64, bool)]) -> Vec<i64> {
    let longest = RECENT_DAYS as usize;
    let mut exceptional = Vec::new();
    let mut position = 0;
    while position < days.len() {
        let run = days[position..]
            .iter()
            .take_while(|(_, has_values)| !has_values)
            .count();
        let earlier = &days[position.saturating_sub(longest)..position];
        let follows_values =
            earlier.len() >= VALUED_DAYS_MIN && earlier.iter().all(|(_, has_values)| *has_values);
        if run > 0 && run <= longest && follows_values {
            let empty = &days[position..position + run];
            exceptional.extend(empty.iter().map(|(day, _)| *day));
        }
        position += run.max(1);
    }
    exceptional
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Schema;
    use forebay_model::{DayRules, IdBuilder, LeftOutFiles, Span};

    use super::*;

    fn covered(days: impl IntoIterator<Item = i64>) -> Vec<DayRange> {
        merged(
            days.into_iter()
                .map(|day| DayRange {
                    first: day,
                    last: day,
                })
                .collect(),
        )
    }

    fn late(days: impl IntoIterator<Item = i64>, ended: i64) -> Vec<i64> {
        let covered = covered(days);
        let newest = covered.last().map_or(0, |range| range.last);
        let days = SourceDays {
            covered: Some(covered),
            files: Vec::new(),
            columns: Vec::new(),
            label: None,
            interval: None,
            time: "day".to_owned(),
            clock: ColumnClock::of(&DataType::Date32).unwrap().unwrap(),
            newest,
            ended,
        };
        days.late().into_iter().map(|noted| noted.day).collect()
    }

    fn without(days: std::ops::Range<i64>, missing: &[i64]) -> Vec<i64> {
        days.filter(|day| !missing.contains(day)).collect()
    }

    /// The rules of a source whose days are refused or warned of, and that has rows in a file of which no metadata tell
    /// anything.
    fn untold(time: Option<&str>, data_type: DataType, files: Vec<FileContent>) -> Vec<String> {
        let dataset = dataset_of(data_type, files);
        let refused = untold_of(DayRule::Error, time, &dataset);
        let warned = untold_of(DayRule::Warn, time, &dataset);
        assert_eq!(refused, warned);
        refused
    }

    /// Rows in a file.
    fn dataset_of(data_type: DataType, files: Vec<FileContent>) -> Dataset {
        let piece = FileRange {
            path: "demand".to_owned(),
            relative: "demand".to_owned(),
            row_groups: None,
            row_range: None,
            byte_range: None,
            first_row: 0,
            rows: Some(1),
            bytes: 8,
            partition: Vec::new(),
            extents: Vec::new(),
            fingerprint: IdBuilder::new("file").finish(),
        };
        let field = Field::new("day", data_type, true);
        Dataset {
            schema: Arc::new(Schema::new(vec![field])),
            spans: vec![Span {
                pieces: vec![piece],
            }],
            column_bytes: None,
            null_counts: Vec::new(),
            watched: Vec::new(),
            version: None,
            left_out: LeftOutFiles::default(),
            files,
        }
    }

    fn untold_of(rule: DayRule, time: Option<&str>, dataset: &Dataset) -> Vec<String> {
        let source = PipelineSource {
            name: "demand".to_owned(),
            format: "own".to_owned(),
            config: serde_json::Value::Null,
            time: time.map(str::to_owned),
            keys: Vec::new(),
            duplicates: None,
            ready: None,
            lookback: None,
            days: DayRules {
                late: rule,
                duplicate: rule,
                empty: rule,
            },
            at: None,
        };
        let mut untold = Vec::new();
        for fault in untold_rules(&source, dataset, rule) {
            assert_eq!(fault.code(), codes::UNSUPPORTED);
            let message = fault.message();
            assert!(message.contains("source `demand`"), "{message}");
            let (_, rule) = message.split_once("`days.").unwrap();
            untold.push(rule.split('`').next().unwrap().to_owned());
        }
        untold
    }

    #[test]
    fn rules_whose_days_nothing_tells_are_refused() {
        let all_rules = ["late", "duplicate", "empty"];
        let of_files = ["duplicate", "empty"];
        assert_eq!(untold(None, DataType::Date32, Vec::new()), all_rules);
        let whole = DataType::Int64;
        assert_eq!(untold(Some("day"), whole, Vec::new()), all_rules);
        assert_eq!(untold(Some("day"), DataType::Utf8, Vec::new()), all_rules);
        assert_eq!(untold(Some("day"), DataType::Date32, Vec::new()), of_files);
        let content = FileContent {
            path: "demand".to_owned(),
            digest: IdBuilder::new("footer").finish(),
            empty_columns: Vec::new(),
        };
        let refused = untold(Some("day"), DataType::Date32, vec![content]);
        assert_eq!(refused, [""; 0]);
    }

    #[test]
    fn days_are_late_where_their_weekday_has_rows() {
        assert_eq!(late(without(0..60, &[]), 59), [0; 0]);
        assert_eq!(late(without(0..60, &[30, 31]), 59), [30, 31]);
        // A short history: one gap among other days.
        assert_eq!(late(without(0..7, &[3]), 6), [3]);
        assert_eq!(late(without(0..3, &[1]), 2), [0; 0]);
        // The end of the data.
        assert_eq!(late(0..60, 61), [60, 61]);
        assert_eq!(late(0..60, 59 + RECENT_DAYS), (60..88).collect::<Vec<_>>());
        assert_eq!(late(0..60, 60 + RECENT_DAYS), [0; 0]);
    }

    #[test]
    fn days_that_a_calendar_lacks_are_not_late() {
        let is_weekday = |day: &i64| day % 7 < 5;
        let weekdays = (0..60).filter(is_weekday);
        assert_eq!(late(weekdays.clone(), 59), [0; 0]);
        assert_eq!(late(weekdays.clone(), 62), [60]);
        let missing = weekdays.filter(|day| *day != 30);
        assert_eq!(late(missing, 59), [30]);
        let weeks = |missing: i64| {
            (0..10)
                .map(|week| 7 * week)
                .filter(move |day| *day != missing)
        };
        assert_eq!(late(weeks(-1), 63), [0; 0]);
        assert_eq!(late(weeks(28), 63), [28]);
        let months = [0, 31, 60, 91, 121, 152, 182];
        assert_eq!(late(months, 182), [0; 0]);
        // Two parts of a history.
        assert_eq!(late((0..30).chain(100..130), 129), [0; 0]);
    }

    #[test]
    fn a_report_counts_days_and_lists_the_newest() {
        let mut noted = Vec::new();
        for day in 0..7 {
            for column in 0..=day {
                let detail = Some(format!("`x{column}`"));
                noted.push(NotedDay { day, detail });
            }
        }
        let report = DayReport::new("demand", DayProblem::Empty, &noted).unwrap();
        assert_eq!(report.days, 7);
        assert_eq!(report.newest.len(), 5);
        assert_eq!(report.newest[0], "1970-01-03: `x0` and `x1` and `x2`");
        let last = "1970-01-07: `x0` and `x1` and `x2` and `x3` and `x4` and 2 more";
        assert_eq!(report.newest[4], last);
        assert!(report.text().ends_with(&format!("{last}, and 2 before)")));
    }

    #[test]
    fn days_are_empty_after_days_with_values() {
        let days = |empty: &[i64]| -> Vec<(i64, bool)> {
            (0..40).map(|day| (day, !empty.contains(&day))).collect()
        };
        assert_eq!(exceptional_days(&days(&[30])), [30]);
        assert_eq!(exceptional_days(&days(&[7])), [7]);
        assert_eq!(exceptional_days(&days(&[38, 39])), [38, 39]);
        // Values never came before, or a week does not tell how it is.
        assert_eq!(exceptional_days(&days(&[0, 1])), [0; 0]);
        assert_eq!(exceptional_days(&days(&[3])), [0; 0]);
        let sundays: Vec<i64> = (0..40).filter(|day| day % 7 == 6).collect();
        assert_eq!(exceptional_days(&days(&sundays)), [0; 0]);
    }
}
