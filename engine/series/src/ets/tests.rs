use super::form::{EtsError, EtsSeason, EtsTrend};
use super::*;
use crate::testing::{NILE, PASSENGERS, assert_forecasts, reals};

const RISING: [u16; 12] = [10, 12, 14, 13, 17, 18, 21, 20, 24, 26, 27, 30];

const HOLT_WINTERS: EtsForm = EtsForm {
    error: EtsError::Multiplicative,
    trend: EtsTrend::Additive,
    season: EtsSeason::Multiplicative,
};

fn fit(values: &[f64], season_steps: usize) -> EtsFit {
    let fit = EtsFit::new(values, season_steps, &|| Ok(()));
    fit.unwrap().unwrap()
}

/// Fails unless the criterion is at most that of another program.
#[track_caller]
fn assert_criterion(fit: &EtsFit, aicc: f64) {
    assert!(fit.aicc < aicc + 1e-3, "{}, not {aicc}", fit.aicc);
    // A criterion far below would be another one.
    assert!(fit.aicc > aicc - 10.0, "{}, not {aicc}", fit.aicc);
}

/// Forms, criteria and forecasts of statsforecast 2.1.1 (`AutoETS`), whose search ends early.
#[test]
fn criteria_are_no_worse_than_those_of_statsforecast() {
    let rising = reals(&RISING);
    let model = fit(&rising, 1);
    assert_eq!(model.form_name(), "A,A,N");
    assert_criterion(&model, 48.834_00);
    assert_forecasts(&model.forecast(&rising), 2e-4, &[30.8358, 32.6050, 34.3742]);
    let nile = reals(&NILE);
    let model = fit(&nile, 1);
    // A level has about the same criterion for both kinds of errors.
    assert!(["A,N,N", "M,N,N"].contains(&model.form_name().as_str()));
    assert_criterion(&model, 265.1432);
    assert_forecasts(&model.forecast(&nile), 3e-4, &[1070.6613; 3]);
}

/// statsforecast 2.1.1 selects (M,N,M) with 1297.47, and reaches 1248.07 for (M,A,M), whose forecasts of the year that
/// follows are wrong by 4.2 %.
#[test]
fn the_search_goes_on_where_that_of_statsforecast_ends() {
    let months = reals(&PASSENGERS);
    let (learned, year) = months.split_at(132);
    let model = fit(learned, 12);
    assert_eq!(model.form, HOLT_WINTERS);
    assert!((model.aicc - 1241.2945).abs() < 1e-3, "{}", model.aicc);
    let forecast = model.forecast(learned);
    // Of an independent program in Python.
    assert_forecasts(&forecast, 1e-4, &[412.8876, 408.4390, 470.1121, 452.6854]);
    let mut errors = 0.0;
    for (step, value) in (1..).zip(year) {
        errors += (forecast.value(step) - value).abs();
    }
    let wmape = errors / year.iter().sum::<f64>();
    assert!(wmape < 0.045, "{wmape}");
}

/// statsmodels 0.15.0 reaches 1390.84 for (M,A,M) by maximum likelihood.
#[test]
fn the_likelihood_is_that_of_statsmodels() {
    let months = reals(&PASSENGERS);
    let model = EtsFit::of_form(&months, HOLT_WINTERS, 12, &|| Ok(()));
    let model = model.unwrap().unwrap();
    assert!((model.aicc - 1390.84).abs() < 0.02, "{}", model.aicc);
    assert_eq!(fit(&months, 12).form, HOLT_WINTERS);
}

#[test]
fn forecasts_go_on_over_later_values() {
    let months = reals(&PASSENGERS);
    let model = fit(&months[..132], 12);
    let before = model.forecast(&months[..132]);
    let behind = model.forecast(&months[..133]);
    // The level takes its share of the error, and the season begins one step later.
    let error = months[132] - before.value(1);
    let index = before.season[0];
    let level = before.level + before.slope + model.smoothing.alpha * error / index;
    assert!((behind.level - level).abs() < 1e-9 * level);
    assert!((behind.season[0] - before.season[1]).abs() < 1e-12);
}

#[test]
fn series_without_a_form_have_no_model() {
    let huge = vec![1e200, -1e200, 5e200, 0.0, 1.0, 2.0];
    for values in [vec![], vec![1.0, 2.0, 3.0, 4.5], huge] {
        let fit = EtsFit::new(&values, 1, &|| Ok(()));
        assert!(fit.unwrap().is_none());
    }
    let constant = fit(&[7.0; 30], 7);
    assert_eq!(constant.forecast(&[7.0; 30]), SeriesForecast::constant(7.0));
    assert!(constant.loss.abs() < 1e-12);
}

#[test]
fn exact_lines_and_seasons_go_on() {
    let line: Vec<f64> = (0..20).map(|step| 5.0 - 2.0 * f64::from(step)).collect();
    let forecast = fit(&line, 1).forecast(&line);
    assert_forecasts(&forecast, 1e-3, &[-35.0, -37.0, -39.0, -41.0]);
    let week = [3.0, 5.0, 9.0, 8.0, 7.0, -2.0, -4.0];
    let mut days = Vec::new();
    for day in 0..42 {
        days.push(week[day % 7] + 0.3 * day as f64);
    }
    let forecast = fit(&days, 7).forecast(&days);
    let expected = [15.6, 17.9, 22.2, 21.5, 20.8, 12.1, 10.4];
    assert_forecasts(&forecast, 1e-3, &expected);
}

/// Values in another unit have the same form, and forecasts in that unit.
#[test]
fn units_do_not_matter() {
    let nile = reals(&NILE);
    let scaled: Vec<f64> = nile.iter().map(|value| value / 1e6).collect();
    let forecast = fit(&nile, 1).forecast(&nile).value(1);
    let of_scaled = fit(&scaled, 1).forecast(&scaled).value(1) * 1e6;
    assert!((forecast - of_scaled).abs() < 1e-4 * forecast);
}

#[test]
fn a_check_ends_the_search() {
    let nile = reals(&NILE);
    let stopped = EtsFit::new(&nile, 1, &|| Err(forebay_model::Fault::internal("stopped")));
    assert!(stopped.is_err());
}
