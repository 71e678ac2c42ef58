//! Columns by name, pattern or type.

use std::collections::HashSet;

use arrow::datatypes::{DataType, Field, Schema};
use forebay_model::{Fault, NameIndex, Result, codes, listing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A selection of columns: names (`price`), patterns (`qty_*`) and types (`type:float`,
/// `type:integer`, `type:number`, `type:string`, `type:boolean`, `type:time`).
/// Columns come in the order of the selection, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ColumnSelector(pub Vec<String>);

impl<S: Into<String>> FromIterator<S> for ColumnSelector {
    fn from_iter<I: IntoIterator<Item = S>>(items: I) -> Self {
        ColumnSelector(items.into_iter().map(Into::into).collect())
    }
}

impl<S: Into<String>, const N: usize> From<[S; N]> for ColumnSelector {
    fn from(items: [S; N]) -> Self {
        items.into_iter().collect()
    }
}

impl<S: Into<String>> From<Vec<S>> for ColumnSelector {
    fn from(items: Vec<S>) -> Self {
        items.into_iter().collect()
    }
}

/// Selects by one name, pattern or type.
impl From<&str> for ColumnSelector {
    fn from(item: &str) -> Self {
        ColumnSelector(vec![item.to_owned()])
    }
}

impl ColumnSelector {
    /// Resolves the selection; every item must match at least one column.
    pub fn resolve<'a>(&self, schema: &'a Schema) -> Result<Vec<&'a Field>> {
        let (chosen, faults) = self.matches(schema);
        Fault::combine(faults).map_or(Ok(chosen), Err)
    }

    /// The columns that match, and a fault for each item that matches none.
    pub(crate) fn matches<'a>(&self, schema: &'a Schema) -> (Vec<&'a Field>, Vec<Fault>) {
        let mut chosen: Vec<&Field> = Vec::new();
        let mut chosen_names: HashSet<&str> = HashSet::new();
        let index = NameIndex::of_fields(schema.fields());
        let mut faults = Vec::new();
        if self.0.is_empty() {
            faults.push(Fault::new(codes::BAD_VALUE, "a list of columns is empty"));
        }
        for item in &self.0 {
            let fields = || schema.fields().iter().map(|field| field.as_ref());
            let matches: Vec<&Field> = match (item.strip_prefix("type:"), item.contains('*')) {
                (Some(class), _) => match type_class(class) {
                    Ok(class) => fields().filter(|field| class(field.data_type())).collect(),
                    Err(fault) => {
                        faults.push(fault.fragment(item, 0));
                        continue;
                    }
                },
                (None, true) => fields()
                    .filter(|field| glob(item.as_bytes(), field.name().as_bytes()))
                    .collect(),
                (None, false) => {
                    let position = index.get(item);
                    position.map(|at| schema.field(at)).into_iter().collect()
                }
            };
            if matches.is_empty() {
                faults.push(unknown_column(item, schema));
            }
            for field in matches {
                if chosen_names.insert(field.name()) {
                    chosen.push(field);
                }
            }
        }
        (chosen, faults)
    }
}

/// Beginning of a hint that lists columns.
pub(crate) const COLUMNS_LIST: &str = "the columns are";

/// A fault for an unknown column, with the nearest column name as hint.
pub fn unknown_column(name: &str, schema: &Schema) -> Fault {
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    let message = match (name.strip_prefix("type:"), name.contains('*')) {
        (Some(class), _) => format!("no column is of the type `{class}` here"),
        (None, true) => format!("no column matches `{name}` here"),
        (None, false) => format!("there is no column `{name}` here"),
    };
    let fault = Fault::new(codes::UNKNOWN_COLUMN, message).column(name);
    if name.contains(['*', ':']) {
        return fault.hint(listing(&names, COLUMNS_LIST));
    }
    fault.suggest(name, names, COLUMNS_LIST)
}

fn type_class(name: &str) -> Result<fn(&DataType) -> bool> {
    Ok(match name {
        "float" => |data_type| data_type.is_floating(),
        "integer" => |data_type| data_type.is_integer(),
        "number" => |data_type| data_type.is_numeric(),
        "string" => |data_type| data_type.is_string(),
        "boolean" => |data_type| *data_type == DataType::Boolean,
        "time" => |data_type| data_type.is_temporal(),
        _ => {
            let classes = ["float", "integer", "number", "string", "boolean", "time"];
            return Err(Fault::new(
                codes::BAD_VALUE,
                format!("`type:{name}` is not a class of types"),
            )
            .hint(format!("use one of: type:{}", classes.join(", type:"))));
        }
    })
}

/// True if `name` matches a pattern in which `*` stands for any characters. Only the last `*` met is tried again: an
/// earlier one never needs to take more.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let mut in_pattern = 0;
    let mut in_name = 0;
    // The place behind the last `*`, and that of the name from which the rest is tried.
    let mut last_star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(in_pattern) {
            Some(b'*') => {
                in_pattern += 1;
                last_star = Some((in_pattern, in_name));
            }
            Some(byte) if *byte == name[in_name] => {
                in_pattern += 1;
                in_name += 1;
            }
            _ => {
                let Some((behind_star, from)) = last_star else {
                    return false;
                };
                last_star = Some((behind_star, from + 1));
                in_pattern = behind_star;
                in_name = from + 1;
            }
        }
    }
    pattern[in_pattern..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matcher that tries every split of a name takes longer than the test for the last of these.
    #[test]
    fn patterns_match_in_time_of_their_length() {
        let many_stars = "*x".repeat(40);
        let name = "x".repeat(200);
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abcc", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXcYb", false),
            ("**", "abc", true),
            (many_stars.as_str(), name.as_str(), true),
            (&format!("{many_stars}*y"), name.as_str(), false),
        ] {
            assert_eq!(
                glob(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn selects_by_name_pattern_and_type() {
        let schema = Schema::new(vec![
            Field::new("qty_a", DataType::Int32, true),
            Field::new("price", DataType::Float64, true),
            Field::new("qty_b", DataType::Int32, true),
        ]);
        let names = |items: &[&str]| {
            let columns: ColumnSelector = items.iter().copied().collect();
            columns.resolve(&schema).map(|fields| {
                fields
                    .iter()
                    .map(|field| field.name().clone())
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(
            names(&["price", "qty_*", "type:number"]).unwrap(),
            ["price", "qty_a", "qty_b"]
        );
        let fault = names(&["prise", "x*"]).unwrap_err();
        assert_eq!(fault.hint_text(), Some("did you mean `price`?"));
        assert_eq!(fault.others().len(), 1);
    }
}
