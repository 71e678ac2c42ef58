//! Validation of window plans.

use forebay_model::{Fault, Result, codes};

use crate::{Compute, Decay, Frame, Gaps, Keep, Length, Stat, WindowPlan};

/// Most entries of a seasonal window.
const SEASONS_MAX: u64 = 1 << 16;

impl WindowPlan {
    /// Fails if the plan is invalid.
    pub fn check(&self) -> Result<()> {
        if let Gaps::Error { every } | Gaps::Warn { every } | Gaps::Complete { every, .. } = self.gaps
            && every <= 0
        {
            return Err(bad("a period must be longer than zero"));
        }
        self.functions.iter().try_for_each(|function| self.check_function(function.input, &function.compute))
    }

    fn check_function(&self, input: usize, compute: &Compute) -> Result<()> {
        let Some(kept) = self.inputs.get(input) else {
            return Err(Fault::internal("a function reads an unknown input"));
        };
        let bits = kept.keep == Keep::Bits;
        match compute {
            Compute::Lag { by, as_of } => {
                length(*by)?;
                if as_of.is_some_and(|ticks| ticks < 0) {
                    return Err(bad("a tolerance must not be negative"));
                }
            }
            Compute::Diff { by } => length(*by)?,
            Compute::PctChange { by } => {
                length(*by)?;
                numbers(bits)?;
            }
            Compute::Window { frame, stat, .. } => {
                check_frame(frame)?;
                if !matches!(stat, Stat::Count | Stat::Unique | Stat::First | Stat::Last) {
                    numbers(bits)?;
                }
                check_stat(stat)?;
            }
            Compute::Ewm { decay, gap, .. } => {
                length(*gap)?;
                numbers(bits)?;
                match decay {
                    Decay::Alpha(alpha) if *alpha > 0.0 && *alpha <= 1.0 => {}
                    Decay::HalfLife(ticks) if *ticks > 0.0 => {}
                    _ => return Err(bad("alpha must be above 0 and at most 1, a half-life above 0")),
                }
            }
            Compute::SeasonalIndex { slot, gap, strength, parent, .. } => {
                length(*gap)?;
                numbers(bits)?;
                let keep = |input: usize| self.inputs.get(input).map(|input| input.keep);
                if keep(*slot) != Some(Keep::Bits) || parent.is_some_and(|parent| keep(parent) != Some(Keep::Number)) {
                    return Err(Fault::internal(
                        "slots must be encoded as bits, and the parents of indices as numbers",
                    ));
                }
                if strength.is_nan() || *strength < 0.0 {
                    return Err(bad("a strength must not be negative"));
                }
            }
            Compute::LastValid { .. } | Compute::LastValidTime { .. } => {}
        }
        Ok(())
    }
}

fn check_frame(frame: &Frame) -> Result<()> {
    match *frame {
        Frame::Rolling { over, gap, .. } => same_kind(over, gap),
        Frame::Expanding { gap } => length(gap),
        Frame::Seasonal { season, over, gap } => {
            if matches!(season, Length::Rows(0) | Length::Ticks(0)) {
                return Err(bad("a season must be longer than zero"));
            }
            if over > SEASONS_MAX {
                return Err(bad(&format!("a seasonal window has at most {SEASONS_MAX} entries")));
            }
            same_kind(season, gap)
        }
    }
}

fn check_stat(stat: &Stat) -> Result<()> {
    match stat {
        Stat::Quantile(q) if !(0.0..=1.0).contains(q) => Err(bad("a quantile must be between 0 and 1")),
        Stat::Slope { unit: Some(unit) } | Stat::SinceNonzero { unit: Some(unit) } if *unit <= 0 => {
            Err(bad("a unit must be longer than zero"))
        }
        _ => Ok(()),
    }
}

fn same_kind(over: Length, gap: Length) -> Result<()> {
    length(over)?;
    length(gap)?;
    match (over, gap) {
        (Length::Rows(_), Length::Ticks(ticks)) if ticks > 0 => Err(mixed()),
        (Length::Ticks(_), Length::Rows(rows)) if rows > 0 => Err(mixed()),
        _ => Ok(()),
    }
}

fn mixed() -> Fault {
    bad("a window and its gap must both be lengths of time or both be numbers of rows")
}

fn length(length: Length) -> Result<()> {
    match length {
        Length::Ticks(ticks) if ticks < 0 => Err(bad("a length of time must not be negative")),
        _ => Ok(()),
    }
}

fn numbers(bits: bool) -> Result<()> {
    if bits { Err(Fault::internal("a statistic of values that are encoded as bits")) } else { Ok(()) }
}

fn bad(message: &str) -> Fault {
    Fault::new(codes::BAD_VALUE, message)
}
