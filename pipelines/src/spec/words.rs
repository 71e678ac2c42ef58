//! What specs can name.

use std::sync::OnceLock;

use forebay_plan::{Read, Registry, Sql};
use schemars::{Schema, SchemaGenerator};
use serde_json::Value;

use super::schema;

/// A format of files that a source reads or a sink writes.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// The key in a spec.
    pub name: &'static str,
    /// The configuration's JSON Schema.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    /// Checks a configuration and fills in its defaults.
    pub canonical: fn(Value) -> Read<Value>,
}

/// The transforms and formats that specs can name, and the JSON Schema that follows from them.
/// Make it once: the schema is generated on first use and kept.
pub struct Words<'a> {
    pub(super) registry: &'a Registry,
    pub(super) sources: &'a [Format],
    pub(super) sinks: &'a [Format],
    schema: OnceLock<Value>,
    sql: OnceLock<Sql>,
}

impl<'a> Words<'a> {
    /// These transforms, formats of sources and formats of sinks.
    pub fn new(registry: &'a Registry, sources: &'a [Format], sinks: &'a [Format]) -> Self {
        Words { registry, sources, sinks, schema: OnceLock::new(), sql: OnceLock::new() }
    }

    /// The JSON Schema of a spec.
    pub fn schema(&self) -> &Value {
        self.schema.get_or_init(|| schema::document(self.registry, self.sources, self.sinks))
    }

    pub(super) fn sql(&self) -> &Sql {
        self.sql.get_or_init(Sql::default)
    }
}
