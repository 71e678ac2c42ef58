//! Validation of window plans.

use forebay_model::{Fault, Result, codes};

use crate::{
    EwmDecay, GapHandling, SeriesFrame, SeriesLength, WindowFunction, WindowPlan, WindowStat,
    WordEncoding,
};

/// Most entries of a seasonal window.
const SEASONS_MAX: u64 = 1 << 16;

impl WindowPlan {
    /// Fails if the plan is invalid.
    pub fn check(&self) -> Result<()> {
        if let GapHandling::Error { every }
        | GapHandling::Warn { every }
        | GapHandling::Complete { every, .. } = self.gaps
            && every <= 0
        {
            return Err(bad_value("a period must be longer than zero"));
        }
        self.functions
            .iter()
            .try_for_each(|function| self.check_function(function.input, &function.compute))
    }

    fn check_function(&self, input: usize, compute: &WindowFunction) -> Result<()> {
        let Some(kept) = self.inputs.get(input) else {
            return Err(Fault::internal("a function reads an unknown input"));
        };
        let bits = kept.keep == WordEncoding::Bits;
        match compute {
            WindowFunction::Lag { by, as_of } => {
                check_length(*by)?;
                if as_of.is_some_and(|ticks| ticks < 0) {
                    return Err(bad_value("a tolerance must not be negative"));
                }
            }
            WindowFunction::Diff { by } => check_length(*by)?,
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
                match decay {
                    EwmDecay::Alpha(alpha) if *alpha > 0.0 && *alpha <= 1.0 => {}
                    EwmDecay::HalfLife(ticks) if *ticks > 0.0 => {}
                    _ => {
                        return Err(bad_value(
                            "alpha must be above 0 and at most 1, a half-life above 0",
                        ));
                    }
                }
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
                let keep = |input: usize| self.inputs.get(input).map(|input| input.keep);
                if keep(*slot) != Some(WordEncoding::Bits)
                    || parent.is_some_and(|parent| keep(parent) != Some(WordEncoding::Number))
                {
                    return Err(Fault::internal(
                        "slots must be encoded as bits, and the parents of indices as numbers",
                    ));
                }
                if strength.is_nan() || *strength < 0.0 {
                    return Err(bad_value("a strength must not be negative"));
                }
            }
            WindowFunction::LastValid { .. } | WindowFunction::LastValidTime { .. } => {}
        }
        Ok(())
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
        (SeriesLength::Ticks(_), SeriesLength::Rows(rows)) if rows > 0 => Err(mixed_lengths()),
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
