//! Classes of labels: read as texts, numbered while rows are read, and sorted in the end.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use arrow::compute::{cast, filter};
use arrow::datatypes::DataType;
use forebay_contract::ModelClasses;
use forebay_model::{Fault, Result, codes, logical_type, type_words};

/// Classes of a model at most: each round of boosting grows a tree for each.
const CLASSES_MAX: usize = 1000;

/// Refuses a label of which all rows that are learned from have one class.
pub fn refuse_single_class(label: &str, classes: &ModelClasses) -> Result<()> {
    if classes.count() > 1 {
        return Ok(());
    }
    let message = format!(
        "`{label}` has the class `{}` in all rows that are learned from",
        classes.names().concat()
    );
    Err(Fault::new(codes::BAD_ROW, message)
        .column(label)
        .hint("look at the split, and at what the steps filter"))
}

/// The labels of some rows, which are classes.
#[derive(Debug, Clone)]
pub struct ClassLabels {
    texts: StringArray,
    are_integers: bool,
}

impl ClassLabels {
    /// Reads the column of a label. A row without a class is a fault.
    pub fn read(label: &str, column: &ArrayRef) -> Result<ClassLabels> {
        let label_type = logical_type(column.data_type());
        let are_integers = label_type.is_integer();
        if !are_integers && !matches!(label_type, DataType::Utf8 | DataType::Boolean) {
            let message = format!(
                "the label `{label}` is {}, which has no classes",
                type_words(column.data_type())
            );
            return Err(Fault::new(codes::COLUMN_TYPE, message)
                .column(label)
                .hint("name a column of texts, whole numbers or booleans"));
        }
        let texts = cast(column, &DataType::Utf8)?;
        let mut missing = Vec::new();
        for row in 0..texts.len() {
            if texts.is_null(row) {
                missing.push(row as u64);
            }
        }
        if !missing.is_empty() {
            let message = format!("{} values of `{label}` are missing", missing.len());
            return Err(Fault::new(codes::BAD_ROW, message)
                .column(label)
                .rows(missing)
                .hint("filter such rows, or fill the column before"));
        }
        Ok(ClassLabels {
            texts: texts.as_string::<i32>().clone(),
            are_integers,
        })
    }

    /// Drops rows for which `keep` is false.
    pub fn retain(&mut self, keep: &BooleanArray) -> Result<()> {
        let texts = filter(&self.texts, keep)?;
        self.texts = texts.as_string::<i32>().clone();
        Ok(())
    }

    /// The class of each row.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().flatten()
    }
}

/// Classes in the order of their first rows.
#[derive(Debug, Default)]
pub struct ClassNumbers {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
    has_texts: bool,
}

impl ClassNumbers {
    /// Numbers of the classes of rows. New classes get the next numbers.
    pub fn add(&mut self, label: &str, labels: &ClassLabels) -> Result<Vec<f32>> {
        self.has_texts |= !labels.are_integers;
        let mut numbers = Vec::with_capacity(labels.texts.len());
        for class in labels.texts() {
            let number = match self.numbers.get(class).copied() {
                Some(number) => number,
                None => self.add_class(label, class)?,
            };
            numbers.push(number as f32);
        }
        Ok(numbers)
    }

    fn add_class(&mut self, label: &str, class: &str) -> Result<u32> {
        if self.names.len() == CLASSES_MAX {
            let message = format!("`{label}` has more than {CLASSES_MAX} classes");
            return Err(Fault::new(codes::BAD_ROW, message)
                .column(label)
                .hint("group rare classes (`group_rare`), or predict a number"));
        }
        let number = self.names.len() as u32;
        self.names.push(class.to_owned());
        self.numbers.insert(class.to_owned(), number);
        Ok(number)
    }

    /// The classes in ascending order: whole numbers by value, all others as texts.
    pub fn sort(self) -> SortedClasses {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        let classes = match self.integers() {
            Some(values) => {
                order.sort_by_key(|number| values[*number]);
                ModelClasses::Integers(order.iter().map(|number| values[*number]).collect())
            }
            None => {
                order.sort_by(|a, b| self.names[*a].cmp(&self.names[*b]));
                ModelClasses::Texts(
                    order
                        .iter()
                        .map(|number| self.names[*number].clone())
                        .collect(),
                )
            }
        };
        let mut ranks = vec![0.0; order.len()];
        for (rank, number) in order.into_iter().enumerate() {
            ranks[number] = rank as f32;
        }
        SortedClasses {
            classes,
            numbers: self.numbers,
            ranks,
        }
    }

    /// The classes as whole numbers; `None` where one of them is none.
    fn integers(&self) -> Option<Vec<i64>> {
        if self.has_texts {
            return None;
        }
        let values = self.names.iter().map(|name| name.parse::<i64>().ok());
        values.collect()
    }
}

/// Classes in ascending order, whose ranks are labels.
#[derive(Debug)]
pub struct SortedClasses {
    pub classes: ModelClasses,
    numbers: HashMap<String, u32>,
    /// Rank of each class, by the number of its first row.
    ranks: Vec<f32>,
}

impl SortedClasses {
    /// Replaces numbers of [`ClassNumbers::add`] by ranks.
    pub fn rank(&self, labels: &mut [f32]) {
        for label in labels {
            *label = self.ranks[*label as usize];
        }
    }

    /// Rank of a class; `None` of one that was not learned.
    pub fn rank_of(&self, class: &str) -> Option<f32> {
        let number = *self.numbers.get(class)?;
        self.ranks.get(number as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array};

    use super::*;

    fn sorted(columns: &[ArrayRef]) -> (SortedClasses, Vec<f32>) {
        let mut numbers = ClassNumbers::default();
        let mut labels = Vec::new();
        for column in columns {
            let read = ClassLabels::read("y", column).unwrap();
            labels.extend(numbers.add("y", &read).unwrap());
        }
        let classes = numbers.sort();
        classes.rank(&mut labels);
        (classes, labels)
    }

    #[test]
    fn classes_are_sorted_by_value_or_as_texts() {
        let first: ArrayRef = Arc::new(Int64Array::from(vec![10, -2, 10]));
        let second: ArrayRef = Arc::new(Int64Array::from(vec![3]));
        let (classes, labels) = sorted(&[first, second]);
        assert_eq!(classes.classes, ModelClasses::Integers(vec![-2, 3, 10]));
        assert_eq!(labels, [2.0, 0.0, 2.0, 1.0]);
        assert_eq!(classes.rank_of("3"), Some(1.0));
        assert_eq!(classes.rank_of("4"), None);

        let texts: ArrayRef = Arc::new(StringArray::from(vec!["10", "9", "-2"]));
        let (classes, labels) = sorted(&[texts]);
        let expected = ["-2", "10", "9"].map(str::to_owned).to_vec();
        assert_eq!(classes.classes, ModelClasses::Texts(expected));
        assert_eq!(labels, [1.0, 2.0, 0.0]);

        let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
        let (classes, labels) = sorted(&[flags]);
        let expected = ["false", "true"].map(str::to_owned).to_vec();
        assert_eq!(classes.classes, ModelClasses::Texts(expected));
        assert_eq!(labels, [1.0, 0.0]);
    }

    #[test]
    fn labels_without_classes_are_refused() {
        let fractions: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        let fault = ClassLabels::read("y", &fractions).unwrap_err();
        assert_eq!(fault.code(), codes::COLUMN_TYPE);
        let missing: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let fault = ClassLabels::read("y", &missing).unwrap_err();
        assert_eq!(
            (fault.code(), &fault.site().rows[..]),
            (codes::BAD_ROW, &[1][..])
        );
        let many: Vec<i64> = (0..=CLASSES_MAX as i64).collect();
        let many: ArrayRef = Arc::new(Int64Array::from(many));
        let labels = ClassLabels::read("y", &many).unwrap();
        assert!(ClassNumbers::default().add("y", &labels).is_err());
    }

    #[test]
    fn dropped_rows_have_no_class() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
        let mut labels = ClassLabels::read("y", &texts).unwrap();
        labels
            .retain(&BooleanArray::from(vec![true, false, true]))
            .unwrap();
        assert_eq!(labels.texts().collect::<Vec<_>>(), ["a", "c"]);
    }
}
