//! A hierarchy of forecasts: those of upper levels, and those of the lowest one whose sums they are.

use std::collections::{BTreeMap, HashMap};

use forebay_model::{Fault, Result, codes};
use forebay_series::reconcile::{Hierarchy, ReconcileMethod, Reconciler};

use super::series_rows::SeriesName;
use super::values::PredictionBounds;

/// Forecasts of one level.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LevelForecasts {
    /// The `predict` sink.
    pub sink: String,
    /// The columns that tell its series apart.
    pub keys: Vec<String>,
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

    /// Errors of all series on folds: upper ones first, and as many of each. Times at which a series has no value or no
    /// forecast are left out. `rows` are those of each upper level, then those of the lowest one.
    pub fn fold_errors(&self, rows: &[Vec<FoldRow>]) -> Vec<Vec<f64>> {
        let mut series_errors = Vec::new();
        let Some((bottom_rows, upper_rows)) = rows.split_last() else {
            return series_errors;
        };
        let bottom_rows = by_time(bottom_rows, &self.bottom.names);
        let levels = self.uppers.iter().zip(upper_rows);
        let levels: Vec<_> = levels
            .map(|(level, rows)| by_time(rows, &level.names))
            .collect();
        let series = self.hierarchy.children.len() + self.hierarchy.bottoms;
        series_errors.resize(series, Vec::new());
        for (time, rows) in &bottom_rows {
            let Some(errors) = self.errors_at(*time, rows, &levels) else {
                continue;
            };
            for (errors_of_one, error) in series_errors.iter_mut().zip(errors) {
                errors_of_one.push(error);
            }
        }
        series_errors
    }

    /// Errors of all series at a time of a fold.
    fn errors_at(
        &self,
        time: (i64, i64),
        bottom_rows: &[Option<&FoldRow>],
        levels: &[RowsByTime<'_>],
    ) -> Option<Vec<f64>> {
        let mut values = Vec::with_capacity(bottom_rows.len());
        let mut bottom_errors = Vec::with_capacity(bottom_rows.len());
        for row in bottom_rows {
            let row = (*row)?;
            let value = row.came?;
            values.push(value);
            bottom_errors.push(value - row.predicted?);
        }
        let mut errors = Vec::with_capacity(self.hierarchy.children.len() + values.len());
        let mut children = self.hierarchy.children.iter();
        for level in levels {
            for row in level.get(&time)? {
                let sum: f64 = children.next()?.iter().map(|child| values[*child]).sum();
                errors.push(sum - (*row)?.predicted?);
            }
        }
        errors.append(&mut bottom_errors);
        Some(errors)
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

/// Numbers of the series of the lowest level that each series of a level is the sum of.
fn children_of(level: &LevelForecasts, bottom: &LevelForecasts) -> Result<Vec<Vec<usize>>> {
    let mut positions = Vec::with_capacity(level.keys.len());
    for key in &level.keys {
        let position = bottom.keys.iter().position(|name| name == key);
        positions.push(position.ok_or_else(|| Fault::internal("a level of other keys"))?);
    }
    let numbered = level.names.iter().enumerate();
    let numbers: HashMap<&SeriesName, usize> =
        numbered.map(|(number, name)| (name, number)).collect();
    let mut children = vec![Vec::new(); level.names.len()];
    for (number, name) in bottom.names.iter().enumerate() {
        let parent: SeriesName = positions
            .iter()
            .map(|position| name[*position].clone())
            .collect();
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

/// Rows of all series of a level by fold and time; `None` of series without a row.
type RowsByTime<'a> = BTreeMap<(i64, i64), Vec<Option<&'a FoldRow>>>;

fn by_time<'a>(rows: &'a [FoldRow], names: &[SeriesName]) -> RowsByTime<'a> {
    let numbered = names.iter().enumerate();
    let numbers: HashMap<&SeriesName, usize> =
        numbered.map(|(number, name)| (name, number)).collect();
    let mut rows_by_time = RowsByTime::new();
    for row in rows {
        // Series that have ended since are not forecast any more.
        let Some(number) = numbers.get(&row.series) else {
            continue;
        };
        let of_time = rows_by_time
            .entry((row.fold, row.time))
            .or_insert_with(|| vec![None; names.len()]);
        of_time[*number] = Some(row);
    }
    rows_by_time
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(keys: &[&str]) -> SeriesName {
        keys.iter().map(|key| Some((*key).to_owned())).collect()
    }

    fn level(sink: &str, keys: &[&str], names: &[&[&str]], values: &[&[f64]]) -> LevelForecasts {
        LevelForecasts {
            sink: sink.to_owned(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
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

    #[test]
    fn errors_are_of_times_that_all_series_have() {
        let uppers = uppers();
        let bottom = bottom(&[&[1.0, 2.0, 3.0]]);
        let hierarchy = ForecastHierarchy::new(&uppers, &bottom).unwrap();
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
        let errors = hierarchy.fold_errors(&rows);
        // The total, the stores in their order, the items.
        assert_eq!(errors, [[4.0], [3.0], [1.0], [1.0], [3.0], [7.0]]);
    }
}
