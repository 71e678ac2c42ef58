//! JSON Schema of the whole document, which editors use for completion, and which specs are checked
//! against.

use forebay_run::FeedConfig;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::check::is_open;
use super::compat::YamlCompat;
use super::wire::{
    AnyTransform, NamedMap, SpecName, YamlDeadline, YamlLabel, YamlParam, YamlServing, YamlSink,
    YamlSource, YamlSplit, YamlStep, YamlTest,
};
use super::words::{ConnectorFormat, SpecCatalog};

impl SpecCatalog<'_> {
    /// The JSON Schema of a spec.
    pub fn schema(&self) -> &Value {
        self.schema.get_or_init(|| document(self, &|_| true))
    }

    /// Schema with the parts that a spec of this text can need: transforms whose names do not occur
    /// are left open.
    pub(super) fn schema_for_text(&self, text: &str) -> Value {
        document(self, &|name| text.contains(name))
    }
}

/// The schema of the document. Transforms, formats and sections that are not used have their names alone.
fn document(words: &SpecCatalog<'_>, is_used: &dyn Fn(&str) -> bool) -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .for_deserialize()
        .into_generator();
    let used = |name: &str, schema: SchemaFn| if is_used(name) { schema } else { no_schema };
    let properties = json!({
        "version": {
            "type": "integer",
            "const": 1,
            "description": "The version of this language.",
        },
        "name": described(subschema::<SpecName>(&mut generator), "Names the artifact."),
        "params": described(
            subschema::<NamedMap<YamlParam>>(&mut generator),
            "What `--param` can set.",
        ),
        "compat": used("compat", subschema::<YamlCompat>)(&mut generator),
        "sources": described(
            subschema::<NamedMap<YamlSource>>(&mut generator),
            "Where data comes from.",
        ),
        "steps": described(
            subschema::<NamedMap<YamlStep>>(&mut generator),
            "What is done with it.",
        ),
        "label": used("label", subschema::<YamlLabel>)(&mut generator),
        "split": used("split", subschema::<YamlSplit>)(&mut generator),
        "deadline": used("deadline", subschema::<YamlDeadline>)(&mut generator),
        "serving": used("serving", subschema::<YamlServing>)(&mut generator),
        "sinks": described(
            subschema::<NamedMap<YamlSink>>(&mut generator),
            "Where output is committed.",
        ),
        "feed": used("feed", subschema::<FeedConfig>)(&mut generator),
        "tests": described(
            used("tests", subschema::<NamedMap<YamlTest>>)(&mut generator),
            "What steps make of given rows.",
        ),
    });
    let kinds = words
        .registry
        .kinds()
        .map(|kind| (kind.name, used(kind.name, kind.schema)));
    let transforms = one_key_choice(&mut generator, "transform", kinds);
    let sources = format_schemas(&mut generator, words.sources, is_used);
    let sinks = format_schemas(&mut generator, &words.sinks, is_used);
    let mut definitions = generator.take_definitions(true);
    definitions.insert(AnyTransform::name(), transforms);
    add_formats(&mut definitions, "Source", sources);
    add_formats(&mut definitions, "Sink", sinks);
    for definition in definitions.values_mut() {
        forbid_unknown_fields(definition);
        drop_rust_examples(definition);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Forebay pipeline",
        "type": "object",
        "properties": properties,
        "required": ["version", "name", "sources"],
        "additionalProperties": false,
        "$defs": definitions,
    })
}

fn described(mut schema: Schema, description: &str) -> Schema {
    schema.insert("description".to_owned(), description.into());
    schema
}

/// Begins and ends a block of an example.
const FENCE: &str = "```";

type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// `oneOf` maps with one key each.
fn one_key_choice(
    generator: &mut SchemaGenerator,
    noun: &str,
    kinds: impl Iterator<Item = (&'static str, SchemaFn)>,
) -> Value {
    let variants = kinds.map(|(name, schema)| {
        let schema = schema(generator).to_value();
        let mut variant = json!({
            "type": "object", "properties": {}, "required": [name], "additionalProperties": false,
        });
        if let Some(description) = description(generator, &schema) {
            variant["description"] = description;
        }
        variant["properties"][name] = schema;
        variant
    });
    let variants: Vec<Value> = variants.collect();
    json!({ "title": noun, "oneOf": variants })
}

/// A dataset has its own fields and one format among them.
fn add_formats(
    definitions: &mut Map<String, Value>,
    name: &str,
    formats: Vec<(&'static str, Value)>,
) {
    let Some(definition) = definitions.get_mut(name) else {
        return;
    };
    let one_of: Vec<Value> = formats
        .iter()
        .map(|(format, _)| json!({ "required": [format] }))
        .collect();
    if !one_of.is_empty() {
        definition["oneOf"] = one_of.into();
    }
    for (format, schema) in formats {
        definition["properties"][format] = schema;
    }
}

fn description(generator: &SchemaGenerator, schema: &Value) -> Option<Value> {
    let described = schema.get("description");
    let referred = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| reference.rsplit('/').next());
    let referred = referred.and_then(|name| generator.definitions().get(name)?.get("description"));
    described.or(referred).cloned()
}

/// Removes Rust examples from descriptions, which are doc comments, since they are useless to
/// authors of specs.
fn drop_rust_examples(schema: &mut Value) {
    if let Some(Value::String(description)) = schema.get_mut("description")
        && description.contains(FENCE)
    {
        *description = without_rust_examples(description);
    }
}

/// The text without fenced blocks that rustdoc compiles: those that name no other language.
fn without_rust_examples(text: &str) -> String {
    let mut lines = Vec::new();
    let mut fence = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix(FENCE), fence) {
            (Some(language), None) => {
                let is_rust = matches!(
                    language.trim(),
                    "" | "rust" | "no_run" | "ignore" | "should_panic"
                );
                fence = Some(is_rust);
                lines.extend((!is_rust).then_some(line));
            }
            (Some(_), Some(is_rust)) => {
                fence = None;
                lines.extend((!is_rust).then_some(line));
            }
            (None, inside) => lines.extend((inside != Some(true)).then_some(line)),
        }
    }
    let text = lines.join("\n");
    text.replace("\n\n\n", "\n\n").trim().to_owned()
}

/// Forbids fields that a map does not list, even if its type allows them.
fn forbid_unknown_fields(schema: &mut Value) {
    let open = is_open(schema);
    if let Value::Object(object) = schema {
        let lists = object
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(|fields| !fields.is_empty());
        if lists && !open && !object.contains_key("additionalProperties") {
            object.insert("additionalProperties".into(), false.into());
        }
        for part in [
            "properties",
            "oneOf",
            "anyOf",
            "items",
            "additionalProperties",
        ] {
            match object.get_mut(part) {
                Some(Value::Object(inner)) if part == "properties" => {
                    inner.values_mut().for_each(forbid_unknown_fields)
                }
                Some(Value::Array(inner)) => inner.iter_mut().for_each(forbid_unknown_fields),
                Some(inner) => forbid_unknown_fields(inner),
                None => {}
            }
        }
    }
}

impl AnyTransform {
    fn name() -> String {
        <AnyTransform as JsonSchema>::schema_name().into_owned()
    }
}

/// The schema of a section that is not used.
fn no_schema(_: &mut SchemaGenerator) -> Schema {
    Schema::default()
}

/// Schemas of formats by name, empty for those that are not used.
fn format_schemas(
    generator: &mut SchemaGenerator,
    formats: &[ConnectorFormat],
    is_used: &dyn Fn(&str) -> bool,
) -> Vec<(&'static str, Value)> {
    let mut schemas = Vec::with_capacity(formats.len());
    for format in formats {
        let schema = if is_used(format.name) {
            (format.schema)(generator)
        } else {
            no_schema(generator)
        };
        schemas.push((format.name, schema.to_value()));
    }
    schemas
}

fn subschema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_in_rust_are_left_out_and_others_stay() {
        let cases = [
            ("Reads files.\n\n```\nlet a = 1;\n```", "Reads files."),
            (
                "Reads files.\n\n```no_run\nlet a = 1;\n```\n\nAll of them.",
                "Reads files.\n\nAll of them.",
            ),
            (
                "Reads files.\n\n```yaml\na: 1\n```",
                "Reads files.\n\n```yaml\na: 1\n```",
            ),
            (
                "```yaml\na: 1\n```\n```\nlet a = 1;\n```",
                "```yaml\na: 1\n```",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(without_rust_examples(text), expected);
        }
    }
}
