//! Validation of window plans.

use forebay_model::{ColumnClock, Fault, Result, codes};

use crate::{
    EwmDecay, SeriesFrame, SeriesLength, WindowFunction, WindowPlan, WindowStat, WordEncoding,
};

/// Most entries of a seasonal window.
const SEASONS_MAX: u64 = 1 << 16;

impl WindowPlan {
    /// Fails if the plan is invalid.
    pub fn check(&self) -> Result<()> {
        if self.gaps.every().is_some_and(|every| !every.is_positive()) {
            return Err(bad_value("a period must be longer than zero"));
        }
        if self.has_calendar() && ColumnClock::of(&self.time)?.is_none() {
            return Err(bad_value("whole numbers as times have no calendar"));
        }
        for function in &self.functions {
            self.check_function(function.input, &function.compute)?;
        }
        Ok(())
    }

    fn check_function(&self, input: usize, compute: &WindowFunction) -> Result<()> {
        let Some(window_input) = self.inputs.get(input) else {
            return Err(Fault::internal("a function reads an unknown input"));
        };
        let bits = window_input.keep != WordEncoding::Number;
        match compute {
            WindowFunction::Lag { by, as_of } => {
                check_length(*by)?;
                if as_of.is_some_and(|older| older.span().ticks < 0) {
                    return Err(bad_value("a tolerance must not be negative"));
                }
            }
            WindowFunction::Diff { by } => {
                check_length(*by)?;
                require_numbers(window_input.keep == WordEncoding::Values)?;
            }
            WindowFunction::PctChange { by } => {
                check_length(*by)?;
                require_numbers(bits)?;
            }
            WindowFunction::Window { frame, stat, .. } => {
                check_frame(frame)?;
                if !matches!(
                    stat,
                    WindowStat::Count | WindowStat::Unique | WindowStat::First | WindowStat::Last
                ) {
                    require_numbers(bits)?;
                }
                check_stat(stat)?;
            }
            WindowFunction::Ewm { decay, gap, .. } => {
                check_length(*gap)?;
                require_numbers(bits)?;
                check_decay(decay)?;
            }
            WindowFunction::SeasonalIndex {
                slot,
                gap,
                strength,
                parent,
                ..
            } => {
                check_length(*gap)?;
                require_numbers(bits)?;
                self.check_index_inputs(*slot, *parent)?;
                if strength.is_nan() || *strength < 0.0 {
                    return Err(bad_value("a strength must not be negative"));
                }
            }
            WindowFunction::LastValid { .. } | WindowFunction::LastValidTime { .. } => {}
        }
        Ok(())
    }

    fn check_index_inputs(&self, slot: usize, parent: Option<usize>) -> Result<()> {
        let has_slot_bits = self.keeps(slot, WordEncoding::Bits);
        let has_parent_numbers =
            parent.is_none_or(|parent| self.keeps(parent, WordEncoding::Number));
        if has_slot_bits && has_parent_numbers {
            return Ok(());
        }
        Err(Fault::internal(
            "slots must be encoded as bits, and the parents of indices as numbers",
        ))
    }

    /// True if an input exists and is encoded in this way.
    fn keeps(&self, input: usize, encoding: WordEncoding) -> bool {
        let input = self.inputs.get(input);
        input.is_some_and(|input| input.keep == encoding)
    }
}

fn check_decay(decay: &EwmDecay) -> Result<()> {
    match decay {
        EwmDecay::Alpha(alpha) if *alpha > 0.0 && *alpha <= 1.0 => Ok(()),
        EwmDecay::HalfLife(ticks) if *ticks > 0.0 => Ok(()),
        _ => Err(bad_value(
            "alpha must be above 0 and at most 1, a half-life above 0",
        )),
    }
}

fn check_frame(frame: &SeriesFrame) -> Result<()> {
    match *frame {
        SeriesFrame::Rolling { over, gap, .. } => same_kind(over, gap),
        SeriesFrame::Expanding { gap } => check_length(gap),
        SeriesFrame::Seasonal { season, over, gap } => {
            if matches!(season, SeriesLength::Rows(0) | SeriesLength::Ticks(0)) {
                return Err(bad_value("a season must be longer than zero"));
            }
            if over > SEASONS_MAX {
                return Err(bad_value(&format!(
                    "a seasonal window has at most {SEASONS_MAX} entries"
                )));
            }
            same_kind(season, gap)
        }
    }
}

fn check_stat(stat: &WindowStat) -> Result<()> {
    match stat {
        WindowStat::Quantile(q) if !(0.0..=1.0).contains(q) => {
            Err(bad_value("a quantile must be between 0 and 1"))
        }
        WindowStat::Slope { unit: Some(unit) } | WindowStat::SinceNonzero { unit: Some(unit) }
            if *unit <= 0 =>
        {
            Err(bad_value("a unit must be longer than zero"))
        }
        _ => Ok(()),
    }
}

fn same_kind(over: SeriesLength, gap: SeriesLength) -> Result<()> {
    check_length(over)?;
    check_length(gap)?;
    match (over, gap) {
        (SeriesLength::Rows(_), SeriesLength::Ticks(ticks)) if ticks > 0 => Err(mixed_lengths()),
        (SeriesLength::Rows(_), SeriesLength::Calendar(_)) => Err(mixed_lengths()),
        (SeriesLength::Ticks(_) | SeriesLength::Calendar(_), SeriesLength::Rows(rows))
            if rows > 0 =>
        {
            Err(mixed_lengths())
        }
        _ => Ok(()),
    }
}

fn mixed_lengths() -> Fault {
    bad_value("a window and its gap must both be lengths of time or both be numbers of rows")
}

fn check_length(length: SeriesLength) -> Result<()> {
    match length {
        SeriesLength::Ticks(ticks) if ticks < 0 => {
            Err(bad_value("a length of time must not be negative"))
        }
        SeriesLength::Calendar(span) if span.months.min(span.days).min(span.ticks) < 0 => {
            Err(bad_value("a length of time must not be negative"))
        }
        _ => Ok(()),
    }
}

fn require_numbers(bits: bool) -> Result<()> {
    if bits {
        Err(Fault::internal(
            "a statistic of values that are encoded as bits",
        ))
    } else {
        Ok(())
    }
}

fn bad_value(message: &str) -> Fault {
    Fault::new(codes::BAD_VALUE, message)
}
