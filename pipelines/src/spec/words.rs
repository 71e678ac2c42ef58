//! What specs can name.

use std::sync::OnceLock;

pub use forebay_connectors::Format;
use forebay_plan::{Registry, Sql};
use serde_json::Value;

use super::schema;

/// The transforms and formats that specs can name, and the JSON Schema that follows from them.
/// Make it once: the schema is generated on first use and kept.
pub struct Words<'a> {
    pub(super) registry: &'a Registry,
    pub(super) sources: &'a [Format],
    pub(super) sinks: Vec<Format>,
    pub(super) trainers: &'a [Format],
    schema: OnceLock<Value>,
    sql: OnceLock<Sql>,
}

impl<'a> Words<'a> {
    /// These transforms, formats of sources and of sinks, and what sinks can train.
    pub fn new(registry: &'a Registry, sources: &'a [Format], sinks: &'a [Format], trainers: &'a [Format]) -> Self {
        let sinks = sinks.iter().chain(trainers).copied().collect();
        Words { registry, sources, sinks, trainers, schema: OnceLock::new(), sql: OnceLock::new() }
    }

    /// The JSON Schema of a spec.
    pub fn schema(&self) -> &Value {
        self.schema.get_or_init(|| schema::document(self, &|_| true))
    }

    /// As much of it as a spec of this text can need: what transforms look like that it does not name is left open.
    pub(super) fn schema_of(&self, text: &str) -> Value {
        schema::document(self, &|name| text.contains(name))
    }

    pub(super) fn sql(&self) -> &Sql {
        self.sql.get_or_init(Sql::default)
    }
}
