//! Missing periods between the rows of a series.

use forebay_model::{Fault, Result, codes};

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
    Skip { periods: u64, every: i64 },
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
    let fault = |code, what: &str| {
        let (from, to) = (
            format_time(head.last, &plan.time),
            format_time(time, &plan.time),
        );
        Fault::new(code, format!("a series goes from {from} to {to}{what}")).rows([row as u64])
    };
    if time < head.last {
        return Err(fault(codes::OUT_OF_ORDER, ", back in time")
            .hint("sort the rows of each series by time"));
    }
    // The difference of two times may exceed 64 bits.
    let ticks = i128::from(time) - i128::from(head.last);
    match plan.gaps {
        GapHandling::CountRows => Ok(GapStep::Row { is_gap: false }),
        _ if ticks == 0 => Ok(GapStep::Row { is_gap: false }),
        GapHandling::Warn { every } => Ok(GapStep::Row { is_gap: ticks != i128::from(every) }),
        GapHandling::Error { every } if ticks == i128::from(every) => Ok(GapStep::Row { is_gap: false }),
        GapHandling::Error { .. } => Err(fault(codes::GAP, ", not to the next period")
            .hint("set `gaps: complete` to count missing periods as rows, or `gaps: count_rows` to pass over them")),
        GapHandling::Complete { every, .. } => {
            let period = i128::from(every);
            if ticks % period != 0 {
                let fault = fault(codes::GAP, ", which is not a whole number of periods");
                return Err(fault.hint("set the period that the rows have, or `gaps: count_rows`"));
            }
            let missing = ticks / period - 1;
            if missing == 0 {
                return Ok(GapStep::Row { is_gap: false });
            }
            if let Some(periods) = program.periods
                && missing > periods
            {
                return Ok(GapStep::Skip { periods: (missing - periods) as u64, every });
            }
            if missing > i128::from(FILLERS_MAX) {
                let fault = fault(codes::GAP, ", too far to fill the periods between");
                return Err(fault.hint("set the period that the rows have, or `gaps: count_rows`"));
            }
            Ok(GapStep::Filler { time: (i128::from(head.last) + period) as i64 })
        }
    }
}
