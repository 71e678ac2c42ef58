//! Backfills: the intervals of a stretch of time, which of them are there already, and the runs for the others.

use forebay_model::{Fault, Interval, Pipeline, Result, codes};
use forebay_run::{RunReport, Session};
use jiff::civil::{DateTime, Time};
use jiff::{Span, ToSpan, Unit};
use serde::Serialize;

/// Intervals of one backfill at most: more are a mistake in a date.
const INTERVALS_MAX: usize = 100_000;

/// Consecutive intervals to run a pipeline for; those that are there are skipped.
///
/// The first interval goes alone, the others side by side with a share each of threads and memory: they learn and
/// publish in order of time. Where windows remember everything before a row, an interval is written after the one
/// before it.
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
    /// How long an interval is.
    pub every: Span,
    /// How many intervals are at work at a time at most; one where there is a deadline, or where there are workers. `None`
    /// is one for each thread.
    pub beside: Option<usize>,
}

/// What became of an interval.
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
    /// Which one.
    #[serde(flatten)]
    pub interval: Interval,
    /// Whether it was there already.
    pub skipped: bool,
    /// Rows written, of all sinks.
    pub rows: u64,
    /// What its run came to, where there was one.
    #[serde(skip)]
    pub report: Option<RunReport>,
}

/// The intervals of a backfill, each with what is done about it.
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

/// What is done about an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IntervalAction {
    /// It is there.
    Skip,
    /// It is there, but as the last one: a run that died may have shown it and not committed its artifact.
    Finish,
    /// It is not there, or looked at again.
    Run,
}

impl Backfill {
    /// The days between two dates or times, such as `2016-05-22`.
    pub fn between(from: &str, to: &str) -> Result<Backfill> {
        let time = |text: &str| {
            let wrong =
                |error| usage(format!("`{text}` is neither a date nor a time")).cause(error);
            text.parse::<DateTime>().map_err(wrong)
        };
        Ok(Backfill {
            from: time(from)?,
            to: time(to)?,
            every: 1.days(),
            beside: None,
        })
    }

    /// The same with intervals of another length: hours, days, weeks or months, such as `12h`, `1d`, `1w` or `1mo`.
    pub fn every(self, length: &str) -> Result<Backfill> {
        Ok(Backfill {
            every: parse_interval_length(length).map_err(usage)?,
            ..self
        })
    }

    /// The same with at most so many intervals at work at a time.
    pub fn beside(self, intervals: usize) -> Backfill {
        Backfill {
            beside: Some(intervals),
            ..self
        }
    }

    /// What is to be done. An interval that is there is left alone, unless it lies within the lookback before the first
    /// that is not (or before the end, where all are).
    pub fn plan(&self, session: &Session, pipeline: &Pipeline) -> Result<BackfillPlan> {
        if self.beside == Some(0) {
            return Err(usage(
                "at least one interval must be at work at a time (`beside`)",
            ));
        }
        let intervals = self.intervals()?;
        let shown = intervals
            .iter()
            .map(|interval| session.has_interval(pipeline, interval))
            .collect::<Result<Vec<_>>>()?;
        let new = shown
            .iter()
            .position(|shown| !shown)
            .unwrap_or(intervals.len());
        let before = intervals
            .get(new)
            .map(|new| &new.from)
            .or(intervals.last().map(|last| &last.to));
        let again = before
            .map(|before| session.intervals_in_lookback(pipeline, before))
            .transpose()?
            .unwrap_or_default();
        let action = |(number, (interval, shown)): (usize, (Interval, bool))| {
            let action = match shown && !again.contains(&interval) {
                false => IntervalAction::Run,
                true if number + 1 == new => IntervalAction::Finish,
                true => IntervalAction::Skip,
            };
            (interval, action)
        };
        let intervals = intervals
            .into_iter()
            .zip(shown)
            .enumerate()
            .map(action)
            .collect();
        Ok(BackfillPlan {
            intervals,
            beside: self.beside.unwrap_or(usize::MAX),
        })
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
        match intervals.is_empty() {
            true => Err(usage(format!(
                "no interval lies between {} and {}",
                text(self.from),
                text(self.to)
            ))),
            false => Ok(intervals),
        }
    }
}

impl BackfillPlan {
    /// How many intervals are run.
    pub fn runs(&self) -> usize {
        self.intervals
            .iter()
            .filter(|(_, action)| *action != IntervalAction::Skip)
            .count()
    }

    /// Runs the intervals; `each` gets what became of every one, in order of time. All together have the deadline of the
    /// session, else that of the pipeline.
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
        let wanted: Vec<Interval> = runs.map(|(interval, _)| interval.clone()).collect();
        let skipped = |interval| IntervalOutcome {
            interval,
            skipped: true,
            rows: 0,
            report: None,
        };
        let mut all = self.intervals.into_iter().peekable();
        let filled = session.backfill(pipeline, &wanted, self.beside, &mut |_, report| {
            // Those between that are there already come first.
            while let Some((interval, _)) =
                all.next_if(|(_, action)| *action == IntervalAction::Skip)
            {
                each(skipped(interval))?;
            }
            let Some((interval, action)) = all.next() else {
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
        while let Some((interval, _)) = all.next_if(|(_, action)| *action == IntervalAction::Skip) {
            each(skipped(interval))?;
        }
        filled
    }
}

fn usage(message: impl Into<String>) -> Fault {
    Fault::new(codes::USAGE, message)
}

/// A date where it says it all.
fn text(time: DateTime) -> String {
    if time == time.date().to_datetime(Time::midnight()) {
        time.date().to_string()
    } else {
        time.to_string()
    }
}

/// Reads `12h`, `1d`, `1w` or `1mo`.
pub(crate) fn parse_interval_length(text: &str) -> Result<Span, String> {
    let wrong = || format!("`{text}` is no length of an interval; write 1d, 12h, 1w or 1mo");
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: i64 = text[..text.len() - unit.len()]
        .parse()
        .map_err(|_| wrong())?;
    let unit = match unit {
        "h" => Unit::Hour,
        "d" => Unit::Day,
        "w" => Unit::Week,
        "mo" => Unit::Month,
        _ => return Err(wrong()),
    };
    let span = match unit {
        Unit::Hour => 0.hours().try_hours(number),
        Unit::Day => 0.days().try_days(number),
        Unit::Week => 0.weeks().try_weeks(number),
        _ => 0.months().try_months(number),
    };
    span.ok()
        .filter(|span| span.is_positive())
        .ok_or_else(wrong)
}
