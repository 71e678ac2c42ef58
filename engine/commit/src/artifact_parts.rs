//! Findings, types and faults that all files of an artifact share.

use std::sync::Arc;

use arrow::datatypes::DataType;
use forebay_model::{Fault, Finding, codes};

/// A finding with its analyzer.
#[derive(Debug, Clone)]
pub struct LearnedFinding {
    /// The step that requested the finding.
    pub step: String,
    /// The analyzer.
    pub analyzer: String,
    /// Input columns of the analyzer.
    pub columns: Vec<String>,
    /// The part of the split that it saw.
    pub part: Option<String>,
    /// The finding.
    pub finding: Arc<Finding>,
}

/// A fault for a file of an artifact that was changed or broken.
pub(crate) fn corrupt_fault(message: impl Into<String>) -> Fault {
    Fault::new(codes::CORRUPT, message).hint("fit again; artifacts are not for editing")
}

/// Names of the types without parameters.
pub(crate) fn simple_types() -> Vec<(&'static str, DataType)> {
    use arrow::datatypes::TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    vec![
        ("boolean", DataType::Boolean),
        ("int8", DataType::Int8),
        ("int16", DataType::Int16),
        ("int32", DataType::Int32),
        ("int64", DataType::Int64),
        ("uint8", DataType::UInt8),
        ("uint16", DataType::UInt16),
        ("uint32", DataType::UInt32),
        ("uint64", DataType::UInt64),
        ("float32", DataType::Float32),
        ("float64", DataType::Float64),
        ("string", DataType::Utf8),
        ("binary", DataType::Binary),
        ("date", DataType::Date32),
        ("timestamp_s", DataType::Timestamp(Second, None)),
        ("timestamp_ms", DataType::Timestamp(Millisecond, None)),
        ("timestamp_us", DataType::Timestamp(Microsecond, None)),
        ("timestamp_ns", DataType::Timestamp(Nanosecond, None)),
    ]
}
