//! States before the first value, by the heuristics of Hyndman and Khandakar (2008): a search moves them from there.

use super::form::{EtsForm, EtsSeason};
use super::recursion::EtsStates;
use crate::season::{INDEX_MIN, decompose};

/// Seasons that the first indices come from, at most.
const SEASONS_MAX: usize = 4;

/// Values that the first level and trend come from, at most.
const LEVEL_VALUES_MAX: usize = 10;

/// Indices by classical decomposition of the first seasons, and the line of least squares through the first values
/// without season. A level without trend is their mean.
pub fn initial_states(values: &[f64], form: EtsForm, season_steps: usize) -> EtsStates {
    let season = initial_season(values, form, season_steps);
    let values = first_values(values, form, &season);
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if !form.has_trend() || values.len() < 2 {
        return EtsStates {
            level: mean,
            trend: 0.0,
            season,
        };
    }
    let mut products = 0.0;
    let mut squares = 0.0;
    for (position, value) in values.iter().enumerate() {
        let distance = position as f64 - (count - 1.0) / 2.0;
        products += distance * value;
        squares += distance * distance;
    }
    let trend = products / squares;
    EtsStates {
        level: mean - trend * (count + 1.0) / 2.0,
        trend,
        season,
    }
}

/// States that are safe where the line through the first values falls to zero.
pub fn flat_states(values: &[f64], form: EtsForm, season_steps: usize) -> EtsStates {
    let season = initial_season(values, form, season_steps);
    let values = first_values(values, form, &season);
    EtsStates {
        level: values.iter().sum::<f64>() / values.len() as f64,
        trend: 0.0,
        season,
    }
}

fn initial_season(values: &[f64], form: EtsForm, season_steps: usize) -> Vec<f64> {
    let first_seasons = &values[..values.len().min(SEASONS_MAX * season_steps)];
    match form.season {
        EtsSeason::None => vec![0.0],
        EtsSeason::Additive => decompose(first_seasons, season_steps, false).indices,
        EtsSeason::Multiplicative => {
            let mut indices = decompose(first_seasons, season_steps, true).indices;
            for index in &mut indices {
                *index = index.max(INDEX_MIN);
            }
            indices
        }
    }
}

/// The first values without their season.
fn first_values(values: &[f64], form: EtsForm, season: &[f64]) -> Vec<f64> {
    let mut without = Vec::with_capacity(LEVEL_VALUES_MAX);
    for (position, value) in values.iter().take(LEVEL_VALUES_MAX).enumerate() {
        let index = season[position % season.len()];
        without.push(if form.is_multiplied() {
            value / index
        } else {
            value - index
        });
    }
    without
}
