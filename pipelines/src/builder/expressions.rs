//! The SQL expressions in a configuration, as its schema names them.

use forebay_plan::TransformRegistry;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// Finds the expressions of steps.
pub(super) struct ExpressionFinder {
    registry: TransformRegistry,
}

/// The schema of a configuration, and what it refers to.
struct SchemaWalk<'s> {
    definitions: &'s Map<String, Value>,
    found: Vec<String>,
}

impl ExpressionFinder {
    /// Of steps of the transforms that come with Forebay: those of others are looked at when they are bound.
    pub fn new() -> ExpressionFinder {
        ExpressionFinder {
            registry: forebay_transforms::registry(),
        }
    }

    /// The expressions of a step, in the order of its configuration.
    pub fn expressions(&self, kind: &str, config: &Value) -> Vec<String> {
        let Ok(kind) = self.registry.kind(kind) else {
            return Vec::new();
        };
        let mut generator = SchemaSettings::draft2020_12()
            .for_deserialize()
            .into_generator();
        let schema = (kind.schema)(&mut generator).to_value();
        let definitions = generator.take_definitions(true);
        let mut walk = SchemaWalk {
            definitions: &definitions,
            found: Vec::new(),
        };
        walk.visit(config, &schema);
        walk.found
    }
}

impl SchemaWalk<'_> {
    fn visit(&mut self, value: &Value, schema: &Value) {
        let referred = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|path| path.rsplit('/').next());
        let definitions = self.definitions;
        if let Some(target) = referred.and_then(|name| definitions.get(name)) {
            self.visit(value, target);
        }
        match value {
            Value::String(text) if schema.get("format").is_some_and(|format| format == "sql") => {
                self.found.push(text.clone());
            }
            Value::Array(items) => {
                let inner = schema.get("items");
                items
                    .iter()
                    .zip(inner.into_iter().cycle())
                    .for_each(|(item, inner)| self.visit(item, inner));
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    let own = schema.get("properties").and_then(|own| own.get(name));
                    if let Some(inner) = own.or(schema.get("additionalProperties")) {
                        self.visit(field, inner);
                    }
                }
            }
            _ => {}
        }
        for variants in ["anyOf", "oneOf", "allOf"]
            .iter()
            .filter_map(|key| schema.get(key)?.as_array())
        {
            // A text that is one of a few words is no expression.
            let is_word = |variant: &Value| {
                let words = variant.get("enum").and_then(Value::as_array);
                words.is_some_and(|words| words.contains(value))
                    || variant.get("const") == Some(value)
            };
            let resolved = |variant: &Value| {
                let name = variant
                    .get("$ref")
                    .and_then(Value::as_str)
                    .and_then(|path| path.rsplit('/').next());
                is_word(
                    name.and_then(|name| definitions.get(name))
                        .unwrap_or(variant),
                )
            };
            if !variants.iter().any(resolved) {
                variants
                    .iter()
                    .for_each(|variant| self.visit(value, variant));
            }
        }
    }
}
