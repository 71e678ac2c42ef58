//! Forms of exponential smoothing: kinds of error, trend and season.

/// The kind of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtsError {
    /// The difference from the expected value.
    Additive,
    /// The difference from the expected value as a share of it.
    Multiplicative,
}

/// The kind of trend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtsTrend {
    /// The level alone.
    None,
    /// A change with each step.
    Additive,
    /// A change that shrinks with each step.
    Damped,
}

/// The kind of season.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtsSeason {
    /// No season.
    None,
    /// Indices that are added to the level.
    Additive,
    /// Indices that the level is multiplied by.
    Multiplicative,
}

const ERRORS: [EtsError; 2] = [EtsError::Additive, EtsError::Multiplicative];
const TRENDS: [EtsTrend; 3] = [EtsTrend::None, EtsTrend::Additive, EtsTrend::Damped];
const SEASONS: [EtsSeason; 3] = [
    EtsSeason::None,
    EtsSeason::Additive,
    EtsSeason::Multiplicative,
];

/// A form of exponential smoothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EtsForm {
    /// The kind of error.
    pub error: EtsError,
    /// The kind of trend.
    pub trend: EtsTrend,
    /// The kind of season.
    pub season: EtsSeason,
}

impl EtsForm {
    /// A level alone.
    pub const LEVEL: EtsForm = EtsForm {
        error: EtsError::Additive,
        trend: EtsTrend::None,
        season: EtsSeason::None,
    };

    /// The forms that suit some values: 15 of positive values with a season.
    pub fn candidates(are_positive: bool, have_season: bool) -> Vec<EtsForm> {
        let mut forms = Vec::new();
        for error in ERRORS {
            for trend in TRENDS {
                for season in SEASONS {
                    let form = EtsForm {
                        error,
                        trend,
                        season,
                    };
                    if form.suits(are_positive, have_season) {
                        forms.push(form);
                    }
                }
            }
        }
        forms
    }

    /// Shares need positive values. Additive errors of a multiplicative season are unstable (Hyndman et al. 2008).
    fn suits(self, are_positive: bool, have_season: bool) -> bool {
        if self.has_season() && !have_season {
            return false;
        }
        if self.error == EtsError::Additive {
            return !self.is_multiplied();
        }
        are_positive
    }

    /// True unless the level stays.
    pub fn has_trend(self) -> bool {
        self.trend != EtsTrend::None
    }

    /// True with indices of a season.
    pub fn has_season(self) -> bool {
        self.season != EtsSeason::None
    }

    /// True if the level is multiplied by an index.
    pub fn is_multiplied(self) -> bool {
        self.season == EtsSeason::Multiplicative
    }

    /// Numbers that are estimated: smoothing parameters, initial states and the variance of errors. The indices of a
    /// season count as one less, since their mean is part of the level.
    pub fn parameter_count(self, season_steps: usize) -> usize {
        // The level, its parameter, and the variance.
        let mut count = 3;
        if self.has_trend() {
            count += 2;
        }
        if self.trend == EtsTrend::Damped {
            count += 1;
        }
        if self.has_season() {
            count += season_steps;
        }
        count
    }

    /// Error, trend and season by their letters, such as `M,Ad,N`.
    pub fn name(self) -> String {
        let error = match self.error {
            EtsError::Additive => "A",
            EtsError::Multiplicative => "M",
        };
        let trend = match self.trend {
            EtsTrend::None => "N",
            EtsTrend::Additive => "A",
            EtsTrend::Damped => "Ad",
        };
        let season = match self.season {
            EtsSeason::None => "N",
            EtsSeason::Additive => "A",
            EtsSeason::Multiplicative => "M",
        };
        format!("{error},{trend},{season}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_names(are_positive: bool, have_season: bool, expected: &str) {
        let forms = EtsForm::candidates(are_positive, have_season);
        let names: Vec<String> = forms.into_iter().map(EtsForm::name).collect();
        assert_eq!(names.join(" "), expected);
    }

    #[test]
    fn forms_suit_the_values() {
        assert_names(false, false, "A,N,N A,A,N A,Ad,N");
        assert_names(false, true, "A,N,N A,N,A A,A,N A,A,A A,Ad,N A,Ad,A");
        assert_names(true, false, "A,N,N A,A,N A,Ad,N M,N,N M,A,N M,Ad,N");
        assert_names(
            true,
            true,
            "A,N,N A,N,A A,A,N A,A,A A,Ad,N A,Ad,A M,N,N M,N,A M,N,M M,A,N M,A,A M,A,M M,Ad,N \
             M,Ad,A M,Ad,M",
        );
    }

    #[test]
    fn parameters_are_counted_as_by_the_authors() {
        assert_eq!(EtsForm::LEVEL.parameter_count(1), 3);
        let form = EtsForm {
            error: EtsError::Multiplicative,
            trend: EtsTrend::Damped,
            season: EtsSeason::Multiplicative,
        };
        // Four smoothing parameters, level, trend, eleven indices, and the variance.
        assert_eq!(form.parameter_count(12), 18);
    }
}
