//! Proposes an `expect` step from some rows: their present properties, with a margin for later
//! rows.

use std::fmt::Write;

use forebay_run::{ColumnProfile, DatasetProfile, NumericProfile};

/// Distinct values up to which a text has a set of values.
const SET_VALUES_MAX: u64 = 20;

/// Rows that each value of such a set has, on average, at least.
const ROWS_PER_VALUE_MIN: u64 = 10;

/// Words that YAML reads as something else than texts.
const OTHER_WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

/// The characters of a line of YAML.
const LINE_CHARS_MAX: usize = 110;

/// The rules as an item of `do:`. All of them hold for the profiled rows. Columns of `keys` get no range
/// and no set: new series come.
pub(crate) fn expectations(profile: &DatasetProfile, keys: &[String]) -> String {
    let mut names_without_nulls = Vec::new();
    let mut ranges = Vec::new();
    let mut sets = Vec::new();
    for column in &profile.columns {
        let name = yaml_name(&column.name);
        if column.rows > 0 && column.nulls == 0 {
            names_without_nulls.push(name.clone());
        }
        if keys.contains(&column.name) {
            continue;
        }
        if let Some([least, greatest]) = range_of(column) {
            ranges.push(format!("range: {{ {name}: [{least}, {greatest}] }}"));
        }
        if let Some(values) = value_set(column) {
            sets.push(format!("in_set: {{ {name}: [{values}] }}"));
        }
    }
    let mut rules = not_null_rules(names_without_nulls);
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
fn not_null_rules(names: Vec<String>) -> Vec<String> {
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
    let mut rules = Vec::with_capacity(lists.len());
    for list in lists {
        rules.push(format!("not_null: [{list}]"));
    }
    rules
}

/// The range of a column of numbers.
fn range_of(column: &ColumnProfile) -> Option<[f64; 2]> {
    if column.r#type.starts_with("Bool") {
        return None;
    }
    bounds(column.numeric.as_ref()?)
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
    let greatest = rounded_up(max + width);
    if !least.is_finite() || !greatest.is_finite() {
        return None;
    }
    Some([least, greatest])
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
    let distinct = column.distinct?;
    if !column.r#type.contains("Utf8") || !(1..=SET_VALUES_MAX).contains(&distinct) {
        return None;
    }
    let mut texts = Vec::with_capacity(column.frequent.len());
    let mut counted = 0;
    for frequent in &column.frequent {
        texts.push(frequent.value.as_str());
        counted += frequent.count;
    }
    let values = column.rows - column.nulls;
    let is_whole = counted == values && distinct == texts.len() as u64;
    if !is_whole || values < distinct * ROWS_PER_VALUE_MIN {
        return None;
    }
    texts.sort_unstable();
    let quoted: Vec<String> = texts.into_iter().map(yaml_text).collect();
    Some(quoted.join(", "))
}

/// A name as YAML has it inside brackets.
fn yaml_name(name: &str) -> String {
    if is_plain(name) {
        name.to_owned()
    } else {
        yaml_text(name)
    }
}

/// True if YAML reads a name without quotes as a text.
fn is_plain(name: &str) -> bool {
    let first = name.chars().next().unwrap_or_default();
    if !first.is_ascii_alphabetic() && first != '_' {
        return false;
    }
    let mut letters = name.chars();
    letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && !OTHER_WORDS.contains(&name.to_lowercase().as_str())
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
