//! Names that specs can use.

use std::sync::OnceLock;

pub use forebay_connectors::ConnectorFormat;
use forebay_plan::{SqlCompiler, TransformRegistry};
use serde_json::Value;

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
    pub(super) schema: OnceLock<Value>,
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

    pub(super) fn sql(&self) -> &SqlCompiler {
        self.sql.get_or_init(SqlCompiler::default)
    }
}
