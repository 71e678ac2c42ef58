//! Generated data sets.
