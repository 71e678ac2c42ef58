//! Linear and logistic models and networks as graphs of ONNX.

use forebay_model::Result;

use super::classes::add_classes;
use super::graph::{GraphBuilder, Value, floats, int_attribute, int64s};
use super::inputs::FeatureInputs;
use super::protobuf::TensorType;
use super::steps::StepColumns;
use super::target::TargetInverse;
use crate::config::{LossFunction, OnNonFinite};
use crate::file::ModelCard;
use crate::network::{EmbeddingTable, ModelParameters};

/// Adds the network and its output.
pub fn add_network(
    graph: &mut GraphBuilder,
    card: &ModelCard,
    parameters: &ModelParameters,
    columns: &mut StepColumns,
    target: &TargetInverse,
) -> Result<()> {
    let shape = &card.shape;
    let inputs = FeatureInputs::add(graph, shape, columns)?;
    let mut layer_inputs = Vec::new();
    let mut id_weights = Vec::new();
    let mut unusable_rows = None;
    if let Some(dense) = inputs.dense {
        let (numbers, unusable) = finite_numbers(graph, dense, card.non_finite);
        layer_inputs.push(numbers);
        unusable_rows = unusable;
    }
    for (number, embedding) in shape.embeddings.iter().enumerate() {
        let table = &parameters.tables[number];
        let embedded = add_embedding(graph, embedding, table, &inputs.ids[number]);
        if shape.added {
            id_weights.push(embedded);
        } else {
            layer_inputs.push(embedded);
        }
    }
    let mut result = add_layers(graph, card, parameters, &layer_inputs);
    for weights in &id_weights {
        // A result of each class has a weight of each id: those of an id are together.
        let by_id = graph.constant(int64s(&[3], &[0, -1, shape.outputs as i64]));
        let weights = graph.node("Reshape", &[weights, &by_id]);
        let axes = graph.constant(int64s(&[1], &[1]));
        let without_axis = vec![int_attribute("keepdims", 0)];
        let sum = graph.node_with("ReduceSum", &[&weights, &axes], without_axis);
        result = graph.node("Add", &[&result, &sum]);
    }
    if let Some(classes) = &card.classes {
        let scores = graph.cast(&result, TensorType::Double);
        add_classes(graph, &scores, classes, unusable_rows.as_ref());
        return Ok(());
    }
    let mut prediction = graph.column(&result, 0);
    if card.loss == LossFunction::Logistic {
        prediction = graph.node("Sigmoid", &[&prediction]);
    }
    if let Some(unusable) = unusable_rows {
        let missing = graph.float(f32::NAN);
        prediction = graph.node("Where", &[&unusable, &missing, &prediction]);
    }
    target.output(graph, super::PREDICTION, &prediction);
    Ok(())
}

/// Numbers that the layers take, and the rows that have no prediction since a number is not finite.
fn finite_numbers(
    graph: &mut GraphBuilder,
    numbers: Value,
    policy: OnNonFinite,
) -> (Value, Option<Value>) {
    // A difference with itself is 0 for finite numbers and NaN for NaN and infinities.
    let difference = graph.node("Sub", &[&numbers, &numbers]);
    let is_bad = graph.node("IsNaN", &[&difference]);
    let zero = graph.float(0.0);
    let replaced = graph.node("Where", &[&is_bad, &zero, &numbers]);
    if policy == OnNonFinite::Zero {
        return (replaced, None);
    }
    let counted = graph.cast(&is_bad, TensorType::Float);
    let axes = graph.constant(int64s(&[1], &[1]));
    let bad_count = graph.node_with(
        "ReduceSum",
        &[&counted, &axes],
        vec![int_attribute("keepdims", 0)],
    );
    let is_unusable = graph.node("Greater", &[&bad_count, &zero]);
    (replaced, Some(is_unusable))
}

/// The rows of the table for the ids of each row, side by side.
fn add_embedding(
    graph: &mut GraphBuilder,
    embedding: &EmbeddingTable,
    table: &[f32],
    ids: &Value,
) -> Value {
    // Row 0 of the table belongs to ids that training has not seen; id 0 has row 1.
    let zero = graph.int64(0);
    let first_id = graph.int64(1);
    let ids_end = graph.int64(embedding.rows as i64 - 1);
    let is_positive = graph.node("GreaterOrEqual", &[ids, &zero]);
    let is_below_end = graph.node("Less", &[ids, &ids_end]);
    let is_seen = graph.node("And", &[&is_positive, &is_below_end]);
    let row = graph.node("Add", &[ids, &first_id]);
    let row = graph.node("Where", &[&is_seen, &row, &zero]);
    let dimensions = [embedding.rows, embedding.width];
    let table = graph.constant(floats(&dimensions, table));
    let embedded = graph.node("Gather", &[&table, &row]);
    let flat_width = (embedding.ids * embedding.width) as i64;
    let flat = graph.constant(int64s(&[2], &[-1, flat_width]));
    graph.node("Reshape", &[&embedded, &flat])
}

/// The layers, of which the last one has the results.
fn add_layers(
    graph: &mut GraphBuilder,
    card: &ModelCard,
    parameters: &ModelParameters,
    inputs: &[Value],
) -> Value {
    let mut values = match inputs {
        [single] => single.clone(),
        _ => graph.side_by_side(inputs),
    };
    let layers = card.shape.layers();
    let last = layers.len() - 1;
    for (number, layer) in layers.into_iter().enumerate() {
        let dimensions = [layer.outputs, layer.inputs];
        let weights = &parameters.layers[layer.weights];
        let weights = graph.constant(floats(&dimensions, weights));
        let biases = &parameters.layers[layer.biases];
        let biases = graph.constant(floats(&[layer.outputs], biases));
        let transposed = vec![int_attribute("transB", 1)];
        values = graph.node_with("Gemm", &[&values, &weights, &biases], transposed);
        if number < last {
            values = graph.node("Relu", &[&values]);
        }
    }
    values
}
