//! Some series of a backtest, for people to look at.
//!
//! The forecasts of the last fold alone determine the choice: series with the highest predictions, and series by the hash
//! of their keys. Neither depends on an order of rows, and memory is bounded by their number.

use std::collections::BTreeSet;
use std::path::Path;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use forebay_model::Result;
use forebay_plan::{sql_literal, sql_name};
use xxhash_rust::xxh3::xxh3_64;

use super::evaluate::{
    Evaluation, ScoredTables, number_at, number_sql, numbers, score_column, text_at,
};
use crate::predict::{SeriesKey, descending};

/// Series with the highest predictions.
const HIGHEST: usize = 4;

/// Series of a sample at most.
const SERIES_MAX: usize = 8;

/// Keys of a series, as texts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SampledKeys {
    values: Vec<Option<String>>,
}

impl SampledKeys {
    /// The values with the names of their columns.
    pub fn named(&self, names: &[String]) -> Vec<SeriesKey> {
        let mut keys = Vec::with_capacity(names.len());
        for (name, value) in names.iter().zip(&self.values) {
            keys.push(SeriesKey {
                name: name.clone(),
                value: value.clone(),
            });
        }
        keys
    }

    /// The condition that a forecast `f` is of this series, in SQL.
    pub fn condition(&self, names: &[String]) -> String {
        let mut conditions = Vec::with_capacity(names.len());
        for (name, value) in names.iter().zip(&self.values) {
            let text = key_sql(name);
            conditions.push(match value {
                Some(value) => format!("{text} = {}", sql_literal(value, &DataType::Utf8)),
                None => format!("{text} IS NULL"),
            });
        }
        if conditions.is_empty() {
            return "true".to_owned();
        }
        conditions.join(" AND ")
    }

    /// A number that is the same in every run.
    fn hash(&self) -> u64 {
        let mut bytes = Vec::new();
        for value in &self.values {
            let text = value.as_deref().unwrap_or_default();
            bytes.push(u8::from(value.is_some()));
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        xxh3_64(&bytes)
    }
}

/// A key of a forecast `f` as text, in SQL.
fn key_sql(name: &str) -> String {
    format!("CAST(f.{} AS VARCHAR)", sql_name(name))
}

/// The series with the smallest ranks.
struct SmallestRanks {
    most: usize,
    series: BTreeSet<(u64, SampledKeys)>,
}

impl SmallestRanks {
    fn new(most: usize) -> SmallestRanks {
        SmallestRanks {
            most,
            series: BTreeSet::new(),
        }
    }

    fn offer(&mut self, rank: u64, keys: SampledKeys) {
        self.series.insert((rank, keys));
        if self.series.len() > self.most {
            self.series.pop_last();
        }
    }
}

/// A choice among series.
struct SeriesChoice {
    highest: SmallestRanks,
    by_hash: SmallestRanks,
}

impl SeriesChoice {
    fn new() -> SeriesChoice {
        SeriesChoice {
            highest: SmallestRanks::new(HIGHEST),
            by_hash: SmallestRanks::new(SERIES_MAX),
        }
    }

    /// Offers a series whose highest prediction is a number; `None` of a series without a prediction.
    fn offer(&mut self, keys: SampledKeys, highest: Option<f64>) {
        let Some(highest) = highest else {
            return;
        };
        self.by_hash.offer(keys.hash(), keys.clone());
        self.highest.offer(descending(highest), keys);
    }

    /// Offers the series of a batch with the keys as texts and the highest prediction.
    fn offer_rows(&mut self, batch: &RecordBatch, keys: usize) -> Result<()> {
        let highest = numbers(batch, "highest")?;
        let mut texts: Vec<ArrayRef> = Vec::with_capacity(keys);
        for number in 0..keys {
            let column = score_column(batch, &key_column(number))?;
            texts.push(cast(column, &DataType::Utf8)?);
        }
        for row in 0..batch.num_rows() {
            let values = texts.iter().map(|texts| text_at(texts, row)).collect();
            self.offer(SampledKeys { values }, number_at(&highest, row));
        }
        Ok(())
    }

    /// The highest ones first.
    fn into_sample(self) -> Vec<SampledKeys> {
        let mut sample = Vec::with_capacity(SERIES_MAX);
        for (_, keys) in self.highest.series {
            sample.push(keys);
        }
        for (_, keys) in self.by_hash.series {
            if sample.len() < SERIES_MAX && !sample.contains(&keys) {
                sample.push(keys);
            }
        }
        sample
    }
}

impl Evaluation<'_> {
    /// Some series of the last of so many folds; `dir` holds intermediate files.
    pub fn sample_series(&self, dir: &Path, folds: usize) -> Result<Vec<SampledKeys>> {
        let keys = self.future.keys.len();
        if keys == 0 {
            return Ok(vec![SampledKeys { values: Vec::new() }]);
        }
        let fold = folds.saturating_sub(1);
        let mut choice = SeriesChoice::new();
        self.read_rows(
            dir,
            &|tables| self.sample_query(tables, fold),
            &mut |batch| choice.offer_rows(batch, keys),
        )?;
        Ok(choice.into_sample())
    }

    /// SQL query with one row per series of a fold: its keys as texts, and its highest prediction.
    fn sample_query(&self, tables: &ScoredTables, fold: usize) -> String {
        let mut texts = String::new();
        let mut columns = Vec::new();
        for (number, key) in self.future.keys.iter().enumerate() {
            let column = key_column(number);
            texts += &format!("{} AS {column}, ", key_sql(key));
            columns.push(column);
        }
        let columns = columns.join(", ");
        format!(
            "SELECT {columns}, max(predicted) AS highest \
             FROM (SELECT {texts}{predicted} AS predicted FROM {forecasts} f \
             WHERE CAST(f.fold AS BIGINT) = {fold} AND CAST(f.forecaster AS BIGINT) = 0) \
             AS predictions GROUP BY {columns}",
            predicted = number_sql("f", self.prediction),
            forecasts = sql_name(&tables.forecasts),
        )
    }
}

/// Name of the column of a key as text.
fn key_column(number: usize) -> String {
    format!("key_{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(name: &str) -> SampledKeys {
        SampledKeys {
            values: vec![Some(name.to_owned())],
        }
    }

    #[test]
    fn a_choice_does_not_depend_on_the_order_of_series() {
        let mut numbers: Vec<u32> = (0..100).collect();
        let mut choices = Vec::new();
        for _ in 0..2 {
            let mut choice = SeriesChoice::new();
            for number in &numbers {
                choice.offer(keys(&format!("s{number}")), Some(f64::from(*number)));
            }
            choice.offer(keys("without"), None);
            choices.push(choice.into_sample());
            numbers.reverse();
        }
        assert_eq!(choices[0], choices[1]);
        assert_eq!(choices[0].len(), SERIES_MAX);
        let highest = ["s99", "s98", "s97", "s96"].map(keys);
        assert_eq!(choices[0][..HIGHEST], highest);
        let distinct_keys: BTreeSet<&SampledKeys> = choices[0].iter().collect();
        assert_eq!(distinct_keys.len(), SERIES_MAX);
        assert!(!distinct_keys.contains(&keys("without")));
    }

    #[test]
    fn few_series_are_all_chosen() {
        let mut choice = SeriesChoice::new();
        for name in ["a", "b", "c", "d", "e"] {
            choice.offer(keys(name), Some(1.0));
        }
        let mut sample = choice.into_sample();
        assert_eq!(sample[..HIGHEST], ["a", "b", "c", "d"].map(keys));
        sample.sort();
        assert_eq!(sample, ["a", "b", "c", "d", "e"].map(keys));
    }

    #[test]
    fn conditions_compare_keys_as_texts() {
        let series = SampledKeys {
            values: vec![Some("O'Hara".to_owned()), None],
        };
        let names = ["shop".to_owned(), "the item".to_owned()];
        assert_eq!(
            series.condition(&names),
            "CAST(f.\"shop\" AS VARCHAR) = 'O''Hara' AND CAST(f.\"the item\" AS VARCHAR) IS NULL"
        );
        assert_eq!(SampledKeys { values: Vec::new() }.condition(&[]), "true");
    }
}
