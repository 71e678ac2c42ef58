//! Values of a graph, one per row, with what stands for missing ones.

use arrow::datatypes::DataType;

use super::graph::{GraphBuilder, Value};
use super::protobuf::TensorType;

/// The id of a missing category.
pub const MISSING_ID: i64 = -1;

/// A value of the graph with one number or text per row, or with a list of numbers.
///
/// Numbers with a fraction are NaN where they are missing, and int64 ids are -1. Columns whose ids may be -1 themselves are
/// doubles.
#[derive(Clone)]
pub struct TypedValue {
    pub value: Value,
    pub tensor_type: TensorType,
    /// The name of the column
    pub name: String,
    /// The type of the column
    pub data_type: DataType,
}

impl TypedValue {
    /// Values of another type.
    pub fn as_type(&self, graph: &mut GraphBuilder, tensor_type: TensorType) -> Value {
        if self.tensor_type == tensor_type {
            return self.value.clone();
        }
        if self.tensor_type == TensorType::String {
            return graph.cast(&self.value, tensor_type);
        }
        let numbers = self.as_doubles(graph);
        match tensor_type {
            TensorType::Double => numbers,
            TensorType::Int64 => whole_numbers(graph, &numbers, MISSING_ID),
            TensorType::Float | TensorType::Uint8 | TensorType::String => {
                graph.cast(&numbers, tensor_type)
            }
        }
    }

    /// Numbers in double precision, NaN for missing ones.
    pub fn as_doubles(&self, graph: &mut GraphBuilder) -> Value {
        match self.tensor_type {
            TensorType::Double => self.value.clone(),
            TensorType::Int64 => {
                let missing_id = graph.int64(MISSING_ID);
                let is_missing = graph.node("Equal", &[&self.value, &missing_id]);
                let numbers = graph.cast(&self.value, TensorType::Double);
                let missing = graph.double(f64::NAN);
                graph.node("Where", &[&is_missing, &missing, &numbers])
            }
            TensorType::Float | TensorType::Uint8 | TensorType::String => {
                graph.cast(&self.value, TensorType::Double)
            }
        }
    }
}

/// Whole numbers of doubles, with a number for missing ones.
pub fn whole_numbers(graph: &mut GraphBuilder, numbers: &Value, missing: i64) -> Value {
    let missing = graph.double(missing as f64);
    let is_missing = graph.node("IsNaN", &[numbers]);
    let numbers = graph.node("Where", &[&is_missing, &missing, numbers]);
    graph.cast(&numbers, TensorType::Int64)
}

/// The type of the values of a column, of dictionaries too.
pub fn plain_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values.as_ref(),
        other => other,
    }
}
