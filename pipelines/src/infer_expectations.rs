//! Proposes an `expect` step from some rows: their present properties, with a margin for later
//! rows.

use std::fmt::Write;

use forebay_run::{ColumnProfile, DatasetProfile, NumericProfile};

/// Distinct values up to which a text has a set of values.
const SET_VALUES_MAX: u64 = 20;

/// Rows that each value of such a set has, on average, at least.
const ROWS_PER_VALUE_MIN: u64 = 10;

/// The characters of a line of YAML.
const LINE_CHARS_MAX: usize = 110;

/// The rules as an item of `do:`. All of them hold for the profiled rows. Columns of `keys` get no range
/// and no set: new series come.
pub(crate) fn expectations(profile: &DatasetProfile, keys: &[String]) -> String {
    let present = profile.columns.iter();
    let present = present.filter(|column| column.rows > 0 && column.nulls == 0);
    let mut rules = Vec::new();
    rules.extend(not_null_rules(
        present.map(|column| yaml_name(&column.name)),
    ));
    let mut ranges = Vec::new();
    let mut sets = Vec::new();
    for column in &profile.columns {
        if keys.contains(&column.name) {
            continue;
        }
        let name = yaml_name(&column.name);
        let numeric = column.numeric.as_ref();
        let numeric = numeric.filter(|_| !column.r#type.starts_with("Bool"));
        if let Some([least, greatest]) = numeric.and_then(bounds) {
            ranges.push(format!("range: {{ {name}: [{least}, {greatest}] }}"));
        }
        if let Some(values) = value_set(column) {
            sets.push(format!("in_set: {{ {name}: [{values}] }}"));
        }
    }
    rules.extend(ranges);
    rules.extend(sets);
    if profile.rows > 1 {
        rules.push(format!("rows: {{ min: {} }}", profile.rows / 2));
    }
    let mut text = format!(
        "# Of {} rows of `{}`, which keep these rules. Review them.\n- expect:\n",
        profile.rows, profile.of
    );
    for rule in rules {
        let _ = writeln!(text, "    - {{ {rule} }}");
    }
    text
}

/// Rules about columns without nulls, of lines that are not too long.
fn not_null_rules(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut lists: Vec<String> = Vec::new();
    for name in names {
        match lists.last_mut() {
            Some(list) if list.len() + name.len() <= LINE_CHARS_MAX => {
                list.push_str(", ");
                list.push_str(&name);
            }
            _ => lists.push(name),
        }
    }
    lists
        .into_iter()
        .map(|list| format!("not_null: [{list}]"))
        .collect()
}

/// A range that is twice as wide as the values; numbers that are never negative stay so.
fn bounds(numbers: &NumericProfile) -> Option<[f64; 2]> {
    let (min, max) = numbers.min.zip(numbers.max)?;
    if numbers.nans > 0 || numbers.infinities > 0 {
        return None;
    }
    let width = (max - min).max(max.abs()).max(1.0);
    let least = if min >= 0.0 {
        0.0
    } else {
        -rounded_up(width - min)
    };
    Some([least, rounded_up(max + width)])
        .filter(|bounds| bounds.iter().all(|bound| bound.is_finite()))
}

/// The next number with one digit that is not zero.
fn rounded_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let unit = 10f64.powf(value.log10().floor());
    (value / unit).ceil() * unit
}

/// The values of a text that has few.
fn value_set(column: &ColumnProfile) -> Option<String> {
    let distinct = column
        .distinct
        .filter(|distinct| (1..=SET_VALUES_MAX).contains(distinct))?;
    let values = column.rows - column.nulls;
    let counted: u64 = column.frequent.iter().map(|value| value.count).sum();
    let is_text = column.r#type.contains("Utf8");
    let is_whole = counted == values && distinct == column.frequent.len() as u64;
    if !is_text || !is_whole || values < distinct * ROWS_PER_VALUE_MIN {
        return None;
    }
    let mut names: Vec<&str> = column
        .frequent
        .iter()
        .map(|value| value.value.as_str())
        .collect();
    names.sort_unstable();
    Some(
        names
            .into_iter()
            .map(yaml_text)
            .collect::<Vec<_>>()
            .join(", "),
    )
}

/// A name as YAML has it inside brackets.
fn yaml_name(name: &str) -> String {
    let is_plain = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
            && !["null", "true", "false", "yes", "no", "on", "off", "y", "n"]
                .contains(&name.to_lowercase().as_str())
    };
    if is_plain(name) {
        name.to_owned()
    } else {
        yaml_text(name)
    }
}

/// A text in double quotes, which YAML reads as JSON does.
fn yaml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_leave_room() {
        let of = |min: f64, max: f64| {
            let numbers = NumericProfile {
                count: 2,
                nans: 0,
                infinities: 0,
                zeros: 0,
                negatives: 0,
                mean: None,
                std: None,
                min: Some(min),
                max: Some(max),
                quantiles: Vec::new(),
                histogram: Vec::new(),
            };
            bounds(&numbers).unwrap()
        };
        assert_eq!(of(0.0, 763.0), [0.0, 2000.0]);
        assert_eq!(of(3.0, 3.0), [0.0, 6.0]);
        assert_eq!(of(-5.0, 10.0), [-20.0, 30.0]);
        assert_eq!(of(0.0, 0.25), [0.0, 2.0]);
    }

    #[test]
    fn names_are_quoted_where_yaml_would_read_something_else() {
        assert_eq!(
            ["qty", "on", "a b", "7d"].map(yaml_name),
            ["qty", "\"on\"", "\"a b\"", "\"7d\""]
        );
    }
}
