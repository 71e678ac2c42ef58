//! Outputs of models of classes: the most probable class, then the probability of each.

use forebay_run::{ModelClasses, class_column};

use super::graph::{GraphBuilder, Value, int_attribute, int64s, texts};
use super::protobuf::TensorType;

/// Adds the outputs for scores: a matrix with a column for each class. Of equal probabilities, the first class is predicted.
pub fn add_classes(graph: &mut GraphBuilder, scores: &Value, classes: &ModelClasses) {
    let by_class = vec![int_attribute("axis", 1)];
    let probabilities = graph.node_with("Softmax", &[scores], by_class);
    let probabilities = graph.cast(&probabilities, TensorType::Float);
    let of_rows = vec![int_attribute("axis", 1), int_attribute("keepdims", 0)];
    let number = graph.node_with("ArgMax", &[&probabilities], of_rows);
    let tensor = match classes {
        ModelClasses::Integers(values) => int64s(&[values.len()], values),
        ModelClasses::Texts(values) => texts(values),
    };
    let tensor_type = match classes {
        ModelClasses::Integers(_) => TensorType::Int64,
        ModelClasses::Texts(_) => TensorType::String,
    };
    let names = graph.constant(tensor);
    let class = graph.node("Gather", &[&names, &number]);
    graph.output(super::PREDICTION, &class, tensor_type);
    for (number, name) in classes.names().iter().enumerate() {
        let probability = graph.column(&probabilities, number);
        let output = class_column(super::PREDICTION, name);
        graph.output(&output, &probability, TensorType::Float);
    }
}
