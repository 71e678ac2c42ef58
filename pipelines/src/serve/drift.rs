//! Drift of the rows of requests from those of the fit: for each column of numbers whose mean the steps have learned.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use forebay_run::ColumnFit;

/// Rows after which a row counts for about a third (1/e) of a new one.
const ROWS: f64 = 10_000.0;

/// Greatest size of a value that counts in a mean: sums of larger ones could leave the range of floats for good.
const VALUE_MAX: f64 = 1e290;

/// Compares the values of requests with those of the fit.
pub(super) struct DriftMonitor {
    fits: Vec<ColumnFit>,
    /// Index of the fit of each column.
    indices: HashMap<String, usize>,
    /// The values of requests, in the order of `fits`.
    recent: Mutex<Vec<RecentValues>>,
}

/// Sums over the rows of requests, of which older ones count less.
#[derive(Debug, Clone, Copy, Default)]
struct RecentValues {
    rows: f64,
    /// Values that are not missing.
    values: f64,
    /// Values that count in the mean.
    summed: f64,
    sum: f64,
}

/// Drift of a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ColumnDrift {
    pub column: String,
    /// Mean of the last rows less that of the fit, in standard deviations of the fit; `None` without a value. Infinite
    /// values do not count. It is infinite where the fit saw one value, and requests have another.
    pub mean: Option<f64>,
    /// Share of the last rows without a value less that of the fit.
    pub missing: f64,
}

impl DriftMonitor {
    /// A monitor that has seen no rows.
    pub fn new(fits: &[ColumnFit]) -> DriftMonitor {
        let columns = fits.iter().map(|fit| fit.column.clone());
        DriftMonitor {
            fits: fits.to_vec(),
            indices: columns.zip(0..).collect(),
            recent: Mutex::new(vec![RecentValues::default(); fits.len()]),
        }
    }

    /// Counts the rows of a request.
    pub fn observe(&self, rows: &RecordBatch) {
        let mut added = Vec::with_capacity(self.fits.len());
        for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
            if let Some(index) = self.indices.get(field.name()) {
                added.push((*index, RecentValues::of(column)));
            }
        }
        if added.is_empty() {
            return;
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, added) in added {
            if let Some(recent) = recent.get_mut(index) {
                recent.add(added);
            }
        }
    }

    /// The drift of the columns that requests had.
    pub fn columns(&self) -> Vec<ColumnDrift> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut columns = Vec::new();
        for (fit, recent) in self.fits.iter().zip(recent.iter()) {
            if recent.rows > 0.0 {
                columns.push(recent.drift(fit));
            }
        }
        columns
    }
}

impl RecentValues {
    /// Values of a column; those above [`VALUE_MAX`] do not count in the mean. No rows where they are no numbers.
    fn of(column: &ArrayRef) -> RecentValues {
        let mut recent = RecentValues::default();
        let Ok(numbers) = cast(column, &DataType::Float64) else {
            return recent;
        };
        recent.rows = numbers.len() as f64;
        for number in numbers.as_primitive::<Float64Type>().iter().flatten() {
            if number.abs() <= VALUE_MAX {
                recent.summed += 1.0;
                recent.sum += number;
            }
            if !number.is_nan() {
                recent.values += 1.0;
            }
        }
        recent
    }

    fn add(&mut self, added: RecentValues) {
        let share = (-added.rows / ROWS).exp();
        self.rows = self.rows * share + added.rows;
        self.values = self.values * share + added.values;
        self.summed = self.summed * share + added.summed;
        self.sum = self.sum * share + added.sum;
    }

    fn drift(&self, fit: &ColumnFit) -> ColumnDrift {
        let mean = (self.summed > 0.0).then(|| {
            let distance = self.sum / self.summed - fit.mean;
            if distance == 0.0 {
                return 0.0;
            }
            distance / fit.deviation
        });
        ColumnDrift {
            column: fit.column.clone(),
            mean,
            missing: 1.0 - self.values / self.rows - fit.missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array};

    use super::*;

    fn fit(deviation: f64) -> ColumnFit {
        ColumnFit {
            column: "price".to_owned(),
            mean: 10.0,
            deviation,
            missing: 0.25,
        }
    }

    fn observe(monitor: &DriftMonitor, prices: Vec<Option<f64>>) {
        let prices = Arc::new(Float64Array::from(prices));
        monitor.observe(&RecordBatch::try_from_iter([("price", prices as _)]).unwrap());
    }

    #[test]
    fn means_and_missing_values_are_compared() {
        let monitor = DriftMonitor::new(&[fit(4.0)]);
        assert!(monitor.columns().is_empty());
        observe(&monitor, vec![Some(12.0), None, Some(16.0), Some(f64::NAN)]);
        let [price]: [ColumnDrift; 1] = monitor.columns().try_into().unwrap();
        assert_eq!(price.mean, Some(1.0));
        assert_eq!(price.missing, 0.25);
    }

    #[test]
    fn infinite_and_enormous_values_do_not_move_the_mean() {
        let monitor = DriftMonitor::new(&[fit(4.0)]);
        observe(&monitor, vec![Some(f64::INFINITY), Some(f64::MIN)]);
        assert_eq!(monitor.columns()[0].mean, None);
        observe(&monitor, vec![Some(f64::MAX), Some(f64::MAX), Some(14.0)]);
        let [price]: [ColumnDrift; 1] = monitor.columns().try_into().unwrap();
        assert_eq!(price.mean, Some(1.0));
        assert_eq!(price.missing, -0.25);
    }

    #[test]
    fn older_rows_count_less() {
        let monitor = DriftMonitor::new(&[fit(4.0)]);
        observe(&monitor, vec![Some(1e9); 1000]);
        for _ in 0..400 {
            observe(&monitor, vec![Some(10.0); 1000]);
        }
        let [price]: [ColumnDrift; 1] = monitor.columns().try_into().unwrap();
        assert!(price.mean.unwrap().abs() < 1e-6, "{price:?}");
        assert_eq!(price.missing, -0.25);
    }

    #[test]
    fn constant_and_absent_columns_have_a_drift_or_none() {
        let monitor = DriftMonitor::new(&[fit(0.0)]);
        let other = Arc::new(Int64Array::from(vec![1]));
        monitor.observe(&RecordBatch::try_from_iter([("other", other as _)]).unwrap());
        assert!(monitor.columns().is_empty());
        observe(&monitor, vec![None]);
        assert_eq!(monitor.columns()[0].mean, None);
        observe(&monitor, vec![Some(11.0)]);
        assert_eq!(monitor.columns()[0].mean, Some(f64::INFINITY));
    }
}
