//! Classes that a model tells apart.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float32Array, Int64Array, StringArray};
use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};

/// The classes that a model tells apart, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelClasses {
    /// Whole numbers.
    Integers(Vec<i64>),
    /// Texts, in the order of their bytes.
    Texts(Vec<String>),
}

impl ModelClasses {
    /// Number of classes.
    pub fn count(&self) -> usize {
        match self {
            ModelClasses::Integers(values) => values.len(),
            ModelClasses::Texts(values) => values.len(),
        }
    }

    /// True if there are several, each once and in ascending order.
    pub fn is_sound(&self) -> bool {
        let is_ascending = match self {
            ModelClasses::Integers(values) => values.is_sorted_by(|a, b| a < b),
            ModelClasses::Texts(values) => values.is_sorted_by(|a, b| a < b),
        };
        is_ascending && self.count() > 1
    }

    /// The type of a column of classes.
    pub fn data_type(&self) -> DataType {
        match self {
            ModelClasses::Integers(_) => DataType::Int64,
            ModelClasses::Texts(_) => DataType::Utf8,
        }
    }

    /// The classes as texts.
    pub fn names(&self) -> Vec<String> {
        match self {
            ModelClasses::Integers(values) => values.iter().map(i64::to_string).collect(),
            ModelClasses::Texts(values) => values.clone(),
        }
    }

    /// The most probable class of each row, the first of several; null where a probability is.
    /// There is a column of probabilities for each class.
    pub fn most_probable(&self, probabilities: &[Float32Array]) -> ArrayRef {
        let rows = probabilities.first().map_or(0, Float32Array::len);
        let mut numbers = Vec::with_capacity(rows);
        for row in 0..rows {
            numbers.push(greatest_probability(probabilities, row));
        }
        match self {
            ModelClasses::Integers(values) => {
                let mut classes: Vec<Option<i64>> = Vec::with_capacity(rows);
                for number in numbers {
                    classes.push(number.and_then(|number| values.get(number).copied()));
                }
                Arc::new(Int64Array::from(classes))
            }
            ModelClasses::Texts(values) => {
                let mut classes: Vec<Option<&str>> = Vec::with_capacity(rows);
                for number in numbers {
                    classes.push(number.and_then(|number| values.get(number).map(String::as_str)));
                }
                Arc::new(StringArray::from(classes))
            }
        }
    }
}

/// Number of the column with the greatest probability of a row.
fn greatest_probability(probabilities: &[Float32Array], row: usize) -> Option<usize> {
    let mut greatest: Option<(usize, f32)> = None;
    for (number, column) in probabilities.iter().enumerate() {
        if column.is_null(row) {
            return None;
        }
        let probability = column.value(row);
        if greatest.is_none_or(|(_, value)| probability > value) {
            greatest = Some((number, probability));
        }
    }
    greatest.map(|(number, _)| number)
}

/// Name of the column of a class's probability, derived from that of the class: `prediction_red`.
pub fn class_column(point: &str, class: &str) -> String {
    format!("{point}_{class}")
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn the_most_probable_class_of_each_row_is_taken() {
        let probabilities = [
            Float32Array::from(vec![Some(0.2), Some(0.4), Some(0.5)]),
            Float32Array::from(vec![Some(0.7), Some(0.4), None]),
            Float32Array::from(vec![Some(0.1), Some(0.2), Some(0.1)]),
        ];
        let texts = ModelClasses::Texts(["a", "b", "c"].map(str::to_owned).to_vec());
        let classes = texts.most_probable(&probabilities);
        let classes: Vec<Option<&str>> = classes.as_string::<i32>().iter().collect();
        assert_eq!(classes, [Some("b"), Some("a"), None]);
        let integers = ModelClasses::Integers(vec![-1, 0, 7]);
        let classes = integers.most_probable(&probabilities);
        let classes: Vec<Option<i64>> = classes.as_primitive::<Int64Type>().iter().collect();
        assert_eq!(classes, [Some(0), Some(-1), None]);
        assert_eq!(integers.names(), ["-1", "0", "7"]);
    }

    #[test]
    fn classes_are_several_in_order() {
        assert!(ModelClasses::Integers(vec![-2, 10]).is_sound());
        for unsound in [vec![], vec![1], vec![2, 1], vec![1, 1, 2]] {
            assert!(!ModelClasses::Integers(unsound).is_sound());
        }
        let unsorted = ["b", "a"].map(str::to_owned).to_vec();
        assert!(!ModelClasses::Texts(unsorted).is_sound());
    }
}
