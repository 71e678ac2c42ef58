//! Missing periods between the rows of a series.

use forebay_model::{Fault, FaultCode, Result, TimeDistance, codes};

use crate::compiled_plan::CompiledPlan;
use crate::output::format_time;
use crate::series_buffer::SeriesCursor;
use crate::{GapHandling, WindowPlan};

/// Most missing periods filled in between two rows.
const FILLERS_MAX: i64 = 1 << 26;

/// The next step of a series toward a row.
pub(crate) enum GapStep {
    /// The row itself; `is_gap` if it is not one period after the previous one.
    Row { is_gap: bool },
    /// An entry for a missing period.
    Filler { time: i64 },
    /// Missing periods that no window reaches.
    Skip { periods: u64, last: i64 },
}

/// The next step of a series toward a row at `time`.
#[inline]
pub(crate) fn next_step(
    plan: &WindowPlan,
    program: &CompiledPlan,
    head: &SeriesCursor,
    time: i64,
    row: usize,
) -> Result<GapStep> {
    match plan.gaps {
        GapHandling::CountRows if time >= head.last => Ok(GapStep::Row { is_gap: false }),
        _ => next_step_by_period(plan, program, head, time, row),
    }
}

/// Handles rows out of order and declared periods.
fn next_step_by_period(
    plan: &WindowPlan,
    program: &CompiledPlan,
    head: &SeriesCursor,
    time: i64,
    row: usize,
) -> Result<GapStep> {
    let pair = RowPair {
        plan,
        program,
        last: head.last,
        time,
        row,
    };
    if time < head.last {
        let fault = pair.fault(codes::OUT_OF_ORDER, ", back in time");
        return Err(fault.hint("sort the rows of each series by time"));
    }
    if time == head.last {
        return Ok(GapStep::Row { is_gap: false });
    }
    let Some(every) = plan.gaps.every() else {
        return Ok(GapStep::Row { is_gap: false });
    };
    let steps = whole_periods(program, head.last, time, every);
    match plan.gaps {
        GapHandling::CountRows => Ok(GapStep::Row { is_gap: false }),
        GapHandling::Warn { .. } => Ok(GapStep::Row {
            is_gap: steps != Some(1),
        }),
        GapHandling::Error { .. } if steps == Some(1) => Ok(GapStep::Row { is_gap: false }),
        GapHandling::Error { .. } => {
            let fault = pair.fault(codes::GAP, ", not to the next period");
            Err(fault.hint(
                "set `gaps: complete` to count missing periods as rows, or `gaps: count_rows` to \
                 pass over them",
            ))
        }
        GapHandling::Complete { .. } => {
            let Some(steps) = steps else {
                let fault = pair.fault(codes::GAP, ", which is not a whole number of periods");
                return Err(fault.hint("set the period that the rows have, or `gaps: count_rows`"));
            };
            pair.fill(every, steps)
        }
    }
}

/// A row, and the last entry of its series.
struct RowPair<'a> {
    plan: &'a WindowPlan,
    program: &'a CompiledPlan,
    last: i64,
    time: i64,
    row: usize,
}

impl RowPair<'_> {
    /// The next missing period of the `steps` periods to the row.
    fn fill(&self, every: TimeDistance, steps: i128) -> Result<GapStep> {
        let missing = steps - 1;
        if missing == 0 {
            return Ok(GapStep::Row { is_gap: false });
        }
        if let Some(periods) = self.program.periods
            && missing > periods
        {
            let skipped = missing - periods;
            return Ok(GapStep::Skip {
                periods: skipped as u64,
                last: self.period_after(every, skipped, steps)?,
            });
        }
        if missing > i128::from(FILLERS_MAX) {
            let fault = self.fault(codes::GAP, ", too far to fill the periods between");
            return Err(fault.hint("set the period that the rows have, or `gaps: count_rows`"));
        }
        Ok(GapStep::Filler {
            time: self.period_after(every, 1, steps)?,
        })
    }

    fn period_after(&self, every: TimeDistance, count: i128, steps: i128) -> Result<i64> {
        let times = (self.last, self.time);
        match period_after(self.program, times, every, count, steps) {
            Some(time) => Ok(time),
            None => Err(self.fault(codes::GAP, ", beyond the times that can be told")),
        }
    }

    fn fault(&self, code: FaultCode, detail: &str) -> Fault {
        let from = format_time(self.last, &self.plan.time);
        let to = format_time(self.time, &self.plan.time);
        let message = format!("a series goes from {from} to {to}{detail}");
        Fault::new(code, message).rows([self.row as u64])
    }
}

/// Number of periods from one time to a later one; `None` where it is not a whole one.
fn whole_periods(program: &CompiledPlan, from: i64, to: i64, every: TimeDistance) -> Option<i128> {
    match every {
        TimeDistance::Ticks(every) => {
            // The difference of two times may exceed 64 bits.
            let ticks = i128::from(to) - i128::from(from);
            let every = i128::from(every);
            (every > 0 && ticks % every == 0).then(|| ticks / every)
        }
        TimeDistance::Calendar(span) => {
            let steps = program.clock.as_ref()?.steps(from, to, span);
            steps.filter(|steps| *steps > 0).map(i128::from)
        }
    }
}

/// The time `count` periods after the first of two times that are `steps` periods apart.
fn period_after(
    program: &CompiledPlan,
    (from, to): (i64, i64),
    every: TimeDistance,
    count: i128,
    steps: i128,
) -> Option<i64> {
    match every {
        TimeDistance::Ticks(every) => {
            i64::try_from(i128::from(from) + count * i128::from(every)).ok()
        }
        TimeDistance::Calendar(span) => {
            let count = i64::try_from(count).ok()?;
            let steps = i64::try_from(steps).ok()?;
            let clock = program.clock.as_ref()?;
            clock.step_between((from, to), span, count, steps)
        }
    }
}
