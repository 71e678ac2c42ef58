//! Names that specs can use.

use std::sync::OnceLock;

pub use forebay_connectors::ConnectorFormat;
use forebay_plan::{SqlCompiler, TransformRegistry};
use serde_json::Value;

use super::schema;

/// The transforms and formats that specs can name, and the JSON Schema that follows from them.
/// Make it once: the schema is generated on first use and kept.
///
/// ```
/// use forebay::Forebay;
/// use forebay::spec::json_schema;
///
/// // Transforms that are registered can be named.
/// let forebay = Forebay::new();
/// let catalog = forebay.spec_catalog();
/// assert!(json_schema(&catalog).to_string().contains("standardize"));
/// ```
pub struct SpecCatalog<'a> {
    pub(super) registry: &'a TransformRegistry,
    pub(super) sources: &'a [ConnectorFormat],
    pub(super) sinks: Vec<ConnectorFormat>,
    pub(super) trainers: &'a [ConnectorFormat],
    pub(super) predictors: &'a [ConnectorFormat],
    schema: OnceLock<Value>,
    sql: OnceLock<SqlCompiler>,
}

impl<'a> SpecCatalog<'a> {
    /// Catalog of these transforms, formats of sources and of sinks, trainers, and predictors.
    pub fn new(
        registry: &'a TransformRegistry,
        sources: &'a [ConnectorFormat],
        sinks: &'a [ConnectorFormat],
        trainers: &'a [ConnectorFormat],
        predictors: &'a [ConnectorFormat],
    ) -> Self {
        let sinks = sinks
            .iter()
            .chain(trainers)
            .chain(predictors)
            .copied()
            .collect();
        SpecCatalog {
            registry,
            sources,
            sinks,
            trainers,
            predictors,
            schema: OnceLock::new(),
            sql: OnceLock::new(),
        }
    }

    /// The JSON Schema of a spec.
    pub fn schema(&self) -> &Value {
        self.schema
            .get_or_init(|| schema::document(self, &|_| true))
    }

    /// Schema with the parts that a spec of this text can need: transforms whose names do not occur
    /// are left open.
    pub(super) fn schema_for_text(&self, text: &str) -> Value {
        schema::document(self, &|name| text.contains(name))
    }

    pub(super) fn sql(&self) -> &SqlCompiler {
        self.sql.get_or_init(SqlCompiler::default)
    }
}
