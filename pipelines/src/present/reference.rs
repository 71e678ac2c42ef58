//! The reference of everything that a spec can say, as Markdown, from the JSON Schema.

use std::fmt::Write;

use serde_json::Value;

use super::fault_pages;

/// What is no transform and no format.
const OTHER_SECTIONS: [(&str, &str, &str); 7] = [
    (
        "Every source",
        "Source",
        "A source has one format and these.",
    ),
    (
        "ready",
        "Ready",
        "What a run waits for: a field of sources.",
    ),
    (
        "Every step",
        "Step",
        "A step has one of `from`, `union` and `sql`.",
    ),
    ("Every sink", "Sink", "A sink has one format and these."),
    (
        "deadline",
        "Deadline",
        "When a run should be done, and what it may do to be: `deadline:` of the spec.",
    ),
    (
        "feed",
        "Feed",
        "What mini-batches for training are made of: `feed:` of the spec.",
    ),
    (
        "tests",
        "Test",
        "What steps make of given rows: `tests:` of the spec, by name. `forebay test` runs them.",
    ),
];

/// One section for each transform and format, in the order of the schema.
pub fn markdown(schema: &Value) -> String {
    let mut text = String::from(
        "# Reference\n\nMade by `forebay schema --format markdown` from the types; do not edit.\n\
         Columns are named, matched (`qty_*`) or chosen by type (`type:float`).\n",
    );
    section(
        &mut text,
        schema,
        "Transforms",
        "AnyTransform",
        "Items of `do:`, in order.",
    );
    section(
        &mut text,
        schema,
        "Sources",
        "Source",
        "One of these keys, beside those of every source.",
    );
    section(
        &mut text,
        schema,
        "Sinks",
        "Sink",
        "One of these keys, beside those of every sink.",
    );
    text.push_str("\n## Beside them\n");
    for (title, definition, about) in OTHER_SECTIONS {
        let _ = write!(text, "\n### {title}\n\n{about}\n");
        fields(&mut text, schema, &schema["$defs"][definition]);
    }
    text.push_str("\n## Faults\n\n`forebay explain CODE` prints the page of a code.\n");
    text.push_str(&fault_pages::pages());
    text
}

fn section(text: &mut String, schema: &Value, title: &str, definition: &str, about: &str) {
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
        // Configurations that a field tells apart: `model` of `train`.
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
    }
}

/// A table of the fields of a definition, but for formats and transforms: they have sections of their own.
fn fields(text: &mut String, schema: &Value, body: &Value) {
    let Some(properties) = body["properties"].as_object() else {
        return;
    };
    let is_format = |name: &str, property: &Value| {
        let mut choices = body["oneOf"].as_array().into_iter().flatten();
        name == "do"
            || property.get("$ref").is_some() && choices.any(|one| one["required"][0] == name)
    };
    let required: Vec<&str> = body["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    text.push_str("\n| field | type | default | |\n|---|---|---|---|\n");
    for (field, property) in properties
        .iter()
        .filter(|(name, property)| !is_format(name, property))
    {
        let default = match (required.contains(&field.as_str()), property.get("default")) {
            (true, _) => "required".to_owned(),
            (false, Some(Value::Null) | None) => String::new(),
            (false, Some(default)) => format!("`{default}`"),
        };
        let about = property["description"]
            .as_str()
            .unwrap_or_default()
            .replace('\n', " ")
            .replace('|', "\\|");
        let _ = writeln!(
            text,
            "| `{field}` | {} | {default} | {about} |",
            type_of(schema, property)
        );
    }
}

/// Properties whose value is a definition of its own, wherever the schema lists choices.
fn one_key_maps<'a>(schema: &'a Value, part: &'a Value, entries: &mut Vec<(String, &'a Value)>) {
    for choices in ["oneOf", "anyOf", "allOf"] {
        part[choices]
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|choice| one_key_maps(schema, choice, entries));
    }
    for (name, property) in part["properties"].as_object().into_iter().flatten() {
        let target = resolved(schema, property);
        let configured = property.get("$ref").is_some()
            && !matches!(name.as_str(), "from" | "split" | "time" | "keys");
        if configured
            && target.get("description").is_some()
            && !entries.iter().any(|(known, _)| known == name)
        {
            entries.push((name.clone(), property));
        }
    }
}

fn resolved<'a>(schema: &'a Value, part: &'a Value) -> &'a Value {
    match part["$ref"]
        .as_str()
        .and_then(|path| path.strip_prefix("#/$defs/"))
    {
        Some(name) => &schema["$defs"][name],
        None => part,
    }
}

/// A short name of a type: choices in full, lists by their items.
fn type_of(schema: &Value, part: &Value) -> String {
    let target = resolved(schema, part);
    let listed = |items: &Value| -> Vec<String> {
        items
            .as_array()
            .into_iter()
            .flatten()
            .map(|item| type_of(schema, item))
            .collect()
    };
    if let Some(constant) = target.get("const") {
        return format!(
            "`{}`",
            constant
                .as_str()
                .map_or_else(|| constant.to_string(), str::to_owned)
        );
    }
    if let Some(choices) = target["enum"].as_array() {
        let words = choices
            .iter()
            .filter_map(Value::as_str)
            .map(|word| format!("`{word}`"));
        return words.collect::<Vec<_>>().join(", ");
    }
    for choices in ["oneOf", "anyOf"] {
        let mut words = listed(&target[choices]);
        words.retain(|word| word != "null");
        if !words.is_empty() {
            return words.join(", ");
        }
    }
    match &target["type"] {
        Value::String(name) if name == "array" => {
            format!("list of {}", type_of(schema, &target["items"]))
        }
        Value::String(name) if name == "object" => {
            match target["properties"].as_object().map(|p| p.iter().next()) {
                Some(Some((key, value))) if target["required"].is_array() => {
                    format!("`{key}: {}`", type_of(schema, value).replace('`', ""))
                }
                _ => "map".to_owned(),
            }
        }
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            let names = names
                .iter()
                .filter_map(Value::as_str)
                .filter(|name| *name != "null");
            names
                .map(|name| {
                    if name == "array" {
                        format!("list of {}", type_of(schema, &target["items"]))
                    } else {
                        name.to_owned()
                    }
                })
                .collect::<Vec<_>>()
                .join(", ")
        }
        _ => "any".to_owned(),
    }
}
