//! Reference of everything that a spec can contain, as Markdown, from the JSON Schema.

use std::fmt::Write;

use forebay_connectors::FORMAT_EXAMPLES;
use forebay_model::Result;
use serde_json::Value;

use super::reference_parts::parts;
use super::reference_schema::{OTHER_SECTIONS, fields, one_key_maps, resolved, type_of};
use super::{examples, fault_pages, reference_sql};
use crate::spec::SpecCatalog;

/// The forms of `split:`, which the documentation test runs.
const SPLIT: &str = "
### split

Parts of the rows, such as `train` and `validation`: `split:` of the spec. \
A step with `fit_on: train` learns from that
part alone, a sink with `split: train` writes it. Three forms:

By conditions. A row belongs to the part whose condition is true; \
a row for which none is true belongs to no part.

```yaml
split: { train: \"date < DATE '2024-03-01'\", validation: \"date >= DATE '2024-03-01'\" }
```

By time. Each end belongs to the next part. \
Rows so close before an end as `embargo` says belong to no part.

```yaml
split: { by_time: { column: date, parts: [train, validation], \
ends: [\"2024-03-01\"], embargo: 7d } }
```

An end may move with the data: behind `last 28d` are the rows of the last 28 days, \
up to the newest time that the sources of the divided rows have, or have before the end of an \
interval. \
Each run finds that time; the artifact holds the dates. A source has to declare its `time`.

```yaml
split: { by_time: { column: date, parts: [train, validation], ends: [last 28d] } }
```

At random. A hash of the keys chooses the part: rows with the same keys are in one part, \
in every run and on every
machine, also as data grows. Where rows have no key, name columns that together tell rows apart.

```yaml
split: { by_hash: { keys: [store, item], parts: { train: 0.8, validation: 0.2 }, seed: 0 } }
```
";

/// A section for each transform and format, in the order of the schema.
pub fn markdown(schema: &Value, catalog: &SpecCatalog<'_>) -> Result<String> {
    let mut text = String::from(
        "# Reference\n\nMade by `forebay schema --format markdown` from the types; do not edit.\n\
         Columns are named, matched (`qty_*`) or chosen by type (`type:float`).\n\n\
         ## The spec\n\nThe sections of a spec.\n",
    );
    fields(&mut text, schema, schema);
    section(
        &mut text,
        schema,
        "Transforms",
        "AnyTransform",
        "Items of `do:`, in order. Each example is a test: new columns are bold.",
        &|name| examples::of_transform(name, catalog),
    )?;
    section(
        &mut text,
        schema,
        "Sources",
        "Source",
        "One of these keys, beside those of every source.",
        &|name| Ok(format_example("source", name)),
    )?;
    section(
        &mut text,
        schema,
        "Sinks",
        "Sink",
        "One of these keys, beside those of every sink.",
        &|name| Ok(format_example("sink", name)),
    )?;
    text.push_str("\n## Beside them\n");
    for (title, definition, about) in OTHER_SECTIONS {
        let _ = write!(text, "\n### {title}\n\n{about}\n");
        fields(&mut text, schema, &schema["$defs"][definition]);
    }
    text.push_str(SPLIT);
    text.push_str(&parts(schema));
    text.push_str(&reference_sql::markdown());
    text.push_str("\n## Faults\n\n`forebay explain CODE` prints the page of a code.\n");
    text.push_str(&fault_pages::pages());
    Ok(text)
}

/// The example of a format; empty where there is none.
fn format_example(section: &str, name: &str) -> String {
    let example = FORMAT_EXAMPLES
        .iter()
        .find(|(of, format, _)| *of == section && *format == name);
    example.map_or_else(String::new, |(_, _, text)| format!("\n{text}"))
}

fn section(
    text: &mut String,
    schema: &Value,
    title: &str,
    definition: &str,
    about: &str,
    example: &dyn Fn(&str) -> Result<String>,
) -> Result<()> {
    let _ = write!(text, "\n## {title}\n\n{about}\n");
    let mut entries: Vec<(String, &Value)> = Vec::new();
    one_key_maps(schema, &schema["$defs"][definition], &mut entries);
    for (name, reference) in entries {
        let body = resolved(schema, reference);
        let _ = write!(text, "\n### {name}\n");
        if let Some(description) = body["description"].as_str() {
            let _ = write!(text, "\n{description}\n");
        }
        fields(text, schema, body);
        // Configurations that a field distinguishes: `model` of `train`.
        for choice in body["anyOf"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|choice| choice.get("$ref").is_some())
        {
            let body = resolved(schema, choice);
            let _ = write!(
                text,
                "\n#### {}\n",
                match body["properties"].get("model") {
                    Some(model) => format!("`model`: {}", type_of(schema, model)),
                    None => "As a map".to_owned(),
                }
            );
            let _ = write!(
                text,
                "\n{}\n",
                body["description"].as_str().unwrap_or_default()
            );
            fields(text, schema, body);
        }
        text.push_str(&example(&name)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Forebay;

    #[test]
    fn every_format_has_an_example_of_each_setting() {
        let forebay = Forebay::new();
        let catalog = forebay.spec_catalog();
        let schema = catalog.schema();
        let mut formats = 0;
        for (section, definition) in [("source", "Source"), ("sink", "Sink")] {
            let mut entries: Vec<(String, &Value)> = Vec::new();
            one_key_maps(schema, &schema["$defs"][definition], &mut entries);
            for (name, reference) in entries.iter().filter(|(name, _)| name != "ready") {
                let text = format_example(section, name);
                assert!(!text.is_empty(), "{section} {name}");
                formats += 1;
                // The guide shows trainings, whose fields go by the model.
                if name == "train" {
                    continue;
                }
                let fields = resolved(schema, reference)["properties"].as_object();
                for field in fields.into_iter().flat_map(|fields| fields.keys()) {
                    let is_shown = text.contains(&format!("{field}:"));
                    assert!(is_shown, "no example of `{field}` of {section} {name}");
                }
            }
        }
        assert_eq!(formats, FORMAT_EXAMPLES.len());
    }

    /// Each field of each map that a spec may hold has a row in the reference.
    #[test]
    fn every_field_is_in_the_reference() {
        let forebay = Forebay::new();
        let catalog = forebay.spec_catalog();
        let schema = catalog.schema();
        let text = markdown(schema, &catalog).unwrap();
        let mut missing = Vec::new();
        for (definition, body) in schema["$defs"].as_object().unwrap() {
            for field in body["properties"].as_object().into_iter().flatten() {
                let row = format!("| `{}` |", field.0);
                let is_section = text.contains(&format!("\n### {}\n", field.0));
                if !text.contains(&row) && !is_section && field.0 != "do" {
                    missing.push(format!("{definition}.{}", field.0));
                }
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }
}
