//! The examples of transforms in the reference: the step, the rows in, and the rows out.

use std::collections::BTreeMap;
use std::fmt::Write;

use forebay_model::{Fault, Result};
use forebay_transforms::TRANSFORM_EXAMPLES;
use serde_json::Value;

use crate::spec::{self, ParsedSpec, SpecCatalog};
use crate::step_test::{ExpectedResult, StepTest, TestRow};

/// The examples of a transform in Markdown; empty where there are none.
pub fn of_transform(name: &str, catalog: &SpecCatalog<'_>) -> Result<String> {
    let Some((_, text)) = TRANSFORM_EXAMPLES
        .iter()
        .find(|(example, _)| *example == name)
    else {
        return Ok(String::new());
    };
    let parsed = parse(name, text, catalog)?;
    let mut markdown = String::new();
    for test in &parsed.tests {
        let _ = write!(markdown, "\n{}", example(text, &parsed, test));
    }
    Ok(markdown)
}

/// The spec of an example, which has no faults.
pub fn parse(name: &str, text: &str, catalog: &SpecCatalog<'_>) -> Result<ParsedSpec> {
    let file = format!("{name}.yaml");
    let mut parsed = spec::parse_all(text, &file, &BTreeMap::new(), catalog)?;
    let faults = std::mem::take(&mut parsed.faults);
    Fault::combine(faults).map_or(Ok(parsed), Err)
}

fn example(text: &str, parsed: &ParsedSpec, test: &StepTest) -> String {
    let mut markdown = format!("*{}*{}\n\n", sentence(&test.name), declared(parsed, test));
    markdown.push_str("<!-- example: its own test runs it -->\n```yaml\n");
    markdown.push_str(&step_text(text, &test.step));
    markdown.push_str("```\n\n");
    let rows = match &test.expected {
        ExpectedResult::Rows(rows) => rows,
        ExpectedResult::Fault(code) => {
            markdown.push_str(&tables_of_given(test));
            let _ = writeln!(markdown, "\nThe run ends with {}.", code.name);
            return markdown;
        }
    };
    if let [input] = test.given.as_slice()
        && let Some(table) = joined_table(&input.rows, rows)
    {
        markdown.push_str(&table);
        return markdown;
    }
    markdown.push_str(&tables_of_given(test));
    markdown.push_str("\nRows out:\n\n");
    markdown.push_str(&table(rows, &[]));
    markdown
}

fn tables_of_given(test: &StepTest) -> String {
    let mut markdown = String::new();
    for input in &test.given {
        if !markdown.is_empty() {
            markdown.push('\n');
        }
        let _ = write!(markdown, "Rows of `{}`:\n\n", input.source);
        markdown.push_str(&table(&input.rows, &[]));
    }
    markdown
}

/// The time and the keys that the source declares, where the example has one source.
fn declared(parsed: &ParsedSpec, test: &StepTest) -> String {
    let [input] = test.given.as_slice() else {
        return String::new();
    };
    let mut sources = parsed.pipeline.sources.iter();
    let Some(source) = sources.find(|source| source.name == input.source) else {
        return String::new();
    };
    let Some(time) = &source.time else {
        return String::new();
    };
    let keys = source.keys.join(", ");
    format!(" (source with `time: {time}`, `keys: [{keys}]`)")
}

/// One table of rows in and rows out, where the step adds columns and keeps the others. The new columns are bold.
fn joined_table(input: &[TestRow], expected: &[TestRow]) -> Option<String> {
    if input.len() != expected.len() {
        return None;
    }
    let given_columns = columns(input);
    let mut new_columns = columns(expected);
    for (row, expected) in input.iter().zip(expected) {
        for column in &given_columns {
            let value = row.get(*column).unwrap_or(&Value::Null);
            if !is_same(value, expected.get(*column)?) {
                return None;
            }
        }
    }
    new_columns.retain(|column| !given_columns.contains(column));
    Some(table(expected, &new_columns))
}

fn is_same(value: &Value, other: &Value) -> bool {
    value == other || value.as_f64().is_some() && value.as_f64() == other.as_f64()
}

/// The columns of some rows, in the order in which they are first named.
fn columns(rows: &[TestRow]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(|row| row.keys()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

fn table(rows: &[TestRow], new_columns: &[&str]) -> String {
    let columns = columns(rows);
    if columns.is_empty() {
        return "none\n".to_owned();
    }
    let mut markdown = String::from("|");
    for column in &columns {
        let is_new = new_columns.contains(column);
        let _ = if is_new {
            write!(markdown, " **`{column}`** |")
        } else {
            write!(markdown, " `{column}` |")
        };
    }
    markdown.push_str("\n|");
    markdown.push_str(&"---|".repeat(columns.len()));
    markdown.push('\n');
    for row in rows {
        markdown.push('|');
        for column in &columns {
            let value = row.get(*column).unwrap_or(&Value::Null);
            let _ = write!(markdown, " {} |", cell(value));
        }
        markdown.push('\n');
    }
    markdown
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.replace('|', "\\|"),
        Value::Array(values) => {
            let cells: Vec<String> = values.iter().map(cell).collect();
            format!("[{}]", cells.join(", "))
        }
        other => other.to_string(),
    }
}

/// The name of a test as the beginning of a sentence.
fn sentence(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    let tail = letters.as_str().replace('_', " ");
    first.into_iter().collect::<String>() + &tail
}

/// The items of `do:` of a step as they are written.
fn step_text(text: &str, step: &str) -> String {
    let head = format!("  {step}:");
    let lines = text.lines().skip_while(|line| *line != "steps:");
    let lines = lines.skip_while(|line| **line != head).skip(1);
    let body: Vec<&str> = lines.take_while(|line| line.starts_with("    ")).collect();
    let mut items = String::new();
    for line in body.iter().filter_map(|line| line.strip_prefix("      ")) {
        items.push_str(line);
        items.push('\n');
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Forebay;
    use crate::present::rows;

    #[test]
    fn every_transform_has_an_example_of_each_setting() {
        let forebay = Forebay::new();
        let catalog = forebay.spec_catalog();
        let schema = catalog.schema();
        let mut settings = 0;
        for kind in forebay_transforms::registry().kinds() {
            let example = TRANSFORM_EXAMPLES
                .iter()
                .find(|(name, _)| *name == kind.name);
            let (_, text) = example.unwrap_or_else(|| panic!("no example of {}", kind.name));
            let variants = schema["$defs"]["AnyTransform"]["oneOf"].as_array().unwrap();
            let variant = variants
                .iter()
                .find(|variant| variant["required"][0] == kind.name)
                .unwrap();
            let reference = variant["properties"][kind.name]["$ref"].as_str().unwrap();
            let body = schema.pointer(reference.trim_start_matches('#')).unwrap();
            let fields = body["properties"].as_object();
            for field in fields.into_iter().flat_map(|fields| fields.keys()) {
                let is_shown = text.contains(&format!("{field}:"));
                assert!(is_shown, "no example of `{field}` of {}", kind.name);
                settings += 1;
            }
        }
        assert!(settings > 200, "{settings} settings");
        assert_eq!(
            TRANSFORM_EXAMPLES.len(),
            forebay_transforms::registry().kinds().count()
        );
    }

    /// True if Python has what the functions of the examples need.
    fn has_pyarrow() -> bool {
        let status = std::process::Command::new("python3")
            .args(["-c", "import pandas, pyarrow"])
            .stderr(std::process::Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }

    #[test]
    fn every_example_holds() {
        let forebay = Forebay::new();
        let catalog = forebay.spec_catalog();
        let session = forebay.session().unwrap();
        let mut failures = String::new();
        for (name, text) in TRANSFORM_EXAMPLES {
            let parsed = parse(name, text, &catalog).unwrap();
            assert!(!parsed.tests.is_empty(), "{name}");
            let mut untested: Vec<&str> = parsed
                .pipeline
                .nodes
                .iter()
                .map(|node| node.name.as_str())
                .collect();
            if ["estimator", "python"].contains(name) && !has_pyarrow() {
                continue;
            }
            for test in &parsed.tests {
                untested.retain(|step| *step != test.step);
                let outcome = test.run(&session, &parsed.pipeline).unwrap();
                if !outcome.differences.is_empty() {
                    let shown = rows::json(&outcome.rows).unwrap();
                    let differences = outcome.differences.join("\n  ");
                    let _ = writeln!(failures, "{name}: {}\n  {differences}\n{shown}", test.name);
                }
            }
            assert!(untested.is_empty(), "{name}: no test of {untested:?}");
        }
        assert!(failures.is_empty(), "{failures}");
    }

    #[test]
    fn rows_in_and_out_are_one_table_where_columns_are_added() {
        let forebay = Forebay::new();
        let markdown = of_transform("clip", &forebay.spec_catalog()).unwrap();
        let expected = "
*Values outside become bounds*

<!-- example: its own test runs it -->
```yaml
- clip: { columns: [qty], min: 0, max: 100, suffix: _clipped }
```

| `qty` | **`qty_clipped`** |
|---|---|
| -3 | 0 |
| 4 | 4 |
| 250 | 100 |
| null | null |
";
        assert_eq!(markdown, expected);
    }
}
