//! Positions of names in a list.

use std::collections::{HashMap, HashSet};

use arrow::datatypes::Fields;

/// Positions of the names of a list: of several equal names, that of the first. A table may have tens of thousands of
/// columns, of which a search through the list for each would take quadratic time.
#[derive(Debug, Clone, Default)]
pub struct NameIndex<'a>(HashMap<&'a str, usize>);

impl<'a> NameIndex<'a> {
    /// Indexes the names of a list.
    pub fn new(names: impl IntoIterator<Item = &'a str>) -> NameIndex<'a> {
        let mut positions = HashMap::new();
        for (position, name) in names.into_iter().enumerate() {
            positions.entry(name).or_insert(position);
        }
        NameIndex(positions)
    }

    /// Indexes the names of fields.
    pub fn of_fields(fields: &'a Fields) -> NameIndex<'a> {
        NameIndex::new(fields.iter().map(|field| field.name().as_str()))
    }

    /// The position of a name.
    pub fn get(&self, name: &str) -> Option<usize> {
        self.0.get(name).copied()
    }

    /// True if the list has the name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// The first name that the list has before.
pub fn first_repeated<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut earlier_names = HashSet::new();
    names.into_iter().find(|name| !earlier_names.insert(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_names_counts() {
        let index = NameIndex::new(["a", "b", "a"]);
        assert_eq!((index.get("a"), index.get("b")), (Some(0), Some(1)));
        assert!(!index.contains("c"));
        assert_eq!(first_repeated(["a", "b", "b", "a"]), Some("b"));
        assert_eq!(first_repeated(["a", "b"]), None);
    }
}
