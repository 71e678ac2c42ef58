//! Settings that lie inside fields, in the reference: each definition of the schema that a field refers to, once.

use std::fmt::Write;

use serde_json::Value;

use super::reference_schema::{OTHER_SECTIONS, fields, one_key_maps, resolved, type_of};

/// Definitions that have sections of their own, or that sections spell out.
const NO_PARTS: [&str; 5] = ["AnyTransform", "Source", "Step", "Sink", "Split"];

/// Definitions that only name others.
const TRANSPARENT: [&str; 4] = ["ColumnTypes", "OnReadError", "Training", "TrainOn"];

/// Titles of definitions whose fields do not tell what they are.
const TITLES: [(&str, &str); 8] = [
    ("ByHash", "by_hash"),
    ("ByTime", "by_time"),
    ("ColumnSelector", "Selections of columns"),
    ("ColumnType", "Types of columns in files"),
    ("Length", "Lengths of time and rows"),
    ("ParamType", "Types of parameters"),
    ("RowExpectation", "Rules of `expect` and `violations`"),
    ("TypeName", "Types of `cast`"),
];

/// A definition, the fields that refer to it, and the sections of these.
struct Part {
    definition: String,
    fields: Vec<String>,
    owners: Vec<String>,
}

/// Place of a part of the schema: the section that it belongs to, and the nearest field.
#[derive(Clone, Copy)]
struct SchemaPlace<'a> {
    owner: &'a str,
    field: &'a str,
}

/// The section about settings inside fields.
pub fn parts(schema: &Value) -> String {
    let mut parts: Vec<Part> = Vec::new();
    let mut roots: Vec<(String, Value)> = Vec::new();
    for definition in ["AnyTransform", "Source", "Sink"] {
        let mut entries: Vec<(String, &Value)> = Vec::new();
        one_key_maps(schema, &schema["$defs"][definition], &mut entries);
        for (name, body) in entries {
            roots.push((name, resolved(schema, body).clone()));
        }
    }
    // Formats have sections of their own.
    let formats: Vec<String> = roots.iter().map(|(name, _)| name.clone()).collect();
    for (title, definition, _) in OTHER_SECTIONS {
        let mut body = schema["$defs"][definition].clone();
        if let Some(properties) = body["properties"].as_object_mut() {
            properties.retain(|name, _| !formats.contains(name));
        }
        roots.push((title.to_lowercase(), body));
    }
    roots.push(("split".to_owned(), schema["$defs"]["Split"].clone()));
    for (owner, root) in &roots {
        let position = SchemaPlace { owner, field: "" };
        collect(schema, root, position, &mut parts);
    }
    let titles: Vec<String> = parts.iter().map(title).collect();
    let mut sections: Vec<(String, &Value)> = Vec::new();
    for (part, title) in parts.iter().zip(&titles) {
        let is_alone = titles.iter().filter(|other| *other == title).count() == 1;
        let title = if is_alone {
            title.clone()
        } else {
            format!("{title} of {}", part.owners.join(", "))
        };
        sections.push((title, &schema["$defs"][&part.definition]));
    }
    sections.sort_by_key(|(title, _)| title.to_lowercase());
    let mut text = String::from(
        "\n## Settings inside fields\n\n\
         Fields of maps and the meaning of words, by the field that has them.\n",
    );
    for (title, body) in sections {
        let _ = write!(text, "\n### {title}\n");
        if let Some(description) = body["description"].as_str() {
            let _ = write!(text, "\n{description}\n");
        }
        fields(&mut text, schema, body);
        choices(&mut text, schema, body);
    }
    text
}

fn title(part: &Part) -> String {
    let listed = TITLES
        .iter()
        .find(|(definition, _)| *definition == part.definition);
    if let Some((_, title)) = listed {
        return (*title).to_owned();
    }
    let names: Vec<String> = part.fields.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Adds the definitions that a part of the schema refers to, those inside them too.
fn collect(schema: &Value, part: &Value, position: SchemaPlace<'_>, parts: &mut Vec<Part>) {
    if let Some(reference) = part["$ref"].as_str() {
        let definition = reference.rsplit('/').next().unwrap_or_default();
        return collect_definition(schema, definition, position, parts);
    }
    for (name, property) in part["properties"].as_object().into_iter().flatten() {
        let inner = SchemaPlace {
            field: name,
            ..position
        };
        collect(schema, property, inner, parts);
    }
    for choices in ["oneOf", "anyOf", "allOf", "prefixItems"] {
        for choice in part[choices].as_array().into_iter().flatten() {
            // The models of a training are choices of the format itself.
            if position.field.is_empty() && choice.get("$ref").is_some() {
                collect(schema, resolved(schema, choice), position, parts);
            } else {
                collect(schema, choice, position, parts);
            }
        }
    }
    for inner in ["items", "additionalProperties"] {
        if part[inner].is_object() {
            let field = if position.field.is_empty() {
                "rules"
            } else {
                position.field
            };
            collect(
                schema,
                &part[inner],
                SchemaPlace { field, ..position },
                parts,
            );
        }
    }
}

fn collect_definition(
    schema: &Value,
    definition: &str,
    position: SchemaPlace<'_>,
    parts: &mut Vec<Part>,
) {
    let body = &schema["$defs"][definition];
    if TRANSPARENT.contains(&definition) {
        return collect(schema, body, position, parts);
    }
    if NO_PARTS.contains(&definition) || position.field.is_empty() || !says_more(body) {
        return;
    }
    let same = parts.iter_mut().find(|part| part.definition == definition);
    let Some(part) = same else {
        parts.push(Part {
            definition: definition.to_owned(),
            fields: vec![position.field.to_owned()],
            owners: vec![position.owner.to_owned()],
        });
        return collect(schema, body, position, parts);
    };
    if !part.fields.iter().any(|name| name == position.field) {
        part.fields.push(position.field.to_owned());
    }
    if !part.owners.iter().any(|name| name == position.owner) {
        part.owners.push(position.owner.to_owned());
    }
}

/// True if a definition has fields, or describes what its words mean.
fn says_more(body: &Value) -> bool {
    let has_fields = body["properties"].is_object();
    let describes = |choice: &Value| choice["description"].is_string();
    let choices = ["oneOf", "anyOf"]
        .iter()
        .flat_map(|key| body[*key].as_array().into_iter().flatten());
    let is_described_text = body["pattern"].is_string() || body["type"] == "array";
    has_fields || choices.into_iter().any(describes) || is_described_text && describes(body)
}

/// A table of the words and the forms of a definition.
fn choices(text: &mut String, schema: &Value, body: &Value) {
    let choices: Vec<&Value> = ["oneOf", "anyOf"]
        .iter()
        .flat_map(|key| body[*key].as_array().into_iter().flatten())
        .filter(|choice| choice["type"] != "null")
        .collect();
    let is_said = |choice: &&Value| choice["description"].is_string();
    if !choices.iter().any(is_said) {
        return;
    }
    text.push_str("\n| value | |\n|---|---|\n");
    for choice in choices {
        let described = resolved(schema, choice);
        let about = [choice, described]
            .iter()
            .find_map(|body| body["description"].as_str())
            .unwrap_or_default();
        let about = about.replace('\n', " ").replace('|', "\\|");
        let _ = writeln!(text, "| {} | {about} |", type_of(schema, choice));
    }
}
