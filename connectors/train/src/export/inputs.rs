//! Feature columns of an exported model: inputs of its own, or results of the steps before it.

use forebay_feed::FeatureField;
use forebay_model::Result;

use super::graph::{GraphBuilder, Value};
use super::protobuf::TensorType;
use super::steps::StepColumns;
use crate::network::{EmbeddingTable, ModelShape};

/// Feature columns as matrices of one row per row.
pub struct FeatureInputs {
    /// Numbers, float32, in the order of the model; none where it takes none
    pub dense: Option<Value>,
    /// Ids of each categorical column, int64
    pub ids: Vec<Value>,
}

impl FeatureInputs {
    /// Adds the feature columns: float32 for numbers, int64 for ids.
    pub fn add(
        graph: &mut GraphBuilder,
        shape: &ModelShape,
        columns: &mut StepColumns,
    ) -> Result<FeatureInputs> {
        let mut matrices = Vec::new();
        for field in &shape.dense {
            matrices.push(add_numbers(graph, field, columns)?);
        }
        let dense = match matrices.len() {
            0 => None,
            1 => matrices.pop(),
            _ => Some(graph.side_by_side(&matrices)),
        };
        let mut ids = Vec::new();
        for embedding in &shape.embeddings {
            ids.push(add_ids(graph, embedding, columns)?);
        }
        Ok(FeatureInputs { dense, ids })
    }
}

/// A runtime has no nulls: NaN stands for a missing number, and becomes the value that the field gives it.
fn add_numbers(
    graph: &mut GraphBuilder,
    field: &FeatureField,
    columns: &mut StepColumns,
) -> Result<Value> {
    let width = field.width as usize;
    let column = columns.take(graph, &field.column, TensorType::Float, width)?;
    let numbers = match field.missing {
        Some(missing) if !missing.is_nan() => {
            let is_missing = graph.node("IsNaN", &[&column]);
            let replacement = graph.float(missing as f32);
            graph.node("Where", &[&is_missing, &replacement, &column])
        }
        _ => column,
    };
    Ok(if width == 1 {
        graph.as_column(&numbers)
    } else {
        numbers
    })
}

fn add_ids(
    graph: &mut GraphBuilder,
    embedding: &EmbeddingTable,
    columns: &mut StepColumns,
) -> Result<Value> {
    let width = embedding.ids;
    let ids = columns.take(graph, &embedding.column, TensorType::Int64, width)?;
    Ok(if width == 1 {
        graph.as_column(&ids)
    } else {
        ids
    })
}
