//! Exponential smoothing in state space form, whose error, trend and season the values choose.
//!
//! Forms are those of Hyndman, Koehler, Ord and Snyder (2008, "Forecasting with exponential smoothing: the state space
//! approach"). Each is fitted by its likelihood, from several starts, and the corrected criterion of Akaike selects one
//! (Hyndman and Khandakar 2008). A season needs two whole ones in the values.

mod criterion;
mod form;
mod initial;
mod recursion;

use forebay_model::Result;

use self::criterion::EtsCriterion;
use self::form::EtsForm;
use self::initial::{flat_states, initial_states};
use self::recursion::{EtsRecursion, EtsStates, Smoothing};
use super::forecast::SeriesForecast;
use super::minimize::{Minimum, minimize};

/// Parameters that searches start from. A likelihood has several peaks: slow, medium and fast smoothing lie at the foot
/// of different ones.
const STARTS: [Smoothing; 3] = [
    Smoothing {
        alpha: 0.1,
        beta: 0.01,
        gamma: 0.05,
        phi: 0.97,
    },
    Smoothing {
        alpha: 0.5,
        beta: 0.05,
        gamma: 0.1,
        phi: 0.9,
    },
    Smoothing {
        alpha: 0.9,
        beta: 0.2,
        gamma: 0.05,
        phi: 0.95,
    },
];

/// Smoothing of a series that is constant.
const CONSTANT: Smoothing = Smoothing {
    alpha: 1.0,
    beta: 0.0,
    gamma: 0.0,
    phi: 1.0,
};

/// A model of one series.
#[derive(Debug, Clone)]
pub struct EtsFit {
    form: EtsForm,
    smoothing: Smoothing,
    /// States before the first value.
    initial: EtsStates,
    /// The corrected criterion of Akaike. It is comparable between forms for the same values.
    aicc: f64,
    /// Mean of the squares of errors of one step.
    pub loss: f64,
}

impl EtsFit {
    /// The form with the least criterion. `None` where no form has a criterion: of fewer than five values that differ,
    /// or of values whose squares are not finite. `check` ends the search by its fault.
    pub fn new(
        values: &[f64],
        season_steps: usize,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Option<EtsFit>> {
        let Some(first) = values.first() else {
            return Ok(None);
        };
        if values.iter().all(|value| value == first) {
            return Ok(Some(EtsFit::constant(*first)));
        }
        let has_season = season_steps > 1 && values.len() >= 2 * season_steps;
        let are_positive = values.iter().all(|value| *value > 0.0);
        let mut best: Option<EtsFit> = None;
        for form in EtsForm::candidates(are_positive, has_season) {
            let fit = EtsFit::of_form(values, form, season_steps, check)?;
            if let Some(fit) = fit
                && best.as_ref().is_none_or(|best| fit.aicc < best.aicc)
            {
                best = Some(fit);
            }
        }
        Ok(best)
    }

    fn constant(value: f64) -> EtsFit {
        EtsFit {
            form: EtsForm::LEVEL,
            smoothing: CONSTANT,
            initial: EtsStates {
                level: value,
                trend: 0.0,
                season: vec![0.0],
            },
            aicc: f64::NEG_INFINITY,
            loss: 0.0,
        }
    }

    /// The best fit of one form, from all starts.
    fn of_form(
        values: &[f64],
        form: EtsForm,
        season_steps: usize,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Option<EtsFit>> {
        let season_steps = if form.has_season() { season_steps } else { 1 };
        let Some(penalty) = penalty(values.len(), form.parameter_count(season_steps)) else {
            return Ok(None);
        };
        let mut criterion = EtsCriterion::new(values, form, season_steps);
        let initial = initial_states(values, form, season_steps);
        let mut best: Option<Minimum> = None;
        for smoothing in &STARTS {
            let start = criterion.point(smoothing, &initial);
            let mut minimum = minimize(&mut criterion, start, check)?;
            if minimum.is_none() {
                let flat = flat_states(values, form, season_steps);
                let start = criterion.point(smoothing, &flat);
                minimum = minimize(&mut criterion, start, check)?;
            }
            if let Some(minimum) = minimum
                && best.as_ref().is_none_or(|best| minimum.value < best.value)
            {
                best = Some(minimum);
            }
        }
        let Some(best) = best else {
            return Ok(None);
        };
        let (smoothing, initial) = criterion.parameters(&best.point);
        let mut fit = EtsFit {
            form,
            smoothing,
            initial,
            aicc: best.value + penalty,
            loss: 0.0,
        };
        let squares: f64 = fit.errors(values).iter().map(|error| error * error).sum();
        fit.loss = squares / values.len() as f64;
        Ok(Some(fit))
    }

    /// Letters of error, trend and season.
    pub fn form_name(&self) -> String {
        self.form.name()
    }

    /// The errors of one step of the values of the fit.
    pub fn errors(&self, values: &[f64]) -> Vec<f64> {
        let mut recursion = EtsRecursion::new(self.form, self.smoothing, self.initial.clone());
        let mut errors = Vec::with_capacity(values.len());
        for value in values {
            errors.push(value - recursion.advance(*value).mean);
        }
        errors
    }

    /// The forecast after some values, which begin with those of the fit. It is the last value where states are not
    /// finite there, as after a value of zero that an index is divided by.
    pub fn forecast(&self, values: &[f64]) -> SeriesForecast {
        let mut recursion = EtsRecursion::new(self.form, self.smoothing, self.initial.clone());
        for value in values {
            recursion.advance(*value);
        }
        let EtsStates {
            level,
            trend,
            mut season,
        } = recursion.states;
        let are_finite = level.is_finite() && trend.is_finite();
        if !are_finite || season.iter().any(|index| !index.is_finite()) {
            return SeriesForecast::constant(values.last().copied().unwrap_or(0.0));
        }
        season.rotate_left(recursion.slot);
        SeriesForecast {
            level,
            slope: trend,
            damping: self.smoothing.phi,
            season: if self.form.has_season() {
                season
            } else {
                Vec::new()
            },
            multiplicative: self.form.is_multiplied(),
            curve: None,
        }
    }
}

/// Part of the corrected criterion of Akaike that counts parameters (Hurvich and Tsai 1989). `None` where there are too
/// many of them for the values.
fn penalty(values: usize, parameters: usize) -> Option<f64> {
    if values <= parameters + 1 {
        return None;
    }
    let count = parameters as f64;
    Some(2.0 * count + 2.0 * count * (count + 1.0) / (values as f64 - count - 1.0))
}

#[cfg(test)]
mod tests;
