//! Columns of the sources of an applied artifact.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::{Field, SchemaRef};

/// Columns that new rows may lack, in order, by source.
pub(crate) type OptionalColumns = BTreeMap<String, Vec<OptionalColumn>>;

/// A column that new rows may lack.
#[derive(Debug, Clone)]
pub(crate) struct OptionalColumn {
    pub field: Field,
    /// Index of the column among those of the fit.
    pub index: usize,
}

/// Facts of an applied artifact about the columns of its sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServedInputs {
    /// Columns that the sources may lack.
    pub optional: OptionalColumns,
    /// Columns of the fit, by source.
    pub schemas: BTreeMap<String, SchemaRef>,
    /// Predicted columns.
    pub labels: BTreeSet<String>,
    /// True where an artifact is applied.
    pub is_application: bool,
}
