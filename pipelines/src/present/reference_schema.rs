//! The schema in the reference: its sections, tables of fields, and types in words.

use std::fmt::Write;

use serde_json::Value;

/// Sections about neither a transform nor a format.
pub(super) const OTHER_SECTIONS: [(&str, &str, &str); 11] = [
    (
        "params",
        "Param",
        "What `--param NAME=VALUE` can set, by name: `params:` of the spec. \
         `${name}` in a text stands for the value.",
    ),
    (
        "label",
        "Label",
        "The column that is predicted, and how long before: `label:` of the spec.",
    ),
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
        "days",
        "Days",
        "What a run makes of days that are late, duplicate or empty: a field of sources.",
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
        "serving",
        "Serving",
        "The step whose rows are served one by one: `serving:` of the spec.",
    ),
    (
        "tests",
        "Test",
        "What steps make of given rows: `tests:` of the spec, by name. `forebay test` runs them.",
    ),
];

/// A table of the fields of a definition, but for formats and transforms: they have sections of their own.
pub(super) fn fields(text: &mut String, schema: &Value, body: &Value) {
    let Some(properties) = body["properties"].as_object() else {
        return;
    };
    let is_format = |name: &str, property: &Value| {
        let mut choices = body["oneOf"].as_array().into_iter().flatten();
        name == "do"
            || property.get("$ref").is_some() && choices.any(|choice| choice["required"][0] == name)
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
        let description = property["description"].as_str();
        // Of a definition with a section of its own, the first paragraph.
        let definition = resolved(schema, property)["description"].as_str();
        let first = definition.and_then(|text| text.split("\n\n").next());
        let about = description.or(first).unwrap_or_default();
        let about = about.replace('\n', " ").replace('|', "\\|");
        let _ = writeln!(
            text,
            "| `{field}` | {} | {default} | {about} |",
            type_of(schema, property)
        );
    }
}

/// Properties whose value is a definition of its own, wherever the schema lists choices.
pub(super) fn one_key_maps<'a>(
    schema: &'a Value,
    part: &'a Value,
    entries: &mut Vec<(String, &'a Value)>,
) {
    for choices in ["oneOf", "anyOf", "allOf"] {
        for choice in part[choices].as_array().into_iter().flatten() {
            one_key_maps(schema, choice, entries);
        }
    }
    for (name, property) in part["properties"].as_object().into_iter().flatten() {
        let target = resolved(schema, property);
        let configured = property.get("$ref").is_some()
            && !matches!(name.as_str(), "from" | "split" | "time" | "keys");
        if configured
            && target.get("description").is_some()
            && !entries.iter().any(|(entry, _)| entry == name)
        {
            entries.push((name.clone(), property));
        }
    }
}

pub(super) fn resolved<'a>(schema: &'a Value, part: &'a Value) -> &'a Value {
    match part["$ref"]
        .as_str()
        .and_then(|path| path.strip_prefix("#/$defs/"))
    {
        Some(name) => &schema["$defs"][name],
        None => part,
    }
}

/// A short name of a type: choices in full, lists by their items.
pub(super) fn type_of(schema: &Value, part: &Value) -> String {
    let target = resolved(schema, part);
    if let Some(constant) = target.get("const") {
        return match constant.as_str() {
            Some(word) => format!("`{word}`"),
            None => format!("`{constant}`"),
        };
    }
    if let Some(choices) = target["enum"].as_array() {
        let words = choices.iter().filter_map(Value::as_str);
        let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
        return words.join(", ");
    }
    for choices in ["oneOf", "anyOf"] {
        let mut words = Vec::new();
        for choice in target[choices].as_array().into_iter().flatten() {
            let word = type_of(schema, choice);
            if word != "null" {
                words.push(word);
            }
        }
        if !words.is_empty() {
            return words.join(", ");
        }
    }
    match &target["type"] {
        Value::String(name) if name == "object" => object_type(schema, target),
        Value::String(name) => plain_type(schema, target, name),
        Value::Array(names) => {
            let mut types = Vec::new();
            for name in names.iter().filter_map(Value::as_str) {
                if name != "null" {
                    types.push(plain_type(schema, target, name));
                }
            }
            types.join(", ")
        }
        _ => "any".to_owned(),
    }
}

fn plain_type(schema: &Value, target: &Value, name: &str) -> String {
    if name == "array" {
        return format!("list of {}", type_of(schema, &target["items"]));
    }
    name.to_owned()
}

/// A map; one with fields that are needed by its first field.
fn object_type(schema: &Value, target: &Value) -> String {
    let properties = target["properties"].as_object();
    let first = properties.and_then(|properties| properties.iter().next());
    match first {
        Some((key, value)) if target["required"].is_array() => {
            format!("`{key}: {}`", type_of(schema, value).replace('`', ""))
        }
        _ => "map".to_owned(),
    }
}
