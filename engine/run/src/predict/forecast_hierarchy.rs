//! A hierarchy of forecasts: those of upper levels, and those of the lowest one whose sums they are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use arrow::datatypes::Field;
use forebay_model::{Fault, Result, codes};
use forebay_series::reconcile::{Hierarchy, ReconcileMethod, Reconciler};

use super::series_rows::SeriesName;
use super::values::PredictionBounds;
use crate::leak_check::time_text;

/// Forecasts of one level.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LevelForecasts {
    /// The `predict` sink.
    pub sink: String,
    /// The columns that tell its series apart.
    pub keys: Vec<String>,
    /// The column of their times.
    pub time: Field,
    pub names: Vec<SeriesName>,
    /// Ticks of all times, in ascending order.
    pub times: Vec<i64>,
    /// Forecasts of each time, in the order of the series.
    pub values: Vec<Vec<f64>>,
}

/// A forecast on a fold, with the value that came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoldRow {
    /// The number of the fold.
    pub fold: i64,
    pub series: SeriesName,
    /// Ticks of the time column.
    pub time: i64,
    pub predicted: Option<f64>,
    /// The value; none of forecasts of upper levels, whose values are sums.
    pub came: Option<f64>,
}

/// Levels of a hierarchy. Upper levels come first.
pub(super) struct ForecastHierarchy<'a> {
    uppers: &'a [LevelForecasts],
    bottom: &'a LevelForecasts,
    /// The series of all upper levels, one level after the other.
    hierarchy: Hierarchy,
}

/// Errors on folds, of which all series have as many.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FoldErrors {
    /// Errors of each series. Series of upper levels come first.
    pub by_series: Vec<Vec<f64>>,
    /// Number of the times of folds at which a series has no error. None of the others counts there.
    pub incomplete_times: usize,
    /// A series without an error at the first of them.
    pub incomplete_series: Option<String>,
}

/// Reconciled forecasts of each time, in the order of the series of a level.
pub(super) struct ReconciledLevel {
    pub values: Vec<Vec<f64>>,
    /// True for values that were moved to a bound.
    pub clipped: Vec<Vec<bool>>,
}

impl<'a> ForecastHierarchy<'a> {
    /// Finds the series of the lowest level that each upper series is the sum of.
    pub fn new(
        uppers: &'a [LevelForecasts],
        bottom: &'a LevelForecasts,
    ) -> Result<ForecastHierarchy<'a>> {
        let mut children = Vec::new();
        for level in uppers {
            if level.times != bottom.times {
                let message = format!(
                    "`{}` and `{}` forecast other times, so that they do not add up",
                    bottom.sink, level.sink
                );
                return Err(Fault::new(codes::BAD_ROW, message)
                    .hint("let their data end at the same time: filter rows that come early"));
            }
            children.extend(children_of(level, bottom)?);
        }
        Ok(ForecastHierarchy {
            uppers,
            bottom,
            hierarchy: Hierarchy {
                children,
                bottoms: bottom.names.len(),
            },
        })
    }

    /// Number of the series of upper levels.
    pub fn upper_series(&self) -> usize {
        self.hierarchy.children.len()
    }

    /// Errors of all series on folds. The value of an upper series is the sum of all values of its fold: those of series
    /// that have ended since are part of it, as they are of its forecast. `rows` are those of each upper level, then those
    /// of the lowest one. Fails where a reconciliation with these errors would take more than half of the memory.
    pub fn fold_errors(&self, rows: &[Vec<FoldRow>], memory_bytes: u64) -> Result<FoldErrors> {
        self.check_memory(fold_time_count(rows), memory_bytes)?;
        let mut errors = FoldErrors::default();
        let Some((bottom_rows, upper_rows)) = rows.split_last() else {
            return Ok(errors);
        };
        let bottom = FoldLevel::new(self.bottom, bottom_rows)?;
        let mut uppers = Vec::with_capacity(self.uppers.len());
        for (level, rows) in self.uppers.iter().zip(upper_rows) {
            uppers.push(FoldLevel::new(level, rows)?);
        }
        let parents = self.parents(bottom_rows, &uppers)?;
        let series = self.hierarchy.children.len() + self.hierarchy.bottoms;
        errors.by_series.resize(series, Vec::new());
        for time in bottom.rows.keys() {
            match self.errors_at(*time, &bottom, &uppers, &parents) {
                Ok(errors_at_time) => {
                    for (errors_of_series, error) in errors.by_series.iter_mut().zip(errors_at_time)
                    {
                        errors_of_series.push(error);
                    }
                }
                Err(series) => {
                    errors.incomplete_times += 1;
                    errors.incomplete_series.get_or_insert(series);
                }
            }
        }
        Ok(errors)
    }

    /// Fails where a reconciliation by so many errors of each series would take more than half of the memory.
    fn check_memory(&self, errors: usize, memory_bytes: u64) -> Result<()> {
        let uppers = self.hierarchy.children.len() as u64;
        let series = uppers + self.hierarchy.bottoms as u64;
        // Errors are copied: centred, standardised, and less those of the lowest level.
        let numbers = uppers * uppers / 2 + series * (4 * errors as u64 + 4);
        let limit = memory_bytes / 2;
        if numbers * 8 <= limit {
            return Ok(());
        }
        let message = format!(
            "the reconciliation of {series} series would hold {} MiB, and may hold {}",
            (numbers * 8).div_ceil(1 << 20),
            limit >> 20
        );
        Err(Fault::new(codes::MEMORY, message)
            .hint("leave levels out of `reconcile.with`, or raise --memory"))
    }

    /// Numbers of the upper series that each series of fold rows is part of. Upper series that have ended have none.
    fn parents<'r>(
        &self,
        bottom_rows: &'r [FoldRow],
        uppers: &[FoldLevel<'_>],
    ) -> Result<HashMap<&'r SeriesName, Vec<usize>>> {
        let mut parents: HashMap<&SeriesName, Vec<usize>> = HashMap::new();
        for row in bottom_rows {
            parents.entry(&row.series).or_default();
        }
        let mut first = 0;
        for upper in uppers {
            let positions = key_positions(upper.level, self.bottom)?;
            for (name, numbers) in &mut parents {
                let number = upper.numbers.get(&parent_name(&positions, name));
                numbers.extend(number.map(|number| first + number));
            }
            first += upper.level.names.len();
        }
        Ok(parents)
    }

    /// Errors of all series at a time of a fold, or a series that has none.
    fn errors_at(
        &self,
        time: (i64, i64),
        bottom: &FoldLevel<'_>,
        uppers: &[FoldLevel<'_>],
        parents: &HashMap<&SeriesName, Vec<usize>>,
    ) -> Result<Vec<f64>, String> {
        let mut sums: Vec<f64> = vec![0.0; self.hierarchy.children.len()];
        let mut bottom_errors: Vec<Option<f64>> = vec![None; self.hierarchy.bottoms];
        for row in bottom.rows_at(time) {
            let Some(value) = row.came else {
                continue;
            };
            for parent in parents.get(&row.series).into_iter().flatten() {
                sums[*parent] += value;
            }
            if let Some(number) = bottom.numbers.get(&row.series) {
                bottom_errors[*number] = row.predicted.map(|predicted| value - predicted);
            }
        }
        let mut errors = Vec::with_capacity(sums.len() + bottom_errors.len());
        let mut sums = sums.iter();
        for upper in uppers {
            let mut forecasts = vec![None; upper.level.names.len()];
            for row in upper.rows_at(time) {
                if let Some(number) = upper.numbers.get(&row.series) {
                    forecasts[*number] = row.predicted;
                }
            }
            for (number, (predicted, sum)) in forecasts.iter().zip(sums.by_ref()).enumerate() {
                let predicted = predicted.ok_or_else(|| upper.level.series_text(number))?;
                errors.push(sum - predicted);
            }
        }
        for (number, error) in bottom_errors.iter().enumerate() {
            errors.push(error.ok_or_else(|| bottom.level.series_text(number))?);
        }
        Ok(errors)
    }

    /// Reconciles the forecasts of all times: those of each upper level, then those of the lowest one. Bounds are of the
    /// lowest level.
    pub fn reconcile(
        &self,
        method: ReconcileMethod,
        errors: &[Vec<f64>],
        bounds: PredictionBounds,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<ReconciledLevel>> {
        let reconciler = Reconciler::new(&self.hierarchy, method, errors, check)?;
        let mut levels = Vec::with_capacity(self.uppers.len() + 1);
        for _ in 0..=self.uppers.len() {
            levels.push(ReconciledLevel {
                values: Vec::with_capacity(self.bottom.times.len()),
                clipped: Vec::with_capacity(self.bottom.times.len()),
            });
        }
        let uppers = self.hierarchy.children.len();
        for time in 0..self.bottom.times.len() {
            check()?;
            let mut values = Vec::with_capacity(uppers + self.hierarchy.bottoms);
            for level in self.uppers {
                values.extend_from_slice(&level.values[time]);
            }
            values.extend_from_slice(&self.bottom.values[time]);
            if let Some(reconciler) = &reconciler {
                reconciler.reconcile(&mut values);
            }
            let mut bottoms = values.split_off(uppers);
            let mut clipped = Vec::with_capacity(bottoms.len());
            for value in &mut bottoms {
                let bounded = bounds.moved(*value);
                clipped.push(bounded != *value);
                *value = bounded;
            }
            let mut upper_series = self.hierarchy.children.iter();
            for (level, reconciled) in self.uppers.iter().zip(&mut levels) {
                let mut sums = Vec::with_capacity(level.names.len());
                for children in upper_series.by_ref().take(level.names.len()) {
                    let sum: f64 = children.iter().map(|child| bottoms[*child]).sum();
                    sums.push(sum);
                }
                reconciled.clipped.push(vec![false; sums.len()]);
                reconciled.values.push(sums);
            }
            if let Some(reconciled) = levels.last_mut() {
                reconciled.values.push(bottoms);
                reconciled.clipped.push(clipped);
            }
        }
        Ok(levels)
    }
}

impl LevelForecasts {
    /// A series in words, with its sink.
    fn series_text(&self, number: usize) -> String {
        match self.names.get(number) {
            Some(name) => format!("{} of `{}`", name_text(&self.keys, name), self.sink),
            None => format!("`{}`", self.sink),
        }
    }

    /// `store_id CA_1, item_id FOODS_1_001 for day 2024-01-01`.
    fn row_text(&self, series: &SeriesName, tick: i64) -> String {
        let time = time_text(tick, &self.time).unwrap_or_else(|_| tick.to_string());
        let series = name_text(&self.keys, series);
        format!("{series} for {} {time}", self.time.name())
    }

    /// The fault for a series that has two forecasts of a time.
    pub(super) fn duplicate_fault(&self, series: &SeriesName, tick: i64) -> Fault {
        let row = self.row_text(series, tick);
        let message = format!("`{}` has two forecasts of {row}", self.sink);
        Fault::new(codes::BAD_ROW, message)
            .column(self.time.name())
            .hint(
                "let each series have one row for each time: name all of its keys in `keys` of \
                 `future_rows`, or drop duplicates",
            )
    }

    /// The fault for a row without a forecast.
    pub(super) fn missing_fault(&self, series: &SeriesName, tick: i64) -> Fault {
        let row = self.row_text(series, tick);
        let message = format!("`{}` has no forecast of {row}", self.sink);
        Fault::new(codes::BAD_ROW, message)
            .hint("give its model a fallback, or filter the rows that it does not forecast")
    }

    /// The fault for a forecast of a series that has no time.
    pub(super) fn timeless_fault(&self, series: &SeriesName) -> Fault {
        let message = format!(
            "`{}` has a forecast of {} whose `{}` is null",
            self.sink,
            name_text(&self.keys, series),
            self.time.name()
        );
        Fault::new(codes::BAD_ROW, message)
            .column(self.time.name())
            .hint("filter rows without a time")
    }
}

/// The position of each key of a level among those of the lowest one.
fn key_positions(level: &LevelForecasts, bottom: &LevelForecasts) -> Result<Vec<usize>> {
    let mut positions = Vec::with_capacity(level.keys.len());
    for key in &level.keys {
        let position = bottom.keys.iter().position(|name| name == key);
        positions.push(position.ok_or_else(|| Fault::internal("a level of other keys"))?);
    }
    Ok(positions)
}

/// The series that a series of the lowest level is part of, in a level with the keys at these positions.
fn parent_name(positions: &[usize], name: &SeriesName) -> SeriesName {
    let keys = positions.iter();
    keys.map(|position| name[*position].clone()).collect()
}

/// The number of each series.
fn series_numbers(names: &[SeriesName]) -> HashMap<&SeriesName, usize> {
    let numbered = names.iter().enumerate();
    numbered.map(|(number, name)| (name, number)).collect()
}

/// Numbers of the series of the lowest level that each series of a level is the sum of.
fn children_of(level: &LevelForecasts, bottom: &LevelForecasts) -> Result<Vec<Vec<usize>>> {
    let positions = key_positions(level, bottom)?;
    let numbers = series_numbers(&level.names);
    let mut children = vec![Vec::new(); level.names.len()];
    for (number, name) in bottom.names.iter().enumerate() {
        let parent = parent_name(&positions, name);
        let Some(upper) = numbers.get(&parent) else {
            let message = format!(
                "`{}` has no forecast of {}, the sum of {} of `{}`",
                level.sink,
                name_text(&level.keys, &parent),
                name_text(&bottom.keys, name),
                bottom.sink
            );
            return Err(Fault::new(codes::BAD_ROW, message).hint(
                "let both come from the same rows: each series of the lowest level is part of one \
                 of each upper level",
            ));
        };
        children[*upper].push(number);
    }
    for (children, name) in children.iter().zip(&level.names) {
        if children.is_empty() {
            let message = format!(
                "`{}` has no series of {}, which `{}` forecasts",
                bottom.sink,
                name_text(&level.keys, name),
                level.sink
            );
            return Err(Fault::new(codes::BAD_ROW, message).hint(
                "let both come from the same rows: each series of an upper level is a sum of \
                 series of the lowest one",
            ));
        }
    }
    Ok(children)
}

/// `store_id CA_1, item_id FOODS_1_001`, or `all series`.
fn name_text(keys: &[String], name: &SeriesName) -> String {
    if keys.is_empty() {
        return "all series".to_owned();
    }
    let mut texts = Vec::with_capacity(keys.len());
    for (key, value) in keys.iter().zip(name) {
        texts.push(format!("{key} {}", value.as_deref().unwrap_or("null")));
    }
    texts.join(", ")
}

/// Rows of a level on folds.
struct FoldLevel<'a> {
    level: &'a LevelForecasts,
    /// The number of each series that has not ended.
    numbers: HashMap<&'a SeriesName, usize>,
    /// The rows of each fold and time, in the order of the names of their series.
    rows: BTreeMap<(i64, i64), Vec<&'a FoldRow>>,
}

impl<'a> FoldLevel<'a> {
    fn new(level: &'a LevelForecasts, rows: &'a [FoldRow]) -> Result<FoldLevel<'a>> {
        let mut rows_by_time: BTreeMap<(i64, i64), Vec<&FoldRow>> = BTreeMap::new();
        for row in rows {
            let of_time = rows_by_time.entry((row.fold, row.time)).or_default();
            of_time.push(row);
        }
        for rows in rows_by_time.values_mut() {
            // Sums are added up in this order, whatever the order of the query.
            rows.sort_unstable_by(|row, other| row.series.cmp(&other.series));
            for pair in rows.windows(2) {
                if pair[0].series == pair[1].series {
                    return Err(level.duplicate_fault(&pair[0].series, pair[0].time));
                }
            }
        }
        Ok(FoldLevel {
            level,
            numbers: series_numbers(&level.names),
            rows: rows_by_time,
        })
    }

    /// Rows of a fold and time.
    fn rows_at(&self, time: (i64, i64)) -> &[&'a FoldRow] {
        let rows = self.rows.get(&time);
        rows.map(Vec::as_slice).unwrap_or_default()
    }
}

/// Number of the times of all folds of the lowest level.
fn fold_time_count(rows: &[Vec<FoldRow>]) -> usize {
    let rows = rows.last().into_iter().flatten();
    let times: BTreeSet<(i64, i64)> = rows.map(|row| (row.fold, row.time)).collect();
    times.len()
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    fn name(keys: &[&str]) -> SeriesName {
        keys.iter().map(|key| Some((*key).to_owned())).collect()
    }

    fn level(sink: &str, keys: &[&str], names: &[&[&str]], values: &[&[f64]]) -> LevelForecasts {
        LevelForecasts {
            sink: sink.to_owned(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            time: Field::new("day", DataType::Date32, true),
            names: names.iter().map(|keys| name(keys)).collect(),
            times: (0..values.len() as i64).collect(),
            values: values.iter().map(|values| values.to_vec()).collect(),
        }
    }

    fn bottom(values: &[&[f64]]) -> LevelForecasts {
        let names: [&[&str]; 3] = [&["n", "a"], &["n", "b"], &["s", "a"]];
        level("items", &["store", "item"], &names, values)
    }

    fn uppers() -> [LevelForecasts; 2] {
        [
            level("total", &[], &[&[]], &[&[12.0]]),
            level("stores", &["store"], &[&["s"], &["n"]], &[&[4.0, 6.0]]),
        ]
    }

    fn reconciled(
        bottom: &LevelForecasts,
        method: ReconcileMethod,
        bounds: PredictionBounds,
    ) -> Vec<ReconciledLevel> {
        let uppers = uppers();
        let hierarchy = ForecastHierarchy::new(&uppers, bottom).unwrap();
        assert_eq!(hierarchy.upper_series(), 3);
        hierarchy
            .reconcile(method, &[], bounds, &|| Ok(()))
            .unwrap()
    }

    #[test]
    fn upper_forecasts_are_sums_of_the_lowest_level() {
        let free = PredictionBounds::new(None, None);
        let bottom_up = reconciled(
            &bottom(&[&[1.0, 2.0, 3.0]]),
            ReconcileMethod::BottomUp,
            free,
        );
        let values: Vec<&Vec<f64>> = bottom_up.iter().map(|level| &level.values[0]).collect();
        assert_eq!(values, [&vec![6.0], &vec![3.0, 3.0], &vec![1.0, 2.0, 3.0]]);
        let bounds = PredictionBounds::new(Some(1.5), None);
        let bounded = reconciled(
            &bottom(&[&[1.0, 2.0, 3.0]]),
            ReconcileMethod::BottomUp,
            bounds,
        );
        assert_eq!(bounded[2].values, [[1.5, 2.0, 3.0]]);
        assert_eq!(bounded[2].clipped, [[true, false, false]]);
        assert_eq!(bounded[0].values, [[6.5]]);
    }

    /// The least squares of numpy 2.4.6: `S (S'S)^-1 S'` times the forecasts.
    #[test]
    fn ordinary_least_squares_change_all_levels() {
        let free = PredictionBounds::new(None, None);
        let levels = reconciled(&bottom(&[&[1.0, 2.0, 3.0]]), ReconcileMethod::Ols, free);
        let expected = [2.538_461_54, 3.538_461_54, 4.307_692_31];
        for (value, expected) in levels[2].values[0].iter().zip(expected) {
            assert!((value - expected).abs() < 1e-7, "{value}, not {expected}");
        }
    }

    #[test]
    fn levels_that_do_not_add_up_are_refused() {
        let mut uppers = uppers();
        uppers[1].names.pop();
        uppers[1].values[0].pop();
        let bottom = bottom(&[&[1.0, 2.0, 3.0]]);
        let refused = ForecastHierarchy::new(&uppers, &bottom).err().unwrap();
        let expected = "`stores` has no forecast of store n, the sum of store n, item a of `items`";
        assert_eq!(refused.message(), expected);
        uppers[1].names.extend([name(&["n"]), name(&["w"])]);
        let refused = ForecastHierarchy::new(&uppers, &bottom).err().unwrap();
        let expected = "`items` has no series of store w, which `stores` forecasts";
        assert_eq!(refused.message(), expected);
    }

    fn row(series: SeriesName, time: i64, predicted: f64, came: Option<f64>) -> FoldRow {
        FoldRow {
            fold: 0,
            series,
            time,
            predicted: Some(predicted),
            came,
        }
    }

    const MEMORY_BYTES: u64 = 1 << 30;

    /// Rows of days 5 and 6. The last item has no value of the second day.
    fn fold_rows() -> Vec<Vec<FoldRow>> {
        let mut rows = vec![Vec::new(), Vec::new(), Vec::new()];
        for time in [5, 6] {
            rows[0].push(row(name(&[]), time, 10.0, None));
            rows[1].push(row(name(&["n"]), time, 5.0, None));
            rows[1].push(row(name(&["s"]), time, 5.0, None));
            rows[2].push(row(name(&["n", "a"]), time, 1.0, Some(2.0)));
            rows[2].push(row(name(&["n", "b"]), time, 1.0, Some(4.0)));
            let last = (time == 5).then_some(8.0);
            rows[2].push(row(name(&["s", "a"]), time, 1.0, last));
        }
        rows
    }

    fn fold_errors(rows: &[Vec<FoldRow>], memory_bytes: u64) -> Result<FoldErrors> {
        let uppers = uppers();
        let bottom = bottom(&[&[1.0, 2.0, 3.0]]);
        let hierarchy = ForecastHierarchy::new(&uppers, &bottom).unwrap();
        hierarchy.fold_errors(rows, memory_bytes)
    }

    #[test]
    fn errors_are_of_times_that_all_series_have() {
        let errors = fold_errors(&fold_rows(), MEMORY_BYTES).unwrap();
        // The total, the stores in their order, the items.
        let expected = [[4.0], [3.0], [1.0], [1.0], [3.0], [7.0]];
        assert_eq!(errors.by_series, expected);
        assert_eq!(errors.incomplete_times, 1);
        let series = errors.incomplete_series.unwrap();
        assert_eq!(series, "store s, item a of `items`");
    }

    /// The forecasts of the total and of a store contain an item that has ended since, and the total a whole store.
    #[test]
    fn values_of_upper_series_contain_series_that_have_ended() {
        let mut rows = fold_rows();
        for time in [5, 6] {
            rows[1].push(row(name(&["w"]), time, 9.0, None));
            rows[2].push(row(name(&["n", "z"]), time, 1.0, Some(16.0)));
            let last = (time == 5).then_some(32.0);
            rows[2].push(row(name(&["w", "a"]), time, 1.0, last));
        }
        let errors = fold_errors(&rows, MEMORY_BYTES).unwrap();
        let expected = [[52.0], [3.0], [17.0], [1.0], [3.0], [7.0]];
        assert_eq!(errors.by_series, expected);
        // The order of a query is that of its threads.
        for rows in &mut rows {
            rows.reverse();
        }
        assert_eq!(fold_errors(&rows, MEMORY_BYTES).unwrap(), errors);
    }

    #[test]
    fn two_rows_of_a_series_and_time_of_a_fold_are_refused() {
        let mut rows = fold_rows();
        rows[1].push(row(name(&["s"]), 6, 5.5, None));
        let fault = fold_errors(&rows, MEMORY_BYTES).unwrap_err();
        let expected = "`stores` has two forecasts of store s for day 1970-01-07";
        assert_eq!(fault.message(), expected);
        let mut rows = fold_rows();
        let mut next_fold = row(name(&["s"]), 6, 5.5, None);
        next_fold.fold = 1;
        rows[1].push(next_fold);
        assert!(fold_errors(&rows, MEMORY_BYTES).is_ok());
    }

    #[test]
    fn a_reconciliation_may_take_half_of_the_memory() {
        // Three upper series, and six with two errors each.
        let numbers = 4 + 6 * 12;
        let rows = fold_rows();
        assert!(fold_errors(&rows, 2 * 8 * numbers).is_ok());
        let fault = fold_errors(&rows, 2 * 8 * numbers - 2).unwrap_err();
        assert_eq!(fault.code(), codes::MEMORY);
        let expected = "the reconciliation of 6 series would hold 1 MiB, and may hold 0";
        assert_eq!(fault.message(), expected);
    }
}
