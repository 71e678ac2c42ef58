//! Steps in terms that other runtimes have: what an exported model computes before it predicts.

use arrow::datatypes::Field;

use crate::portable_map::PortableMap;

/// One step on the way from inputs to the columns of a model.
#[derive(Debug, Clone)]
pub enum PortableStep {
    /// Columns under new names, all at once: (old name, new name)
    Rename(Vec<(String, String)>),
    /// A column that is computed
    Compute(PortableColumn),
}

/// A computed column.
#[derive(Debug, Clone)]
pub struct PortableColumn {
    /// The columns that are read: one, or the keys of a look-up
    pub reads: Vec<String>,
    /// The column that is written
    pub output: Field,
    /// The computation
    pub map: PortableMap,
}

/// Everything between raw columns and the columns of a model.
#[derive(Debug, Clone, Default)]
pub struct PortableSteps {
    /// Columns of the source, and results of windows, of functions of series and of joins, which other runtimes do not
    /// compute
    pub inputs: Vec<Field>,
    /// In their order
    pub steps: Vec<PortableStep>,
}
