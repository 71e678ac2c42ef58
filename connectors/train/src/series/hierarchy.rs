//! Upper series of a hierarchy: sums of the series that the models are for.

use std::collections::HashMap;

use forebay_model::{Fault, Result, codes};
use forebay_series::reconcile::Hierarchy;

use super::history::SeriesValues;
use super::reconcile_config::ReconcileConfig;
use crate::group_names::{GroupName, series_text};

/// Upper series, and the series that they are sums of.
pub struct SeriesHierarchy {
    /// The upper series, level by level.
    pub uppers: Vec<SeriesValues>,
    /// Numbers of their bottom series.
    pub hierarchy: Hierarchy,
}

impl SeriesHierarchy {
    /// The hierarchy of some series, which columns `by` tell apart. All of them have to end at one time. A series that
    /// begins later counts as zero before.
    pub fn new(
        config: &ReconcileConfig,
        by: &[String],
        series: &[SeriesValues],
    ) -> Result<SeriesHierarchy> {
        check_ends(series)?;
        let mut built = SeriesHierarchy {
            uppers: Vec::new(),
            hierarchy: Hierarchy {
                children: Vec::new(),
                bottoms: series.len(),
            },
        };
        for level in &config.by {
            let positions: Vec<usize> = by
                .iter()
                .enumerate()
                .filter(|(_, column)| level.contains(column))
                .map(|(position, _)| position)
                .collect();
            built.add_level(&positions, series);
        }
        Ok(built)
    }

    /// Adds a series for each combination of values of some columns, which are named by their positions.
    fn add_level(&mut self, positions: &[usize], series: &[SeriesValues]) {
        let mut numbers: HashMap<GroupName, usize> = HashMap::new();
        for (bottom, values) in series.iter().enumerate() {
            let mut name = GroupName::with_capacity(positions.len());
            for position in positions {
                name.push(values.name.get(*position).cloned().flatten());
            }
            let number = match numbers.get(&name) {
                Some(number) => *number,
                None => {
                    let number = self.uppers.len();
                    numbers.insert(name.clone(), number);
                    self.uppers.push(empty_series(name));
                    self.hierarchy.children.push(Vec::new());
                    number
                }
            };
            self.hierarchy.children[number].push(bottom);
            add_values(&mut self.uppers[number], values);
        }
    }
}

fn empty_series(name: GroupName) -> SeriesValues {
    SeriesValues {
        name,
        rows: 0,
        values: Vec::new(),
        learned: 0,
        validated: Vec::new(),
        last: 0,
        filled: 0,
    }
}

/// Adds the values of a series that ends at the same time.
fn add_values(upper: &mut SeriesValues, series: &SeriesValues) {
    let longer = series.values.len().saturating_sub(upper.values.len());
    if longer > 0 {
        let mut values = vec![0.0; longer];
        values.append(&mut upper.values);
        upper.values = values;
    }
    let offset = upper.values.len() - series.values.len();
    for (sum, value) in upper.values[offset..].iter_mut().zip(&series.values) {
        *sum += value;
    }
    upper.rows += series.rows;
    upper.learned = upper.values.len() - (series.values.len() - series.learned);
    upper.last = series.last;
}

/// Fails where series end, or are validated from, different times.
fn check_ends(series: &[SeriesValues]) -> Result<()> {
    let Some(first) = series.first() else {
        return Ok(());
    };
    let validated = first.values.len() - first.learned;
    for values in series {
        let reason = if values.last != first.last {
            "end at different times"
        } else if values.values.len() - values.learned != validated {
            "are learned up to different times"
        } else {
            continue;
        };
        let message = format!(
            "{} and {} {reason}, so that their forecasts do not add up",
            series_text(&first.name),
            series_text(&values.name)
        );
        return Err(Fault::new(codes::BAD_ROW, message).hint(
            "reconcile series that are still observed: take others out with a `filter`, or add \
             their missing rows",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use forebay_series::reconcile::ReconcileMethod;

    use super::*;

    fn series(name: [&str; 2], values: &[f64], learned: usize) -> SeriesValues {
        SeriesValues {
            name: name.map(|value| Some(value.to_owned())).to_vec(),
            rows: values.len() as u64,
            validated: (learned..values.len()).collect(),
            values: values.to_vec(),
            learned,
            last: 9,
            filled: 0,
        }
    }

    fn levels(by: &[&[&str]]) -> ReconcileConfig {
        let mut levels = Vec::new();
        for columns in by {
            levels.push(columns.iter().map(|column| (*column).to_owned()).collect());
        }
        ReconcileConfig {
            by: levels,
            method: ReconcileMethod::default(),
        }
    }

    fn columns() -> [String; 2] {
        ["region", "item"].map(str::to_owned)
    }

    #[test]
    fn upper_series_are_sums_that_end_together() {
        let bottoms = [
            series(["n", "a"], &[1.0, 2.0, 3.0], 2),
            series(["n", "b"], &[10.0, 20.0, 30.0, 40.0], 3),
            series(["s", "a"], &[5.0], 0),
        ];
        let config = levels(&[&[], &["region"]]);
        let built = SeriesHierarchy::new(&config, &columns(), &bottoms).unwrap();
        let expected = [vec![0, 1, 2], vec![0, 1], vec![2]];
        assert_eq!(built.hierarchy.children, expected);
        let values: Vec<&[f64]> = built.uppers.iter().map(|upper| &upper.values[..]).collect();
        let sums: [&[f64]; 3] = [&[10.0, 21.0, 32.0, 48.0], &[10.0, 21.0, 32.0, 43.0], &[5.0]];
        assert_eq!(values, sums);
        let learned: Vec<usize> = built.uppers.iter().map(|upper| upper.learned).collect();
        assert_eq!(learned, [3, 3, 0]);
        assert_eq!(built.uppers[1].name, [Some("n".to_owned())]);
    }

    #[test]
    fn series_that_ended_are_refused() {
        let mut bottoms = [
            series(["n", "a"], &[1.0, 2.0], 2),
            series(["n", "b"], &[1.0, 2.0], 1),
        ];
        let config = levels(&[&["region"]]);
        let refused = SeriesHierarchy::new(&config, &columns(), &bottoms).err();
        assert!(refused.unwrap().to_string().contains("learned up to"));
        bottoms[1] = series(["n", "b"], &[1.0, 2.0], 2);
        bottoms[1].last = 8;
        let refused = SeriesHierarchy::new(&config, &columns(), &bottoms).err();
        assert!(refused.unwrap().to_string().contains("end at different"));
    }
}
