//! The SQL expressions in a configuration, as its schema names them.

use forebay_plan::TransformRegistry;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// Finds the expressions of steps.
pub(super) struct ExpressionFinder {
    registry: TransformRegistry,
}

/// Search of the schema of a configuration for expressions.
struct SchemaWalk<'s> {
    definitions: &'s Map<String, Value>,
    found: Vec<String>,
}

impl ExpressionFinder {
    /// Finds expressions of the built-in transforms: those of others are checked when they are
    /// bound.
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

impl<'s> SchemaWalk<'s> {
    fn visit(&mut self, value: &Value, schema: &Value) {
        if let Some(target) = self.referred(schema) {
            self.visit(value, target);
        }
        match value {
            Value::String(text) if schema.get("format").is_some_and(|format| format == "sql") => {
                self.found.push(text.clone());
            }
            Value::Array(items) => {
                if let Some(inner) = schema.get("items") {
                    for item in items {
                        self.visit(item, inner);
                    }
                }
            }
            Value::Object(fields) => {
                let properties = schema.get("properties");
                let others = schema.get("additionalProperties");
                for (name, field) in fields {
                    let property = properties.and_then(|properties| properties.get(name));
                    if let Some(inner) = property.or(others) {
                        self.visit(field, inner);
                    }
                }
            }
            _ => {}
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            let Some(variants) = schema.get(key).and_then(Value::as_array) else {
                continue;
            };
            // A text that is one of a few words is no expression.
            let is_word = variants.iter().any(|variant| {
                let variant = self.referred(variant).unwrap_or(variant);
                is_word_of(value, variant)
            });
            if is_word {
                continue;
            }
            for variant in variants {
                self.visit(value, variant);
            }
        }
    }

    /// The definition that a schema refers to.
    fn referred(&self, schema: &Value) -> Option<&'s Value> {
        let path = schema.get("$ref")?.as_str()?;
        let name = path.rsplit('/').next()?;
        self.definitions.get(name)
    }
}

/// True if a value is one of the words that a schema lists.
fn is_word_of(value: &Value, schema: &Value) -> bool {
    let words = schema.get("enum").and_then(Value::as_array);
    words.is_some_and(|words| words.contains(value)) || schema.get("const") == Some(value)
}
