//! Backfills: the consecutive intervals of a period, those of them that exist already, and the runs
//! for the others.

use forebay_model::{
    DAY_NANOSECONDS, Fault, Interval, Pipeline, Result, TimeLength, business_days_hint, codes,
};
use forebay_run::{OutputReport, RunReport, Session};
use jiff::civil::{DateTime, Time};
use jiff::{Span, ToSpan};
use serde::{Serialize, Serializer};

/// Intervals of one backfill at most: more are a mistake in a date.
const INTERVALS_MAX: usize = 100_000;

/// Consecutive intervals to run a pipeline for; those that are there are skipped.
///
/// The first interval runs alone, the others in parallel with a share each of threads and memory:
/// they learn and publish in order of time. If the reach of windows is unlimited, an interval is
/// written after the one before it.
///
/// ```no_run
/// use forebay::prelude::*;
///
/// let forebay = Forebay::new();
/// let pipeline = forebay.read_spec("demand.yaml", [("as_of", "2016-05-22")])?;
/// let backfill = Backfill::between("2016-05-01", "2016-05-22")?.every("1w")?;
/// for interval in forebay.backfill(&pipeline, &backfill)? {
///     println!("{}: {} rows", interval.interval.from, interval.rows);
/// }
/// # Ok::<(), Fault>(())
/// ```
#[derive(Debug, Clone)]
pub struct Backfill {
    /// The start of the first interval.
    pub from: DateTime,
    /// The end of the last interval: none goes beyond it.
    pub to: DateTime,
    /// Length of an interval.
    pub every: Span,
    /// Maximum number of intervals that run at a time; one with a deadline or with workers. `None`
    /// is one for each thread.
    pub beside: Option<usize>,
}

/// Outcome of an interval.
///
/// ```
/// use forebay::IntervalOutcome;
///
/// fn line(outcome: &IntervalOutcome) -> String {
///     let (from, to) = (&outcome.interval.from, &outcome.interval.to);
///     if outcome.skipped { format!("{from} .. {to}: there already") } else { format!("{from} .. {to}: {}", outcome.rows) }
/// }
/// # let interval = forebay::run::Interval { from: "2016-05-21".into(), to: "2016-05-22".into() };
/// # let outcome = IntervalOutcome { interval, skipped: true, rows: 0, report: None };
/// # assert_eq!(line(&outcome), "2016-05-21 .. 2016-05-22: there already");
/// ```
#[derive(Debug, Serialize)]
pub struct IntervalOutcome {
    /// The interval.
    #[serde(flatten)]
    pub interval: Interval,
    /// True if it was written before.
    pub skipped: bool,
    /// Rows written, of all sinks.
    pub rows: u64,
    /// Report of its run, where there was one. Its outputs and warnings are in JSON.
    #[serde(flatten, serialize_with = "outputs_and_warnings")]
    pub report: Option<RunReport>,
}

/// The parts of a report that the JSON of an interval has.
#[derive(Serialize)]
struct IntervalReport<'a> {
    #[serde(skip_serializing_if = "<[OutputReport]>::is_empty")]
    outputs: &'a [OutputReport],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

fn outputs_and_warnings<S: Serializer>(
    report: &Option<RunReport>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    let parts = match report {
        Some(report) => IntervalReport {
            outputs: &report.outputs,
            warnings: &report.warnings,
        },
        None => IntervalReport {
            outputs: &[],
            warnings: &[],
        },
    };
    parts.serialize(serializer)
}

/// Intervals of a backfill, each with the action for it.
///
/// ```no_run
/// use forebay::prelude::*;
///
/// # fn fill(pipeline: &Pipeline) -> Result<()> {
/// let session = Forebay::new().session()?;
/// let plan = Backfill::between("2016-05-01", "2016-05-22")?.plan(&session, pipeline)?;
/// println!("{} days are missing", plan.runs());
/// plan.run(&session, pipeline, &mut |outcome| {
///     println!("{}: {} rows", outcome.interval.from, outcome.rows);
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BackfillPlan {
    intervals: Vec<(Interval, IntervalAction)>,
    beside: usize,
}

/// Action on an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IntervalAction {
    /// The interval is written.
    Skip,
    /// The interval is written, but is the last one: a killed run may have shown it and not
    /// committed its artifact.
    Finish,
    /// The interval is not written, or is checked again.
    Run,
}

impl Backfill {
    /// The days between two dates or times, such as `2016-05-22`.
    pub fn between(from: &str, to: &str) -> Result<Backfill> {
        Ok(Backfill {
            from: parse_time(from)?,
            to: parse_time(to)?,
            every: 1.days(),
            beside: None,
        })
    }

    /// Sets the length of intervals: hours, days, weeks or months, such as `12h`, `1d`, `1w` or
    /// `1mo`.
    pub fn every(self, length: &str) -> Result<Backfill> {
        Ok(Backfill {
            every: parse_interval_length(length).map_err(usage)?,
            ..self
        })
    }

    /// Sets the maximum number of intervals that run at a time.
    pub fn beside(self, intervals: usize) -> Backfill {
        Backfill {
            beside: Some(intervals),
            ..self
        }
    }

    /// Plans the backfill. A written interval is skipped, unless it lies within the lookback before
    /// the first one that is not written (or before the end, if all are).
    pub fn plan(&self, session: &Session, pipeline: &Pipeline) -> Result<BackfillPlan> {
        if self.beside == Some(0) {
            return Err(usage(
                "at least one interval must be at work at a time (`beside`)",
            ));
        }
        let intervals = self.intervals()?;
        let mut is_published = Vec::with_capacity(intervals.len());
        for interval in &intervals {
            is_published.push(session.has_interval(pipeline, interval)?);
        }
        let first_new = is_published.iter().position(|published| !published);
        let boundary = match first_new {
            Some(new) => Some(&intervals[new].from),
            None => intervals.last().map(|last| &last.to),
        };
        let again = match boundary {
            Some(boundary) => session.intervals_in_lookback(pipeline, boundary)?,
            None => Vec::new(),
        };
        let new = first_new.unwrap_or(intervals.len());
        let mut planned = Vec::with_capacity(intervals.len());
        for (number, interval) in intervals.into_iter().enumerate() {
            let is_done = is_published[number] && !again.contains(&interval);
            let action = if !is_done {
                IntervalAction::Run
            } else if number + 1 == new {
                IntervalAction::Finish
            } else {
                IntervalAction::Skip
            };
            planned.push((interval, action));
        }
        Ok(BackfillPlan {
            intervals: planned,
            beside: self.beside.unwrap_or(usize::MAX),
        })
    }

    /// The rest of the period behind the last interval, which is shorter than one: no run reads its rows. `None` where
    /// the period ends with an interval, or has none.
    pub fn remainder(&self) -> Option<Interval> {
        let from = self.intervals().ok()?.pop()?.to;
        let to = text(self.to);
        (from != to).then_some(Interval { from, to })
    }

    fn intervals(&self) -> Result<Vec<Interval>> {
        let far = |error| usage("the intervals leave the calendar").cause(error);
        let mut intervals = Vec::new();
        let mut from = self.from;
        // Each is counted from the first: months are of different lengths.
        for number in 1.. {
            let to = self
                .every
                .checked_mul(number)
                .and_then(|ahead| self.from.checked_add(ahead))
                .map_err(far)?;
            if to > self.to {
                break;
            }
            if intervals.len() == INTERVALS_MAX {
                return Err(usage(format!(
                    "a backfill has at most {INTERVALS_MAX} intervals"
                )));
            }
            intervals.push(Interval {
                from: text(from),
                to: text(to),
            });
            from = to;
        }
        if intervals.is_empty() {
            Err(usage(format!(
                "no interval lies between {} and {}",
                text(self.from),
                text(self.to)
            )))
        } else {
            Ok(intervals)
        }
    }
}

impl BackfillPlan {
    /// Number of intervals to run.
    pub fn runs(&self) -> usize {
        self.intervals
            .iter()
            .filter(|(_, action)| *action != IntervalAction::Skip)
            .count()
    }

    /// Runs the intervals; `each` receives the outcome of every one, in order of time. All together
    /// have the deadline of the session, else that of the pipeline.
    pub fn run(
        self,
        session: &Session,
        pipeline: &Pipeline,
        each: &mut dyn FnMut(IntervalOutcome) -> Result<()>,
    ) -> Result<()> {
        let session = session.clone().with_deadline_of(pipeline)?;
        let runs = self
            .intervals
            .iter()
            .filter(|(_, action)| *action != IntervalAction::Skip);
        let intervals: Vec<Interval> = runs.map(|(interval, _)| interval.clone()).collect();
        let skipped = |interval| IntervalOutcome {
            interval,
            skipped: true,
            rows: 0,
            report: None,
        };
        let mut plan = self.intervals.into_iter().peekable();
        let filled = session.backfill(pipeline, &intervals, self.beside, &mut |_, report| {
            // Those between that are there already come first.
            while let Some((interval, _)) =
                plan.next_if(|(_, action)| *action == IntervalAction::Skip)
            {
                each(skipped(interval))?;
            }
            let Some((interval, action)) = plan.next() else {
                return Ok(());
            };
            let is_there = action == IntervalAction::Finish && report.nothing_new;
            let rows = if is_there {
                0
            } else {
                report.outputs.iter().map(|output| output.rows).sum()
            };
            each(IntervalOutcome {
                interval,
                skipped: is_there,
                rows,
                report: Some(report),
            })
        });
        while let Some((interval, _)) = plan.next_if(|(_, action)| *action == IntervalAction::Skip)
        {
            each(skipped(interval))?;
        }
        filled
    }
}

fn usage(message: impl Into<String>) -> Fault {
    Fault::new(codes::USAGE, message)
}

/// Text of a time: only the date if it is midnight.
fn text(time: DateTime) -> String {
    if time == time.date().to_datetime(Time::midnight()) {
        time.date().to_string()
    } else {
        time.to_string()
    }
}

/// Nanoseconds of an hour.
const HOUR_NANOSECONDS: i128 = DAY_NANOSECONDS / 24;

/// Reads `12h`, `1d`, `1w`, `1mo`, `1q` or `1y`.
pub(crate) fn parse_interval_length(text: &str) -> Result<Span, String> {
    let wrong = || {
        let remedy = match business_days_hint(text) {
            Some(_) => {
                "intervals of business days would leave rows of other days out: write `1d`, which \
                 finds no rows on days without business, or `1w`"
            }
            None => "write 1d, 12h, 1w or 1mo",
        };
        format!("`{text}` is no length of an interval; {remedy}")
    };
    let length: TimeLength = text.parse().map_err(|_| wrong())?;
    let (months, nanoseconds) = length.months_and_nanoseconds();
    let span = match length {
        TimeLength::Calendar { .. } => {
            let days = i64::try_from(nanoseconds / DAY_NANOSECONDS).map_err(|_| wrong())?;
            Span::new()
                .try_months(months)
                .and_then(|span| span.try_days(days))
        }
        TimeLength::Exact { .. } if nanoseconds % HOUR_NANOSECONDS == 0 => {
            let hours = i64::try_from(nanoseconds / HOUR_NANOSECONDS).map_err(|_| wrong())?;
            Span::new().try_hours(hours)
        }
        TimeLength::Exact { .. } => return Err(wrong()),
    };
    span.ok()
        .filter(|span| span.is_positive())
        .ok_or_else(wrong)
}

fn parse_time(text: &str) -> Result<DateTime> {
    text.parse::<DateTime>()
        .map_err(|error| usage(format!("`{text}` is neither a date nor a time")).cause(error))
}
