//! Statistics of whole series, which need their values in order of time.

mod box_cox;
mod seasonal_strength;
mod unit_root;

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array};
use arrow::datatypes::DataType;
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, MemoryRequest, Result, ScratchSpace, StateDecoder,
    StateEncoder, logical_type, ticks,
};
use serde_json::{Value, json};

pub(crate) use self::box_cox::golden_section_minimum;
use crate::group_keys::{KeyColumn, KeyTable};
use crate::numeric_column::NumericColumn;
use crate::spill_map::SpillMap;
use crate::spill_runs::{KeyOrder, SpillValue, check_key};

/// A statistic of the values of a series in order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesStatistic {
    /// The number of differences that make it stationary, this many at most. `value1` is the number.
    Differences {
        /// Most differences.
        most: u8,
    },
    /// 1 in `value1` if it has a strong season of so many rows, else 0.
    SeasonalDifference {
        /// Rows of a season.
        season: u32,
    },
    /// The most likely exponent of Box and Cox in `value1`.
    BoxCoxLikelihood,
    /// Guerrero's exponent of Box and Cox for seasons of so many rows in `value1`.
    BoxCoxGuerrero {
        /// Rows of a season.
        season: u32,
    },
    /// The median in `value1`, and the distance of the quartiles in `value2` (linear interpolation).
    MedianRange,
}

/// A statistic per series. The input columns are the value, the time, and the keys of the series. Rows without a time, and
/// values that are null or not finite, are ignored. Of rows with equal times, the greatest value counts.
///
/// The finding has one row per series, sorted by key, nulls first: `key1`, `key2`, ..., `value1`, `value2`. The state has
/// an entry for each row, some 60 bytes, spilled beyond the budget; one series has to fit in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesFit {
    /// Types of the key columns; memory layouts do not matter.
    pub keys: Vec<DataType>,
    /// Type of the time column: dates, timestamps or integers.
    pub time: DataType,
    /// The statistic.
    pub statistic: SeriesStatistic,
}

/// A value of a series.
#[derive(Debug, Clone, Copy)]
struct SeriesPoint(f64);

impl Default for SeriesPoint {
    fn default() -> Self {
        SeriesPoint(f64::NEG_INFINITY)
    }
}

impl SpillValue for SeriesPoint {
    fn merge_value(&mut self, other: &Self) {
        if other.0.total_cmp(&self.0).is_gt() {
            *self = *other;
        }
    }

    fn write(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.number(self.0)
    }

    fn read(input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(SeriesPoint(input.number()?))
    }
}

/// State of [`SeriesFit`]: the values by series and time, spilled beyond the budget.
pub struct SeriesFitState(SpillMap<SeriesPoint>);

/// Bytes of a time at the end of a key.
const TIME_BYTES: usize = size_of::<u64>();

/// Bytes of a row of the finding without its keys.
const ROW_BYTES: usize = 16;

impl Analyzer for SeriesFit {
    type State = SeriesFitState;

    fn kind(&self) -> &'static str {
        "series_fit"
    }

    fn config(&self) -> Value {
        let keys: Vec<String> = self
            .keys
            .iter()
            .map(|key| logical_type(key).to_string())
            .collect();
        let statistic = match self.statistic {
            SeriesStatistic::Differences { most } => json!({ "differences": most }),
            SeriesStatistic::SeasonalDifference { season } => {
                json!({ "seasonal_difference": season })
            }
            SeriesStatistic::BoxCoxLikelihood => json!("box_cox_likelihood"),
            SeriesStatistic::BoxCoxGuerrero { season } => json!({ "box_cox_guerrero": season }),
            SeriesStatistic::MedianRange => json!("median_range"),
        };
        let time = logical_type(&self.time).to_string();
        json!({ "keys": keys, "time": time, "statistic": statistic })
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<SeriesFitState> {
        Ok(SeriesFitState(SpillMap::new(scratch, KeyOrder::Bytes)))
    }

    fn update(&self, state: &mut SeriesFitState, input: &AnalyzerInput<'_>) -> Result<()> {
        let [values, times, keys @ ..] = input.columns else {
            return Err(Fault::internal("a series without values and times"));
        };
        if keys.len() != self.keys.len() {
            return Err(Fault::internal(
                "statistics of series received the wrong number of columns",
            ));
        }
        let mut columns = Vec::with_capacity(keys.len());
        for (key, logical) in keys.iter().zip(&self.keys) {
            columns.push(KeyColumn::of(key, &logical_type(logical))?);
        }
        let values = NumericColumn::doubles(values)?;
        let times = ticks(times)?;
        let map = &mut state.0;
        let mut key = Vec::new();
        for (row, &value) in values.values().iter().enumerate() {
            if values.is_null(row) || times.is_null(row) || !value.is_finite() {
                continue;
            }
            key.clear();
            for column in &columns {
                column.write(row, &mut key);
            }
            // A flipped sign bit sorts times before the epoch first.
            let sortable = (times.value(row) as u64) ^ (1 << 63);
            key.extend_from_slice(&sortable.to_be_bytes());
            check_key(key.len())?;
            map.add(&key, &SeriesPoint(value))?;
        }
        map.spill_if_large()
    }

    fn merge(&self, state: &mut SeriesFitState, other: SeriesFitState) -> Result<()> {
        state.0.merge(other.0)
    }

    fn encode(&self, state: &mut SeriesFitState, out: &mut dyn Write) -> Result<()> {
        state.0.encode(out)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<SeriesFitState> {
        let map = SpillMap::decode(input, scratch, KeyOrder::Bytes)?;
        Ok(SeriesFitState(map))
    }

    fn finish(&self, mut state: SeriesFitState) -> Result<Finding> {
        let types: Vec<DataType> = self.keys.iter().map(logical_type).collect();
        let scratch = state.0.scratch();
        let mut table = FittedSeries {
            statistic: self.statistic,
            keys: KeyTable::new(&types),
            numbers: [Vec::new(), Vec::new()],
        };
        let mut series: Option<Vec<u8>> = None;
        let mut values: Vec<f64> = Vec::new();
        state.0.for_each(|key, point| {
            let series_key = &key[..key.len().saturating_sub(TIME_BYTES)];
            if series.as_deref() != Some(series_key) {
                if let Some(ended) = series.take() {
                    table.push(&ended, &values)?;
                }
                let bytes = series_key.len() + ROW_BYTES;
                scratch.admit(MemoryRequest {
                    now: bytes,
                    later: bytes,
                })?;
                series = Some(series_key.to_vec());
                values.clear();
            }
            values.push(point.0);
            Ok(())
        })?;
        if let Some(ended) = series {
            table.push(&ended, &values)?;
        }
        drop(state);
        table.finish()
    }

    fn size_bytes(&self, state: &SeriesFitState) -> usize {
        state.0.size_bytes()
    }
}

/// Rows of the finding.
struct FittedSeries {
    statistic: SeriesStatistic,
    keys: KeyTable,
    numbers: [Vec<f64>; 2],
}

impl FittedSeries {
    fn push(&mut self, key: &[u8], values: &[f64]) -> Result<()> {
        self.keys.push(key)?;
        let fitted = self.statistic.of(values);
        for (column, number) in self.numbers.iter_mut().zip(fitted) {
            column.push(number);
        }
        Ok(())
    }

    fn finish(self) -> Result<Finding> {
        let mut columns: Vec<(String, ArrayRef)> = Vec::new();
        for (index, key) in self.keys.finish()?.into_iter().enumerate() {
            columns.push((format!("key{}", index + 1), key));
        }
        for (index, numbers) in self.numbers.into_iter().enumerate() {
            let numbers: ArrayRef = Arc::new(Float64Array::from(numbers));
            columns.push((format!("value{}", index + 1), numbers));
        }
        let named = columns
            .iter()
            .map(|(name, column)| (name.as_str(), column.clone()));
        Finding::of(named)
    }
}

impl SeriesStatistic {
    fn of(self, values: &[f64]) -> [f64; 2] {
        match self {
            SeriesStatistic::Differences { most } => {
                [f64::from(unit_root::differences(values, most)), 0.0]
            }
            SeriesStatistic::SeasonalDifference { season } => {
                let needed = seasonal_strength::needs_seasonal_difference(values, season as usize);
                [f64::from(u8::from(needed)), 0.0]
            }
            SeriesStatistic::BoxCoxLikelihood => [box_cox::likelihood_exponent(values), 0.0],
            SeriesStatistic::BoxCoxGuerrero { season } => {
                [box_cox::guerrero_exponent(values, season as usize), 0.0]
            }
            SeriesStatistic::MedianRange => median_and_range(values),
        }
    }
}

/// The median and the distance of the quartiles, by linear interpolation.
fn median_and_range(values: &[f64]) -> [f64; 2] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let quantile = |share: f64| {
        let rank = share * sorted.len().saturating_sub(1) as f64;
        let low = sorted.get(rank.floor() as usize).copied().unwrap_or(0.0);
        let high = sorted.get(rank.ceil() as usize).copied().unwrap_or(low);
        low + (rank - rank.floor()) * (high - low)
    };
    [quantile(0.5), quantile(0.75) - quantile(0.25)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Airline passengers in thousands, by month, 1949 to 1960 (Box and Jenkins, 1976, series G).
    pub(super) const AIR_PASSENGERS: [f64; 144] = [
        112., 118., 132., 129., 121., 135., 148., 148., 136., 119., 104., 118., 115., 126., 141.,
        135., 125., 149., 170., 170., 158., 133., 114., 140., 145., 150., 178., 163., 172., 178.,
        199., 199., 184., 162., 146., 166., 171., 180., 193., 181., 183., 218., 230., 242., 209.,
        191., 172., 194., 196., 196., 236., 235., 229., 243., 264., 272., 237., 211., 180., 201.,
        204., 188., 235., 227., 234., 264., 302., 293., 259., 229., 203., 229., 242., 233., 267.,
        269., 270., 315., 364., 347., 312., 274., 237., 278., 284., 277., 317., 313., 318., 374.,
        413., 405., 355., 306., 271., 306., 315., 301., 356., 348., 355., 422., 465., 467., 404.,
        347., 305., 336., 340., 318., 362., 348., 363., 435., 491., 505., 404., 359., 310., 337.,
        360., 342., 406., 396., 420., 472., 548., 559., 463., 407., 362., 405., 417., 391., 419.,
        461., 472., 535., 622., 606., 508., 461., 390., 432.,
    ];

    /// Values of coreforecast 0.0.20 for its robust scaler.
    #[test]
    fn medians_and_ranges_are_those_of_coreforecast() {
        let [median, range] = median_and_range(&[2.0, 4.0, 4.0, 10.0, 20.0]);
        let scaled = [2.0, 10.0, 20.0].map(|x| (x - median) / range);
        let expected = [-1.0 / 3.0, 1.0, 8.0 / 3.0];
        for (scaled, expected) in scaled.iter().zip(expected) {
            assert!((scaled - expected).abs() < 1e-12);
        }
    }
}
