//! Forecasts of all series: their stored form, and their predictions.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, BooleanArray, Float32Array};
use arrow::datatypes::DataType;
use forebay_contract::Predictions;
use forebay_model::{Fault, Result, codes, tick_nanoseconds, ticks, type_words};
use forebay_series::forecast::{SeriesForecast, ThetaCurve};
use forebay_series::growing_line::GrowingLine;
use forebay_series::theta::ThetaVariant;
use safetensors::{Dtype, SafeTensors};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ensemble::EnsembleCard;
use super::grid::{StepGrid, StepLength};
use super::intervals::SeriesIntervalCard;
use super::method::SeriesMethod;
use crate::group_names::{GroupName, group_columns, group_name, series_text};
use crate::tensors::{EncodedTensor, invalid_model_fault, write_encoded};

/// Names of the tensors.
const NAMES: &str = "names";
const LAST_TIMES: &str = "last_times";
const LINES: &str = "lines";
const DAMPINGS: &str = "dampings";
const CURVES: &str = "curves";
const PATHS: &str = "paths";
const UNITS: &str = "units";
const SEASONS: &str = "seasons";

/// Numbers of a line: level, slope and kind of season.
const LINE_NUMBERS: usize = 3;

/// Numbers of a curve: smoothing parameter, share of the line, and the line's count, mean and slope. All are 0 of a
/// forecast that is a line.
const CURVE_NUMBERS: usize = 5;

/// Kinds of seasons, and the mark of a series without a forecast.
const NO_SEASON: f64 = 0.0;
const ADDED_SEASON: f64 = 1.0;
const MULTIPLIED_SEASON: f64 = 2.0;
const NO_FORECAST: f64 = 3.0;

/// The kind of model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SeriesModelKind {
    /// The theta method (Assimakopoulos and Nikolopoulos 2000): half of a line, and exponential smoothing of the rest,
    /// after a season is taken away. `variant` names others.
    #[default]
    Theta,
    /// Exponential smoothing in state space form (Hyndman et al. 2008). Error, trend and season of each series are those
    /// with the least corrected criterion of Akaike.
    Ets,
    /// Several methods, whose forecasts are combined: `of` names them, `weights` the combination.
    Ensemble,
}

/// Description of models of single series in their file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesCard {
    /// The kind of model.
    pub kind: SeriesModelKind,
    /// The variant of the theta method.
    #[serde(default, skip_serializing_if = "ThetaVariant::is_standard")]
    pub variant: ThetaVariant,
    /// The methods of an ensemble, and their weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ensemble: Option<EnsembleCard>,
    /// Steps of reconciled forecasts, which are in the file in place of models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_steps: Option<usize>,
    /// Intervals around the forecasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intervals: Option<SeriesIntervalCard>,
    /// The columns that tell series apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// The column of times.
    pub time: String,
    /// The distance between rows of a series.
    pub every: String,
    /// Nanoseconds of a tick of the column of times; none of whole numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<i64>,
    /// Steps of a season; 1 without one.
    pub season_steps: usize,
    /// Number of series.
    pub series: usize,
}

impl SeriesCard {
    /// The columns that a prediction reads, in this order.
    pub fn columns(&self) -> Vec<String> {
        let mut columns = self.by.clone();
        columns.push(self.time.clone());
        columns
    }

    /// The forecast for a step, from 1 on, of the forecasts of all methods.
    pub(super) fn value(&self, forecasts: &[Option<SeriesForecast>], step: u64) -> f64 {
        let mut values = Vec::with_capacity(forecasts.len());
        for forecast in forecasts {
            values.push(forecast.as_ref().map(|forecast| forecast.value(step)));
        }
        self.combined(&values)
    }

    /// The combination of a value of each method: that of an ensemble, or the value of the one method.
    pub(super) fn combined(&self, values: &[Option<f64>]) -> f64 {
        match &self.ensemble {
            Some(ensemble) => ensemble.combine(values),
            None => values.iter().flatten().next().copied().unwrap_or(f64::NAN),
        }
    }

    /// The quantiles that it predicts in addition to the point forecast.
    pub(crate) fn quantiles(&self) -> &[f64] {
        let intervals = self.intervals.as_ref();
        intervals.map_or(&[], |intervals| &intervals.quantiles)
    }

    /// The methods of each series, with the beginning of the names of their tensors.
    fn methods(&self) -> Vec<(SeriesMethod, String)> {
        let Some(ensemble) = &self.ensemble else {
            let method = match self.kind {
                SeriesModelKind::Theta | SeriesModelKind::Ensemble => SeriesMethod::Theta,
                SeriesModelKind::Ets => SeriesMethod::Ets,
            };
            return vec![(method, String::new())];
        };
        let mut methods = Vec::with_capacity(ensemble.of.len());
        for method in &ensemble.of {
            methods.push((*method, format!("{}.", method.name())));
        }
        methods
    }

    fn may_curve(&self, method: SeriesMethod) -> bool {
        method == SeriesMethod::Theta && self.variant.may_curve()
    }

    /// True of the standard theta method, whose files a program can read that knows no other model of series.
    pub(crate) fn is_standard_theta(&self) -> bool {
        let is_theta = self.kind == SeriesModelKind::Theta && self.variant.is_standard();
        is_theta && self.path_steps.is_none() && self.intervals.is_none()
    }
}

/// Forecasts, the name of their series, and the time that their steps count from, in ticks.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedForecast {
    /// The values that name the series.
    pub name: GroupName,
    /// The time of its last row.
    pub last: i64,
    /// The forecasts after that, one of each method; `None` of a method without one.
    pub forecasts: Vec<Option<SeriesForecast>>,
    /// Reconciled forecasts of each step, in place of those.
    pub path: Vec<f64>,
    /// The unit of the widths of intervals; 0 where there are none.
    pub unit: f64,
}

/// Forecasts of all series of a model.
#[derive(Debug)]
pub struct SeriesForecasts {
    card: SeriesCard,
    step_length: StepLength,
    series: Vec<NamedForecast>,
    numbers: HashMap<GroupName, usize>,
}

impl SeriesForecasts {
    /// Reads forecasts from the bytes of their file and their card.
    pub fn read(bytes: &[u8], card: &SeriesCard) -> Result<SeriesForecasts> {
        let step_length: StepLength = card.every.parse().map_err(|_| invalid_model_fault())?;
        let series = decode_forecasts(bytes, card)?;
        let mut numbers = HashMap::with_capacity(series.len());
        for (number, named) in series.iter().enumerate() {
            numbers.insert(named.name.clone(), number);
        }
        Ok(SeriesForecasts {
            card: card.clone(),
            step_length,
            series,
            numbers,
        })
    }

    /// Predictions for rows, whose columns come in the order of [`SeriesCard::columns`].
    pub fn predict(&self, columns: &[ArrayRef]) -> Result<Predictions> {
        let (time, keys) = columns.split_last().ok_or_else(invalid_model_fault)?;
        if tick_in_nanoseconds(time.data_type())? != self.card.tick {
            let message = format!(
                "`{}` is {}, and the model was fitted to times of another unit",
                self.card.time,
                type_words(time.data_type())
            );
            return Err(Fault::new(codes::COLUMN_TYPE, message)
                .column(&self.card.time)
                .hint("predict with the data that the model is for, or `cast` the column"));
        }
        let grid = StepGrid::new(self.step_length, &self.card.time, time.data_type())?;
        let names = group_columns(keys)?;
        let times = ticks(time)?;
        let intervals = self.card.intervals.as_ref();
        let mut points = Vec::with_capacity(times.len());
        let mut quantiles = vec![Vec::new(); self.card.quantiles().len()];
        for row in 0..times.len() {
            let name = group_name(&names, row);
            let Some(number) = self.numbers.get(&name) else {
                return Err(unknown_series_fault(&name, row));
            };
            let named = &self.series[*number];
            let steps = if times.is_null(row) {
                None
            } else {
                grid.steps(named.last, times.value(row))
            };
            let Some(steps @ 1..) = steps else {
                return Err(self.no_step_fault(&name, row));
            };
            let value = if self.card.path_steps.is_none() {
                self.card.value(&named.forecasts, steps)
            } else {
                let path_value = named.path.get(steps as usize - 1);
                path_value
                    .copied()
                    .ok_or_else(|| self.far_step_fault(row))?
            };
            points.push(value as f32);
            let ends = intervals.map(|intervals| intervals.ends(value, named.unit, steps));
            for (column, end) in quantiles.iter_mut().zip(ends.into_iter().flatten()) {
                column.push(end as f32);
            }
        }
        Ok(Predictions {
            point: Float32Array::from(points),
            quantiles: quantiles.into_iter().map(Float32Array::from).collect(),
            probabilities: Vec::new(),
        })
    }

    /// Marks the rows of series that have a forecast. Columns come in the order of [`SeriesCard::columns`].
    pub fn rows_of_series(&self, columns: &[ArrayRef]) -> Result<BooleanArray> {
        let (time, keys) = columns.split_last().ok_or_else(invalid_model_fault)?;
        let names = group_columns(keys)?;
        let mut has_model = Vec::with_capacity(time.len());
        for row in 0..time.len() {
            has_model.push(self.numbers.contains_key(&group_name(&names, row)));
        }
        Ok(BooleanArray::from(has_model))
    }

    fn far_step_fault(&self, row: usize) -> Fault {
        let message = format!(
            "a row lies more than the {} steps ahead that were reconciled",
            self.card.path_steps.unwrap_or(0)
        );
        Fault::new(codes::BAD_ROW, message)
            .column(&self.card.time)
            .rows([row as u64])
            .hint("raise `horizon` of the training to that of the forecast")
    }

    fn no_step_fault(&self, name: &GroupName, row: usize) -> Fault {
        let message = format!(
            "a row of {} does not lie whole steps of `every: {}` after the last value \
             that the model knows",
            series_text(name),
            self.card.every
        );
        Fault::new(codes::BAD_ROW, message)
            .column(&self.card.time)
            .rows([row as u64])
            .hint("predict the rows that `future_rows` makes, with the `every` of the model")
    }
}

fn unknown_series_fault(name: &GroupName, row: usize) -> Fault {
    let message = format!(
        "the model has not seen {}, which it would forecast from its own values",
        series_text(name)
    );
    Fault::new(codes::BAD_ROW, message)
        .rows([row as u64])
        .hint("train it again with the rows of that series, or leave the series out")
}

/// Nanoseconds of a tick of a type of times; `None` of whole numbers.
pub fn tick_in_nanoseconds(data_type: &DataType) -> Result<Option<i64>> {
    let Some(tick) = tick_nanoseconds(data_type) else {
        return Ok(None);
    };
    let tick = i64::try_from(tick).map_err(|_| Fault::internal("a tick of more than a day"))?;
    Ok(Some(tick))
}

/// A file of forecasts as a card describes them, and words.
pub fn encode_forecasts(
    card: &SeriesCard,
    series: &[NamedForecast],
    words: String,
) -> Result<Vec<u8>> {
    let names: Vec<&GroupName> = series.iter().map(|named| &named.name).collect();
    let names = serde_json::to_vec(&names)
        .map_err(|error| Fault::internal("names of series").cause(error))?;
    let mut last_times = Vec::with_capacity(series.len() * 8);
    for named in series {
        last_times.extend_from_slice(&named.last.to_le_bytes());
    }
    let mut tensors = vec![
        EncodedTensor {
            name: NAMES.to_owned(),
            data_type: Dtype::U8,
            size: vec![names.len()],
            bytes: names,
        },
        EncodedTensor {
            name: LAST_TIMES.to_owned(),
            data_type: Dtype::I64,
            size: vec![series.len()],
            bytes: last_times,
        },
    ];
    if card.intervals.is_some() {
        let mut units = Vec::with_capacity(series.len() * 8);
        for named in series {
            units.extend_from_slice(&named.unit.to_le_bytes());
        }
        tensors.push(doubles("", UNITS, vec![series.len()], units));
    }
    if let Some(steps) = card.path_steps {
        let mut paths = Vec::with_capacity(series.len() * steps * 8);
        for value in series.iter().flat_map(|named| &named.path) {
            paths.extend_from_slice(&value.to_le_bytes());
        }
        tensors.push(doubles("", PATHS, vec![series.len(), steps], paths));
        return write_file(&tensors, words);
    }
    for (position, (method, prefix)) in card.methods().into_iter().enumerate() {
        let mut numbers = MethodNumbers::default();
        for named in series {
            let forecast = named.forecasts.get(position).and_then(Option::as_ref);
            numbers.push(forecast, card.season_steps);
        }
        let count = series.len();
        tensors.push(doubles(
            &prefix,
            LINES,
            vec![count, LINE_NUMBERS],
            numbers.lines,
        ));
        let size = vec![count, card.season_steps];
        tensors.push(doubles(&prefix, SEASONS, size, numbers.seasons));
        if method.has_damping() {
            tensors.push(doubles(&prefix, DAMPINGS, vec![count], numbers.dampings));
        }
        if card.may_curve(method) {
            let size = vec![count, CURVE_NUMBERS];
            tensors.push(doubles(&prefix, CURVES, size, numbers.curves));
        }
    }
    write_file(&tensors, words)
}

fn write_file(tensors: &[EncodedTensor], words: String) -> Result<Vec<u8>> {
    write_encoded(tensors, words)
        .map_err(|error| Fault::internal("a model cannot be written").cause(error))
}

/// Bytes of the forecasts of a method.
#[derive(Default)]
struct MethodNumbers {
    lines: Vec<u8>,
    seasons: Vec<u8>,
    dampings: Vec<u8>,
    curves: Vec<u8>,
}

impl MethodNumbers {
    fn push(&mut self, forecast: Option<&SeriesForecast>, season_steps: usize) {
        let kind = forecast.map_or(NO_FORECAST, season_kind);
        // Numbers of a forecast that is none are not read.
        let missing = SeriesForecast::constant(0.0);
        let forecast = forecast.unwrap_or(&missing);
        for number in [forecast.level, forecast.slope, kind] {
            self.lines.extend_from_slice(&number.to_le_bytes());
        }
        for step in 0..season_steps {
            let index = forecast.season.get(step).copied().unwrap_or(0.0);
            self.seasons.extend_from_slice(&index.to_le_bytes());
        }
        self.dampings
            .extend_from_slice(&forecast.damping.to_le_bytes());
        for number in curve_numbers(forecast) {
            self.curves.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// A tensor of doubles.
fn doubles(prefix: &str, name: &str, size: Vec<usize>, bytes: Vec<u8>) -> EncodedTensor {
    EncodedTensor {
        name: format!("{prefix}{name}"),
        data_type: Dtype::F64,
        size,
        bytes,
    }
}

fn season_kind(forecast: &SeriesForecast) -> f64 {
    if forecast.season.is_empty() {
        NO_SEASON
    } else if forecast.multiplicative {
        MULTIPLIED_SEASON
    } else {
        ADDED_SEASON
    }
}

fn curve_numbers(forecast: &SeriesForecast) -> [f64; CURVE_NUMBERS] {
    let Some(curve) = &forecast.curve else {
        return [0.0; CURVE_NUMBERS];
    };
    let line = &curve.line;
    [curve.alpha, curve.share, line.count, line.mean, line.slope]
}

/// A curve of its numbers; `None` of a line, which has no smoothing parameter.
fn curve_of(numbers: &[f64]) -> Option<ThetaCurve> {
    let &[alpha, share, count, mean, slope] = numbers else {
        return None;
    };
    (alpha > 0.0).then_some(ThetaCurve {
        alpha,
        share,
        line: GrowingLine { count, mean, slope },
    })
}

fn decode_forecasts(bytes: &[u8], card: &SeriesCard) -> Result<Vec<NamedForecast>> {
    let file =
        SafeTensors::deserialize(bytes).map_err(|error| invalid_model_fault().cause(error))?;
    let names = file
        .tensor(NAMES)
        .map_err(|error| invalid_model_fault().cause(error))?;
    let names: Vec<GroupName> =
        serde_json::from_slice(names.data()).map_err(|error| invalid_model_fault().cause(error))?;
    if names.len() != card.series || card.season_steps == 0 {
        return Err(invalid_model_fault());
    }
    let last_times = eights(&file, LAST_TIMES, Dtype::I64, &[card.series])?;
    let units = if card.intervals.is_some() {
        prefixed(&file, "", UNITS, &[card.series])?
    } else {
        vec![0.0; card.series]
    };
    let methods = card.methods();
    let mut series = Vec::with_capacity(card.series);
    for ((name, last), unit) in names.into_iter().zip(last_times).zip(units) {
        series.push(NamedForecast {
            name,
            last: i64::from_le_bytes(last),
            forecasts: Vec::with_capacity(methods.len()),
            path: Vec::new(),
            unit,
        });
    }
    if let Some(steps) = card.path_steps {
        if steps == 0 {
            return Err(invalid_model_fault());
        }
        let paths = prefixed(&file, "", PATHS, &[card.series, steps])?;
        for (named, path) in series.iter_mut().zip(paths.chunks_exact(steps)) {
            named.path = path.to_vec();
        }
        return Ok(series);
    }
    for (method, prefix) in methods {
        let forecasts = decode_method(&file, card, method, &prefix)?;
        for (named, forecast) in series.iter_mut().zip(forecasts) {
            named.forecasts.push(forecast);
        }
    }
    Ok(series)
}

/// The forecasts of a method for all series.
fn decode_method(
    file: &SafeTensors<'_>,
    card: &SeriesCard,
    method: SeriesMethod,
    prefix: &str,
) -> Result<Vec<Option<SeriesForecast>>> {
    let count = card.series;
    let steps = card.season_steps;
    let lines = prefixed(file, prefix, LINES, &[count, LINE_NUMBERS])?;
    let seasons = prefixed(file, prefix, SEASONS, &[count, steps])?;
    let dampings = if method.has_damping() {
        prefixed(file, prefix, DAMPINGS, &[count])?
    } else {
        vec![1.0; count]
    };
    let curves = if card.may_curve(method) {
        prefixed(file, prefix, CURVES, &[count, CURVE_NUMBERS])?
    } else {
        vec![0.0; count * CURVE_NUMBERS]
    };
    let rows = lines
        .chunks_exact(LINE_NUMBERS)
        .zip(curves.chunks_exact(CURVE_NUMBERS))
        .zip(seasons.chunks_exact(steps));
    let mut forecasts = Vec::with_capacity(count);
    for (damping, ((line, curve), season)) in dampings.into_iter().zip(rows) {
        let kind = line[2];
        if kind == NO_FORECAST {
            forecasts.push(None);
            continue;
        }
        forecasts.push(Some(SeriesForecast {
            level: line[0],
            slope: line[1],
            damping,
            curve: curve_of(curve),
            season: if kind == NO_SEASON {
                Vec::new()
            } else {
                season.to_vec()
            },
            multiplicative: kind == MULTIPLIED_SEASON,
        }));
    }
    Ok(forecasts)
}

/// The doubles of a tensor of a method.
fn prefixed(file: &SafeTensors<'_>, prefix: &str, name: &str, size: &[usize]) -> Result<Vec<f64>> {
    let bytes = eights(file, &format!("{prefix}{name}"), Dtype::F64, size)?;
    Ok(bytes.into_iter().map(f64::from_le_bytes).collect())
}

/// The numbers of eight bytes of a tensor.
fn eights(
    file: &SafeTensors<'_>,
    name: &str,
    data_type: Dtype,
    size: &[usize],
) -> Result<Vec<[u8; 8]>> {
    let tensor = file
        .tensor(name)
        .map_err(|error| invalid_model_fault().cause(error))?;
    if tensor.dtype() != data_type || tensor.shape() != size {
        return Err(invalid_model_fault());
    }
    let mut numbers = Vec::with_capacity(tensor.data().len() / 8);
    for bytes in tensor.data().chunks_exact(8) {
        let mut number = [0; 8];
        number.copy_from_slice(bytes);
        numbers.push(number);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Date32Array, StringArray};

    use super::*;

    fn card() -> SeriesCard {
        SeriesCard {
            kind: SeriesModelKind::Ets,
            variant: ThetaVariant::Standard,
            ensemble: None,
            path_steps: None,
            intervals: None,
            by: vec!["item".to_owned()],
            time: "date".to_owned(),
            every: "1d".to_owned(),
            tick: Some(86_400_000_000_000),
            season_steps: 2,
            series: 2,
        }
    }

    fn series() -> Vec<NamedForecast> {
        let seasonal = SeriesForecast {
            level: 10.0,
            slope: 1.0,
            damping: 0.5,
            curve: None,
            season: vec![2.0, 0.5],
            multiplicative: true,
        };
        vec![
            NamedForecast {
                name: vec![Some("a".to_owned())],
                last: 100,
                forecasts: vec![Some(seasonal)],
                path: Vec::new(),
                unit: 0.0,
            },
            NamedForecast {
                name: vec![None],
                last: 90,
                forecasts: vec![Some(SeriesForecast::constant(3.0))],
                path: Vec::new(),
                unit: 0.0,
            },
        ]
    }

    /// The forecast of the first series.
    fn first(series: &mut [NamedForecast]) -> &mut SeriesForecast {
        series[0].forecasts[0].as_mut().unwrap()
    }

    fn encoded(card: &SeriesCard, series: &[NamedForecast]) -> Vec<u8> {
        encode_forecasts(card, series, "{}".to_owned()).unwrap()
    }

    fn read() -> SeriesForecasts {
        let bytes = encoded(&card(), &series());
        SeriesForecasts::read(&bytes, &card()).unwrap()
    }

    fn predict(items: Vec<Option<&str>>, dates: Vec<i32>) -> Result<Vec<f32>> {
        let columns: [ArrayRef; 2] = [
            Arc::new(StringArray::from(items)),
            Arc::new(Date32Array::from(dates)),
        ];
        Ok(read().predict(&columns)?.point.values().to_vec())
    }

    #[test]
    fn a_file_holds_all_forecasts() {
        assert_eq!(read().series, series());
        let bytes = encoded(&card(), &series());
        for (count, steps) in [(3, 2), (2, 3), (2, 0)] {
            let wrong = SeriesCard {
                series: count,
                season_steps: steps,
                ..card()
            };
            assert!(SeriesForecasts::read(&bytes, &wrong).is_err());
        }
    }

    #[test]
    fn lines_need_no_damping() {
        let mut lines = series();
        first(&mut lines).damping = 1.0;
        let theta = SeriesCard {
            kind: SeriesModelKind::Theta,
            ..card()
        };
        assert!(theta.is_standard_theta());
        assert!(!card().is_standard_theta());
        let bytes = encoded(&theta, &lines);
        assert_eq!(SeriesForecasts::read(&bytes, &theta).unwrap().series, lines);
        assert!(SeriesForecasts::read(&bytes, &card()).is_err());
    }

    #[test]
    fn a_file_holds_curves() {
        let dynamic = SeriesCard {
            kind: SeriesModelKind::Theta,
            variant: ThetaVariant::Dynamic,
            ..card()
        };
        let mut curves = series();
        first(&mut curves).damping = 1.0;
        first(&mut curves).curve = Some(ThetaCurve {
            alpha: 0.5,
            share: 0.25,
            line: GrowingLine {
                count: 7.0,
                mean: 3.0,
                slope: -1.0,
            },
        });
        let bytes = encoded(&dynamic, &curves);
        let read = SeriesForecasts::read(&bytes, &dynamic).unwrap();
        assert_eq!(read.series, curves);
        let standard = SeriesCard {
            kind: SeriesModelKind::Theta,
            ..card()
        };
        let bytes = encoded(&standard, &series());
        assert!(SeriesForecasts::read(&bytes, &dynamic).is_err());
    }

    #[test]
    fn a_file_holds_the_forecasts_of_all_methods() {
        let ensemble = EnsembleCard {
            of: vec![SeriesMethod::SeasonalNaive, SeriesMethod::Ets],
            weights: Some(vec![0.25, 0.75]),
        };
        let card = SeriesCard {
            kind: SeriesModelKind::Ensemble,
            ensemble: Some(ensemble),
            ..card()
        };
        let mut all = series();
        all[0]
            .forecasts
            .insert(0, Some(SeriesForecast::constant(1.0)));
        all[1].forecasts.push(None);
        let bytes = encoded(&card, &all);
        let read = SeriesForecasts::read(&bytes, &card).unwrap();
        assert_eq!(read.series, all);
        let columns: [ArrayRef; 2] = [
            Arc::new(StringArray::from(vec![Some("a"), None])),
            Arc::new(Date32Array::from(vec![101, 91])),
        ];
        // 1 and 21; and 3 alone.
        let predicted = read.predict(&columns).unwrap();
        assert_eq!(predicted.point.values().to_vec(), [16.0, 3.0]);
    }

    #[test]
    fn intervals_lie_around_forecasts() {
        let intervals = SeriesIntervalCard {
            quantiles: vec![0.1, 0.9],
            widths: vec![vec![0.5, 1.0]],
        };
        let card = SeriesCard {
            intervals: Some(intervals),
            ..card()
        };
        let mut all = series();
        all[0].unit = 4.0;
        all[1].unit = 2.0;
        let bytes = encoded(&card, &all);
        let read = SeriesForecasts::read(&bytes, &card).unwrap();
        assert_eq!(read.series, all);
        let columns: [ArrayRef; 2] = [
            Arc::new(StringArray::from(vec![Some("a"), None])),
            Arc::new(Date32Array::from(vec![101, 92])),
        ];
        let predicted = read.predict(&columns).unwrap();
        assert_eq!(predicted.point.values().to_vec(), [21.0, 3.0]);
        assert_eq!(predicted.quantiles[0].values().to_vec(), [19.0, 1.0]);
        assert_eq!(predicted.quantiles[1].values().to_vec(), [23.0, 5.0]);
    }

    #[test]
    fn a_file_holds_reconciled_forecasts() {
        let card = SeriesCard {
            path_steps: Some(2),
            ..card()
        };
        let mut all = series();
        for (named, path) in all.iter_mut().zip([[1.0, 2.0], [3.0, 4.0]]) {
            named.forecasts.clear();
            named.path = path.to_vec();
        }
        let bytes = encoded(&card, &all);
        let read = SeriesForecasts::read(&bytes, &card).unwrap();
        assert_eq!(read.series, all);
        let predict = |date| {
            let columns: [ArrayRef; 2] = [
                Arc::new(StringArray::from(vec![Some("a")])),
                Arc::new(Date32Array::from(vec![date])),
            ];
            read.predict(&columns)
        };
        assert_eq!(predict(102).unwrap().point.values().to_vec(), [2.0]);
        assert_eq!(predict(103).unwrap_err().code(), codes::BAD_ROW);
    }

    #[test]
    fn rows_of_other_series_have_no_model() {
        let columns: [ArrayRef; 2] = [
            Arc::new(StringArray::from(vec![Some("a"), Some("b"), None])),
            Arc::new(Date32Array::from(vec![101, 101, 91])),
        ];
        let has_model = read().rows_of_series(&columns).unwrap();
        assert_eq!(has_model, BooleanArray::from(vec![true, false, true]));
    }

    #[test]
    fn steps_count_from_the_last_time_of_each_series() {
        let items = vec![Some("a"), Some("a"), Some("a"), None];
        let predicted = predict(items, vec![101, 102, 103, 93]).unwrap();
        assert_eq!(predicted, [21.0, 5.375, 21.75, 3.0]);
        assert_eq!(
            predict(vec![Some("b")], vec![101]).unwrap_err().code(),
            codes::BAD_ROW
        );
        assert_eq!(
            predict(vec![Some("a")], vec![100]).unwrap_err().code(),
            codes::BAD_ROW
        );
    }
}
