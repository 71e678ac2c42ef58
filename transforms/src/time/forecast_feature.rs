//! `forecast_feature`: the forecast of a series by a statistical model, made some time before each row.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Float64Builder};
use arrow::datatypes::{DataType, Field};
use forebay_model::{CalendarSpan, ColumnClock, Fault, Result, ticks};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, PlanOp, SeriesOp, Transform, check_stop,
};
use forebay_series::ets::EtsFit;
use forebay_series::forecast::SeriesForecast;
use forebay_series::theta::{ThetaFit, ThetaVariant};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FloatType;
use super::length::{LengthSpec, StepBack, TimeColumn};
use super::windows::WindowOpBuilder;
use crate::shared::{bad_value, doubles, to_float_type};

/// Values without which a theta model is not fitted.
const THETA_VALUES_MIN: usize = 4;

/// Values without which exponential smoothing is not fitted.
const ETS_VALUES_MIN: usize = 5;

/// The last day of the longest month.
const LAST_DAY: u32 = 31;

/// The longest season, in steps.
const SEASON_STEPS_MAX: i64 = 10_000;

/// Steps of a series for each of its rows at most, beyond those of any series. Steps without a row take memory, too.
const STEPS_PER_ROW_MAX: usize = 100;

/// Steps that any series may have.
const FREE_STEPS: usize = 10_000;

/// The forecast of each row by a statistical model of its series, as it was made `horizon` before the row: a feature for
/// trees and networks.
///
/// In: columns of numbers or booleans. Out: `<column>_<model>_<horizon>`, such as `qty_theta_7d`, of `dtype`. Time is
/// divided into periods of the length `refit`, counted from 1970 or from zero. A model is fitted for each period, to the
/// values of the series up to `horizon` before its begin, and forecasts all rows of the period. So no row is forecast from
/// values that are nearer than `horizon`, and checks of leaks take the column like a `lag` by `horizon`. Periods of months
/// begin on the day of the month of the first row of a series, or on the last day where that row lies on one. A row on an
/// earlier day has a model of its own. Rows of the future have forecasts like others: stand behind `future_rows`, with a
/// `horizon` that is that of the label or longer.
///
/// Rows of a series lie in the nearest step of `every`, and the last value of a step counts. A missing or infinite
/// value, and a step without a row, gets one on the line between its neighbours. Days have 24 hours, and the rows of a
/// month lie in its step, whatever their day. Fewer than four known values (five with `ets`) are forecast by the last one.
/// A row without any is null, as is a forecast that is not finite; where the first value comes within a period, each row of
/// that period has a model of its own. Each series is held in memory as a whole, so that rows cannot be served and
/// `strategy: recursive` cannot feed it. A fit takes time in proportion to the values before it, so that a long history with
/// many periods is slow: raise `refit`. A row without a time is a fault, and so is a series with rows in less than a
/// hundredth of more than 10,000 steps. Models are those of `train: { model: theta }` and `ets`.
///
/// ```yaml
/// - forecast_feature: { columns: [qty], horizon: 7d, every: 1d, season: 7d }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn forecast_feature(columns, horizon, every),
    example = r#"forecast_feature(["qty"], "7d", "1d").season("7d")"#
)]
pub struct ForecastFeature {
    /// Columns of numbers or booleans.
    pub columns: ColumnSelector,
    /// Time from the last value that a model knows to the first row that it forecasts, a whole number of steps.
    pub horizon: LengthSpec,
    /// The distance between rows of a series: a length of time such as `1d` or `1mo`.
    pub every: LengthSpec,
    /// The length of a season, a whole number of steps. Series of fewer than two seasons have none. There are no seasons
    /// when left out.
    #[serde(default)]
    pub season: Option<LengthSpec>,
    /// The time from one fit to the next, a whole number of steps; `horizon` when left out.
    #[serde(default)]
    pub refit: Option<LengthSpec>,
    /// The kind of model.
    #[serde(default)]
    pub model: ForecastFeatureModel,
    /// The event-time column, where the source does not declare it.
    #[serde(default)]
    pub time: Option<String>,
    /// The columns that tell series apart, where the source does not declare them; `[]` makes all
    /// rows one series.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
    /// The type that comes out.
    #[serde(default)]
    pub dtype: FloatType,
}

/// The model of a forecast that is a feature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForecastFeatureModel {
    /// The standard theta method.
    #[default]
    Theta,
    /// Exponential smoothing, whose form the values choose. Its fits take about a hundred times as long.
    Ets,
}

impl ForecastFeatureModel {
    fn name(self) -> &'static str {
        match self {
            ForecastFeatureModel::Theta => "theta",
            ForecastFeatureModel::Ets => "ets",
        }
    }

    fn values_min(self) -> usize {
        match self {
            ForecastFeatureModel::Theta => THETA_VALUES_MIN,
            ForecastFeatureModel::Ets => ETS_VALUES_MIN,
        }
    }
}

impl ConfiguredTransform for ForecastFeature {
    const NAME: &'static str = "forecast_feature";
}

impl Transform for ForecastFeature {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let windows = WindowOpBuilder::new(scope, Self::NAME, &self.time, &self.keys, None)?;
        let time = windows.time.clone();
        let forecaster = self.forecaster(&time)?;
        let fields = windows.computable_columns(&self.columns)?;
        let data_type = self.dtype.data_type();
        let mut reads = vec![time.name.clone()];
        let mut writes = Vec::with_capacity(fields.len());
        for field in fields {
            let name = format!("{}_{}_{}", field.name(), self.model.name(), self.horizon);
            windows.refuse_clash(&name)?;
            reads.push(field.name().clone());
            writes.push(Field::new(name, data_type.clone(), true));
        }
        let horizon = self.horizon.distance(&time)?;
        Ok(vec![PlanOp::Series(SeriesOp {
            behind: Some(time.behind(horizon)),
            time: Some(time.name),
            keys: windows.key_names(),
            reads,
            writes,
            kernel: Arc::new(move |inputs, _| forecaster.columns(inputs, &data_type)),
            looks_ahead: false,
            code: None,
        })])
    }
}

impl ForecastFeature {
    fn forecaster(&self, time: &TimeColumn) -> Result<SeriesForecaster> {
        let every = self.every.distance(time)?;
        if !every.is_positive() {
            return Err(bad_value(format!("`every: {}` is no distance", self.every)).field("every"));
        }
        let horizon_steps = self.whole_steps("horizon", self.horizon, time)?;
        let period_steps = match self.refit {
            Some(refit) => self.whole_steps("refit", refit, time)?,
            None => horizon_steps,
        };
        let season_steps = match self.season {
            Some(season) => self.whole_steps("season", season, time)?,
            None => 1,
        };
        if season_steps > SEASON_STEPS_MAX {
            let message = format!("a season has at most {SEASON_STEPS_MAX} steps");
            return Err(bad_value(message).field("season"));
        }
        let months = every.span().months;
        let grid = match ColumnClock::of(&time.data_type)? {
            Some(clock) if months > 0 => StepGrid::Months {
                clock,
                every: months,
                period: period_steps.saturating_mul(months),
                horizon: horizon_steps.saturating_mul(months),
            },
            _ => {
                let every = self.every.ticks(time)?;
                StepGrid::Ticks {
                    every,
                    period: period_steps.saturating_mul(every),
                }
            }
        };
        Ok(SeriesForecaster {
            model: self.model,
            grid,
            horizon: time.steps_back(self.horizon.distance(time)?)?,
            season_steps: season_steps as usize,
        })
    }

    /// The steps of `every` that a length has.
    fn whole_steps(&self, name: &str, length: LengthSpec, time: &TimeColumn) -> Result<i64> {
        if let Some((steps @ 1.., true)) = length.periods_of(self.every, time)? {
            return Ok(steps);
        }
        let message = format!(
            "`{name}: {length}` is no whole number of steps of `every: {}`",
            self.every
        );
        Err(bad_value(message)
            .field(name)
            .hint("give a multiple of the distance between rows"))
    }
}

/// Forecasts of single series, each from the values that are known some steps before.
#[derive(Debug, Clone, Copy)]
struct SeriesForecaster {
    model: ForecastFeatureModel,
    grid: StepGrid,
    /// Distance from the last value that a model knows to the row that it forecasts.
    horizon: StepBack,
    /// Steps of a season; 1 without one.
    season_steps: usize,
}

/// Equal steps of a series, and the periods with one model.
#[derive(Debug, Clone, Copy)]
enum StepGrid {
    /// Steps and periods of ticks. Periods are counted from tick 0.
    Ticks { every: i64, period: i64 },
    /// Steps, periods and a horizon of months. Periods are counted from January of the year 0.
    Months {
        clock: ColumnClock,
        every: i64,
        period: i64,
        horizon: i64,
    },
}

/// Times of a period with one model.
struct PeriodTimes {
    /// The first time that the model forecasts.
    begin: i64,
    /// The last time whose value it knows.
    known_until: i64,
}

impl StepGrid {
    /// The nearest step of a time, from that of the first row on.
    fn step_of(&self, first_time: i64, time: i64) -> Result<i64> {
        let (distance, every) = match self {
            StepGrid::Ticks { every, .. } => (i128::from(time) - i128::from(first_time), *every),
            StepGrid::Months { clock, every, .. } => {
                let months = month_number(clock, time)? - month_number(clock, first_time)?;
                (i128::from(months), *every)
            }
        };
        let every = i128::from(every);
        Ok(i64::try_from((2 * distance + every) / (2 * every)).unwrap_or(i64::MAX))
    }

    /// The number of the period of a time.
    fn period_of(&self, time: i64) -> Result<i64> {
        match self {
            StepGrid::Ticks { period, .. } => Ok(time.div_euclid(*period)),
            StepGrid::Months { clock, period, .. } => {
                Ok(month_number(clock, time)?.div_euclid(*period))
            }
        }
    }

    /// The times of a period of a series. Months begin at the day and time of its first row, or at their end where that
    /// row lies at one.
    fn times_of(&self, period: i64, first_time: i64, horizon: StepBack) -> Result<PeriodTimes> {
        match self {
            StepGrid::Ticks { period: ticks, .. } => {
                let begin = period.saturating_mul(*ticks);
                Ok(PeriodTimes {
                    begin,
                    known_until: horizon.before(begin),
                })
            }
            StepGrid::Months {
                clock,
                period: months,
                horizon,
                ..
            } => {
                let first_month = month_number(clock, first_time)?;
                let begin = period.saturating_mul(*months) - first_month;
                Ok(PeriodTimes {
                    begin: months_after(clock, first_time, begin)?,
                    known_until: months_after(clock, first_time, begin - horizon)?,
                })
            }
        }
    }
}

/// Months of a time since January of the year 0, in the zone of its column.
fn month_number(clock: &ColumnClock, time: i64) -> Result<i64> {
    let in_month = clock.place_in_month(time).ok_or_else(beyond_calendar)?;
    Ok(in_month.month)
}

/// The time so many months after the first one of a series, at its day of the month.
fn months_after(clock: &ColumnClock, first_time: i64, months: i64) -> Result<i64> {
    let first = clock
        .place_in_month(first_time)
        .ok_or_else(beyond_calendar)?;
    let month_day = first.is_last_day.then_some(LAST_DAY);
    let span = CalendarSpan::months(months);
    let time = clock.continued(first_time, span, month_day, None);
    time.ok_or_else(beyond_calendar)
}

fn beyond_calendar() -> Fault {
    bad_value("a time lies beyond the calendar").field("every")
}

/// Values of a series at equal steps, as far as they are known.
#[derive(Debug, Clone, Default)]
struct KnownValues {
    values: Vec<f64>,
    /// Step of the last value.
    last_step: i64,
    /// The number of values at most.
    steps_max: usize,
}

/// The rows of a series up to a time, in order of time.
struct RowsUntil<'a> {
    times: &'a [i64],
    values: &'a Float64Array,
    /// The last time.
    end: i64,
}

/// A forecast after some values.
struct DatedForecast {
    forecast: SeriesForecast,
    /// Step of the last value.
    last_step: i64,
}

impl SeriesForecaster {
    /// The forecasts of all columns of a series, whose times come first.
    fn columns(&self, inputs: &[ArrayRef], data_type: &DataType) -> Result<Vec<ArrayRef>> {
        let Some((time, columns)) = inputs.split_first() else {
            return Ok(Vec::new());
        };
        let times = ticks(time)?;
        let mut outputs = Vec::with_capacity(columns.len());
        for column in columns {
            let forecasts = self.forecasts(times.values(), &doubles(column)?)?;
            outputs.push(to_float_type(forecasts, data_type));
        }
        Ok(outputs)
    }

    /// The forecast of each row of a series, whose rows come in order of time.
    fn forecasts(&self, times: &[i64], values: &Float64Array) -> Result<Float64Array> {
        let mut outputs = Float64Builder::with_capacity(times.len());
        let Some(first_time) = times.first().copied() else {
            return Ok(outputs.finish());
        };
        let mut history = KnownValues {
            steps_max: FREE_STEPS + STEPS_PER_ROW_MAX * times.len(),
            ..KnownValues::default()
        };
        let mut next_row = 0;
        let mut fitted_period = None;
        let mut dated = None;
        for time in times.iter().copied() {
            let period = self.grid.period_of(time)?;
            if fitted_period != Some(period) {
                let period_times = self.grid.times_of(period, first_time, self.horizon)?;
                dated = None;
                // A row may lie on an earlier day of its month than the first row: the model of its period knows too much
                // for it.
                if time >= period_times.begin {
                    fitted_period = Some(period);
                    // A model does not depend on which rows of its period there are.
                    let rows = RowsUntil {
                        times,
                        values,
                        end: period_times.known_until,
                    };
                    self.add_rows(&mut history, &rows, &mut next_row)?;
                    dated = self.fit(&history)?;
                }
            }
            let step = self.grid.step_of(first_time, time)?;
            let value = match &dated {
                Some(dated) => Some(dated.value(step)),
                None => {
                    let rows = RowsUntil {
                        times,
                        values,
                        end: self.horizon.before(time),
                    };
                    self.add_rows(&mut history, &rows, &mut next_row)?;
                    self.fit(&history)?.map(|dated| dated.value(step))
                }
            };
            outputs.append_option(value.filter(|value| value.is_finite()));
        }
        Ok(outputs.finish())
    }

    /// Adds the values of further rows up to a time.
    fn add_rows(
        &self,
        history: &mut KnownValues,
        rows: &RowsUntil<'_>,
        next_row: &mut usize,
    ) -> Result<()> {
        let Some(first_time) = rows.times.first().copied() else {
            return Ok(());
        };
        while let Some(time) = rows.times.get(*next_row).copied() {
            if time > rows.end {
                break;
            }
            if rows.values.is_valid(*next_row) && rows.values.value(*next_row).is_finite() {
                let step = self.grid.step_of(first_time, time)?;
                history.add(step, rows.values.value(*next_row))?;
            }
            *next_row += 1;
        }
        Ok(())
    }

    /// The forecast after the values that are known; `None` without any.
    fn fit(&self, history: &KnownValues) -> Result<Option<DatedForecast>> {
        check_stop()?;
        let values = history.values.as_slice();
        let Some(last_value) = values.last().copied() else {
            return Ok(None);
        };
        let mut forecast = SeriesForecast::constant(last_value);
        if values.len() >= self.model.values_min() {
            match self.model {
                ForecastFeatureModel::Theta => {
                    let fit = ThetaFit::new(values, self.season_steps, ThetaVariant::Standard);
                    forecast = fit.forecast(values);
                }
                ForecastFeatureModel::Ets => {
                    if let Some(fit) = EtsFit::new(values, self.season_steps, &check_stop)? {
                        forecast = fit.forecast(values);
                    }
                }
            }
        }
        Ok(Some(DatedForecast {
            forecast,
            last_step: history.last_step,
        }))
    }
}

impl DatedForecast {
    /// The value at a later step.
    fn value(&self, step: i64) -> f64 {
        let steps = step.saturating_sub(self.last_step).max(1);
        self.forecast.value(steps as u64)
    }
}

impl KnownValues {
    /// Adds the value of a step, and values on the line to it for steps before that have none. The later one of two
    /// values of a step counts.
    fn add(&mut self, step: i64, value: f64) -> Result<()> {
        let Some(last_value) = self.values.last_mut() else {
            self.values.push(value);
            self.last_step = step;
            return Ok(());
        };
        let steps = step.saturating_sub(self.last_step);
        if steps <= 0 {
            *last_value = value;
            return Ok(());
        }
        let start = *last_value;
        let count = steps as usize;
        if self.values.len().saturating_add(count) > self.steps_max {
            let message = format!(
                "a series has values in fewer than 1 of {STEPS_PER_ROW_MAX} steps of `every`"
            );
            return Err(bad_value(message)
                .field("every")
                .hint("give the distance between rows as `every`"));
        }
        for missing in 1..steps {
            let share = missing as f64 / steps as f64;
            self.values.push(start + (value - start) * share);
        }
        self.values.push(value);
        self.last_step = step;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use chrono::{Datelike, NaiveDate};
    use forebay_model::TimeDistance;

    use super::*;

    /// Values with a week, a trend and what looks like noise.
    fn sales(days: usize) -> Vec<f64> {
        let week = [3.0, 5.0, 9.0, 8.0, 7.0, 2.0, 4.0];
        (0..days)
            .map(|day| 20.0 + 0.3 * day as f64 + week[day % 7] + ((day * day) % 11) as f64)
            .collect()
    }

    fn forecaster(horizon: i64, period_ticks: i64) -> SeriesForecaster {
        let time = TimeColumn {
            name: "day".to_owned(),
            data_type: DataType::Int64,
        };
        SeriesForecaster {
            model: ForecastFeatureModel::Theta,
            grid: StepGrid::Ticks {
                every: 1,
                period: period_ticks,
            },
            horizon: time.steps_back(TimeDistance::Ticks(horizon)).unwrap(),
            season_steps: 7,
        }
    }

    /// Forecasts of days from 0 on, given the values of all days.
    fn forecasts(forecaster: &SeriesForecaster, values: &[f64]) -> Vec<Option<f64>> {
        let times: Vec<i64> = (0..values.len() as i64).collect();
        let values = Float64Array::from(values.to_vec());
        let forecasts = forecaster.forecasts(&times, &values).unwrap();
        forecasts.iter().collect()
    }

    #[test]
    fn a_row_has_the_forecast_of_the_model_of_its_period() {
        let values = sales(60);
        for (horizon, period) in [(3, 1), (3, 3), (7, 5), (1, 1)] {
            let rows = forecasts(&forecaster(horizon as i64, period as i64), &values);
            for (day, forecast) in rows.iter().enumerate() {
                let mut fitted_at = day - day % period;
                if fitted_at < horizon {
                    // No value is known at the begin of the period.
                    fitted_at = day;
                }
                if fitted_at < horizon {
                    assert_eq!(*forecast, None, "{day}");
                    continue;
                }
                let learned = &values[..=fitted_at - horizon];
                let expected = if learned.len() < THETA_VALUES_MIN {
                    learned[learned.len() - 1]
                } else {
                    let fit = ThetaFit::new(learned, 7, ThetaVariant::Standard);
                    let steps = day + 1 - learned.len();
                    fit.forecast(learned).value(steps as u64)
                };
                assert_eq!(*forecast, Some(expected), "{horizon}, {period}, {day}");
            }
        }
    }

    /// A day of a month that is counted from January 2023, in days since 1970; the last one of a shorter month.
    fn day_of_month(month: i32, day: u32) -> i64 {
        let first = NaiveDate::from_ymd_opt(2023 + month / 12, month as u32 % 12 + 1, 1).unwrap();
        let day = day.min(u32::from(first.num_days_in_month()));
        let date = first.with_day(day).unwrap();
        (date - NaiveDate::default()).num_days()
    }

    fn monthly(horizon: i64, period: i64) -> SeriesForecaster {
        let time = TimeColumn {
            name: "day".to_owned(),
            data_type: DataType::Date32,
        };
        let span = CalendarSpan::months(horizon);
        SeriesForecaster {
            grid: StepGrid::Months {
                clock: ColumnClock::of(&DataType::Date32).unwrap().unwrap(),
                every: 1,
                period,
                horizon,
            },
            horizon: time.steps_back(TimeDistance::from_span(span)).unwrap(),
            ..forecaster(1, 1)
        }
    }

    /// Months have the forecasts of whole numbers, on any day of the month and at its end.
    #[test]
    fn months_are_equal_steps() {
        let values = sales(60);
        for (horizon, period) in [(1, 1), (3, 3), (12, 6)] {
            // January 2023 begins a period of each length.
            let expected = forecasts(&forecaster(horizon, period), &values);
            let values = Float64Array::from(values.clone());
            for day in [1, 15, 28, 31] {
                let times: Vec<i64> = (0..60).map(|month| day_of_month(month, day)).collect();
                let rows = monthly(horizon, period).forecasts(&times, &values).unwrap();
                let rows: Vec<Option<f64>> = rows.iter().collect();
                assert_eq!(rows, expected, "{horizon}, {period}, {day}");
            }
        }
    }

    /// A row on an earlier day than the others knows what came a month before itself.
    #[test]
    fn an_early_row_of_a_month_does_not_know_the_row_before() {
        let mut times: Vec<i64> = (0..30).map(|month| day_of_month(month, 20)).collect();
        let mut values = sales(30);
        times.push(day_of_month(30, 10));
        values.push(0.0);
        let rows = |values: &[f64]| {
            let values = Float64Array::from(values.to_vec());
            let rows = monthly(1, 1).forecasts(&times, &values).unwrap();
            rows.value(30)
        };
        let expected = rows(&values);
        // The 20th of the month before lies less than a month back.
        values[29] += 100.0;
        assert_eq!(rows(&values), expected);
        values[28] += 100.0;
        assert_ne!(rows(&values), expected);
    }

    #[test]
    fn later_values_change_no_bit_of_earlier_rows() {
        let values = sales(50);
        let forecaster = forecaster(7, 7);
        let rows = forecasts(&forecaster, &values);
        for cut in [10, 23, 41] {
            let mut changed = values.clone();
            for value in &mut changed[cut..] {
                *value = 1000.0 - *value;
            }
            let changed_rows = forecasts(&forecaster, &changed);
            assert_eq!(changed_rows[..cut + 7], rows[..cut + 7], "{cut}");
            assert_ne!(changed_rows, rows, "{cut}");
        }
    }

    /// The forecast of day 6 by the values of four days before it, of days that are given.
    fn forecast_of_day_6(
        model: ForecastFeatureModel,
        times: &[i64],
        values: &[Option<f64>],
    ) -> f64 {
        let forecaster = SeriesForecaster {
            model,
            ..forecaster(2, 1)
        };
        let values = Float64Array::from(values.to_vec());
        let forecasts = forecaster.forecasts(times, &values).unwrap();
        forecasts.value(times.len() - 1)
    }

    #[test]
    fn steps_without_a_value_lie_on_the_line_between_their_neighbours() {
        let all = [Some(1.0), Some(2.0), Some(3.0), Some(4.0), Some(9.0), None];
        let some = [
            Some(1.0),
            None,
            Some(f64::INFINITY),
            Some(4.0),
            Some(9.0),
            None,
        ];
        let few = [Some(1.0), Some(4.0), Some(9.0), None];
        for model in [ForecastFeatureModel::Theta, ForecastFeatureModel::Ets] {
            let expected = forecast_of_day_6(model, &[0, 1, 2, 3, 4, 6], &all);
            assert_eq!(
                forecast_of_day_6(model, &[0, 1, 2, 3, 4, 6], &some),
                expected
            );
            assert_eq!(forecast_of_day_6(model, &[0, 3, 4, 6], &few), expected);
        }
    }

    /// Days of 23 hours lie in the nearest step of 24.
    #[test]
    fn rows_lie_in_the_nearest_step() {
        let daily = SeriesForecaster {
            grid: StepGrid::Ticks {
                every: 24,
                period: 24,
            },
            ..forecaster(24, 24)
        };
        let values = Float64Array::from(vec![1.0, 2.0, 3.0, 4.0, 9.0, 0.0]);
        let winter = daily.forecasts(&[0, 24, 48, 72, 96, 120], &values).unwrap();
        let summer = daily.forecasts(&[0, 23, 47, 71, 95, 120], &values).unwrap();
        assert_eq!(summer.value(5), winter.value(5));
    }

    #[test]
    fn values_too_far_apart_are_refused() {
        for (last_time, is_refused) in [(10_299, false), (10_300, true), (i64::MAX - 1, true)] {
            let times = [0, last_time, last_time + 1];
            let values = Float64Array::from(vec![1.0, 2.0, 3.0]);
            let forecasts = forecaster(1, 1).forecasts(&times, &values);
            assert_eq!(forecasts.is_err(), is_refused, "{last_time}");
        }
        let none = Float64Array::from(Vec::<f64>::new());
        assert_eq!(forecaster(1, 1).forecasts(&[], &none).unwrap().len(), 0);
    }
}
