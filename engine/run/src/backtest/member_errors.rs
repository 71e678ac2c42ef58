//! Errors of the members of an ensemble for the same rows of folds.

use std::path::Path;

use arrow::array::RecordBatch;
use forebay_model::{Fault, Result};
use forebay_plan::sql_name;
use forebay_series::ensemble_weights::ErrorProducts;

use super::evaluate::{
    Evaluation, ScoredTables, number_at, number_sql, numbers, same_series, same_series_and_time,
};

/// Errors of all members on folds, each in units of the scale of its series.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MemberErrors {
    /// Products of the errors of each two members.
    pub products: ErrorProducts,
    /// Rows without a value, or that a member has no forecast of.
    pub incomplete: u64,
    /// Rows of series without a scale: the naive forecast has no error before the first fold.
    pub unscaled: u64,
}

impl MemberErrors {
    /// Errors of no rows.
    fn new(members: usize) -> MemberErrors {
        MemberErrors {
            products: ErrorProducts::new(members),
            incomplete: 0,
            unscaled: 0,
        }
    }

    /// Adds the rows of a batch, in their order.
    fn add_rows(&mut self, batch: &RecordBatch, members: usize) -> Result<()> {
        let came = numbers(batch, "came")?;
        let scales = numbers(batch, "scale")?;
        let mut forecasts = Vec::with_capacity(members);
        for member in 0..members {
            forecasts.push(numbers(batch, &member_column(member))?);
        }
        let mut errors = Vec::with_capacity(members);
        for row in 0..batch.num_rows() {
            let Some(value) = number_at(&came, row) else {
                self.incomplete += 1;
                continue;
            };
            let scale = number_at(&scales, row).filter(|scale| *scale > 0.0);
            let Some(scale) = scale else {
                self.unscaled += 1;
                continue;
            };
            errors.clear();
            for forecasts in &forecasts {
                let forecast = number_at(forecasts, row);
                errors.extend(forecast.map(|forecast| (forecast - value) / scale));
            }
            if errors.len() < members || !errors.iter().all(|error| error.is_finite()) {
                self.incomplete += 1;
                continue;
            }
            self.products.add(&errors);
        }
        Ok(())
    }
}

impl Evaluation<'_> {
    /// Errors of `members` forecasters; `dir` holds intermediate files. Rows are added in an order of their values, so
    /// that sums have the same bits for any number of threads.
    pub fn member_errors(&self, dir: &Path, members: usize) -> Result<MemberErrors> {
        if members == 0 {
            return Err(Fault::internal("an ensemble without members"));
        }
        let mut errors = MemberErrors::new(members);
        self.read_rows(
            dir,
            &|tables| self.members_query(tables, members),
            &mut |batch| errors.add_rows(batch, members),
        )?;
        Ok(errors)
    }

    /// SQL query with one row per fold, series and time: the value, the scale, and the forecast of each member.
    fn members_query(&self, tables: &ScoredTables, members: usize) -> String {
        let mut keys = String::new();
        for key in self.future.keys.iter().chain([&self.future.time]) {
            keys += &format!(", {}", sql_name(key));
        }
        let predicted = number_sql("p", self.prediction);
        let mut columns = String::new();
        let mut forecasts = String::new();
        for member in 0..members {
            let column = member_column(member);
            columns += &format!(", {column}");
            forecasts += &format!(
                ", max(CASE WHEN CAST(p.forecaster AS BIGINT) = {member} THEN {predicted} END) \
                 AS {column}"
            );
        }
        format!(
            "SELECT came, scale{columns} FROM (SELECT {came} AS came, s.scale AS scale{columns} \
             FROM (SELECT p.fold{keys}{forecasts} FROM {} p GROUP BY p.fold{keys}) f \
             LEFT JOIN {} v ON {} LEFT JOIN {} s ON {}) AS joined \
             ORDER BY came, scale{columns}",
            sql_name(&tables.forecasts),
            sql_name(&tables.values),
            same_series_and_time(&self.future.keys, &self.future.time),
            sql_name(&tables.scales),
            same_series(&self.future.keys),
            came = number_sql("v", self.label),
        )
    }
}

/// Name of the column of the forecasts of a member.
fn member_column(member: usize) -> String {
    format!("predicted_{member}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array};

    use super::*;

    fn column(values: [Option<f64>; 5]) -> ArrayRef {
        Arc::new(Float64Array::from(values.to_vec()))
    }

    #[test]
    fn rows_that_lack_a_number_do_not_count() {
        let batch = RecordBatch::try_from_iter([
            (
                "came",
                column([Some(4.0), None, Some(4.0), Some(8.0), Some(8.0)]),
            ),
            (
                "scale",
                column([Some(2.0), Some(2.0), Some(0.0), None, Some(4.0)]),
            ),
            ("predicted_0", column([Some(6.0); 5])),
            (
                "predicted_1",
                column([Some(2.0), Some(2.0), Some(2.0), Some(2.0), None]),
            ),
        ])
        .unwrap();
        let mut errors = MemberErrors::new(2);
        errors.add_rows(&batch, 2).unwrap();
        let mut products = ErrorProducts::new(2);
        products.add(&[1.0, -1.0]);
        let expected = MemberErrors {
            products,
            incomplete: 2,
            unscaled: 2,
        };
        assert_eq!(errors, expected);
    }
}
